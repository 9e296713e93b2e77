"""Starts a job's query again after failures."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import FrameType
from typing import TYPE_CHECKING

from normalize.monitoring.explain_error import explain_error

from .job import Job, Restart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger("normalize")
_BELOW_SPARK_SUBMIT = "PYSPARK_GATEWAY_PORT"
_POLL = 1  # second, between looks at the query


def run_job(job: Job, spark: SparkSession | None = None) -> None:
    """Run a job until it ends, is stopped, or fails too often.

    SIGTERM and SIGINT stop the query between two micro-batches, or in one, which is then repeated
    by the next run.

    Parameters
    ----------
    job : Job
    spark : SparkSession or None
        None: that of ``spark-submit``, or else a `local_session` with the job's packages.

    Raises
    ------
    ChangelogError
        When the job cannot be started: a restart would not help.
    StreamingQueryException
        The last failure, after `Restart.limit` failures in a row.
    """
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        stop.set()

    previous = {each: signal.signal(each, handle) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        _run(job, spark or _session(job), stop)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(job: Job, spark: SparkSession, stop: threading.Event) -> None:
    failures = 0
    while not stop.is_set():
        query = job.writer(spark).start()
        error = _ended(query, stop)
        if error is None:
            return
        failures = 1 if query.recentProgress else failures + 1
        if failures > job.restart.limit:
            raise error
        seconds = pause(job.restart, failures)
        _log.warning(
            "the query failed, %s of at most %s times in a row, and starts again in %g s: %s",
            *(failures, job.restart.limit, seconds, explain_error(error)),
        )
        stop.wait(seconds)


def _ended(query: StreamingQuery, stop: threading.Event) -> Exception | None:
    """Wait for the end of a query; return the error of one that failed."""
    from pyspark.errors import StreamingQueryException

    try:
        while not query.awaitTermination(_POLL):
            if stop.is_set():
                query.stop()
                return None
    except StreamingQueryException as error:
        return error
    return None


def pause(restart: Restart, failures: int) -> float:
    """Return the seconds before a restart.

    Examples
    --------
    >>> [pause(Restart(first_pause=1, longest_pause=60), failures) for failures in (1, 2, 3, 20)]
    [1.0, 2.0, 4.0, 60]
    """
    return min(restart.longest_pause, restart.first_pause * 2.0 ** min(failures - 1, 60))


def _session(job: Job) -> SparkSession:
    if _BELOW_SPARK_SUBMIT in os.environ:
        from pyspark.sql import SparkSession

        return SparkSession.builder.config(map=dict(job.spark)).getOrCreate()
    from normalize.session import local_session

    return local_session(job.name or "changelog", packages=job.packages, **job.spark)
