"""``python -m bench.maintenance``: a table after many micro-batches, before and after maintenance.

python -m bench.maintenance           # 200 MERGEs of 500 random updates into 100,000 rows

A line for each layout of `bench.merge`: the files and MB of the table, those in its folder, and the
seconds of a read of all rows and of one more MERGE (medians of 5). The maintenance compacts, and
keeps no old files: a query would keep them for days.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from normalize import DeltaTarget, IcebergTarget
from normalize.spark_versions import has_package
from normalize.tables.apply import apply_batch
from normalize.tables.maintenance import maintain
from normalize.tables.table_options import Maintenance
from normalize.tables.writers.lake import LakeTarget

from .merge import LAYOUTS, Table, changes_of, placed_rows
from .spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS = 5


def main() -> None:
    """Print a line for each table, before and after its maintenance."""
    layouts = [name for name in LAYOUTS if name != "iceberg-v3"]
    if not has_package("iceberg"):
        layouts = [name for name in layouts if name.startswith("delta")]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=100_000, help="rows of the table")
    parser.add_argument("--changes", type=int, default=500, help="updates of a MERGE")
    parser.add_argument("--files", type=int, default=4, help="files of the table")
    parser.add_argument("--batches", type=int, default=200, help="micro-batches")
    parser.add_argument("--layouts", nargs="+", choices=LAYOUTS, default=layouts)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-maintenance-") as folder:
        spark = start_session(delta=True, iceberg=folder if has_package("iceberg") else "")
        # 50 tasks are for tables of many files.
        spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
        print(
            f"{'layout':11} {'':6} {'files':>6} {'MB':>6} {'in folder':>9} {'MB':>6} {'read s':>6} {'MERGE s':>7}"
        )
        for layout in options.layouts:
            provider, properties = LAYOUTS[layout]
            is_delta = provider == "delta"
            path = Path(folder, layout) if is_delta else Path(folder, "db", layout)
            target = DeltaTarget(str(path)) if is_delta else IcebergTarget(f"lake.db.`{layout}`")
            if is_delta:
                properties = {
                    **properties,
                    "delta.deletedFileRetentionDuration": "interval 0 hours",
                }
            Table.create(spark, target, properties, placed_rows(spark, options, clustered=False))

            def merge(target: LakeTarget = target) -> None:
                changes = changes_of(spark, options, adjacent=False)
                apply_batch(changes, target, keys="id", order_by="updated_at")

            for _ in range(options.batches):
                merge()
            for what in ("before", "after"):
                if what == "after":
                    later = datetime.now(timezone.utc) + timedelta(days=30)
                    began = time.perf_counter()
                    done = "; ".join(maintain(spark, target, Maintenance(), "", now=later))
                    print(f"{layout}: {done}, in {time.perf_counter() - began:.1f} s", flush=True)
                print(
                    f"{layout:11} {what:6} {sizes(spark, target, path)} {costs(spark, target, merge)}",
                    flush=True,
                )


def sizes(spark: SparkSession, target: LakeTarget, path: Path) -> str:
    """Return the files and MB of a table, and those in its folder."""
    if target.provider == "delta":
        (detail,) = spark.sql(f"DESCRIBE DETAIL {target.sql_name}").collect()
        files, size = detail["numFiles"], detail["sizeInBytes"]
    else:
        table: Any = spark.table(f"{target.sql_name}.files")
        (files, size) = table.selectExpr("count(*)", "sum(file_size_in_bytes)").first()
    stored = [
        each.stat().st_size for each in path.rglob("*") if each.suffix in (".parquet", ".bin")
    ]
    return f"{files:6} {size / 1e6:6.1f} {len(stored):9} {sum(stored) / 1e6:6.1f}"


def costs(spark: SparkSession, target: LakeTarget, merge: Callable[[], None]) -> str:
    """Return the seconds of a read and of a MERGE."""

    def read() -> None:
        spark.table(target.sql_name).selectExpr("bit_xor(xxhash64(*))").collect()

    return f"{seconds(read):6.2f} {seconds(merge):7.2f}"


def seconds(work: Callable[[], None]) -> float:
    """Return the median time of some runs."""
    times = []
    for _ in range(_RUNS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return median(times)


if __name__ == "__main__":
    main()
