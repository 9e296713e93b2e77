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
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize.spark.files import Files
from normalize.spark.micro_batch import Batch, checkpoint_file, running_batch

_log = logging.getLogger("normalize")
ICEBERG_QUERY, ICEBERG_BATCH = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""Properties of a snapshot's summary. Iceberg's own streaming sink writes them too."""
ICEBERG_OFFSETS = "changelog.offsets"
_DIGITS, _BITS = 8, 32


class BatchOrderError(ChangelogError, RuntimeError):
    """A table already has this micro-batch with other offsets, or a later one; nothing is written.

    Another driver runs the same checkpoint, or the checkpoint or the table was set back.
    """


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
