"""Readers of metadata for `MetadataColumn`: functions from message values to canonical values."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import msgspec

from cdc_formats.errors import MalformedMessageError, TypeConversionError
from cdc_formats.events import ControlEvent, Ignored
from cdc_formats.values.handling import ConversionError, Handling
from cdc_formats.values.json_reader import json_reader, json_text, read_json, read_object
from cdc_formats.values.schema import SqlType
from cdc_formats.values.times import LEAST_STAMP, MOST_STAMP
from cdc_formats.values.types import converter

_LEAST_MS, _MOST_MS = -(-LEAST_STAMP // 1000), MOST_STAMP // 1000
_TO_BIGINT = converter(SqlType("BIGINT"), Handling())
_TO_TIMESTAMP = converter(SqlType("TIMESTAMP"), Handling(time_zone="UTC"))


def unraw(value: Any) -> Any:
    """Return the value of a message's part that was kept as raw text."""
    return read_json(bytes(value)) if isinstance(value, msgspec.Raw) else value


def member(value: Any, name: str) -> Any:
    """Return a member of an object, or None if it is missing or the value is not an object.

    The other members are not read.
    """
    if isinstance(value, msgspec.Raw):
        try:
            return _member_reader(name)(value).member
        except MalformedMessageError:
            value = unraw(value)  # null, or not an object; it raises if the text is damaged
    return value.get(name) if isinstance(value, dict) else None


@lru_cache(maxsize=64)
def _member_reader(name: str) -> Callable[[bytes], Any]:
    return json_reader(
        msgspec.defstruct("Member", [("member", Any, None)], rename={"member": name}, gc=False),
        spelled=True,
    )


def text(value: Any) -> str | None:
    """Return a value as text: a string unchanged, anything else as compact JSON."""
    value = unraw(value)
    return value if value is None or isinstance(value, str) else json_text(value)


def named(value: Any) -> str | None:
    """Return a name, or None if it is missing, empty or not text."""
    return value if isinstance(value, str) and value else None


def table_event(value: bytes | None, reason: Ignored, statement: str = "sql") -> ControlEvent:
    """Return the control event of a message with ``database``, ``table`` and a statement's field."""
    message = read_object(value) if value else {}
    database, table, text = (named(message.get(name)) for name in ("database", "table", statement))
    return ControlEvent(reason, database, None, table, text)


def text_list(value: Any) -> list[Any] | None:
    """Return an array with its elements as text."""
    value = unraw(value)
    return [text(item) for item in value] if isinstance(value, list) else None


def text_map(value: Any) -> list[Any] | None:
    """Return an object as a canonical MAP<STRING, STRING>: text values, nested ones as JSON."""
    value = unraw(value)
    return (
        sorted([name, text(item)] for name, item in value.items())
        if isinstance(value, dict)
        else None
    )


def epoch_ms(value: Any, path: str) -> int | None:
    """Return a number of milliseconds since 1970 as a canonical TIMESTAMP, in microseconds."""
    if type(value) is int and _LEAST_MS <= value <= _MOST_MS:
        return value * 1000
    return None if value is None else _instant(_bigint(value, path) * 1000, path)


def epoch_s(value: Any, path: str) -> int | None:
    """Return a number of seconds since 1970 as a canonical TIMESTAMP, in microseconds."""
    return None if value is None else _instant(_bigint(value, path) * 1_000_000, path)


def timestamp(value: Any, path: str) -> int | None:
    """Return ISO or SQL text as a canonical TIMESTAMP, in UTC if it has no zone."""
    try:
        return None if value is None else _TO_TIMESTAMP(value)
    except ConversionError as error:
        raise TypeConversionError(str(error), path, bare=error.bare) from None


def bigint(value: Any, path: str) -> int | None:
    """Return a number as a canonical BIGINT."""
    return None if value is None else _bigint(value, path)


def int_map(value: Any, path: str) -> list[Any] | None:
    """Return an object as a canonical MAP<STRING, INT>."""
    value = unraw(value)
    if not isinstance(value, dict):
        return None
    return sorted(
        [name, None if item is None else _bigint(item, path)] for name, item in value.items()
    )


def _instant(micros: int, path: str) -> int:
    if LEAST_STAMP <= micros <= MOST_STAMP:
        return micros
    raise TypeConversionError("expected a time in the years 1 to 9999", path)


def _bigint(value: Any, path: str) -> int:
    try:
        number: int = _TO_BIGINT(value)
    except ConversionError as error:
        raise TypeConversionError(str(error), path, bare=error.bare) from None
    return number
