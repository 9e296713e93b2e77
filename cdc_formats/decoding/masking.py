"""Masked columns: their types in the result, and their values.

======  ==============  ==========================================================================
mask    type            value
======  ==============  ==========================================================================
hmac    STRING          the HMAC-SHA-256 of the column's canonical text in UTF-8, as 64 hexadecimal
                        digits in lower case. Equal values have equal masks.
redact  STRING          ``***`` for a CHAR, VARCHAR or STRING
redact  as declared     NULL for other types; the column is nullable
drop    none            the column is not in the result
======  ==============  ==========================================================================

NULL stays NULL, and a column that a message leaves out stays left out. The canonical text is that
of the declared type, however the producer encodes the value: ``true``, ``42``, the digits of a
DECIMAL with its scale (``9.50``), ``2026-11-24``, ``2026-11-24 12:30:00.5`` (a TIMESTAMP is in UTC,
and ends in ``Z``), the text itself. Of a BINARY, it is the bytes. -0.0 is 0.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cdc_formats.errors import SchemaError
from cdc_formats.values.equality import unifier
from cdc_formats.values.handling import Converter
from cdc_formats.values.images import ABSENT
from cdc_formats.values.masks import DROP, HMAC, REDACT, Masks
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.types import TYPES

REDACTED = "***"
_STRING = SqlType("STRING")


def check_masks(masks: Masks, columns: Sequence[Column], unique_key: Sequence[str]) -> None:
    """Raise an error for masks that the columns cannot have.

    Parameters
    ----------
    masks : Masks
    columns : sequence of Column
        The declared columns.
    unique_key : sequence of str

    Raises
    ------
    SchemaError
    """
    types = {column.name: column.type for column in columns}
    if unused := masks.unused({"": types}):
        raise SchemaError(
            f"mask has {unused[0]!r}, which is not one of the columns: {', '.join(types)}"
        )
    for name, kind in masks.of_columns(types).pairs:
        if kind != HMAC and name in unique_key:
            raise SchemaError(
                f"mask has {kind!r} for {name!r}, which is part of the primary key: use 'hmac', "
                "which keeps different keys different"
            )
        if kind == HMAC and types[name].name not in TYPES:
            raise SchemaError(
                f"mask has 'hmac' for {name!r}, which is {types[name]}: use 'redact' or 'drop', or "
                "declare the column as STRING"
            )
    if masks and not read_columns(columns, masks):
        raise SchemaError("mask drops all columns: leave one of them")


def read_columns(columns: Sequence[Column], masks: Masks) -> tuple[Column, ...]:
    """Return the columns that are read from messages: all but those that are dropped."""
    return tuple(column for column in columns if masks.kind(column.name) != DROP)


def result_columns(columns: Sequence[Column], masks: Masks) -> tuple[Column, ...]:
    """Return the columns of the result, with the types of masked values."""
    return tuple(result_column(column, masks) for column in read_columns(columns, masks))


def result_column(column: Column, masks: Masks) -> Column:
    """Return a column with the type of its masked values."""
    kind = masks.kind(column.name)
    if kind is None:
        return column
    if kind == HMAC or column.type.name in TEXT_TYPES:
        return replace(column, type=_STRING)
    return replace(column, nullable=True)


def masked(convert: Converter, column: Column, masks: Masks) -> Converter:
    """Return the converter of a column to its masked values.

    Parameters
    ----------
    convert : callable
        From a message's value to the canonical value of the declared type, or `ABSENT`.
    column : Column
        As declared.
    masks : Masks
    """
    kind = masks.kind(column.name)
    if kind is None:
        return convert
    if kind == HMAC:
        message_of, digest = _message_of(column.type), masks.digest
        return _if_there(convert, lambda value: digest(message_of(value)))
    assert kind in (REDACT, DROP)  # of the latter, no value is read
    constant = REDACTED if column.type.name in TEXT_TYPES else None
    return _if_there(convert, lambda value: constant)


def _if_there(convert: Converter, mask: Callable[[Any], Any]) -> Converter:
    def masked_value(value: Any) -> Any:
        canonical = convert(value)
        return canonical if canonical is ABSENT or canonical is None else mask(canonical)

    return masked_value


def _message_of(sql_type: SqlType) -> Callable[[Any], bytes]:
    """Return the function from a canonical value to the bytes whose HMAC is its mask."""
    if sql_type.name == "BINARY":
        return bytes
    to_text, unify = TYPES[sql_type.name].to_text, unifier(sql_type)
    if unify is None:
        return lambda value: to_text(value).encode()
    return lambda value: to_text(unify(value)).encode()
