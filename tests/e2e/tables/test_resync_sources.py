"""A table whose topic lost records is read again from its source, or from what Debezium writes again."""

import json
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import pytest

from cdc_formats.errors import ArgumentError
from normalize import JdbcSource
from normalize.kafka.debezium_snapshot import IncrementalSnapshot
from normalize.run import read_job, resync_job
from normalize.tables.resync import resync_table
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.jdbc import JdbcConnection
from tests.support.databases import maxwell
from tests.support.job_file import job_file
from tests.support.resyncing import ROWS, cut, left_behind, read_again, state, sync_name
from tests.support.syncing import Sync


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
