"""AWS DMS JSON, as the Database Migration Service writes it to Apache Kafka (and Kinesis).

A message; if the task is configured to write before-images, they are in a separate field or next to
the columns::

    {"data": {"id": 103, "name": "hammer", "weight": 1.0}, "before-image": {"id": 103, "name": "hammer", "weight": 1.1},
     "metadata": {"timestamp": "2024-10-27T12:39:03.210671Z", "record-type": "data", "operation": "update",
                  "partition-key-type": "primary-key", "schema-name": "shop", "table-name": "products", "transaction-id": 670014899490}}

====================  ================================================================
operation             rows
====================  ================================================================
``load``, ``insert``  ``+I`` data
``update``            ``-U`` before-image, ``+U`` data
``delete``            ``-D`` data
``truncate-table``    `Ignored.TRUNCATE` (of control records)
other control         `Ignored.DDL`: ``create-table``, ``drop-table``, ``add-column``,
                      ``column-type-change``, ...
====================  ================================================================

Changelog mode: all. Key: not read (it is the partition key, text such as ``shop.products.103``).
Null value: `Ignored.TOMBSTONE`.

Before-images are disabled by default; then updates need ChangelogNormalize. ``before_image_field``
is the ``FieldName`` of the task's BeforeImageSettings, ``before_image_prefix`` the
``column-prefix`` of a transformation rule (``BI_``). With the default
``before_image_column_filter="pk-only"`` they only contain the key before an update. With ``"all"``
they are read as whole rows. This is correct for MySQL; Oracle's have only the changed columns, and
PostgreSQL's only the key, unless REPLICA IDENTITY is FULL. Inference recognizes the prefix ``BI_``
by a column ``BI_id`` next to ``id``.

Absent and null: DMS omits NULL and empty text, so that a missing column is NULL, and ``''`` becomes
NULL. With ``include_null_and_empty=True`` (the endpoint's IncludeNullAndEmpty) every column is
written. Then a column that an update lacks is `ABSENT`, not NULL; it is taken from the before-image
or completed by ChangelogNormalize (PostgreSQL's unchanged TOAST values, Oracle's minimal
supplemental logging, LOBs that did not change).

Types: numbers and text; bytes are hex, with or without ``0x``; times are ISO text, a DATETIME
without zone with a ``Z`` as well, so that a TIMESTAMP_NTZ takes it. If the source logs only the key
of a delete (PostgreSQL by default), the other columns are NULL.

Differs from Flink: Flink has no such format.

Source: AWS DMS User Guide, "Using Apache Kafka as a target" and "Before image task settings".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import (
    Codes,
    Columnar,
    Envelope,
    Images,
    bigint,
    control_event,
    fields_struct,
    text,
    timestamp,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import FormatOptionError, refuse
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, RowKind
from cdc_formats.format import MetadataColumn, RowNames, ZonedFormat, choice, names_in_row
from cdc_formats.values.json_reader import json_text, read_object
from cdc_formats.values.schema import ABSENT, Handling

USUAL_PREFIX = "BI_"
"""The documentation's prefix of before-images."""


@dataclass(frozen=True, kw_only=True)
class DmsJson(ZonedFormat):
    """AWS DMS's messages.

    Parameters
    ----------
    before_image_field : str or None
        The field of before-images: ``FieldName`` of BeforeImageSettings (``before-image`` in the
        documentation).
    before_image_prefix : str or None
        The prefix of the before-image's columns in ``data`` (``BI_`` in the documentation).
    before_image_column_filter : {"pk-only", "non-lob", "all"}
        ``ColumnFilter``: the columns of before-images; only ``all`` is read as whole rows.
    include_null_and_empty : bool
        The endpoint's ``IncludeNullAndEmpty``.
    schema_include, table_include : str or None
        Regular expressions that ``schema-name`` and ``table-name`` must match in full; other tables
        are ignored.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "dms-json"
    sampler = "cdc_formats.topics.samplers.messages:DmsSampler"
    positions = (
        "DMS writes `stream-position` in a different form for each engine, and omits it in a full "
        "load"
    )

    before_image_field: str | None = None
    before_image_prefix: str | None = None
    before_image_column_filter: str = choice("pk-only", "non-lob", "all")
    include_null_and_empty: bool = False
    schema_include: str | None = None
    table_include: str | None = None

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "operation": MetadataColumn("STRING", lambda message: text(message.metadata.operation)),
        "schema": MetadataColumn("STRING", lambda message: text(message.metadata.schema_name)),
        "table": MetadataColumn("STRING", lambda message: text(message.metadata.table_name)),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(6)", lambda m: timestamp(m.metadata.timestamp, "$.metadata.timestamp")
        ),
        "event-timestamp": MetadataColumn(
            "TIMESTAMP(6)",
            lambda m: timestamp(m.metadata.commit_timestamp, "$.metadata.commit-timestamp"),
        ),
        "transaction-id": MetadataColumn(
            "BIGINT", lambda m: bigint(m.metadata.transaction_id, "$.metadata.transaction-id")
        ),
        "stream-position": MetadataColumn(
            "STRING", lambda message: text(message.metadata.stream_position)
        ),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "schema": "schema_include",
        "table": "table_include",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse(
            (
                self.before_image_field in ("data", "metadata", "control", ""),
                f"dms-json: before_image_field is {self.before_image_field!r}; it must name a "
                "separate field",
            ),
            (
                self.before_image_prefix == "",
                "dms-json: before_image_prefix is empty, and would match every column",
            ),
            (
                None not in (self.before_image_field, self.before_image_prefix),
                "dms-json: before_image_field and before_image_prefix cannot be combined: remove "
                "one of them",
            ),
            error=FormatOptionError,
        )

    @property
    def encodings(self) -> Handling:
        """Numbers and text, hex."""
        return Handling(time="isostring", binary="hex", time_zone=self.time_zone)

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the rows are."""
        return Envelope(
            fields=msgspec.defstruct("Message", [("metadata", _Metadata | None, None)], gc=False),
            operation=("metadata.operation",),
            kinds=(
                {
                    "load": RowKind.INSERT,
                    "insert": RowKind.INSERT,
                    "update": RowKind.UPDATE_AFTER,
                    "delete": RowKind.DELETE,
                }
            ),
            codes=Codes(are_text=False, or_else=", and record-type is not 'control'"),
            columnar=Columnar(plain={"metadata.record_type": ("data", None)}),
            inspect=_inspect,
            after="data",
            before="before" if self.before_image_field else "",
            deleted="data",
            images=Images(
                before_has="all columns"
                if self.before_image_column_filter == "all"
                else "some columns",
                names={"before": self.before_image_field} if self.before_image_field else {},
                before_prefix=self.before_image_prefix or "",
                missing_is_null=not self.include_null_and_empty,
            ),
            adjust=partial(_without_partial_before, rows, self.include_null_and_empty),
            attributes={
                "schema": ("metadata.schema_name", None),
                "table": ("metadata.table_name", None),
            },
        )

    def row_names(self, event: Event) -> RowNames | None:
        """Return the names in ``data``; without ``IncludeNullAndEmpty`` DMS omits NULL columns.

        Without options of before-images, names with the documentation's prefix are those of one if
        a column without it is next to one.
        """
        row = names_in_row(event)
        if row is None:
            return None
        prefix = self.before_image_prefix
        if prefix is None:
            added = [] if self.before_image_field else before_image_names(row.names)
        else:
            added = [name for name in row.names if name.startswith(prefix)]
        return RowNames(row.names, row.whole and self.include_null_and_empty, added)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the schema, table and statement (the operation and any new table definition)."""
        event = control_event(
            value,
            reason,
            schema="metadata.schema-name",
            table="metadata.table-name",
            statement="metadata.operation",
        )
        definition = read_object(value).get("control") if value and event.statement else None
        if definition:
            return event._replace(statement=f"{event.statement} {json_text(definition)}")
        return event


def before_image_names(names: Collection[str]) -> list[str]:
    """Return the names with the documentation's prefix if one of them also occurs without it.

    A before-image has only such columns.
    """
    prefixed = [name for name in names if name.startswith(USUAL_PREFIX)]
    return prefixed if any(name[len(USUAL_PREFIX) :] in names for name in prefixed) else []


_Metadata: Any = fields_struct(
    "operation record_type schema_name table_name timestamp commit_timestamp transaction_id "
    "stream_position",
    rename="kebab",
)


def _inspect(message: Any, kind: RowKind | Ignored | None) -> Ignored | None:
    """Return the reason of a control record."""
    if message.metadata.record_type != "control":
        return None
    return Ignored.TRUNCATE if message.metadata.operation == "truncate-table" else Ignored.DDL


def _without_partial_before(
    rows: RowConverter, sparse: bool, event: Event, value: bytes, index: int, keyed: bool
) -> None:
    """Remove a before-image that is no whole row, unless only its key is used."""
    if event.kind is not RowKind.UPDATE_AFTER or event.before is None or keyed:
        return
    values = rows.raw(event.before)
    if ABSENT in values if sparse else all(value is ABSENT for value in values):
        event.before = None
