"""The record of a query's last micro-batch, which every commit of a table carries.

Two drivers may run one checkpoint: a frozen one wakes up after another one took over. A checkpoint
or a table may be set back. Each commit therefore stores the query, the micro-batch's number and a
digest of its offsets, and compares them with the table's record before it writes.

========================  ==========================================================================
table                     where the record is
========================  ==========================================================================
Delta                     the transaction of the application ``changelog-<query id>``; its version
                          is that of `version_of`. Delta compares it again when it commits.
Iceberg                   the summary of the snapshot (`ICEBERG_QUERY`, `ICEBERG_BATCH`)
PostgreSQL, MySQL         a row of ``changelog_batches``, in the same transaction as the rows
========================  ==========================================================================

`is_repeat` decides for all of them.
"""

from __future__ import annotations

import logging
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

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize.spark.files import Files
from normalize.spark.plans import elements
from normalize.spark.sessions import running_query

_log = logging.getLogger("normalize")
ICEBERG_QUERY, ICEBERG_BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""Properties of a snapshot's summary. Iceberg's own streaming sink writes them too."""
ICEBERG_OFFSETS = "changelog.offsets"
_DIGITS, _BITS = 8, 32
_Offsets = dict[str, dict[int, int]]
_T = TypeVar("_T")


class BatchOrderError(ChangelogError, RuntimeError):
    """A table already has this micro-batch with other offsets, or a later one; nothing is written.

    Another driver runs the same checkpoint, or the checkpoint or the table was set back.
    """


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


class Record(NamedTuple):
    """A table's record of a query's last micro-batch."""

    number: int
    offsets: str = ""


def is_repeat(batch: Batch, record: Record | None, table: object) -> bool:
    """Return whether a table has a micro-batch already, so that nothing is written.

    Parameters
    ----------
    batch : Batch
    record : Record or None
        The table's record of the query; None: the table has none.
    table : object
        The table, for the error.

    Raises
    ------
    BatchOrderError
        When the table has a later micro-batch, or this one with other offsets.

    Examples
    --------
    >>> is_repeat(Batch("q", 7, "0a"), None, "t"), is_repeat(Batch("q", 7, "0a"), Record(6, "99"), "t")
    (False, False)
    >>> is_repeat(Batch("q", 7, "0a"), Record(7, "0a"), "t")
    True
    """
    if record is None or record.number < batch.number:
        return False
    if record.number == batch.number and (
        not (record.offsets and batch.offsets) or record.offsets == batch.offsets
    ):
        return True
    has = (
        "this micro-batch with other offsets"
        if record.number == batch.number
        else f"the later micro-batch {record.number}"
    )
    raise BatchOrderError(
        f"{table}: micro-batch {batch.number} was not written, because the table has {has} of the "
        f"same query ({batch.query}). Either another driver runs this checkpoint: stop all drivers "
        "but one, and start it again. Or the checkpoint or the table was set back or restored: "
        "restore the newest checkpoint, or start from a new one, which reads the topic again"
    )


def log_repeat(batch: Batch, table: object) -> None:
    """Log that a micro-batch is not written again."""
    _log.info(
        "%s has micro-batch %s of the query already: it is not written again", table, batch.number
    )


def version_of(batch: Batch) -> int:
    """Return a micro-batch as one number, which increases with the micro-batch's number.

    Its lower 32 bits are the digest of the offsets.

    Examples
    --------
    >>> record_of(version_of(Batch("q", 7, "0000abcd")))
    Record(number=7, offsets='0000abcd')
    """
    return (batch.number << _BITS) | int(batch.offsets or "0", 16)


def record_of(version: int) -> Record:
    """Return the micro-batch of a `version_of`."""
    number, digest = divmod(version, 1 << _BITS)
    return Record(number, f"{digest:0{_DIGITS}x}" if digest else "")


def digest_of(start: list[str | None], end: list[str | None]) -> str:
    """Return the digest of offset ranges.

    Parameters
    ----------
    start, end : list of str or None
        The offsets of each source, as Spark's checkpoint has them.
    """
    return sha256(repr((start, end)).encode()).hexdigest()[:_DIGITS]


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
    key = run, int(number)
    current = _ranges.get(query)
    if current is None or current[0] != key:
        execution = running_query(spark, query)
        offsets: tuple[str, int | None] = "", None
        if execution is not None:
            start, end = (_logged_offsets(execution, each) for each in (key[1] - 1, key[1]))
            offsets = digest_of(start, end), count_of(start, end)
        current = _ranges[query] = key, offsets
    return Batch(query, int(number), *current[1])


_ranges: dict[str, tuple[tuple[str | None, int], tuple[str, int | None]]] = {}
"""The digest and the number of the offsets of each query's current micro-batch, by its run and number;
an empty digest if it is not running."""


def show_in_checkpoint(
    spark: SparkSession, batch: Batch | None, folder: str, table: str, **values: str
) -> None:
    """Write a table's file into a running query's checkpoint, over an earlier one.

    It is for ``cdc status``: nothing depends on it, and a failure is a warning.

    Parameters
    ----------
    spark : SparkSession
    batch : Batch or None
        A micro-batch of the query; None: nothing is written.
    folder : str
        A folder in the checkpoint that Spark does not use.
    table : str
    **values : str
        What the file has besides the table.
    """
    file = None if batch is None else checkpoint_file(spark, batch, folder, table)
    if file is None:
        return
    text = msgspec.json.encode({"table": table, **values}).decode()
    try:
        Files(spark, raw=True).write(file, text, replace=True)
    except Exception as error:
        _log.warning("%s cannot be written: %s", file, error)


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


def end_offsets(spark: SparkSession, batch: Batch) -> dict[str, dict[int, int]]:
    """Return the end of a running query's micro-batch in Kafka, by topic and partition.

    Empty if the query is not running, as for a function that a program calls itself.
    """
    execution = running_query(spark, batch.query)
    offsets = [] if execution is None else _logged_offsets(execution, batch.number)
    ends = (msgspec.json.decode(each, type=_Offsets) for each in offsets if each is not None)
    return {topic: partitions for of_source in ends for topic, partitions in of_source.items()}


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


_PROPERTIES = "sql.streaming.queryId", "streaming.sql.batchId"
"""The properties of a thread by which Spark names its micro-batch."""
_written: dict[tuple[str, str], int] = {}


@contextmanager
def only_call(spark: SparkSession, table: str) -> Iterator[None]:
    """Raise an error for a second call that writes a table within one micro-batch.

    The second call would be taken for a repetition of the first.

    Raises
    ------
    ArgumentError
    """
    batch, run = running_batch(spark), spark.sparkContext.getLocalProperty("spark.jobGroup.id")
    key = f"{run}", table
    if batch is not None and _written.get(key) == batch.number:
        raise ArgumentError(
            f"apply_batch was called for {table} twice in one micro-batch, and the second call would "
            "be taken for a repetition of the first: apply the union of both DataFrames in one call"
        )
    yield
    if batch is not None:
        _written[key] = batch.number
