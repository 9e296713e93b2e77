"""The comparisons of the query guard, as pure functions."""

import json
import logging
import pickle
from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns, get_format, list_formats
from cdc_formats.errors import (
    PartitionsAddedError,
    SeveralTablesError,
    StateDamagedError,
    StateVersionError,
    TopicReplacedError,
)
from cdc_formats.message_format import Traits
from cdc_formats.topics.client import TopicDescription
from normalize.core.guard import (
    Expected,
    Identity,
    PartitionSummary,
    SourceTable,
    check,
)
from normalize.core.records import DECODE_COUNTS
from normalize.core.state import Layout
from normalize.decode.collectors import Blocks
from normalize.decode.columnar import one_by_one
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from normalize.kafka.topics import topic_descriptions
from normalize.monitoring.watch import Notice, OnDriver, log_check, read_counts, sample, shown_names
from tests.support.both_decoders import differences, outcome, source_of, together
from tests.support.error_texts import error_test
from tests.support.paths import VECTORS

LAYOUT = Layout(4, columns("id INT, price DECIMAL(5,2)"), ("id",))
COMPACT = (
    r"the checkpoint's state is compact .*, which this release does not read: start from a new "
    r"checkpoint$"
)
NAMES = Identity(
    ("source.database", "source.table"),
    ("database_include", "table_include"),
    topics=True,
    primary_key=("id",),
)


def table(name: str | None, database: str = "shop", topic: str = "t") -> SourceTable:
    return SourceTable(
        {"source.database": database, "source.table": name} if name else {}, topic, f"{topic}[0]@7"
    )


def seen(partition: int, stamp: int, topic: str = "t") -> PartitionSummary:
    return PartitionSummary(topic, partition, stamp)


def checked(
    *batches: list[PartitionSummary], expected: Expected | list[Expected], layout: Layout = LAYOUT
) -> bytes | None:
    """Return the guard's state after micro-batches, which may belong to different queries."""
    stored = None
    each = expected if isinstance(expected, list) else [expected] * len(batches)
    for batch, of_batch in zip(batches, each, strict=True):
        stored = check(stored, batch, layout, of_batch, 0)
    return stored


def test_a_table_is_one_table_in_several_topics_and_without_its_name():
    assert NAMES.merged([], [table("orders"), table("orders", topic="u"), table(None)]) == [
        table("orders")
    ]


def test_a_filter_that_is_set_later_excludes_its_column_from_the_comparison():
    stored = check(
        None, [PartitionSummary("t", 0, 0, [table("orders")])], LAYOUT, Expected(NAMES), 0
    )
    databases = Expected(Identity(("source.database",), ("database_include",), primary_key=("id",)))
    items = SourceTable({"source.database": "shop"}, "t", "t[0]@9")
    assert check(stored, [PartitionSummary("t", 0, 0, [items])], LAYOUT, databases, 0)


def test_another_condition_than_that_of_the_checkpoint_is_refused():
    before, after = (Expected(NAMES, condition=condition) for condition in ("(id > 1)", ""))
    stored = checked([seen(0, 1)], expected=before)
    assert check(stored, [], LAYOUT, before, 0) == stored
    text = (
        r"where= is None, and was \(id > 1\) when the checkpoint was written: set it back, or "
        r"start from a new checkpoint"
    )
    with pytest.raises(StateVersionError, match=text):
        check(stored, [], LAYOUT, after, 0)
    # Earlier releases did not store it.
    *earlier, _, _ = msgspec.msgpack.decode(stored)
    assert check(msgspec.msgpack.encode(earlier), [], LAYOUT, before, 0) == stored


def test_every_format_names_its_tables_by_metadata_and_options_that_it_has():
    ours = (type(get_format(identifier)) for identifier in list_formats())
    named = {
        format.identifier: format for format in ours if format.__module__.startswith("cdc_formats.")
    }
    for format in named.values():
        assert set(Traits.of(format).table_identity) <= set(format.metadata)
        assert {option for option in Traits.of(format).table_identity.values() if option} <= set(
            format.__dataclass_fields__
        )
    assert [name for name, format in named.items() if not Traits.of(format).table_identity] == [
        "changelog-json",
        "cockroachdb-json",
        "op-json",
        "upsert-kafka",
    ]


def test_the_guard_of_a_released_version_goes_on_and_that_of_a_compact_state_is_refused():
    layout = Layout(64, columns("id BIGINT, name STRING, weight DECIMAL(10,3)"), ("id",))
    identity = Identity(("source.table",), ("table_include",), primary_key=("id",))
    whole, compact = (
        (VECTORS / "state" / "v3" / f"guard-{name}.bin").read_bytes()
        for name in ("full", "compact")
    )
    other = SourceTable({"source.table": "items"}, "t", "t[0]@9")
    assert check(whole, [PartitionSummary("t", 0, 1)], layout, Expected(identity), 0)
    with pytest.raises(SeveralTablesError, match=r"orders .* and items"):
        check(whole, [PartitionSummary("t", 0, 1, [other])], layout, Expected(identity), 0)
    with pytest.raises(StateVersionError, match=COMPACT):
        check(compact, [PartitionSummary("t", 0, 1)], layout, Expected(identity), 0)


def test_a_guard_that_is_damaged_or_of_another_version_is_an_error():
    stored = checked([seen(0, 1)], expected=Expected())
    with pytest.raises(StateDamagedError):
        check(stored[:-3], [], LAYOUT, Expected(), 0)
    with pytest.raises(StateVersionError, match="version 9"):
        check(stored[:1] + b"\x09" + stored[2:], [], LAYOUT, Expected(), 0)


def described(partitions: int, topic_id: str = "A", **options) -> Expected:
    return Expected(topics={"t": TopicDescription(topic_id, partitions)}, **options)


def test_a_topic_with_another_id_is_an_error_and_one_without_an_id_is_not():
    one, other, unknown = described(1), described(1, "B"), described(1, "")
    with pytest.raises(TopicReplacedError, match=r"topic t .*id A, now B"):
        checked([seen(0, 1)], [seen(0, 2)], expected=[one, other])
    assert checked([seen(0, 1)], [seen(0, 2)], [seen(0, 3)], expected=[one, unknown, Expected()])
    with pytest.raises(TopicReplacedError):
        checked([seen(0, 1)], [seen(0, 2)], [seen(0, 3)], expected=[unknown, one, other])


def test_records_from_before_an_added_partition_that_come_after_its_first_are_an_error():
    batches = [seen(0, 1)], [seen(0, 5), seen(2, 10)], [seen(0, 7)]
    with pytest.raises(
        PartitionsAddedError,
        match=r"t\[2\] was added .* older ones of t\[0\].*without maxOffsetsPerTrigger",
    ):
        checked(*batches, expected=described(2))
    with pytest.raises(PartitionsAddedError, match="with order='source'"):
        checked(*batches, expected=described(2, has_positions=True))
    assert checked(*batches, expected=described(2, by_source=True))
    assert checked(*batches, expected=Expected())


@pytest.mark.parametrize(
    "last",
    [[seen(0, 10)], [seen(3, 7)], [seen(2, 11), seen(3, 4)]],
    ids=["a later record of an old partition", "another new partition", "two new partitions"],
)
def test_records_that_cannot_be_late_are_no_error(last):
    assert checked([seen(0, 1)], [seen(0, 5), seen(2, 10)], last, expected=described(2))


def test_late_records_in_an_original_partition_are_no_error():
    assert checked([seen(0, 1)], [seen(1, 50)], [seen(0, 2)], expected=described(2))


def test_topics_that_kafka_does_not_describe_are_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert (
            topic_descriptions({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}) == {}
        )
    assert "cannot detect a topic that was deleted and created again" in caplog.text
    assert "localhost" not in caplog.text


test_error_texts = error_test(
    __file__,
    {
        **{
            f"two tables are an error that shows the options (1), {number}": lambda tables=tables: (
                NAMES.merged([], tables)
            )
            for number, tables in enumerate(
                [
                    [table("orders"), table("items")],
                    [table("orders"), table("orders", "other")],
                    [table("orders"), table("items", "other")],
                    [table(None), table(None, topic="u")],
                    [table("orders"), table(None, topic="u")],
                ],
                1,
            )
        },
        **{
            f"two tables are an error that shows the options (2), {number}": lambda tables=tables: (
                check(
                    check(
                        None, [PartitionSummary("t", 0, 0, tables[:1])], LAYOUT, Expected(NAMES), 0
                    ),
                    [PartitionSummary("t", 0, 0, tables[1:])],
                    LAYOUT,
                    Expected(NAMES),
                    0,
                )
            )
            for number, tables in enumerate(
                [
                    [table("orders"), table("items")],
                    [table("orders"), table("orders", "other")],
                    [table("orders"), table("items", "other")],
                    [table(None), table(None, topic="u")],
                    [table("orders"), table(None, topic="u")],
                ],
                1,
            )
        },
        **{
            f"a layout that differs from the checkpoint is refused, {number}": lambda other=other: (
                check(
                    checked([seen(0, 1)], expected=Expected()), [seen(0, 2)], other, Expected(), 0
                )
            )
            for number, other in enumerate(
                [
                    Layout(8, LAYOUT.columns, ("id",)),
                    Layout(4, LAYOUT.columns, ("price",)),
                    Layout(4, columns("id INT, price DECIMAL(4,2)"), ("id",)),
                ],
                1,
            )
        },
        "partitions that are added twice are distinguished after a restart": lambda: checked(
            [seen(0, 1)],
            [seen(1, 5)],
            [seen(3, 20)],
            [seen(1, 15)],
            expected=[described(1), described(2), described(4), described(4)],
        ),
    },
)


# --------------------------------------------------------------------------------------------------
# Observations of a task: the sample of names, counts, and notices logged once and escaped
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
