"""``python -m bench.merge``: what a MERGE into a Delta table costs, by the order of the table and of the changed keys.

python -m bench.merge                                           # 1,000,000 rows, 10,000 updates
python -m bench.merge --rows 10000000 --files 100 --runs 3

A table is clustered (each file has a range of keys) or shuffled (each file has keys of the whole table), with deletion vectors or without.
The updated keys are adjacent, or random ones of the whole table. Each MERGE begins with the same version of the table. Three ways:

==========  ==============================================================================================================
library     `apply_batch`
by hand     ``MERGE ... ON t.id = s.id``
range       the same with ``AND t.id BETWEEN <least key> AND <greatest key>``; its time includes the query for these keys
==========  ==============================================================================================================

Seconds are the median of the runs. Files and bytes are what Delta's history says about the last run: the files that the commit removed, and
the bytes that it added to the table, without deletion vectors.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any

from normalize import DeltaTarget, apply_batch

from .spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Way = Callable[["DataFrame", str], None]


def main() -> None:
    """Measure each way with each table and choice of keys, and print a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=10_000, help="updates of a MERGE")
    parser.add_argument("--files", type=int, default=20, help="files of the table")
    parser.add_argument("--runs", type=int, default=3, help="runs of each way; the first ones are preceded by one to warm up")
    options = parser.parse_args()
    spark = start_session(delta=True)
    spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")  # 50 are for tables of many files
    print(f"{'table':10} {'vectors':8} {'keys':9} {'way':8} {'s':>6} {'files':>6} {'MB':>7}")
    with tempfile.TemporaryDirectory(prefix="bench-merge-") as folder:
        for number, (table, vectors) in enumerate(product(("clustered", "shuffled"), (False, True))):
            path = f"{folder}/{number}"
            create(spark, path, options, clustered=table == "clustered", vectors=vectors)
            for keys, (name, way) in product(("adjacent", "random"), WAYS.items()):
                changes = changes_of(spark, options, adjacent=keys == "adjacent").localCheckpoint()
                warm_up = int((number, keys) == (0, "adjacent"))
                runs = [measure(changes, path, way) for _ in range(options.runs + warm_up)][warm_up:]
                _, files, added = runs[-1]
                seconds = median(run[0] for run in runs)
                print(f"{table:10} {vectors!s:8} {keys:9} {name:8} {seconds:6.1f} {files:6} {added / 1e6:7.1f}", flush=True)


def create(spark: SparkSession, path: str, options: argparse.Namespace, *, clustered: bool, vectors: bool) -> None:
    """Write the table, whose version 0 has all rows."""
    rows = rows_of(spark.range(options.rows))
    placed = rows.repartitionByRange(options.files, "id") if clustered else rows.repartition(options.files)
    placed.write.format("delta").option("delta.enableDeletionVectors", str(vectors).lower()).save(path)


def rows_of(keys: DataFrame) -> DataFrame:
    """Return a row for each ``id``."""
    return keys.selectExpr("id", "sha2(cast(id AS STRING), 256) AS name", "rand() AS amount", "current_timestamp() AS updated_at")


def changes_of(spark: SparkSession, options: argparse.Namespace, *, adjacent: bool) -> DataFrame:
    """Return updates of distinct keys, in the middle of the table or of all of it."""
    first, step = (options.rows // 2, 1) if adjacent else (0, options.rows // options.changes)
    keys = spark.range(options.changes).selectExpr(f"{first} + id * {step} + cast(rand(7) * {step} AS BIGINT) AS id")
    return rows_of(keys).selectExpr("'+U' AS row_kind", "*")


def measure(changes: DataFrame, path: str, way: Way) -> tuple[float, int, int]:
    """Return the seconds of a MERGE, the files that it removed, and the bytes that it added."""
    spark, table = changes.sparkSession, f"delta.`{path}`"
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 0").collect()
    began = time.perf_counter()
    way(changes, path)
    seconds = time.perf_counter() - began
    last: Any = spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()
    metrics = last["operationMetrics"]
    if last["operation"] != "MERGE" or int(metrics["numTargetRowsUpdated"]) != changes.count():
        raise SystemExit(f"the last commit is {last['operation']} with {metrics}, not a MERGE that updated every key: the run is not valid")
    return seconds, int(metrics["numTargetFilesRemoved"]), int(metrics["numTargetBytesAdded"])


def library(changes: DataFrame, path: str) -> None:
    """Apply the changes by this library."""
    apply_batch(changes, DeltaTarget(path), keys="id", sequence_by="updated_at")


def by_hand(changes: DataFrame, path: str, condition: str = "") -> None:
    """Apply them by a MERGE on the key, and on another condition."""
    changes.drop("row_kind").createOrReplaceTempView("changes")
    changes.sparkSession.sql(f"""
        MERGE INTO delta.`{path}` AS t USING changes AS s ON t.id = s.id {condition}
        WHEN MATCHED THEN UPDATE SET *
        WHEN NOT MATCHED THEN INSERT *
    """).collect()


def with_range(changes: DataFrame, path: str) -> None:
    """Apply them by a MERGE on the key and the range of the keys."""
    keys: Any = changes.selectExpr("min(id) AS least", "max(id) AS greatest").first()
    by_hand(changes, path, f"AND t.id BETWEEN {keys['least']} AND {keys['greatest']}")


WAYS: dict[str, Way] = {"library": library, "by hand": by_hand, "range": with_range}

if __name__ == "__main__":
    main()
