"""Debezium's samples: columns and connector options from schemas, and notes on guesses.

A schema is in a message's block or in a registry. Also samples of rows without the envelope, and of
MongoDB's documents (Extended JSON as plain values).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar

from cdc_formats.avro.schema_registry import Registry, key_record, unframed
from cdc_formats.decoding.envelope import member, text
from cdc_formats.errors import DecodeError, MalformedMessageError, SchemaError, WriterSchemaError
from cdc_formats.events import Headers
from cdc_formats.formats.debezium.avro import DebeziumAvro
from cdc_formats.formats.debezium.flat import DebeziumFlatJson, connector_of, either
from cdc_formats.formats.debezium.json import DebeziumJson, is_complete, is_complete_source
from cdc_formats.topics.declared import DeclaredColumn, Question
from cdc_formats.topics.inference.observed import BASE64, DIGITS, ColumnValues
from cdc_formats.topics.inference.source_types import (
    MYSQL_CONNECTORS,
    avro_columns,
    connect_columns,
    json_schema_columns,
    row_schema,
)
from cdc_formats.topics.sampler import (
    EMPTY,
    JSON_BLOCK,
    JSON_NULL,
    JSON_PAYLOAD,
    NULL,
    Declaration,
    Evidence,
    InspectedRecord,
    SampleCounts,
    Sampler,
)
from cdc_formats.values.connect_schema import CONNECT, DEBEZIUM_TIME, key_fields, message_fields
from cdc_formats.values.frames import SchemaId
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import Column
from cdc_formats.values.types import MOST_DIGITS

REGISTRY_SCHEMA = "schema registry"
"""The source of columns that a registry's schema declares."""


def record_columns(
    registry: Registry, part: str, data: bytes, headers: Headers = ()
) -> tuple[DeclaredColumn, ...]:
    """Return the columns of the schema of a key or value.

    Parameters
    ----------
    registry : Registry
    part : {"key", "value"}
    data : bytes
    headers : sequence of (str, bytes or None)

    Raises
    ------
    WriterSchemaError
        When the schema does not describe a table.
    """
    return _columns(registry, unframed(part, data, headers)[0], "AVRO")


def json_columns(
    registry: Registry, value: bytes, headers: Headers = (), connector: str = ""
) -> tuple[DeclaredColumn, ...]:
    """Return the columns of a value's JSON Schema; none if it has no schema in the registry.

    Parameters
    ----------
    registry : Registry
    value : bytes
    headers : sequence of (str, bytes or None)
    connector : str
        Same as `json_schema.json_schema_columns`.

    Raises
    ------
    WriterSchemaError
        When the schema does not describe a table.
    """
    try:
        name = unframed("value", bytes(value), headers)[0]
    except MalformedMessageError:
        return ()
    return _columns(registry, name, "JSON", connector)


@lru_cache(maxsize=1000)
def _columns(
    registry: Registry, name: SchemaId, kind: str, connector: str = ""
) -> tuple[DeclaredColumn, ...]:
    """Return the columns of a schema in a registry; none of one that is not of the kind."""
    try:
        if kind == "AVRO":
            return tuple(avro_columns(registry.client.schema(name)))
        schema = registry.client.json_schema(name)
        return () if schema is None else tuple(json_schema_columns(schema, connector))
    except SchemaError as error:
        raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None


SCHEMA_BLOCK = "schema block"
"""The source of columns that a schema block declares."""
_UNSIGNED = "bigint_unsigned_handling_mode"
_DIGITS_NOTE = Question(
    "every value is digits: if it is a DECIMAL, declare it, and decimal_handling_mode='string'",
    {"decimal_handling_mode": ("precise", "double")},
)
_BASE64_NOTE = Question(
    "every value is base64: if it is BINARY, declare it; if it is a DECIMAL, declare it, and "
    "decimal_handling_mode='precise' (its scale is not in the message)",
    {"decimal_handling_mode": ()},
)


class EnvelopeSampler(Sampler):
    """The hooks of the formats with Debezium's envelope."""

    operation_path = ("op",)
    uses_kafka_key = True

    def connector(self, message: Any) -> str | None:
        """Return the name of the connector in ``source``."""
        name = member(message.source, "connector")
        return None if name is None else str(name)

    def is_complete(self, message: Any) -> bool:
        """Whether the connector in ``source`` never writes the placeholder."""
        return is_complete_source(message.source)

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has a schema block."""
        return Evidence(
            remarks=("{} of {} have a schema block",) if record.value.encoding == JSON_BLOCK else ()
        )


class RowSampler(EnvelopeSampler):
    """The hooks of the formats whose envelope has rows."""

    def column_notes(
        self,
        column: Column,
        values: ColumnValues,
        notes: Sequence[str | Question],
        *,
        guessed: bool,
        connectors: Collection[str],
    ) -> Iterable[str | Question]:
        """Return the notes with the connector's options that a bare message does not show."""
        unsigned = set(connectors) <= {"", *MYSQL_CONNECTORS}
        named: dict[str | Question, Question] = {DIGITS: _DIGITS_NOTE, BASE64: _BASE64_NOTE}
        for note in notes:
            yield named.get(note, note) if guessed else note
            if guessed and unsigned and note == BASE64 and max(values.lengths or (0,)) <= 12:
                yield Question(
                    "if it is an unsigned BIGINT, declare DECIMAL(20,0), and "
                    "bigint_unsigned_handling_mode='precise'",
                    {_UNSIGNED: ()},
                )
        if guessed and column.type.name == "BIGINT" and not values.has_small_integers:
            yield Question(
                "an integer; Debezium writes DATE, TIME and TIMESTAMP as integers too, and without "
                "a schema block its unit is not in the message: if it is one, declare it, and "
                "time_precision_mode",
                {"time_precision_mode": ("isostring",)},
            )
        if unsigned and column.type.name == "BIGINT" and values.has_negative_integers:
            yield Question(
                "it has negative numbers: if the source's column is an unsigned BIGINT, declare DECIMAL(20,0), "
                "and bigint_unsigned_handling_mode='long'",
                {_UNSIGNED: ()},
            )

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the option for an unsigned BIGINT if a schema declares one as a signed number."""
        if any(_UNSIGNED in each.note for each in chain.from_iterable(sample.declared.values())):
            reason = "the schema declares an unsigned BIGINT as a signed number"
            return {_UNSIGNED: ("long", reason)}
        return {}


class DebeziumSampler(RowSampler):
    """The hooks of ``debezium-json``."""

    format: DebeziumJson
    marks: ClassVar[tuple[str, ...]] = ("before", "after", "op", "source", "ddl", "ts_ms")
    exact_numbers = False

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns of a schema block, and the primary key of the Kafka key.

        Without a block, the columns are those of the value's JSON Schema, if the options name a
        registry that has it.
        """
        message, primary_key = message_fields(value), tuple(self.key_columns(key))
        match message:
            case {"schema": dict(block), "payload": payload} if "op" not in message:
                connector = str(self._connector_in(payload) or "")
                try:
                    declared = connect_columns(row_schema(block), connector)
                except SchemaError as error:
                    raise MalformedMessageError(str(error.args[0]), "$.schema") from None
                return Declaration(SCHEMA_BLOCK, declared, primary_key)
        registry, connector = self.registry, str(self._connector_in(message) or "")
        columns = () if registry is None else json_columns(registry, value, headers, connector)
        return Declaration(REGISTRY_SCHEMA if columns else "", columns, primary_key)

    def _connector_in(self, payload: Any) -> Any:
        return member(member(payload, "source"), "connector")

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the connector's options that the schema blocks show."""
        declared = dict(block_options(sample)) if sample.sources.keys() - {""} else {}
        return {**super().inferred_options(sample), **declared}

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has a schema block, and whether it is a schema change.

        Only this format has schema changes.
        """
        return super().evidence(record)._replace(distinctive="ddl" in record.value.fields)


def block_options(sample: SampleCounts) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Return the options that a sample's schema blocks show, with their values and reasons."""
    source_types = {each.source_type for declared in sample.declared.values() for each in declared}
    names = {text.partition(",")[0].rpartition(".")[2] for text in source_types}
    blocks = sample.sources[SCHEMA_BLOCK]
    schema = "the schema block" if blocks else "the registry's schema"
    if blocks == sample.messages:
        yield "schema_include", (True, f"all {sample.messages} messages have a schema block")
    if _any_starts(source_types, CONNECT + "Decimal"):
        yield "decimal_handling_mode", ("precise", f"{schema} has Connect's Decimal")
    epochs = not blocks and bool(
        names & {"Timestamp", "MicroTimestamp", "NanoTimestamp", "MicroTime"}
    )
    modes = (
        (_any_starts(source_types, CONNECT + "Time"), "connect", "Connect's Time or Timestamp"),
        (_any_starts(names, "Iso"), "isostring", "Debezium's Iso types"),
        (_any_starts(names, "Structured"), "structured", "Debezium's structured types"),
        (DEBEZIUM_TIME + "Time" in source_types, "adaptive", "io.debezium.time.Time"),
        (epochs, "adaptive_time_microseconds", "io.debezium.time's epochs"),
    )
    for mode, types in [(mode, types) for is_shown, mode, types in modes if is_shown][:1]:
        yield "time_precision_mode", (mode, f"{schema} has {types}")


def _any_starts(names: Iterable[str], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in names)


class DebeziumAvroSampler(RowSampler):
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


# --------------------------------------------------------------------------------------------------
# Samples of Debezium's rows without the envelope


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


# --------------------------------------------------------------------------------------------------
# Samples of Debezium's messages of MongoDB, and Extended JSON as plain values


class DocumentSampler(Sampler):
    """The hooks of formats whose rows are MongoDB's documents."""

    not_asked = (DIGITS, BASE64)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return ``_id``, the primary key of every collection."""
        return Declaration(primary_key=("_id",), key_source="of every collection")

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return ``_id``, the primary key of every collection."""
        return ("_id",)

    def plain_value(self, value: Any) -> Any:
        """Return a value of Extended JSON as JSON writes it."""
        return _of_document(value)


class MongodbSampler(DocumentSampler):
    """The hooks of ``mongodb-json``."""

    marks = ("operationType", "ns", "documentKey", "fullDocument")
    operation_path = ("operationType",)


class DebeziumMongodbSampler(DocumentSampler, EnvelopeSampler):
    """The hooks of ``debezium-mongodb-json``."""

    marks = ("op", "source", "after", "updateDescription")

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return ``_id``, which is Extended JSON as text in the Kafka key."""
        fields = key_fields(key)
        if "id" not in fields:
            return {}
        document = str(fields["id"])
        try:
            return {"_id": read_json(document.encode())}
        except MalformedMessageError:
            return {"_id": document}

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has a document as text, or an update's description."""
        fields = record.value.fields
        return (
            super()
            .evidence(record)
            ._replace(
                distinctive=isinstance(fields.get("after"), str) or "updateDescription" in fields
            )
        )


def _of_document(value: Any) -> Any:
    """Return a MongoDB Extended JSON value as a Python value of its kind; the value may differ."""
    if isinstance(value, list):
        return [_of_document(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if not isinstance(value, dict):
        return value
    marks = {name: part for name, part in value.items() if name.startswith("$")}
    if not marks:
        return {name: _of_document(part) for name, part in value.items()}
    name, part = next(iter(marks.items()))
    return _BSON[name](part) if name in _BSON else str(value)


def _of_number(text: Any) -> Any:
    if not isinstance(text, str) or not re.fullmatch(
        r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", text
    ):
        return str(text)  # NaN and Infinity too
    number = Decimal(text)
    # Without an exponent, because an exponent marks a double.
    return Decimal(f"{number:f}") if number.adjusted() < MOST_DIGITS else float(number)


def _of_integer(text: Any) -> Any:
    return (
        int(text) if isinstance(text, str) and re.fullmatch("[+-]?[0-9]{1,19}", text) else str(text)
    )


_AN_INSTANT = datetime(2000, 1, 1)
_BSON: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$numberInt": _of_integer,
    "$numberLong": _of_integer,
    "$numberDouble": lambda _: 0.0,
    "$numberDecimal": _of_number,
    "$date": lambda _: _AN_INSTANT,
    "$timestamp": lambda _: _AN_INSTANT,
    "$binary": lambda _: b"",
    "$uuid": lambda _: b"",
    "$undefined": lambda _: None,
}
