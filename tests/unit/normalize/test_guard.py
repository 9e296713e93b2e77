"""The comparisons of the query guard, as pure functions."""

import logging

import msgspec
import pytest

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
from normalize.core.state import Layout
from normalize.kafka.topics import topic_descriptions
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
