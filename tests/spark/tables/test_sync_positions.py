"""`position_column` on bounded micro-batches.

An event that is delivered again never replaces a newer row.
"""

from typing import Any

import pytest
from pyspark.errors import PySparkException

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize import DeltaDatabase
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from normalize.tables.table_options import TableOptions
from tests.support.databases import Message, canal
from tests.support.positions import (
    WITH,
    WITHOUT,
    Log,
    event,
    live_rows,
    postgresql_event,
)
from tests.support.syncing import BoundedSync, NewBoundedSync

TABLE: dict[str, Any] = {
    "schema": "id INT, name STRING",
    "primary_key": "id",
    "format": "debezium-json",
}


def apply(
    sync: BoundedSync, messages: list[Message], *, partitions: int = 1, **options: Any
) -> dict[int, str]:
    """Apply a micro-batch in a restarted query, and return the rows that are not deleted."""
    sync.produce("t", messages, partitions=partitions)
    sync.apply(sync.table_job(**{**TABLE, "table": WITH, **options}))
    return live_rows(sync.rows("orders"))


def test_events_that_are_delivered_again_set_no_row_back(new_sync: NewBoundedSync) -> None:
    # `test_merge_vectors` has what a MERGE does with positions, in each kind of table.
    sync, log = new_sync("delta"), Log(60)

    def applied(
        messages: list[Message], table: TableOptions = WITH, *, by_spark: bool = False
    ) -> dict[int, str]:
        sync.produce("t", messages, partitions=3 if by_spark else 1)
        sync.run(by_spark=by_spark, format="debezium-json", tables={"shop.orders": table})
        return live_rows(sync.rows_of("orders"))

    # The table gets the column: its rows without a position are replaced.
    assert applied(log.events[:20], WITHOUT) == log.rows(20)
    assert applied(log.events[10:40], by_spark=True) == log.rows(40)
    # Without positions, this slice would set rows back.
    assert Log.names([*log.events[:40], *log.events[10:25]]) != log.rows(40)
    assert applied(log.events[10:25]) == log.rows(40)
    # Old and new events in one micro-batch, which then is repeated.
    mixed = [*log.events[30:60], *log.events[:50]]
    assert Log.names(mixed) != log.rows(60)
    assert applied(mixed, by_spark=True) == log.rows(60)
    rows = sync.rows_of("orders")
    sync.forget_last_commit()
    assert applied([]) == log.rows(60)
    assert sync.rows_of("orders") == rows


def test_a_key_in_two_partitions_is_a_warning(
    sync: BoundedSync, caplog: pytest.LogCaptureFixture
) -> None:
    def write(*partitions: int, **options: Any) -> list[str]:
        caplog.clear()
        records = [
            ProducerRecord(*event("u", 1, "a", number), partition=partition)
            for number, partition in enumerate(partitions, 1)
        ]
        sync.produce("t", records, partitions=2)
        sync.run(format="debezium-json", **options)
        return [text for text in caplog.messages if "Kafka partitions" in text]

    assert write(0, 0) == []
    (warning,) = write(0, 1)
    assert warning.startswith(
        "shop.orders: 1 keys have records in several Kafka partitions, which only their timestamps"
    )
    assert "or pass tables={'shop.orders': TableOptions(position_column=...)}" in warning
    ordered = TableOptions(deletes="soft", position_column="position")
    assert write(0, 1, tables={"shop.orders": ordered}) == []


def test_partial_rows_complete_only_the_row_before_them(sync: BoundedSync) -> None:
    def applied(*messages: Message) -> dict[int, tuple[str, str]]:
        apply(sync, list(messages), schema="id INT, name STRING, note STRING")
        return {
            row["id"]: (row["name"], row["note"])
            for row in sync.rows("orders")
            if "deleted_at" not in row
        }

    # The update 2 of the four keys arrives after the insert, after the update 3, with the delete, and
    # after the delete.
    updates = {key: postgresql_event("u", key, "b", 2) for key in range(1, 5)}
    inserts = [postgresql_event("c", key, "a", 1, "long") for key in updates]
    assert applied(*inserts) == dict.fromkeys(updates, ("a", "long"))
    second = {1: ("b", "long"), 2: ("c", "longer")}
    delete = postgresql_event("d", 4, "a", 4)
    assert (
        applied(
            updates[1],
            postgresql_event("u", 2, "c", 3, "longer"),
            updates[3],
            postgresql_event("d", 3, "b", 4),
            delete,
        )
        == second
    )
    assert applied(*updates.values()) == second
    with pytest.raises((ChangelogError, PySparkException)) as failed:
        applied(postgresql_event("u", 4, "d", 5))
    assert (
        "orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and the target does not have its "
        "key"
    ) in explain_error(failed.value)


def test_rows_written_without_positions_have_none(
    sync: BoundedSync, caplog: pytest.LogCaptureFixture
) -> None:
    inserts = [event("c", key, "a", 1) for key in (1, 2)]
    updates = [event("u", key, "c", 9) for key in (1, 2)]
    assert apply(sync, [*inserts, *updates]) == {1: "c", 2: "c"}
    # A query without positions reads old events again, and ends before it has read all.
    without = TableOptions(deletes="soft")
    with caplog.at_level("WARNING", "normalize"):
        old = [event("u", 1, "old", 3), event("d", 2, "old", 3)]
        assert apply(sync, old, table=without) == {1: "old"}
    assert "orders: position_column is not set, and its rows have positions" in caplog.text
    assert [row.get("position") for row in sync.rows("orders")] == [None, None]
    assert apply(sync, [event("u", 1, "b", 5), event("c", 2, "b", 5)]) == {1: "b", 2: "b"}
    assert apply(sync, old) == {1: "b", 2: "b"}
    renamed = TableOptions(deletes="soft", position_column="place")
    with pytest.raises(ArgumentError, match=r"is 'place', and its rows have .* in 'position': set"):
        sync.table_job(**TABLE, table=renamed)
    with pytest.raises(ArgumentError, match="deleted_column is None, and was 'deleted_at' when"):
        sync.table_job(**TABLE)


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
