"""Samples of Debezium's envelope in Avro."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from cdc_formats.avro.schema_registry import key_record
from cdc_formats.events import Headers
from cdc_formats.formats.debezium.avro import DebeziumAvro
from cdc_formats.topics.inference.observed import ColumnValues
from cdc_formats.topics.sampler import Declaration, Question, SampleCounts
from cdc_formats.values.schema import Column

from .debezium import (
    REGISTRY_SCHEMA,
    EnvelopeSampler,
    may_be_unsigned,
    record_columns,
    unsigned_notes,
    unsigned_option,
)


class DebeziumAvroSampler(EnvelopeSampler):
    """The hooks of ``debezium-avro-confluent``."""

    format: DebeziumAvro

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns of the value's schema, and the primary key of the Kafka key."""
        return Declaration(
            REGISTRY_SCHEMA,
            record_columns(self.format.registry, "value", value, headers),
            tuple(self.key_columns(key, headers)),
        )

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the fields of the Kafka key's record."""
        return key_record(self.format.registry, key, headers)

    def column_notes(
        self,
        column: Column,
        values: ColumnValues,
        notes: Sequence[str | Question],
        *,
        guessed: bool,
        connectors: Collection[str],
    ) -> Iterable[str | Question]:
        """Return the notes, and the connector's option for an unsigned BIGINT."""
        yield from notes
        yield from unsigned_notes(column, values) if may_be_unsigned(connectors) else ()

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the connector's option for an unsigned BIGINT."""
        return unsigned_option(sample)
