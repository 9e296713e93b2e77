"""MongoDB's Extended JSON: conversion of document values to canonical ones (see `values.types`).

A BSON value without a JSON type is an object with a name that begins with ``$``, in one of three
forms: the strict mode of version 1 (``{"$date": 1589362330904}``), version 2 canonical
(``{"$date": {"$numberLong": "1589362330904"}}``) and version 2 relaxed
(``{"$date": "2020-05-13T09:32:10.904Z"}``, numbers as they are). All are read, by the column's
type:

=========================  =========================================================================
column                     values
=========================  =========================================================================
STRING                     text; ``$oid``, ``$symbol``, ``$code`` and numbers as their text, a
                           ``$date`` as ISO text, a UUID in its usual form; all else as compact JSON
numbers, BOOLEAN           JSON's own, ``$numberInt``, ``$numberLong``, ``$numberDouble``,
                           ``$numberDecimal``
TIMESTAMP, TIMESTAMP_NTZ   ``$date`` (of TIMESTAMP_NTZ in UTC), ``$timestamp`` (its seconds), text
DATE                       ``$date`` of a midnight in UTC, text
BINARY                     ``$binary``, ``$uuid``
VARIANT                    every value, as its Extended JSON
ARRAY, MAP, STRUCT         arrays and documents, their values likewise
=========================  =========================================================================

``$undefined`` is NULL. A plain number in a time column and plain text in a BINARY column are
errors.

Source: MongoDB's specification of Extended JSON; org.bson.json.JsonWriterSettings.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from typing import Any
from uuid import UUID

from .json_reader import json_text
from .nested import NESTED_TYPES, nested_converter
from .schema import Converter, Handling, SqlType, refuse
from .text import TEXT_TYPES
from .times import DAY_MICROS, TIMESTAMP_TYPES, timestamp_text
from .types import converter

_NUMBERS = ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal")
_MILLISECONDS: Callable[[Any], int] = converter(SqlType("TIMESTAMP"), Handling(epoch_unit="ms"))
_HEX_BYTE = re.compile("[0-9a-fA-F]{1,2}")


def document_converter(sql_type: SqlType, handling: Handling) -> Converter:
    """Return the function from a document's value to the canonical value of `sql_type`.

    The document's value is never None. The function returns None for ``$undefined``.

    Parameters
    ----------
    sql_type : SqlType
    handling : Handling
        The zone of zone-less text in a TIMESTAMP column, and the rounding.

    Raises
    ------
    ConversionError
        From the returned function, when a value does not have the type or is out of its range.
    """
    convert = _FACTORIES.get(sql_type.name, _number)(sql_type, handling)
    return lambda value: None if type(value) is dict and "$undefined" in value else convert(value)


def _only(value: Any, *names: str) -> Any:
    """Return the only member of an object if it has one of the names; otherwise None."""
    if type(value) is dict and len(value) == 1:
        (name,) = value
        return value[name] if name in names else None
    return None


def _number(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        return to(
            value if type(value) is not dict or (text := _only(value, *_NUMBERS)) is None else text
        )

    return convert


def _instant(value: dict[str, Any]) -> int | None:
    """Return the microseconds of ``$date`` and ``$timestamp``, or None for other values."""
    date = _only(value, "$date")
    if date is not None:
        if type(date) is dict:
            date = _only(date, "$numberLong")
        if type(date) is str and date.lstrip("-").isdigit():
            date = int(date)
        return _MILLISECONDS(date)
    stamp = _only(value, "$timestamp")
    if type(stamp) is dict and type(stamp.get("t")) is int:
        return _MILLISECONDS(stamp["t"] * 1000)
    return None


def _timestamp(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        if type(value) is dict:
            instant = _instant(value)
            if instant is not None:
                return instant
        elif type(value) is not str:
            raise refuse(sql_type, value, "a plain number is not a time in MongoDB: declare BIGINT")
        return to(value)

    return convert


def _date(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        instant = _instant(value) if type(value) is dict else None
        if instant is None:
            return to(value)
        days, rest = divmod(instant, DAY_MICROS)
        if rest:
            raise refuse(sql_type, value, "it has a time of day: declare TIMESTAMP")
        return days

    return convert


def _bytes(sql_type: SqlType, value: Any) -> tuple[bytes, int] | None:
    """Return the bytes and the subtype of ``$binary`` and ``$uuid``, or None for other values."""
    if type(value) is not dict:
        return None
    uuid = _only(value, "$uuid")
    try:
        if type(uuid) is str:
            return UUID(uuid).bytes, 4
        of = value.get("$binary")
        text, subtype = (
            (of.get("base64"), of.get("subType")) if type(of) is dict else (of, value.get("$type"))
        )
        if type(text) is not str or type(subtype) is not str or not _HEX_BYTE.fullmatch(subtype):
            return None
        return base64.b64decode(text, validate=True), int(subtype, 16)
    except ValueError:
        raise refuse(sql_type, value, "not base64, or not a UUID") from None


def _binary(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> bytes:
        binary = _bytes(sql_type, value)
        if binary is None:
            raise refuse(
                sql_type,
                value,
                "expected $binary" + (": declare STRING" if type(value) is str else ""),
            )
        return binary[0]

    return convert


def _string(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        if type(value) is str:
            return value
        return _text_of(sql_type, value) if type(value) is dict else to(value)

    return convert


def _text_of(sql_type: SqlType, value: dict[str, Any]) -> str:
    if len(value) <= 2:
        text = _only(value, "$oid", "$symbol", "$code", *_NUMBERS)
        if type(text) is str:
            return text
        if "$date" in value and (instant := _instant(value)) is not None:
            return timestamp_text(instant, "T") + "Z"
        binary = _bytes(sql_type, value)
        if binary is not None and binary[1] in (3, 4) and len(binary[0]) == 16:
            return str(UUID(bytes=binary[0]))
    return json_text(value)


_FACTORIES: dict[str, Callable[[SqlType, Handling], Converter]] = {
    **dict.fromkeys(TEXT_TYPES, _string),
    "BINARY": _binary,
    "VARIANT": converter,
    "DATE": _date,
    **dict.fromkeys(TIMESTAMP_TYPES, _timestamp),
    **dict.fromkeys(
        NESTED_TYPES,
        lambda sql_type, handling: nested_converter(
            sql_type, lambda column: document_converter(column.type, handling)
        ),
    ),
}
