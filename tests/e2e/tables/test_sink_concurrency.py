"""Connections that write one table of a database: deadlocks, creation, and those of an earlier run."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from normalize import JdbcTarget
from normalize.tables.apply import apply_batch
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import ArrowRows, UnavailableError
from normalize.tables.writers.jdbc import JdbcConnection
from tests.support.sinking import NewSink, changelog
from tests.support.syncing import micro_batch

WAITING = {
    "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
    "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
}
"""The query for the number of transactions that wait for a lock."""


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_deadlock_is_retried(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink = new_sink(kind)
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


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_lock_that_is_not_free_in_time_is_retried(
    spark: SparkSession, new_sink: NewSink, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = new_sink(kind)
    impatient = {
        "postgresql": {"options": "-c lock_timeout=100ms"},
        "mariadb": {
            "sessionVariables": "innodb_lock_wait_timeout=1,time_zone='+00:00',"
            "sql_mode='STRICT_ALL_TABLES'"
        },
    }
    table, schema = replace(sink.table, options=impatient[kind]), "id INT, v INT"
    apply_batch(changelog(spark, schema, [("+I", 1, 0)]), table, keys="id")
    caplog.set_level("INFO", "normalize")
    with JdbcConnection.open(spark, sink.table) as other, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute(f"UPDATE {sink.sql_name} SET v = 1")
            changes = changelog(spark, schema, [("+U", 1, 2)])
            merging = pool.submit(apply_batch, changes, table, keys="id")
            while not caplog.messages and not merging.done():
                time.sleep(0.05)
        merging.result()
    assert "waited for a lock longer than its server allows: attempt 1 of 10" in caplog.messages[0]
    assert sink.rows() == [(1, 2)]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_table_that_another_writer_creates_meanwhile(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    opened = JdbcConnection.open(spark, sink.table), JdbcConnection.open(spark, sink.table)
    with opened[0] as other, opened[1] as watching, ThreadPoolExecutor(1) as pool:
        with other.transaction():
            other.execute(f"CREATE TABLE {sink.sql_name} (id INT PRIMARY KEY, v INT)")
            changes = changelog(spark, "id INT, v INT", [("+I", 1, 2)])
            writing = pool.submit(apply_batch, changes, sink.table, keys="id")
            # MariaDB's CREATE TABLE ends the transaction: nothing waits.
            while (
                kind == "postgresql" and not watching.number(WAITING[kind]) and not writing.done()
            ):
                time.sleep(0.05)
        writing.result()
    assert sink.rows() == [(1, 2)]


@pytest.mark.postgres
def test_a_connection_is_kept_and_one_of_an_earlier_run_that_has_locks_is_ended(
    spark: SparkSession, new_sink: NewSink, caplog: pytest.LogCaptureFixture
) -> None:
    from pyspark.sql.types import IntegerType, StructField

    sink, query = new_sink("postgresql"), str(uuid4())
    spec = TableSpec(tuple(StructField(name, IntegerType()) for name in ("id", "v")), ("id",))
    with JdbcConnection.open(spark, sink.table) as other:
        other.execute(f"CREATE TABLE {sink.sql_name} (id INT PRIMARY KEY, v INT)")

    def write(number: int) -> None:
        columns = {"id": pa.array([1], pa.int32()), "v": pa.array([number], pa.int32())}
        rows = pa.table({"row_kind": ["+U"], **columns})
        with micro_batch(spark, query, number):
            latest = ArrowRows(rows, lambda: spark.createDataFrame(rows))
            sink.table.sink(spark).merge_arrow(latest, spec)

    write(0)
    opened = JdbcConnection.open(spark, sink.table), JdbcConnection.open(spark, sink.table)
    with opened[0] as other, opened[1] as watching, ThreadPoolExecutor(2) as pool:
        with other.transaction():
            other.execute(f"UPDATE {sink.sql_name} SET v = 9")
            earlier = pool.submit(write, 1)
            while not watching.number(WAITING["postgresql"]) and not earlier.done():
                time.sleep(0.05)
            later = pool.submit(write, 1)
            while "ended 1 connections of an earlier run" not in caplog.text and not later.done():
                time.sleep(0.05)
        later.result()
        assert isinstance(earlier.exception(), UnavailableError)
        assert sink.rows() == [(1, 1)]
        # The kept connection is gone, and another one is opened.
        ended = watching.number(
            "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE state = 'idle' AND "
            "pid <> pg_backend_pid() AND query = 'COMMIT'"
        )
        assert ended
        write(2)
    assert sink.rows() == [(1, 2)]
