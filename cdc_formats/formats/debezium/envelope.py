"""The common parts of the formats with Debezium's envelope: operations, control events, positions.

The envelope is ``{"before": ..., "after": ..., "op": "u", "source": {...}}``; `events_of` has the
meaning of ``op``.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import msgspec

from cdc_formats.decoding.envelope import Codes, Envelope, Images, member, named
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import FormatOptionError, MalformedMessageError, MissingFieldError
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, Position, RowKind
from cdc_formats.format import Format, choice
from cdc_formats.values.json_reader import json_text, read_object, read_part
from cdc_formats.values.schema import BINARY_MODES, ConversionError, Handling, SqlType
from cdc_formats.values.types import converter

from .position import BEFORE_3_7, position_of

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
_KINDS = {"c": RowKind.INSERT, "r": RowKind.INSERT, "u": RowKind.UPDATE_AFTER, "d": RowKind.DELETE}
_WITHOUT_ROWS = {"t": Ignored.TRUNCATE, "m": Ignored.MESSAGE}
_REMEDY = (
    "PostgreSQL: set the table's REPLICA IDENTITY to FULL, or to DEFAULT with a primary key; "
    "MySQL: binlog_row_image=FULL; CockroachDB: set the changefeed's option diff"
)


@dataclass(frozen=True, kw_only=True)
class DebeziumEnvelope(Format):
    """A format of Debezium's envelope, whose ``source`` has the position in the log."""

    positions = ""
    old_key_header = "__debezium.oldkey"

    time_zone: str | None = None
    database_include: str | None = None
    table_include: str | None = None

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
        return control_event_of(payload_of(value), reason, self.handling)


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


def envelope_of(rows: RowConverter, **more: Any) -> Envelope:
    """Return where the operation and the rows are; a missing column is NULL.

    Parameters
    ----------
    rows : RowConverter
        The declared columns.
    **more
        The other arguments of `Envelope`.
    """
    return Envelope(
        operation=("op",),
        kinds=_KINDS,
        codes=Codes(are_text=False, or_else=f", {', '.join(_WITHOUT_ROWS)}"),
        inspect=_inspect,
        adjust=partial(mark_unchanged, rows),
        after="after",
        before="before",
        deleted="before",
        images=Images(remedy=_REMEDY, missing_is_null=True),
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


def payload_of(value: bytes | None) -> dict[str, Any]:
    """Return the message without its wrapper."""
    message = read_object(value) if value else {}
    payload = message["payload"] if "op" not in message and "payload" in message else message
    return payload if isinstance(payload, dict) else {}


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
