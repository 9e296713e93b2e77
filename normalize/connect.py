"""Spark Connect: a session whose client has no JVM, and whose server has the plans.

A client has the relations that it sends to the server (Spark Connect's protocol). They name their inputs and aliases, but no view's or
table's plan. A DataFrame that the server keeps (of a checkpoint, or in ``foreachBatch``) is only a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from cdc_formats.errors import ArgumentError

from .core.output import ROW_KIND

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Mode = Literal["all", "upsert"] | None

_SAME_ROW_KIND = frozenset(
    {"collect_metrics", "filter", "hint", "map_partitions", "repartition", "repartition_by_expression", "sort", "with_watermark"}
)
"""Relations with the ``row_kind`` of their input."""


def is_connect(spark: SparkSession | DataFrame) -> bool:
    """Return whether a session or DataFrame is one of Spark Connect.

    Its type shows it. PySpark's ``is_remote`` looks at environment variables, and a process of the server may have them too.
    """
    return any(each.__module__.startswith("pyspark.sql.connect.") for each in type(spark).__mro__)


def require_jvm(spark: SparkSession, function: str, instead: str) -> None:
    """Raise an error for a session of Spark Connect.

    Parameters
    ----------
    spark : SparkSession
    function : str
        The function that needs the JVM.
    instead : str
        What to do, as an imperative.

    Raises
    ------
    ArgumentError
    """
    if is_connect(spark):
        raise ArgumentError(f"{function} needs the JVM of a classic session, and this one is of Spark Connect: {instead}")


def analyze(df: DataFrame) -> DataFrame:
    """Return a DataFrame that the server has analyzed: with Spark Connect, a wrong query would otherwise fail at its first action.

    Raises
    ------
    AnalysisException
    """
    _ = df.schema
    return df


def changelog_mode(relation: Any, marks: Mapping[str, Mode]) -> Mode:
    """Return whether a changelog of Spark Connect has ``-U`` (``all``) or not (``upsert``), or None if its relations do not show it.

    Parameters
    ----------
    relation : pyspark.sql.connect.proto.Relation
    marks : mapping
        The mode of each alias that marks a changelog.

    Notes
    -----
    The column ``row_kind`` must come unchanged from a marked DataFrame. An expression may be an aggregate, which the protocol does not
    distinguish from other functions.
    """
    kind = relation.WhichOneof("rel_type")
    node = getattr(relation, kind)
    if kind == "with_relations":
        return changelog_mode(node.root, marks)
    if kind == "subquery_alias" and node.alias in marks:
        return marks[node.alias]
    if kind in ("join", "set_op"):
        return _mode_of_both(kind, node, marks)
    if kind in _SAME_ROW_KIND or kind == "subquery_alias" or _keeps_row_kind(kind, node):
        return changelog_mode(node.input, marks)
    return None


def _mode_of_both(kind: str, node: Any, marks: Mapping[str, Mode]) -> Mode:
    if kind == "join":
        modes = {None if ROW_KIND in node.using_columns else changelog_mode(each, marks) for each in (node.left, node.right)}
        # The other input may be any table.
        return "upsert" if "upsert" in modes else "all" if "all" in modes else None
    if node.set_op_type != node.SET_OP_TYPE_UNION or not node.is_all:
        return None
    modes = {changelog_mode(each, marks) for each in (node.left_input, node.right_input)}
    return "upsert" if "upsert" in modes else "all" if modes == {"all"} else None


def _keeps_row_kind(kind: str, node: Any) -> bool:
    """Return whether the row kinds of a relation's result are those of its input."""
    if kind == "project":
        return any(_is_row_kind(expression, node.input) for expression in node.expressions)
    if kind == "with_columns":
        return not _has_row_kind(name for alias in node.aliases for name in alias.name)
    if kind == "with_columns_renamed":
        renamed = [*node.rename_columns_map.items(), *((each.col_name, each.new_col_name) for each in node.renames)]
        return not _has_row_kind(name for names in renamed for name in names)
    if kind == "drop":
        return not _has_row_kind(
            [*node.column_names, *(each.unresolved_attribute.unparsed_identifier or ROW_KIND for each in node.columns)]
        )
    return False


def _is_row_kind(expression: Any, source: Any) -> bool:
    """Return whether an expression is the column ``row_kind`` of an input, or all its columns."""
    kind = expression.WhichOneof("expr_type")
    if kind == "unresolved_star":
        return not expression.unresolved_star.HasField("unparsed_target")
    if kind == "expression_string":
        return expression.expression_string.expression.strip() in ("*", ROW_KIND)
    column = expression.unresolved_attribute
    if kind != "unresolved_attribute" or (column.HasField("plan_id") and column.plan_id != source.common.plan_id):
        return False
    names = {ROW_KIND, f"`{ROW_KIND}`"}
    if source.WhichOneof("rel_type") == "subquery_alias":
        names.add(f"{source.subquery_alias.alias}.{ROW_KIND}")
    return column.unparsed_identifier in names


def _has_row_kind(names: Iterable[str]) -> bool:
    # The name may be quoted or qualified.
    return any(ROW_KIND in name.lower() for name in names)
