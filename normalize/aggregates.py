"""Aggregates over a changelog: a retracted row is taken out of the sums that it was put into, and an empty group is gone.

Spark's own ``GROUP BY`` counts every row of a changelog, also the ``-U`` and ``-D``. `aggregate_changes` rewrites a query (`retraction`) so
that these count the other way. What it gives to Spark is an ordinary aggregation, with its state and its state stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError, MissingDependencyError

from .typed import ROW_KIND, has_update_before, require_changelog, with_one_row_for_each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIGN = (
    f"CASE {ROW_KIND} WHEN '+I' THEN 1 WHEN '+U' THEN 1 WHEN '-U' THEN -1 WHEN '-D' THEN -1 ELSE raise_error("
    f"'a row has no {ROW_KIND}: it is a corrupt record or a control event; leave such rows out: WHERE {ROW_KIND} IS NOT NULL') END"
)


def aggregate_changes(changes: DataFrame, query: str) -> DataFrame:
    """Run a ``SELECT ... GROUP BY`` over a changelog, so that its answer follows the table's rows.

    Parameters
    ----------
    changes : DataFrame
        A changelog with ``-U`` (``changelog_mode="all"``), a stream or not.
    query : str
        ``SELECT name, SUM(weight) AS weight FROM products GROUP BY name``: Spark's SQL over one table, whatever its name: `changes` is that
        table. ``SUM``, ``COUNT`` and ``AVG``, also in expressions and with ``FILTER (WHERE ...)``; ``WHERE`` and ``HAVING``.

    Returns
    -------
    DataFrame
        ``row_kind`` and the query's columns, with the names and types that Spark gives them. Of a stream, which is to be written in
        output mode ``update``, one row of each group that a micro-batch touched: ``+U`` with its new answer, or ``-D`` when its last
        row is gone or ``HAVING`` holds no more. Without ``GROUP BY`` there is one group, which is never gone. Of a bounded changelog,
        ``+U`` of each group. ``to_kafka_changelog(..., format="upsert-kafka")`` writes it as newest answers and tombstones,
        ``apply_changes`` to a table.

    Raises
    ------
    ArgumentError
        When the query is of another form, or has an aggregate that cannot be taken back (``MAX``), or the changelog has no ``-U``.
    MissingDependencyError
        When ``sqlglot``, which reads the query, is not installed.

    Notes
    -----
    As Flink's ``GroupAggFunction`` with retraction, but that a group's first answer is ``+I`` there. As there, sums of FLOAT and DOUBLE may
    differ in their last digits from those of the table; NaN and infinities cannot be taken back. A stream's state has every group that ever
    was, since Spark's aggregation does not forget one.
    """
    from pyspark.sql import functions as F

    try:
        from .retraction import retracting
    except ImportError as error:
        raise MissingDependencyError("the query is read by sqlglot: pip install 'pyspark-kafka-changelog[sql]'") from error
    require_changelog(changes)
    if not has_update_before(changes):
        raise ArgumentError("the changelog has no -U, which says what an update takes out of a sum: read it with changelog_mode='all'")
    plan = retracting(query, changes.columns)
    taken = changes.where(plan.where) if plan.where else changes
    keys = [F.expr(text).alias(name) for name, text in plan.keys.items()]
    groups = taken.withColumn(plan.sign, F.expr(_SIGN)).groupBy(*keys).agg(*(F.expr(text).alias(name) for name, text in plan.sums.items()))
    # Signed values are sometimes of wider types than the table's, and so Spark is asked for the query's own.
    on_a_table = changes.groupBy(*map(F.expr, plan.table_keys)).agg(*map(F.expr, plan.table_outputs))
    fields = on_a_table.schema.fields[len(plan.keys) :]
    columns = [F.expr(text).cast(like.dataType).alias(like.name) for text, like in zip(plan.outputs, fields, strict=True)]
    answer = groups.select(F.expr(f"CASE WHEN {plan.there} THEN '+U' ELSE '-D' END").alias(ROW_KIND), *columns)
    shown = [like.name for text, like in zip(plan.outputs, fields, strict=True) if text in plan.keys]
    keyed = with_one_row_for_each(answer, shown) if len(shown) == len(plan.keys) else answer
    return keyed if changes.isStreaming else keyed.where(F.col(ROW_KIND) == "+U")
