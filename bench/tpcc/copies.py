"""The ways to copy the nine tables from the same topics: this library, by hand, and Flink."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.spark import micro_batch, offsets_of
from normalize import DeltaDatabase, IcebergDatabase, sync_database
from normalize.tables.table_options import TableOptions

from .databases import database_of, in_database
from .record import Recording
from .replay import TOPICS
from .results import Readable
from .servers import SOURCES
from .tables import TABLES, Table
from .targets import Copy, Target, files_in, session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SYNC_OPTIONS = {"decimal_handling_mode": "string", "time_precision_mode": "connect"}
MOST = 250_000
"""The most records of a micro-batch."""


class SparkCopy:
    """A copy by a query of Spark. Its records are readable when their micro-batch has ended."""

    def __init__(self, query: Any) -> None:
        self.query = query

    def readable(self) -> list[Readable]:
        """Return the ends of the micro-batches."""
        return [
            Readable(table, end, micro_batch(progress).end)
            for progress in self.query.recentProgress
            if progress["numInputRows"]
            for table, end in enumerate(_ends(progress))
        ]

    def wait(self, records: list[int]) -> float:
        """Wait for the micro-batch with the last records, and return its end."""
        while True:
            if self.query.exception() is not None:
                raise self.query.exception()
            progress = self.query.lastProgress
            if progress and all(
                end >= count for end, count in zip(_ends(progress), records, strict=True)
            ):
                return time.time()
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the query."""
        self.query.stop()


def _ends(progress: Any) -> list[int]:
    ends = offsets_of(progress, "endOffset")
    return [ends.get(topic, {}).get("0", 0) for topic in TOPICS]


def sync_options(recording: Recording) -> dict[str, TableOptions]:
    """Return the columns and keys of the tables, as all ways declare them."""
    return {
        recording.source_table(table.name): TableOptions(schema=table.ddl, primary_key=table.key)
        for table in TABLES
    }


def _synced(
    spark: SparkSession, target: Any, recording: Recording, trigger: str | None
) -> Callable[..., Copy]:
    def start(servers: str, folder: Path) -> Copy:
        writer = sync_database(
            spark,
            TOPICS,
            format="debezium-json",
            format_options=SYNC_OPTIONS,
            target=target,
            schema_location=str(folder / "schemas"),
            options=reader_options(servers),
            tables=sync_options(recording),
        )
        return started(writer, folder, trigger)

    return start


def started(writer: Any, folder: Path, trigger: str | None) -> SparkCopy:
    """Start a query with a time between its micro-batches; by default, they follow each other."""
    if trigger:
        writer = writer.trigger(processingTime=trigger)
    return SparkCopy(writer.option("checkpointLocation", str(folder / "checkpoint")).start())


def reader_options(servers: str) -> dict[str, Any]:
    """Return the options of Spark's Kafka source."""
    return {"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": MOST}


@contextmanager
def delta(recording: Recording, folder: Path, trigger: str | None) -> Iterator[Target]:
    """Yield `sync_database` into Delta tables."""
    with session("delta") as spark:
        # Nothing else writes these tables; without the word of the user, Spark writes a local path.
        target = DeltaDatabase(str(folder / "lake"), only_writer=True)
        yield Target(
            spark,
            _synced(spark, target, recording, trigger),
            lambda name: spark.table(f"delta.`{folder}/lake/{name}`"),
            lambda: files_in(folder / "lake"),
        )


@contextmanager
def iceberg(recording: Recording, folder: Path, trigger: str | None) -> Iterator[Target]:
    """Yield `sync_database` into Iceberg tables; it requires PySpark 4.1."""
    catalog = {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
    }
    with session("iceberg", **catalog) as spark:
        yield Target(
            spark,
            _synced(spark, IcebergDatabase("lake.tpcc"), recording, trigger),
            lambda name: spark.table(f"lake.tpcc.{name}"),
            lambda: files_in(folder / "lake"),
        )


@contextmanager
def in_server(
    kind: str, recording: Recording, folder: Path, trigger: str | None
) -> Iterator[Target]:
    """Yield `sync_database` into a database."""
    with SOURCES[kind]() as server, session(kind) as spark:
        yield in_database(spark, server, _synced(spark, database_of(server), recording, trigger))


@contextmanager
def by_hand(recording: Recording, folder: Path, trigger: str | None) -> Iterator[Target]:
    """Yield the recipe by hand into Delta tables, with the setting for Delta's state."""
    with session("delta") as spark:
        yield Target(
            spark,
            lambda servers, work: started(
                merged_by_hand(
                    spark,
                    dict(zip(TOPICS, TABLES, strict=True)),
                    folder / "lake",
                    reader_options(servers),
                ),
                work,
                trigger,
            ),
            lambda name: spark.table(f"delta.`{folder}/lake/{name}`"),
            lambda: files_in(folder / "lake"),
        )


# --------------------------------------------------------------------------------------------------
# by hand


def merged_by_hand(
    spark: SparkSession, tables: Mapping[str, Table], lake: Path, options: Mapping[str, Any]
) -> Any:
    """Return the writer of a query of ``from_json``, ``row_number()`` and a MERGE for each table.

    Parameters
    ----------
    spark : SparkSession
    tables : mapping
        The table of each topic.
    lake : Path
        The folder of the tables.
    options : mapping
        Options of Spark's Kafka source.
    """
    for table in tables.values():
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS delta.`{lake}/{table.name}` ({table.ddl}) USING delta"
        )

    def write(batch: DataFrame, _: int) -> None:
        batch.persist()
        present = {row["topic"] for row in batch.select("topic").distinct().collect()}
        for topic, table in tables.items():
            if topic in present:
                _merge_by_hand(batch.where(batch["topic"] == topic), table, lake)
        batch.unpersist()

    records = (
        spark.readStream.format("kafka")
        .options(subscribe=",".join(tables), startingOffsets="earliest", **options)
        .load()
    )
    return records.writeStream.foreachBatch(write)


def _merge_by_hand(records: DataFrame, table: Table, lake: Path) -> None:
    from pyspark.sql import functions as F

    row = ", ".join(
        f"{name}: {'BIGINT' if kind == 'TIMESTAMP_NTZ' else kind}"
        for name, kind in table.columns.items()
    )
    envelope = f"op STRING, before STRUCT<{row}>, after STRUCT<{row}>"
    message = F.from_json(F.col("value").cast("string"), envelope).alias("message")
    columns = [
        (
            F.expr(f"CAST(timestamp_millis(row.{name}) AS TIMESTAMP_NTZ)").alias(name)
            if kind == "TIMESTAMP_NTZ"
            else F.col(f"row.{name}")
        )
        for name, kind in table.columns.items()
    ]
    changes = (
        records.where("value IS NOT NULL")
        .select("offset", message)
        .select("offset", "message.op", F.coalesce("message.after", "message.before").alias("row"))
        .select("offset", "op", *columns)
    )
    merge_newest(changes, table, lake)


def merge_newest(changes: DataFrame, table: Table, lake: Path) -> None:
    """Merge the newest change of each key into a Delta table: ``row_number()`` and ``MERGE``.

    Parameters
    ----------
    changes : DataFrame
        The columns, ``op`` (``d`` is a delete) and ``offset``.
    table : Table
    lake : Path
        The folder of the tables.
    """
    from pyspark.sql import Window, functions as F

    newest = Window.partitionBy(*table.key).orderBy(F.col("offset").desc())
    numbered = changes.withColumn("n", F.row_number().over(newest))
    numbered.where("n = 1").drop("n", "offset").createOrReplaceTempView("newest")
    same = " AND ".join(f"target.{name} = newest.{name}" for name in table.key)
    values = ", ".join(f"newest.{name}" for name in table.columns)
    changes.sparkSession.sql(f"""
        MERGE INTO delta.`{lake}/{table.name}` AS target USING newest ON {same}
        WHEN MATCHED AND op = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = newest.{name}" for name in table.columns)}
        WHEN NOT MATCHED AND op <> 'd' THEN INSERT ({", ".join(table.columns)}) VALUES ({values})
    """)
