"""Changelog DataFrames: their columns, the checks of them, and what their plans show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.values.schema import Column, backquoted, columns as to_columns
from normalize.spark.plans import Node, plan_of
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
