"""Two queries write one table: change feeds from Kafka, and deadlocks in databases."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from normalize import JdbcTarget, LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.sinks.apply import apply_batch
from normalize.sinks.jdbc import JdbcConnection
from tests.support.sinking import Sink, apply_stream, changelog, finish_all, forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


NewSink = Callable[[str], Sink]
WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
"""The query for the number of transactions that wait for a lock."""


@pytest.mark.parametrize("rows", [4, pytest.param(20, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_change_feed_with_concurrent_writers_has_every_change_once(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, rows: int, tmp_path: Path
) -> None:
    sink, servers = new_sink(kind), {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    streams = []
    for writer in range(2):
        topic = f"conflicts-{uuid4().hex[:8]}"
        kafka.create_topic(topic)
        changes = changelog(spark, "id INT, v INT", [("+I", n, writer) for n in range(rows)])
        encode_changelog(changes).write.format("kafka").options(**servers, topic=topic).save()
        arguments: dict[str, Any] = {
            "format": "changelog-json",
            "schema": "id INT, v INT",
            "normalize": False,
        }
        streams.append(
            from_kafka_changelog(
                spark, topic, options={**servers, "maxOffsetsPerTrigger": 2}, **arguments
            )
        )

    def run(writer: int) -> None:
        apply_stream(streams[writer], sink.table, tmp_path / str(writer), change_feed=True)

    for _ in range(
        2
        # in the first run one of them creates the table; the second run repeats the last
        # micro-batch of each
    ):
        with ThreadPoolExecutor(2) as pool:
            finish_all(pool.submit(run, writer) for writer in range(2))
        assert sink.rows("id", "v") == sorted(
            ((n, writer) for n in range(rows) for writer in range(2)), key=repr
        )
        for writer in range(2):
            forget_last_commit(tmp_path / str(writer))


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_deadlock_is_retried(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink = new_sink(kind)
    assert isinstance(sink.table, JdbcTarget)
    # The server must end this one: MariaDB ends the smaller transaction, PostgreSQL the one that
    # checks first. It checks once, and the other transaction must wait for this one by then.
    slow = {"options": "-c deadlock_timeout=3s"} if kind == "postgresql" else {}
    table = JdbcTarget(
        sink.table.url,
        sink.table.table,
        sink.table.user,
        sink.table.password,
        {"numPartitions": "1", **slow},
    )
    apply_batch(
        changelog(spark, "id INT, v INT", [("+I", n, 0) for n in range(100)]), table, keys="id"
    )
    opened = JdbcConnection.open(spark, sink.table), JdbcConnection.open(spark, sink.table)
    with opened[0] as other, opened[1] as watching, ThreadPoolExecutor(1) as pool:
        if kind == "postgresql":
            other.execute("SET deadlock_timeout = '1h'")
        with other.transaction():
            other.execute(f"UPDATE {sink.sql_name} SET v = 1 WHERE id >= 50")
            changes = changelog(spark, "id INT, v INT", [("+U", 1, 2), ("+U", 99, 2)])
            merging = pool.submit(apply_batch, changes, table, keys="id")
            while not watching.number(WAITING[kind]) and not merging.done():
                time.sleep(0.15)  # InnoDB computes its answer again when it is 0.1 s old
            other.execute(f"UPDATE {sink.sql_name} SET v = 1 WHERE id = 1")
        merging.result()
    rows = dict(sink.rows())
    assert (rows[1], rows[99], rows[98], rows[2]) == (2, 2, 1, 0)
