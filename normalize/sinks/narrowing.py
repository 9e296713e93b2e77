"""Columns of a table that would silently lose part of a value: Spark and databases round or cut it, and raise no error.

=====================  ============================================  ====================================
the table's type       the type of the changes                       what would be written
=====================  ============================================  ====================================
an integer             DECIMAL with a scale, FLOAT, DOUBLE           the integer part, or a rounded value
DECIMAL                DECIMAL with a larger scale, FLOAT, DOUBLE    a rounded value
DATE                   TIMESTAMP, TIMESTAMP_NTZ                      the day
BOOLEAN                a number                                      TRUE for all numbers but 0
=====================  ============================================  ====================================

A value that is too large for its type is not such a case, since it raises an error. FLOAT and DOUBLE are approximate by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

    from .table_spec import TableSpec

_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""The digits of the largest value of each integer type."""
_APPROXIMATE = ("float", "double")
_MOST_DIGITS = 38


def require_no_narrowing(
    table: Any, spec: TableSpec, found: Mapping[str, DataType | None], widen: Callable[[StructField, StructField], list[str]]
) -> None:
    """Raise an error if the table would silently lose part of a value.

    Parameters
    ----------
    table : LakeTarget or JdbcTarget
    spec : TableSpec
    found : mapping
        The type of each of the table's columns; None: not compared.
    widen : callable
        Returns the statements that give a column, spelled as in the table, a wider type. It gets the column as it is and as it should be,
        and returns an empty list if no statement does this.

    Raises
    ------
    SchemaError
    """
    from pyspark.sql.types import StructField

    spelled = {name.lower(): name for name in found}  # Spark ignores case by default
    for field in spec.fields:
        name = spelled.get(field.name.lower())
        kind = None if name is None else found[name]
        if name is None or kind is None or not is_narrower(kind, field.dataType):
            continue
        wide = wider(kind, field.dataType)
        statements = [] if wide is None else widen(StructField(name, kind), StructField(name, wide))
        first = f"run {'; '.join(statements)}, or convert" if statements else "convert"
        have, given = kind.simpleString().upper(), field.dataType.simpleString().upper()
        raise SchemaError(
            f"{table} has the column {backquoted(name)} as {have}, which cuts values of {given}: {first} the column to {have}"
        )


def is_narrower(kind: DataType, given: DataType) -> bool:
    """Return whether a column of the type `kind` silently loses part of a value of the type `given`.

    Examples
    --------
    >>> from pyspark.sql.types import DecimalType
    >>> is_narrower(DecimalType(10, 2), DecimalType(12, 4)), is_narrower(DecimalType(10, 2), DecimalType(12, 2))
    (True, False)
    """
    from pyspark.sql.types import DecimalType

    parts = _parts(kind, given)
    if parts:
        return any(is_narrower(*part) for part in parts)
    have, name = kind.simpleString(), given.simpleString()
    scale = given.scale if isinstance(given, DecimalType) else 0
    if have in _DIGITS:
        return scale > 0 or name in _APPROXIMATE
    if isinstance(kind, DecimalType):
        return scale > kind.scale or name in _APPROXIMATE
    if have == "boolean":
        return name in _DIGITS or name in _APPROXIMATE or isinstance(given, DecimalType)
    return have == "date" and name.startswith("timestamp")


def _parts(kind: DataType, given: DataType) -> list[tuple[DataType, DataType]]:
    """Return the types inside two nested types that belong together; none of types that are not nested alike."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, ArrayType) and isinstance(given, ArrayType):
        return [(kind.elementType, given.elementType)]
    if isinstance(kind, MapType) and isinstance(given, MapType):
        return [(kind.keyType, given.keyType), (kind.valueType, given.valueType)]
    if isinstance(kind, StructType) and isinstance(given, StructType):
        fields = {field.name.lower(): field.dataType for field in kind.fields}
        return [(fields[each.name.lower()], each.dataType) for each in given.fields if each.name.lower() in fields]
    return []


def wider(kind: DataType, given: DataType) -> DataType | None:
    """Return a type that has every value of both; None if there is none.

    Examples
    --------
    >>> from pyspark.sql.types import DecimalType, IntegerType, LongType
    >>> wider(DecimalType(10, 2), DecimalType(8, 4)), wider(IntegerType(), DecimalType(8, 4))
    (DecimalType(12,4), DecimalType(14,4))
    >>> wider(IntegerType(), LongType()), wider(DecimalType(10, 2), DecimalType(12, 1))
    (LongType(), DecimalType(13,2))
    """
    from pyspark.sql.types import DateType, DecimalType, DoubleType

    have = kind.simpleString()
    if have in _DIGITS and given.simpleString() in _DIGITS:
        return max(kind, given, key=lambda each: _DIGITS[each.simpleString()])
    if isinstance(given, DecimalType) and (have in _DIGITS or isinstance(kind, DecimalType)):
        whole, scale = (kind.precision - kind.scale, kind.scale) if isinstance(kind, DecimalType) else (_DIGITS[have], 0)
        scale = max(scale, given.scale)
        digits = max(whole, given.precision - given.scale) + scale
        return DecimalType(digits, scale) if digits <= _MOST_DIGITS else None
    if have in ("tinyint", "smallint", "int") and given.simpleString() in _APPROXIMATE:
        return DoubleType()
    return given if isinstance(kind, DateType) and given.simpleString().startswith("timestamp") else None
