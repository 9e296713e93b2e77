"""The plan of a Spark Connect DataFrame, as its client sends it to the server: not analyzed, with SQL texts that only the server parses.

Its nodes have the names of an analyzed plan (`analyzed_plan.Node`). Where the analysis may add an operation that the client cannot see, the
node has another name, so that a check that does not know the name refuses the plan:

==========================================================  =====================================
what the client sees                                        the node's name
==========================================================  =====================================
a window function, or ``OVER`` in a SQL text                ``Window``
a subquery, or a word in a SQL text that may begin one      ``Subquery``
a function that Spark does not have: it may be a query      ``UnresolvedFunction``
a function that makes several rows of one                   ``Generate``
``spark.sql``, a table, a view, a checkpoint                a description
==========================================================  =====================================
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from cdc_formats.values.schema import name_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FROM_SERVER = "a checkpoint or the DataFrame of a foreachBatch"
KAFKA = "Kafka"
_NAMES = {
    "aggregate": "Aggregate",
    "apply_in_pandas_with_state": "FlatMapGroupsInPandasWithState",
    "cached_local_relation": "LocalRelation",
    "cached_remote_relation": FROM_SERVER,
    "chunked_cached_local_relation": "LocalRelation",
    "collect_metrics": "CollectMetrics",
    "drop": "Project",
    "drop_na": "Filter",
    "fill_na": "Project",
    "filter": "Filter",
    "hint": "ResolvedHint",
    "join": "Join",
    "local_relation": "LocalRelation",
    "map_partitions": "MapInArrow",
    "project": "Project",
    "read": "a table, a view or files",
    "repartition": "Repartition",
    "repartition_by_expression": "RepartitionByExpression",
    "set_op": "SetOperation",
    "sort": "Sort",
    "sql": "a query of spark.sql",
    "subquery_alias": "SubqueryAlias",
    "to_df": "Project",
    "to_schema": "Project",
    "with_columns": "Project",
    "with_columns_renamed": "Project",
    "with_watermark": "EventTimeWatermark",
}
_GENERATORS = frozenset({"explode", "explode_outer", "inline", "inline_outer", "json_tuple", "posexplode", "posexplode_outer", "stack"})
_OPERATORS = frozenset({"and", "in", "not", "or", "when"})
_WORDS = """
all any array as between binary bigint boolean byte case cast char date dec decimal distinct double else float from if int integer interval
is like long map named_struct numeric short smallint some string struct then timestamp tinyint try_cast varchar
"""
_BEFORE_PARENTHESIS = _OPERATORS | set(_WORDS.split())
"""Words that precede a parenthesis in a SQL text, besides the functions of ``pyspark.sql.functions``."""
_OVER = re.compile(r"(?i)\bover\b")
_QUERY = re.compile(r"(?i)\b(?:select|table|values|with|reduce|exists)\b|\(\s*(?:from|map)\b|--|/\*")
_CALL = re.compile(r"([\w`.]+)\s*\(")


@dataclass(frozen=True)
class UnresolvedNode:
    """A node of a Spark Connect plan.

    Parameters
    ----------
    relation : pyspark.sql.connect.proto.Relation
    """

    relation: Any

    @property
    def kind(self) -> str:
        """The name of its message."""
        return str(self.relation.WhichOneof("rel_type"))

    @property
    def message(self) -> Any:
        """The message of its kind."""
        return getattr(self.relation, self.kind)

    @property
    def name(self) -> str:
        """The name of the analyzed plan's class, or what may hide other operations."""
        if self.kind == "read" and self.message.data_source.format.lower() == "kafka":
            return KAFKA
        if self.kind == "set_op" and self.message.is_all and self.message.set_op_type == self.message.SET_OP_TYPE_UNION:
            return "Union"
        name = _NAMES.get(self.kind, self.kind)
        return (_hidden_operation(self.message) if name in ("Project", "Filter", "CollectMetrics") else None) or name

    @property
    def children(self) -> list[UnresolvedNode]:
        """Its inputs."""
        return [UnresolvedNode(part) for part in _parts(self.message) if _type(part) == "Relation"]

    def contains(self, name: str) -> bool:
        """Return whether the node or one below it has a name."""
        return self.name == name or any(child.contains(name) for child in self.children)

    def groups_within(self, names: Collection[str], one_to_one: Collection[str]) -> bool:
        """Return whether the rows are groups of a ``groupBy`` all of whose columns are among the names.

        Parameters
        ----------
        names : collection of str
        one_to_one : collection of str
            The names of nodes that may be above the ``groupBy``.
        """
        node, found = self, {name.lower() for name in names}
        while node.name in one_to_one:
            if node.kind not in _SOURCES:
                return False
            found = _SOURCES[node.kind](node.message, found)
            node = node.children[0]
        if node.kind != "aggregate" or node.message.group_type != node.message.GROUP_TYPE_GROUPBY:
            return False
        groups = {_output(each) for each in node.message.grouping_expressions}
        # Without spark.sql.retainGroupColumns the rows have only these columns.
        others = {_output(each) for each in node.message.aggregate_expressions}
        return None not in groups and groups <= found and not others & found


def unresolved_plan(df: DataFrame) -> UnresolvedNode:
    """Return the plan of a Spark Connect DataFrame."""
    remote: Any = df  # PySpark's common class does not declare these
    return UnresolvedNode(remote._plan.plan(remote.sparkSession.client))


def _type(message: Any) -> str:
    return str(message.DESCRIPTOR.name)


def _parts(message: Any) -> Iterator[Any]:
    """Yield the messages that a message consists of."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if hasattr(value, "DESCRIPTOR"):
            yield value
        elif field.message_type.GetOptions().map_entry:
            yield from (part for part in value.values() if hasattr(part, "DESCRIPTOR"))
        else:
            yield from value


def _expressions(message: Any) -> Iterator[Any]:
    """Yield the expressions of a node at every depth, without those of its inputs."""
    for part in _parts(message):
        if _type(part) == "Relation":
            continue
        if _type(part) == "Expression":
            yield part
        yield from _expressions(part)


# ------------------------------------------------------------------------------------------------------------ hidden operations


def _hidden_operation(message: Any) -> str | None:
    """Return the name of an operation that the analysis makes of a node's expressions, or None."""
    found = set(filter(None, map(_of_expression, _expressions(message))))
    return next((name for name in ("UnresolvedFunction", "Subquery", "Window", "Generate") if name in found), None)


def _of_expression(expression: Any) -> str | None:
    kind = expression.WhichOneof("expr_type")
    if kind == "window":
        return "Window"
    if kind == "unresolved_function":
        return _of_function(expression.unresolved_function.function_name)
    if kind == "expression_string":
        return _of_text(expression.expression_string.expression)
    return _EXPRESSIONS.get(kind, "UnresolvedFunction")


_EXPRESSIONS = {"subquery_expression": "Subquery"} | dict.fromkeys(
    [
        "alias",
        "cast",
        "common_inline_user_defined_function",
        "lambda_function",
        "literal",
        "named_argument_expression",
        "sort_order",
        "unresolved_attribute",
        "unresolved_extract_value",
        "unresolved_named_lambda_variable",
        "unresolved_regex",
        "unresolved_star",
        "update_fields",
    ]
)


def _of_function(name: str) -> str | None:
    if name.lower() in _GENERATORS:
        return "Generate"
    known = not re.match(r"[\w`]", name) or name.lower() in _OPERATORS | _functions()
    return None if known else "UnresolvedFunction"


def _of_text(text: str) -> str | None:
    if _QUERY.search(text):
        return "Subquery"
    if _OVER.search(text):
        return "Window"
    called = {name.lower() for name in _CALL.findall(text)}
    if called - _functions() - _BEFORE_PARENTHESIS:
        return "UnresolvedFunction"
    return "Generate" if called & _GENERATORS else None


@cache
def _functions() -> frozenset[str]:
    """Return the names of Spark's functions and of the operators that methods of a column call, in lower case."""
    from pyspark.sql import Column, functions

    return frozenset(name.lower() for name in (*dir(functions), *dir(Column)) if name not in ("call_function", "call_udf"))


# ------------------------------------------------------------------------------------------------------------- names of columns


def _output(expression: Any) -> str | None:
    """Return the name of a select list's entry in lower case, or None if only the server knows it."""
    if expression.WhichOneof("expr_type") == "alias":
        names = expression.alias.name
        return names[0].lower() if len(names) == 1 else None
    return _column(expression)


def _column(expression: Any) -> str | None:
    """Return the column that an expression names, in lower case, or None. ``a.b`` may be a field of a column."""
    while expression.WhichOneof("expr_type") == "alias":
        expression = expression.alias.expr
    if expression.WhichOneof("expr_type") != "unresolved_attribute":
        return None
    parts = name_parts(expression.unresolved_attribute.unparsed_identifier)
    return parts[0].lower() if len(parts) == 1 else None


def _of_project(message: Any, names: set[str]) -> set[str]:
    found = set()
    for entry in message.expressions:
        if entry.WhichOneof("expr_type") == "unresolved_star":
            found |= names
        elif (_output(entry) in names) and (column := _column(entry)) is not None:
            found.add(column)
    return found


def _of_with_columns(message: Any, names: set[str]) -> set[str]:
    replaced = {alias.name[0].lower(): _column(alias.expr) for alias in message.aliases}
    return (names - set(replaced)) | {column for name in names if (column := replaced.get(name)) is not None}


def _of_renamed(message: Any, names: set[str]) -> set[str]:
    old = {new.lower(): name.lower() for name, new in message.rename_columns_map.items()}
    old |= {each.new_col_name.lower(): each.col_name.lower() for each in message.renames}
    return {old.get(name, name) for name in names if name in old or name not in old.values()}


def _unchanged(message: Any, names: set[str]) -> set[str]:
    return names


_SOURCES = {
    "collect_metrics": _unchanged,
    "drop": _unchanged,
    "drop_na": _unchanged,
    "filter": _unchanged,
    "project": _of_project,
    "subquery_alias": _unchanged,
    "with_columns": _of_with_columns,
    "with_columns_renamed": _of_renamed,
    "with_watermark": _unchanged,
}
"""For each kind of node, the function from names of its columns to those of its input with the same values."""
