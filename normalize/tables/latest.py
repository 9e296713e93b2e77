"""The last change of each key of a micro-batch, and the rows stored while they are written.

An ambiguous last change is an error.

A retraction (``-U`` or ``-D``) as a key's last change deletes the row. The ``-U`` of an update that
keeps the key precedes its ``+U``.

==============================  ==================================================================
order                           the last change of a key
==============================  ==================================================================
arrival (the default)           the last in the DataFrame's partition; a key whose rows are in
                                several is an error
columns that order the changes  the greatest; with equal ones a ``+`` comes after a ``-``, and two
                                ``+`` are an error
==============================  ==================================================================

A change's place in its partition is `monotonically_increasing_id`, taken before anything is
shuffled: its upper bits are the partition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeVar

from cdc_formats.errors import ArgumentError, MissingFieldError
from cdc_formats.row_kind import SHORT_STRINGS
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.spark.connect import is_connect
from normalize.spark.rows import rows_of

from .arrival import ChangeOrderError
from .merge import ADDS

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame

T = TypeVar("T")

_PARTITION_BITS = 33
_FLAGS = ("unkinded", "unplaced", "ambiguous")


def last_changes(
    batch: DataFrame, columns: Sequence[str], keys: Sequence[str], order_by: Sequence[str]
) -> DataFrame:
    """Return a row per key: ``row`` with its last ``row_kind`` and columns, ``flags`` for `check`.

    Parameters
    ----------
    batch : DataFrame
        The changes, with ``row_kind``, the columns and those of `order_by`.
    columns, keys, order_by : sequence of str
    """
    from pyspark.sql import functions as F

    # Generated names, which cannot collide with the user's.
    placed = [F.col(backquoted(name)).alias(f"o{index}") for index, name in enumerate(order_by)]
    values = [F.col(backquoted(name)).alias(f"c{index}") for index, name in enumerate(columns)]
    rows = batch.select(
        F.col(ROW_KIND).alias("kind"),
        *values,
        *placed,
        F.monotonically_increasing_id().alias("arrival"),
    )
    grouping = [f"c{columns.index(name)}" for name in keys]
    rest = [f"c{index}" for index in range(len(columns)) if f"c{index}" not in grouping]
    order = [f"o{index}" for index in range(len(order_by))]
    place = F.struct(*order, F.col("kind").isin(*ADDS), "arrival") if order else F.struct("arrival")
    last = F.max_by(F.struct("kind", *rest), place).alias("last")
    unkinded = F.max(~F.coalesce(F.col("kind").isin(*SHORT_STRINGS), F.lit(False))).alias(
        "unkinded"
    )
    grouped = rows.groupBy(*grouping).agg(
        last, unkinded, *(_by_columns(order) if order else _by_arrival())
    )
    named = [
        F.col(f"c{i}" if f"c{i}" in grouping else f"last.c{i}").alias(name)
        for i, name in enumerate(columns)
    ]
    return grouped.select(
        F.struct(F.col("last.kind").alias(ROW_KIND), *named).alias("row"),
        F.struct(*_FLAGS).alias("flags"),
    )


def _by_arrival() -> list[SparkColumn]:
    from pyspark.sql import functions as F

    partition = F.shiftright("arrival", _PARTITION_BITS)
    return [
        F.lit(False).alias("unplaced"),
        (F.min(partition) != F.max(partition)).alias("ambiguous"),
    ]


def _by_columns(order: Sequence[str]) -> list[SparkColumn]:
    from pyspark.sql import functions as F

    place: list[str | SparkColumn] = [*order, F.col("kind").isin(*ADDS)]
    first, last = (
        F.max(F.struct(*place, (F.col("arrival") * sign).alias("at")))["at"] * sign
        for sign in (-1, 1)
    )
    added = F.max_by(F.col("kind").isin(*ADDS), F.struct(*place))
    unplaced = F.max(reduce(or_, (F.col(name).isNull() for name in order)))
    return [unplaced.alias("unplaced"), (added & (first != last)).alias("ambiguous")]


def check(latest: DataFrame, keys: Sequence[str], order_by: Sequence[str]) -> int:
    """Return how many keys changed.

    Raises
    ------
    ArgumentError
        When a row has no row kind.
    MissingFieldError
        When a key is NULL.
    ChangeOrderError
        When a key's last change is ambiguous.
    """
    from pyspark.sql import functions as F

    flags = [F.max(f"flags.{flag}").alias(flag) for flag in _FLAGS]
    nulls = [
        F.max(F.col(f"row.{backquoted(name)}").isNull()).alias(f"null{index}")
        for index, name in enumerate(keys)
    ]
    summary = latest.agg(F.count(F.lit(1)).alias("keys"), *flags, *nulls).first()
    assert summary is not None  # an aggregate without groups is one row
    if summary["unkinded"]:
        raise ArgumentError(
            f"a row has no {ROW_KIND} (a corrupt record or a control event), or one other than "
            f"{', '.join(SHORT_STRINGS)}: filter such rows out, df.where('{ROW_KIND} IS NOT NULL')"
        )
    for index, name in enumerate(keys):
        if summary[f"null{index}"]:
            raise MissingFieldError(f"`{name}` is part of the primary key and is null", field="row")
    if summary["unplaced"]:
        raise ChangeOrderError(
            f"a column of {list(order_by)}, which order the changes, is NULL in a row: order by "
            "columns without NULL"
        )
    if summary["ambiguous"]:
        raise ChangeOrderError(
            _AMBIGUOUS_ORDER.format(list(order_by)) if order_by else _SEVERAL_PARTITIONS
        )
    return int(summary["keys"])


_AMBIGUOUS_ORDER = (
    "two rows of one key have the same values in {}, which order its changes: add a column that "
    "differs, such as offset"
)
_SEVERAL_PARTITIONS = (
    "the rows of one key are in several partitions of the DataFrame, and so their order is "
    "unknown: read the topic with ChangelogNormalize (source_duplicates=True), or pass "
    "order_by=[...] with columns that increase with each change of a key"
)


def count(rows: DataFrame) -> int:
    """Return the number of rows: a job that reads all of them, for `computed`."""
    return rows.count()


@contextmanager
def computed(df: DataFrame, job: Callable[[DataFrame], T]) -> Iterator[tuple[DataFrame, T]]:
    """Yield a DataFrame with all rows computed now and once, and what `job` returned.

    They are computed even if the micro-batch is then skipped, and stored as `stored` does. On Spark
    Connect there is only `localCheckpoint`.

    Parameters
    ----------
    df : DataFrame
    job : callable
        The first job on the rows, which must read all of them.
    """
    if is_connect(df):
        rows = df.localCheckpoint()
        yield rows, job(rows)
        return
    with stored(df) as rows:
        result = job(rows)
        yield rows_of(rows), result


@contextmanager
def stored(df: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame whose rows the first action computes, all of them, and executors hold.

    Spark computes those of a lost executor again, from the same offsets and the same version of the
    state. `localCheckpoint` would forget how, and the query would end with the executor.
    """
    rows = df.persist()
    try:
        yield rows
    finally:
        rows.unpersist()
