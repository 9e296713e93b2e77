"""Facts about a changelog DataFrame that its analyzed plan shows.

A mark in the schema is lost when a ``select`` computes ``row_kind`` again, and stays when rows are
removed or repeated. The plan below such an operation does not change. The mark is therefore an
alias of the DataFrame, ``changelog_all`` or ``changelog_upsert``: a node of the plan, and the
qualifier of its columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from cdc_formats.errors import ArgumentError

from .core.output import ROW_KIND
from .spark.connect import analyze, is_connect
from .spark.plans import Node, plan_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame

_ALIAS = "changelog_"
ROW_KIND_WITH_UPDATE_BEFORE = f"{_ALIAS}all.{ROW_KIND}"
"""The name of ``row_kind`` that Spark finds only in a changelog with ``-U``."""
NATIVE = "native_changelog"
"""The alias of the changelog of `normalize.engines.native`."""
_LAST_CHANGES = "changelog_of_kafka_by_key"
"""The alias of a changelog of Kafka whose stage has no options: a table needs only the last change
of each of its keys."""
_MODES: tuple[Literal["all", "upsert"], ...] = ("all", "upsert")

ONE_TO_ONE = frozenset(
    {"CollectMetrics", "EventTimeWatermark", "Filter", "Project", "SubqueryAlias", "View"}
)
"""Nodes whose rows are rows of their input, at most once, in its order."""
ROW_BY_ROW = ONE_TO_ONE | {
    "DeserializeToObject",
    "Generate",
    "MapElements",
    "MapInArrow",
    "MapInPandas",
    "MapPartitions",
    "SerializeFromObject",
    "TypedFilter",
    "Union",
}
"""Nodes that keep the order of a partition's rows."""
_KEEP_MODE = ROW_BY_ROW | {
    "CTERelationDef",
    "Join",
    "RebalancePartitions",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "Sort",
    "Window",
    "WithCTE",
}


def with_changelog_mode(df: DataFrame, mode: Literal["all", "upsert"]) -> DataFrame:
    """Return a changelog whose plan shows whether it has ``-U`` (``all``) or not (``upsert``)."""
    return df.alias(f"{_ALIAS}{mode}")


def with_default_stage(df: DataFrame) -> DataFrame:
    """Return a changelog whose plan shows that it comes from Kafka.

    It comes through a stage without options.
    """
    return df.alias(_LAST_CHANGES)


def has_default_stage(df: DataFrame) -> bool:
    """Return whether a DataFrame is such a changelog, which nothing changed since."""
    if is_connect(df):
        return False
    node = plan_of(df)
    while node.name == "SubqueryAlias" and node.java.alias() != _LAST_CHANGES:
        node = node.children[0]
    return node.name == "SubqueryAlias"


def changelog_mode(df: DataFrame) -> Literal["all", "upsert"] | None:
    """Return ``all`` for a changelog with ``-U``, ``upsert`` for one without, None if unknown.

    It is unknown if the plan does not show it, or is on a server.
    """
    return None if is_connect(df) else _mode(plan_of(df))


def _mode(node: Node) -> Literal["all", "upsert"] | None:
    for mode in _MODES:
        if node.name == "SubqueryAlias" and node.java.alias() == f"{_ALIAS}{mode}":
            return mode
    modes = (
        [_mode(child) for child in node.children]
        if node.name in {*_KEEP_MODE, "LogicalRDD"}
        else []
    )
    if "upsert" in modes:
        return "upsert"
    # A join's other input may be any table. All inputs of a union are changelogs.
    return "all" if "all" in modes and not (node.name == "Union" and None in modes) else None


def has_native_engine(df: DataFrame) -> bool:
    """Return whether a stream contains a changelog of `normalize.engines.native`.

    Such a changelog is written in output mode ``update``.
    """
    return not is_connect(df) and df.isStreaming and _has_native_engine(plan_of(df))


def _has_native_engine(node: Node) -> bool:
    return is_native(node) or any(map(_has_native_engine, node.children))


def is_native(node: Node) -> bool:
    """Return whether a node is the changelog of `normalize.engines.native`."""
    return node.name == "SubqueryAlias" and bool(node.java.alias() == NATIVE)


def require_of_row(rows: DataFrame, condition: SparkColumn, option: str = "where") -> None:
    """Raise an error if a condition does not depend on the row alone.

    Raises
    ------
    ArgumentError
        When it is not deterministic: the same row would match in one micro-batch and not in
        another.
    AnalysisException
        When Spark cannot evaluate it for a row: an unknown column, an aggregate, a window.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    try:
        # Spark allows other expressions in `select`, and refuses them in an aggregate's argument.
        analyze(rows.agg(F.max(condition)))
    except AnalysisException as error:
        if "NONDETERMINISTIC" not in str(error).partition("]")[0]:
            raise
        raise ArgumentError(
            f"{option} is not deterministic, and so the same row could give another result: use "
            "the columns alone, without functions such as rand() or uuid()"
        ) from None
