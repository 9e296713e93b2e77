"""Aggregates over a changelog by group: a retraction is subtracted, and an empty group is deleted.

Spark's own ``GROUP BY`` counts every row of a changelog, also the ``-U`` and ``-D``. Spark runs
`aggregate_changes` as an ordinary aggregation of signed columns (`signed`), with its own state and
state stores.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from cdc_formats.errors import ArgumentError
from normalize.analyzed_plan import (
    changelog_mode as mode_of,
    has_native_engine,
    with_changelog_mode,
)
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_changelog, unused

from .signed import signed_count

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame


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
    from pyspark.sql import functions as F

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
