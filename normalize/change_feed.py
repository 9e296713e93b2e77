"""Changelog conversion to and from change feeds: `to_change_feed`, `from_change_feed`.

=============  ====================  ================
``row_kind``   ``_change_type``      Iceberg's
=============  ====================  ================
``+I``         ``insert``            ``INSERT``
``-U``         ``update_preimage``   ``UPDATE_BEFORE``
``+U``         ``update_postimage``  ``UPDATE_AFTER``
``-D``         ``delete``            ``DELETE``
=============  ====================  ================

The names are those of Delta's ``readChangeFeed``, and of ``changes()`` and the SQL clause
``CHANGES`` of Spark 4.2. Iceberg's are those of its ``changes`` table and of
``create_changelog_view``.

The order of a change feed's rows: each key's changes by commit, removals before additions.

A commit of a table with a unique key has at most one removal (``-U``, ``-D``) and one addition
(``+I``, ``+U``) of each key, and so the removal is first. Two removals or two additions of a key
are an error, since nothing orders them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import ArrayType, MapType, StructType

from cdc_formats.errors import ArgumentError, MissingFieldError, refuse
from cdc_formats.values.schema import backquoted
from normalize.arguments import names_of
from normalize.core.arrow import slices
from normalize.core.output import ROW_KIND
from normalize.dataframe import ChangeOrderError, positional, require_changelog, require_distinct
from normalize.tables.merge import ADDS
from normalize.worker import worker

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = (
    "_change_type",
    "_commit_version",
    "_commit_timestamp",
)
"""The columns of a change feed, as Delta names them."""
CHANGE_TYPES = {"+I": "insert", "-U": "update_preimage", "+U": "update_postimage", "-D": "delete"}
_ROW_KINDS = {
    **{change_type: kind for kind, change_type in CHANGE_TYPES.items()},
    "update_before": "-U",
    "update_after": "+U",
}
CHANGE_ORDINAL = "_change_ordinal"
"""The column that orders the commits of Iceberg's feed."""


def to_change_feed(df: DataFrame) -> DataFrame:
    """Return a changelog with ``_change_type`` in place of ``row_kind``, as Delta's change feed.

    Parameters
    ----------
    df : DataFrame
        A changelog with ``row_kind``, streaming or not. A row whose ``row_kind`` is NULL fails the
        query. A changelog has no commits: rename the columns that a reader of the feed is to find
        as ``_commit_version`` and ``_commit_timestamp``.

    Returns
    -------
    DataFrame
        The other columns, then ``_change_type``, then ``_commit_version`` and
        ``_commit_timestamp``, if there are any.

    Raises
    ------
    ArgumentError
        When `df` has no ``row_kind``, or already has a ``_change_type``.

    Examples
    --------
    ::

        stamped = changes.withColumnsRenamed({"offset": "_commit_version", "timestamp": "_commit_timestamp"})
        to_change_feed(stamped).writeStream.toTable("orders_changes")
    """
    require_changelog(df)
    if CHANGE_TYPE in df.columns:
        raise ArgumentError(f"the DataFrame already has a column {CHANGE_TYPE}: drop or rename it")
    commit = [name for name in (COMMIT_VERSION, COMMIT_TIMESTAMP) if name in df.columns]
    columns = [name for name in df.columns if name not in (ROW_KIND, *commit)]
    change_type = _translated(ROW_KIND, CHANGE_TYPES).alias(CHANGE_TYPE)
    return df.select(*map(backquoted, columns), change_type, *commit)


def from_change_feed(
    df: DataFrame, *, primary_key: str | Sequence[str] = (), order_by: str | Sequence[str] = ()
) -> DataFrame:
    """Return a change feed as a changelog: ``row_kind``, then the other columns.

    Parameters
    ----------
    df : DataFrame
        A change feed with ``_change_type``, streaming or not: Delta's ``readChangeFeed``,
        ``changes()`` of Spark 4.2, Iceberg's ``changes`` table or changelog view, or one of
        `to_change_feed`.
    primary_key : str or sequence of str
        The columns that identify a row. With them, the rows of each key are in the order of the
        commits, the old row of an update before the new one: by a shuffle, and a sort in each task,
        which holds its rows in memory. Without them, the rows have no order, which sums do not
        need; `apply_changes` then requires ``order_by="_commit_version"``.
    order_by : str or sequence of str
        Columns that increase with each commit, if `primary_key` is passed. By default
        ``_commit_version``, or Iceberg's ``_change_ordinal``. If a commit has several changes of a
        key, add a column that orders them.

    Returns
    -------
    DataFrame
        Streaming if `df` is. The columns of the commit are columns like others: pass them to
        ``ChangelogNormalize(metadata=...)``, and leave them out with ``column_list`` of
        `apply_changes`.

    Raises
    ------
    ArgumentError, SchemaError
        When `df` has no ``_change_type``, or already has a ``row_kind``; when a column of
        `primary_key` or `order_by` is missing or nested.
    ChangeOrderError, MissingFieldError
        While the query runs, with `primary_key`: when the order of two changes of a key is unknown,
        or a key is NULL.

    Notes
    -----
    Delta's feed has both rows of an update: to aggregate it, pass ``changelog_mode="all"``. A feed
    whose updates are a ``delete`` and an ``insert`` (Iceberg's without ``identifier_columns``, and
    that of Spark 4.2 without ``computeUpdates``) becomes ``-D`` and ``+I``.

    Within a commit, nothing tells the order of different keys, or which row became which when an
    update changes the key: it is a ``-U`` of the old key and a ``+U`` of the new one.

    Source: `Delta, Change data feed <https://docs.delta.io/latest/delta-change-data-feed.html>`_;
    Spark's ``org.apache.spark.sql.connector.catalog.Changelog``; `Iceberg, Spark procedures
    <https://iceberg.apache.org/docs/latest/spark-procedures/#change-data-capture>`_.

    Examples
    --------
    ::

        feed = spark.readStream.option("readChangeFeed", "true").table("orders")
        changes = from_change_feed(feed, primary_key="id")
    """
    refuse(
        (
            CHANGE_TYPE not in df.columns,
            f"the DataFrame has no column {CHANGE_TYPE}, as a change feed has: read Delta with "
            "readChangeFeed=true",
        ),
        (
            ROW_KIND in df.columns,
            f"the DataFrame already has a column {ROW_KIND}: drop or rename it",
        ),
    )
    columns = [name for name in df.columns if name != CHANGE_TYPE]
    row_kind = _translated(CHANGE_TYPE, _ROW_KINDS, lower=True).alias(ROW_KIND)
    keys, order = names_of(primary_key), names_of(order_by)
    if not keys:
        if order:
            raise ArgumentError(
                "order_by requires primary_key, the columns that identify a row: pass it too, or "
                "remove order_by"
            )
        return df.select(row_kind, *map(backquoted, columns))
    order = order or tuple(each for each in (COMMIT_VERSION, CHANGE_ORDINAL) if each in columns)[:1]
    if not order:
        raise ArgumentError(
            f"the DataFrame has neither {COMMIT_VERSION} nor {CHANGE_ORDINAL}, which order a change "
            "feed: pass order_by=[...], columns that increase with each commit"
        )
    _check_columns(df, keys, order)
    changes = df.select(row_kind, *positional(columns))
    by_key = changes.repartition(*(f"c{columns.index(name)}" for name in keys))
    in_order = partial(order_pass, keys=keys, order_by=order, names=columns)
    named = [F.col(f"c{index}").alias(name) for index, name in enumerate(columns)]
    return by_key.mapInArrow(in_order, changes.schema).select(ROW_KIND, *named)


def _check_columns(df: DataFrame, keys: Sequence[str], order: Sequence[str]) -> None:
    require_distinct(df, df.columns)
    types = {field.name: field.dataType for field in df.schema.fields}
    nested = (ArrayType, MapType, StructType)
    for argument, names in {"primary_key": keys, "order_by": order}.items():
        for name in names:
            kind = types.get(name)
            refuse(
                (
                    kind is None,
                    f"{argument} has {name!r}, and the DataFrame has no such column; it has "
                    f"{', '.join(types)}",
                ),
                (
                    isinstance(kind, nested),
                    f"{argument} has {name!r}, which is {kind and kind.simpleString()}: pass "
                    "columns that are not nested, such as its fields",
                ),
            )


def _translated(name: str, words: Mapping[str, str], *, lower: bool = False) -> SparkColumn:
    column = F.lower(F.col(name)) if lower else F.col(name)
    unknown = F.concat(
        F.lit(f"[ARGUMENT] {name} is "),
        F.coalesce(F.col(name), F.lit("NULL")),
        F.lit(f", not one of {', '.join(words)}"),
    )
    translated = F.raise_error(unknown).cast("string")
    for word, other in words.items():
        translated = F.when(column == word, other).otherwise(translated)
    return translated


_ADDED = "added"


def order_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    keys: Sequence[str],
    order_by: Sequence[str],
    names: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Order the rows of a task, which has all rows of its keys; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        ``row_kind`` and the columns, named by position: ``c0`` and so on.
    keys, order_by : sequence of str
        Of `names`.
    names : sequence of str
        The columns' own names.
    """
    with worker():
        rows = list(batches)
        if rows:
            changes = pa.Table.from_batches(rows).rename_columns([ROW_KIND, *names])
            ordered = in_order(changes, keys, order_by)
            for batch in ordered.rename_columns(rows[0].schema.names).to_batches():
                yield from slices(batch)


def in_order(changes: pa.Table, keys: Sequence[str], order_by: Sequence[str]) -> pa.Table:
    """Return changes by `order_by`, then by key, the removal of a row before its addition.

    Parameters
    ----------
    changes : pyarrow.Table
        With ``row_kind``.
    keys, order_by : sequence of str

    Raises
    ------
    MissingFieldError
        When a key is NULL.
    ChangeOrderError
        When a column of `order_by` is NULL, or two changes of a key have the same place.

    Examples
    --------
    >>> feed = pa.table({"row_kind": ["+U", "-U", "+I"], "id": [1, 1, 1], "version": [2, 2, 1]})
    >>> in_order(feed, ["id"], ["version"])["row_kind"].to_pylist()
    ['+I', '-U', '+U']
    """
    for name in keys:
        if changes[name].null_count:
            raise MissingFieldError(f"`{name}` is part of the primary key and is null", field="row")
    for name in order_by:
        if changes[name].null_count:
            raise ChangeOrderError(
                f"{name}, which orders the changes, is NULL in a row: pass columns without NULL as "
                "order_by"
            )
    added = pc.is_in(changes[ROW_KIND], pa.array(ADDS))
    places = changes.select([*order_by, *keys]).rename_columns(
        [str(place) for place in range(len(order_by) + len(keys))]
    )
    places = places.append_column(_ADDED, added)
    groups = places.group_by(places.column_names, use_threads=False).aggregate([([], "count_all")])
    if (pc.max(groups["count_all"]).as_py() or 0) > 1:
        raise ChangeOrderError(
            f"two changes of one key {list(keys)} are both additions or both removals, and have "
            f"the same values in {list(order_by)}, which order the changes: pass the columns that "
            "identify a row as primary_key, and columns that differ as order_by"
        )
    return changes.take(
        pc.sort_indices(places, sort_keys=[(name, "ascending") for name in places.column_names])
    )
