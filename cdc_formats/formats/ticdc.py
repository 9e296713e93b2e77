"""TiCDC's Canal JSON: Canal's flat message with the extension ``_tidb`` (``protocol=canal-json``).

A message, always with one row; ``_tidb`` requires ``enable-tidb-extension=true``::

    {"id": 0, "database": "shop", "table": "orders", "pkNames": ["id"], "isDdl": false, "type": "UPDATE", "es": 1668673476000,
     "ts": 1668673476732, "sql": "", "sqlType": {"id": 4, "note": 12}, "mysqlType": {"id": "int", "note": "varchar"},
     "data": [{"id": "1", "note": "paid"}], "old": [{"id": "1", "note": "open"}], "_tidb": {"commitTs": 437451228626059264}}

====================  =============================================================================
type                  rows
====================  =============================================================================
``INSERT``            ``+I`` data
``UPDATE``            ``-U``, ``+U``: ``data`` with ``old`` over it, which has all columns, or with
                      ``only-output-updated-columns=true`` those that changed
``DELETE``            ``-D`` data
``TIDB_WATERMARK``    `Ignored.HEARTBEAT`: all rows up to ``watermarkTs`` have been sent (except
                      redeliveries)
``TRUNCATE``          `Ignored.TRUNCATE`
other with ``isDdl``  `Ignored.DDL`
====================  =============================================================================

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE`.

Absent and null: as in `canal_json`, but TiCDC writes all columns of the table: a missing one is
NULL. An incomplete row is never filled with NULL. If a message is too large for Kafka, it has only
the handle key (``onlyHandleKey``), or its row is in a file (``claimCheckLocation``): for an insert
and an update this is an error. For a delete the key is enough for a keyed stage; without one it is
an error, since ``-D`` must be a whole row. TiCDC does not mark the deletes of
``delete-only-output-handle-key-columns=true``. They are recognized if their only declared columns
are those of ``pkNames``. This fails for tables whose handle key is not the primary key: set a
primary_key there.

Types: as in `canal_json`: text or null, bytes as ISO-8859-1 characters; ENUM, SET and BIT are
numbers, a BIGINT UNSIGNED its digits.

Position: ``commitTs``; there is one history.

Differs from Flink, which reads these topics as canal-json: a watermark is ignored (Flink: "Unknown
type"), and an incomplete row is an error (Flink: NULLs). Otherwise as in `canal_json`.

Source: TiCDC's pkg/sink/codec/canal (canal_json_row_event_encoder.go, canal_json_message.go,
canal_entry.go); its Canal-JSON page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import (
    Codes,
    Columnar,
    Envelope,
    Images,
    bigint,
    fields_struct,
    member,
    text,
    unraw,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MissingBeforeImageError, MissingFieldError, PartialImageError
from cdc_formats.events import (
    DELETE,
    ControlEvent,
    Event,
    Headers,
    Ignored,
    Position,
    RowKind,
    integer,
)
from cdc_formats.format import MetadataColumn
from cdc_formats.values.json_reader import read_object

from .canal import KINDS, MESSAGE, CanalFormat


@dataclass(frozen=True, kw_only=True)
class TicdcCanalJson(CanalFormat):
    """TiCDC's Canal JSON.

    Parameters
    ----------
    timestamp_format_standard, database_include, table_include, binary_handling_mode, time_zone
        Same as `canal_json.CanalJson`; the zone is that of the TiCDC server (``time-zone``).
    """

    identifier = "ticdc-canal-json"
    sampler = "cdc_formats.topics.samplers.messages:TicdcSampler"
    positions = ""

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        **CanalFormat.metadata,
        "commit-ts": MetadataColumn(
            "BIGINT", lambda message: bigint(message.tidb.commit_ts, "$._tidb.commitTs")
        ),
    }

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the row are; the scalar decoder reads partial rows."""
        return Envelope(
            fields=_Message,
            operation=("type",),
            kinds=KINDS,
            codes=Codes(
                without_table={"TIDB_WATERMARK": Ignored.HEARTBEAT},
                or_else=", and the message is not DDL",
            ),
            inspect=_inspect,
            after="data",
            before="old",
            deleted="data",
            images=Images(many="array of one", before_has="changed columns", missing_is_null=True),
            adjust=lambda event, _value, _index, keyed: (
                None if keyed else _require_whole(event, rows)
            ),
            attributes={"database": ("database", None), "table": ("table", None)},
            columnar=Columnar(
                plain={
                    "is_ddl": (False, None),
                    "tidb.only_handle_key": (False, None),
                    "tidb.claim_check_location": (None,),
                },
                needs_before=True,
            ),
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
            raise MissingFieldError(
                "`_tidb.commitTs` is missing: set TiCDC's enable-tidb-extension=true",
                "$._tidb.commitTs",
            )
        return commit_position(message.tidb.commit_ts)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the database, table and statement; for a watermark its ``watermarkTs``."""
        event = super().control_event(key, value, reason)
        if reason is not Ignored.HEARTBEAT or not value:
            return event
        return event._replace(
            statement=text(member(read_object(value).get("_tidb"), "watermarkTs"))
        )


_Tidb = fields_struct("commit_ts only_handle_key claim_check_location", rename="camel")
_Message = msgspec.defstruct(
    "Message",
    [("tidb", _Tidb, msgspec.field(default_factory=_Tidb))],
    bases=(MESSAGE,),
    rename={"tidb": "_tidb"},
    gc=False,
)


def _inspect(message: Any, kind: RowKind | Ignored | None) -> Ignored | None:
    """Return the reason of a message without rows; raise if its row is not in it."""
    if message.is_ddl is True:
        return Ignored.TRUNCATE if message.type == "TRUNCATE" else Ignored.DDL
    if message.tidb.claim_check_location is not None and (
        kind is not DELETE or message.data is None
    ):
        raise too_large(message.tidb.claim_check_location, "$._tidb")
    if message.tidb.only_handle_key is True and kind is not DELETE:
        raise too_large(None, "$.data[0]")
    return None


def _require_whole(event: Event, rows: RowConverter) -> None:
    """Raise for a delete that has only the key."""
    if event.kind is not DELETE:
        return
    if event.message.tidb.claim_check_location is not None:
        raise too_large(event.message.tidb.claim_check_location, "$._tidb")
    keys, columns = unraw(event.message.pkNames), rows.present(event.before)
    key_only = event.message.tidb.only_handle_key is True or (
        isinstance(keys, list) and all(name in keys for name in columns)
    )
    if key_only and len(columns) < len(rows.names):
        raise MissingBeforeImageError(
            (
                "the delete has only the key: set TiCDC's "
                "delete-only-output-handle-key-columns=false, or set a primary_key"
            ),
            "$.data[0]",
        )


def commit_position(commit_ts: Any, path: str = "$._tidb.commitTs") -> Position:
    """Return the position in TiCDC's ``commitTs``: ms since 1970-01-01 UTC << 18 and a count.

    Raises
    ------
    TypeConversionError
        When it is not such a number.
    """
    number = integer(commit_ts, 64, path)
    return Position("", number, 0, number >> 18)


def too_large(location: Any, path: str) -> PartialImageError:
    """Return the error of a message that is too large for Kafka.

    Parameters
    ----------
    location : Any
        The file with the row (``claimCheckLocation``); None: the message has the handle key.
    path : str
        The object with the location, or the row.
    """
    if location is None:
        return PartialImageError(
            "the message has only the handle key, since the row was too large: raise TiCDC's "
            "max-message-bytes and the topic's max.message.bytes, or set its "
            "large-message-handle-compression",
            path,
        )
    reason, hint = (
        "the row was too large and is in a file",
        ", which is not read: raise TiCDC's max-message-bytes",
    )
    return PartialImageError(
        f"{reason} ({text(location)}){hint}", f"{path}.claimCheckLocation", bare=reason + hint
    )
