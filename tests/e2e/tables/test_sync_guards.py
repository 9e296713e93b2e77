"""Guards of `sync_database` that need a topic or a database: replaced topics, names, moved rows."""

import os
import re
import time
from dataclasses import replace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.readwriter import DataStreamWriter

from normalize.monitoring.explain_error import explain_error
from normalize.tables.database_target import table_name
from normalize.tables.table_options import SyncError
from tests.support.databases import Message, maxwell
from tests.support.servers.cutting_proxy import CuttingProxy
from tests.support.streams import recreate_topic
from tests.support.syncing import MINIMAL, NewBoundedSync, Sync

STOP: dict[str, Any] = {"on_table_error": "stop_table"}


def test_topic_that_is_created_again_ends_the_running_query(
    sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = sync.produce("t", [maxwell("fine", "insert", {"id": 1, "qty": 1})])
    messages = [maxwell("fine", "insert", {"id": number, "qty": 9}) for number in (1, 2, 3)]
    each_batch = DataStreamWriter.foreachBatch

    def recreating(writer: Any, function: Any) -> Any:
        def apply(batch: Any, number: int) -> None:
            function(batch, number)
            if number == 0:
                recreate_topic(sync.kafka, topic, messages)

        return each_batch(writer, apply)

    with monkeypatch.context() as patch:
        for pause in ("INTERVAL", "PART"):  # else a slow answer of Kafka is the last for a while
            patch.setattr(f"normalize.kafka.topics.{pause}", 0)
        patch.setattr(DataStreamWriter, "foreachBatch", recreating)
        query = sync.writer(**STOP).start()
        with pytest.raises(StreamingQueryException) as failed:
            query.awaitTermination(120)
    assert f"[TOPIC_REPLACED] topic {topic} was deleted and created again" in explain_error(
        failed.value
    )
    assert sync.rows("fine") == [{"id": 1, "qty": 1}]
    (sync.folder / "checkpoint").rename(sync.folder / "old")
    sync.run(**STOP)
    assert sync.rows("fine") == [{"id": number, "qty": 9} for number in (1, 2, 3)]


def test_a_compaction_while_the_query_was_stopped_is_a_warning(
    sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"{sync.prefix}.{name}" for name in ("plain", "compacted", "kept")]
    for name, lag in zip(names[1:], (0, 7_200_000), strict=True):
        settings = {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": str(lag)}
        sync.kafka.create_topic(name, 1, settings)
    sync.topics |= set(names[1:])
    for number, name in enumerate(names):
        sync.produce(name.rpartition(".")[2], [maxwell("fine", "insert", {"id": number, "qty": 1})])
    sync.run()
    commits = sync.folder / "checkpoint" / "commits"
    for seconds, warned in ((30, []), (3600, [names[1]])):
        caplog.clear()
        newest = max(commits.glob("[0-9]*"), key=lambda file: int(file.name))
        os.utime(newest, (time.time() - seconds,) * 2)
        sync.produce("plain", [maxwell("fine", "insert", {"id": seconds, "qty": 1})])
        sync.run()
        lost = [each.args for each in caplog.records if "may have removed deletes" in each.msg]
        assert [each[1:3] for each in lost] == [(name, "min.compaction.lag.ms") for name in warned]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_tables_of_a_database_that_stop_alone(new_bounded_sync: NewBoundedSync, kind: str) -> None:
    sync = new_bounded_sync(kind)
    checked = table_name(sync.tables.database.table, "shop.checked")
    key = "id BIGINT PRIMARY KEY, qty BIGINT CHECK (qty > 0)"
    sync.tables.execute(f"CREATE TABLE {checked} ({key})")
    row, names = {"id": 1, "qty": 0}, ("fine", "checked", "a.b")
    sync.produce("all", [maxwell(name, "insert", row) for name in names])
    sync.run(**STOP)
    assert (sync.rows_of("fine"), sync.rows_of("checked")) == ([row], [])
    assert sync.file("shop.checked")["stopped"]
    assert "has a dot: pass tables=" in sync.file("shop.%60a.b%60")["stopped"]


def moved(earlier: int, key: int, **changed: Any) -> Message:
    """A partial row whose key changed."""
    return maxwell(
        "orders", "update", {"id": key, **changed}, {"id": earlier} | dict.fromkeys(changed, 0)
    )


INSERTS = [
    maxwell("orders", "insert", {"id": key, "name": f"n{key}", "qty": key}) for key in (1, 2, 5, 6)
]
MOVES = [
    moved(1, 3, qty=9),
    maxwell("orders", "insert", {"id": 1, "name": "another", "qty": 0}),
    moved(3, 4),  # through a chain of keys
    maxwell("orders", "delete", {"id": 2}),
    # Two rows change places.
    moved(5, 7),
    moved(6, 5),
    moved(7, 6),
]
MOVED = [
    {"id": 1, "name": "another", "qty": 0},
    {"id": 4, "name": "n1", "qty": 9},
    {"id": 5, "name": "n6", "qty": 6},
    {"id": 6, "name": "n5", "qty": 5},
]


@pytest.mark.parametrize(
    ("kind", "by_spark"),
    [("delta", True), ("iceberg", True), ("postgresql", True), ("mariadb", False)],
)
def test_partial_rows_whose_key_changes(
    new_bounded_sync: NewBoundedSync, kind: str, by_spark: bool
) -> None:
    """The rows are the same after the micro-batch is repeated: earlier keys have other rows then.

    Spark decodes the micro-batch first and the driver then, or the other way round.
    """
    sync = new_bounded_sync(kind)
    sync.produce("all", INSERTS)
    sync.run(**MINIMAL)
    sync.produce("all", MOVES)
    sync.run(by_spark=by_spark, **MINIMAL)
    assert sync.rows_of("orders") == MOVED
    # A kill between the tables' commits and Spark's commit.
    sync.forget_last_commit()
    sync.run(by_spark=not by_spark, **MINIMAL)
    assert sync.rows_of("orders") == MOVED
    sync.produce("all", [moved(99, 100)])
    assert (
        "shop.orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and the target does not "
        "have its key"
    ) in sync.error(**MINIMAL)
    assert sync.rows_of("orders") == MOVED


# `test_restarts` has those of Delta.
@pytest.mark.parametrize("kind", ["iceberg", "postgresql"])
def test_target_that_is_gone_or_another_one_is_an_error(
    new_bounded_sync: NewBoundedSync, kind: str
) -> None:
    sync = new_bounded_sync(kind)
    sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    sync.run()
    target: Any = sync.tables.database
    other = (
        replace(target, schema="other")
        if kind == "postgresql"
        else replace(target, name=f"{target.name}2")
    )
    with pytest.raises(SyncError, match=r"the rows of this query are in .*, and its target is now"):
        sync.job(target=other)
    name = table_name(target.table, "shop.orders")
    sync.tables.execute(f"DROP TABLE {target.target(name).sql_name}")
    sync.produce("t", [maxwell("orders", "insert", {"id": 2, "name": "b"})])
    assert "[TARGET_MISSING]" in sync.error(**STOP)
    assert not sync.file("shop.orders")["stopped"]
    # One way out: its file is deleted, and its topic read again.
    sync.path("shop.orders").unlink()
    sync.run()
    assert sync.rows_of("orders") == [{"id": 2, "name": "b"}]


@pytest.mark.postgres
def test_a_server_that_became_read_only_stops_no_table(new_bounded_sync: NewBoundedSync) -> None:
    sync = new_bounded_sync("postgresql")
    sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    sync.run()
    sync.produce("t", [maxwell("orders", "insert", {"id": 2, "name": "b"})])
    read_only = {"options": "-c default_transaction_read_only=on"}
    database: Any = replace(sync.tables.database, options=read_only)  # type: ignore[type-var]
    assert re.search(
        r"in a read-only transaction\. Start the query again when its server works",
        sync.error(target=database, **STOP),
    )
    assert not sync.file("shop.orders")["stopped"]
    sync.run(**STOP)
    assert sync.rows_of("orders") == [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]


@pytest.mark.postgres
def test_a_connection_that_breaks_within_copy_stops_no_table_and_keeps_no_lock(
    new_bounded_sync: NewBoundedSync,
) -> None:
    sync = new_bounded_sync("postgresql")
    rows: list[Any] = [{"id": number, "name": f"{number}" * 200} for number in range(1000, 2000)]
    sync.produce("t", [maxwell("orders", "insert", row) for row in rows])
    address = re.search(r":(\d+)/", sync.tables.database.url)  # type: ignore[union-attr]
    with CuttingProxy(int(address[1]), after=300_000) as proxy:
        url = sync.tables.database.url.replace(address[0], f":{proxy.port}/")  # type: ignore[union-attr]
        database: Any = replace(sync.tables.database, url=url)  # type: ignore[type-var]
        assert "Start the query again when its server works" in sync.error(target=database, **STOP)
        assert proxy.cuts == 1
        assert not sync.file("shop.orders")["stopped"]
        sync.run(target=database, **STOP)
    assert sync.rows_of("orders") == rows
