"""Aggregates over a changelog: a retracted row is subtracted from its group, and an empty group is deleted.

Spark's own ``GROUP BY`` counts every row of a changelog, also the ``-U`` and ``-D``. `aggregate_changes` rewrites a query (`retraction`) so
that these are subtracted. Spark runs the result as an ordinary aggregation, with its own state and state stores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize.analyzed_plan import changelog_mode as mode_of, has_native_engine, with_changelog_mode
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_changelog

from .signed import sign

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def aggregate_changes(changes: DataFrame, query: str, *, changelog_mode: Literal["all"] | None = None) -> DataFrame:
    """Return the result of a ``SELECT ... GROUP BY`` over the table's current rows, as a changelog.

    Parameters
    ----------
    changes : DataFrame
        A changelog with ``-U``, a stream or not.
    query : str
        Spark SQL over one table, ``SELECT name, SUM(weight) AS weight FROM products GROUP BY name``; any table name refers to `changes`.
        Supported are ``SUM``, ``COUNT`` and ``AVG``, also in expressions and with ``FILTER (WHERE ...)``; ``WHERE`` and ``HAVING``.
    changelog_mode : {"all"} or None
        By default, Spark's plan shows whether `changes` has ``-U``: it does for `from_kafka_changelog` and `ChangelogNormalize`, also after
        filters, joins and selects, and in your own ``foreachBatch``. For another changelog that has ``-U`` (a Delta table, a checkpoint),
        pass ``"all"``; with Spark Connect also behind views and SQL, in ``foreachBatch``, and for a computed ``row_kind``.

    Returns
    -------
    DataFrame
        ``row_kind`` and the query's columns, with Spark's names and types. Write a stream in output mode ``update``. It has one row for
        each group that a micro-batch touched: ``+U`` with the new result, or ``-D`` when the group is empty or no longer meets ``HAVING``.
        Without ``GROUP BY`` there is one group, which is never deleted. A bounded changelog gives ``+U`` for each group.
        ``to_kafka_changelog(..., format="upsert-kafka")`` writes the newest results and tombstones; ``apply_changes`` writes a table.

    Raises
    ------
    ArgumentError
        When the query has another form or an aggregate that cannot be retracted (``MAX``), when the changelog has no ``-U``, or when
        its plan does not show it.
    MissingDependencyError
        When ``sqlglot``, which parses the query, is not installed.

    Notes
    -----
    Like Flink's ``GroupAggFunction`` with retraction, except that Flink emits a group's first result as ``+I``. As in Flink, sums of FLOAT
    and DOUBLE may differ from the table's in their last digits, and NaN and infinities cannot be retracted. A stream's state keeps all
    groups, since Spark's aggregation never removes one.
    """
    from pyspark.sql import functions as F

    try:
        from .retraction import retracting_query
    except ImportError as error:
        raise MissingDependencyError(
            "sqlglot, which parses the query, is not installed: pip install 'pyspark-kafka-changelog[sql]'"
        ) from error
    require_changelog(changes)
    if has_native_engine(changes):
        raise ArgumentError(
            "Spark supports no aggregation behind engine='native' in one query: write the changelog to a table or topic, and aggregate it "
            "in a second query"
        )
    _require_update_before(changes, changelog_mode)
    plan = retracting_query(query, changes.columns)
    taken = changes.where(plan.where) if plan.where else changes
    keys = [F.expr(text).alias(name) for name, text in plan.keys.items()]
    groups = taken.withColumn(plan.sign, sign()).groupBy(*keys).agg(*(F.expr(text).alias(name) for name, text in plan.sums.items()))
    # Signed values may have wider types than the table's: Spark resolves the original query for its types.
    on_a_table = changes.groupBy(*map(F.expr, plan.table_keys)).agg(*map(F.expr, plan.table_outputs))
    fields = on_a_table.schema.fields[len(plan.keys) :]
    columns = [
        (F.col(text) if text in plan.keys else F.expr(text).cast(like.dataType)).alias(like.name)
        for text, like in zip(plan.outputs, fields, strict=True)
    ]
    answer = groups.select(F.expr(f"CASE WHEN {plan.there} THEN '+U' ELSE '-D' END").alias(ROW_KIND), *columns)
    return with_changelog_mode(answer, "upsert") if changes.isStreaming else answer.where(F.col(ROW_KIND) == "+U")


def _require_update_before(changes: DataFrame, stated: str | None) -> None:
    """Raise an error unless the changelog has ``-U``: without it, the sums would be wrong."""
    if stated not in (None, "all"):
        raise ArgumentError(f"changelog_mode is {stated!r}: use 'all', for a changelog with -U")
    found = mode_of(changes)
    if found == "upsert":
        raise ArgumentError(
            "the changelog has no -U, which retracts the old row of an update: read it with changelog_mode='all', or apply "
            "ChangelogNormalize(primary_key=[...])"
        )
    if found is None and stated is None:
        raise ArgumentError(
            "the plan of the DataFrame does not show whether the changelog has -U, which retracts the old row of an update: if it has, "
            "pass changelog_mode='all'; if not, apply ChangelogNormalize(primary_key=[...])"
        )
