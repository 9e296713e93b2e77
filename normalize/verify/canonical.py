"""Hashes of rows that are equal exactly if the values are: both sides are cast to a common type, and Spark hashes the typed values.

One code hashes both sides, so that no database formats a value. Types that have no exact common type are refused:

======================================  ================================================================================
source and target                       compared as
======================================  ================================================================================
integers, DECIMAL, BOOLEAN              DECIMAL with all digits of both: 1, 1.0 and TRUE are equal
FLOAT, DOUBLE                           FLOAT if one of them is FLOAT, otherwise DOUBLE; NaN = NaN, 0.0 = -0.0
TIMESTAMP, TIMESTAMP_NTZ                microseconds; a TIMESTAMP_NTZ is in UTC
STRING and an integer, a DECIMAL        text of integers; DECIMAL if the text is a number without further digits
STRING and DATE                         ``2026-11-24``
JSON of the source and STRING           JSON without insignificant blanks, the names of objects sorted
STRING, BINARY, DATE                    as they are: blanks, upper and lower case count
======================================  ================================================================================

NULL is hashed as a flag beside the value, because Spark's ``xxhash64`` skips NULL: (NULL, 'a') and ('a', NULL) would be equal, and so
would a text that cannot be converted and NULL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_DIGITS = {"boolean": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_MOST_DIGITS = 38
_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"
# By arithmetic: a cast would use the session's time zone.
_UTC = f"{_EPOCH} + make_dt_interval(0, 0, 0, CAST(unix_micros({{0}}) * 0.000001BD AS DECIMAL(18,6)))"
KEY_HASH, ROW_HASH, HASHES = "key_hash", "row_hash", "hashes"


@dataclass(frozen=True)
class ComparedColumn:
    """A column of both tables, and the SQL expressions of its value in the common type.

    Attributes
    ----------
    name : str
        The source's name.
    target_name : str
    source_value, target_value : str
    """

    name: str
    target_name: str
    source_value: str
    target_value: str


def compared_column(name: str, source: DataType, target_name: str, target: DataType, *, is_json: bool = False) -> ComparedColumn:
    """Return how a column is compared.

    Parameters
    ----------
    name, target_name : str
    source, target : DataType
    is_json : bool
        Whether the source's column is JSON, and the target's column JSON text.

    Raises
    ------
    SchemaError
        When the two types have no exact common type.
    """
    values = _values(backquoted(name), source.simpleString(), backquoted(target_name), target.simpleString(), is_json=is_json)
    if values is None:
        types = [kind.simpleString().upper() for kind in (source, target)]
        raise SchemaError(
            f"column {backquoted(name)} is {types[0]} in the source and {types[1]} in the target, which cannot be compared exactly: "
            "exclude the column"
        )
    return ComparedColumn(name, target_name, *values)


def _values(source: str, source_type: str, target: str, target_type: str, *, is_json: bool) -> tuple[str, str] | None:
    """Return the expressions of both sides, or None."""
    kinds = {source_type, target_type}
    if is_json and kinds == {"string"}:
        return _json(source), _json(target)
    numbers = [_number(kind) for kind in (source_type, target_type)]
    if numbers[0] and numbers[1]:
        common = _common_decimal(numbers[0], numbers[1])
        return (_decimal(source, source_type, common), _decimal(target, target_type, common)) if common else None
    if kinds <= {"float", "double"}:
        common = "float" if "float" in kinds else "double"
        return f"CAST({source} AS {common})", f"CAST({target} AS {common})"
    if kinds <= {"timestamp", "timestamp_ntz"}:
        values = [_UTC.format(column) if kind == "timestamp" else column for column, kind in ((source, source_type), (target, target_type))]
        return values[0], values[1]
    if len(kinds) == 1 and kinds <= {"string", "binary", "date"}:
        return source, target
    if "string" in kinds:
        values = [_as_text_of(*side) for side in ((source, source_type, target_type), (target, target_type, source_type))]
        return (values[0], values[1]) if values[0] and values[1] else None
    return None


def _number(kind: str) -> tuple[int, int] | None:
    """Return the digits before and after the point of an exact number."""
    if kind.startswith("decimal"):
        precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
        return precision - scale, scale
    return (_DIGITS[kind], 0) if kind in _DIGITS else None


def _common_decimal(source: tuple[int, int], target: tuple[int, int]) -> str:
    whole, scale = max(source[0], target[0]), max(source[1], target[1])
    return f"DECIMAL({whole + scale},{scale})" if whole + scale <= _MOST_DIGITS else ""


def _decimal(column: str, kind: str, common: str) -> str:
    return f"CAST(CAST({column} AS INT) AS {common})" if kind == "boolean" else f"CAST({column} AS {common})"


def _as_text_of(column: str, kind: str, other: str) -> str:
    """Return one side of a comparison of STRING with another type."""
    if kind.startswith("decimal"):
        return column
    if other.startswith("decimal"):
        scale = _number(other)[1]  # type: ignore[index] # a decimal
        fraction = f"([.][0-9]{{0,{scale}}}0*)?"
        return f"CASE WHEN {column} RLIKE '^-?[0-9]+{fraction}$' THEN try_cast({column} AS {other}) END"
    if kind == "string":
        return column if other in (*_DIGITS, "date") and other != "boolean" else ""
    return f"CAST({column} AS STRING)" if (kind in _DIGITS and kind != "boolean") or kind == "date" else ""


def _json(column: str) -> str:
    return f"coalesce(to_json(try_parse_json({column})), {column})"


def hashed(
    rows: DataFrame, columns: Sequence[ComparedColumn], keys: Sequence[str], *, of_target: bool, detailed: bool = False
) -> DataFrame:
    """Return key and hashes of rows: ``k0`` and so on as text, ``key_hash``, ``row_hash``.

    Parameters
    ----------
    rows : DataFrame
    columns : sequence of ComparedColumn
    keys : sequence of str
        The names of key columns in the source.
    of_target : bool
    detailed : bool
        Whether to add ``hashes``, a hash of each column.
    """
    from pyspark.sql import functions as F

    def value(column: ComparedColumn) -> Column:
        return F.expr(column.target_value if of_target else column.source_value)

    def is_null(column: ComparedColumn) -> Column:
        return F.col(backquoted(column.target_name if of_target else column.name)).isNull()

    of_key = {column.name: column for column in columns if column.name in keys}
    key = [value(of_key[name]) for name in keys]
    kinds = [kind for _, kind in rows.select(*key).dtypes]
    texts = [
        (F.hex(each) if kind == "binary" else each.cast("string")).alias(f"k{index}")
        for index, (each, kind) in enumerate(zip(key, kinds, strict=True))
    ]
    hashes = [F.xxhash64(is_null(column), value(column)) for column in columns]
    found = rows.select(*texts, F.xxhash64(*hashes).alias(ROW_HASH), *([F.array(*hashes).alias(HASHES)] if detailed else []))
    flags = [part for index in range(len(keys)) for part in (F.col(f"k{index}").isNull(), F.col(f"k{index}"))]
    return found.withColumn(KEY_HASH, F.xxhash64(*flags))
