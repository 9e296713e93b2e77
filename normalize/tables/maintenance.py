"""Maintenance of Delta and Iceberg tables: small files become larger ones, and old files go.

=========  =================================  ===================================================
option     Delta                              Iceberg
=========  =================================  ===================================================
compact    ``OPTIMIZE``                       ``rewrite_data_files``,
                                              ``rewrite_position_delete_files``
expire     ``VACUUM``                         ``expire_snapshots``, ``remove_orphan_files``
=========  =================================  ===================================================

A query's record of its last micro-batch is in Delta's log, which none of these change. Of Iceberg
it is in the summary of a snapshot, which is therefore never expired (`_oldest_kept`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from pyspark.sql import Row, SparkSession, functions as F

from cdc_formats.values.schema import backquoted, name_parts
from normalize.arguments import seconds_of
from normalize.monitoring.explain_error import explain_error
from normalize.spark.micro_batch import running_batch

from .batches import ICEBERG_BATCH, ICEBERG_QUERY
from .table_options import Maintenance
from .table_spec import START_AT
from .targets import TableTarget
from .writers.delta import DeltaSink

_log = logging.getLogger("normalize")
_OPTIMIZE = "spark.databricks.delta.optimize"
_LISTING = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
_SIZES = {f"{_OPTIMIZE}.maxFileSize": 128 << 20, f"{_OPTIMIZE}.minFileSize": 96 << 20}
"""Larger files, such as Delta's default of 1 GB, would be written whole by each MERGE that changes
a row of them."""
_AGE, _DEFAULT_AGE = "history.expire.max-snapshot-age-ms", 5 * 24 * 3600 * 1000  # Iceberg's


def maintained(
    spark: SparkSession, target: TableTarget, options: Maintenance, last: float
) -> float:
    """Maintain a table of a query between two micro-batches, if it is due; a failure is a warning.

    `last` is when it was maintained before, on the monotonic clock. Returned is when it was now.
    """
    if time.monotonic() - last < seconds_of("every", options.every):
        return last
    batch, name = running_batch(spark), target.sql_name
    try:
        done = "; ".join(maintain(spark, target, options, batch.query if batch else ""))
        _log.info("%s: maintained: %s", name, done)
    except Exception as error:  # the rows are written, and the query goes on
        _log.warning("%s: the maintenance failed: %s", name, explain_error(error))
    return time.monotonic()


def maintain(
    spark: SparkSession,
    target: TableTarget,
    options: Maintenance,
    query: str,
    *,
    now: datetime | None = None,
) -> Iterator[str]:
    """Maintain a table, and yield what was done.

    Parameters
    ----------
    spark : SparkSession
    target : TableTarget
        Of Delta or Iceberg.
    options : Maintenance
    query : str
        The id of the query that writes the table; empty: all that wrote it.
    now : datetime or None
    """
    session = target.session(spark)
    # By default, VACUUM lists folders in 10,000 tasks.
    tasks = max(8, spark.sparkContext.defaultParallelism)
    for setting, value in {**_SIZES, _LISTING: tasks}.items():
        if session.conf.get(setting, None) is None:
            session.conf.set(setting, value)
    name = target.sql_name
    if target.provider != "delta":
        yield from _maintain_iceberg(
            session, name, options, query, now or datetime.now(timezone.utc)
        )
        return
    if options.compact:
        (row,) = session.sql(f"OPTIMIZE {name}").select("metrics").collect()
        yield _compacted(row[0]["numFilesRemoved"], row[0]["numFilesAdded"])
    if options.expire:
        kept = isinstance(options.expire, str) and seconds_of("expire", options.expire) / 3600
        session.sql(f"VACUUM {name}" + (f" RETAIN {kept:g} HOURS" if kept else "")).collect()
        yield "old files removed"


def damages(spark: SparkSession, target: TableTarget, key: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong in a table, as delta-rs left it in an earlier version of this library.

    Spark reads the columns of the key, and those of the types FLOAT and DOUBLE.

    Parameters
    ----------
    spark : SparkSession
    target : TableTarget
        Of Delta or Iceberg.
    key : sequence of str
        The columns that identify a row.
    """
    rows, sink = spark.table(target.sql_name), target.sink(spark)
    if isinstance(sink, DeltaSink):
        yield from sink.damages(key[0])
    columns = map(backquoted, [*key, *(name for name in rows.columns if name == START_AT)])
    doubled = rows.groupBy(*columns).count().where("count > 1").count()
    if doubled:
        yield f"{doubled} keys have more than one row: read the table again (cdc resync)"
    floats = [name for name, kind in rows.dtypes if kind in ("float", "double")]
    counts = [F.count_if(F.isnan(backquoted(name))) for name in floats]
    for name, count in zip(floats, rows.agg(*counts).first() or () if floats else (), strict=True):
        # The filter skips files, and the sum over all rows does not.
        if count != rows.where(F.col(backquoted(name)) == float("nan")).count():
            yield (
                f"filters do not see all rows with NaN in {name}: run OPTIMIZE {target.sql_name} "
                f"ZORDER BY ({backquoted(key[0])})"
            )


def _maintain_iceberg(
    spark: SparkSession, name: str, options: Maintenance, query: str, now: datetime
) -> Iterator[str]:
    catalog, *rest = name_parts(name)
    if spark.conf.get(f"spark.sql.catalog.{catalog}", None) is None:
        catalog, rest = spark.catalog.currentCatalog(), [catalog, *rest]
    table = ".".join(map(backquoted, rest)).replace("\\", "\\\\").replace("'", "\\'")

    def call(procedure: str, more: str = "") -> list[Row]:
        called = f"{backquoted(catalog)}.system.{procedure}(table => '{table}'{more})"
        return spark.sql(f"CALL {called}").collect()

    if options.compact:
        (row,) = call("rewrite_data_files")
        yield _compacted(row["rewritten_data_files_count"], row["added_data_files_count"])
        call("rewrite_position_delete_files")
    if options.expire:
        until = _oldest_kept(spark, name, options.expire, query, now)
        (row,) = call(
            "expire_snapshots", f", older_than => TIMESTAMP '{until:%Y-%m-%d %H:%M:%S.%f}Z'"
        )
        orphans = call("remove_orphan_files")
        yield f"{row['deleted_data_files_count']} expired and {len(orphans)} orphan files removed"


def _oldest_kept(
    spark: SparkSession, name: str, expire: str | bool, query: str, now: datetime
) -> datetime:
    """Return since when snapshots are kept: also the last one of the query.

    Without it, a repeated micro-batch would be written again, and a second driver not be noticed.
    """
    if isinstance(expire, str):
        age = timedelta(seconds=seconds_of("expire", expire))
    else:
        rows = spark.sql(f"SHOW TBLPROPERTIES {name}").where(f"key = '{_AGE}'").collect()
        age = timedelta(milliseconds=int(rows[0]["value"]) if rows else _DEFAULT_AGE)
    writer, number = (F.col("summary")[each] for each in (ICEBERG_QUERY, ICEBERG_BATCH))
    last = F.max(F.struct(number.cast("bigint"), F.unix_millis("committed_at").alias("at")))
    snapshots = (
        spark.table(f"{name}.snapshots").groupBy(writer.alias("query")).agg(last.alias("last"))
    )
    kept = snapshots.where("query" + (" IS NOT NULL" if not query else f" = '{query}'"))
    stamps = [row[0] for row in kept.select("last.at").collect()]
    return min([now - age, *(datetime.fromtimestamp(each / 1000, timezone.utc) for each in stamps)])


def _compacted(removed: int, added: int) -> str:
    return f"{removed} files compacted into {added}"
