"""Samples of Maxwell's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc_formats.decoding.json_reader import read_json
from cdc_formats.decoding.wrappers import message_fields
from cdc_formats.errors import MalformedMessageError
from cdc_formats.events import Headers
from cdc_formats.topics.declarations import listed_names
from cdc_formats.topics.inference.observed import DIGITS
from cdc_formats.topics.sampler import Declaration, Sampler


class MaxwellSampler(Sampler):
    """The hooks of ``maxwell-json``."""

    marks = ("database", "table", "type", "ts", "data", "sql")
    operation_path = ("type",)
    not_asked = (DIGITS,)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the primary key of ``primary_key_columns``, or else of the Kafka key."""
        names = listed_names(message_fields(value).get("primary_key_columns"))
        return Declaration(
            primary_key=names or tuple(self.key_columns(key)),
            key_source="primary_key_columns, or the Kafka key",
        )

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of ``primary_key_columns``, or else of the Kafka key."""
        return listed_names(message.primary_key_columns) or tuple(self.key_columns(key))

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the columns of ``{"pk.id": 1}`` or of ``["shop", "parts", [{"id": 1}]]``."""
        try:
            value = read_json(key) if key else None
        except MalformedMessageError:
            return {}  # producer_partition_by may write any text
        match value:
            case dict():
                return {name[3:]: part for name, part in value.items() if name.startswith("pk.")}
            case [_, _, [*columns]]:
                return {
                    name: part
                    for each in columns
                    if isinstance(each, dict)
                    for name, part in each.items()
                }
        return {}
