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
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_formats.decoding.images import ABSENT

from . import binary, numbers, text, times
from .handling import Converter, Handling, null_or, refuse
from .nested import (
    nested_canonical,
    nested_converter,
    nested_to_python,
    nested_writer,
    part_handling,
)
from .placeholders import placeholder_forms
from .schema import Column, SqlType
from .value_type import ValueType

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
    return _with_placeholders(convert, placeholders) if placeholders else convert


def _with_placeholders(convert: Converter, placeholders: tuple[Any, ...]) -> Converter:
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
    return _no_placeholder(sql_type, write, placeholders) if placeholders else write


def _no_placeholder(
    sql_type: SqlType, write: Converter | None, placeholders: tuple[Any, ...]
) -> Converter:
    def convert(value: Any) -> Any:
        written = value if write is None else write(value)
        if written in placeholders:
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
