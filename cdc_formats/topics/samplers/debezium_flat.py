"""Samples of Debezium's rows without the envelope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_formats.decoding.metadata import member, text
from cdc_formats.errors import DecodeError
from cdc_formats.events import Headers
from cdc_formats.formats.debezium.envelope import is_complete
from cdc_formats.formats.debezium.flat import DebeziumFlatJson, connector_of, either
from cdc_formats.topics.encodings import EMPTY, JSON_BLOCK, JSON_NULL, JSON_PAYLOAD, NULL
from cdc_formats.topics.sampler import Declaration, Evidence, InspectedRecord, SampleCounts

from .debezium import DebeziumSampler


class DebeziumFlatSampler(DebeziumSampler):
    """The hooks of ``debezium-flat-json``."""

    format: DebeziumFlatJson
    marks = ("__deleted", "__op", "__table", "__db", "__source_ts_ms")
    operation_path = ("__op",)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return a schema block's columns without added fields, and the Kafka key's primary key."""
        declaration = super().declaration(key, value, headers)
        return declaration._replace(
            columns=[
                each for each in declaration.columns if not self.format.is_added(each.column.name)
            ]
        )

    def _connector_in(self, payload: Any) -> Any:
        prefix = self.format.add_fields_prefix
        return either(
            member(payload, f"{prefix}source_connector"), member(payload, f"{prefix}connector")
        )

    def connector(self, message: Any) -> str | None:
        """Return the added field ``connector``."""
        return text(connector_of(message.added)[0])

    def is_complete(self, message: Any) -> bool:
        """Whether the added fields name a connector that never writes the placeholder."""
        return is_complete(*connector_of(message.added))

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the connector's options that the schema blocks show, and `keyless`."""
        keyless = (
            {}
            if sample.with_key or self.format.keyless
            else {"keyless": (True, "no record has a Kafka key")}
        )
        return {**keyless, **super().inferred_options(sample)}

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return `keyless` if no record has a key."""
        return (
            {}
            if any(each.key.encoding not in (NULL, EMPTY) for each in records)
            else {"keyless": True}
        )

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has a schema block or added fields, or is JSON's null.

        A plain object without a key has none of these.
        """
        value = record.value
        distinctive = value.encoding in (JSON_BLOCK, JSON_PAYLOAD, JSON_NULL) or any(
            name in value.fields for name in self.marks
        )
        remarks = super().evidence(record).remarks
        if value.encoding == JSON_NULL:
            remarks = ("{} are JSON's null, which this format writes for a delete",)
        if record.key.encoding != NULL or distinctive:
            return Evidence(distinctive, remarks)
        return Evidence(
            False,
            remarks,
            DecodeError(
                "the Kafka key is null, and the value has none of Debezium's fields", field="key"
            ),
        )
