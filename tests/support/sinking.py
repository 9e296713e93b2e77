"""Sink test helpers: tables of any kind, reading them back, and changelogs in micro-batches."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from normalize import DeltaTarget, IcebergTarget, JdbcTarget, apply_changes
from normalize.tables.targets import TableTarget
from normalize.tables.writers.dialects import dialect_of
from normalize.tables.writers.jdbc import JdbcConnection, jdbc_options

STORY = [
    ("+I", 1, "a"),
    ("+I", 2, "b"),
    ("-U", 1, "a"),
    ("+U", 1, "c"),
    ("-D", 2, "b"),
    ("+I", 2, "d"),
    ("-U", 2, "d"),
    ("+U", 2, "e"),
]


@dataclass
class Sink:
    """A target table."""

    spark: SparkSession
    table: TableTarget
    read: Callable[[], DataFrame]
    execute: Callable[[str], Any]
    """Run a SQL statement in the table's database."""
    sql_name: str

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        return sorted(map(tuple, self.read().select(*columns or ["*"]).collect()), key=repr)


NewSink = Callable[[str], Sink]
"""From a kind of table to a new table."""


def table_name() -> str:
    """A table name that no other test uses."""
    return f"t_{uuid4().hex[:10]}"


def lake_sink(spark: SparkSession, kind: str, folder: Path) -> Sink:
    """A Delta table, by its path and written by Spark or delta-rs, or an Iceberg table."""
    if kind in ("delta", "delta-rs"):
        path = str(folder / table_name())
        table = DeltaTarget(path, writer="spark" if kind == "delta" else "delta-rs")
        return Sink(spark, table, lambda: spark.table(table.sql_name), spark.sql, table.sql_name)
    name = f"lake.db.{table_name()}"
    return Sink(spark, IcebergTarget(name), lambda: spark.table(name), spark.sql, name)


def last_writer(path: str) -> str:
    """Which of Spark and delta-rs made the last commit of a Delta table."""
    from deltalake import DeltaTable

    engine = DeltaTable(path).history(1)[0]["engineInfo"]
    return "delta-rs" if engine.startswith("delta-rs") else "spark"


def database_sink(spark: SparkSession, server: Any, name: str, scheme: str = "") -> Sink:
    """A database table."""
    url = server.url.replace("jdbc:mariadb:", f"jdbc:{scheme}:") if scheme else server.url
    table = JdbcTarget(url, name, user=server.user, password=server.password)

    def read() -> DataFrame:
        options = jdbc_options(table, dialect_of(url)) | {
            "dbtable": dialect_of(url).table(name),
            "preferTimestampNTZ": "true",
        }
        # A FLOAT as text has six digits.
        options |= (
            {"useServerPrepStmts": "true", "timezone": "UTC", "connectionTimeZone": "UTC"}
            if scheme
            else {}
        )
        return spark.read.format("jdbc").options(**options).load()

    def execute(statement: str) -> None:
        with JdbcConnection.open(spark, table) as connection:
            connection.execute(statement)

    return Sink(spark, table, read, execute, name)


def apply_stream(
    changes: DataFrame,
    table: TableTarget | str,
    checkpoint: Path,
    *,
    output_mode: str | None = None,
    **options: Any,
) -> Any:
    """Apply a stream until it has read all records."""
    writer = apply_changes(changes, table, **options)
    return _run(
        changes.sparkSession, writer.outputMode(output_mode) if output_mode else writer, checkpoint
    )


def for_each_batch(
    changes: DataFrame, checkpoint: Path, function: Callable[[DataFrame, int], None]
) -> Any:
    """Call a function with each micro-batch of a stream until it has read all records."""
    return _run(changes.sparkSession, changes.writeStream.foreachBatch(function), checkpoint)


def _run(spark: SparkSession, writer: DataStreamWriter, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        if not fails_after_repeating(spark, error):
            raise
    finally:
        query.stop()
    return query


def fails_after_repeating(spark: SparkSession, error: Exception) -> bool:
    """Return whether the error is a defect of Spark 4.1 that follows a repeated micro-batch.

    After a run that only repeats the last micro-batch, the Kafka source has no metrics.
    """
    shown = ("KafkaMicroBatchStream.metrics", 'the return value of "scala.Option.get()" is null')
    return spark.version.startswith("4.1.") and any(text in str(error) for text in shown)


def changelog(spark: SparkSession, schema: str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """A changelog with these rows, whose first column is the row kind."""
    return spark.createDataFrame(
        spark.sparkContext.parallelize([tuple(row) for row in rows], 1),
        f"row_kind STRING, {schema}",
    )


def random_changelog(
    random: Random, changes: int, table: dict[int, int]
) -> list[tuple[str, int, int]]:
    """Return random changes ``(row_kind, key, value)`` of a small `table`, which is updated too."""
    rows = []
    for _ in range(changes):
        key, value = random.randrange(5), random.randrange(1000)
        before = table.get(key)
        if before is None:
            rows.append(("+I", key, value))
        elif random.random() < 0.4:
            rows.append(("-D", key, before))
            del table[key]
            continue
        else:
            rows += [("-U", key, before), ("+U", key, value)]
        table[key] = value
    return rows


def forget_last_commit(checkpoint: Path) -> int:
    """Make a query repeat its last micro-batch, and return the number of that micro-batch.

    The effect is that of a kill before Spark's commit.
    """
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    return last


def finish_all(futures: Any) -> None:
    done: list[Future[None]] = list(wait(list(futures)).done)
    for future in done:
        future.result()
