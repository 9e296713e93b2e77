"""``python -m bench.merge``: a MERGE's cost in Delta or Iceberg, by layout, order and changed keys.

python -m bench.merge                 # 1,000,000 rows, 10,000 updates
python -m bench.merge --rows 10000000 --files 100 --runs 3 --layouts delta iceberg-v3

A table is clustered (each file has a range of keys) or shuffled (each file has keys of the whole
table). The updated keys are adjacent, or random ones of the whole table. Each MERGE begins with the
same version of the table. Two ways:

==========  ========================================================================================
library     `apply_batch`
by hand     what people write: ``row_number()`` for the last change of each key, and
            ``MERGE ... WHEN MATCHED AND row_kind = '-D' THEN DELETE ...``
==========  ========================================================================================

Seconds are the median of the runs. The other figures are those of the last run. "rewritten" are the
files that the commit removed, "MB written" the bytes that it added, by Delta's history (without
deletion vectors) or Iceberg's snapshot (with its files of deletes).
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from normalize import DeltaTarget, IcebergTarget
from normalize.spark_versions import has_package
from normalize.tables.apply import apply_batch
from normalize.tables.writers.lake import LakeTarget

from .spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Way = Callable[["DataFrame", LakeTarget], None]


def _iceberg(version: int, mode: str) -> Mapping[str, str]:
    return {"format-version": str(version)} | {
        f"write.{of}.mode": mode for of in ("merge", "update", "delete")
    }


LAYOUTS: dict[str, tuple[str, Mapping[str, str]]] = {
    "delta": ("delta", {"delta.enableDeletionVectors": "false"}),
    "delta-dv": ("delta", {"delta.enableDeletionVectors": "true"}),
    "iceberg-cow": ("iceberg", _iceberg(2, "copy-on-write")),
    "iceberg-v2": ("iceberg", _iceberg(2, "merge-on-read")),
    "iceberg-v3": ("iceberg", _iceberg(3, "merge-on-read")),
}
"""The provider and the properties of a table: Delta without and with deletion vectors; Iceberg with
copy-on-write, with position deletes (v2), and with deletion vectors (v3)."""


class Cost(NamedTuple):
    """What a MERGE cost."""

    seconds: float
    rewritten: int
    written: int


@dataclass(frozen=True)
class Table:
    """A table that returns to its first version before each MERGE."""

    spark: SparkSession
    target: LakeTarget
    first: int

    @classmethod
    def create(
        cls, spark: SparkSession, target: LakeTarget, properties: Mapping[str, str], rows: DataFrame
    ) -> Table:
        """Write the table, whose first version has all rows."""
        writer = rows.writeTo(target.sql_name).using(target.provider)
        for name, value in properties.items():
            writer = writer.tableProperty(name, value)
        writer.create()
        return cls(
            spark,
            target,
            0 if target.provider == "delta" else int(_snapshot(spark, target)["snapshot_id"]),
        )

    def restore(self) -> None:
        """Return to the first version."""
        name = self.target.sql_name
        if self.target.provider == "delta":
            self.spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {self.first}").collect()
        else:
            self.spark.sql(
                f"CALL lake.system.rollback_to_snapshot('db.{self.target.parts[-1]}', {self.first})"
            ).collect()

    def last_merge(self, changes: int) -> tuple[int, int]:
        """Return the files that the last commit removed, and the bytes that it added."""
        if self.target.provider == "delta":
            last: Any = self.spark.sql(f"DESCRIBE HISTORY {self.target.sql_name} LIMIT 1").first()
            # delta-rs writes the same numbers under names of its own, without the bytes.
            metrics = {
                name.replace("_", "").lower(): value
                for name, value in last["operationMetrics"].items()
            }
            _require(
                last["operation"] == "MERGE" and int(metrics["numtargetrowsupdated"]) == changes,
                metrics,
            )
            written = metrics.get("numtargetbytesadded", 0)
            return int(metrics["numtargetfilesremoved"]), int(written)
        metrics = _snapshot(self.spark, self.target)["summary"]
        deleted = int(metrics.get("added-position-deletes", 0))
        replaced = (
            deleted or int(metrics["deleted-records"]) - int(metrics["added-records"]) + changes
        )
        _require(replaced == changes, metrics)
        return int(metrics.get("deleted-data-files", 0)), int(metrics["added-files-size"])


def _snapshot(spark: SparkSession, target: LakeTarget) -> Any:
    return spark.sql(
        f"SELECT * FROM {target.sql_name}.snapshots ORDER BY committed_at DESC LIMIT 1"
    ).first()


def _require(valid: bool, actual: Any) -> None:
    if not valid:
        raise SystemExit(
            "the last commit is not a MERGE that updated every key, and so the run is not valid: "
            f"{actual}"
        )


def main() -> None:
    """Measure each way with each table and choice of keys, and print a line."""
    iceberg = has_package("iceberg")
    layouts = [name for name, (provider, _) in LAYOUTS.items() if iceberg or provider == "delta"]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=10_000, help="updates of a MERGE")
    parser.add_argument("--files", type=int, default=20, help="files of the table")
    parser.add_argument(
        "--runs",
        type=int,
        default=3,
        help="runs of each way, in turn; one of each before the first warms Java up",
    )
    parser.add_argument(
        "--layouts",
        nargs="+",
        choices=LAYOUTS,
        default=layouts,
        help="layouts of the table; Iceberg's need Spark 4.0 or 4.1",
    )
    parser.add_argument(
        "--orders",
        nargs="+",
        choices=("clustered", "shuffled"),
        default=["clustered", "shuffled"],
        help="orders of rows",
    )
    parser.add_argument(
        "--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways of the MERGE"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-merge-") as folder:
        spark = start_session(delta=True, iceberg=folder if iceberg else "")
        spark.conf.set(
            "spark.databricks.delta.snapshotPartitions", "2"
        )  # 50 are for tables of many files
        # As queries set it: delta-rs writes no table whose files have INT96.
        spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        print(
            f"{'layout':11} {'order':9} {'keys':8} {'way':8} {'s':>6} {'rewritten':>9} "
            f"{'MB written':>10}"
        )
        warm_up = 1
        for number, (layout, order) in enumerate(product(options.layouts, options.orders)):
            provider, properties = LAYOUTS[layout]
            target = (
                DeltaTarget(f"{folder}/{number}")
                if provider == "delta"
                else IcebergTarget(f"lake.db.t{number}")
            )
            table = Table.create(
                spark,
                target,
                properties,
                placed_rows(spark, options, clustered=order == "clustered"),
            )
            for keys in ("adjacent", "random"):
                changes = changes_of(spark, options, adjacent=keys == "adjacent").localCheckpoint()
                ways = [way for way in options.ways if (way, provider) != ("delta-rs", "iceberg")]
                rounds = [
                    {way: measure(changes, table, WAYS[way]) for way in ways}
                    for _ in range(options.runs + warm_up)
                ][warm_up:]
                warm_up, last = 0, rounds[-1]
                for way in ways:
                    seconds = median(each[way].seconds for each in rounds)
                    amounts = f"{last[way].rewritten:9} {last[way].written / 1e6:10.1f}"
                    print(
                        f"{layout:11} {order:9} {keys:8} {way:8} {seconds:6.1f} {amounts}",
                        flush=True,
                    )
            spark.sql(f"DROP TABLE {target.sql_name}")


def placed_rows(spark: SparkSession, options: argparse.Namespace, *, clustered: bool) -> DataFrame:
    """Return all rows of a table, in its files."""
    rows = rows_of(spark.range(options.rows))
    return (
        rows.repartitionByRange(options.files, "id")
        if clustered
        else rows.repartition(options.files)
    )


def rows_of(keys: DataFrame) -> DataFrame:
    """Return a row for each ``id``."""
    return keys.selectExpr(
        "id",
        "sha2(cast(id AS STRING), 256) AS name",
        "rand() AS amount",
        "current_timestamp() AS updated_at",
    )


def changes_of(spark: SparkSession, options: argparse.Namespace, *, adjacent: bool) -> DataFrame:
    """Return updates of distinct keys, in the middle of the table or of all of it."""
    first, step = (options.rows // 2, 1) if adjacent else (0, options.rows // options.changes)
    keys = spark.range(options.changes).selectExpr(
        f"{first} + id * {step} + cast(rand(7) * {step} AS BIGINT) AS id"
    )
    return rows_of(keys).selectExpr("'+U' AS row_kind", "*")


def measure(changes: DataFrame, table: Table, way: Way) -> Cost:
    """Return the cost of a MERGE into the first version of a table."""
    table.restore()
    began = time.perf_counter()
    way(changes, table.target)
    seconds = time.perf_counter() - began
    return Cost(seconds, *table.last_merge(changes.count()))


def by_spark(changes: DataFrame, target: LakeTarget) -> None:
    """Apply the changes by this library and Spark."""
    if isinstance(target, DeltaTarget):
        target = replace(target, writer="spark")
    apply_batch(changes, target, keys="id", order_by="updated_at")


def by_delta_rs(changes: DataFrame, target: LakeTarget) -> None:
    """Apply the changes by this library and delta-rs."""
    target = replace(target, writer="delta-rs", only_writer=True)
    apply_batch(changes, target, keys="id", order_by="updated_at")


def by_hand(changes: DataFrame, target: LakeTarget) -> None:
    """Apply the last change of each key by a MERGE."""
    from pyspark.sql import Window, functions as F

    newest = Window.partitionBy("id").orderBy(F.col("updated_at").desc())
    last = changes.withColumn("n", F.row_number().over(newest)).where("n = 1").drop("n")
    last.createOrReplaceTempView("changes")
    names = [name for name in changes.columns if name != "row_kind"]
    changes.sparkSession.sql(f"""
        MERGE INTO {target.sql_name} AS t USING changes AS s ON t.id = s.id
        WHEN MATCHED AND s.row_kind = '-D' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {", ".join(f"t.{name} = s.{name}" for name in names)}
        WHEN NOT MATCHED AND s.row_kind <> '-D' THEN INSERT ({", ".join(names)})
            VALUES ({", ".join(f"s.{name}" for name in names)})
    """).collect()


WAYS: dict[str, Way] = {"spark": by_spark, "delta-rs": by_delta_rs, "by-hand": by_hand}

if __name__ == "__main__":
    main()
