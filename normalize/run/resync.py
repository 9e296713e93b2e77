"""Lets the running query of a job read one of its tables again, from another process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pyspark.sql import SparkSession

from normalize.kafka.debezium_snapshot import IncrementalSnapshot
from normalize.kafka.reader_options import reader_options
from normalize.tables.resync import resync_from_snapshot, resync_table, wait_while
from normalize.tables.resync_state import Offsets, Resync
from normalize.tables.schema_store import SchemaStore
from normalize.verify.database_table import JdbcSource
from normalize.verify.resync import resync_from_source

from .job import Job
from .supervise import session_of


def resync_job(
    job: Job,
    table: str,
    report: Callable[[str], None],
    spark: SparkSession | None = None,
    *,
    source: JdbcSource | None = None,
    snapshot: IncrementalSnapshot | None = None,
    offsets: Offsets | None = None,
    remove_missing: bool = False,
    dry_run: bool = False,
    again: bool = False,
) -> Resync:
    """Request that a table is read again, wait for the end, and return it.

    Parameters
    ----------
    job : Job
    table : str
        The source table.
    report : callable
        Gets a line whenever the query is further.
    spark : SparkSession or None
        As in `run_job`.
    source : JdbcSource or None
        The table in its database, whose rows are read; None: the records of its topic are.
    snapshot : IncrementalSnapshot or None
        The table of a Debezium connector, which writes all rows to the topic first.
    offsets, remove_missing, dry_run, again
        Same as in `resync_table`.

    Raises
    ------
    ArgumentError
        As `resync_table`, `resync_from_source` and `resync_from_snapshot`.
    """
    if source is not None and source.url.startswith("jdbc:postgresql:"):
        job = replace(job, packages=tuple(dict.fromkeys([*job.packages, "postgresql"])))
    spark, arguments, lines = spark or session_of(job), job.arguments, list[str]()
    location = arguments["schema_location"]
    options: Any = {
        "schema_location": location,
        "remove_missing": remove_missing,
        "dry_run": dry_run,
        "again": again,
    }

    def line(text: str) -> None:
        report(f"{table}: {text}")

    def show(resync: Resync) -> None:
        if lines[-1:] != [resync.described]:
            lines.append(resync.described)
            line(resync.described)

    if source is not None:
        options |= {"database": arguments["target"], "options": arguments["tables"].get(table)}
        resync = resync_from_source(spark, table, source, report=show, **options)
    elif snapshot is not None:
        options["options"] = reader_options(arguments["topic"], arguments["options"])
        resync = resync_from_snapshot(spark, table, snapshot, report=line, **options)
    else:
        resync = resync_table(spark, table, offsets=offsets, **options)
    store = SchemaStore(spark, location)
    return wait_while(store, resync, lambda each: each.is_active, show)
