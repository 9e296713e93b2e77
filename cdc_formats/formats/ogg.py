"""Oracle GoldenGate JSON (vectors: GoldenGate's documented messages, Flink's own ogg-json encoder).

A message::

    {"table": "OWNER.PRODUCTS", "op_type": "U", "op_ts": "2020-05-13 15:40:06.000000", "current_ts": "2020-05-13T15:40:07.000000",
     "pos": "00000000000000000000143", "primary_keys": ["ID"], "before": {"ID": 1, "W": 1.1}, "after": {"ID": 1, "W": 1.0}}

=======  ==========================
op_type  rows
=======  ==========================
``I``    ``+I`` after
``U``    ``-U`` before, ``+U`` after
``D``    ``-D`` before
``T``    `Ignored.TRUNCATE`
=======  ==========================

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE`.

Absent and null: GoldenGate compresses updates by default: ``after`` then has only the key and the
changed columns. A column that is missing in an update's ``after`` is therefore `ABSENT`; it is
taken from ``before`` or completed by ChangelogNormalize. In an insert it is NULL. With
``includeIsMissingFields=true``, a missing column can be there, too:
``"W": null, "W_isMissing": true``. It is read as if it were not. These fields are no columns,
unless they are declared.

Types: JSON numbers and text, bytes base64. ``op_ts`` and ``current_ts`` have no zone and are read
as UTC, as in Flink.

Position: ``pos``, a number of 128 bits; there is one history.

Differs from Flink:

- A compressed update is completed; if that is not possible, it is an error (Flink: the missing
  columns become NULL).
- ``W_isMissing`` is read (Flink: the column is NULL).
- ``T`` is `Ignored.TRUNCATE` (Flink: "Unknown op_type").
- The timestamps keep their microseconds (Flink declares precision 6 and truncates to milliseconds),
  and text that is not a timestamp is an error for both (Flink: ``current_ts`` becomes NULL,
  ``op_ts`` fails).
- ``table_include``: a regular expression that ``table`` must match in full.
- Metadata also has the trail's ``position`` (``pos``).
- Updates are written as updates, with both images (Flink: a delete and an insert).

Source: Oracle GoldenGate for Big Data, "Using the JSON Formatter"; Flink's
OggJsonDeserializationSchema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from cdc_formats.decoding.envelope import (
    Columnar,
    Envelope,
    Images,
    TableFilter,
    control_event,
    fields_struct,
    narrowed,
    text,
    text_list,
    timestamp,
    unraw,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.decoding.scalar_reader import ScalarReader
from cdc_formats.encoding import EnvelopeEncoder
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import (
    ControlEvent,
    Event,
    Headers,
    Ignored,
    Position,
    Reader,
    RowKind,
    digits,
    malformed,
)
from cdc_formats.format import MetadataColumn, ZonedFormat, choice, table_filter
from cdc_formats.values.json_reader import json_reader

_MISSING = "_isMissing"


@dataclass(frozen=True, kw_only=True)
class OggJson(ZonedFormat):
    """Oracle GoldenGate's messages.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written: with a blank or with a ``T`` between date and time. Both are
        read.
    table_include : str or None
        A regular expression that ``table`` (``OWNER.TABLE``) must match in full; other tables are
        ignored.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "ogg-json"
    written_by = EnvelopeEncoder
    key_names = "primary_keys"
    positions = ""
    sampler = "cdc_formats.topics.samplers.messages:OggSampler"
    whole_rows = "configure GoldenGate to write whole rows (NOCOMPRESSUPDATES, NOCOMPRESSDELETES)"

    timestamp_format_standard: str = choice("SQL", "ISO-8601")
    table_include: str | None = None

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "table": MetadataColumn("STRING", lambda message: text(message.table)),
        "primary-keys": MetadataColumn(
            "ARRAY<STRING>", lambda message: text_list(message.primary_keys)
        ),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(6)", lambda m: timestamp(m.current_ts, "$.current_ts")
        ),
        "event-timestamp": MetadataColumn(
            "TIMESTAMP(6)", lambda message: timestamp(message.op_ts, "$.op_ts")
        ),
        "position": MetadataColumn("STRING", lambda message: text(message.pos)),
    }
    table_identity: ClassVar[Mapping[str, str]] = {"table": "table_include"}

    def table_parts(self, names: Sequence[str | None]) -> Sequence[str | None]:
        """Return the parts of ``SCHEMA.TABLE`` or ``CATALOG.SCHEMA.TABLE``."""
        return names[0].split(".") if names and names[0] and names[0].count(".") < 3 else names

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's messages."""
        return _Reader(self.envelope(rows), rows, table_filter(self), keyed=keyed).guarded()

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are.

        The scalar decoder reads rows that lack columns.
        """
        return Envelope(
            fields=_Message,
            operation=("op_type",),
            kinds={
                "I": RowKind.INSERT,
                "U": RowKind.UPDATE_AFTER,
                "D": RowKind.DELETE,
                "T": Ignored.TRUNCATE,
            },
            after="after",
            before="before",
            deleted="before",
            images=Images(
                remedy="Configure GoldenGate to write it (GETUPDATEBEFORES, NOCOMPRESSDELETES)",
                missing_mark=_MISSING,
            ),
            # A column can have the name of a field that says whether another is missing.
            columnar=Columnar(
                possible=not any(name + _MISSING in rows.names for name in rows.names)
            ),
            attributes={"table": ("table", None)},
        )

    def position(self, message: Any) -> Position | None:
        """Return the position in the trail (``pos``).

        Raises
        ------
        MissingFieldError
            When it is missing.
        TypeConversionError
            When it is not text of digits, or ``op_ts`` is not a time.
        """
        pos = unraw(message.pos)
        if pos is None:
            raise MissingFieldError(
                (
                    "`pos` is missing: configure GoldenGate's JSON formatter to write it "
                    "(includePosition=true)"
                ),
                "$.pos",
            )
        micros = timestamp(message.op_ts, "$.op_ts")
        return trail_position(pos, None if micros is None else micros // 1000)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the table and its prefix in ``CATALOG.SCHEMA.TABLE``."""
        parts = self.table_parts([control_event(value, reason, table="table").table])
        database, schema, name = [None] * (3 - len(parts)) + [*parts]
        return ControlEvent(reason, database, schema, name)


_Message = fields_struct("op_type table before after op_ts current_ts primary_keys", raw="pos")


class _Reader(ScalarReader):
    """Reads also messages whose fields say which columns are missing, as mappings."""

    def __init__(
        self, envelope: Envelope, rows: RowConverter, tables: TableFilter, *, keyed: bool
    ) -> None:
        super().__init__(envelope, rows, tables, keyed=keyed)
        marked: Any = narrowed(_Message, dict.fromkeys(("after", "before"), dict[str, Any] | None))
        self.marked = json_reader(marked, spelled=rows.spelled)

    def __call__(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        if value is None or _MISSING.encode() not in bytes(value):
            return super().__call__(key, value)
        message = self.marked(value)
        message.after, message.before = (
            image and _without_missing(image, self.rows)
            for image in (message.after, message.before)
        )
        return self.events(message, value)


def _without_missing(image: Mapping[str, Any], rows: RowConverter) -> dict[str, Any]:
    """Return an image without the columns that are missing, and without the fields that say so."""
    named = rows.names if rows.untyped else ()  # the message names a missing column, too
    return {
        name: value
        for name, value in image.items()
        if (image.get(name + _MISSING) is not True or name in named)
        and (name in rows.names or not name.endswith(_MISSING))
    }


def trail_position(pos: Any, clock_ms: int | None) -> Position:
    """Return the position in GoldenGate's ``pos``: a number of up to 38 digits, padded with zeros.

    Raises
    ------
    TypeConversionError
        When it is not such a number.
    """
    if not isinstance(pos, str):
        raise malformed("text of digits", pos, "$.pos")
    high, low = divmod(digits(pos, 128, "$.pos"), 2**64)
    return Position("", high, low, clock_ms)
