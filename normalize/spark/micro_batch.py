"""The micro-batch of a running query, which Spark shows to no function of Python.

Spark names it in properties of the thread, and its offsets are in the log of the query's checkpoint.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import msgspec
from pyspark import inheritable_thread_target
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError

from .files import Files
from .plans import elements
from .sessions import running_query

_PROPERTIES = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a thread by which Spark names its micro-batch."""
_DIGITS = 8
_Offsets = dict[str, dict[int, int]]
_T = TypeVar("_T")


class Batch(NamedTuple):
    """A micro-batch of a streaming query.

    Attributes
    ----------
    query : str
        The query's id, which its checkpoint keeps.
    number : int
    offsets : str
        A digest of the micro-batch's offset ranges, 8 hexadecimal digits; empty if unknown.
    records : int or None
        The number of Kafka's offsets in the ranges; None if it is unknown.
    """

    query: str
    number: int
    offsets: str = ""
    records: int | None = None

    @property
    def application(self) -> str:
        """The name under which a table keeps the query's record."""
        return f"changelog-{self.query}"


def digest_of(start: list[str | None], end: list[str | None]) -> str:
    """Return the digest of offset ranges.

    Parameters
    ----------
    start, end : list of str or None
        The offsets of each source, as Spark's checkpoint has them.
    """
    return sha256(repr((start, end)).encode()).hexdigest()[:_DIGITS]


def running_batch(spark: SparkSession) -> Batch | None:
    """Return the micro-batch of the current ``foreachBatch`` call, or None.

    Raises
    ------
    ArgumentError
        When Spark does not show it to Python, so that a repeated micro-batch is not recognized.
    """
    with suppress(LookupError):
        return _current.get()
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        raise ArgumentError(
            "PYSPARK_PIN_THREAD is not 'true', and so Python does not see which micro-batch Spark "
            "repeats after a failure: remove this environment variable"
        )
    query, number, run = map(
        spark.sparkContext.getLocalProperty,
        (*_PROPERTIES, "spark.jobGroup.id"),
    )
    if not query or not number:
        return None
    known_run, batch = _running.get(query, (None, None))
    if batch is None or known_run != run or batch.number != int(number):
        batch, execution = Batch(query, int(number)), running_query(spark, query)
        if execution is not None:
            ends = (batch.number - 1, batch.number)
            start, end = (_logged_offsets(execution, each) for each in ends)
            batch = batch._replace(offsets=digest_of(start, end), records=count_of(start, end))
        _running[query] = run, batch
    return batch


_running: dict[str, tuple[str | None, Batch]] = {}
"""The run and the current micro-batch of each query; without offsets if it is not running."""
_current: ContextVar[Batch | None] = ContextVar("_current")


@contextmanager
def one_batch(spark: SparkSession) -> Iterator[None]:
    """Ask Spark once which micro-batch the block applies: each call of the JVM takes time."""
    token = _current.set(running_batch(spark))
    try:
        yield
    finally:
        _current.reset(token)


def in_thread(spark: SparkSession, call: Callable[[], _T]) -> Callable[[], _T]:
    """Return a call for another thread, which has the micro-batch and Spark's settings of this one.

    Each call has its own copy of Spark's local properties. Threads that share a copy would also
    share the number of the SQL execution, and Spark 4.1 then fails in MERGE.
    """
    copied: Callable[[], _T] = inheritable_thread_target(spark)(partial(copy_context().run, call))
    return copied


@contextmanager
def in_batch(spark: SparkSession, batch: Batch) -> Iterator[None]:
    """Let the block be in another micro-batch, which its commits carry."""
    properties = dict(zip(_PROPERTIES, (batch.query, str(batch.number)), strict=True))
    context: Any = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in properties}
    token = _current.set(batch)
    try:
        for name, value in properties.items():
            context.setLocalProperty(name, value)
        yield
    finally:
        _current.reset(token)
        for name, earlier in before.items():
            context.setLocalProperty(name, earlier)


def checkpoint_file(spark: SparkSession, batch: Batch, folder: str, table: str) -> str | None:
    """Return the path of a table's file in a running query's checkpoint; None if it is not running.

    Parameters
    ----------
    spark, batch, folder, table
        Same as in `show_in_checkpoint`.
    """
    execution = running_query(spark, batch.query)
    name = f"{folder}/{sha256(table.encode()).hexdigest()[:16]}.json"
    return None if execution is None else f"{execution.resolvedCheckpointRoot()}/{name}"


def seconds_since_commit(spark: SparkSession, batch: Batch) -> float:
    """Return how long ago a running query committed the micro-batch before this one; 0: unknown."""
    execution = running_query(spark, batch.query)
    if execution is None:
        return 0.0
    files, file = Files(spark), f"{execution.resolvedCheckpointRoot()}/commits/{batch.number - 1}"
    return time.time() - files.modified(file) if files.exists(file) else 0.0


def end_offsets(spark: SparkSession, batch: Batch) -> dict[str, dict[int, int]]:
    """Return the end of a running query's micro-batch in Kafka, by topic and partition.

    Empty if the query is not running, as for a function that a program calls itself.
    """
    execution = running_query(spark, batch.query)
    offsets = [] if execution is None else _logged_offsets(execution, batch.number)
    ends = (msgspec.json.decode(each, type=_Offsets) for each in offsets if each is not None)
    return {topic: partitions for of_source in ends for topic, partitions in of_source.items()}


def _logged_offsets(execution: Any, number: int) -> list[str | None]:
    """Return the offsets of each source at the end of a micro-batch, as the checkpoint has them."""
    entry = execution.offsetLog().get(number)
    offsets = elements(entry.get().offsets()) if entry.isDefined() else []
    return [each.get().json() if each.isDefined() else None for each in offsets]


def count_of(start: list[str | None], end: list[str | None]) -> int | None:
    """Return the number of Kafka's offsets in ranges; None for a first micro-batch or another source.

    A partition that is new has all its offsets in the range.

    Examples
    --------
    >>> count_of(['{"orders": {"0": 3}}'], ['{"orders": {"0": 5, "1": 2}}'])
    4
    >>> count_of(['{"gone": {"0": 900}, "orders": {"0": 3}}'], ['{"orders": {"0": 5}}'])
    2
    >>> count_of([], ['{"orders": {"0": 5}}'])  # the first micro-batch has no start in the log
    >>> count_of([None], ['{"orders": {"0": 5}}'])
    """
    if len(start) != len(end):
        return None
    try:
        first, last = (
            [msgspec.json.decode(each or "", type=_Offsets) for each in side]
            for side in (start, end)
        )
    except msgspec.DecodeError:
        return None
    # A topic that was deleted is in the start alone, and must not hide the records of others.
    return sum(
        stop - before.get(topic, {}).get(partition, 0)
        for before, after in zip(first, last, strict=True)
        for topic, partitions in after.items()
        for partition, stop in partitions.items()
    )
