"""Observations of a task: the sample of names, counts, and notices logged once and escaped."""

import json
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns, get_format
from normalize.core.records import DECODE_COUNTS
from normalize.decode.collectors import Blocks
from normalize.decode.columnar import one_by_one
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from normalize.monitoring.watch import Notice, OnDriver, log_check, read_counts, sample, shown_names
from tests.support.both_decoders import differences, outcome, source_of, together


@given(st.lists(st.booleans(), max_size=30_000), st.integers(0, 2_000))
def test_a_sample_is_small_and_has_only_records_with_rows(with_rows, size):
    decoded = [[1] if each else [] for each in with_rows]
    places = sample(decoded, size)
    assert len(places) <= 20
    assert all(decoded[place] for place in places)
    assert places == sorted(set(places))
    if any(with_rows[:1]):
        assert places[0] == 0
    if len(decoded) * size > 65_536:
        assert len(places) <= max(1, len(decoded) // 500), "one in 500, so that it costs little"


def test_alternating_tombstones_do_not_hide_the_rows():
    assert len(sample([[], [1]] * 5_000, 500)) == 20


def batch(values: list[bytes], start: int = 0) -> pa.RecordBatch:
    places = np.arange(start, start + len(values))
    return pa.RecordBatch.from_pydict(
        {
            "value": values,
            "partition": pa.array([0] * len(values), pa.int32()),
            "offset": places,
            "stamp": places,
            "topic": ["t"] * len(values),
        }
    )


def run(values: list[list[bytes]], ddl: str, **options) -> tuple[list[Notice], dict[str, int]]:
    source = DecodePlan(
        get_format("debezium-json"),
        columns(ddl),
        unique_key=("id",),
        key_groups=1,
        topic=None,
        **options,
    )
    notices: list[Notice] = []
    starts = np.cumsum([0, *map(len, values)])
    batches = [batch(of, int(start)) for of, start in zip(values, starts, strict=False)]
    counts = Counter[str]()
    for out in decode_pass(iter(batches), plan=source, collector=Blocks, report=notices.extend):
        counts.update(read_counts(out, DECODE_COUNTS))
    return notices, counts


def message(**after) -> bytes:
    return json.dumps({"op": "c", "after": after}).encode()


def test_a_task_reports_the_columns_of_all_its_batches_once():
    values = [
        [message(id=1, wieght=2)] * 3,
        [message(id=1, weight=2, more=1), message(id=1, weight=2)],
    ]
    notices, counts = run(values, "id INT, weight INT")
    assert (counts["ABSENT_COLUMNS"], counts["UNKNOWN_COLUMNS"]) == (3, 4)
    absent, unknown = (notice.text for notice in notices)
    assert "missing from 3 of 5 sampled records (first: t[0]@0): `weight`" in absent
    assert "in 3 of 5 sampled records (first: t[0]@0) but not declared: `wieght`, `more`" in unknown


def test_changes_without_a_position_are_counted_and_reported():
    # A delete of a flattened message has no value, and so no position; nor has a read without the
    # source's clock.
    snapshot = {"connector": "postgresql", "snapshot": "incremental", "lsn": None}
    cases = {
        "debezium-flat-json": (
            [
                (b'{"id": 1}', b'{"id": 1, "__lsn": 7}'),
                (b'{"id": 1}', None),
                (b'{"id": 2}', b"null"),
            ],
            2,
        ),
        "debezium-json": (
            [(None, json.dumps({"op": "r", "after": {"id": 1}, "source": snapshot}).encode())],
            1,
        ),
        "maxwell-json": ([(None, b'{"type": "bootstrap-insert", "data": {"id": 1}, "ts": 5}')], 0),
    }
    for identifier, (records, expected) in cases.items():
        source = source_of(get_format(identifier), "id INT", ["id"], positions=True)
        assert not differences(source, records)
        assert differences(replace(source, positions=False), records) == []
        for columnar in (one_by_one, together):
            counts = outcome(source, records, columnar=columnar).counts
            assert (
                sum(each["WITHOUT_POSITION"] for each in counts if isinstance(each, dict))
                == expected
            )
            texts = [each.text for each in counts if isinstance(each, Notice)]
            assert [
                f"t: {expected} changes have no position in the source's log (first: t[0]@" in text
                for text in texts
            ] == ([True] if expected else [])


def test_rows_without_offsets_are_numbered_over_the_batches_of_a_task():
    batches = [batch([message(id=1)] * 2, 0), batch([message(id=1), message(id=1, more=1)], 0)]
    without = [each.select(["value", "partition", "stamp"]) for each in batches]
    options = {"record_columns": frozenset({"value"}), "row_order": "row"}
    source = DecodePlan(
        get_format("debezium-json"), columns("id INT"), unique_key=("id",), topic="", **options
    )
    notices: list[Notice] = []
    list(decode_pass(iter(without), plan=source, collector=Blocks, report=notices.extend))
    (notice,) = notices
    assert notice.text.startswith(
        "the DataFrame: in 1 of 4 sampled records (first: DataFrame[0]@3) but not declared: `more`"
    )


def test_an_undeclared_column_may_be_unreadable():
    notices, counts = run(
        [[b'{"op": "c", "after": {"id": 1, "\xff": 2}}', message(id=2, more=3)]], "id INT"
    )
    assert (counts["RECORDS"], counts["UNKNOWN_COLUMNS"], len(notices)) == (2, 1, 1)


def test_dropped_errors_cause_no_notice_while_other_records_have_rows():
    assert run([[b"bad", message(id=1)]], "id INT", mode="DROPMALFORMED")[0] == []
    assert (
        run([[b"bad"], [b'{"op": "t"}']], "id INT", mode="DROPMALFORMED", on_truncate="ignore")[0]
        == []
    )
    (notice,), counts = run([[b"bad"], [b"worse"]], "id INT", mode="DROPMALFORMED")
    assert "every record that a task read is bad (2 of 2: MALFORMED_MESSAGE 2)" in notice.text
    assert counts["MALFORMED_MESSAGE"] == 2


def test_a_notice_is_logged_once_and_only_on_the_driver(caplog):
    driver = OnDriver()
    in_task = pickle.loads(pickle.dumps(driver))
    first, second = Notice(("a", "b"), "one"), Notice(("b",), "two")
    collected = in_task.addInPlace(in_task.addInPlace(in_task.zero([]), [first]), [second])
    assert (collected, caplog.messages) == ([first, second], [])
    assert driver.addInPlace(driver.zero([]), collected) == []
    driver.addInPlace([], [first, Notice(("b", "c"), "three")])
    assert caplog.messages == ["one", "three"]


def test_a_producer_with_many_new_names_does_not_fill_the_log(caplog):
    log_check([Notice((f"checked {number}",), "at the call") for number in range(10)])
    caplog.clear()
    driver = OnDriver()
    for number in range(3_000):
        driver.addInPlace([], [Notice((f"checked {number}",), "new")])
    assert caplog.messages == ["new"] * 1_000
    assert driver.shown.subjects == {f"checked {number}" for number in range(10, 1_010)}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b c"], "`a`, `b c`"),
        (["\x1b[31mred\n", "\u202eevil"], r"`\x1b[31mred\n`, `\u202eevil`"),
        (["x" * 1000], f"`{'x' * 60}`"),
        (
            [str(number) for number in range(12)],
            "`0`, `1`, `2`, `3`, `4`, `5`, `6`, `7`, `8`, `9` and 2 more",
        ),
    ],
)
def test_names_from_messages_are_escaped(names, shown):
    assert shown_names(names) == shown
