"""Check whether the plan of a DataFrame keeps the order of each key's rows.

Rows of one key come in order from Kafka (a key is in one Kafka partition, which is one partition of Spark) and from ChangelogNormalize.
Spark's narrow operations keep the order of a partition. A shuffle does not: after a join, a ``groupBy`` or a ``repartition`` a delete may
precede the insert of its row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ChangelogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangeOrderError(ChangelogError, ValueError):
    """The order of a key's changes is unknown, and so is the last of them."""

    condition = "CHANGE_ORDER"


# Nodes of Spark's logical plan that keep the order, and nodes that define it: a sort, sources, and the keyed stage.
_KEEP = {
    "CollectMetrics",
    "DeserializeToObject",
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "MapElements",
    "MapInArrow",
    "MapInPandas",
    "MapPartitions",
    "Project",
    "SerializeFromObject",
    "SubqueryAlias",
    "TypedFilter",
    "Union",
    "View",
}
_BEGIN = {"FlatMapGroupsInPandasWithState", "LocalRelation", "LogicalRDD", "OneRowRelation", "Sort"}


def require_arrival_order(df: DataFrame) -> None:
    """Raise an error for a DataFrame whose plan may reorder rows.

    Raises
    ------
    ChangeOrderError
    """
    unordered = _unordered(df._jdf.queryExecution().analyzed())
    if unordered:
        raise ChangeOrderError(
            f"the plan contains {unordered}, which does not keep the order of a key's rows: pass order_by=['offset'], or another column "
            "that increases with each change of a key (metadata=['offset'] adds Kafka's)"
        )


def _unordered(plan: Any) -> str | None:
    """Return the name of the first node that does not keep the order, or None."""
    name = plan.getClass().getSimpleName()
    if name in _BEGIN or _is_kafka(plan, name):
        return None
    if name not in _KEEP:
        return str(name)
    children = plan.children()
    return next(filter(None, (_unordered(children.apply(index)) for index in range(children.length()))), None)


def _is_kafka(plan: Any, name: str) -> bool:
    if name == "StreamingRelationV2":
        return bool(plan.sourceName() == "kafka")
    return name == "LogicalRelation" and plan.relation().getClass().getSimpleName() == "KafkaRelation"
