"""Aggregates over a changelog by group: a retraction is subtracted, and an empty group is deleted.

Spark's own ``GROUP BY`` counts every row of a changelog, also the ``-U`` and ``-D``. Spark runs
`aggregate_changes` as an ordinary aggregation of signed columns (`signed`), with its own state and
state stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pyspark.sql import Column as SparkColumn, DataFrame, functions as F

from cdc_formats.errors import ArgumentError
from normalize.core.output import ROW_KIND

from .dataframe import (
    ROW_KIND_WITH_UPDATE_BEFORE,
    changelog_mode as mode_of,
    has_native_engine,
    require_changelog,
    unused,
    with_changelog_mode,
)

# --------------------------------------------------------------------------------------------------
# Changelog aggregates: Spark columns for `aggregate_changes` and ``df.groupBy(...).agg(...)``.


def sign(row_kind: str = ROW_KIND) -> SparkColumn:
    """Return a column that is 1 for ``+I`` and ``+U``, and -1 for ``-U`` and ``-D``.

    It fails the query for a row without a row kind.
    """
    kind = F.col(row_kind)
    text = (
        f"a row has no {ROW_KIND} (a corrupt record or a control event): filter such rows out, "
        f"WHERE {ROW_KIND} IS NOT NULL"
    )
    return (
        F.when(kind.isin("+I", "+U"), 1)
        .when(kind.isin("-U", "-D"), -1)
        .otherwise(F.raise_error(F.lit(text)))
    )


def signed_sum(
    column: str | SparkColumn, *, row_kind: str = ROW_KIND_WITH_UPDATE_BEFORE
) -> SparkColumn:
    """Return ``SUM`` of a column over the table's current rows: ``-U`` and ``-D`` are subtracted.

    Like SQL's ``SUM``, it ignores NULL, and is NULL for a group without other values.

    Parameters
    ----------
    column : str or Column
        For ``SUM(x) FILTER (WHERE condition)``, pass ``F.when(condition, F.col("x"))``.
    row_kind : str
        The column with the row kinds. The default finds it only in a changelog that has ``-U``: the
        result of `from_kafka_changelog` or `ChangelogNormalize` with ``changelog_mode="all"``, also
        after operations that keep the column. Spark then raises ``UNRESOLVED_COLUMN`` for a
        changelog with ``changelog_mode="upsert"``, whose sums would be wrong. For another DataFrame
        that has ``-U`` (a Delta table, an aliased or converted changelog), pass
        ``row_kind="row_kind"``. Spark decides about a union by its first DataFrame alone. In
        `aggregate_changes`, the default finds it in every changelog.

    Returns
    -------
    Column
        With the type of Spark's ``SUM``.

    Notes
    -----
    With ``groupBy``, a group stays after its last row is deleted: its ``signed_count("*")`` is 0.
    `aggregate_changes` returns a changelog, in which it is deleted.
    """
    return _sum(column, row_kind).alias(_name("signed_sum", column))


def signed_count(
    column: str | SparkColumn, *, row_kind: str = ROW_KIND_WITH_UPDATE_BEFORE
) -> SparkColumn:
    """Return ``COUNT`` of a column over current rows: the values not NULL, or all rows for ``"*"``.

    Parameters
    ----------
    column : str or Column
        For ``COUNT(*) FILTER (WHERE condition)``, pass ``F.when(condition, 1)``.
    row_kind : str
        As in `signed_sum`.

    Returns
    -------
    Column
        BIGINT, 0 for a group without rows.
    """
    return _count(column, row_kind).alias(_name("signed_count", column))


def signed_avg(
    column: str | SparkColumn, *, row_kind: str = ROW_KIND_WITH_UPDATE_BEFORE
) -> SparkColumn:
    """Return ``AVG`` of a column over the table's current rows; NULL for a group without values.

    Parameters
    ----------
    column : str or Column
    row_kind : str
        As in `signed_sum`.

    Returns
    -------
    Column
        DOUBLE, or for a DECIMAL column a DECIMAL with more digits than Spark's ``AVG``: cast it to
        the type you need.
    """
    return (_sum(column, row_kind) / _count(column, row_kind)).alias(_name("signed_avg", column))


def _sum(column: str | SparkColumn, row_kind: str) -> SparkColumn:
    value = _column(column)
    # Not the sign times the value: a product would have a wider DECIMAL type.
    signed = F.when(sign(row_kind) > 0, value).otherwise(-value)
    return F.when(_count(column, row_kind) > 0, F.sum(signed))


def _count(column: str | SparkColumn, row_kind: str) -> SparkColumn:
    counted = (
        F.lit(1)
        if isinstance(column, str) and column == "*"
        else F.when(_column(column).isNull(), 0).otherwise(1)
    )
    return F.coalesce(F.sum(sign(row_kind) * counted), F.lit(0))


def _name(function: str, column: str | SparkColumn) -> str:
    """Return the name of a result's column, like Spark's ``sum(x)``."""
    return f"{function}({column})" if isinstance(column, str) else function


def _column(column: str | SparkColumn) -> SparkColumn:
    return F.col(column) if isinstance(column, str) else column


def aggregate_changes(
    changes: DataFrame,
    by: str | SparkColumn | Sequence[str | SparkColumn],
    *aggregates: SparkColumn,
    changelog_mode: Literal["all"] | None = None,
) -> DataFrame:
    """Return aggregates of the table's current rows by group, as a changelog.

    ``aggregate_changes(changes, "name", signed_sum("weight").alias("w"))`` is
    ``SELECT name, SUM(weight) AS w FROM changes GROUP BY name``.

    Parameters
    ----------
    changes : DataFrame
        A changelog with ``-U``, a stream or not.
    by : str, Column or sequence of them
        The columns of ``df.groupBy``. Without any, all rows are one group, which is never deleted.
    *aggregates : Column
        `signed_sum`, `signed_count`, `signed_avg`, and expressions over them. Spark's own
        aggregates also count the ``-U`` and ``-D``.
    changelog_mode : {"all"} or None
        By default, Spark's plan shows whether `changes` has ``-U``: it does for
        `from_kafka_changelog` and `ChangelogNormalize`, also after filters, joins and selects, and
        in your own ``foreachBatch``. For another changelog that has ``-U`` (a Delta table, a
        checkpoint), pass ``"all"``; with Spark Connect for every changelog, since its client has no
        plan.

    Returns
    -------
    DataFrame
        ``row_kind``, the groups' columns and the aggregates. Write a stream in output mode
        ``update``. It has one row for each group that a micro-batch touched: ``+U`` with the new
        result, or ``-D`` when the group is empty. A bounded changelog gives ``+U`` for each group.
        ``to_kafka_changelog(..., format="upsert-kafka")`` writes the newest results and tombstones;
        ``apply_changes`` writes a table.

    Raises
    ------
    ArgumentError
        When the changelog has no ``-U``, or when its plan does not show it.

    Notes
    -----
    Like Flink's ``GroupAggFunction`` with retraction, except that Flink emits a group's first
    result as ``+I``. As in Flink, sums of FLOAT and DOUBLE may differ from the table's in their
    last digits, and NaN and infinities cannot be retracted. A stream's state keeps all groups,
    since Spark's aggregation never removes one.
    """
    require_changelog(changes)
    if has_native_engine(changes):
        raise ArgumentError(
            "Spark supports no aggregation behind engine='native' in one query: write the "
            "changelog to a table or topic, and aggregate it in a second query"
        )
    _require_update_before(changes, changelog_mode)
    keys = list(by) if isinstance(by, Sequence) and not isinstance(by, str) else [by]
    rows = unused("_rows", changes.columns)
    groups = (
        with_changelog_mode(changes, "all")
        .groupBy(*keys)
        .agg(signed_count("*").alias(rows), *aggregates)
    )
    kind = F.when(F.col(rows) > 0, "+U").otherwise("-D") if keys else F.lit("+U")
    answer = groups.select(kind.alias(ROW_KIND), "*").drop(rows)
    return (
        with_changelog_mode(answer, "upsert")
        if changes.isStreaming
        else answer.where(F.col(ROW_KIND) == "+U")
    )


def _require_update_before(changes: DataFrame, stated: str | None) -> None:
    """Raise an error unless the changelog has ``-U``: without it, the sums would be wrong."""
    if stated not in (None, "all"):
        raise ArgumentError(f"changelog_mode is {stated!r}: use 'all', for a changelog with -U")
    mode = mode_of(changes)
    if mode == "upsert":
        raise ArgumentError(
            "the changelog has no -U, which retracts the old row of an update: read it with "
            "changelog_mode='all', or apply ChangelogNormalize(primary_key=[...])"
        )
    if mode is None and stated is None:
        raise ArgumentError(
            "the plan of the DataFrame does not show whether the changelog has -U, which retracts "
            "the old row of an update: if it has, pass changelog_mode='all'; if not, apply "
            "ChangelogNormalize(primary_key=[...])"
        )
