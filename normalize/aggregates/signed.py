"""Changelog aggregates: Spark columns for `aggregate_changes` and ``df.groupBy(...).agg(...)``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from normalize.analyzed_plan import ROW_KIND_WITH_UPDATE_BEFORE
from normalize.core.output import ROW_KIND

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn


def sign(row_kind: str = ROW_KIND) -> SparkColumn:
    """Return a column that is 1 for ``+I`` and ``+U``, and -1 for ``-U`` and ``-D``.

    It fails the query for a row without a row kind.
    """
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    value = _column(column)
    # Not the sign times the value: a product would have a wider DECIMAL type.
    signed = F.when(sign(row_kind) > 0, value).otherwise(-value)
    return F.when(_count(column, row_kind) > 0, F.sum(signed))


def _count(column: str | SparkColumn, row_kind: str) -> SparkColumn:
    from pyspark.sql import functions as F

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
    from pyspark.sql import functions as F

    return F.col(column) if isinstance(column, str) else column
