"""What the tests of sinks share: a table of any kind, how to read it back, and changelogs cut into micro-batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from normalize import DeltaTable, IcebergTable, JdbcTable, apply_changes
from normalize.sinks.jdbc import Connection, _options
from normalize.sinks.dialects import dialect_of
from normalize.sinks.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass
class Sink:
    """A table to apply changes to."""

    spark: SparkSession
    table: Table
    read: Callable[[], DataFrame]
    execute: Callable[[str], Any]
    """Run a statement of SQL where the table is."""
    sql_name: str

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        """The table's rows, sorted."""
        return sorted(map(tuple, self.read().select(*columns or ["*"]).collect()), key=repr)


def delta_sink(spark: SparkSession, path: str) -> Sink:
    """A Delta table by its path."""
    table = DeltaTable(path)
    return Sink(spark, table, lambda: spark.table(table.sql_name), spark.sql, table.sql_name)


def iceberg_sink(spark: SparkSession, name: str) -> Sink:
    """An Iceberg table."""
    return Sink(spark, IcebergTable(name), lambda: spark.table(name), spark.sql, name)


def database_sink(spark: SparkSession, server: Any, name: str, scheme: str = "") -> Sink:
    """A table of a database."""
    url = server.url.replace("jdbc:mariadb:", f"jdbc:{scheme}:") if scheme else server.url
    table = JdbcTable(url, name, user=server.user, password=server.password)

    def read() -> DataFrame:
        options = _options(table, dialect_of(url)) | {"dbtable": dialect_of(url).table(name), "preferTimestampNTZ": "true"}
        return spark.read.format("jdbc").options(**options).load()

    def execute(statement: str) -> None:
        with Connection.open(spark, table) as connection:
            connection.execute(statement)

    return Sink(spark, table, read, execute, name)


def apply_stream(changes: DataFrame, table: Table | str, checkpoint: Path, **options: Any) -> Any:
    """Apply a stream until it has read all there is."""
    writer = apply_changes(changes, table, **options)
    assert writer is not None
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return query


def changelog(spark: SparkSession, schema: str, rows: Sequence[Sequence[Any]]) -> DataFrame:
    """A changelog of these rows, the row kind first."""
    return spark.createDataFrame(spark.sparkContext.parallelize([tuple(row) for row in rows], 1), f"row_kind STRING, {schema}")
