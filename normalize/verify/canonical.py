"""Hashes of rows that are equal exactly if the values are.

Both sides are cast to a common type, and Spark hashes the typed values.

One code hashes both sides, so that no database formats a value. Types that have no exact common
type are refused:

======================================  ==========================================================
source and target                       compared as
======================================  ==========================================================
integers, DECIMAL, BOOLEAN              DECIMAL with all digits of both: 1, 1.0 and TRUE are equal
FLOAT, DOUBLE                           DOUBLE; that of a FLOAT is its exact value, or the number
                                        that its shortest text is (1.1); NaN = NaN, 0.0 = -0.0
TIMESTAMP, TIMESTAMP_NTZ                microseconds; a TIMESTAMP_NTZ is in UTC
STRING and an integer, a DECIMAL        text of integers; DECIMAL if the text is a number without
                                        further digits
STRING and DATE                         ``2026-11-24``
a column with the mask ``hmac``          the mask of the source's value, and the target's text
JSON of the source and STRING           JSON without insignificant blanks, the names of objects
                                        sorted, and numbers by their exact value (`json_values`);
                                        text that is no JSON as it is
VARIANT, and VARIANT or JSON            the same of its text
STRING, BINARY, DATE                    as they are: blanks, upper and lower case count
======================================  ==========================================================

NULL is hashed as a flag beside the value, because Spark's ``xxhash64`` skips NULL: (NULL, 'a') and
('a', NULL) would be equal, and so would a text that cannot be converted and NULL.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from operator import itemgetter
from typing import Any

from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import DataType, StructField

from cdc_formats.errors import SchemaError
from cdc_formats.values.masks import Masks
from cdc_formats.values.schema import backquoted

_DIGITS = {"boolean": 1, "tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
_HASHED = ("string", "binary", "date", *_DIGITS)
_MOST_DIGITS = 38
_EPOCH = "TIMESTAMP_NTZ'1970-01-01'"
# By arithmetic: a cast would use the session's time zone. Days and the rest, because an interval of
# seconds ends in the year 33658.
_UTC = (
    f"{_EPOCH} + make_dt_interval(CAST(unix_micros({{0}}) div 86400000000 AS INT), 0, 0, "
    "CAST(unix_micros({0}) % 86400000000 * 0.000001BD AS DECIMAL(18,6)))"
)
_SHORTEST = "CAST(CAST(CAST({0} AS FLOAT) AS STRING) AS DOUBLE)"
"""The number that the shortest text of a FLOAT is, such as 1.1; the FLOAT itself is
1.10000002384185791015625."""
ROW_HASH, HASHES, ROW = "row_hash", "hashes", "row"


@dataclass(frozen=True)
class ComparedColumn:
    """A column of both tables, and the SQL expressions of its value in the common type.

    Attributes
    ----------
    name : str
        The source's name.
    target_name : str
    source_value, target_value : str
    is_json : bool
        Whether the values are JSON text, of which `json_values` is compared.
    masks : Masks or None
        The masks, if the target has the mask of the source's value.
    has_one_order : bool
        Whether both tables order rows by it in the same way.
    """

    name: str
    target_name: str
    source_value: str
    target_value: str
    is_json: bool = False
    masks: Masks | None = None
    has_one_order: bool = False

    def mask(self, value: str | bytes | None) -> str | None:
        """Return the mask of a value of the source."""
        if value is None or self.masks is None:
            return None
        return self.masks.digest(value.encode() if isinstance(value, str) else bytes(value))


def compared_column(
    name: str, source: DataType, target_name: str, target: DataType, *, is_json: bool = False
) -> ComparedColumn:
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
    kinds = source.simpleString(), target.simpleString()
    is_json = kinds == ("variant", "variant") or (
        is_json and kinds in (("string", "string"), ("string", "variant"))
    )
    names = backquoted(name), backquoted(target_name)
    texts = [
        f"to_json({each})" if kind == "variant" else each
        for each, kind in zip(names, kinds, strict=True)
    ]
    values = texts if is_json else _values(names[0], kinds[0], names[1], kinds[1])
    if values is None:
        types = [kind.upper() for kind in kinds]
        raise SchemaError(
            f"column {backquoted(name)} is {types[0]} in the source and {types[1]} in the target, "
            "which cannot be compared exactly: exclude the column"
        )
    has_one_order = (
        not is_json and not {"float", "double"} & {*kinds} and kinds.count("string") != 1
    )
    of_source, of_target = values
    return ComparedColumn(
        name, target_name, of_source, of_target, is_json, has_one_order=has_one_order
    )


def masked_column(
    name: str,
    source: DataType,
    target_name: str,
    target: DataType,
    masks: Masks,
    *,
    is_json: bool = False,
) -> ComparedColumn:
    """Return how a column is compared that has the mask ``hmac`` in the target.

    Parameters
    ----------
    name, target_name : str
    source, target : DataType
    masks : Masks
    is_json : bool
        Whether the source's column is JSON, of which producers write other texts.

    Raises
    ------
    SchemaError
        When Spark's text of the source's value is not always the one that is hashed.
    """
    kind = source.simpleString()
    if kind not in _HASHED or is_json or target.simpleString() != "string":
        raise SchemaError(
            f"column {backquoted(name)} is {kind.upper()} in the source and "
            f"{target.simpleString().upper()} in the target, which cannot be compared with the "
            "mask 'hmac': exclude the column"
        )
    column = backquoted(name)
    text = column if kind in ("string", "binary") else f"CAST({column} AS STRING)"
    return ComparedColumn(name, target_name, text, backquoted(target_name), masks=masks)


def _values(source: str, source_type: str, target: str, target_type: str) -> tuple[str, str] | None:
    """Return the expressions of both sides, or None."""
    kinds = {source_type, target_type}
    source_number, target_number = _number(source_type), _number(target_type)
    if source_number and target_number:
        common = _common_decimal(source_number, target_number)
        return (
            (_decimal(source, source_type, common), _decimal(target, target_type, common))
            if common
            else None
        )
    if kinds <= {"float", "double"}:
        return _double(source, source_type, target_type), _double(target, target_type, source_type)
    if kinds <= {"timestamp", "timestamp_ntz"}:
        return _in_utc(source, source_type), _in_utc(target, target_type)
    if source_type == target_type in ("string", "binary", "date"):
        return source, target
    if "string" in kinds:
        text, copied = (
            _as_text_of(source, source_type, target_type),
            _as_text_of(target, target_type, source_type),
        )
        return (text, copied) if text and copied else None
    return None


def converted(column: str, kind: str, copied: str) -> str:
    """Return the SQL expression of a source's value in the type of its copy.

    A timestamp without a zone is in UTC.

    Examples
    --------
    >>> converted("`at`", "timestamp_ntz", "timestamp"), converted("`price`", "decimal(10,2)", "decimal(12,2)")
    ("CAST(CONCAT(CAST(`at` AS STRING), 'Z') AS timestamp)", 'CAST(`price` AS decimal(12,2))')
    """
    if (kind, copied) == ("string", "variant"):
        return f"parse_json({column})"  # a cast makes a string of JSON
    if (kind, copied) == ("timestamp_ntz", "timestamp"):
        return f"CAST(CONCAT(CAST({column} AS STRING), 'Z') AS timestamp)"
    return _in_utc(column, kind) if copied == "timestamp_ntz" else f"CAST({column} AS {copied})"


def as_copied(
    fields: Iterable[StructField], copies: Iterable[StructField], names: Iterable[str]
) -> list[str]:
    """Return the SQL expressions of columns of a source in the types of their copies.

    Parameters
    ----------
    fields : iterable of StructField
        The source's columns, which include the names.
    copies : iterable of StructField
        The target's columns, which include the names.
    names : iterable of str
        The names of the copies.
    """
    of_source, of_copy = ({each.name.lower(): each for each in side} for side in (fields, copies))
    kinds = ((name, of_source[name.lower()], of_copy[name.lower()].dataType) for name in names)
    return [
        f"{converted(backquoted(field.name), field.dataType.simpleString(), copied.simpleString())}"
        f" AS {backquoted(name)}"
        for name, field, copied in kinds
    ]


def _in_utc(column: str, kind: str) -> str:
    return _UTC.format(column) if kind == "timestamp" else column


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
    return (
        f"CAST(CAST({column} AS INT) AS {common})"
        if kind == "boolean"
        else f"CAST({column} AS {common})"
    )


def _double(column: str, kind: str, other: str) -> str:
    """Return one side of a comparison of FLOAT and DOUBLE.

    Rounding a DOUBLE to FLOAT would make different numbers equal.
    """
    exact = f"CAST({column} AS DOUBLE)"
    if (kind, other) != ("double", "float"):
        return exact
    return (
        f"CASE WHEN {exact} = {_SHORTEST.format(column)} THEN CAST(CAST({column} AS FLOAT) AS "
        f"DOUBLE) ELSE {exact} END"
    )


def _as_text_of(column: str, kind: str, other: str) -> str:
    """Return one side of a comparison of STRING with another type."""
    if kind.startswith("decimal"):
        return column
    if other.startswith("decimal"):
        scale = _number(other)[1]  # type: ignore[index] # a decimal
        fraction = f"([.][0-9]{{0,{scale}}}0*)?"
        # Not `$`, which is also before a line break at the end.
        return (
            f"CASE WHEN {column} RLIKE '^-?[0-9]+{fraction}(?!(?s:.))' THEN try_cast({column} AS "
            f"{other}) END"
        )
    if kind == "string":
        return column if other in (*_DIGITS, "date") and other != "boolean" else ""
    return (
        f"CAST({column} AS STRING)"
        if (kind in _DIGITS and kind != "boolean") or kind == "date"
        else ""
    )


class _Members(list[tuple[str, Any]]):
    """The members of a JSON object: a name may come twice."""


def json_values(text: str | None) -> str | None:
    r"""Return the same text for all JSON texts with the same values; text that is no JSON as it is.

    Names of objects are sorted, and numbers have their exact value: 1.0, 1 and 10e-1 are equal,
    1e400 and 1e401 are not, nor are two integers of 50 digits that differ in the last.

    Examples
    --------
    >>> json_values(' {"b": [1.50, "\u0061"], "a": null}')
    '{"a":null,"b":[15e-1,"a"]}'
    """
    try:
        read = json.loads(
            text or "",
            parse_int=Decimal,
            parse_float=Decimal,
            parse_constant=_no_constant,
            object_pairs_hook=_Members,
        )
        return _json_text(read)
    except (
        ValueError,
        ArithmeticError,
        RecursionError,
    ):  # no JSON, an exponent beyond those of Decimal, too deep
        return text


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _json_text(value: Any) -> str:
    if isinstance(value, Decimal):
        return _number_text(value)
    if isinstance(value, _Members):
        members = sorted(
            value, key=itemgetter(0)
        )  # a name that comes twice keeps the order of its values
        return f"{{{','.join(f'{json.dumps(name)}:{_json_text(each)}' for name, each in members)}}}"
    return f"[{','.join(map(_json_text, value))}]" if isinstance(value, list) else json.dumps(value)


def _number_text(number: Decimal) -> str:
    """Return a number's digits without zeros at the end, and its exponent."""
    sign, digits, exponent = number.as_tuple()
    shown = "".join(map(str, digits)).lstrip("0")
    kept = shown.rstrip("0")
    return f"{'-' * sign}{kept}e{int(exponent) + len(shown) - len(kept)}" if kept else "0"


def hashed(
    rows: DataFrame,
    columns: Sequence[ComparedColumn],
    keys: Sequence[str],
    *,
    of_target: bool,
    detailed: bool = False,
) -> DataFrame:
    """Return key and hashes of rows: ``k0`` and so on as text, and ``row_hash``.

    Parameters
    ----------
    rows : DataFrame
    columns : sequence of ComparedColumn
    keys : sequence of str
        The names of key columns in the source.
    of_target : bool
    detailed : bool
        Whether to add ``hashes``, a hash of each column, and ``row``, the row itself.
    """

    def value(column: ComparedColumn) -> Column:
        shown = F.expr(column.target_value if of_target else column.source_value)
        if column.masks is not None and not of_target:
            return F.udf(column.mask, useArrow=True)(shown)
        return F.udf(json_values, useArrow=True)(shown) if column.is_json else shown

    def is_null(column: ComparedColumn) -> Column:
        return F.col(backquoted(column.target_name if of_target else column.name)).isNull()

    by_name = {column.name: column for column in columns}
    key = [value(by_name[name]) for name in keys]
    kinds = [kind for _, kind in rows.select(*key).dtypes]
    texts = [
        (F.hex(each) if kind == "binary" else each.cast("string")).alias(f"k{index}")
        for index, (each, kind) in enumerate(zip(key, kinds, strict=True))
    ]
    hashes = [F.xxhash64(is_null(column), value(column)) for column in columns]
    details = [F.array(*hashes).alias(HASHES), F.struct("*").alias(ROW)] if detailed else []
    return rows.select(*texts, F.xxhash64(*hashes).alias(ROW_HASH), *details)
