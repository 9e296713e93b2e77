"""Lets the running query of a job read one of its tables again, from another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from normalize.tables.resync import resync_table
from normalize.tables.resync_state import Resync
from normalize.tables.schema_store import SchemaStore

from .job import Job
from .supervise import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL = 1  # second


def resync_job(
    job: Job,
    table: str,
    report: Callable[[str], None],
    spark: SparkSession | None = None,
    *,
    remove_missing: bool = False,
    dry_run: bool = False,
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
    remove_missing, dry_run : bool
        Same as in `resync_table`.

    Raises
    ------
    ArgumentError
        As `resync_table`.
    """
    spark, location = spark or session_of(job), job.arguments["schema_location"]
    options = {"remove_missing": remove_missing, "dry_run": dry_run}
    resync = resync_table(spark, table, schema_location=location, **options)
    store, shown = SchemaStore(spark, location), ""
    while True:
        if resync.described != shown:
            shown = resync.described
            report(f"{table}: {shown}")
        if not resync.is_active:
            return resync
        time.sleep(_POLL)
        resync = store.read_resync(table) or resync
