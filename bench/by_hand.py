"""Hand-written PySpark without this library, measured with debezium-json on the benchmark's topic.

- `merge`: ``from_json``, a window for the newest row of each key of the micro-batch, and MERGE into
  a Delta or Iceberg table in ``foreachBatch``. Spark has no window for a stream. The result is a table and no
  changelog. This library writes the same table with `sync_table`, and with `apply_changes` behind
  the stage.
- `by_key`: ``from_json`` and ``applyInPandasWithState`` with one group for each key. It returns the
  changelog of all row kinds. Each group costs milliseconds of CPU, so it is measured on fewer
  messages, with as many messages of a key in a micro-batch.

Both order a key's events by Kafka's offset, and their results are compared with the expected ones.
Neither has more of this library's checks than that: a message that does not fit the schema is a row
of NULLs. The recipes run in turn, first all of them to warm up.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from normalize import DeltaTarget, IcebergTarget, apply_changes, sync_table
from normalize.decode.columnar.native import native_module
from normalize.spark_versions import has_package
from normalize.tables.writers.lake import LakeTarget

from .history import NAMES, SCHEMA, Expected
from .settings import changes_of
from .spark import use_native
from .steady import KindCounter, Run, Side, require_counts, run_steadily, side_of
from .topics import Topic, producer_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "debezium-json"
COLUMNS = SCHEMA.replace("TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ")
_FEWER = 80


def delta(folder: str) -> LakeTarget:
    """Return a Delta table in a folder, merged by Spark."""
    return DeltaTarget(f"{folder}/table", writer="spark")


def by_delta_rs(folder: str) -> LakeTarget:
    """Return a Delta table in a folder, merged by delta-rs."""
    return DeltaTarget(f"{folder}/table", writer="delta-rs", only_writer=True)


def iceberg(folder: str) -> LakeTarget:
    """Return an Iceberg table of the benchmark's catalog."""
    return IcebergTarget(f"lake.db.`{Path(folder).name}`")


Lake = Callable[[str], LakeTarget]


class Recipe(NamedTuple):
    """A line of the table."""

    name: str
    messages: int
    side: Side


def by_hand(
    spark: SparkSession, options: argparse.Namespace, topic: Topic, topic_of: Callable[..., Topic]
) -> list[Recipe]:
    """Measure the recipes, and this library into the same table."""
    # Four micro-batches, in which a key has as many messages as in those of the large topic.
    messages = options.messages // _FEWER
    small = argparse.Namespace(**{**vars(options), "batch": messages // 4})
    fewer = topic_of(FORMAT, messages, max(1, options.keys * small.batch // options.batch))
    recipes: dict[str, Callable[[], Run]] = {
        "from_json, row_number, MERGE into Delta": partial(merge, spark, options, topic, delta),
        "the same with 8 tasks for Delta's state": partial(merge, spark, options, topic, delta, 8),
        "this library, sync_table into Delta": partial(synced, spark, options, topic, delta),
        "this library, sync_table into Delta by delta-rs": partial(
            synced, spark, options, topic, by_delta_rs
        ),
        "this library, sync_table into Delta by delta-rs, without the native decoder": partial(
            synced, spark, options, topic, by_delta_rs, native=False
        ),
        "this library, apply_changes into Delta": partial(applied, spark, options, topic, delta),
        "this library, apply_changes into Delta by delta-rs": partial(
            applied, spark, options, topic, by_delta_rs
        ),
        "from_json, applyInPandasWithState by key": partial(by_key, spark, small, fewer),
    }
    if has_package("iceberg"):
        recipes |= {
            f"{name} into Iceberg": partial(run, spark, options, topic, iceberg)
            for name, run in (
                ("from_json, row_number, MERGE", merge),
                ("this library, sync_table", synced),
                ("this library, apply_changes", applied),
            )
        }
    recipes = {
        name: run
        for name, run in recipes.items()
        if re.search(options.recipes, name)
        and (native_module() is not None or "native decoder" not in name)
    }
    rounds = [[run() for run in recipes.values()] for _ in range(options.warm_up + options.runs)][
        options.warm_up :
    ]
    return [
        Recipe(name, runs[0].messages, side_of(name, runs))
        for name, runs in zip(recipes, zip(*rounds, strict=True), strict=True)
    ]


def merge(
    spark: SparkSession,
    options: argparse.Namespace,
    topic: Topic,
    lake: Lake,
    tasks: int | None = None,
) -> Run:
    """Write the newest rows into a table by ``from_json``, ``row_number()`` and MERGE.

    `tasks` are those in which Delta computes a table's state.
    """
    setting = "spark.databricks.delta.snapshotPartitions"
    if tasks is not None:
        spark.conf.set(setting, tasks)

    with written_table(spark, lake) as (_, target):
        run = run_steadily(merged(spark, _records(spark, options, topic), target))
        spark.conf.unset(setting)
        target.refresh(spark)  # Iceberg caches tables in each session
        require_table("MERGE's", spark, target.sql_name, topic.expected["arrival"])
        return run


def merged(spark: SparkSession, records: DataFrame, target: LakeTarget) -> DataStreamWriter:
    """Return the writer of the newest rows of a topic's records into a new table."""
    from pyspark.sql import Window, functions as F

    envelope = f"op STRING, before STRUCT<id: BIGINT>, after STRUCT<{COLUMNS}>"
    message = F.from_json(F.col("value").cast("string"), envelope).alias("message")
    events = records.select("offset", message).select("offset", "message.*")
    events = events.select(
        F.coalesce("after.id", "before.id").alias("id"),
        "op",
        "offset",
        *(f"after.{name}" for name in NAMES[1:]),
    )
    newest, table = Window.partitionBy("id").orderBy(F.col("offset").desc()), target.sql_name
    spark.sql(f"CREATE TABLE {table} ({COLUMNS}) USING {target.provider}")

    def write(batch: DataFrame, _: int) -> None:
        batch.withColumn("n", F.row_number().over(newest)).where("n = 1").drop(
            "n", "offset"
        ).createOrReplaceTempView("newest")
        batch.sparkSession.sql(f"""
            MERGE INTO {table} AS target USING newest ON target.id = newest.id
            WHEN MATCHED AND op = 'd' THEN DELETE
            WHEN MATCHED THEN UPDATE SET {", ".join(f"{name} = newest.{name}" for name in NAMES)}
            WHEN NOT MATCHED AND op <> 'd' THEN INSERT ({", ".join(NAMES)}) VALUES ({", ".join(f"newest.{name}" for name in NAMES)})
        """)

    return events.writeStream.foreachBatch(write)


@contextmanager
def written_table(spark: SparkSession, lake: Lake) -> Iterator[tuple[str, LakeTarget]]:
    """Yield a folder, and the target of a table that is dropped afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench-table-") as folder:
        target = lake(folder)
        yield folder, target
        if target.provider == "iceberg":
            spark.sql(f"DROP TABLE {target.sql_name}")


def synced(
    spark: SparkSession,
    options: argparse.Namespace,
    topic: Topic,
    lake: Lake,
    *,
    native: bool = True,
) -> Run:
    """Write the rows into a table by this library, without a stage."""
    use_native(spark, native=native)
    with written_table(spark, lake) as (folder, target):
        reader = topic.reader_options(options.batch)
        writer = synced_into(spark, topic.name, reader, target, folder)
        run = run_steadily(writer)
        target.refresh(spark)  # Iceberg caches tables in each session
        require_table("this library's", spark, target.sql_name, topic.expected["arrival"])
        return run


def synced_into(
    spark: SparkSession, topic: str, options: Mapping[str, Any], target: LakeTarget, folder: str
) -> DataStreamWriter:
    """Return this library's writer of a topic into a table."""
    return sync_table(
        spark,
        topic,
        format=FORMAT,
        format_options=producer_of(FORMAT).options,
        target=target,
        schema_location=f"{folder}/schema",
        options=options,
        schema=SCHEMA,
        primary_key="id",
    )


def applied(spark: SparkSession, options: argparse.Namespace, topic: Topic, lake: Lake) -> Run:
    """Write the rows into a table by this library, behind the stage."""
    with written_table(spark, lake) as (_, target):
        changes = changes_of(spark, options, FORMAT, topic)
        run = run_steadily(apply_changes(changes, target, keys="id"))
        target.refresh(spark)  # Iceberg caches tables in each session
        require_table("this library's", spark, target.sql_name, topic.expected["arrival"])
        return run


def by_key(spark: SparkSession, options: argparse.Namespace, topic: Topic) -> Run:
    """Return the run of ``from_json`` and ``applyInPandasWithState`` into a counting consumer.

    The consumer gets the changelog. There is one group for each key.
    """
    from pyspark.sql import functions as F
    from pyspark.sql.streaming.state import GroupStateTimeout

    envelope = f"op STRING, before STRUCT<{COLUMNS}>, after STRUCT<{COLUMNS}>"
    message = F.from_json(F.col("value").cast("string"), envelope).alias("message")
    events = _records(spark, options, topic).select("offset", message).select("offset", "message.*")
    # The row of a delete is its before-image: columns of NULLs would get other types in pandas.
    events = events.select("offset", "op", F.coalesce("after", "before").alias("row")).select(
        "offset", "op", "row.*"
    )
    consumer = KindCounter()
    changes = events.groupBy("id").applyInPandasWithState(
        changes_of_key,
        f"row_kind STRING, {COLUMNS}",
        COLUMNS,
        "append",
        GroupStateTimeout.NoTimeout,
    )
    run = run_steadily(changes.writeStream.foreachBatch(consumer))
    require_counts("applyInPandasWithState's", consumer.counts, topic.expected["arrival"].counts)
    return run


def changes_of_key(key: tuple[int], frames: Iterator[Any], state: Any) -> Iterator[Any]:
    """Yield the changes of a key, and store its row."""
    import pandas as pd

    stored = tuple(state.get) if state.exists else None
    changes: list[tuple[Any, ...]] = []
    for _, op, *row in sorted(
        event for frame in frames for event in frame.itertuples(index=False, name=None)
    ):
        after = None if op == "d" else tuple(row)
        if stored is None and after is not None:
            changes.append(("+I", *after))
        elif stored is not None and after is None:
            changes.append(("-D", *stored))
        elif stored is not None and after is not None and stored != after:
            changes += [("-U", *stored), ("+U", *after)]
        stored = after
    if stored is not None:
        state.update(stored)
    elif state.exists:
        state.remove()
    yield pd.DataFrame(changes, columns=["row_kind", *NAMES])


def _records(spark: SparkSession, options: argparse.Namespace, topic: Topic) -> DataFrame:
    reader = {
        "subscribe": topic.name,
        "startingOffsets": "earliest",
        **topic.reader_options(options.batch),
    }
    return spark.readStream.format("kafka").options(**reader).load()


def require_table(whose: str, spark: SparkSession, table: str, expected: Expected) -> None:
    """Exit if a table does not have the expected rows."""
    totals = tuple(
        spark.sql(f"SELECT count(*), sum(id), sum(amount), sum(qty) FROM {table}").first() or ()
    )
    rows = expected.table.values()
    sums = (
        len(rows),
        sum(row[0] for row in rows),
        sum(Decimal(row[4]) for row in rows),
        sum(row[5] for row in rows),
    )
    if totals != sums:
        raise SystemExit(
            f"{whose} rows and the sums of their id, amount and qty are {totals}, expected {sums}: "
            "the run is not valid"
        )
