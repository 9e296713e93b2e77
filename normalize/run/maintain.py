"""Maintains the tables of a job, from another process than the query."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError
from normalize.monitoring.explain_error import explain_error
from normalize.tables.database_target import LakeDatabase
from normalize.tables.maintenance import maintain
from normalize.tables.policy import Maintenance
from normalize.tables.schema_store import SchemaStore

from .job import Job
from .supervise import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain_job(
    job: Job, report: Callable[[str], None], spark: SparkSession | None = None, *, stopped: bool
) -> int:
    """Maintain each table that a job has written, and return how many failed.

    Parameters
    ----------
    job : Job
    report : callable
        Gets a line for each table.
    spark : SparkSession or None
        As in `run_job`.
    stopped : bool
        Whether the job's query does not run now.

    Raises
    ------
    ArgumentError
        When the target has no maintenance, or the query may be running and is the only writer.
    """
    database, failed = job.arguments["target"], 0
    if not isinstance(database, LakeDatabase):
        raise ArgumentError("the target is a database, which maintains its tables itself")
    if getattr(database, "only_writer", False) and not stopped:
        raise ArgumentError(
            "the job has only_writer, so that a commit of this command could be lost while the "
            "query runs: stop the query and pass --stopped, or write maintenance: into the job"
        )
    spark = spark or session_of(job)
    store = SchemaStore(spark, job.arguments["schema_location"])
    query = store.read_query().query
    for table in store.tables():
        schema = store.read(table)
        if schema is None or not schema.facts.written:
            continue
        own = job.arguments["tables"].get(table)
        options = (own and own.maintenance) or database.maintenance or Maintenance()
        try:
            options.check(database.of.provider)
            done = maintain(spark, database.target(schema.facts.target), options, query)
            report(f"{table}: {'; '.join(done)}")
        except Exception as error:  # the other tables are maintained
            report(f"{table}: the maintenance failed: {explain_error(error)}")
            failed += 1
    return failed
