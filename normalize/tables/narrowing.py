"""Table columns that would silently lose part of a value, which Spark and databases round or cut.

=====================  ============================================  ==============================
the table's type       the type of the changes                       what would be written
=====================  ============================================  ==============================
an integer             DECIMAL with a scale, FLOAT, DOUBLE           the integer part, or a rounded
                                                                     value
DECIMAL                DECIMAL with a larger scale, FLOAT, DOUBLE    a rounded value
DATE                   TIMESTAMP, TIMESTAMP_NTZ                      the day
BOOLEAN                a number                                      TRUE for all numbers but 0
=====================  ============================================  ==============================

A value that is too large for its type is not such a case, since it raises an error. FLOAT and
DOUBLE are approximate by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import SchemaError
from cdc_formats.values import lattice
from cdc_formats.values.schema import Column, SqlType, backquoted

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField

    from .table_spec import TableSpec


def require_no_narrowing(
    table: Any,
    spec: TableSpec,
    columns: Mapping[str, DataType | None],
    widen: Callable[[StructField, StructField], list[str]],
) -> None:
    """Raise an error if the table would silently lose part of a value.

    Parameters
    ----------
    table : LakeTarget or JdbcTarget
    spec : TableSpec
    columns : mapping
        The type of each of the table's columns; None: not compared.
    widen : callable
        Returns the statements that give a column, spelled as in the table, a wider type. It gets
        the column as it is and as it should be, and returns an empty list if no statement does
        this.

    Raises
    ------
    SchemaError
    """
    from pyspark.sql.types import StructField

    spelled = {name.lower(): name for name in columns}  # Spark ignores case by default
    for field in spec.fields:
        name = spelled.get(field.name.lower())
        kind = None if name is None else columns[name]
        if name is None or kind is None or not is_narrower(kind, field.dataType):
            continue
        wide = wider(kind, field.dataType)
        statements = [] if wide is None else widen(StructField(name, kind), StructField(name, wide))
        first = f"run {'; '.join(statements)}, or convert" if statements else "convert"
        have, type_of_values = kind.simpleString().upper(), field.dataType.simpleString().upper()
        raise SchemaError(
            f"{table} has the column {backquoted(name)} as {have}, which cuts values of {type_of_values}: "
            f"{first} the column to {have}"
        )


def is_narrower(kind: DataType, value_type: DataType) -> bool:
    """Return whether a `kind` column silently loses part of a `value_type` (`lattice.cuts`)."""
    return lattice.cuts(_sql_type(kind), _sql_type(value_type))


def wider(kind: DataType, other: DataType) -> DataType | None:
    """Return a type for a column with all values of both; None for nested types or without one.

    Examples
    --------
    >>> from pyspark.sql.types import DecimalType, IntegerType, LongType
    >>> wider(DecimalType(10, 2), DecimalType(8, 4)), wider(IntegerType(), DecimalType(8, 4))
    (DecimalType(12,4), DecimalType(14,4))
    >>> wider(IntegerType(), LongType()), wider(DecimalType(10, 2), DecimalType(12, 1))
    (LongType(), DecimalType(13,2))
    """
    from pyspark.sql.types import DateType, DecimalType, DoubleType

    if isinstance(kind, DateType) and other.simpleString().startswith("timestamp"):
        return other  # a table can convert its days, while a message's DATE is no timestamp
    wide = lattice.wider(_sql_type(kind), _sql_type(other))
    if wide is None or wide.fields:
        return None
    if wide.name == "DECIMAL":
        return DecimalType(wide.precision or 10, wide.scale or 0)
    return next((each for each in (kind, other) if _sql_type(each) == wide), DoubleType())


def _sql_type(kind: DataType) -> SqlType:
    """Return a Spark type for comparisons; one that no changelog column has keeps its name."""
    from pyspark.sql.types import ArrayType, DecimalType, MapType, StructType

    if isinstance(kind, DecimalType):
        return SqlType("DECIMAL", kind.precision, kind.scale)
    parts: dict[str, DataType] = {}
    if isinstance(kind, StructType):
        parts = {field.name: field.dataType for field in kind.fields}
    elif isinstance(kind, MapType):
        parts = {"key": kind.keyType, "value": kind.valueType}
    elif isinstance(kind, ArrayType):
        parts = {"element": kind.elementType}
    name = kind.simpleString().partition("<")[0].upper()
    return SqlType(name, fields=tuple(Column(part, _sql_type(of)) for part, of in parts.items()))
