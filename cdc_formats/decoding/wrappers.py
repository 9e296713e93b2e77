"""The fields of JSON messages and keys, with or without Kafka Connect's wrapper of a schema block and a payload."""

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
    """Return the fields of a Kafka key, with or without a schema block; empty for a key that is not a JSON object."""
    fields = message_fields(key) if key else {}
    payload = fields["payload"] if is_wrapped(fields) else fields
    return payload if isinstance(payload, dict) else {}


def is_wrapped(fields: Mapping[str, Any]) -> bool:
    """Whether a JSON object is only the wrapper of a message or key: its payload, mostly next to its schema.

    Examples
    --------
    >>> is_wrapped({"schema": None, "payload": {"id": 1}}), is_wrapped({"payload": {"id": 1}}), is_wrapped({"payload": 1})
    (True, True, False)
    """
    if set(fields) == {"payload"}:
        return fields["payload"] is None or isinstance(fields["payload"], dict)
    return set(fields) == {"schema", "payload"}
