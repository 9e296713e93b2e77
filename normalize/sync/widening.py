"""What to do when a value does not fit its column: the wider type, and the statements that give it to the target's column."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cdc_formats.errors import InferenceError, TypeConversionError
from cdc_formats.format import Format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.values.schema import Column, columns as to_columns, quote
from normalize.core.arrow import spark_type
from normalize.sinks.narrowing import wider
from normalize.sinks.targets import Sink, TableTarget

from .table_schema import Record, TableSchema, with_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructField

_COLUMN = re.compile(rf"\[{TypeConversionError.condition}\] .* - at `\$[^`]*\.(\w+)`")
"""An error of a column; its name is the last of the path."""


def wider_column(
    text: str, schema: TableSchema, samples: Callable[[], Mapping[str, Sequence[Record]]], format: Format
) -> tuple[Column, Column] | None:
    """Return the column of a value that does not fit, as it is and with a type that has its earlier and its new values.

    Parameters
    ----------
    text : str
        The error of a table.
    schema : TableSchema
    samples : callable
        Returns a sample, in which the value may be, for each source table.
    format : Format

    Returns
    -------
    (Column, Column) or None
        None for another error, and if no type has all values.
    """
    found = _COLUMN.match(text)
    column = next((each for each in schema.columns if found is not None and each.name == found[1]), None)
    if column is None:
        return None
    old = _field(column).dataType
    kind: DataType | None = old
    for records in samples().values():
        with suppress(InferenceError):
            inferred = infer_schema(records, format=with_options(format, schema), primary_key=schema.primary_key)
            given = next((each for each in inferred.columns if each.name == column.name), column)
            kind = kind and wider(kind, _field(given).dataType)
    if kind is None or kind == old:
        return None
    (wide,) = to_columns(f"{quote(column.name)} {kind.simpleString()}")
    return column, wide


def how_to_widen(spark: SparkSession, target: TableTarget, columns: tuple[Column, Column], schema: TableSchema, file: str) -> str:
    """Return the sentence with the file to edit and the statements to run.

    Parameters
    ----------
    spark : SparkSession
    target : LakeTarget or JdbcTarget
    columns : (Column, Column)
        As of `wider_column`.
    schema : TableSchema
    file : str
        The table's file.
    """
    column, wide = columns
    sink: Sink = target.sink(spark)
    statements = sink.widen(_field(column), _field(wide), in_key=column.name in schema.primary_key)
    then = f"run {'; '.join(statements)}" if statements else f"convert the column of {target}, whose format has no statement for it"
    return f"To widen the column, write {str(wide)!r} into {file}, {then}, and restart the query"


def _field(column: Column) -> StructField:
    from pyspark.sql.types import DataType, StructField

    kind = spark_type(column.type)
    return StructField(column.name, DataType.fromDDL("BIGINT" if kind.startswith("INTERVAL") else kind))
