"""Debezium's envelope in Avro with schemas in a registry.

It was recorded with Debezium 3.6 and 3.4, and the Avro converter.

A message is a schema id followed by Avro (`schema_registry`), or only Avro with the id in a
header::

    0x00 00000008 <Avro of a record Envelope>

    record Envelope {before: null or Value, after: null or Value, source: Source, op: string, ts_ms: null or long, ...}
    record Value    {id: int, name: null or string, weight: null or decimal, ...}

==================  =====================================================================
op                  rows
==================  =====================================================================
``c``, ``r``        ``+I`` after
``u``               ``-U`` before, ``+U`` after
``d``               ``-D`` before
``t``               `Ignored.TRUNCATE`
``m``               `Ignored.MESSAGE`
no op               heartbeat, transaction mark and schema change: `Ignored`
==================  =====================================================================

Changelog mode: all. Key: not read; written if a primary key and `key_subject` are set. Null value:
`Ignored.TOMBSTONE` (the ``d`` before it was the delete).

Absent and null: a column that is not in the writer's schema is NULL. The unavailable-value
placeholder is `ABSENT` by the column's type, and completed as in debezium-json. So is a column that
is null in both images of an update of Spanner.

Types: exactly as in the writer's schema (the table in `cdc_formats.avro.records`). Only the zone of
zone-less text, the text form of bytes, and negative numbers in a ``DECIMAL(20,0)`` column have to
be declared. Columns are found by name in each message's schema.

Differs from Flink:

- Debezium's and Connect's own types are read by ``connect.name``, and times in every precision
  (Flink reads every long as milliseconds, so that a MicroTimestamp is wrong by a factor of 1000). A
  long without such a name is an error in a TIMESTAMP column.
- A decimal has the writer's scale (Flink: the column's).
- ``t``, ``m``, heartbeats, transaction marks and schema changes are results (Flink: "Unknown op",
  or an exception).
- A null ``before`` is an error only if ``-U`` is required; a keyed stage completes it (Flink:
  always an error).
- There are metadata columns and filters, as for debezium-json (Flink: none). The id can be in a
  header (Flink: only before the Avro).
- A registry that does not answer stops the query in every mode; an unknown id is a bad record.
- An update with a known before-image is written as one message, ``op`` ``u`` (Flink: a delete and
  an insert).

Source: io.debezium.data.Envelope, io.debezium.time.*; Confluent's AvroData; Flink's
DebeziumAvroDeserializationSchema and AvroSchemaConverter; Debezium's connector pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

from cdc_formats.avro.records import (
    RECORD,
    AvroSchema,
    avro_bytes,
    avro_writer,
    record_schema,
    row_converter,
)
from cdc_formats.avro.registry_client import RegistryOptions, require_fastavro
from cdc_formats.avro.schema_registry import VALUE_HEADER, Registry, framed, plain_value, unframed
from cdc_formats.decoding.envelope import (
    Envelope,
    Framing,
    TableFilter,
    fields_struct,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.decoding.scalar_reader import ScalarReader
from cdc_formats.encoding import ImageWriter, RowWriter, refuse_filters
from cdc_formats.errors import (
    FormatOptionError,
    MalformedMessageError,
    MissingFieldError,
    WriterSchemaError,
)
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, KeyValue, Reader, RowKind
from cdc_formats.format import Encoder, MetadataColumn, table_filter
from cdc_formats.values.frames import SchemaId, id_of
from cdc_formats.values.schema import Column, Handling, columns as to_columns

from .json import (
    BINLOG_CONNECTORS,
    CELL_CONNECTORS,
    CONNECTOR as SPANNER,
    SCHEMAS_KEPT,
    DebeziumJson,
    PositionSource,
    RowEnvelope,
    SourceFields,
    control_event_of,
    envelope_of,
    is_complete_source,
    plain_structs,
    refuse_cells,
    without_op,
)

_BINLOG_SOURCES = tuple(f"io.debezium.connector.{name}.Source" for name in BINLOG_CONNECTORS)


@dataclass(frozen=True, kw_only=True)
class DebeziumAvro(RowEnvelope, RegistryOptions):
    """Debezium's envelope in Avro, through a schema registry.

    Parameters
    ----------
    url, basic_auth_user_info, bearer_auth_token, ssl_ca_location, ssl_certificate_location,
    ssl_key_location, ssl_key_password
        The registry's options, as in `registry_client.RegistryOptions`.
    properties, retry_seconds
        As in `registry_client.RegistryOptions`.
    subject, key_subject : str or None
        The subjects for writing the schemas of values and keys; `for_topic` sets ``<topic>-value``
        and ``<topic>-key``. Without `key_subject` records have no key.
    auto_register_schemas : bool
        Whether a missing schema is registered (as in Flink) or is an error.
    binary_handling_mode : {"bytes", "base64", "base64-url-safe", "hex"}
        The connector's ``binary.handling.mode``: the text form of bytes; by default there is none.
    bigint_unsigned_handling_mode : {"long", "precise"} or None
        The connector's ``bigint.unsigned.handling.mode`` (Debezium's default is ``long``): the
        meaning of a negative number in a ``DECIMAL(20,0)`` column.
    unavailable_value_placeholder : str
        The connector's ``unavailable.value.placeholder``; ignored in messages of MySQL's and
        MariaDB's connectors before Debezium 3.7, which never write it.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    database_include, table_include : str or None
        Regular expressions that ``source.db`` and ``source.table`` must match in full; other tables
        are ignored.
    """

    identifier = "debezium-avro-confluent"
    reads_headers = True
    sampler = "cdc_formats.topics.samplers.debezium:DebeziumAvroSampler"

    subject: str | None = None
    key_subject: str | None = None
    auto_register_schemas: bool = True

    # Those of debezium-json without the schema block.
    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        name: of for name, of in DebeziumJson.metadata.items() if name != "schema"
    }
    table_identity: ClassVar[Mapping[str, str]] = DebeziumJson.table_identity

    def __post_init__(self) -> None:
        require_fastavro(self.identifier)
        super().__post_init__()
        RegistryOptions.__post_init__(self)

    @property
    def registry(self) -> Registry:
        """The registry of the options."""
        return Registry(**{option.name: getattr(self, option.name) for option in fields(Registry)})

    @property
    def encodings(self) -> Handling:
        """The handling of values that a writer's schema does not define."""
        return Handling(
            time="isostring",
            decimal="string",
            binary=self.binary_handling_mode,
            bigint_unsigned=self.bigint_unsigned_handling_mode,
            time_zone=self.time_zone,
            placeholder=self.unavailable_value_placeholder,
        )

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise if no registry is configured."""
        self.registry.require_url("url")

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages; it fetches registry schemas on first use."""
        return _Reader(_Schemas(self, rows), self.envelope(rows), rows, table_filter(self))

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are; a missing column is NULL."""
        schemas = _Schemas(self, rows)
        return envelope_of(
            rows,
            metadata,
            _PLAIN,
            positions=positions,
            framing=Framing(
                frame=self.registry.frame_size,
                header=VALUE_HEADER,
                by_block=schemas.rows_of,
                writer_schema=schemas.schema_of,
            ),
        )

    def for_topic(self, topic: str) -> DebeziumAvro:
        """Return the format with missing subjects set to ``<topic>-value`` and ``<topic>-key``."""
        return replace(
            self,
            subject=self.subject or f"{topic}-value",
            key_subject=self.key_subject or f"{topic}-key",
        )

    def encoder(
        self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()
    ) -> Encoder:
        """Return the encoder of one table's rows; it registers their schema with the first row."""
        return _Encoder(self, to_columns(columns), unique_key)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return a control event: schema change, transaction mark, truncate or logical message."""
        message = None
        with suppress(MalformedMessageError, WriterSchemaError):
            message = plain_value(self.registry, "value", bytes(value or b""), headers)
        return control_event_of(message if isinstance(message, dict) else {}, reason, self.handling)


_Message: Any = fields_struct("op before after source ts_ms")
"""The fields of an envelope."""
_PLAIN = plain_structs(fields_struct("op ts_ms source"), SourceFields, PositionSource)
"""The fields of an envelope other than the images."""


def _fields_of(message: Mapping[str, Any]) -> Any:
    return _Message(*map(message.get, _Message.__struct_fields__))


class _Reader(ScalarReader):
    """Reads the messages of one table."""

    def __init__(
        self, schemas: _Schemas, envelope: Envelope, rows: RowConverter, tables: TableFilter
    ) -> None:
        super().__init__(envelope, rows, tables, keyed=rows.untyped)
        self.schemas, self.registry = schemas, schemas.format.registry

    def __call__(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        assert value is not None  # reads_tombstones is False
        data = bytes(value)
        if self.rows.untyped:
            message = plain_value(self.registry, "value", data, headers)
            if not isinstance(message, dict):
                raise MalformedMessageError("expected a record", "$")
            return (
                self.events(_fields_of(message), data)
                if "op" in message
                else without_op(message, "$")
            )
        name, content = unframed("value", data, headers)
        written = self.schemas.of(name)
        message = written.schema.read(content)
        if message is None:
            raise MissingFieldError("the envelope is null", "$")
        if written.rows is None:
            return without_op(message, "$")
        fields, rows = _fields_of(message), written.rows
        if written.complete is not None and is_complete_source(fields.source):
            rows = written.complete
        return self.events(fields, data, rows=rows)


class _Schemas:
    """The writers' schemas of one table's messages, each compiled once."""

    def __init__(self, format: DebeziumAvro, rows: RowConverter) -> None:
        self.format, self.rows = format, rows
        self.of = lru_cache(SCHEMAS_KEPT)(self._of)

    def rows_of(self, frame: bytes) -> RowConverter | None:
        """Return the row converter of messages with a frame; None for the scalar decoder."""
        name = id_of(frame)
        written = None if name is None else self.of(name)
        return None if written is None or written.partial else written.rows

    def schema_of(self, frame: bytes) -> AvroSchema:
        """Return the writer's schema of messages with a frame."""
        name = id_of(frame)
        assert name is not None
        return self.of(name).schema

    def _of(self, name: SchemaId) -> _Envelope:
        """Return a schema and the converter of its rows."""
        schema = self.format.registry.client.schema(name)
        try:
            handling, record = self.format.handling, schema.record_of(schema.top)
            types = {} if record is None else schema.fields(record)
            of_source = schema.record_of(types["source"]) if "source" in types else None
            source = "" if of_source is None else str(of_source["name"])
            # The columnar decoder does not read the connector's name.
            refuse_cells(next((name for name in CELL_CONNECTORS if name in source.lower()), None))
            return _Envelope(
                schema,
                self._rows(schema, handling),
                self._rows(schema, replace(handling, placeholder=None))
                if source in _BINLOG_SOURCES
                else None,
                SPANNER in source,
            )
        except WriterSchemaError as error:
            raise WriterSchemaError(f"schema {name}: {error.reason}") from None

    def _rows(self, schema: AvroSchema, handling: Handling) -> RowConverter | None:
        record = schema.record_of(schema.top)
        if record is None:
            raise WriterSchemaError("its writer's schema is not a record")
        types = schema.fields(record)
        if "op" not in types:
            return None
        images = {
            name: schema.record_of(types[name]) for name in ("before", "after") if name in types
        }
        for name, image in images.items():
            if image is None:
                raise WriterSchemaError(f"`$.{name}` is not a record in its writer's schema")
        fields = {
            name: avro
            for image in images.values()
            if image
            for name, avro in schema.fields(image).items()
        }
        return row_converter(schema, fields, self.rows.columns, handling, self.rows.unique_key)


class _Envelope(NamedTuple):
    """A writer's schema.

    Attributes
    ----------
    schema : AvroSchema
    rows : RowConverter or None
        The converter of its images; None if its messages have no rows.
    complete : RowConverter or None
        The same for messages of a connector that never writes the placeholder; None if there are
        none.
    partial : bool
        Whether updates may have only the changed columns, so that the scalar decoder reads them.
    """

    schema: AvroSchema
    rows: RowConverter | None
    complete: RowConverter | None
    partial: bool


# --------------------------------------------------------------------------------------------------
# encoding


class _Encoder(Encoder):
    """Writes envelopes of before, after and op, as Flink does, but each update as one message."""

    def __init__(
        self, format: DebeziumAvro, columns: Sequence[Column], unique_key: Sequence[str]
    ) -> None:
        format.check(columns, unique_key)
        if format.subject is None:
            raise FormatOptionError(
                f"{format.identifier} cannot be written without subject, for example 'orders-value'"
            )
        format.registry.require_writable()
        refuse_filters(format)
        self.images = ImageWriter(
            format.envelope(RowConverter(columns, format.handling, unique_key))
        )
        types = {
            name: record_schema(columns, f"{RECORD}_{name}") for name in ("before", "after")
        } | {"op": "string"}
        optional = [
            {"name": name, "type": ["null", avro], "default": None} for name, avro in types.items()
        ]
        # Nullable as a whole, and its op too: Flink derives and requires this schema.
        schema = ["null", {"type": "record", "name": RECORD, "fields": optional}]
        self.rows = RowWriter(
            columns,
            format.handling,
            () if format.key_subject is None else unique_key,
            excerpt=format.error_excerpt,
            write=avro_writer,
        )
        key_schema = record_schema([columns[index] for index in self.rows.key_indices])
        self.write, self.write_key = avro_bytes(schema), avro_bytes(key_schema)
        numbered = partial(format.registry.numbered, register=format.auto_register_schemas)
        self.number = numbered(format.subject, schema)
        self.key_number = numbered(format.key_subject or "", key_schema)

    def encode(
        self, kind: RowKind, row: tuple[Any, ...], before: tuple[Any, ...] | None = None
    ) -> KeyValue:
        """Return the key and value of one change's record.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        SchemaRegistryError
            When the schema cannot be registered.
        """
        operation, before_image, after = self.images.write(self.rows, kind, row, before)
        envelope = {"before": before_image, "after": after, "op": operation}
        key = self.rows.key(row)
        return (
            None if key is None else framed(self.key_number(), self.write_key(key)),
            framed(self.number(), self.write(envelope)),
        )
