"""The last change of each key of a micro-batch.

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

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import MissingFieldError, refuse
from cdc_formats.events import SHORT_STRINGS
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import ChangeOrderError
from normalize.spark.plans import Node

from .merge import ADDS

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
    partition = F.shiftright("arrival", _PARTITION_BITS)
    unknown = (
        _by_columns(order)
        if order
        else [
            F.lit(False).alias("unplaced"),
            (F.min(partition) != F.max(partition)).alias("ambiguous"),
        ]
    )
    grouped = rows.groupBy(*grouping).agg(last, unkinded, *unknown)
    named = [
        F.col(f"c{i}" if f"c{i}" in grouping else f"last.c{i}").alias(name)
        for i, name in enumerate(columns)
    ]
    return grouped.select(
        F.struct(F.col("last.kind").alias(ROW_KIND), *named).alias("row"),
        F.struct(*_FLAGS).alias("flags"),
    )


def _by_columns(order: Sequence[str]) -> list[SparkColumn]:
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
    flags = [F.max(f"flags.{flag}").alias(flag) for flag in _FLAGS]
    nulls = [
        F.max(F.col(f"row.{backquoted(name)}").isNull()).alias(f"null{index}")
        for index, name in enumerate(keys)
    ]
    summary = latest.agg(F.count(F.lit(1)).alias("keys"), *flags, *nulls).first()
    assert summary is not None  # an aggregate without groups is one row
    null_keys = [name for index, name in enumerate(keys) if summary[f"null{index}"]]
    _require_known(order_by, null_keys, **{flag: summary[flag] for flag in _FLAGS})
    return int(summary["keys"])


def _require_known(
    order_by: Sequence[str],
    nulls: Sequence[str],
    *,
    unkinded: bool,
    unplaced: bool,
    ambiguous: bool,
) -> None:
    """Raise the error of `check` for the first of these that is true."""
    refuse(
        (
            unkinded,
            f"a row has no {ROW_KIND} (a corrupt record or a control event), or one other than "
            f"{', '.join(SHORT_STRINGS)}: filter such rows out, df.where('{ROW_KIND} IS NOT NULL')",
        )
    )
    for name in nulls:
        raise MissingFieldError(f"`{name}` is part of the primary key and is null", field="row")
    refuse(
        (
            unplaced,
            f"a column of {list(order_by)}, which order the changes, is NULL in a row: order by "
            "columns without NULL",
        ),
        (
            ambiguous and order_by,
            f"two rows of one key have the same values in {list(order_by)}, which order its "
            "changes: add a column that differs, such as offset",
        ),
        (
            ambiguous,
            "the rows of one key are in several partitions of the DataFrame, and so their order is "
            "unknown: read the topic with ChangelogNormalize (source_duplicates=True), or pass "
            "order_by=[...] with columns that increase with each change of a key",
        ),
        error=ChangeOrderError,
    )


# --------------------------------------------------------------------------------------------------
# The last change of each key as Arrow's columns, in the order of arrival.

_MOST_HELD = 65_536
_OF_PACKAGE = ("FlatMapGroupsInPandasWithState", "MapInArrow")
"""The nodes of the stage and of the decode pass."""
_OF_SPARK = re.compile(r"variant|interval|geography|geometry|void|udt|time\(|collate")
"""Types that tasks in Python do not get, or not with all of their meaning."""
_COMPARED_BY_SPARK = ("float", "double", "struct", "array", "map")
"""Types of which equal values may differ in Arrow, or which Arrow does not group."""


def has_python(node: Node) -> bool:
    """Return whether a plan has a step of this package, so that executors have it, and pyarrow."""
    return node.name in _OF_PACKAGE or any(map(has_python, node.children))


def is_arrow(fields: Iterable[StructField], keys: Collection[str]) -> bool:
    """Return whether `last_rows` can have rows with these fields."""
    kinds = {field.name: field.dataType.simpleString().lower() for field in fields}
    return not any(map(_OF_SPARK.search, kinds.values())) and not any(
        kinds[name].startswith(_COMPARED_BY_SPARK) for name in keys
    )


def last_rows(
    batches: Iterable[pa.RecordBatch], *, keys: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the last row of each key of a task's batches; also all rows without a row kind.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        With ``row_kind``, in the order of arrival.
    keys : sequence of str

    Examples
    --------
    >>> batch = pa.RecordBatch.from_pydict({"row_kind": ["+I", "-U", "+U"], "id": [7, 8, 7]})
    >>> [each.to_pydict() for each in last_rows([batch], keys=["id"])]
    [{'row_kind': ['-U', '+U'], 'id': [8, 7]}]
    """
    waiting, rows, most = list[pa.RecordBatch](), 0, _MOST_HELD
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows > most:
            waiting = _last_rows(waiting, keys)
            rows = sum(each.num_rows for each in waiting)
            most = max(_MOST_HELD, 2 * rows)
    if waiting:
        yield from _last_rows(waiting, keys)


def _last_rows(batches: Sequence[pa.RecordBatch], keys: Sequence[str]) -> list[pa.RecordBatch]:
    table = pa.Table.from_batches(batches)
    last = _last_places(table, keys)
    unkinded = np.flatnonzero(pc.invert(_has_kind(table)).to_numpy())
    kept = table.take(pa.array(np.union1d(last, unkinded))).combine_chunks()
    return list(kept.to_batches())


def _last_places(table: pa.Table, keys: Sequence[str]) -> Any:
    """Return the index of the last row of each key."""
    names = [f"k{index}" for index in range(len(keys))]
    placed = pa.table(
        [*map(table.column, keys), pa.array(np.arange(table.num_rows))], names=[*names, "at"]
    )
    grouped = placed.group_by(names, use_threads=False).aggregate([("at", "max")])
    return grouped.column("at_max").to_numpy()


def _has_kind(table: pa.Table) -> pa.ChunkedArray:
    return pc.is_in(table.column(ROW_KIND), value_set=pa.array(SHORT_STRINGS))


def check_rows(table: pa.Table, keys: Sequence[str]) -> None:
    """Raise an error for the rows of `last_rows` of all tasks, as `check`."""
    _require_known(
        (),
        [name for name in keys if table.column(name).null_count],
        unkinded=not pc.all(_has_kind(table)).as_py(),
        unplaced=False,
        ambiguous=len(_last_places(table, keys)) < table.num_rows,
    )
