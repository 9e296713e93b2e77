"""The check whether a DataFrame's plan keeps the order of a key's rows, or has one row per key.

Rows of one key come in order from Kafka (a key is in one Kafka partition, which is one partition of
Spark) and from ChangelogNormalize. Spark's narrow operations keep the order of a partition. A
shuffle does not: after a join, a ``groupBy`` or a ``repartition`` a delete may precede the insert
of its row. The result of a ``groupBy`` has one row for each group, and so needs no order if the
group is the key.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ChangelogError
from normalize.analyzed_plan import ONE_TO_ONE, ROW_BY_ROW, is_native
from normalize.spark.connect import is_connect
from normalize.spark.plans import Node, class_of, elements, plan_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
    return node.name == "Aggregate" and _shows_groups(node, ids)


def _shows_groups(node: Node, ids: set[int]) -> bool:
    """Return whether all columns of a ``groupBy`` are among the columns with these ids."""
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
