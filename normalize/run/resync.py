"""Lets the running query of a job read one of its tables again, from another process."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from normalize.tables.resync import resync_table
from normalize.tables.resync_state import Resync
from normalize.tables.schema_store import SchemaStore
from normalize.verify.resync import resync_from_source
from normalize.verify.source import JdbcSource

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
    source: JdbcSource | None = None,
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
    remove_missing, dry_run, again : bool
        Same as in `resync_table`.

    Raises
    ------
    ArgumentError
        As `resync_table` and `resync_from_source`.
    """
    if source is not None and source.url.startswith("jdbc:postgresql:"):
        job = replace(job, packages=tuple(dict.fromkeys([*job.packages, "postgresql"])))
    spark, arguments, lines = spark or session_of(job), job.arguments, list[str]()
    location = arguments["schema_location"]
    request: Any = partial(
        resync_table if source is None else resync_from_source,
        spark,
        table,
        schema_location=location,
        remove_missing=remove_missing,
        dry_run=dry_run,
        again=again,
    )

    def show(resync: Resync) -> None:
        if lines[-1:] != [resync.described]:
            lines.append(resync.described)
            report(f"{table}: {resync.described}")

    resync: Resync
    if source is None:
        resync = request()
    else:
        options = arguments["tables"].get(table)
        of_source = {"source": source, "database": arguments["target"], "options": options}
        resync = request(**of_source, report=show)
    store = SchemaStore(spark, location)
    show(resync)
    while resync.is_active:
        time.sleep(_POLL)
        resync = store.read_resync(table) or resync
        show(resync)
    return resync
