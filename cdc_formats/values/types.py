"""All SQL types: message values to a column's canonical values, and those to JSON, Python and text.

A function is compiled once for each column. Canonical values are exact and cheap to compare;
`equality` defines when two of them are equal:

==========================  ========================================================================
SQL type                    canonical value
==========================  ========================================================================
BOOLEAN, integers           ``bool``, ``int``
FLOAT, DOUBLE               ``float`` (a FLOAT rounded to 32 bits)
DECIMAL(p,s)                ``str``: plain digits, exactly ``s`` of them after the point, no
                            exponent, no ``-0``
STRING, CHAR, VARCHAR       ``str`` (lengths are not enforced, as in Flink)
VARIANT                     ``str``: JSON text, as in the message or, of a nested value, compact
BINARY                      ``bytes``
DATE                        ``int``: days since 1970-01-01
TIME                        ``int``: microseconds since midnight
TIMESTAMP                   ``int``: microseconds since 1970-01-01 00:00:00 UTC (an instant; Flink's
                            TIMESTAMP_LTZ)
TIMESTAMP_NTZ               ``int``: the same of a date and time without zone (Flink's TIMESTAMP)
INTERVAL DAY TO SECOND      ``int``: microseconds
ARRAY, STRUCT               ``list`` of canonical values; a STRUCT's in the order of its fields
MAP                         ``list`` of ``[key, value]``, sorted by key
==========================  ========================================================================

Differences between producers are configuration: a `Handling`. Units are never guessed from a
number's size; a number without a declared unit is an error that names the option to set. A decimal
with more digits after the point than its column holds is an error unless rounding is enabled;
trailing zeros always fit. Fractions of a second beyond microseconds are truncated, since Spark has
none.

Each family has a module: `numbers`, `text`, `binary`, `times`, `nested`. It reads and writes its
types, and declares them in its ``TYPES``.

Debezium's unavailable-value placeholder, for values not in the log (unchanged TOAST values).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import md5
from typing import Any
from uuid import UUID

from cdc_formats.values import binary, numbers, text, times
from cdc_formats.values.nested import (
    nested_canonical,
    nested_converter,
    nested_to_python,
    nested_writer,
    part_handling,
)
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import (
    ABSENT,
    Column,
    Converter,
    Handling,
    SqlType,
    ValueType,
    null_or,
    refuse,
)
from cdc_formats.values.text import TEXT_TYPES


def _encoded_placeholder(handling: Handling) -> Any:
    write = binary.bytes_writer(SqlType("BINARY"), handling, False)
    return write((handling.placeholder or "").encode())


def _array_forms(handling: Handling, sql_type: SqlType) -> tuple[Any, ...]:
    element, text = sql_type.fields[0].type.name, handling.placeholder or ""
    if element in INTEGER_BITS or element == "DATE":
        return (list(text.encode()),)
    if element == "BINARY":
        return ([_encoded_placeholder(handling)],)
    # An array of UUIDs has the result of Java's UUID.nameUUIDFromBytes for the text.
    uuid = UUID(bytes=md5(text.encode(), usedforsecurity=False).digest(), version=3)
    return [text], [str(uuid)], [_encoded_placeholder(handling)]


# The placeholder in the message by the column's type (Debezium's UnchangedToastedPlaceholder).
_FORMS: dict[str, Callable[[Handling, SqlType], tuple[Any, ...]]] = {
    # A column of bytes may be declared as text, as it is written.
    **dict.fromkeys(
        (*TEXT_TYPES, "VARIANT"),
        lambda handling, _: (handling.placeholder, _encoded_placeholder(handling)),
    ),
    "BINARY": lambda handling, _: (_encoded_placeholder(handling),),
    "ARRAY": _array_forms,
    **dict.fromkeys(
        ("MAP", "STRUCT"), lambda handling, _: ({handling.placeholder: handling.placeholder},)
    ),
}


def placeholder_forms(sql_type: SqlType, handling: Handling) -> tuple[Any, ...]:
    """Return the message values for a column's unavailable value; empty if the type has none."""
    if handling.placeholder is None or sql_type.name not in _FORMS:
        return ()
    return _FORMS[sql_type.name](handling, sql_type)


def canonical_placeholder(sql_type: SqlType, placeholder: str | None) -> Any:
    """Return the canonical unavailable-value placeholder of a column, or None if it has none."""
    if placeholder is None:
        return None
    if sql_type.name in (*TEXT_TYPES, "VARIANT"):
        return placeholder
    if sql_type.name == "BINARY":
        return placeholder.encode()
    if sql_type.name == "MAP":
        return [[placeholder, placeholder]]
    if sql_type.name != "ARRAY":
        return None
    # For numbers, the placeholder's bytes (Debezium's UnchangedToastedPlaceholder).
    element = sql_type.fields[0].type
    item = canonical_placeholder(element, placeholder)
    return (
        list(placeholder.encode())
        if element.name in INTEGER_BITS
        else None
        if item is None
        else [item]
    )


TYPES: Mapping[str, ValueType] = {**numbers.TYPES, **text.TYPES, **binary.TYPES, **times.TYPES}
"""All types but ARRAY, MAP and STRUCT."""


def converter(sql_type: SqlType, handling: Handling) -> Converter:
    """Return the function from a message's value (never None) to the canonical value of `sql_type`.

    Raises
    ------
    ConversionError
        From the returned function, when a value does not have the type or is out of its range.
    """
    if sql_type.name in TYPES:
        convert = TYPES[sql_type.name].converter(sql_type, handling)
    else:
        convert = nested_converter(
            sql_type,
            lambda column: converter(column.type, part_handling(sql_type, column, handling)),
        )
    placeholders = placeholder_forms(sql_type, handling)
    if not placeholders:
        return convert
    return lambda value: ABSENT if value in placeholders else convert(value)


def writer(sql_type: SqlType, handling: Handling, *, iso: bool = False) -> Converter | None:
    """Return the inverse of `converter`: the function from a canonical value to a message's value.

    The canonical value is never None.

    `json_reader.json_bytes` writes its result, and `converter` with the same type and handling
    reads it as the same value. Decimals are plain (Flink's default writes ``100.00`` as ``1E+2``).
    A FLOAT has the fewest digits that identify it among 32-bit floats, as in Java. NaN and the
    infinities are text. A fraction of a second has its significant digits. A TIMESTAMP is text with
    a ``Z`` in every mode (Debezium's ZonedTimestamp); if `handling` has no unit for a time, it is
    text as well. Producers without JSON booleans and numbers (`Handling.native`) write text.

    Parameters
    ----------
    sql_type : SqlType
    handling : Handling
    iso : bool
        Whether to write a ``T`` between date and time if `handling` does not define it: Flink's
        ``timestamp-format.standard``.

    Returns
    -------
    callable or None
        None if the canonical value is also the JSON value.

    Raises
    ------
    SchemaError
        When the type cannot be written: a MAP's key is not a string, or a STRUCT has two fields of
        one name.
    ConversionError
        From the returned function, when a value would not be read back as the same value.
    """
    if sql_type.name in TYPES:
        write = TYPES[sql_type.name].writer(sql_type, handling, iso)
    else:
        parts = replace(handling, placeholder=None)
        write = nested_writer(sql_type, lambda column: writer(column.type, parts, iso=iso))
    placeholders = placeholder_forms(sql_type, handling)
    return (
        without_placeholder(sql_type, write, lambda _, written: written in placeholders)
        if placeholders
        else write
    )


def without_placeholder(
    sql_type: SqlType, write: Converter | None, collides: Callable[[Any, Any], bool]
) -> Converter:
    """Return a writer that refuses the values that are read as the unavailable-value placeholder.

    Parameters
    ----------
    sql_type : SqlType
    write : callable or None
    collides : callable
        From a canonical value and the written one to whether they are read as the placeholder.
    """

    def convert(value: Any) -> Any:
        written = value if write is None else write(value)
        if collides(value, written):
            raise refuse(
                sql_type,
                value,
                (
                    "it equals the placeholder for unavailable values: set "
                    "unavailable_value_placeholder to another text"
                ),
            )
        return written

    return convert


def to_python(columns: Sequence[Column], row: Sequence[Any]) -> tuple[Any, ...]:
    """Return a row's canonical values as Python values.

    Their types include ``Decimal``, ``date``, ``time``, ``datetime``, ``timedelta`` and ``dict``.

    Parameters
    ----------
    columns : sequence of Column
    row : sequence
        Canonical values in the order of the columns.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> to_python(columns("weight DECIMAL(10,3), day DATE"), ("3.140", 19000))
    (Decimal('3.140'), datetime.date(2022, 1, 8))
    """
    return tuple(
        [_to_python(column.type)(value) for column, value in zip(columns, row, strict=True)]
    )


def _to_python(sql_type: SqlType) -> Converter:
    if sql_type.name in TYPES:
        return null_or(TYPES[sql_type.name].to_python)
    return null_or(
        nested_to_python(sql_type, [_to_python(field.type) for field in sql_type.fields])
    )


def canonical_type(sql_type: SqlType) -> Any:
    """Return the msgspec type of a column's canonical values (never None), with their range."""
    if sql_type.name in TYPES:
        return TYPES[sql_type.name].canonical(sql_type)
    return nested_canonical(sql_type, [canonical_type(field.type) for field in sql_type.fields])


# --------------------------------------------------------------------------------------------------
# Which type has more values: for inference, for columns of tables, and for stored rows.
#
# =============  =====================================================================
# question       function
# =============  =====================================================================
# `wider`        the type that has every value of two types
# `cuts`         whether a column would silently lose part of another type's values
# `holds`        whether a type can represent all stored values of another
# =============  =====================================================================

MOST_DIGITS = 38
"""The most digits of a DECIMAL."""
_EXACT = {*INTEGER_BITS, "DECIMAL"}


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
    if names <= {*numbers.FLOAT_TYPES, "TINYINT", "SMALLINT", "INT"}:
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
        return other.name in _EXACT or other.name in numbers.FLOAT_TYPES
    if kind.name in _EXACT:
        return other.name in numbers.FLOAT_TYPES or _digits(other)[1] > _digits(kind)[1]
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
