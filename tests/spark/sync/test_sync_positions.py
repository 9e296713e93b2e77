"""`position_column` on bounded micro-batches.

An event that is delivered again never replaces a newer row.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize import DeltaDatabase
from normalize.monitoring.explain_error import explain_error
from normalize.sync.table_options import TableOptions
from tests.support.databases import Message, canal
from tests.support.positions import Log, event, live_rows, postgresql_event
from tests.support.syncing import BoundedSync, NewBoundedSync

TABLE: dict[str, Any] = {
    "schema": "id INT, name STRING",
    "primary_key": "id",
    "format": "debezium-json",
}
WITH = TableOptions(deletes="soft", position_column="position")
WITHOUT = TableOptions(deletes="soft")
LOG = Log(60)


def apply(
    sync: BoundedSync, messages: list[Message], *, partitions: int = 1, **options: Any
) -> dict[int, str]:
    """Apply a micro-batch in a restarted query, and return the rows that are not deleted."""
    sync.produce("t", messages, partitions=partitions)
    sync.apply(sync.table_job(**{**TABLE, "table": WITH, **options}))
    return live_rows(sync.rows("orders"))


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("partitions", [1, 3])
def test_slice_that_is_delivered_again_leaves_the_table_equal_to_the_source(
    new_sync: NewBoundedSync, kind: str, partitions: int
) -> None:
    sync = new_sync(kind)
    assert apply(sync, LOG.events[:40], partitions=partitions) == LOG.rows(40)
    for again in (LOG.events[10:25], LOG.events[:40], LOG.events[20:39]):
        assert apply(sync, again, partitions=partitions) == LOG.rows(40)
    # Old and new events in one micro-batch, which then is repeated.
    for _ in range(2):
        assert apply(
            sync, [*LOG.events[30:60], *LOG.events[:50]], partitions=partitions
        ) == LOG.rows(60)
        rows = sync.rows("orders")
        sync.forget_last_commit()
        sync.apply(sync.table_job(**TABLE, table=WITH))
        assert sync.rows("orders") == rows


def test_without_the_option_the_slice_sets_rows_back(sync: BoundedSync) -> None:
    assert apply(sync, LOG.events[:40], table=WITHOUT) == LOG.rows(40)
    assert apply(sync, LOG.events[10:25], table=WITHOUT) != LOG.rows(40)


@pytest.mark.parametrize("by_spark", [False, True])
def test_tables_of_a_database_have_the_option(sync: BoundedSync, by_spark: bool) -> None:
    options = {"format": "debezium-json", "tables": {"shop.orders": WITH}}
    for messages in (LOG.events[:40], LOG.events[10:25]):
        sync.produce("t", messages, partitions=2)
        sync.run(by_spark=by_spark, **options)
        assert live_rows(sync.rows("orders")) == LOG.rows(40)


@pytest.mark.parametrize("first", [[["c"], ["d"]], [["c", "d"]], [["d"]]])
def test_insert_that_is_delivered_after_its_delete_stays_deleted(
    sync: BoundedSync, first: list[list[str]]
) -> None:
    messages = {"c": event("c", 1, "a", 1), "d": event("d", 1, "a", 2)}
    for ops in first:
        apply(sync, [messages[op] for op in ops])
    assert apply(sync, [messages["c"]]) == {}
    assert apply(sync, [event("c", 1, "b", 3)]) == {1: "b"}
    # The delete, too.
    assert apply(sync, [messages["d"]]) == {1: "b"}


def test_positions_of_another_log_are_not_compared(sync: BoundedSync) -> None:
    assert apply(sync, [event("c", 1, "a", 100, clock=100)]) == {1: "a"}
    # A failover to a server with smaller numbers and an earlier clock; and then its log is reset.
    assert apply(sync, [event("u", 1, "b", 9, server=2, clock=50)]) == {1: "b"}
    assert apply(sync, [event("u", 1, "c", 1, server=2, clock=60)]) == {1: "c"}
    assert apply(sync, [event("u", 1, "x", 1, server=2, clock=60)]) == {1: "c"}


def test_partial_rows_complete_only_the_row_before_them(sync: BoundedSync) -> None:
    def applied(*messages: Message) -> list[tuple[str, str]]:
        apply(sync, list(messages), schema="id INT, name STRING, note STRING")
        return [
            (row["name"], row["note"]) for row in sync.rows("orders") if "deleted_at" not in row
        ]

    update = postgresql_event("u", 1, "b", 2)
    assert applied(postgresql_event("c", 1, "a", 1, "long")) == [("a", "long")]
    assert applied(update) == [("b", "long")]
    assert applied(postgresql_event("u", 1, "c", 3, "longer")) == [("c", "longer")]
    assert applied(update) == [("c", "longer")]
    assert applied(update, postgresql_event("d", 1, "c", 4)) == []
    assert applied(update) == []
    with pytest.raises((ChangelogError, PySparkException)) as failed:
        applied(postgresql_event("u", 1, "d", 5))
    assert (
        "orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and the target does not have its "
        "key"
    ) in explain_error(failed.value)


def test_rows_of_a_table_that_gets_the_column_are_replaced(sync: BoundedSync) -> None:
    assert apply(sync, LOG.events[:20], table=WITHOUT) == LOG.rows(20)
    assert apply(sync, LOG.events[10:30]) == LOG.rows(30)
    assert apply(sync, LOG.events[10:20]) == LOG.rows(30)


def test_format_without_positions_compares_offsets(sync: BoundedSync) -> None:
    types = {"id": "int", "name": "varchar(9)"}

    def changed(kind: str, name: str) -> Message:
        return canal("orders", kind, {"id": 1, "name": name}, types)

    options = {"format": "canal-json"}
    assert apply(sync, [changed("INSERT", "a"), changed("INSERT", "b")], **options) == {1: "b"}
    first = sync.last
    assert apply(sync, [changed("DELETE", "b")], **options) == {}
    # A query without the checkpoint reads the topic from its beginning.
    sync.planned = first
    assert apply(sync, [], **options) == {}
    # A topic that was created again begins with the offset 0.
    sync.offsets.clear()
    assert apply(sync, [changed("INSERT", "c")], **options) == {1: "c"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"deletes": "hard"}, "position_column requires deletes='soft'"),
        ({"where": "id > 1"}, "where and position_column cannot be combined"),
        ({"deletes": "hard", "scd_type": 2}, "scd_type=2 and position_column cannot be combined"),
        ({"deleted_column": "Position"}, "deleted_column and position_column are both 'position'"),
    ],
)
def test_options_that_would_lose_positions_are_refused(
    sync: BoundedSync, options: dict[str, Any], text: str
) -> None:
    table = TableOptions(**{"deletes": "soft", "position_column": "position", **options})
    with pytest.raises(ArgumentError, match=text):
        sync.table_job(**TABLE, table=table)
    with pytest.raises(ArgumentError, match=text):
        sync.job(target=DeltaDatabase("/lake"), tables={"shop.orders": table})


def test_event_without_its_position_is_an_error(sync: BoundedSync) -> None:
    sync.produce(
        "t",
        [
            (
                b'{"id": 1}',
                b'{"op": "c", "after": {"id": 1, "name": "a"}, "source": {"connector": "mysql"}}',
            )
        ],
    )
    with pytest.raises((ChangelogError, PySparkException)) as failed:
        sync.apply(sync.table_job(**TABLE, table=WITH))
    assert "the message has no position in the source's log" in explain_error(failed.value)
