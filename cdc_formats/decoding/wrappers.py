"""Fields of JSON messages and keys, also in Kafka Connect's wrapper of schema and payload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_formats.errors import MalformedMessageError

from .json_reader import read_json


def message_fields(value: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object; empty for another value."""
    try:
        fields = read_json(value)
    except (MalformedMessageError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def key_fields(key: bytes | None) -> dict[str, Any]:
    """Return a Kafka key's fields, with or without schema block; empty if it is no JSON object."""
    fields = message_fields(key) if key else {}
    payload = fields["payload"] if is_wrapped(fields) else fields
    return payload if isinstance(payload, dict) else {}


def is_wrapped(fields: Mapping[str, Any]) -> bool:
    """Return whether a JSON object only wraps a message or key: its payload, mostly with schema.

    Examples
    --------
    >>> is_wrapped({"schema": None, "payload": {"id": 1}}), is_wrapped({"payload": {"id": 1}}), is_wrapped({"payload": 1})
    (True, True, False)
    """
    if set(fields) == {"payload"}:
        return fields["payload"] is None or isinstance(fields["payload"], dict)
    return set(fields) == {"schema", "payload"}
