"""Which type has more values: for inference, for columns of tables, and for stored rows.

=============  =====================================================================
question       function
=============  =====================================================================
`wider`        the type that has every value of two types
`cuts`         whether a column would silently lose part of another type's values
`holds`        whether a type can represent all stored values of another
=============  =====================================================================
"""

from __future__ import annotations

from dataclasses import replace

from . import times
from .numbers import INTEGER_BITS
from .schema import SqlType
from .text import TEXT_TYPES

MOST_DIGITS = 38
"""The most digits of a DECIMAL."""
APPROXIMATE = ("FLOAT", "DOUBLE")
_EXACT = {*INTEGER_BITS, "DECIMAL"}
_IN_DOUBLE = {*APPROXIMATE, "TINYINT", "SMALLINT", "INT"}


def wider(first: SqlType, second: SqlType, otherwise: SqlType | None = None) -> SqlType | None:
    """Return a type that has every value of two types.

    Parameters
    ----------
    first, second : SqlType
    otherwise : SqlType or None
        Returned if there is no such type, also for the element of an array.

    Examples
    --------
    >>> str(wider(SqlType("DECIMAL", 10, 2), SqlType("DECIMAL", 8, 4))), str(wider(SqlType("INT"), SqlType("FLOAT")))
    ('DECIMAL(12,4)', 'DOUBLE')
    >>> wider(SqlType("BIGINT"), SqlType("DOUBLE")) is None
    True
    """
    names = {first.name, second.name}
    if first == second:
        return first
    if names <= INTEGER_BITS.keys():
        return max(first, second, key=lambda each: INTEGER_BITS[each.name])
    if names <= _EXACT:
        whole, scale = map(max, _digits(first), _digits(second))
        return (
            SqlType("DECIMAL", whole + scale, scale) if whole + scale <= MOST_DIGITS else otherwise
        )
    if names <= _IN_DOUBLE:
        return SqlType("DOUBLE")
    if names <= set(TEXT_TYPES):
        return SqlType("STRING")
    if len(names) == 1 and first.name in times.TYPES:
        return replace(first, precision=max(first.precision or 6, second.precision or 6))
    if names == {"ARRAY"} and (
        element := wider(first.fields[0].type, second.fields[0].type, otherwise)
    ):
        return replace(first, fields=(replace(first.fields[0], type=element),))
    return otherwise


def cuts(kind: SqlType, other: SqlType) -> bool:
    """Return whether a column of type `kind` silently loses part of a value of the type `other`.

    A value that is too large for its type is not such a case, since it raises an error. FLOAT and
    DOUBLE are approximate by definition.

    Examples
    --------
    >>> cuts(SqlType("DECIMAL", 10, 2), SqlType("DECIMAL", 12, 4)), cuts(SqlType("DECIMAL", 10, 2), SqlType("DECIMAL", 12, 2))
    (True, False)
    """
    if kind.fields and kind.name == other.name:
        parts = {
            part.name.lower(): part.type for part in kind.fields
        }  # Spark ignores case by default
        return any(
            cuts(parts[each.name.lower()], each.type)
            for each in other.fields
            if each.name.lower() in parts
        )
    if kind.name != other.name and "VARIANT" in (kind.name, other.name):
        return True  # text becomes a string of JSON, and a string of JSON bare text
    if kind.name == "BOOLEAN":
        return other.name in _EXACT or other.name in APPROXIMATE
    if kind.name in _EXACT:
        return other.name in APPROXIMATE or _digits(other)[1] > _digits(kind)[1]
    return kind.name == "DATE" and other.name in times.TIMESTAMP_TYPES


def holds(wide: SqlType, narrow: SqlType) -> bool:
    """Return whether a type can represent all stored values of another."""
    if wide == narrow or (wide.name in TEXT_TYPES and narrow.name in TEXT_TYPES):
        return True
    if wide.name in INTEGER_BITS and narrow.name in INTEGER_BITS:
        return INTEGER_BITS[wide.name] > INTEGER_BITS[narrow.name]
    if wide.name == narrow.name == "DECIMAL":
        return all(more >= less for more, less in zip(_digits(wide), _digits(narrow), strict=True))
    # Microseconds are stored for every precision.
    return (wide.name == narrow.name and wide.name in times.TYPES) or (wide.name, narrow.name) == (
        "DOUBLE",
        "FLOAT",
    )


def _digits(sql_type: SqlType) -> tuple[int, int]:
    """Return the number of digits before and after the point; none for a type that is not exact."""
    if sql_type.name == "DECIMAL":
        return (sql_type.precision or 10) - (sql_type.scale or 0), sql_type.scale or 0
    return len(str(2 ** INTEGER_BITS[sql_type.name])) if sql_type.name in INTEGER_BITS else 0, 0
