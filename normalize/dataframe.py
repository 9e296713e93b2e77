"""Changelog DataFrames: their columns, the checks of them, and what their plans show."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_formats.errors import ArgumentError, ChangelogError, SchemaError
from cdc_formats.values.schema import Column, backquoted, columns as to_columns
from normalize.spark.plans import Node, class_of, elements, plan_of
from normalize.spark.sessions import analyze, is_connect

from .core.arrow import frame_type
from .core.output import ROW_KIND
from .spark_versions import require_time_type


def require_changelog(df: DataFrame) -> None:
    """Raise an error for a DataFrame that is not a changelog.

    Raises
    ------
    ArgumentError
        When it has no ``row_kind``.
    """
    if ROW_KIND not in df.columns:
        raise ArgumentError(f"the DataFrame has no column {ROW_KIND}, which a changelog requires")


def require_distinct(df: DataFrame, names: Iterable[str]) -> None:
    """Raise an error for a name of several DataFrame columns; by default Spark ignores case.

    Raises
    ------
    SchemaError
    """
    if df.sparkSession.conf.get("spark.sql.caseSensitive") == "true":
        return
    for name in names:
        same = [column for column in df.columns if column.lower() == name.lower()]
        if len(same) > 1:
            raise SchemaError(
                f"Spark cannot distinguish the columns {', '.join(map(repr, same))}: rename them, "
                "or drop all but one"
            )


def unused(name: str, columns: Sequence[str]) -> str:
    """Return an unused column name, ignoring case: `name`, or `name` with underscores appended."""
    taken = {column.lower() for column in columns}
    while name.lower() in taken:
        name += "_"
    return name


def positional(columns: Sequence[str]) -> list[SparkColumn]:
    """Return columns renamed by position to ``c0`` and so on.

    Spark's ``mapInArrow`` parses a name like ``a.b`` as a field, and its JDBC writer does not
    escape names.
    """
    return [F.col(backquoted(name)).alias(f"c{index}") for index, name in enumerate(columns)]


def with_frame_types(df: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """Return a DataFrame whose VARIANT and TIME columns, which are text until here, have their type.

    Python's side of Spark cannot build a VARIANT, and Spark does not compare two of them. The
    passes, the state and the comparison of rows therefore use the text.

    Raises
    ------
    MissingDependencyError
        When this Spark has no TIME.
    ArgumentError
        When the session does not enable it.
    """
    typed: dict[str, SparkColumn] = {}
    for column, text in _texts(columns):
        if column.type.is_spark_time:
            require_time_type(df.sparkSession, column)
            typed[column.name] = text.cast(frame_type(column.type))
        else:
            typed[column.name] = F.parse_json(text)
    return df.withColumns(typed) if typed else df


def with_text(df: DataFrame, columns: Iterable[Column]) -> DataFrame:
    """Return a DataFrame with the text of VARIANT and TIME columns: see `with_frame_types`."""
    texts = {
        column.name: typed.cast("string") if column.type.is_spark_time else F.to_json(typed)
        for column, typed in _texts(columns)
    }
    return df.withColumns(texts) if texts else df


def _texts(columns: Iterable[Column]) -> Iterator[tuple[Column, SparkColumn]]:
    """Yield the columns that are text in the passes."""
    for column in columns:
        if column.type.name == "VARIANT" or column.type.is_spark_time:
            yield column, F.col(backquoted(column.name))


def table_columns(schema: str | StructType, without: Sequence[str] = ()) -> tuple[Column, ...]:
    """Return the columns of a schema, which is DDL text or a Spark type.

    Parameters
    ----------
    schema : str or StructType
    without : sequence of str
        Fields of a StructType to leave out.

    Raises
    ------
    SchemaError
        When a type is not supported, or a name has a NUL character.
    """
    if isinstance(schema, str):
        return _without_nul(to_columns(schema))
    if not hasattr(schema, "fields"):
        raise SchemaError(
            f"schema is {schema!r}: pass Spark DDL, for example 'id BIGINT NOT NULL, name STRING', "
            "or a StructType"
        )
    fields = [field for field in schema.fields if field.name not in without]
    ddl = [
        (
            f"{backquoted(field.name)} "
            f"{type_ddl(field.dataType, _plain)}{'' if field.nullable else ' NOT NULL'}"
        )
        for field in fields
    ]
    return _without_nul(to_columns(", ".join(ddl)))


def _plain(kind: DataType) -> str:
    text = kind.simpleString()
    return f"{text} WITHOUT TIME ZONE" if text.startswith("time(") else text


def _without_nul(columns: tuple[Column, ...], within: str = "") -> tuple[Column, ...]:
    for column in columns:
        path = f"{within}{column.name}"
        if "\0" in column.name:
            # Arrow would cut the name, and Spark would then read NULL.
            raise SchemaError(
                f"the column name {path!r} has a NUL character: leave the column out, or declare "
                "the outermost one as STRING"
            )
        _without_nul(column.type.fields, f"{path}.")
    return columns


def type_ddl(kind: DataType, plain: Callable[[DataType], str] | None = None) -> str:
    """Return a Spark type as DDL text, with every field's name in backquotes.

    Spark's ``simpleString`` does not quote names, so that a name could inject SQL.

    Parameters
    ----------
    kind : DataType
    plain : callable or None
        Returns the text of a type that is not nested; by default Spark's ``simpleString``.
    """
    if isinstance(kind, StructType):
        return f"struct<{', '.join(f'{backquoted(field.name)}: {type_ddl(field.dataType, plain)}' for field in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_ddl(kind.elementType, plain)}>"
    if isinstance(kind, MapType):
        return f"map<{type_ddl(kind.keyType, plain)}, {type_ddl(kind.valueType, plain)}>"
    return plain(kind) if plain else kind.simpleString()


# --------------------------------------------------------------------------------------------------
# Facts about a changelog DataFrame that its analyzed plan shows.
#
# A mark in the schema is lost when a ``select`` computes ``row_kind`` again, and stays when rows are
# removed or repeated. The plan below such an operation does not change. The mark is therefore an
# alias of the DataFrame, ``changelog_all`` or ``changelog_upsert``: a node of the plan, and the
# qualifier of its columns.

_ALIAS = "changelog_"
ROW_KIND_WITH_UPDATE_BEFORE = f"{_ALIAS}all.{ROW_KIND}"
"""The name of ``row_kind`` that Spark finds only in a changelog with ``-U``."""
NATIVE = "native_changelog"
"""The alias of the changelog of `normalize.engines.native`."""
_MODES: tuple[Literal["all", "upsert"], ...] = ("all", "upsert")

_ONE_TO_ONE = frozenset(
    {"CollectMetrics", "EventTimeWatermark", "Filter", "Project", "SubqueryAlias", "View"}
)
"""Nodes whose rows are rows of their input, at most once, in its order."""
_ROW_BY_ROW = _ONE_TO_ONE | {
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
_KEEP_MODE = _ROW_BY_ROW | {
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
    return _is_native(node) or any(map(_has_native_engine, node.children))


def _is_native(node: Node) -> bool:
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


# --------------------------------------------------------------------------------------------------
# The check whether a DataFrame's plan keeps the order of a key's rows, or has one row per key.
#
# Rows of one key come in order from Kafka (a key is in one Kafka partition, which is one partition of
# Spark) and from ChangelogNormalize. Spark's narrow operations keep the order of a partition. A
# shuffle does not: after a join, a ``groupBy`` or a ``repartition`` a delete may precede the insert
# of its row. The result of a ``groupBy`` has one row for each group, and so needs no order if the
# group is the key.


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
    if name in _BEGIN or _is_kafka(node, name) or _is_native(node):
        return None
    if node.java.subqueries().nonEmpty():
        return "Subquery"  # the optimizer makes a join of it
    if name == "LogicalRDD" and not children:
        # Of createDataFrame, or a checkpoint, whose lineage is gone.
        shuffled = _UNORDERED_RDD.search(node.java.rdd().toDebugString())
        return shuffled[0] if shuffled else None
    if name not in _ROW_BY_ROW and name != "LogicalRDD":
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
    while node.name in _ONE_TO_ONE or (node.name == "LogicalRDD" and node.children):
        if node.name == "Project":
            ids = {
                source.exprId().id()
                for source in _sources(node.java.projectList(), ids)
                if class_of(source) == "AttributeReference"
            }
        node = node.children[0]
    if node.name != "Aggregate":
        return False
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
