"""The comparisons of the query guard, as pure functions."""

import json
import logging
import pickle
from collections import Counter
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from cdc_formats import columns, get_format, list_formats
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
from tests.support.error_texts import error_test, text_test
from tests.support.paths import VECTORS

LAYOUT = Layout(4, columns("id INT, price DECIMAL(5,2)"), ("id",))
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


def test_a_filter_that_is_set_later_excludes_its_column_from_the_comparison():
    stored = check(
        None, [PartitionSummary("t", 0, 0, [table("orders")])], LAYOUT, Expected(NAMES), 0
    )
    databases = Expected(Identity(("source.database",), ("database_include",), primary_key=("id",)))
    items = SourceTable({"source.database": "shop"}, "t", "t[0]@9")
    assert check(stored, [PartitionSummary("t", 0, 0, [items])], LAYOUT, databases, 0)


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
        assert all(
            Traits.of(format).table_identity[name] == "table_include"
            for name in format.metadata
            if name.endswith("table")
        )
    assert [name for name, format in named.items() if not Traits.of(format).table_identity] == [
        "changelog-json",
        "cockroachdb-json",
        "op-json",
        "upsert-kafka",
    ]


def described(partitions: int, topic_id: str = "A", **options) -> Expected:
    return Expected(topics={"t": TopicDescription(topic_id, partitions)}, **options)


def test_topics_that_kafka_does_not_describe_are_a_warning(caplog):
    with caplog.at_level(logging.WARNING):
        assert (
            topic_descriptions({"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}) == {}
        )
    assert "cannot detect a topic that was deleted and created again" in caplog.text
    assert "localhost" not in caplog.text


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


def stored_guard(name: str) -> bytes:
    return (VECTORS / "state" / "v3" / f"guard-{name}.bin").read_bytes()


def noticed(*batches: list[bytes], ddl: str = "id INT", **options: Any) -> str:
    """Return the notices of a task and its counts."""
    notices, counts = run([*batches], ddl, **options)
    counted = {name: count for name, count in counts.items() if count}
    return "\n".join([*(notice.text for notice in notices), str(counted)])


OF_RELEASE = (
    Layout(64, columns("id BIGINT, name STRING, weight DECIMAL(10,3)"), ("id",)),
    Expected(Identity(("source.table",), ("table_include",), primary_key=("id",))),
    0,
)
WITH_CONDITION, WITHOUT_CONDITION = (Expected(NAMES, condition=each) for each in ("(id > 1)", ""))
GUARD = checked([seen(0, 1)], expected=Expected()) or b""
LATE = [seen(0, 1)], [seen(0, 5), seen(2, 10)], [seen(0, 7)]
BAD_RECORDS = {"mode": "DROPMALFORMED", "on_truncate": "ignore"}
ADDED: dict[str, tuple[list[list[PartitionSummary]], Any]] = {
    "a later record of an old partition": ([*LATE[:2], [seen(0, 10)]], described(2)),
    "another new partition": ([*LATE[:2], [seen(3, 7)]], described(2)),
    "two new partitions": ([*LATE[:2], [seen(2, 11), seen(3, 4)]], described(2)),
    "late records in an original partition": (
        [[seen(0, 1)], [seen(1, 50)], [seen(0, 2)]],
        described(2),
    ),
    "late records by the source's positions": ([*LATE], described(2, by_source=True)),
    "late records of a topic that is not described": ([*LATE], Expected()),
    "a topic whose id is unknown for a while": (
        [[seen(0, 1)], [seen(0, 2)], [seen(0, 3)]],
        [described(1), described(1, ""), Expected()],
    ),
}


def test_a_guard_without_a_condition_of_an_earlier_release_goes_on() -> None:
    stored = checked([seen(0, 1)], expected=WITH_CONDITION)
    *earlier, _, _ = msgspec.msgpack.decode(stored)
    for each in (stored, msgspec.msgpack.encode(earlier)):
        assert check(each, [], LAYOUT, WITH_CONDITION, 0) == stored


# Whether a query goes on, which has a guard.
test_texts = text_test(
    __file__,
    {
        **{
            f"goes on: {name}": lambda batches=batches, expected=expected: bool(
                checked(*batches, expected=expected)
            )
            for name, (batches, expected) in ADDED.items()
        },
        "goes on: the guard of a released version": lambda: bool(
            check(stored_guard("full"), [seen(0, 1)], *OF_RELEASE)
        ),
        "a table in several topics and without its name": lambda: NAMES.merged(
            [], [table("orders"), table("orders", topic="u"), table(None)]
        ),
        "columns that are absent and unknown": lambda: noticed(
            [message(id=1, wieght=2)] * 3,
            [message(id=1, weight=2, more=1), message(id=1, weight=2)],
            ddl="id INT, weight INT",
        ),
        "an undeclared column that is unreadable": lambda: noticed(
            [b'{"op": "c", "after": {"id": 1, "\xff": 2}}', message(id=2, more=3)]
        ),
        "a bad record while others have rows": lambda: noticed(
            [b"bad", message(id=1)], **BAD_RECORDS
        ),
        "a bad record while another is a truncate": lambda: noticed(
            [b"bad"], [b'{"op": "t"}'], **BAD_RECORDS
        ),
        "only bad records": lambda: noticed([b"bad"], [b"worse"], **BAD_RECORDS),
        "a sample of alternating tombstones": lambda: len(sample([[], [1]] * 5_000, 500)),
        **{
            f"names in messages, {number}": partial(shown_names, names)
            for number, names in enumerate(
                [
                    ["a", "b c"],
                    ["\x1b[31mred\n", "\u202eevil"],
                    ["x" * 1000],
                    [str(number) for number in range(12)],
                ],
                1,
            )
        },
    },
)
TWO_TABLES = [
    [table("orders"), table("items")],
    [table("orders"), table("orders", "other")],
    [table("orders"), table("items", "other")],
    [table(None), table(None, topic="u")],
    [table("orders"), table(None, topic="u")],
]
test_error_texts = error_test(
    __file__,
    {
        **{
            f"two tables are an error that shows the options (1), {number}": lambda tables=tables: (
                NAMES.merged([], tables)
            )
            for number, tables in enumerate(
                TWO_TABLES,
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
                TWO_TABLES,
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
        "another condition than that of the checkpoint": partial(
            checked, [seen(0, 1)], [], expected=[WITH_CONDITION, WITHOUT_CONDITION]
        ),
        "another table than that of a guard of a released version": lambda: check(
            stored_guard("full"),
            [PartitionSummary("t", 0, 1, [SourceTable({"source.table": "items"}, "t", "t[0]@9")])],
            *OF_RELEASE,
        ),
        "a guard of a compact state": lambda: check(
            stored_guard("compact"), [seen(0, 1)], *OF_RELEASE
        ),
        "a guard that is cut": lambda: check(GUARD[:-3], [], LAYOUT, Expected(), 0),
        "a guard of another version": lambda: check(
            GUARD[:1] + b"\x09" + GUARD[2:], [], LAYOUT, Expected(), 0
        ),
        "a topic with another id": partial(
            checked, [seen(0, 1)], [seen(0, 2)], expected=[described(1), described(1, "B")]
        ),
        "a topic with another id, after one without": partial(
            checked,
            *([seen(0, 1)], [seen(0, 2)], [seen(0, 3)]),
            expected=[described(1, ""), described(1), described(1, "B")],
        ),
        **{
            f"records from before an added partition, has_positions={has_positions}": partial(
                checked, *LATE, expected=described(2, has_positions=has_positions)
            )
            for has_positions in (False, True)
        },
    },
)
