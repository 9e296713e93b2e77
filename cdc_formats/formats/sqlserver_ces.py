r"""Change event streaming of SQL Server 2025, Azure SQL Database, Managed Instance and Fabric, in JSON.

SQL Server sends CloudEvents to Azure Event Hubs, which is read as Kafka (``@encoding = N'JSON'``). ``data`` is
JSON as text, and in it are the rows, again as text. An update, in fewer columns and without backslashes::

    {"specversion": "1.0", "type": "com.microsoft.SQL.CES.DML.V1", "source": "/", "id": "19221db1-...", "time": "2026-08-07T16:30:10.123Z",
     "logicalid": "1bf2756a-c15f-4d2e-a2d5-7d3f9dbf85b0:000000B1000009300009:00000000000000000001", "operation": "UPD",
     "datacontenttype": "application/json", "segmentindex": 0, "finalsegment": true, "data": "...
         {"eventsource": {"db": "shop", "schema": "dbo", "tbl": "parts", "cols": [{"name": "id", "type": "int", "index": 0}, ...],
                          "pkkey": [{"columnname": "id", "value": "8"}]},
          "eventrow": {"old": "{"id": "8", "name": "nail"}", "current": "{"id": "8", "name": "hammer"}"}}"}

=========  ===============================================
operation  rows
=========  ===============================================
``INS``    ``+I`` current
``UPD``    ``-U`` old, ``+U`` current
``DEL``    ``-D`` old, or ``pkkey`` if ``old`` is ``{}``
=========  ===============================================

Changelog mode: all. Key: ``pkkey``; the Kafka key is not read. Null value: `Ignored.TOMBSTONE`. There are no
messages of DDL or of a snapshot, and SQL Server refuses to truncate the table.

Absent and null: with ``@include_all_columns = 0`` ``current`` has only the columns that changed. A column that is
not in ``cols`` either did not change, and ChangelogNormalize completes the row. Without the rows before
(``@include_old_values = 0``) it completes ``-U``, too.

Refused, since Microsoft's pages do not say how to read them:

- an event that was split, in segments: raise ``@max_message_size_kb``
- a value of about 1 MB or more: it may be cut, which nothing in the message shows
- a column that is in ``cols`` and not in the row
- a row with another key than ``pkkey``, and another version of ``type``
- BINARY columns, as no page shows bytes: declare STRING

Types: text or null, by the declared type. Inference uses ``cols``. SQL Server leaves out columns of some types, such as
xml, json and rowversion.

Position: the commit LSN in ``logicalid``, and the order in the transaction.

Differs from Flink: Flink has no such format.

Source: Microsoft's pages "JSON message format" (7 and 8/2026), "Configure change event streaming" and
"sys.sp_add_object_to_event_stream_group".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import (
    Columnar,
    Envelope,
    Framing,
    Images,
    fields_struct,
    member,
    narrowed,
    text,
    timestamp,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import (
    MalformedMessageError,
    MissingBeforeImageError,
    MissingFieldError,
    PartialImageError,
    SchemaError,
    TypeConversionError,
)
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    Event,
    Position,
)
from cdc_formats.format import FilteredFormat, MetadataColumn
from cdc_formats.values.json_reader import (
    json_bytes,
    json_reader,
    read_json,
    read_members,
    read_part,
)
from cdc_formats.values.schema import Column, Handling, leaves

TYPE = "com.microsoft.SQL.CES.DML.V1"
_LEAST_CUT = 999_000
"""A value of more than 1 MB is cut to 1 MB; whether that is 10^6 bytes is not said."""
_LOGICAL_ID = re.compile(".*:([0-9A-Fa-f]{16})([0-9A-Fa-f]{4}):([0-9]{1,20})")
_KEPT = ("operation", "logicalid", "time")
"""The fields that a message keeps when its text is unwrapped."""
_read_event: Callable[[bytes], Any] = json_reader(
    narrowed(
        fields_struct(f"{' '.join(_KEPT)} type segmentindex finalsegment splittotalcnt data"),
        {"data": str | None},
    ),
    spelled=True,
)
_Texts = narrowed(fields_struct("old current"), {"old": str | None, "current": str | None})
_read_data: Callable[[bytes], Any] = json_reader(
    msgspec.defstruct(
        "Data",
        [
            ("eventsource", dict[str, msgspec.Raw], msgspec.field(default_factory=dict)),
            ("eventrow", _Texts, msgspec.field(default_factory=_Texts)),
        ],
        gc=False,
    )
)
_Source, _Images = fields_struct("db schema tbl cols"), fields_struct("old current")
_Data = msgspec.defstruct(
    "Data",
    [
        ("eventsource", _Source, msgspec.field(default_factory=_Source)),
        ("eventrow", _Images, msgspec.field(default_factory=_Images)),
    ],
    gc=False,
)
_Message = msgspec.defstruct(
    "Message",
    [("data", _Data, msgspec.field(default_factory=_Data))],
    bases=(fields_struct(f"{' '.join(_KEPT)} may_be_cut"),),
    gc=False,
)


@dataclass(frozen=True, kw_only=True)
class SqlserverCesJson(FilteredFormat):
    """SQL Server's change event streaming.

    Parameters
    ----------
    database_include, schema_include, table_include : str or None
        Regular expressions that ``db``, ``schema`` and ``tbl`` must match in full; others are ignored.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; a datetimeoffset needs none.
    """

    identifier = "sqlserver-ces-json"
    sampler = "cdc_formats.topics.samplers.messages:SqlserverCesSampler"
    positions = ""
    whole_rows = "set @include_all_columns = 1 and @include_old_values = 1"

    schema_include: str | None = None

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "database": MetadataColumn("STRING", lambda message: text(message.data.eventsource.db)),
        "schema": MetadataColumn("STRING", lambda message: text(message.data.eventsource.schema)),
        "table": MetadataColumn("STRING", lambda message: text(message.data.eventsource.tbl)),
        "event-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: timestamp(message.time, "$.time")
        ),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "database": "database_include",
        "schema": "schema_include",
        "table": "table_include",
    }

    @property
    def encodings(self) -> Handling:
        """Text."""
        return Handling(binary=None, time_zone=self.time_zone, native=False)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise for a BINARY column, whose text no page shows."""
        for column in columns:
            if any(each.name == "BINARY" for each in leaves(column.type)):
                raise SchemaError(
                    f"{column.name} is BINARY, and Microsoft does not document how "
                    f"{self.identifier} writes bytes: declare STRING"
                )

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are, once texts in the message are JSON."""
        return Envelope(
            fields=_Message,
            operation=("operation",),
            kinds={"INS": INSERT, "UPD": UPDATE_AFTER, "DEL": DELETE},
            after="data.eventrow.current",
            before="data.eventrow.old",
            deleted="data.eventrow.old",
            images=Images(remedy="Set @include_old_values = 1"),
            adjust=partial(_require_values, rows),
            attributes={
                name: (f"data.eventsource.{field}", None)
                for name, field in (("database", "db"), ("schema", "schema"), ("table", "tbl"))
            },
            framing=Framing(unwrap=unwrapped),
            columnar=Columnar(plain={"may_be_cut": (False,)}),
        )

    def position(self, message: Any) -> Position | None:
        """Return the position in ``logicalid``.

        Raises
        ------
        TypeConversionError
            When it has no LSN.
        """
        parts = _LOGICAL_ID.fullmatch(text(message.logicalid) or "")
        if parts is None or int(parts[3]) >> 48:
            raise TypeConversionError(
                "expected an id, 20 hexadecimal digits of an LSN and a number, separated by colons",
                "$.logicalid",
            )
        return Position("", int(parts[1], 16), int(parts[2], 16) << 48 | int(parts[3]), None)


def unwrapped(value: bytes) -> bytes:
    """Return an event whose ``data``, ``old`` and ``current`` are objects, not their text.

    The row has the columns of ``pkkey``, too. The field ``may_be_cut`` says whether the event is large
    enough for a value that SQL Server cuts.

    Raises
    ------
    MalformedMessageError
        When it is another event, one of them is not JSON, or the row has another key than ``pkkey``.
    PartialImageError
        When the event was split.
    """
    event = _read_event(value)
    if event.type != TYPE:
        raise MalformedMessageError(
            f"`type` is not {TYPE}, the only event of SQL Server that is read", "$.type"
        )
    if (
        event.finalsegment is False
        or event.segmentindex not in (None, 0, 1)
        or event.splittotalcnt not in (None, 0, 1)
    ):
        raise PartialImageError(
            "SQL Server split the event: raise @max_message_size_kb of the stream group",
            "$.segmentindex",
        )
    data = _of_text(_read_data, event.data, "$.data")
    old, current = (
        _of_text(read_members, getattr(data.eventrow, name), f"$.data.eventrow.{name}")
        for name in ("old", "current")
    )
    keys, is_delete = _value(data.eventsource, "pkkey"), event.operation == "DEL"
    if is_delete or current:
        _add_key(old if is_delete else current, keys if isinstance(keys, list) else [])
    return json_bytes(
        {
            **{name: getattr(event, name) for name in _KEPT},
            # A character has four bytes at most.
            "may_be_cut": 4 * len(event.data or "") >= _LEAST_CUT,
            "data": {
                "eventsource": data.eventsource,
                "eventrow": {"old": old or None, "current": current or None},
            },
        }
    )


def _of_text(read: Callable[[bytes], Any], text: str | None, path: str) -> Any:
    """Return what is read from an object that is JSON as text; null is an empty one."""
    return read_part(read, (text or "{}").encode("utf-8", "surrogatepass"), path)


def _value(members: Mapping[str, Any], name: str) -> Any:
    return read_json(bytes(members.get(name, b"null")))


def _add_key(image: dict[str, Any], keys: Sequence[Any]) -> None:
    """Add the columns of ``pkkey`` to a row; raise if it has other values."""
    parts = {
        name: member(each, "value")
        for each in keys
        if isinstance(name := member(each, "columnname"), str)
    }
    if other := [name for name in parts if name in image and _value(image, name) != parts[name]]:
        raise MalformedMessageError(
            f"`{other[0]}` has another value in `pkkey` than in the row: SQL Server does not document "
            "such an event",
            "$.data.eventsource.pkkey",
        )
    image.update({name: part for name, part in parts.items() if name not in image})


def _require_values(
    rows: RowConverter, event: Event, value: bytes, index: int, keyed: bool
) -> None:
    """Raise if a row lacks a column that it should have, or a value of it may be cut."""
    if event.kind is DELETE and keyed:
        return
    image, path = (
        (event.before, event.before_path)
        if event.kind is DELETE
        else (event.after, event.after_path)
    )
    present, columns = rows.present(image), event.message.data.eventsource.cols
    lacking = [name for name in rows.names if name not in present]
    if lacking and event.kind is DELETE:
        raise MissingBeforeImageError(
            f"the delete lacks `{lacking[0]}`: set @include_old_values = 1, or set a primary_key",
            path,
        )
    named = [member(each, "name") for each in columns] if isinstance(columns, list) else []
    if name := next((name for name in lacking if name in named), None):
        raise MissingFieldError(
            f"`{name}` is in `cols` and not in the row: SQL Server does not document whether it is "
            "NULL or did not change",
            f"{path}.{name}",
        )
    for name, each in present.items():
        size = (
            max(2 * len(each), len(each.encode("utf-8", "replace"))) if isinstance(each, str) else 0
        )
        if size >= _LEAST_CUT:
            raise PartialImageError(
                f"the value of `{name}` may be cut, since SQL Server cuts values of more than 1 MB: "
                "leave the column out",
                f"{path}.{name}",
            )
