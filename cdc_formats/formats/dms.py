"""AWS DMS JSON, as the Database Migration Service writes it to Apache Kafka (and Kinesis).

A message; if the task is configured to write before-images, they are in a separate field or next to the columns::

    {"data": {"id": 103, "name": "hammer", "weight": 1.0}, "before-image": {"id": 103, "name": "hammer", "weight": 1.1},
     "metadata": {"timestamp": "2024-10-27T12:39:03.210671Z", "record-type": "data", "operation": "update",
                  "partition-key-type": "primary-key", "schema-name": "shop", "table-name": "products", "transaction-id": 670014899490}}

====================  ==========================================================================================
operation             rows
====================  ==========================================================================================
``load``, ``insert``  ``+I`` data
``update``            ``-U`` before-image, ``+U`` data
``delete``            ``-D`` data
``truncate-table``    `Ignored.TRUNCATE` (of control records)
other control         `Ignored.DDL`: ``create-table``, ``drop-table``, ``add-column``, ``column-type-change``, ...
====================  ==========================================================================================

Changelog mode: all. Key: not read (it is the partition key, text such as ``shop.products.103``). Null value: `Ignored.TOMBSTONE`.

Before-images are disabled by default; then updates need ChangelogNormalize. ``before_image_field`` is the ``FieldName`` of the task's
BeforeImageSettings, ``before_image_prefix`` the ``column-prefix`` of a transformation rule (``BI_``). With the default
``before_image_column_filter="pk-only"`` they only contain the key before an update. With ``"all"`` they are read as whole rows. This is
correct for MySQL; Oracle's have only the changed columns, and PostgreSQL's only the key, unless REPLICA IDENTITY is FULL. Inference
recognizes the prefix ``BI_`` by a column ``BI_id`` next to ``id``.

Absent and null: DMS omits NULL and empty text, so that a missing column is NULL, and ``''`` becomes NULL. With
``include_null_and_empty=True`` (the endpoint's IncludeNullAndEmpty) every column is written. Then a column that an update lacks is
`ABSENT`, not NULL; it is taken from the before-image or completed by ChangelogNormalize (PostgreSQL's unchanged TOAST values, Oracle's
minimal supplemental logging, LOBs that did not change).

Types: numbers and text; bytes are hex, with or without ``0x``; times are ISO text, a DATETIME without zone with a ``Z`` as well, so that a
TIMESTAMP_NTZ takes it. If the source logs only the key of a delete (PostgreSQL by default), the other columns are NULL.

Differs from Flink: Flink has no such format.

Source: AWS DMS User Guide, "Using Apache Kafka as a target" and "Before image task settings".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.images import ABSENT
from cdc_formats.decoding.json_reader import json_reader, json_text, read_object
from cdc_formats.decoding.metadata import bigint, member, named, text, timestamp
from cdc_formats.decoding.rows import RowConverter, message_reader, row_shape
from cdc_formats.decoding.tables import TableFilter
from cdc_formats.errors import FormatOptionError, MissingFieldError, UnknownOperationError
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, Reader
from cdc_formats.format import Format
from cdc_formats.message_format import MetadataColumn, RowNames
from cdc_formats.row_kind import RowKind
from cdc_formats.values.handling import Handling

_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
USUAL_PREFIX = "BI_"
"""The documentation's prefix of before-images."""
_KINDS = {"load": _INSERT, "insert": _INSERT, "update": _UPDATE, "delete": _DELETE}


@dataclass(frozen=True, kw_only=True)
class DmsJson(Format):
    """AWS DMS's messages.

    Parameters
    ----------
    before_image_field : str or None
        The field of before-images: ``FieldName`` of BeforeImageSettings (``before-image`` in the documentation).
    before_image_prefix : str or None
        The prefix of the before-image's columns in ``data`` (``BI_`` in the documentation).
    before_image_column_filter : {"pk-only", "non-lob", "all"}
        ``ColumnFilter``: the columns of before-images; only ``all`` is read as whole rows.
    include_null_and_empty : bool
        The endpoint's ``IncludeNullAndEmpty``.
    schema_include, table_include : str or None
        Regular expressions that ``schema-name`` and ``table-name`` must match in full; other tables are ignored.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "dms-json"
    sampler = "cdc_formats.topics.samplers.dms:DmsSampler"
    positions = "DMS writes `stream-position` in a different form for each engine, and omits it in a full load"

    before_image_field: str | None = None
    before_image_prefix: str | None = None
    before_image_column_filter: str = "pk-only"
    include_null_and_empty: bool = False
    schema_include: str | None = None
    table_include: str | None = None
    time_zone: str | None = None

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "operation": MetadataColumn("STRING", lambda message: text(message.metadata.operation)),
        "schema": MetadataColumn("STRING", lambda message: text(message.metadata.schema_name)),
        "table": MetadataColumn("STRING", lambda message: text(message.metadata.table_name)),
        "ingestion-timestamp": MetadataColumn("TIMESTAMP(6)", lambda m: timestamp(m.metadata.timestamp, "$.metadata.timestamp")),
        "event-timestamp": MetadataColumn("TIMESTAMP(6)", lambda m: timestamp(m.metadata.commit_timestamp, "$.metadata.commit-timestamp")),
        "transaction-id": MetadataColumn("BIGINT", lambda m: bigint(m.metadata.transaction_id, "$.metadata.transaction-id")),
        "stream-position": MetadataColumn("STRING", lambda message: text(message.metadata.stream_position)),
    }
    table_identity: ClassVar[Mapping[str, str]] = {"schema": "schema_include", "table": "table_include"}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_choice("before_image_column_filter", ("pk-only", "non-lob", "all"))
        if self.before_image_field in ("data", "metadata", "control", ""):
            raise FormatOptionError(f"dms-json: before_image_field is {self.before_image_field!r}; it must name a separate field")
        if self.before_image_prefix == "":
            raise FormatOptionError("dms-json: before_image_prefix is empty, and would match every column")
        if self.before_image_field is not None and self.before_image_prefix is not None:
            raise FormatOptionError("dms-json: before_image_field and before_image_prefix cannot be combined: remove one of them")

    @property
    def encodings(self) -> Handling:
        """Numbers and text, hex."""
        return Handling(time="isostring", binary="hex", time_zone=self.time_zone)

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages."""
        reader = _Reader(self, rows, keyed)
        return reader.tables.guard(reader, (("metadata", "schema-name"), ("metadata", "table-name")))

    def envelope(self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False) -> Envelope | None:
        """Return the places of the operation and the rows; None if before-images are among the columns."""
        if self.before_image_prefix:
            return None
        return Envelope(
            fields=_Plain,
            operation=("metadata.operation",),
            kinds=_KINDS,
            after="data",
            before="before" if self.before_image_field else "",
            before_has="all columns" if self.before_image_column_filter == "all" else "some columns",
            deleted="data",
            names={"before": self.before_image_field} if self.before_image_field else {},
            missing_is_null=not self.include_null_and_empty,
            attributes={"schema": ("metadata.schema_name", None), "table": ("metadata.table_name", None)},
            tables=TableFilter(self.schema_include, self.table_include, level="schema"),
        )

    def row_names(self, event: Event) -> RowNames | None:
        """Return the names in ``data``; without ``IncludeNullAndEmpty`` DMS omits columns that are NULL.

        Without options of before-images, names with the documentation's prefix are those of one if a column without it is next to one.
        """
        found = super().row_names(event)
        if found is None:
            return None
        prefix = self.before_image_prefix
        if prefix is None:
            added = [] if self.before_image_field else before_image_names(found.names)
        else:
            added = [name for name in found.names if name.startswith(prefix)]
        return RowNames(found.names, found.whole and self.include_null_and_empty, added)

    def control_event(self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()) -> ControlEvent:
        """Return the schema and table; the statement is the operation and, if present, the table's new definition."""
        message = read_object(value) if value else {}
        metadata = message.get("metadata")
        operation, definition = named(member(metadata, "operation")), message.get("control")
        statement = operation if not operation or not definition else f"{operation} {json_text(definition)}"
        return ControlEvent(reason, None, named(member(metadata, "schema-name")), named(member(metadata, "table-name")), statement)


def before_image_names(names: Collection[str]) -> list[str]:
    """Return the names with the documentation's prefix if a column without it is next to one: a before-image has no others."""
    prefixed = [name for name in names if name.startswith(USUAL_PREFIX)]
    return prefixed if any(name[len(USUAL_PREFIX) :] in names for name in prefixed) else []


class _Metadata(msgspec.Struct, gc=False, rename="kebab"):
    operation: Any = None
    record_type: Any = None
    schema_name: Any = None
    table_name: Any = None
    timestamp: Any = None
    commit_timestamp: Any = None
    transaction_id: Any = None
    stream_position: Any = None


class _Message(msgspec.Struct, gc=False):
    metadata: _Metadata | None = None


class _PlainMetadata(_Metadata, gc=False, rename="kebab"):
    operation: str | None = None
    record_type: Literal["data"] | None = None
    schema_name: str | None = None
    table_name: str | None = None


class _Plain(_Message, gc=False):
    metadata: _PlainMetadata = msgspec.field(default_factory=_PlainMetadata)


class _Reader:
    """Reads the messages of one table."""

    def __init__(self, format: DmsJson, rows: RowConverter, keyed: bool) -> None:
        self.rows, self.keyed, self.prefix = rows, keyed, format.before_image_prefix
        self.sparse = format.include_null_and_empty
        # A before-image with only the key shows whether an update changed it; it is not a row.
        self.whole = format.before_image_column_filter == "all"
        self.tables = TableFilter(format.schema_include, format.table_include, level="schema")
        self.field = field = format.before_image_field if keyed or self.whole else None
        self.before_path = f"$.{field}" if field else "$.data"
        names, before = ({"before": field}, "before") if field else (None, "")
        self.message = message_reader(rows, _Message, "data", before, key_before=keyed and bool(field), sparse=self.sparse, names=names)
        self.prefixed_reader = json_reader(self._prefixed_shape(), spelled=rows.spelled) if self.prefix and (keyed or self.whole) else None

    def _prefixed_shape(self) -> Any:
        names = [f"{self.prefix}{name}" for name in self.rows.names]
        return msgspec.defstruct("Beside", [("data", row_shape(names))], gc=False)

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        assert value is not None  # reads_tombstones is False
        message = self.message(value)
        metadata, data = message.metadata, message.data
        if metadata is None:
            raise MissingFieldError("`metadata` is missing or null", "$.metadata")
        if self.tables.set and not self.tables.match(metadata.schema_name, metadata.table_name, "$.metadata"):
            return Ignored.OTHER_TABLE
        if metadata.record_type == "control":
            return Ignored.TRUNCATE if metadata.operation == "truncate-table" else Ignored.DDL
        kind = _KINDS.get(metadata.operation) if isinstance(metadata.operation, str) else None
        if kind is None:
            known = f"is none of {', '.join(sorted(_KINDS))}, and record-type is not 'control'"
            place = "$.metadata.operation"
            raise UnknownOperationError(f"operation {str(metadata.operation)[:40]!r} {known}", place, bare=f"operation {known}")
        if data is None:
            raise MissingFieldError(f"`data` is missing or null when operation is {metadata.operation!r}", "$.data")
        if kind is _INSERT:
            return [Event(_INSERT, None, data, message, "", "$.data")]
        if kind is _DELETE:
            return [Event(_DELETE, data, None, message, "$.data", "")]
        before = self._before(message, value)
        return [Event(_UPDATE, before, data, message, self.before_path, "$.data", False, self.sparse)]

    def _before(self, message: Any, value: bytes) -> Any:
        """Return the before-image if it is usable: a whole row, or any columns if only keys are used."""
        image = message.before if self.field else None if self.prefixed_reader is None else self._stripped(self.prefixed_reader(value).data)
        if image is None or self.keyed:
            return image
        values = self.rows.raw(image)
        unknown = ABSENT in values if self.sparse else all(value is ABSENT for value in values)
        return None if unknown else image

    def _stripped(self, image: Any) -> Any:
        """Return a before-image next to the columns, without the prefix; a struct's fields have no prefix."""
        if isinstance(image, msgspec.Struct):
            return image
        prefix = str(self.prefix)
        return {name[len(prefix) :]: item for name, item in image.items() if name.startswith(prefix)}
