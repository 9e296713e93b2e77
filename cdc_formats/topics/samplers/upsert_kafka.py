"""Samples of upsert-kafka: the formats of its key and value, and columns of registry schemas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from cdc_formats.avro.registry_options import RegistryOptions
from cdc_formats.errors import DecodeError
from cdc_formats.events import Headers
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from cdc_formats.topics.encodings import (
    FRAMED,
    FRAMED_JSON,
    JSON_BLOCK,
    JSON_NULL,
    JSON_OBJECT,
    JSON_PAYLOAD,
    JSON_VALUE,
    NULL,
)
from cdc_formats.topics.sampler import (
    Declaration,
    DeclaredColumn,
    Evidence,
    InspectedRecord,
    SampleCounts,
    Sampler,
)

if TYPE_CHECKING:
    from cdc_formats.avro.schema_registry import Registry

_REGISTRY = {option.name for option in fields(RegistryOptions)}
_OF_REGISTRY = {*FRAMED, *FRAMED_JSON}
_URL = "avro_confluent_url"
_DEFAULTS = {option.name: option.default for option in fields(UpsertKafka)}
_KEY_FORMATS: dict[str | None, str] = {
    None: "json",
    JSON_OBJECT: "json",
    JSON_BLOCK: "json",
    JSON_PAYLOAD: "json",
    **dict.fromkeys(FRAMED_JSON, "json"),
    **dict.fromkeys(FRAMED, "avro-confluent"),
}


class UpsertKafkaSampler(Sampler):
    """The hooks of ``upsert-kafka``."""

    format: UpsertKafka
    plain_rows = True

    @property
    def registry(self) -> Registry:
        """The registry of the options."""
        return self.format.registry

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return registry schemas' columns of value and key, and the Kafka key's primary key."""
        format, primary_key = self.format, tuple(self.key_columns(key, headers))
        if format.value_format == "json" and getattr(format, _URL):
            from cdc_formats.topics.samplers.debezium import REGISTRY_SCHEMA, json_columns

            declared = json_columns(format.registry, bytes(value), headers)
            return Declaration(REGISTRY_SCHEMA if declared else "", declared, primary_key)
        if format.value_format != "avro-confluent":
            return Declaration(primary_key=primary_key)
        from cdc_formats.topics.samplers.debezium import REGISTRY_SCHEMA, record_columns

        columns = record_columns(format.registry, "value", value, headers)
        names = {each.column.name for each in columns}
        of_key = self._of_key(key if primary_key else None, headers)
        only_in_key = [each for each in of_key if each.column.name not in names]
        return Declaration(REGISTRY_SCHEMA, [*only_in_key, *columns], primary_key)

    def _of_key(self, key: bytes | None, headers: Headers) -> list[DeclaredColumn]:
        """Return the columns of an Avro key, with the prefix of the row's columns."""
        if not key or self.format.key_format != "avro-confluent":
            return []
        from cdc_formats.topics.samplers.debezium import record_columns

        prefix = self.format.key_fields_prefix
        return [
            each._replace(column=replace(each.column, name=prefix + each.column.name))
            for each in record_columns(self.format.registry, "key", key, headers)
        ]

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the fields of a JSON or Avro key, with the prefix of the row's columns."""
        return self.format.key_columns(key, headers)

    def sample_notes(self, sample: SampleCounts) -> Iterable[str]:
        """Return a note on JSON's null, which can be a delete."""
        if sample.json_nulls and self.format.json_null == "fail":
            yield (
                f"{sample.json_nulls} values are JSON's null, which Debezium's "
                "ExtractNewRecordState writes for a delete: if they are deletes, set "
                "json_null='delete', or read the topic as debezium-flat-json"
            )

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the formats of key and value; registry options without a prefix apply to both."""
        values = [each.value.encoding for each in records]
        key, value = _most([each.key.encoding for each in records]), _most(values)
        named = _REGISTRY.intersection(options) if {key, value} & _OF_REGISTRY else ()
        detected = {
            **{f"avro_confluent_{name}": options[name] for name in named},
            "key_format": _KEY_FORMATS.get(key) or _plain_key(records),
            "value_format": "avro-confluent" if value in FRAMED else "json",
            "value_fields_include": "EXCEPT_KEY" if _key_apart(records) else "ALL",
            "json_null": "delete" if JSON_NULL in values else "fail",
        }
        return {name: option for name, option in detected.items() if option != _DEFAULTS[name]}

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Refuse a schema block and a null key."""
        if record.value.encoding in (JSON_BLOCK, JSON_PAYLOAD):
            return Evidence(
                refusal=DecodeError(
                    "a payload, with or without a schema block, would be a column of the row"
                )
            )
        return Evidence(
            refusal=DecodeError("the Kafka key is null", field="key")
            if record.key.encoding == NULL
            else None
        )


def _most(encodings: Iterable[str]) -> str | None:
    counted = Counter(each for each in encodings if each != NULL).most_common(1)
    return counted[0][0] if counted else None


def _plain_key(records: Sequence[InspectedRecord]) -> str:
    """Return the key format of single-value keys: ``csv`` for numbers, ``raw`` for text."""
    numbers = sum(
        isinstance(each.key.value, (int, Decimal))
        for each in records
        if each.key.encoding == JSON_VALUE
    )
    return "csv" if 2 * numbers > len(records) else "raw"


def _key_apart(records: Sequence[InspectedRecord]) -> bool:
    """Whether no value has a column of the key."""
    both = [each for each in records if each.key.fields and each.value.fields]
    return bool(both) and not any(set(each.key.fields) & set(each.value.fields) for each in both)
