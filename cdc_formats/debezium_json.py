"""Debezium JSON: Debezium's envelope as written by Kafka Connect's JsonConverter (vectors: Debezium 3.4, 1.9).

A message, bare (``schemas.enable=false``) or with a schema block (``{"schema": ..., "payload": <bare>}``)::

    {"before": {"id": 1, "name": "scooter"}, "after": {"id": 1, "name": "bike"}, "op": "u",
     "source": {"db": "inventory", "table": "products", "ts_ms": 1589362330904}, "ts_ms": 1589362330904}

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

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE` (the ``d`` before it was the delete).

Absent and null: a column that is not in an image is NULL. The unavailable-value placeholder (an unchanged TOAST value) is `ABSENT` by the
column's type; it is taken from a full before-image or completed by ChangelogNormalize.

Types: with a schema block, every column is read by its schema there (io.debezium.time.*, io.debezium.data.*, Connect's Decimal, Date,
Time, Timestamp and bytes), including the parts of a STRUCT, ARRAY or MAP. A bare message does not define the encoding of its decimals and
times. ``decimal_handling_mode`` and ``time_precision_mode`` are the connector's ``decimal.handling.mode`` and ``time.precision.mode``.
Without them a string in a DECIMAL column and a number in a TIME or TIMESTAMP column are errors, since Debezium's defaults and Flink's
reading disagree. Bytes are base64 in both, and by default here.

Differs from Flink:

- base64 decimals and epoch numbers are decoded (Flink fails on both), and Debezium's own types by their names.
- ``t``, ``m``, heartbeats, transaction marks and schema changes are results (Flink: "Unknown op", or a NullPointerException).
- A null ``before`` is an error only if ``-U`` is required; a keyed stage completes it (Flink: always an error).
- A schema block is detected by default (Flink: it requires ``schema-include``, and a wrong value is an error).
- A one-element array around a message is not a message.
- Updates are written as ``u``, with both images (Flink: a delete and an insert), values as declared, and with ``schema_include=True`` in a
  schema block (not possible in Flink).

Source: io.debezium.data.Envelope, io.debezium.time.*; Flink's DebeziumJsonDeserializationSchema; Debezium's connector pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import msgspec

from .base import ControlEvent, Encoder, Event, Format, Headers, Ignored, MetadataColumn, Reader, Record
from .connect_schema import CONNECT, EPOCH_UNITS, struct_schema, written_handling
from .encoding import TIMESTAMP_STANDARDS, EnvelopeEncoder, Row
from .errors import (
    FormatOptionError,
    MalformedMessageError,
    MissingBeforeImageError,
    MissingFieldError,
    SchemaError,
    UnknownOperationError,
)
from .handling import BINARY_MODES, DECIMAL_MODES, TIME_MODES, Handling, Unfit
from .json_reader import json_bytes, json_text, read_object
from .metadata import epoch_ms, member, members_reader, named, text, text_map
from .position import Position, debezium
from .row_kind import RowKind
from .rows import RowConverter, message_reader, undeclared
from .schema import Column, SqlType, columns as to_columns
from .tables import TableFilter
from .types import converter

UNAVAILABLE_VALUE_PLACEHOLDER = "__debezium_unavailable_value"

SCHEMAS_KEPT = 1000
"""The number of schemas whose compiled readers are kept."""
COMPLETE_CONNECTORS = ("mysql", "mariadb")
"""Connectors whose log has all values: they never write the placeholder."""
_SOURCE_MEMBERS = {"source.database": "db", "source.schema": "schema", "source.table": "table"}
_PATHS = {root: (f"{root}.before", f"{root}.after") for root in ("$", "$.payload")}
_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
_REMEDY = "is null. PostgreSQL: set the table's REPLICA IDENTITY to FULL, or to DEFAULT with a primary key; MySQL: binlog_row_image=FULL"


class DebeziumEnvelope(Format):
    """A format of Debezium's envelope, whose ``source`` has the position in the log."""

    positions = ""

    def position(self, message: Any) -> Position | None:
        """Return the change's position from ``source``.

        Raises
        ------
        MissingFieldError
            When ``source`` is missing, or its connector is unknown.
        TypeConversionError
            When one of its fields is malformed.
        """
        return debezium(message.source)


@dataclass(frozen=True, kw_only=True)
class DebeziumJson(DebeziumEnvelope):
    """Debezium's envelope in JSON.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written as text without `time_precision_mode` and schema block: with a blank or a ``T`` between date and time.
        Both are read.
    schema_include : {"auto", True, False}
        Whether messages have a schema block; ``auto`` detects it in each.
    decimal_handling_mode : {"precise", "string", "double"} or None
        The connector's ``decimal.handling.mode`` (Debezium's default is ``precise``), for messages without a schema block.
    time_precision_mode : str or None
        The connector's ``time.precision.mode`` (Debezium's default is ``adaptive``, for MySQL and MariaDB
        ``adaptive_time_microseconds``), for messages without a schema block.
    binary_handling_mode : {"bytes", "base64", "base64-url-safe", "hex"}
        The connector's ``binary.handling.mode``. It applies to bare messages, and to ``string`` in a schema block; ``bytes`` in a block is
        always base64. A BIT column is base64 in every mode: in bare messages of another mode declare it STRING.
    bigint_unsigned_handling_mode : {"long", "precise"} or None
        The connector's ``bigint.unsigned.handling.mode`` (Debezium's default is ``long``), for an unsigned BIGINT in a ``DECIMAL(20,0)``
        column. ``long``: a number in two's complement. ``precise``: base64 for every `decimal_handling_mode`; digits are read too. A
        schema block distinguishes the two; its ``int64`` is unsigned only with ``long``.
    unavailable_value_placeholder : str
        The connector's ``unavailable.value.placeholder``. A column can hold the same text by chance: it is ignored in messages of MySQL's
        and MariaDB's connectors, which never write it; for PostgreSQL choose a text that no row contains.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    database_include, table_include : str or None
        Regular expressions that ``source.db`` and ``source.table`` must match in full; other tables are ignored.
    """

    identifier = "debezium-json"
    partial_after = True
    whole_rows = "configure PostgreSQL to write whole rows (REPLICA IDENTITY FULL)"

    timestamp_format_standard: str = "SQL"
    schema_include: Literal["auto"] | bool = "auto"
    decimal_handling_mode: str | None = None
    time_precision_mode: str | None = None
    binary_handling_mode: str = "bytes"
    bigint_unsigned_handling_mode: str | None = None
    unavailable_value_placeholder: str = UNAVAILABLE_VALUE_PLACEHOLDER
    time_zone: str | None = None
    database_include: str | None = None
    table_include: str | None = None

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "schema": MetadataColumn("STRING", lambda message: text(message.schema) if message.schema else None),
        "ingestion-timestamp": MetadataColumn("TIMESTAMP(3)", lambda message: epoch_ms(message.ts_ms, "$.ts_ms")),
        "source.timestamp": MetadataColumn("TIMESTAMP(3)", lambda m: epoch_ms(member(m.source, "ts_ms"), "$.source.ts_ms")),
        "source.database": MetadataColumn("STRING", lambda message: text(member(message.source, "db"))),
        "source.schema": MetadataColumn("STRING", lambda message: text(member(message.source, "schema"))),
        "source.table": MetadataColumn("STRING", lambda message: text(member(message.source, "table"))),
        "source.properties": MetadataColumn("MAP<STRING, STRING>", lambda message: text_map(message.source)),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "source.database": "database_include",
        "source.schema": "",
        "source.table": "table_include",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.schema_include, str) and self.schema_include.lower() in ("true", "false"):
            object.__setattr__(self, "schema_include", self.schema_include.lower() == "true")
        self._check_choice("timestamp_format_standard", TIMESTAMP_STANDARDS)
        self._check_choice("schema_include", ("auto", True, False))
        self._check_choice("decimal_handling_mode", (None, *DECIMAL_MODES))
        self._check_choice("time_precision_mode", (None, *TIME_MODES))
        self._check_choice("binary_handling_mode", BINARY_MODES)
        self._check_choice("bigint_unsigned_handling_mode", (None, "long", "precise"))
        if not self.unavailable_value_placeholder:
            raise FormatOptionError(f"{self.identifier}: unavailable_value_placeholder is empty, and would match every empty string")

    @property
    def encodings(self) -> Handling:
        """The declared handling of a message without a schema block."""
        return Handling(
            decimal=self.decimal_handling_mode,  # type: ignore[arg-type]
            time=self.time_precision_mode,
            binary=self.binary_handling_mode,
            bigint_unsigned=self.bigint_unsigned_handling_mode,  # type: ignore[arg-type]
            time_zone=self.time_zone,
            placeholder=self.unavailable_value_placeholder,
        )

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise if messages are known to be bare and a column's encoding is not declared."""
        missing = undeclared(columns, self.handling) if self.schema_include is False else []
        if self.time_precision_mode is not None and self.schema_include == "auto":
            missing = [reason for reason in undeclared(columns, self.handling) if "decimal_handling_mode" not in reason]
        if missing:
            raise SchemaError(f"{self.identifier} without a schema block needs the encoding of its columns: {'; '.join(missing)}")

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages."""
        reader, names = _Reader(self, rows, keyed), (("source", "db"), ("source", "table"))
        return reader.tables.guard(reader.read, names, (("payload", *names[0]), ("payload", *names[1])))

    def table_reader(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """Return the function from a message to its table, which reads ``source`` once."""
        read = members_reader([_SOURCE_MEMBERS[name] for name in names])
        return lambda message: read(message.source)

    def encoder(self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()) -> Encoder:
        """Return the encoder of one table's rows: bare messages, or with a schema block if `schema_include` is True."""
        return (_SchemaEncoder if self.schema_include is True else _Encoder)(self, columns, unique_key)

    def control_event(self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()) -> ControlEvent:
        """Return the control event of a schema change, transaction mark, truncate or logical message."""
        return control_event_of(_payload(value), reason, self.handling)


class _Message(msgspec.Struct, gc=False):
    """The fields read from an envelope, wrapped or bare; unneeded ones are kept as raw text (empty if missing)."""

    op: Any = None
    before: Any = None
    after: Any = None
    source: msgspec.Raw = msgspec.Raw(b"null")
    ts_ms: Any = None
    schema: msgspec.Raw = msgspec.Raw(b"")
    payload: msgspec.Raw = msgspec.Raw(b"")


class _Reader:
    """Reads the messages of one table. Converters are compiled once for each schema block."""

    def __init__(self, format: DebeziumJson, rows: RowConverter, keyed: bool) -> None:
        self.format, self.rows = format, rows
        self.exact = message_reader(rows, _Message, "after", "before", keyed=keyed)
        self.general = message_reader(rows, _Message, "after", "before", keyed=keyed, narrow=False)
        # The logs of MySQL and MariaDB have all values: there the placeholder's text is ordinary data.
        self.handling = {False: format.handling, True: replace(format.handling, placeholder=None)}
        self.complete = RowConverter(rows.columns, self.handling[True], rows.unique_key)
        self.has_placeholder = rows.has_placeholder
        self.whole_before = rows.images or not keyed
        self.tables = TableFilter(format.database_include, format.table_include)
        self.described: dict[tuple[bytes, bool], RowConverter] = {}

    def read(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        """Return the events of one message."""
        assert value is not None  # reads_tombstones is False
        message = self.exact(value)
        if message.op is None and message.payload and message.schema:
            return self._wrapped(message.schema, message.payload)
        if self.format.schema_include is True:
            raise MalformedMessageError("the message has no schema block, and schema_include is True: set it to False or 'auto'")
        if (message.after is not None and self.has_placeholder(message.after)) or (self.whole_before and self._is_partial(message.before)):
            message, complete = self._with_placeholder(message, value)
            return self._events(message, value, self.complete if complete else None, "$")
        return self._events(message, value, None, "$")

    def _is_partial(self, image: Any) -> bool:
        return image is not None and self.has_placeholder(image)

    def _with_placeholder(self, message: Any, value: bytes) -> tuple[Any, bool]:
        """Return a message that contains the placeholder's text, and whether the text is ordinary data."""
        if member(message.source, "connector") in COMPLETE_CONNECTORS:
            return message, True
        # A value is unavailable: the before-image may have it, so read it in full.
        return self.general(value), False

    def _wrapped(self, schema: msgspec.Raw, payload: msgspec.Raw) -> Sequence[Event] | Ignored:
        if self.format.schema_include is False:
            raise MalformedMessageError("the message has a schema block, and schema_include is False: set it to True or 'auto'")
        if bytes(payload) == b"null":
            return Ignored.TOMBSTONE
        try:
            message, complete = self.exact(bytes(payload)), False
            if (message.after is not None and self.has_placeholder(message.after)) or (
                self.whole_before and self._is_partial(message.before)
            ):
                message, complete = self._with_placeholder(message, bytes(payload))
        except MalformedMessageError as error:
            raise MalformedMessageError(error.reason, f"$.payload{error.path[1:]}") from None
        message.schema = schema
        rows = self.complete if complete else None
        if message.op is not None and bytes(schema) != b"null":
            rows = self._described(bytes(schema), complete)
        return self._events(message, bytes(payload), rows, "$.payload")

    def _described(self, schema: bytes, complete: bool) -> RowConverter:
        rows = self.described.get((schema, complete))
        if rows is None:
            if len(self.described) >= SCHEMAS_KEPT:
                self.described.clear()
            columns = self.rows.columns
            rows = RowConverter(columns, described(schema_of(schema), columns, self.handling[complete]), self.rows.unique_key)
            self.described[schema, complete] = rows
        return rows

    def _events(self, message: Any, value: bytes, rows: RowConverter | None, root: str) -> Sequence[Event] | Ignored:
        op, before, after = message.op, message.before, message.after
        if op is None:
            return without_op(read_object(value), root)
        if self.tables.set and not self.tables.match(member(message.source, "db"), member(message.source, "table"), f"{root}.source"):
            return Ignored.OTHER_TABLE
        return events_of(op, before, after, message, root, rows)


def events_of(op: Any, before: Any, after: Any, message: Any, root: str, rows: RowConverter | None) -> Sequence[Event] | Ignored:
    """Return the events of an operation on an envelope's images.

    Raises
    ------
    MissingFieldError, MissingBeforeImageError
        When the image that the operation needs is null.
    UnknownOperationError
    """
    before_path, after_path = _PATHS[root]
    if op == "u" or op == "c" or op == "r":
        if after is None:
            raise MissingFieldError(f"`after` is null, and op is {op!r}", after_path)
        if op == "u":
            return [Event(_UPDATE, before, after, message, before_path, after_path, False, False, rows)]
        return [Event(_INSERT, None, after, message, before_path, after_path, False, False, rows)]
    if op == "d":
        if before is None:
            raise MissingBeforeImageError(f"`before` of a delete {_REMEDY}", before_path)
        return [Event(_DELETE, before, None, message, before_path, after_path, False, False, rows)]
    if op == "t":
        return Ignored.TRUNCATE
    if op == "m":
        return Ignored.MESSAGE
    known = "is none of c, d, m, r, t, u"
    raise UnknownOperationError(f"op {str(op)[:40]!r} {known}", f"{root}.op", bare=f"op {known}")


def without_op(message: Mapping[str, Any], root: str) -> Ignored:
    """Return the kind of a message without ``op``: a schema change, transaction mark or heartbeat.

    Raises
    ------
    MissingFieldError
        When it is none of Debezium's.
    """
    if "ddl" in message or "tableChanges" in message:
        return Ignored.DDL
    if "status" in message and "id" in message:
        return Ignored.TRANSACTION
    if set(message) and set(message) <= {"ts_ms", "ts_us", "ts_ns"}:
        return Ignored.HEARTBEAT
    raise MissingFieldError(
        "`op` is missing: not a Debezium envelope. For flattened messages (ExtractNewRecordState) use debezium-flat-json", f"{root}.op"
    )


# ------------------------------------------------------------------------------------------------------- schema blocks


def schema_of(schema: bytes) -> dict[str, Any]:
    """Return a schema block.

    Raises
    ------
    MalformedMessageError
        When it is not a JSON object.
    """
    try:
        return read_object(schema)
    except MalformedMessageError as error:
        raise MalformedMessageError(error.reason, f"$.schema{error.path[1:]}") from None


def described(schema: dict[str, Any], columns: Sequence[Column], declared: Handling) -> list[Handling]:
    """Return the handling of each column by a schema block.

    Parameters
    ----------
    schema : dict
        A Connect schema of an envelope: a struct with the fields ``before`` and ``after``.
    columns : sequence of Column
    declared : Handling
        The handling of values that the block does not define: the text form of bytes in a ``string``, an unsigned BIGINT in an ``int64``.
    """
    images = _by_name(schema)
    fields = _by_name(images.get("after") or images.get("before") or {})
    return [_described(fields.get(column.name, {}), declared) for column in columns]


def _described(field: dict[str, Any], declared: Handling) -> Handling:
    kind, items = field.get("type"), field.get("items")
    if kind == "array" and isinstance(items, dict):
        return _described(items, declared)
    name, parameters = field.get("name"), field.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if name == CONNECT + "Decimal" and isinstance(scale, str) and re.fullmatch("-?[0-9]{1,4}", scale):
        # A number instead of base64 (JsonConverter's decimal.format=NUMERIC) is never in two's complement.
        return replace(declared, decimal="precise", decimal_scale=int(scale), time="isostring", bigint_unsigned="precise", binary="base64")
    unit = EPOCH_UNITS.get(name) if isinstance(name, str) else None
    # Text of a described column is ISO text, and its number (except a date's days) has the unit of its type name.
    return replace(
        declared,
        decimal="text" if kind == "string" else "string",
        time="isostring",
        epoch_unit=unit,
        binary=_described_binary(kind, declared.binary),
        parts=_described_parts(field, declared),
    )


def _described_binary(kind: Any, declared: str | None) -> str | None:
    """Return the text form of a column's bytes. JsonConverter writes ``bytes`` as base64; binary.handling.mode makes a ``string``."""
    if kind == "bytes":
        return "base64"
    return None if kind == "string" and declared == "bytes" else declared


def _described_parts(field: dict[str, Any], declared: Handling) -> dict[str, Handling] | None:
    if field.get("type") == "struct":
        return {f"STRUCT.{name}": _described(of, declared) for name, of in _by_name(field).items()}
    if field.get("type") == "map":
        named = {"MAP.key": field.get("keys"), "MAP.value": field.get("values")}
        return {name: _described(of, declared) for name, of in named.items() if isinstance(of, dict)}
    return None


def _by_name(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    fields = schema.get("fields")
    found = [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    return {name: field for field in found if isinstance(name := field.get("field"), str)}


# ----------------------------------------------------------------------------------------------------------------- encoding


class _Encoder(EnvelopeEncoder):
    writes_source = True

    def insert(self, row: Row) -> dict[str, Any]:
        return {"before": None, "after": self.rows.image(row, "$.after"), "op": "c"}

    def update(self, before: Row, row: Row) -> dict[str, Any]:
        return {"before": self.rows.image(before, "$.before"), "after": self.rows.image(row, "$.after"), "op": "u"}

    def delete(self, row: Row) -> dict[str, Any]:
        return {"before": self.rows.image(row, "$.before"), "after": None, "op": "d"}


class _SchemaEncoder(_Encoder):
    """Adds a schema block to key and value, as JsonConverter does with ``schemas.enable=true``."""

    writes_source = False  # the block would have to describe it

    def __init__(self, format: DebeziumJson, columns: str | Sequence[Column], unique_key: Sequence[str]) -> None:
        declared = to_columns(columns)
        each = [written_handling(column.type, format.handling) for column in declared]
        unknown = [reason for column, how in zip(declared, each, strict=True) for reason in undeclared([column], how)]
        if unknown:
            raise SchemaError(f"debezium-json cannot write a column's schema: {'; '.join(unknown)}")
        super().__init__(format, declared, unique_key, each)
        key = [(declared[index], each[index]) for index in self.rows.key_indices]
        self.key_schema = json_bytes(struct_schema("changelog.Key", [c for c, _ in key], [how for _, how in key], optional=False))
        row = struct_schema("changelog.Value", declared, each, optional=True)
        op = {"type": "string", "optional": False, "field": "op"}
        fields = [{**row, "field": "before"}, {**row, "field": "after"}, op]
        self.schema = json_bytes({"type": "struct", "fields": fields, "optional": False, "name": "changelog.Envelope"})

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> Record:
        key, value = super().encode(kind, row, before)
        return None if key is None else _wrapped(self.key_schema, key), _wrapped(self.schema, value or b"null")


def _wrapped(schema: bytes, payload: bytes) -> bytes:
    return b'{"schema":%b,"payload":%b}' % (schema, payload)


# ----------------------------------------------------------------------------------------------------------- control events


def _payload(value: bytes | None) -> dict[str, Any]:
    message = read_object(value) if value else {}
    wrapped = "op" not in message and "payload" in message and "schema" in message
    payload = message["payload"] if wrapped else message
    return payload if isinstance(payload, dict) else {}


def control_event_of(message: dict[str, Any], reason: Ignored, handling: Handling) -> ControlEvent:
    """Return the control event of a message without rows."""
    source = message.get("source")
    database, schema, table = (named(member(source, name)) for name in ("db", "schema", "table"))
    if reason is Ignored.DDL:
        changes = message.get("tableChanges")
        if isinstance(changes, list) and len(changes) == 1:
            table = _table_of(member(changes[0], "id")) or table
        database = named(message.get("databaseName")) or database
        return ControlEvent(reason, database, named(message.get("schemaName")) or schema, table, named(message.get("ddl")))
    if reason is Ignored.TRANSACTION:
        mark = [part for name in ("status", "id") if (part := named(message.get(name)))]
        return ControlEvent(reason, statement=" ".join(mark) or None)
    if reason is Ignored.MESSAGE:
        return ControlEvent(reason, database, schema, table, _logical_message(message.get("message"), handling))
    return ControlEvent(reason, database, schema, table)


def _table_of(identifier: Any) -> str | None:
    """Return the last part of ``"db"."table"`` or ``"db"."schema"."table"``."""
    parts = re.findall(r'"((?:[^"]|"")*)"', identifier) if isinstance(identifier, str) else []
    return parts[-1].replace('""', '"') if parts else None


def _logical_message(message: Any, handling: Handling) -> str | None:
    """Return the prefix and content of pg_logical_emit_message() as a JSON object; non-text content is not decoded."""
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    with suppress(Unfit, UnicodeDecodeError):
        content = converter(SqlType("BINARY"), replace(handling, placeholder=None))(content).decode()
    return json_text({"prefix": message.get("prefix"), "content": content})
