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

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import ChangelogError, MissingFieldError, refuse
from cdc_formats.events import SHORT_STRINGS
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import ONE_TO_ONE, ROW_BY_ROW, is_native
from normalize.spark.plans import Node, class_of, elements, plan_of, rows_of
from normalize.spark.sessions import is_connect

from .merge import ADDS

# --------------------------------------------------------------------------------------------------
# The check whether a DataFrame's plan keeps the order of a key's rows, or has one row per key.
#
# Rows of one key come in order from Kafka (a key is in one Kafka partition, which is one partition of
# Spark) and from ChangelogNormalize. Spark's narrow operations keep the order of a partition. A
# shuffle does not: after a join, a ``groupBy`` or a ``repartition`` a delete may precede the insert
# of its row. The result of a ``groupBy`` has one row for each group, and so needs no order if the
# group is the key.


class ChangeOrderError(ChangelogError, ValueError):
    """The order of a key's changes is unknown, and so is the last of them."""

    condition = "CHANGE_ORDER"


_BEGIN = {"FlatMapGroupsInPandasWithState", "LocalRelation", "OneRowRelation", "Sort"}
"""Nodes that define the order: a sort, sources, and the keyed stage."""
_REMEDY = (
    "pass order_by=['offset'], or another column that increases with each change of a key "
    "(metadata=['offset'] adds Kafka's)"
)
_UNORDERED_RDD = re.compile(r"\b(?:Shuffled|Coalesced|CoGrouped|\w*Checkpoint)\w*RDD")


def require_arrival_order(df: DataFrame, keys: Sequence[str]) -> None:
    """Raise an error if a DataFrame may have several rows of a key, and its plan may reorder them.

    Raises
    ------
    ChangeOrderError
        With Spark Connect always, since its client has no plan.
    """
    if is_connect(df):
        raise ChangeOrderError(
            "Spark Connect requires order_by, since its client does not see whether a key's rows "
            f"are in order: {_REMEDY}. If each key has one row, as in the result of a GROUP BY, "
            "pass any column without NULL"
        )
    plan = plan_of(df)
    unordered = _unordered(plan)
    if unordered and not _one_row_for_each(plan, keys):
        raise ChangeOrderError(
            f"the plan contains {unordered}, which does not keep the order of a key's rows: "
            f"{_REMEDY}. For the result of a GROUP BY, pass its columns as keys instead"
        )


def _unordered(node: Node) -> str | None:
    """Return the name of the first node that does not keep the order, or None."""
    name, children = node.name, node.children
    if name in _BEGIN or _is_kafka(node, name) or is_native(node):
        return None
    if node.java.subqueries().nonEmpty():
        return "Subquery"  # the optimizer makes a join of it
    if name == "LogicalRDD" and not children:
        # Of createDataFrame, or a checkpoint, whose lineage is gone.
        shuffled = _UNORDERED_RDD.search(node.java.rdd().toDebugString())
        return shuffled[0] if shuffled else None
    if name not in ROW_BY_ROW and name != "LogicalRDD":
        return name
    return next(filter(None, map(_unordered, children)), None)


def _is_kafka(node: Node, name: str) -> bool:
    if name == "StreamingRelationV2":
        return bool(node.java.sourceName() == "kafka")
    if name == "StreamingDataSourceV2ScanRelation":  # of a running query
        return class_of(node.java.stream()) == "KafkaMicroBatchStream"
    return name == "LogicalRelation" and class_of(node.java.relation()) == "KafkaRelation"


def _one_row_for_each(node: Node, keys: Sequence[str]) -> bool:
    """Return whether the rows are groups of a ``groupBy`` whose columns are all among the keys."""
    names = set(map(str.lower, keys))
    ids = {
        attribute.exprId().id()
        for attribute in elements(node.java.output())
        if attribute.name().lower() in names
    }
    while node.name in ONE_TO_ONE or (node.name == "LogicalRDD" and node.children):
        if node.name == "Project":
            ids = {
                source.exprId().id()
                for source in _sources(node.java.projectList(), ids)
                if class_of(source) == "AttributeReference"
            }
        node = node.children[0]
    if node.name != "Aggregate":
        return False
    shown = _sources(node.java.aggregateExpressions(), ids)
    return all(
        any(group.semanticEquals(source) for source in shown)
        for group in elements(node.java.groupingExpressions())
    )


def _sources(select_list: Any, ids: set[int]) -> list[Any]:
    """Return the expressions that entries of a select list name, of the entries with these ids."""
    return [
        entry.child() if class_of(entry) == "Alias" else entry
        for entry in elements(select_list)
        if entry.exprId().id() in ids
    ]


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
