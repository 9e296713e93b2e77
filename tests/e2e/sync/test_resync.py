"""One table of a query is read again from its topic: what it has then, and when it is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

from cdc_formats.errors import ArgumentError
from normalize import JdbcSource
from normalize.checkpoint.status import checkpoint_status
from normalize.kafka.debezium_snapshot import IncrementalSnapshot
from normalize.run import read_job, resync_job
from normalize.spark_versions import has_package
from normalize.tables.database import SyncDatabase
from normalize.tables.database_target import table_name
from normalize.tables.resync import resync_table
from normalize.tables.resync_state import Resync
from normalize.tables.schema_store import SchemaStore
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.jdbc import JdbcConnection
from normalize.tables.writers.lake import LakeSink
from tests.support.databases import Message, maxwell
from tests.support.job_file import job_file
from tests.support.syncing import NewSync, Sync

ROWS = [{"id": number, "name": f"n{number}"} for number in range(1, 6)]
SMALL_STEPS: dict[str, Any] = {"_LEAST": 2, "_MOST": 2}


def request(sync: Sync, table: str = "orders", **options: bool) -> None:
    location = str(sync.folder / "schemas")
    resync_table(sync.spark, f"shop.{table}", schema_location=location, **options)


def state(sync: Sync, table: str = "orders") -> Resync:
    resync = SchemaStore(sync.spark, str(sync.folder / "schemas")).read_resync(f"shop.{table}")
    assert resync is not None
    return resync


def read_again(sync: Sync, *messages: Message, topic: str = "all", **options: Any) -> None:
    """Let the query have a micro-batch, by these records or by one of another table."""
    other = [maxwell("items", "insert", {"id": 1, "qty": 5})]
    sync.produce(topic, [*messages] or other)
    sync.run(**options)


def left_behind(sync: Sync) -> list[str]:
    """Files and tables of new tables, after the end."""
    paths = [*sync.folder.rglob("*_resync_*"), *sync.folder.glob("schemas/query/resync/*")]
    return [path.name for path in paths if not path.name.startswith("shop.")]


class KilledError(RuntimeError):
    """Ends a query as a kill does: no code of the library catches it."""


@contextmanager
def killed_once_at_each(
    patch: pytest.MonkeyPatch, killed: set[Any], only: Collection[Any]
) -> Iterator[None]:
    """Kill the query before and after each write of a table that is read again, once at each.

    With `only`, it is killed only there.
    """

    def once(place: Any) -> None:
        if place not in killed and (not only or place in only):
            killed.add(place)
            raise KilledError(str(place))

    def around(of: type, name: str, place_of: Callable[..., Any]) -> None:
        function = getattr(of, name)

        def killing(self: Any, *arguments: Any, **options: Any) -> Any:
            place = place_of(self, *arguments)
            if place is not None:
                once(("before", *place))
            result = function(self, *arguments, **options)
            if place is not None:
                once(("after", *place))
            return result

        patch.setattr(of, name, killing)

    around(SchemaStore, "write_resync", lambda _, to: (to.phase, bool(to.until)))
    around(LakeSink, "replace_rows", lambda *_: ("replace",))
    around(LakeSink, "drop", lambda *_: ("drop",))
    around(SchemaStore, "remove", lambda *_: ("remove",))
    around(
        SyncDatabase,
        "apply",
        lambda job, _: ("apply",) if "resync" in job.query.store.location else None,
    )
    yield


AFTER_COMMITS = [("after", "apply"), ("after", "replace"), ("after", "replaced", False)]


@pytest.mark.parametrize(
    ("stopped", "only"),
    [
        (True, AFTER_COMMITS),
        pytest.param(False, [], marks=pytest.mark.soak),
        pytest.param(True, [], marks=pytest.mark.soak),
    ],
    ids=["quick", "running", "stopped"],
)
def test_a_query_that_is_killed_before_and_after_each_write_ends_in_the_right_table(
    sync: Sync, monkeypatch: pytest.MonkeyPatch, stopped: bool, only: Collection[Any]
) -> None:
    rows = {row["id"]: row for row in ROWS}
    sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    table = sync.tables.database.target("orders").sql_name
    for statement in (
        f"UPDATE {table} SET name = 'wrong' WHERE id = 1",
        f"DELETE FROM {table} WHERE id = 2",
        f"INSERT INTO {table} VALUES (3, 'twice'), (99, 'only here')",
    ):
        sync.spark.sql(statement)
    if stopped:
        sync.edit("shop.orders", '"stopped": ""', '"stopped": "by hand"')
    request(sync, remove_missing=True)
    with pytest.raises(ArgumentError, match=r"shop[.]orders is being read again"):
        request(sync)
    killed: set[Any] = set()
    with monkeypatch.context() as patch, killed_once_at_each(patch, killed, only):
        for name, value in SMALL_STEPS.items():
            patch.setattr(f"normalize.tables.resync.{name}", value)
        for number in range(100, 150):
            key = 1 + number % 5
            changes: list[Message] = []
            if key in rows and number % 3 == 0:
                changes.append(maxwell("orders", "delete", rows.pop(key)))
            else:
                old = {"name": rows[key]["name"]} if key in rows else None
                rows[key] = {"id": key, "name": f"m{number}"}
                changes.append(maxwell("orders", "update" if old else "insert", rows[key], old))
            sync.produce("all", changes)
            before = len(killed)
            with suppress(StreamingQueryException):
                sync.run()
            if len(killed) == before:
                break
    assert len(killed) == (len(only) or 16), killed
    assert state(sync).phase == "replaced"
    assert sync.rows("orders") == sorted(rows.values(), key=lambda row: row["id"])
    assert left_behind(sync) == []
    # A record after it, and a repetition of the micro-batch, change nothing else.
    sync.forget_last_commit()
    read_again(sync, maxwell("orders", "insert", {"id": 50, "name": "later"}))
    assert sync.rows("orders") == [
        *sorted(rows.values(), key=lambda row: row["id"]),
        {"id": 50, "name": "later"},
    ]
    (shown,) = checkpoint_status(str(sync.folder / "checkpoint")).resyncs
    assert (shown.table, shown.phase) == ("shop.orders", "replaced")
    assert re.fullmatch(
        r"replaced, \d+ records, 1 keys that only the old table has [(]removed[)]", shown.progress
    )


TABLES = {
    "shop.soft": TableOptions(deletes="soft", position_column="position"),
    "shop.few": TableOptions(where="qty > 1", select={"twice": "qty * 2"}),
    "shop.sharded": TableOptions(shards="shop_[0-9]+[.]sharded", shard_column="shard"),
}
MASKED = {"mask": {"shop.few.secret": "redact"}}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_all_kinds_of_tables_are_read_again(new_sync: NewSync, kind: str) -> None:
    if kind == "iceberg" and not has_package("iceberg"):
        pytest.skip("Iceberg has no package for this Spark")
    sync = new_sync(kind)
    secret = {"secret": "s"}
    sync.produce(
        "all",
        [
            *(maxwell("orders", "insert", row) for row in ROWS),
            *(placed(row["id"], "insert", row) for row in ROWS),
            placed(6, "delete", ROWS[0]),
            *(maxwell("few", "insert", {"id": key, "qty": key, **secret}) for key in (1, 2, 3)),
            *(maxwell("sharded", "insert", {"id": 1}, database=f"shop_{each}") for each in (1, 2)),
        ],
    )
    options: dict[str, Any] = {"tables": TABLES, "format_options": MASKED}
    if kind in ("delta", "iceberg"):
        options["tables"] = {**TABLES, "shop.history": TableOptions(scd_type=2)}
        sync.produce("all", [maxwell("history", "insert", {"id": 1})])
    sync.run(**options)
    names = ("orders", "soft", "few", "sharded")
    before = {name: sync.rows_of(name) for name in names}
    assert [len(rows) for rows in before.values()] == [5, 5, 2, 2]
    target = {each: sync_name(sync, each) for each in names}
    for statement in (
        f"UPDATE {target['orders']} SET name = 'wrong' WHERE id = 1",
        f"INSERT INTO {target['orders']} (id, name) VALUES (99, 'only here')",
        f"DELETE FROM {target['soft']} WHERE id > 3",
        f"INSERT INTO {target['soft']} (id, name) VALUES (99, 'only here')",
        f"UPDATE {target['few']} SET qty = 9",
        f"DELETE FROM {target['sharded']}",
    ):
        sync.tables.execute(statement)
    sync.edit("shop.orders", '"stopped": ""', '"stopped": "by hand"')
    # It is only counted; and what the stopped table misses is in its topic.
    request(sync, "few", dry_run=True)
    request(sync, "orders")
    later = maxwell("orders", "insert", {"id": 6, "name": "n6", "note": "new"})
    read_again(sync, later, **options)
    assert (state(sync, "few").phase, state(sync, "few").missing) == ("counted", 0)
    assert {row["qty"] for row in sync.rows_of("few")} == {9}
    kept = [{"id": 6, "name": "n6", "note": "new"}, {"id": 99, "name": "only here"}]
    assert sync.rows_of("orders") == [*before["orders"], *kept]
    assert (state(sync).phase, state(sync).missing) == ("replaced", 1)
    assert sync.file("shop.orders")["stopped"] == ""
    for name in names:
        request(sync, name, remove_missing=True)
    if "shop.history" in options["tables"]:
        request(sync, "history")
    last = maxwell("orders", "delete", {"id": 6, "name": "n6", "note": "new"})
    read_again(sync, last, **options)
    soft = sync.rows_of("soft")
    assert soft[-1].pop("deleted_at")
    assert soft == [*before["soft"], {"id": 99, "name": "only here"}]
    assert {name: sync.rows_of(name) for name in names if name != "soft"} == {
        name: rows for name, rows in before.items() if name != "soft"
    }
    assert [state(sync, name).phase for name in names] == ["replaced"] * 4
    assert left_behind(sync) == []
    if "shop.history" in options["tables"]:
        refused = state(sync, "history")
        assert refused.phase == "refused"
        assert refused.reason.startswith("it is a history")


def placed(position: int, kind: str, row: dict[str, Any]) -> Message:
    """Return a message of the table ``soft`` with a position in the source's log."""
    key, value = maxwell("soft", kind, row)
    assert value is not None
    source = {"position": f"log.000001:{position}", "xid": position, "xoffset": 0, "commit": True}
    return key, json.dumps({**json.loads(value), **source}).encode()


def sync_name(sync: Sync, table: str) -> str:
    """Return the name in SQL of a table of the database ``shop``."""
    name = table_name(sync.tables.database.table, f"shop.{table}")
    return sync.tables.database.target(name).sql_name


def test_rows_of_the_source_replace_a_table_whose_topic_lost_them(
    sync: Sync, request: pytest.FixtureRequest
) -> None:
    server = request.getfixturevalue("postgres")
    source = JdbcSource(server.url, f"orders_{uuid4().hex[:8]}", server.user, server.password)
    options: dict[str, Any] = {
        "tables": {"shop.orders": TableOptions(where="id < 100", select={"twice": "id * 2"})}
    }
    topic = sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run(**options)
    cut(sync, topic, 3)
    with JdbcConnection.open(sync.spark, source) as connection:
        for statement in (
            f"CREATE TABLE {source.table} (id INT PRIMARY KEY, name TEXT, note TEXT)",
            f"INSERT INTO {source.table} VALUES (2, 'new', NULL), (3, 'n3', NULL), (7, 'n7', NULL), (100, 'no', NULL)",
        ):
            connection.execute(statement)
    lines = list[str]()

    def go_on(line: str) -> None:
        lines.append(line.split(": ")[1].split(",")[0])
        if lines[-1] == "requested":
            read_again(sync, **options)
        elif lines[-1] == "loading":
            assert len(sync.rows("orders")) == 5
            # Two changes that the source's rows have already, and one that they do not have.
            for kind, row, old in (
                ("update", {"id": 2, "name": "old"}, {"name": "n2"}),
                ("update", {"id": 2, "name": "new"}, {"name": "old"}),
                ("delete", {"id": 3, "name": "n3"}, None),
            ):
                sync.produce("all", [maxwell("orders", kind, row, old)])
        elif lines[-1] == "reading":
            read_again(sync, maxwell("orders", "insert", {"id": 8, "name": "n8"}), **options)

    expressions = {"where": "id < 100", "select": {"twice": "id * 2"}}
    file = job_file(sync.kafka, sync.folder, topic, tables={"shop.orders": expressions})
    resync_job(read_job(file), "shop.orders", go_on, sync.spark, source=source)
    assert lines == ["requested", "loading", "reading", "replaced"]
    # Keys that only the old table has stay, unless they are to be removed.
    expected = {1: "n1", 2: "new", 4: "n4", 5: "n5", 7: "n7", 8: "n8"}
    assert sync.rows("orders") == [
        {"id": key, "name": name, "twice": key * 2} for key, name in expected.items()
    ]
    assert (state(sync).phase, state(sync).missing) == ("replaced", 3)
    assert left_behind(sync) == []


def cut(sync: Sync, topic: str, offset: int) -> None:
    """Let Kafka remove the records before an offset."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": sync.kafka.bootstrap_servers})
    for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


@contextmanager
def debezium(sync: Sync, answers: Collection[tuple[str, str]]) -> Iterator[IncrementalSnapshot]:
    """Answer one signal as a connector does: notifications, which other ones surround.

    It writes the snapshot of shop.orders, with two of its five rows.
    """
    from confluent_kafka import Consumer, Producer

    names = [f"{each}-{uuid4().hex[:8]}" for each in ("signals", "notifications")]
    for name in names:
        sync.kafka.create_topic(name)
    snapshot = IncrementalSnapshot(names[0], names[1], "dbz", "shop.orders")
    servers = {"bootstrap.servers": sync.kafka.bootstrap_servers}
    consumer = Consumer({**servers, "group.id": names[0], "auto.offset.reset": "earliest"})
    consumer.subscribe([names[0]])

    def answer() -> None:
        while (message := consumer.poll(30)) is None or message.error():
            pass
        signal = json.loads(message.value() or b"")
        assert message.key() == b"dbz"
        assert (signal["type"], signal["data"]) == (
            "execute-snapshot",
            {"data-collections": ["shop.orders"], "type": "INCREMENTAL"},
        )
        sync.produce("all", [maxwell("orders", "bootstrap-insert", row) for row in ROWS[:2]])
        producer = Producer(servers)
        for kind, status in answers:
            of_this = {"id": signal["id"], "type": kind, "aggregate_type": "Incremental Snapshot"}
            data = {"status": status, "total_rows_scanned": "2"} if status else {}
            notification = {**of_this, "additional_data": data, "timestamp": 0}
            for value in (
                {**notification, "id": "another", "type": "COMPLETED"},
                {"schema": {}, "payload": notification} if status else notification,
            ):
                producer.produce(names[1], json.dumps(value))
        producer.flush(30)

    with ThreadPoolExecutor(1) as pool:
        answered = pool.submit(answer)
        yield snapshot
        answered.result()
    consumer.close()


def test_rows_that_debezium_wrote_again_replace_a_table_whose_topic_lost_them(sync: Sync) -> None:
    topic = sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    cut(sync, topic, 3)
    sync.tables.execute(f"UPDATE {sync_name(sync, 'orders')} SET name = 'wrong' WHERE id = 1")
    lines = list[str]()

    def go_on(line: str) -> None:
        lines.append(line.removeprefix("shop.orders: ").split(" (signal")[0])
        if "requested" in line:
            read_again(sync, maxwell("orders", "insert", {"id": 8, "name": "n8"}))

    job = read_job(job_file(sync.kafka, sync.folder, topic))
    failed = [("STARTED", ""), ("TABLE_SCAN_COMPLETED", "NO_PRIMARY_KEY")]
    with (
        debezium(sync, failed) as snapshot,
        pytest.raises(ArgumentError, match=r"did not read shop[.]orders [(]NO_PRIMARY_KEY[)]"),
    ):
        resync_job(job, "shop.orders", go_on, sync.spark, snapshot=snapshot)
    assert state(sync).phase == "failed"
    lines.clear()
    answers = [("STARTED", ""), ("TABLE_SCAN_COMPLETED", "SUCCEEDED"), ("COMPLETED", "")]
    with debezium(sync, answers) as snapshot:
        resync_job(job, "shop.orders", go_on, sync.spark, snapshot=snapshot, remove_missing=True)
    assert lines == [
        "asked Debezium for an incremental snapshot of shop.orders",
        "snapshot: STARTED",
        "snapshot: TABLE_SCAN_COMPLETED, 2 rows",
        "snapshot: COMPLETED",
        "requested: the query begins at its next micro-batch",
        "replaced, 3 records, 3 keys that only the old table has (removed)",
    ]
    assert sync.rows("orders") == [*ROWS[:2], {"id": 8, "name": "n8"}]
    # Rows that were written again from an offset.
    resync_table(
        sync.spark,
        "shop.orders",
        schema_location=str(sync.folder / "schemas"),
        offsets={topic: {0: 7}},
        dry_run=True,
    )
    read_again(sync)
    assert (state(sync).phase, state(sync).records, state(sync).missing) == ("counted", 3, 0)


def test_a_topic_of_which_kafka_removed_records_is_refused(sync: Sync) -> None:
    topic = sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    cut(sync, topic, 2)
    lines = list[str]()

    def go_on(line: str) -> None:
        lines.append(line)
        if "requested" in line:
            read_again(sync)

    resync_job(read_job(job_file(sync.kafka, sync.folder, topic)), "shop.orders", go_on, sync.spark)
    assert len(lines) == 2
    assert lines[1] == (
        f"shop.orders: refused: {topic}[0] begins at the offset 2: Kafka has removed older records, and rows "
        "that did not change since would be missing. Give topics of tables cleanup.policy=compact, "
        "or let the producer write a new snapshot"
    )
    assert sync.rows("orders") == ROWS
    with pytest.raises(
        ArgumentError, match=r"has no table 'shop[.]order': pass one of shop[.]items"
    ):
        request(sync, "order")
