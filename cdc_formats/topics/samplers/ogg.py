"""Samples of GoldenGate's messages."""

from __future__ import annotations

from typing import Any

from cdc_formats.decoding.wrappers import message_fields
from cdc_formats.events import Headers
from cdc_formats.topics.declarations import listed_names
from cdc_formats.topics.sampler import Declaration, Sampler


class OggSampler(Sampler):
    """The hooks of ``ogg-json``."""

    marks = ("op_type", "before", "after", "table", "pos")
    operation_path = ("op_type",)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the primary key of ``primary_keys``."""
        return Declaration(
            primary_key=listed_names(message_fields(value).get("primary_keys")),
            key_source="primary_keys",
        )

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of ``primary_keys``."""
        return listed_names(message.primary_keys)
