"""Whether the rows of a DataFrame come in an order: what stands between its source and its end must keep each key's rows as they are.

Rows of one key come in order from Kafka (a key is in one Kafka partition, and that is one partition of Spark) and from
ChangelogNormalize, and Spark's narrow operations keep the order of a partition. A shuffle does not: after a join, a ``groupBy`` or a
``repartition`` a delete may stand before the insert that it deletes. A DataFrame cannot be asked for this, but its plan can.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ChangelogError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangeOrderError(ChangelogError, ValueError):
    """The order of a key's changes is not known, so that the last of them is not either."""

    condition = "CHANGE_ORDER"


# The names of Spark's logical plan. A sort is its author's word for the order; the stage's rows come as it gives them.
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
    """Refuse a DataFrame whose rows may come in another order than they were made.

    Raises
    ------
    ChangeOrderError
    """
    unordered = _unordered(df._jdf.queryExecution().analyzed())
    if unordered:
        raise ChangeOrderError(
            f"the rows come through {unordered}, after which those of one key may stand in any order: apply_changes has to be told it, "
            "as order_by=['offset'], or whatever column grows with each key's changes (metadata=['offset'] adds Kafka's)"
        )


def _unordered(plan: Any) -> str | None:
    """Return the name of the first node that keeps no order, None where all do."""
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
