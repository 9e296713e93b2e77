"""Debezium's unavailable-value placeholder, for values not in the log (unchanged TOAST values)."""

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
    return (
        base64.urlsafe_b64encode(raw).decode()
        if handling.binary == "base64-url-safe"
        else base64.b64encode(raw).decode()
    )


def _text_forms(handling: Handling, sql_type: SqlType) -> tuple[Any, ...]:
    # A column of bytes may be declared as text, as it is written.
    return handling.placeholder, _encoded_placeholder(handling)


def _array_forms(handling: Handling, sql_type: SqlType) -> tuple[Any, ...]:
    element, text = sql_type.fields[0].type.name, handling.placeholder or ""
    if element in INTEGER_BITS or element == "DATE":
        return (list(text.encode()),)
    if element == "BINARY":
        return ([_encoded_placeholder(handling)],)
    # An array of UUIDs has the result of Java's UUID.nameUUIDFromBytes for the text.
    uuid = UUID(bytes=md5(text.encode(), usedforsecurity=False).digest(), version=3)
    return [text], [str(uuid)], [_encoded_placeholder(handling)]


def _object_forms(handling: Handling, sql_type: SqlType) -> tuple[Any, ...]:
    return ({handling.placeholder: handling.placeholder},)


# The placeholder in the message by the column's type (Debezium's UnchangedToastedPlaceholder).
_FORMS: dict[str, Callable[[Handling, SqlType], tuple[Any, ...]]] = {
    **dict.fromkeys((*TEXT_TYPES, "VARIANT"), _text_forms),
    "BINARY": lambda handling, _: (_encoded_placeholder(handling),),
    "ARRAY": _array_forms,
    "MAP": _object_forms,
    "STRUCT": _object_forms,
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
