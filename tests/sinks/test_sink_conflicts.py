"""Two writers of one table: the loser applies its micro-batch again, and raises an error if it always loses."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sinking import Sink, apply_stream, changelog, forget_last_commit

from normalize import JdbcTable, LocalKafka, apply_changes, from_kafka_changelog, to_kafka_changelog
from normalize.sinks import lake
from normalize.sinks.conflicts import TRIES, repeat_conflicts
from normalize.sinks.jdbc import Connection
from normalize.sinks.tables import ConflictError, TargetError
from normalize.sinks.wanted import Wanted

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

NewSink = Callable[[str], Sink]


class Losing:
    """A commit that another writer prevents several times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls, self.pauses = times, error, 0, list[float]()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error


def test_a_conflict_is_retried_after_growing_pauses() -> None:
    commit = Losing(TRIES - 1, ConflictError("another writer changed t at the same time (X)"))
    repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == TRIES
    assert len(commit.pauses) == TRIES - 1
    for tried, pause in enumerate(commit.pauses):
        longest = min(0.2 * 2**tried, 10)
        assert longest / 2 <= pause <= longest


def test_an_endless_conflict_is_an_error_of_one_sentence() -> None:
    commit = Losing(TRIES, ConflictError("another writer changed t at the same time (X)"))
    with pytest.raises(ConflictError) as caught:
        repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == TRIES
    assert len(commit.pauses) == TRIES - 1  # no pause after the last attempt
    assert str(caught.value) == (
        "[CONFLICT] another writer changed t at the same time (X), in each of 10 attempts: let fewer queries write this table at a time, "
        "and restart this query"
    )


def test_another_error_is_not_retried() -> None:
    commit = Losing(1, TargetError("no"))
    with pytest.raises(TargetError, match="no"):
        repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == 1


# ------------------------------------------------------------------------------------------------------- Delta and Iceberg


@pytest.mark.spark
@pytest.mark.parametrize(("kind", "name"), [("delta", "ConcurrentAppendException"), ("iceberg", r"\w+Exception")])
def test_a_commit_between_plan_and_commit_is_a_conflict(
    spark: SparkSession, new_sink: NewSink, kind: str, name: str, tmp_path: Path
) -> None:
    sink, go, began = new_sink(kind), str(tmp_path / "go"), str(tmp_path / "began")
    apply_changes(changelog(spark, "id INT, v INT", [("+I", 1, 0), ("+I", 2, 0)]), sink.table, primary_key="id")
    latest = changelog(spark, "id INT, v INT", [("+U", 1, 1), ("+U", 2, 1)])

    def wait_for_the_other(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Iceberg computes the rows twice in parallel; if both waited, the other writer would have no core.
        deadline = time.monotonic() + 120
        try:
            Path(began).touch(exist_ok=False)
            first = True
        except FileExistsError:
            first = False
        while first and not Path(go).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    slow = latest.mapInArrow(wait_for_the_other, latest.schema)
    wanted = Wanted(tuple(latest.schema.fields[1:]), ("id",), True, False)
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(lake.merge, slow, sink.table, wanted)
        while not Path(began).exists() and not merging.done():
            time.sleep(0.05)
        try:
            apply_changes(changelog(spark, "id INT, v INT", [("+U", 1, 2)]), sink.table, primary_key="id")
        finally:
            Path(go).touch()
        with pytest.raises(ConflictError, match=rf"^\[CONFLICT\] another writer changed .* at the same time \({name}\)$"):
            merging.result()
    assert sink.rows() == [(1, 2), (2, 0)]
    lake.merge(latest, sink.table, wanted)
    assert sink.rows() == [(1, 1), (2, 1)]


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("history", [False, True])
def test_concurrent_writers_all_finish(spark: SparkSession, new_sink: NewSink, kind: str, history: bool) -> None:
    sink, writers, rounds = new_sink(kind), 3, 2
    options: dict[str, Any] = {"history": True} if history else {"primary_key": "id"}

    def write(writer: int) -> None:
        for number in range(rounds):
            rows = [("+U", key, writer * rounds + number) for key in range(5)]
            apply_changes(changelog(spark, "id INT, v INT", rows), sink.table, **options)

    with ThreadPoolExecutor(writers) as pool:
        _all(pool.submit(write, writer) for writer in range(writers))
    rows = sink.rows("id", "v")
    if history:
        assert rows == sorted(((key, v) for key in range(5) for v in range(writers * rounds)), key=repr)
    else:
        assert [key for key, _ in rows] == list(range(5))
        # Each micro-batch is one commit: the last one has all rows and is the last of a writer.
        assert len({v for _, v in rows}) == 1
        assert rows[0][1] % rounds == rounds - 1


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_writers_that_add_columns_side_by_side(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink = new_sink(kind)
    apply_changes(changelog(spark, "id INT", [("+I", 0)]), sink.table, primary_key="id")

    def write(writer: int) -> None:
        changes = changelog(spark, "id INT, a INT, b INT", [("+I", writer, 1, 2)])
        apply_changes(changes, sink.table, primary_key="id", add_columns=True)

    with ThreadPoolExecutor(3) as pool:
        _all(pool.submit(write, writer) for writer in range(3))
    assert sink.rows("id", "a", "b") == [(writer, 1, 2) for writer in range(3)]


def _all(futures: Any) -> None:
    done: list[Future[None]] = list(wait(list(futures)).done)
    for future in done:
        future.result()


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_history_with_concurrent_writers_has_every_change_once(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, tmp_path: Path
) -> None:
    sink, servers = new_sink(kind), {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    streams = []
    for writer in range(2):
        topic = f"conflicts-{uuid4().hex[:8]}"
        kafka.create_topic(topic)
        to_kafka_changelog(changelog(spark, "id INT, v INT", [("+I", n, writer) for n in range(6)]), topic, options=servers)
        arguments: dict[str, Any] = {"format": "changelog-json", "schema": "id INT, v INT", "source_duplicates": False}
        streams.append(from_kafka_changelog(spark, topic, options={**servers, "maxOffsetsPerTrigger": 2}, **arguments))
    apply_changes(changelog(spark, "id INT, v INT", []), sink.table, history=True)

    def run(writer: int) -> None:
        apply_stream(streams[writer], sink.table, tmp_path / str(writer), history=True)

    for _ in range(2):  # the second run repeats the last micro-batch of each
        with ThreadPoolExecutor(2) as pool:
            _all(pool.submit(run, writer) for writer in range(2))
        assert sink.rows("id", "v") == sorted(((n, writer) for n in range(6) for writer in range(2)), key=repr)
        for writer in range(2):
            forget_last_commit(tmp_path / str(writer))


# ----------------------------------------------------------------------------------------------------------- the databases


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_deadlock_is_retried(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink = new_sink(kind)
    assert isinstance(sink.table, JdbcTable)
    # The server must end this one: MariaDB ends the smaller transaction, PostgreSQL the one that checks first.
    slow = {"options": "-c deadlock_timeout=5s"} if kind == "postgresql" else {}
    table = JdbcTable(sink.table.url, sink.table.table, sink.table.user, sink.table.password, {"numPartitions": "1", **slow})
    apply_changes(changelog(spark, "id INT, v INT", [("+I", n, 0) for n in range(100)]), table, primary_key="id")
    with Connection.open(spark, sink.table) as other, ThreadPoolExecutor(1) as pool:
        if kind == "postgresql":
            other.execute("SET deadlock_timeout = '1h'")
        with other.transaction():
            other.execute(f"UPDATE {sink.sql_name} SET v = 1 WHERE id >= 50")
            changes = changelog(spark, "id INT, v INT", [("+U", 1, 2), ("+U", 99, 2)])
            merging = pool.submit(apply_changes, changes, table, primary_key="id")
            while not _waits(spark, sink, kind) and not merging.done():
                time.sleep(0.1)
            other.execute(f"UPDATE {sink.sql_name} SET v = 1 WHERE id = 1")
        merging.result()
    rows = dict(sink.rows())
    assert (rows[1], rows[99], rows[98], rows[2]) == (2, 2, 1, 0)


def _waits(spark: SparkSession, sink: Sink, kind: str) -> bool:
    query = {
        "postgresql": "SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'",
        "mariadb": "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'",
    }[kind]
    assert isinstance(sink.table, JdbcTable)
    with Connection.open(spark, sink.table) as connection:
        return connection.number(query) != 0
