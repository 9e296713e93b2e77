"""Debezium JSON: the envelope as written by Connect's JsonConverter (recorded: 3.7, 3.6, 3.4, 1.9).

A message, bare (``schemas.enable=false``), with a schema block
(``{"schema": ..., "payload": <bare>}``), or with only the payload (``{"payload": <bare>}``, as
TiCDC writes it with ``debezium-disable-schema=true``)::

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

Changelog mode: all. Key: read only for a ``d`` whose ``before`` is null (CockroachDB without
``diff``), if a primary key is declared and a keyed stage completes the row. Null value:
`Ignored.TOMBSTONE` (the ``d`` before it was the delete).

Absent and null: a column that is not in an image is NULL. The unavailable-value placeholder (an
unchanged TOAST value, an unchanged TEXT or BLOB with binlog_row_image=NOBLOB) is `ABSENT` by the
column's type (text: also its bytes in base64 or hex). It is taken from the before-image or
completed by ChangelogNormalize. An empty value of a before-image does not replace it, except in
MySQL's messages: PostgreSQL's log may lack the column. Spanner's updates have only the changed
columns: a column that is null in both images is `ABSENT`.

Types: with a schema block, every column is read by its schema there (io.debezium.time.*,
io.debezium.data.*, Connect's Decimal, Date, Time, Timestamp and bytes), including the parts of a
STRUCT, ARRAY or MAP. A bare message does not define the encoding of its decimals and times.
``decimal_handling_mode`` and ``time_precision_mode`` are the connector's ``decimal.handling.mode``
and ``time.precision.mode``. Without them a string in a DECIMAL column and a number in a TIME or
TIMESTAMP column are errors, since Debezium's defaults and Flink's reading disagree. Bytes are
base64 in both, and by default here. A vector is an ARRAY, and geometry a STRUCT with its WKB. A MAP
whose keys are not text is an array of pairs. The objects of ``time.precision.mode=structured`` are
dates and times; an infinity, a zero date or a year before 1 is an error: declare STRING.

Differs from Flink:

- base64 decimals and epoch numbers are decoded (Flink fails on both), and Debezium's own types by
  their names.
- ``t``, ``m``, heartbeats, transaction marks and schema changes are results (Flink: "Unknown op",
  or a NullPointerException).
- A null ``before`` is an error only if ``-U`` is required; a keyed stage completes it (Flink:
  always an error).
- A schema block is detected by default (Flink: it requires ``schema-include``, and a wrong value is
  an error).
- A one-element array around a message is not a message.
- Updates are written as ``u``, with both images (Flink: a delete and an insert), values as
  declared, and with ``schema_include=True`` in a schema block (not possible in Flink).

Source: io.debezium.data.Envelope, io.debezium.time.*; Flink's DebeziumJsonDeserializationSchema;
Debezium's connector pages.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import msgspec

from cdc_formats.avro.registry_client import RegistryOptions
from cdc_formats.avro.schema_registry import Registry
from cdc_formats.decoding.envelope import (
    Codes,
    Columnar,
    Envelope,
    Framing,
    Images,
    epoch_ms,
    fields_struct,
    member,
    named,
    narrowed,
    text,
    text_map,
)
from cdc_formats.decoding.rows import RowConverter, undeclared
from cdc_formats.decoding.scalar_reader import ScalarReader
from cdc_formats.encoding import EnvelopeEncoder, Row
from cdc_formats.errors import (
    DecodeError,
    FormatOptionError,
    MalformedMessageError,
    MissingFieldError,
    SchemaError,
)
from cdc_formats.events import (
    ControlEvent,
    Event,
    Headers,
    Ignored,
    KeyValue,
    Position,
    Reader,
    RowKind,
)
from cdc_formats.format import Encoder, FilteredFormat, MetadataColumn, choice, table_filter
from cdc_formats.formats.debezium.position import BEFORE_3_7, position_of
from cdc_formats.values.connect_schema import (
    described,
    is_wrapped,
    schema_of,
    struct_schema,
    written_handling,
)
from cdc_formats.values.json_reader import json_bytes, json_text, read_json, read_object, read_part
from cdc_formats.values.schema import (
    BINARY_MODES,
    DECIMAL_MODES,
    TIME_MODES,
    Column,
    ConversionError,
    Handling,
    SqlType,
    columns as to_columns,
)
from cdc_formats.values.types import converter

from .position import Source, position_of_fields

# --------------------------------------------------------------------------------------------------
# Updates of Debezium's Spanner connector, which have only the columns that changed.
#
# A change stream with ``value_capture_type='OLD_AND_NEW_VALUES'``, the default, has the old and the
# new value of each column that an update changed. The connector writes null for all others. A column
# that is null in both images is therefore `ABSENT`: its value is in the key's stored row.
#
# ========================  ==========================================================================
# value_capture_type        an update's images
# ========================  ==========================================================================
# OLD_AND_NEW_VALUES        both have the changed columns
# NEW_ROW                   ``after`` is whole; ``before`` has the key, and is not used
# NEW_ROW_AND_OLD_VALUES    ``after`` is whole; ``before`` has the changed columns, and is not used
# NEW_VALUES                refused: a null in ``after`` is NULL or unchanged
# ========================  ==========================================================================

CONNECTOR = "spanner"


def mark_unchanged(rows: RowConverter, event: Event, text: bytes, index: int, keyed: bool) -> None:
    """Remove the columns that an update of Spanner did not change from its images.

    Parameters
    ----------
    rows : RowConverter
        The declared columns.
    event : Event
        An event of any connector; only Spanner's updates are changed.
    text : bytes
        The text of the message, if it is JSON.
    index, keyed
        Same as `Envelope.adjust`.

    Raises
    ------
    MalformedMessageError
        When a null of the update may be an unchanged column or NULL.
    """
    source = event.message.source
    if event.kind is not RowKind.UPDATE_AFTER or member(source, "connector") != CONNECTOR:
        return
    captured = member(source, "value_capture_type")
    if captured in ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES"):
        event.before = None
        return
    # A keyed reader reads only the key of a row before in JSON.
    is_json = isinstance(event.before, msgspec.Struct)
    before = read_object(text)["before"] if is_json else event.before
    if captured != "OLD_AND_NEW_VALUES" or not isinstance(before, Mapping):
        raise MalformedMessageError(
            "an update of Spanner without its old values does not say which columns changed: "
            "create the change stream with value_capture_type='NEW_ROW' or 'OLD_AND_NEW_VALUES'",
            "$.source.value_capture_type",
        )
    after = rows.present(event.after)
    unchanged = {name for name, new in after.items() if new is None and before.get(name) is None}
    # Spanner never changes a primary key.
    event.before = None if keyed else _without(rows.present(event.before), unchanged)
    event.after = _without(after, unchanged)
    event.sparse = True


def _without(columns: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name not in names}


UNAVAILABLE_VALUE_PLACEHOLDER = "__debezium_unavailable_value"

SCHEMAS_KEPT = 1000
"""The number of schemas whose compiled readers are kept."""
BINLOG_CONNECTORS = ("mysql", "mariadb")
"""The connectors that read a binlog."""
ROW_CONNECTORS = (
    "mysql",
    "mariadb",
    "postgresql",
    "sqlserver",
    "oracle",
    "db2",
    "informix",
    "vitess",
    "cockroachdb",
    "TiCDC",
)
"""Connectors that are known to write whole rows, whose messages the columnar decoder reads."""
CELL_CONNECTORS = ("cassandra", "scylla", "yugabytedb")
"""Connectors that write cells instead of rows, in which null means unchanged."""
_WITHOUT_ROWS = {"t": Ignored.TRUNCATE, "m": Ignored.MESSAGE}


@dataclass(frozen=True, kw_only=True)
class DebeziumEnvelope(FilteredFormat):
    """A format of Debezium's envelope, whose ``source`` has the position in the log."""

    positions = ""
    old_key_header = "__debezium.oldkey"

    def position(self, message: Any) -> Position | None:
        """Return the change's position from ``source``.

        Raises
        ------
        MissingFieldError
            When ``source`` is missing, or its connector is unknown.
        TypeConversionError
            When one of its fields is malformed.
        """
        return position_of(message.source)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return a control event: schema change, transaction mark, truncate or logical message."""
        message = read_object(value) if value else {}
        payload = message["payload"] if "op" not in message and "payload" in message else message
        return control_event_of(payload if isinstance(payload, dict) else {}, reason, self.handling)


@dataclass(frozen=True, kw_only=True)
class RowEnvelope(DebeziumEnvelope):
    """A format of Debezium's envelope around the rows of tables with columns."""

    whole_rows = (
        "configure the database to write whole rows (PostgreSQL: REPLICA IDENTITY FULL; MySQL: "
        "binlog_row_image=FULL)"
    )

    binary_handling_mode: str = choice(*BINARY_MODES)
    bigint_unsigned_handling_mode: Literal["long", "precise"] | None = choice(
        None, "long", "precise"
    )
    unavailable_value_placeholder: str = UNAVAILABLE_VALUE_PLACEHOLDER

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.unavailable_value_placeholder:
            raise FormatOptionError(
                f"{self.identifier}: unavailable_value_placeholder is empty, and would match every "
                "empty string"
            )

    def logs_empty_values(self, message: Any) -> bool:
        """Whether the connector reads a binlog: a PostgreSQL row before may lack columns."""
        return member(message.source, "connector") in BINLOG_CONNECTORS


def is_complete(connector: Any, version: Any) -> bool:
    """Whether a connector never writes the placeholder, so that its text is ordinary data.

    From Debezium 3.7 on, the connectors of MySQL and MariaDB write it with binlog_row_image=NOBLOB.

    Parameters
    ----------
    connector, version : Any
        ``connector`` and ``version`` of ``source``; a message without a version may have the
        placeholder.
    """
    return (
        connector in BINLOG_CONNECTORS
        and isinstance(version, str)
        and BEFORE_3_7.fullmatch(version) is not None
    )


def is_complete_source(source: Any) -> bool:
    """`is_complete` for a message's ``source``."""
    return is_complete(member(source, "connector"), member(source, "version"))


def envelope_of(
    rows: RowConverter,
    metadata: Sequence[str],
    plain: tuple[type[msgspec.Struct], ...],
    *,
    positions: bool,
    **more: Any,
) -> Envelope:
    """Return where the operation and the rows are; a missing column is NULL.

    Parameters
    ----------
    rows : RowConverter
        The declared columns.
    metadata : sequence of str
    plain : tuple of type
        Those of `plain_structs`.
    positions : bool
    **more
        The other arguments of `Envelope`.
    """
    named, placed, whole = plain
    is_whole = "source.properties" in metadata
    return Envelope(
        columnar=Columnar(fields=whole if is_whole else placed if positions else named),
        attributes={}
        if is_whole
        else {
            "ingestion-timestamp": ("ts_ms", partial(epoch_ms, path="$.ts_ms")),
            "source.timestamp": ("source.ts_ms", partial(epoch_ms, path="$.source.ts_ms")),
            "source.database": ("source.db", None),
            "source.schema": ("source.schema", None),
            "source.table": ("source.table", None),
        },
        position=None
        if is_whole
        else lambda message: position_of_fields(message.source, "$.source."),
        operation=("op",),
        kinds={
            "c": RowKind.INSERT,
            "r": RowKind.INSERT,
            "u": RowKind.UPDATE_AFTER,
            "d": RowKind.DELETE,
        },
        codes=Codes(are_text=False, or_else=f", {', '.join(_WITHOUT_ROWS)}"),
        inspect=_inspect,
        adjust=partial(mark_unchanged, rows),
        after="after",
        before="before",
        deleted="before",
        images=Images(
            remedy=(
                "PostgreSQL: set the table's REPLICA IDENTITY to FULL, or to DEFAULT with a primary key; "
                "MySQL: binlog_row_image=FULL; CockroachDB: set the changefeed's option diff"
            ),
            missing_is_null=True,
        ),
        **more,
    )


def _inspect(message: Any, kind: RowKind | Ignored | None) -> Ignored | None:
    """Return the reason of a message without rows; raise if the connector writes cells."""
    refuse_cells(member(message.source, "connector"))
    if message.op == "m" and member(message.source, "connector") == "TiCDC":  # a watermark
        return Ignored.HEARTBEAT
    return _WITHOUT_ROWS.get(message.op) if kind is None and isinstance(message.op, str) else None


def refuse_cells(connector: Any) -> None:
    """Raise if a connector writes cells.

    Raises
    ------
    MalformedMessageError
    """
    if connector is not None and str(connector).lower() in CELL_CONNECTORS:
        raise MalformedMessageError(
            f"the connector {connector} writes cells, not rows, and a null cell means unchanged: "
            "its messages cannot be read. YugabyteDB: add the transformation PGCompatible, which "
            "writes rows"
        )


class WrappedReader:
    """Reads messages that are bare, or in a schema block.

    Attributes
    ----------
    schema_include : {"auto", True, False}
    message : callable
        From text to a struct with ``op``, and ``schema`` and ``payload`` as raw text, which is
        empty if it is missing.
    """

    schema_include: Literal["auto"] | bool
    message: Callable[[bytes], Any]

    def __call__(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        assert value is not None  # reads_tombstones is False
        message, root = self.message(value), "$"
        if message.op is None and message.payload:
            block, value, root = message.schema, bytes(message.payload), "$.payload"
            if self.schema_include is False and block:
                raise MalformedMessageError(
                    "the message has a schema block, and schema_include is False: set it to True or "
                    "'auto'"
                )
            if value == b"null":
                return Ignored.TOMBSTONE
            message = read_part(self.message, value, root)
            message.schema = block
        elif self.schema_include is True:
            raise MalformedMessageError(
                "the message has no schema block, and schema_include is True: set it to False or "
                "'auto'"
            )
        return self.of_message(key, message, value, root)

    @abstractmethod
    def of_message(
        self, key: bytes | None, message: Any, value: bytes, root: str
    ) -> Sequence[Event] | Ignored:
        """Return the events of a bare message, or of one in a block.

        Its text is `value`, and its path is `root`.
        """


def without_op(message: Mapping[str, Any], root: str) -> Ignored:
    """Return the kind of a message without ``op``: a schema change, transaction mark or heartbeat.

    CockroachDB's heartbeat has the time up to which it has written all rows (``resolved``).

    Raises
    ------
    MissingFieldError
        When it is none of Debezium's.
    """
    if "ddl" in message or "tableChanges" in message:
        return Ignored.DDL
    if "status" in message and "id" in message:
        return Ignored.TRANSACTION
    if (set(message) and set(message) <= {"ts_ms", "ts_us", "ts_ns"}) or set(message) == {
        "resolved"
    }:
        return Ignored.HEARTBEAT
    raise MissingFieldError(
        (
            "`op` is missing: not a Debezium envelope. For flattened messages "
            "(ExtractNewRecordState) use debezium-flat-json"
        ),
        f"{root}.op",
    )


def control_event_of(message: dict[str, Any], reason: Ignored, handling: Handling) -> ControlEvent:
    """Return the control event of a message without rows."""
    source = message.get("source")
    database, schema, table = (named(member(source, name)) for name in ("db", "schema", "table"))
    if reason is Ignored.DDL:
        changes = message.get("tableChanges")
        if isinstance(changes, list) and len(changes) == 1:
            # The last part of `"db"."table"` or `"db"."schema"."table"`.
            parts = re.findall(r'"((?:[^"]|"")*)"', named(member(changes[0], "id")) or "")
            table = parts[-1].replace('""', '"') if parts and parts[-1] else table
        database = named(message.get("databaseName")) or database
        return ControlEvent(
            reason,
            database,
            named(message.get("schemaName")) or schema,
            table,
            named(message.get("ddl")),
        )
    if reason is Ignored.TRANSACTION:
        mark = [part for name in ("status", "id") if (part := named(message.get(name)))]
        return ControlEvent(reason, statement=" ".join(mark) or None)
    if reason is Ignored.MESSAGE:
        return ControlEvent(
            reason, database, schema, table, _logical_message(message.get("message"), handling)
        )
    return ControlEvent(reason, database, schema, table)


def _logical_message(message: Any, handling: Handling) -> str | None:
    """Return the prefix and content of pg_logical_emit_message() as a JSON object.

    Content that is not text is not decoded.
    """
    if not isinstance(message, dict):
        return None
    content = message.get("content")
    with suppress(ConversionError, UnicodeDecodeError):
        content = converter(SqlType("BINARY"), replace(handling, placeholder=None))(
            content
        ).decode()
    return json_text({"prefix": message.get("prefix"), "content": content})


# --------------------------------------------------------------------------------------------------
# The primary key in a Kafka key, for a delete whose message has no row.


class KafkaKey:
    """Reads the Kafka keys of one table.

    A key is an object, with or without a schema block, or the only column's value, also in an
    array.

    Parameters
    ----------
    rows : RowConverter
        The table's columns and key.
    handling : Handling
        The handling of a key without a schema block.
    with_schema : bool
        Whether a key can be in a schema block.
    """

    def __init__(self, rows: RowConverter, handling: Handling, *, with_schema: bool) -> None:
        self.unique_key, self.with_schema = rows.unique_key, with_schema
        self.bare = RowConverter(rows.columns, handling, rows.unique_key)
        self.has_arrays = any(
            rows.columns[index].type.name == "ARRAY" for index in rows.key_indices
        )
        self.described = lru_cache(SCHEMAS_KEPT)(
            lambda block: described_rows(rows, handling, block, of_row=True)
        )

    def delete(self, key: bytes, message: Any) -> Event:
        """Return the delete of a key.

        Parameters
        ----------
        key : bytes
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the key cannot be read, or lacks a column of the primary key.
        """
        try:
            image, rows = self._image(key)
            rows.key(image, "$")
        except DecodeError as error:
            raise error.at(field="key") from None
        missing = [name for name in self.unique_key if image.get(name) is None]
        if missing:
            columns = ", ".join(sorted(image)) or "none"
            reason = f"`{missing[0]}` is part of the primary key and is not in the Kafka key"
            text, path = f"{reason}, which has {columns}", f"$.{missing[0]}"
            raise MissingFieldError(text, path, "key", bare=reason)
        return Event(RowKind.DELETE, image, None, message, "$", "", rows=rows)

    def _image(self, key: bytes) -> tuple[dict[str, Any], RowConverter]:
        """Return the key's columns and their converter."""
        value = read_json(key)
        schema = None
        # A key without a schema block may have a column with the name `payload`.
        if (
            isinstance(value, dict)
            and is_wrapped(value)
            and (self.with_schema if "schema" in value else "payload" not in self.unique_key)
        ):
            schema, value = value.get("schema"), value["payload"]
        if not isinstance(value, dict):
            if len(self.unique_key) != 1:
                raise MalformedMessageError(
                    "expected a JSON object with the primary key's columns", "$"
                )
            (name,) = self.unique_key
            # CockroachDB writes an array of the key's values, without their names.
            is_array = isinstance(value, list) and len(value) == 1 and not self.has_arrays
            value = {name: value[0] if is_array else value}
            if isinstance(schema, dict):
                schema = {"fields": [{**schema, "field": name}]}
        return value, self.described(json_bytes(schema)) if isinstance(schema, dict) else self.bare


_NO_BLOCK = (b"", b"null")
"""The schema of a payload that is not described."""


def described_rows(
    rows: RowConverter, handling: Handling, block: bytes, *, of_row: bool = False
) -> RowConverter:
    """Return the converter of the rows of messages with a schema block.

    Parameters
    ----------
    rows : RowConverter
        The declared columns.
    handling : Handling
        The handling of rows without a block.
    block : bytes
    of_row : bool
        Whether the block describes the row, not an envelope around it.
    """
    how: Handling | list[Handling] = handling
    if block not in _NO_BLOCK:
        schema = schema_of(block)
        envelope = {"fields": [{**schema, "field": "after"}]} if of_row else schema
        how = described(envelope, rows.columns, handling)
    return RowConverter(rows.columns, how, rows.unique_key, untyped=rows.untyped)


def described_reader(
    rows: RowConverter, handling: Handling, *, of_row: bool = False
) -> Callable[[bytes, bool], RowConverter]:
    """Return `described_rows`, compiled once for each block, and whether messages are complete.

    The placeholder's text is ordinary data in a message that has all values.
    """
    handlings = (handling, replace(handling, placeholder=None))
    return lru_cache(SCHEMAS_KEPT)(
        lambda block, complete: described_rows(rows, handlings[complete], block, of_row=of_row)
    )


@dataclass(frozen=True, kw_only=True)
class DebeziumJson(RowEnvelope, RegistryOptions):
    """Debezium's envelope in JSON.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written as text without `time_precision_mode` and schema block: with a
        blank or a ``T`` between date and time. Both are read.
    schema_include : {"auto", True, False}
        Whether messages have a schema block; ``auto`` detects it in each. A payload
        without a schema block is read with each value.
    decimal_handling_mode : {"precise", "string", "double"} or None
        The connector's ``decimal.handling.mode`` (Debezium's default is ``precise``), for messages
        without a schema block.
    time_precision_mode : str or None
        The connector's ``time.precision.mode`` (Debezium's default is ``adaptive``, for MySQL and
        MariaDB ``adaptive_time_microseconds``), for messages without a schema block. The objects of
        ``structured`` (Debezium 3.7) are read in every mode, and never written.
    binary_handling_mode : {"bytes", "base64", "base64-url-safe", "hex"}
        The connector's ``binary.handling.mode``. It applies to bare messages, and to ``string`` in
        a schema block; ``bytes`` in a block is always base64. A BIT column and the ``wkb`` of
        geometry are base64 in every mode: in bare messages of another mode declare them STRING.
    bigint_unsigned_handling_mode : {"long", "precise"} or None
        The connector's ``bigint.unsigned.handling.mode`` (Debezium's default is ``long``), for an
        unsigned BIGINT in a ``DECIMAL(20,0)`` column. ``long``: a number in two's complement.
        ``precise``: base64 for every `decimal_handling_mode`; digits are read too. A schema block
        distinguishes the two; its ``int64`` is unsigned only with ``long``.
    unavailable_value_placeholder : str
        The connector's ``unavailable.value.placeholder``. A column can hold the same text by
        chance: choose a text that no row contains. It is ignored in messages of MySQL's and
        MariaDB's connectors before Debezium 3.7, which never write it. From 3.7 on they write it
        for TEXT and BLOB with binlog_row_image=NOBLOB.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    database_include, table_include : str or None
        Regular expressions that ``source.db`` and ``source.table`` must match in full; other tables
        are ignored.
    url, basic_auth_user_info, bearer_auth_token, ssl_ca_location, ssl_certificate_location,
    ssl_key_location, ssl_key_password
        The schema registry of messages in its frame, as in `registry_client.RegistryOptions`. Only
        inference reads its JSON Schemas.
    properties, retry_seconds
        As in `registry_client.RegistryOptions`.
    """

    identifier = "debezium-json"
    sampler = "cdc_formats.topics.samplers.debezium:DebeziumSampler"
    uses_key = True

    timestamp_format_standard: str = choice("SQL", "ISO-8601")
    schema_include: Literal["auto"] | bool = choice("auto", True, False)
    decimal_handling_mode: Literal["precise", "string", "double"] | None = choice(
        None, *DECIMAL_MODES
    )
    time_precision_mode: str | None = choice(None, *TIME_MODES)

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "schema": MetadataColumn(
            "STRING", lambda message: text(message.schema) if message.schema else None
        ),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_ms(message.ts_ms, "$.ts_ms")
        ),
        "source.timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda m: epoch_ms(member(m.source, "ts_ms"), "$.source.ts_ms")
        ),
        "source.database": MetadataColumn(
            "STRING", lambda message: text(member(message.source, "db"))
        ),
        "source.schema": MetadataColumn(
            "STRING", lambda message: text(member(message.source, "schema"))
        ),
        "source.table": MetadataColumn(
            "STRING", lambda message: text(member(message.source, "table"))
        ),
        "source.properties": MetadataColumn(
            "MAP<STRING, STRING>", lambda message: _properties(message)
        ),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "source.database": "database_include",
        "source.schema": "",
        "source.table": "table_include",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        RegistryOptions.__post_init__(self)

    @property
    def registry(self) -> Registry | None:
        """The registry of the options, None if they name none."""
        if not self.url:
            return None
        return Registry(**{option.name: getattr(self, option.name) for option in fields(Registry)})

    @property
    def encodings(self) -> Handling:
        """The declared handling of a message without a schema block."""
        return Handling(
            decimal=self.decimal_handling_mode,
            time=self.time_precision_mode,
            binary=self.binary_handling_mode,
            bigint_unsigned=self.bigint_unsigned_handling_mode,
            time_zone=self.time_zone,
            placeholder=self.unavailable_value_placeholder,
        )

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise if messages are known to be bare and a column's encoding is not declared."""
        missing = undeclared(columns, self.handling) if self.schema_include is False else []
        if self.time_precision_mode is not None and self.schema_include == "auto":
            # A time with a zone is text in each mode, and a number is refused when it is read.
            other = [column for column in columns if column.type.name != "TIMESTAMP"]
            missing = [
                reason
                for reason in undeclared(other, self.handling)
                if "decimal_handling_mode" not in reason
            ]
        if missing:
            raise SchemaError(
                f"{self.identifier} without a schema block needs the encoding of its columns: "
                f"{'; '.join(missing)}"
            )

    def require_writable(self) -> None:
        """Raise if the mode's times are only read."""
        if self.time_precision_mode == "structured":
            raise FormatOptionError(
                f"{self.identifier} cannot be written with time_precision_mode='structured': set "
                "it to 'microseconds' or 'isostring'"
            )

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages."""
        return _Reader(self, rows, keyed).guarded((), ("payload",))

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are; a missing column is NULL."""
        return envelope_of(
            rows,
            metadata,
            _PLAIN,
            positions=positions,
            fields=_Message,
            framing=Framing(
                block=("schema", "payload"),
                bare=self.schema_include is not True,
                # A block that `schema_include` refuses has no converter.
                by_block=lambda block: (
                    None
                    if block and self.schema_include is False
                    else described_rows(rows, self.handling, block)
                ),
            ),
        )

    def encoder(
        self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()
    ) -> Encoder:
        """Return the encoder of a table's rows, with a schema block if `schema_include` is True."""
        self.require_writable()
        of = _SchemaEncoder if self.schema_include is True else EnvelopeEncoder
        return of(self, columns, unique_key)


def _properties(message: Any) -> list[Any] | None:
    # The columnar decoder leaves its checks of the whole `source` to this function.
    connector = member(message.source, "connector")
    refuse_cells(connector)
    if connector == CONNECTOR and isinstance(message, _PLAIN[2]):
        raise MalformedMessageError("updates have only the changed columns", "$.source")
    return text_map(message.source)


_Message = fields_struct("op before after ts_ms", raw="source", around="schema payload")
"""The fields read from an envelope, wrapped or bare."""


class SourceFields(msgspec.Struct, gc=False):
    """The fields of ``source`` that are metadata on their own."""

    db: str | None = None
    schema: str | None = None
    table: str | None = None
    ts_ms: int | None = None


class _RowSource(SourceFields, gc=False):
    """`SourceFields` of a connector that writes rows; others have the scalar decoder."""

    connector: Literal[ROW_CONNECTORS] | None = None  # type: ignore[valid-type]


class PositionSource(Source, gc=False):
    """The fields of ``source`` for positions, and those that are metadata."""

    schema: str | None = None
    table: str | None = None


def plain_structs(
    fields: type[msgspec.Struct], names: Any, position: Any
) -> tuple[type[msgspec.Struct], ...]:
    """Return the structs of the columnar decoder, by what they have of ``source``.

    Parameters
    ----------
    fields : type
        The fields of the envelope.
    names, position : type
        The ``source`` with the names of the table and the times, and with the position, too. The
        third struct has all of it.
    """
    types = {"op": str | None, "ts_ms": int | None}
    return (
        narrowed(fields, {**types, "source": names}),
        narrowed(fields, {**types, "source": position}),
        narrowed(fields, {"op": str | None}),
    )


_PLAIN = plain_structs(
    _Message,
    _RowSource,
    narrowed(PositionSource, {"connector": Literal[ROW_CONNECTORS] | None}),
)


class _Reader(WrappedReader, ScalarReader):
    """Reads the messages of one table. Converters are compiled once for each schema block."""

    def __init__(self, format: DebeziumJson, rows: RowConverter, keyed: bool) -> None:
        ScalarReader.__init__(self, format.envelope(rows), rows, table_filter(format), keyed=keyed)
        self.schema_include = format.schema_include
        self.described = described_reader(rows, format.handling)
        with_schema, reads_key = format.schema_include is not False, keyed and bool(rows.unique_key)
        self.key = KafkaKey(rows, format.handling, with_schema=with_schema) if reads_key else None

    def of_message(
        self, key: bytes | None, message: Any, value: bytes, root: str
    ) -> Sequence[Event] | Ignored:
        """Return the events of a message.

        A ``d`` without ``before`` has its row's key in the Kafka key.
        """
        if message.op is None:
            return without_op(read_object(value), root)
        if (
            self.key is not None
            and key is not None
            and message.op == "d"
            and message.before is None
            and self.tables.match(message, f"{root}.source")
        ):
            return [self.key.delete(key, message)]
        images = [message.after] if self.keyed else [message.after, message.before]
        unknown = any(image is not None and self.rows.has_placeholder(image) for image in images)
        # The placeholder's text is ordinary data in a message that has all values.
        complete, schema = unknown and is_complete_source(message.source), bytes(message.schema)
        if schema in _NO_BLOCK and not complete:
            return self.events(message, value, root)
        return self.events(message, value, root, self.described(schema, complete))


# --------------------------------------------------------------------------------------------------
# encoding


class _SchemaEncoder(EnvelopeEncoder):
    """Adds a schema block to key and value, as JsonConverter does with ``schemas.enable=true``."""

    def __init__(
        self, format: DebeziumJson, columns: str | Sequence[Column], unique_key: Sequence[str]
    ) -> None:
        declared = to_columns(columns)
        pairs = [(each, written_handling(each.type, format.handling)) for each in declared]
        unknown = [reason for column, how in pairs for reason in undeclared([column], how)]
        if unknown:
            raise SchemaError(f"debezium-json cannot write a column's schema: {'; '.join(unknown)}")
        super().__init__(format, declared, unique_key, [how for _, how in pairs])
        self.writes_source = False  # the block would have to describe it
        key = [pairs[index] for index in self.rows.key_indices]
        self.key_schema = json_bytes(struct_schema("changelog.Key", key, optional=False))
        row = struct_schema("changelog.Value", pairs, optional=True)
        op = {"type": "string", "optional": False, "field": "op"}
        fields = [{**row, "field": "before"}, {**row, "field": "after"}, op]
        self.schema = json_bytes(
            {"type": "struct", "fields": fields, "optional": False, "name": "changelog.Envelope"}
        )

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> KeyValue:
        key, value = super().encode(kind, row, before)
        return None if key is None else _wrapped(self.key_schema, key), _wrapped(
            self.schema, value or b"null"
        )


def _wrapped(schema: bytes, payload: bytes) -> bytes:
    return b'{"schema":%b,"payload":%b}' % (schema, payload)
