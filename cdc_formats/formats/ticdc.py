"""TiCDC's Canal JSON: Canal's flat message with TiCDC's extension ``_tidb`` (``protocol=canal-json``).

A message, always with one row; ``_tidb`` requires ``enable-tidb-extension=true``::

    {"id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": "UPDATE", "es": 1668673476000,
     "ts": 1668673476732, "sql": "", "sqlType": {"id": 4, "note": 12}, "mysqlType": {"id": "int", "note": "varchar"},
     "data": [{"id": "1", "note": "paid"}], "old": [{"id": "1", "note": "open"}], "_tidb": {"commitTs": 437451228626059264}}

====================  =============================================================================================
type                  rows
====================  =============================================================================================
``INSERT``            ``+I`` data
``UPDATE``            ``-U``, ``+U``: ``data`` with ``old`` over it, which has all columns, or with
                      ``only-output-updated-columns=true`` those that changed
``DELETE``            ``-D`` data
``TIDB_WATERMARK``    `Ignored.HEARTBEAT`: all rows up to ``watermarkTs`` have been sent (except redeliveries)
``TRUNCATE``          `Ignored.TRUNCATE`
other with ``isDdl``  `Ignored.DDL`
====================  =============================================================================================

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE`.

Absent and null: as in `canal_json`, but TiCDC writes all columns of the table: a missing one is NULL. An incomplete row is never filled
with NULL. If a message is too large for Kafka, it has only the handle key (``onlyHandleKey``), or its row is in a file
(``claimCheckLocation``): for an insert and an update this is an error. For a delete the key is enough for a keyed stage; without one it is
an error, since ``-D`` must be a whole row. TiCDC does not mark the deletes of ``delete-only-output-handle-key-columns=true``. They are
recognized if their only declared columns are those of ``pkNames``. This fails for tables whose handle key is not the primary key: set a
primary_key there.

Types: as in `canal_json`: text or null, bytes as ISO-8859-1 characters; ENUM, SET and BIT are numbers, a BIGINT UNSIGNED its digits.

Position: ``commitTs``; there is one history.

Differs from Flink, which reads these topics as canal-json: a watermark is ignored (Flink: "Unknown type"), and an incomplete row is an
error (Flink: NULLs). Otherwise as in `canal_json`.

Source: TiCDC's pkg/sink/codec/canal (canal_json_row_event_encoder.go, canal_json_message.go, canal_entry.go); its Canal-JSON page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.images import ABSENT
from cdc_formats.decoding.json_reader import read_object
from cdc_formats.decoding.metadata import bigint, member, text, unraw
from cdc_formats.decoding.rows import RowConverter, message_reader
from cdc_formats.decoding.tables import TableFilter
from cdc_formats.errors import DecodeError, MissingBeforeImageError, MissingFieldError, PartialImageError, UnknownOperationError
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, Reader
from cdc_formats.message_format import MetadataColumn
from cdc_formats.position import Position, integer
from cdc_formats.row_kind import RowKind

from .canal import KINDS, CanalFormat, Message

_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
_WATERMARK = "TIDB_WATERMARK"


@dataclass(frozen=True, kw_only=True)
class TicdcCanalJson(CanalFormat):
    """TiCDC's Canal JSON.

    Parameters
    ----------
    timestamp_format_standard, database_include, table_include, binary_handling_mode, time_zone
        As of `canal_json.CanalJson`; the zone is that of the TiCDC server (``time-zone``).
    """

    identifier = "ticdc-canal-json"
    sampler = "cdc_formats.topics.samplers.canal:TicdcSampler"
    positions = ""

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        **CanalFormat.metadata,
        "commit-ts": MetadataColumn("BIGINT", lambda message: bigint(message.tidb.commit_ts, "$._tidb.commitTs")),
    }

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages."""
        message = message_reader(rows, _Message, "data", "old", many=True)
        tables = TableFilter(self.database_include, self.table_include)

        def read(key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
            assert value is not None  # reads_tombstones is False
            return _events(message(value), tables, None if keyed else rows)

        return tables.guard(read, (("database",), ("table",)))

    def envelope(self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False) -> Envelope | None:
        """Return the places of the operation and the row; a row that is not whole is decoded alone."""
        return Envelope(
            fields=_Plain,
            operation=("type", "is_ddl", "tidb.only_handle_key"),
            kinds={(type, ddl, key): kind for type, kind in KINDS.items() for ddl in (False, None) for key in (False, None)},
            after="data",
            before="old",
            before_has="changed columns",
            deleted="data",
            rows="array of one",
            missing_is_null=True,
            needs_before=True,
            attributes={"database": ("database", None), "table": ("table", None)},
            tables=TableFilter(self.database_include, self.table_include),
        )

    def position(self, message: Any) -> Position | None:
        """Return the transaction's ``commitTs``, which orders all changes of a key.

        Raises
        ------
        MissingFieldError
            When it is missing.
        TypeConversionError
            When it is not a number.
        """
        if message.tidb.commit_ts is None:
            raise MissingFieldError("`_tidb.commitTs` is missing: set TiCDC's enable-tidb-extension=true", "$._tidb.commitTs")
        return commit_position(message.tidb.commit_ts)

    def control_event(self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()) -> ControlEvent:
        """Return the database, table and statement; for a watermark its ``watermarkTs``."""
        event = super().control_event(key, value, reason)
        if reason is not Ignored.HEARTBEAT or not value:
            return event
        return event._replace(statement=text(member(read_object(value).get("_tidb"), "watermarkTs")))


class _Tidb(msgspec.Struct, gc=False, rename="camel"):
    commit_ts: Any = None
    only_handle_key: Any = None
    claim_check_location: Any = None


class _Message(Message, gc=False):
    tidb: _Tidb = msgspec.field(default_factory=_Tidb, name="_tidb")


class _WholeRow(_Tidb, gc=False, rename="camel"):
    only_handle_key: bool | None = None
    claim_check_location: None = None


class _Plain(_Message, gc=False):
    type: str | None = None
    database: str | None = None
    table: str | None = None
    is_ddl: bool | None = msgspec.field(default=None, name="isDdl")
    tidb: _WholeRow = msgspec.field(default_factory=_WholeRow, name="_tidb")


def _events(message: Any, tables: TableFilter, whole: RowConverter | None) -> Sequence[Event] | Ignored:
    """Return a message's event; `whole` if a delete must have its whole row."""
    kind = KINDS.get(message.type) if isinstance(message.type, str) else None
    if (reason := _without_rows(message, kind, tables)) is not None:
        return reason
    if message.tidb.claim_check_location is not None and (kind is not _DELETE or message.data is None or whole):
        raise _elsewhere(message.tidb.claim_check_location)
    if kind is None:
        raise _unknown(message.type)
    row = _only(message.data, "data", message.type)
    if kind is _DELETE:
        _require_whole(message, row, whole)
        return [Event.delete(row, message, "$.data[0]")]
    if message.tidb.only_handle_key is True:
        raise PartialImageError(
            "the message has only the handle key (onlyHandleKey), since the row was too large: raise TiCDC's max-message-bytes and the "
            "topic's max.message.bytes, or set its large-message-handle-compression",
            "$.data[0]",
        )
    if kind is _INSERT:
        return [Event.insert(row, message, "$.data[0]")]
    old = _only(message.old, "old", message.type)
    return [Event(_UPDATE, old, row, message, "$.old[0]", "$.data[0]", True)]


def _without_rows(message: Any, kind: RowKind | None, tables: TableFilter) -> Ignored | None:
    """Return the reason why a message has no rows, None if it has some or is not valid."""
    if message.type == _WATERMARK:
        return Ignored.HEARTBEAT
    if tables.set and (kind is not None or message.is_ddl is True) and not tables.match(message.database, message.table, "$"):
        return Ignored.OTHER_TABLE
    if message.is_ddl is True:
        return Ignored.TRUNCATE if message.type == "TRUNCATE" else Ignored.DDL
    return None


def _require_whole(message: Any, row: Any, whole: RowConverter | None) -> None:
    if whole and ABSENT in (values := whole.raw(row)) and _key_only(message, whole.names, values):
        raise MissingBeforeImageError(
            "the delete has only the key: set TiCDC's delete-only-output-handle-key-columns=false, or set a primary_key",
            "$.data[0]",
        )


def commit_position(commit_ts: Any) -> Position:
    """Return the position in TiCDC's ``commitTs``: milliseconds since 1970-01-01 UTC << 18 and a count.

    Raises
    ------
    TypeConversionError
        When it is not such a number.
    """
    number = integer(commit_ts, 64, "$._tidb.commitTs")
    return Position("", number, 0, number >> 18)


def _only(images: Any, name: str, type: str) -> Any:
    if images is None or len(images) != 1 or images[0] is None:
        raise MissingFieldError(f"`{name}` must be an array of one row when `type` is {type!r}", f"$.{name}")
    return images[0]


def _key_only(message: Any, names: Sequence[str], values: Sequence[Any]) -> bool:
    keys = unraw(message.pk_names)
    rest = [value for name, value in zip(names, values, strict=True) if not isinstance(keys, list) or name not in keys]
    return message.tidb.only_handle_key is True or all(value is ABSENT for value in rest)


def _elsewhere(location: Any) -> PartialImageError:
    reason, hint = "the row was too large and is in a file", ", which is not read: raise TiCDC's max-message-bytes"
    return PartialImageError(f"{reason} ({text(location)}){hint}", "$._tidb.claimCheckLocation", bare=reason + hint)


def _unknown(type: Any) -> DecodeError:
    if not isinstance(type, str):
        return MissingFieldError("`type` is missing or not a string", "$.type")
    known = f"is none of {', '.join(sorted({*KINDS, _WATERMARK}))}, and the message is not DDL"
    return UnknownOperationError(f"type {type[:40]!r} {known}", "$.type", bare=f"type {known}")
