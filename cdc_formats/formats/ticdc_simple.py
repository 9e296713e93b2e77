"""TiCDC's simple protocol in JSON (``protocol=simple``, ``encoding-format=json``).

A row, a deleted row, and a table's columns, which TiCDC repeats every two minutes::

    {"version": 1, "database": "shop", "table": "orders", "tableID": 148, "type": "UPDATE", "commitTs": 447984099186180098,
     "buildTs": 1708923719184, "schemaVersion": 447984074911121426,
     "data": {"id": "1", "paid_at": {"location": "Asia/Shanghai", "value": "2024-02-26 13:01:59"}}, "old": {"id": "1", "paid_at": null}}
    {"version": 1, "database": "shop", "table": "orders", "tableID": 148, "type": "DELETE", "commitTs": 447984114259722243,
     "buildTs": 1708923776484, "schemaVersion": 447984074911121426, "old": {"id": "1", "paid_at": null}}
    {"version": 1, "type": "BOOTSTRAP", "commitTs": 0, "buildTs": 1708924603278, "tableSchema": {"schema": "shop", "table": "orders",
     "columns": [{"name": "id", "dataType": {"mysqlType": "int", "length": 11}, "nullable": false, "default": null}],
     "indexes": [{"name": "primary", "unique": true, "primary": true, "nullable": false, "columns": ["id"]}]}}

======================================  ======================================
type                                    rows
======================================  ======================================
``INSERT``                              ``+I`` data
``UPDATE``                              ``-U`` old, ``+U`` data
``DELETE``                              ``-D`` old
``WATERMARK``                           `Ignored.HEARTBEAT`: all rows up to
                                        ``commitTs`` have been sent
``BOOTSTRAP``                           `Ignored.MESSAGE`
``TRUNCATE``                            `Ignored.TRUNCATE`
``CREATE``, ``ALTER``, ``RENAME``,      `Ignored.DDL`
``CINDEX``, ``DINDEX``, ``ERASE``,
``QUERY``
======================================  ======================================

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE`.

A message with rows has no types. Inference takes the types and the primary key from ``tableSchema``,
which ``BOOTSTRAP`` and statements have: the sample needs one of the table. ``QUERY`` is compared with
no filter, since a statement on a database names no table.

Absent and null: rows are whole, and a missing column is NULL. TiCDC writes no virtual generated
columns. If a message is too large for Kafka, it has only the handle key (``handleKeyOnly``), or its row
is in a file (``claimCheckLocation``): this is an error, except for a delete in a keyed stage.

Refused: a row that TiCDC marks as ``corrupted``, since its checksum differs.

Types: text or null; bytes in base64, a ``TIMESTAMP`` with its zone; ENUM, SET and BIT are numbers.

Position: ``commitTs``; there is one history.

Differs from Flink: Flink has no such format.

Source: TiCDC's page "TiCDC Simple Protocol" and its pkg/sink/codec/simple (message.go, decoder.go).
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
    epoch_ms,
    fields_struct,
    member,
    named,
    text,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MalformedMessageError, MissingBeforeImageError, MissingFieldError
from cdc_formats.events import (
    DELETE,
    UPDATE_AFTER,
    ControlEvent,
    Event,
    Headers,
    Ignored,
    Position,
    RowKind,
)
from cdc_formats.format import MetadataColumn
from cdc_formats.values.json_reader import read_object
from cdc_formats.values.schema import Handling

from .canal import KINDS, MysqlFormat
from .ticdc import commit_position, too_large


@dataclass(frozen=True, kw_only=True)
class TicdcSimpleJson(MysqlFormat):
    """TiCDC's simple protocol.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        Both are read.
    database_include, table_include : str or None
        Regular expressions that ``database`` and ``table`` must match in full; other tables are
        ignored without validation.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column. TiCDC's own name their zone.
    """

    identifier = "ticdc-simple-json"
    sampler = "cdc_formats.topics.samplers.messages:TicdcSimpleSampler"
    positions = ""

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "database": MetadataColumn("STRING", lambda message: _name(message, "database", "schema")),
        "table": MetadataColumn("STRING", lambda message: _name(message, "table", "table")),
        "commit-ts": MetadataColumn(
            "BIGINT", lambda message: bigint(message.commit_ts, "$.commitTs")
        ),
        "schema-version": MetadataColumn(
            "BIGINT", lambda message: bigint(message.schema_version, "$.schemaVersion")
        ),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_ms(message.build_ts, "$.buildTs")
        ),
    }

    @property
    def encodings(self) -> Handling:
        """Text; bytes in base64."""
        return Handling(time_zone=self.time_zone, native=False)

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are; the scalar decoder reads partial rows."""
        return Envelope(
            fields=_Message,
            operation=("type",),
            kinds=(
                {
                    **KINDS,
                    **dict.fromkeys(
                        ("ALTER", "CINDEX", "CREATE", "DINDEX", "ERASE", "RENAME"), Ignored.DDL
                    ),
                    "BOOTSTRAP": Ignored.MESSAGE,
                    "TRUNCATE": Ignored.TRUNCATE,
                }
            ),
            codes=Codes(without_table={"WATERMARK": Ignored.HEARTBEAT, "QUERY": Ignored.DDL}),
            inspect=_inspect,
            after="data",
            before="old",
            deleted="old",
            images=Images(missing_is_null=True, remedy="TiCDC writes the row into it"),
            adjust=lambda event, _value, _index, keyed: (
                None if keyed else _require_whole(event, rows)
            ),
            attributes={"database": ("database", None), "table": ("table", None)},
            columnar=Columnar(
                plain={
                    "handle_key_only": (False, None),
                    "claim_check_location": (None,),
                    "checksum.corrupted": (False, None),
                },
                needs_before=True,
            ),
        )

    def position(self, message: Any) -> Position | None:
        """Return the transaction's ``commitTs``, which orders all changes of a key.

        Raises
        ------
        TypeConversionError
            When it is missing or not a number.
        """
        return commit_position(message.commit_ts, "$.commitTs")

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the table and the statement; for a watermark its ``commitTs``."""
        message = read_object(value) if value else {}
        schema = message.get("tableSchema")
        database, table = (
            named(message.get(own) or member(schema, other))
            for own, other in (("database", "schema"), ("table", "table"))
        )
        return ControlEvent(
            reason,
            database,
            None,
            table,
            text(message.get("commitTs" if reason is Ignored.HEARTBEAT else "sql")),
        )


_Checksum = fields_struct("corrupted")
_Message = msgspec.defstruct(
    "Message",
    [("checksum", _Checksum, msgspec.field(default_factory=_Checksum))],
    bases=(
        fields_struct(
            "type database table commit_ts build_ts schema_version handle_key_only "
            "claim_check_location",
            raw="table_schema",
            rename="camel",
        ),
    ),
    gc=False,
)


def _name(message: Any, own: str, of_schema: str) -> str | None:
    """Return a name of the table, which messages without rows have in ``tableSchema``."""
    value = getattr(message, own)
    return text(member(message.table_schema, of_schema) if value is None else value)


def _inspect(message: Any, kind: RowKind | Ignored | None) -> None:
    """Raise if the row is damaged or not in the message."""
    if message.checksum.corrupted is True:
        raise MalformedMessageError(
            "TiCDC marks the row as corrupted, since its checksum differs: compare the row in TiDB",
            "$.checksum.corrupted",
        )
    if isinstance(kind, RowKind) and kind is not DELETE and _is_cut(message):
        raise too_large(message.claim_check_location, "$")
    if kind is UPDATE_AFTER and message.old is None:
        raise MissingFieldError("`old` is missing or null, and type is 'UPDATE'", "$.old")


def _is_cut(message: Any) -> bool:
    return message.handle_key_only is True or message.claim_check_location is not None


def _require_whole(event: Event, rows: RowConverter) -> None:
    """Raise for a delete that has only the handle key."""
    if _is_cut(event.message) and len(rows.present(event.before)) < len(rows.names):
        raise MissingBeforeImageError(
            "the delete has only the handle key, since the row was too large: raise TiCDC's "
            "max-message-bytes, or set a primary_key",
            "$.old",
        )
