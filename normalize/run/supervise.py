"""Runs a job's query, which starts again after failures.

Other processes maintain its tables, and let the query read one of them again.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from cdc_formats.errors import ArgumentError
from normalize.kafka.debezium_snapshot import IncrementalSnapshot
from normalize.kafka.reader_options import reader_options
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.metrics_listener import MetricsListener
from normalize.spark.files import local_checkpoint_settings
from normalize.spark.sessions import is_stopped
from normalize.tables.database import LASTING
from normalize.tables.database_target import LakeDatabase
from normalize.tables.maintenance import damages, maintain
from normalize.tables.policy import Maintenance
from normalize.tables.resync import (
    cancel_resync,
    resync_from_snapshot,
    resync_table,
    wait_while,
)
from normalize.tables.resync_state import Offsets, Resync
from normalize.tables.schema_store import SchemaStore
from normalize.verify.database_table import JdbcSource
from normalize.verify.resync import resync_from_source

from .events import BatchReporter, Event, Report, log_event
from .job import Job, Restart

_log = logging.getLogger("normalize")
_BELOW_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
_POLL = 1  # second, between looks at the query
_PY4J, _ROOT = logging.getLogger("py4j"), logging.getLogger()


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in Path(record.pathname).parts


def run_job(job: Job, spark: SparkSession | None = None, report: Report = log_event) -> None:
    """Run a job until it ends, is stopped, or fails too often.

    SIGTERM and SIGINT stop the query between two micro-batches, or in one, which is then repeated
    by the next run. They may also end Java, as when systemd signals the whole process group.

    Parameters
    ----------
    job : Job
    spark : SparkSession or None
        None: that of ``spark-submit``, or else a `local_session` with the job's packages.
    report : callable
        Gets each `Event`; by default it goes to the logger ``normalize.run``.

    Raises
    ------
    ChangelogError
        When the job cannot be started the first time: a restart would not help. Later starts are
        repeated as failures are, since Kafka can be down when a query starts again.
    StreamingQueryException, ChangelogError
        The last failure, after `Restart.limit` failures in a row; or the first that no restart
        cures, of a table that no query has written yet.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    if spark is None:
        job.check_topics()
    previous = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    # Py4j logs the trace of each call that fails, by its own logger and by the root logger. The
    # error of the query has it, too.
    level = _PY4J.level
    _PY4J.setLevel(logging.CRITICAL)
    _ROOT.addFilter(_is_not_of_py4j)
    try:
        session = spark or session_of(job)
        signal.signal(signal.SIGINT, handle)  # a new SparkContext has one that only cancels jobs
        with _metrics(job, session):
            _run(job, session, stop, report)
    except Exception as error:
        if not stop.is_set():
            raise
        _log.debug("the error of the query while it was stopped: %s", explain_error(error))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        # Java may end by the same signal: threads of a micro-batch then fail, also after this call.
        if not stop.is_set():
            _PY4J.setLevel(level)
            _ROOT.removeFilter(_is_not_of_py4j)
    if stop.is_set():
        report(Event("stopped", "the query is stopped"))


@contextmanager
def _metrics(job: Job, spark: SparkSession) -> Iterator[None]:
    """Serve the metrics of the block's queries, if the job says where."""
    if job.metrics is None:
        yield
        return
    listener = MetricsListener(port=job.metrics.port, address=job.metrics.address, log=False)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)
        listener.close()


def _run(job: Job, spark: SparkSession, stop: threading.Event, report: Report) -> None:
    batches, failures = BatchReporter(report), 0
    query: StreamingQuery | Exception = job.writer(spark).start()
    report(Event("started", "the query has started"))
    while (error := _error_of(query, stop, batches)) is not None and not stop.is_set():
        is_new_row = not isinstance(query, Exception) and query.recentProgress
        failures = 1 if is_new_row else failures + 1
        seconds, text = pause(job.restart, failures), explain_error(error)
        if failures > job.restart.limit or text.endswith(LASTING):
            raise error
        report(
            Event(
                "failed",
                f"the query failed, {failures} of at most {job.restart.limit} times in a row, and "
                f"starts again in {seconds:g} s: {text}",
                {"failures": failures, "pause_seconds": seconds, "error": text},
            )
        )
        if not stop.wait(seconds):
            query = _started_again(job, spark)


def _started_again(job: Job, spark: SparkSession) -> StreamingQuery | Exception:
    """Start the query again; return it, or the error, such as that of a Kafka that is down.

    The error is raised if Spark is stopped, so that no later start can succeed.
    """
    try:
        return job.writer(spark).start()
    except Exception as error:
        if is_stopped(spark):
            raise
        return error


def _error_of(
    query: StreamingQuery | Exception, stop: threading.Event, batches: BatchReporter
) -> Exception | None:
    """Wait for the end of a query; return the error of one that failed, or was not started."""
    if isinstance(query, Exception):
        return query
    batches.begin(query)
    try:
        while not query.awaitTermination(_POLL):
            batches.look(query)
            if stop.is_set():
                query.stop()
                batches.look(query)
                break
    except StreamingQueryException as error:
        return error
    finally:
        if not stop.is_set():
            batches.look(query)
    return None


def pause(restart: Restart, failures: int) -> float:
    """Return the seconds before a restart.

    Examples
    --------
    >>> [pause(Restart(first_pause=1, longest_pause=60), failures) for failures in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 60]
    """
    return min(restart.longest_pause, restart.first_pause * 2.0 ** min(failures - 1, 60))


def session_of(job: Job) -> SparkSession:
    """Return the session of ``spark-submit``, or else a `local_session` with the job's packages."""
    if _BELOW_SPARK_SUBMIT in os.environ:
        return SparkSession.builder.config(map=dict(job.spark)).getOrCreate()
    from normalize.session import local_session

    # The report of a failure has the error: Spark does not log it, too (`log4j2.properties`).
    os.environ.setdefault("CHANGELOG_QUERY_ERRORS", "off")
    settings = local_checkpoint_settings(job.checkpoint_location, job.spark) | dict(job.spark)
    stdout, null = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # Java inherits it: Delta prints a line for each VACUUM
    try:
        return local_session(job.name or "changelog", packages=job.packages, **settings)
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
        os.close(null)


# --------------------------------------------------------------------------------------------------
# Maintains the tables of a job, from another process than the query.


def maintain_job(
    job: Job,
    report: Callable[[str], None],
    spark: SparkSession | None = None,
    *,
    stopped: bool,
    check: bool = False,
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
    check : bool
        Only check the tables (`normalize.tables.maintenance.damages`): a damaged one has failed.

    Raises
    ------
    ArgumentError
        When the target has no maintenance, or the query may be running and is the only writer.
    """
    database, failed = job.arguments["target"], 0
    if not isinstance(database, LakeDatabase):
        raise ArgumentError("the target is a database, which maintains its tables itself")
    if getattr(database, "only_writer", False) and not (stopped or check):
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
            target = database.target(schema.facts.target)
            if check:
                damage = "; ".join(damages(spark, target, schema.primary_key))
                failed += bool(damage)
                report(f"{table}: {damage or 'no damage found'}")
            else:
                report(f"{table}: {'; '.join(maintain(spark, target, options, query))}")
        except Exception as error:  # the other tables are maintained
            report(f"{table}: the maintenance failed: {explain_error(error)}")
            failed += 1
    return failed


# --------------------------------------------------------------------------------------------------
# Lets the running query of a job read one of its tables again, from another process.


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
    cancel: bool = False,
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
    cancel : bool
        Whether the request of another call is withdrawn instead.

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

    if cancel:
        resync = cancel_resync(spark, table, schema_location=location)
    elif source is not None:
        options |= {"database": arguments["target"], "options": arguments["tables"].get(table)}
        resync = resync_from_source(spark, table, source, report=show, **options)
    elif snapshot is not None:
        options["options"] = reader_options(arguments["topic"], arguments["options"])
        resync = resync_from_snapshot(spark, table, snapshot, report=line, **options)
    else:
        resync = resync_table(spark, table, offsets=offsets, **options)
    store = SchemaStore(spark, location)
    return wait_while(store, resync, lambda each: each.is_active, show)
