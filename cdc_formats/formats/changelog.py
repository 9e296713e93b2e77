"""changelog-json, written by Flink CDC up to 2.1 (``com.ververica:flink-format-changelog-json``).

A message; each has one row of a changelog::

    {"data": {"id": 1005, "price": 12.50}, "op": "+U"}

=========  ==============
op         rows
=========  ==============
``+I``     ``+I`` data
``-U``     ``-U`` data
``+U``     ``+U`` data
``-D``     ``-D`` data
=========  ==============

Changelog mode: all. Key: not read; written if a primary key is set, so that all rows of a key go to
one partition. Null value: `Ignored.TOMBSTONE`. A keyed stage drops ``-U`` (Flink's planner uses
DropUpdateBefore). Here an update's two rows are separate messages, so after an update that changes
the primary key, the old row remains.

Position: a message may have a ``source`` block in addition to ``data``, with Debezium's fields
(``file``, ``pos``, ``row``, ``server_id``, ``snapshot``, ``ts_ms``, ...). This is an extension of
this library, which Flink CDC's reader ignores.

Absent and null: a column that is not in ``data`` is NULL.

Types: as in all of Flink's JSON formats; decimals plain, times as text.

Differs from Flink: a null value is ignored (Flink CDC: a NullPointerException, also under
``ignore-parse-errors``); decimals are written plain.

Source: Flink CDC 2.1's ChangelogJsonDeserializationSchema and ChangelogJsonSerializationSchema.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cdc_formats.decoding.envelope import Codes, Envelope, Images, fields_struct
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding import EnvelopeEncoder
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import SHORT_STRINGS, Position, RowKind
from cdc_formats.format import ZonedFormat, choice

from .debezium.position import position_of


@dataclass(frozen=True, kw_only=True)
class ChangelogJson(ZonedFormat):
    """Flink CDC's changelog with one row per message.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written: with a blank or with a ``T`` between date and time. Both are
        read.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "changelog-json"
    written_by = EnvelopeEncoder
    sampler = "cdc_formats.topics.samplers.messages:ChangelogSampler"
    positions = ""

    timestamp_format_standard: str = choice("SQL", "ISO-8601")

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the row are; a missing column is NULL."""
        return Envelope(
            fields=fields_struct("op data", raw="source"),
            operation=("op",),
            kinds=({text: RowKind.from_short_string(text) for text in SHORT_STRINGS}),
            codes=Codes(are_text=False),
            after="data",
            deleted="data",
            images=Images(missing_is_null=True),
        )

    def position(self, message: Any) -> Position | None:
        """Return the row's position in its source's log, from a ``source`` with Debezium's fields.

        Raises
        ------
        MissingFieldError
            When the block is missing; Flink CDC does not write it.
        TypeConversionError
            When one of its fields is malformed.
        """
        if message.source == b"null":
            raise MissingFieldError(
                "`source` is missing or null: changelog-json has positions only if its writer adds "
                "this block, as to_kafka_changelog(source=...) does",
                "$.source",
            )
        return position_of(message.source)
