"""Debezium's unavailable-value placeholder: it replaces a value that the log does not contain (an unchanged TOAST value)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from hashlib import md5
from typing import Any
from uuid import UUID

from .handling import Handling
from .numbers import INTEGER_BITS
from .schema import SqlType
from .text import TEXT_TYPES


def _encoded_placeholder(handling: Handling) -> str:
    raw = (handling.placeholder or "").encode()
    if handling.binary == "hex":
        return raw.hex()
    return base64.urlsafe_b64encode(raw).decode() if handling.binary == "base64-url-safe" else base64.b64encode(raw).decode()


class _OneOf:
    """An object that is equal to each of several values."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *values: Any) -> None:
        self.values = values

    def __eq__(self, other: object) -> bool:
        return other in self.values


def _array_placeholder(handling: Handling, sql_type: SqlType) -> Any:
    element, text = sql_type.fields[0].type.name, handling.placeholder or ""
    if element in INTEGER_BITS or element == "DATE":
        return list(text.encode())
    if element == "BINARY":
        return [_encoded_placeholder(handling)]
    # An array of UUIDs has the result of Java's UUID.nameUUIDFromBytes for the text.
    uuid = UUID(bytes=md5(text.encode(), usedforsecurity=False).digest(), version=3)
    return _OneOf([text], [str(uuid)])


# The placeholder in the message by the column's type (Debezium's UnchangedToastedPlaceholder).
_PLACEHOLDERS: dict[str, Callable[[Handling, SqlType], Any]] = {
    **dict.fromkeys(TEXT_TYPES, lambda handling, _: handling.placeholder),
    "BINARY": lambda handling, _: _encoded_placeholder(handling),
    "ARRAY": _array_placeholder,
    "MAP": lambda handling, _: {handling.placeholder: handling.placeholder},
}


def placeholder_form(sql_type: SqlType, handling: Handling) -> Any:
    """Return the message's value for an unavailable value of a column, or None if the type has none."""
    if handling.placeholder is None or sql_type.name not in _PLACEHOLDERS:
        return None
    return _PLACEHOLDERS[sql_type.name](handling, sql_type)


def canonical_placeholder(sql_type: SqlType, placeholder: str | None) -> Any:
    """Return the canonical value of the unavailable-value placeholder in a column, or None if it has none."""
    if placeholder is None:
        return None
    if sql_type.name in TEXT_TYPES:
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
    return list(placeholder.encode()) if element.name in INTEGER_BITS else None if item is None else [item]
