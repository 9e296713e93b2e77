"""Maxwell JSON, as written by Zendesk's Maxwell daemon (vectors: Maxwell 1.44).

A message::

    {"database": "inventory", "table": "products", "type": "update", "ts": 1596684883, "xid": 7152, "commit": true,
     "data": {"id": 106, "name": "hammer", "weight": 1.0}, "old": {"weight": 1.1}}

======================================  ==========================================================
type                                    rows
======================================  ==========================================================
``insert``, ``bootstrap-insert``        ``+I`` data
``update``                              ``-U`` data overwritten with ``old``, ``+U`` data
``delete``                              ``-D`` data (``old`` is not read)
``bootstrap-start``, ``-complete``      `Ignored.SNAPSHOT_MARK`
``table-*``, ``database-*``             `Ignored.DDL`
======================================  ==========================================================

Changelog mode: all. Key: not read. Null value: `Ignored.TOMBSTONE`.

Absent and null: a column missing in ``old`` did not change, null there means it was NULL.

A column missing in ``data`` is NULL, unless MySQL's ``binlog_row_image`` is ``MINIMAL`` or
``NOBLOB``: then it did not change, and is `ABSENT`. Only ChangelogNormalize can complete such a
row, from its state. Without the option ``binlog_row_image``, two kinds of messages are recognized
as ``MINIMAL``: an update without ``old``, and a message with only the primary key in ``data``.
Other messages are read as whole rows. In an insert a missing column is NULL. With ``MINIMAL`` these
are the columns that the statement does not set, regardless of their defaults: declare them NOT NULL
to reject such rows.

Types: JSON numbers (decimals are read exactly), ISO text, base64. JSON columns are nested values:
text in a VARIANT column is a JSON string. ``ts`` is in seconds.

Position: its history is the ``server_id``. `high` is the number of the binlog file, `low` is the
offset in the file << 32 | ``xoffset``, or 2**32 - 1 for a transaction's last row. An offset is less
than 4 GiB, since the binlog stores 32 bits. Rows that Maxwell holds back during a bootstrap of
their table have no ``server_id``, and so a separate history. A bootstrap's rows have only a clock.

Differs from Flink:

- ``bootstrap-insert`` is an insert and its marks are ignored (Flink: "Unknown type", a bootstrapped
  topic cannot be read).
- DDL is `Ignored.DDL` (Flink: "Unknown type").
- A column's old value is read only from the top level of ``old``; Flink's ``findValue`` also finds
  the name inside a nested JSON value.
- ``database_include`` and ``table_include``, as in canal-json: Maxwell's default is one topic for
  all tables.
- A column that an update omits is completed; if that is not possible, it is an error (Flink: NULL).
- A message has a position in its log, with Maxwell's output_binlog_position, output_xoffset and, to
  distinguish servers, output_server_id (`position`).
- Metadata also has the binlog's ``position`` (Maxwell's output_binlog_position) and the
  transaction's ``xid``.
- Updates are written as updates, with the columns that changed in ``old`` (Flink: a delete and an
  insert).

Source: Maxwell's dataformat.md and bootstrapping.md; Flink's MaxwellJsonDeserializationSchema.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from cdc_formats.decoding.envelope import (
    WHOLE_ROWS,
    Codes,
    Columnar,
    Envelope,
    Images,
    PartialRows,
    bigint,
    epoch_s,
    fields_struct,
    text,
    text_list,
    unraw,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding import EnvelopeEncoder
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import (
    Ignored,
    Position,
    RowKind,
    digits,
    file_number,
    integer,
    malformed,
)
from cdc_formats.format import MetadataColumn, choice
from cdc_formats.values.schema import Handling

from .canal import MysqlFormat


@dataclass(frozen=True, kw_only=True)
class MaxwellJson(MysqlFormat):
    """Maxwell's messages.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written: with a blank or with a ``T`` between date and time. Both are
        read.
    database_include, table_include : str or None
        Regular expressions that ``database`` and ``table`` must match in full; other tables are
        ignored.
    binlog_row_image : {"FULL", "MINIMAL", "NOBLOB"} or None
        The server's ``binlog_row_image``. With ``FULL`` a missing column is NULL, otherwise it did
        not change. Maxwell's ``output_nulls=false`` requires ``FULL``; it also omits NULLs in
        ``old``: set a primary_key.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column. Maxwell writes MySQL's TIMESTAMP in UTC in
        the stream, but in the server's zone when it bootstraps.
    """

    identifier = "maxwell-json"
    written_by = EnvelopeEncoder
    key_names = "primary_key_columns"
    positions = ""
    whole_rows = WHOLE_ROWS
    sampler = "cdc_formats.topics.samplers.messages:MaxwellSampler"

    binlog_row_image: str | None = choice(None, "FULL", "MINIMAL", "NOBLOB")

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        **MysqlFormat.metadata,
        "primary-key-columns": MetadataColumn(
            "ARRAY<STRING>", lambda message: text_list(message.primary_key_columns)
        ),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_s(message.ts, "$.ts")
        ),
        "position": MetadataColumn("STRING", lambda message: text(message.position)),
        "xid": MetadataColumn("BIGINT", lambda message: bigint(unraw(message.xid), "$.xid")),
    }

    @property
    def encodings(self) -> Handling:
        """Text and numbers, base64; JSON columns are JSON values of the message."""
        return replace(super().encodings, json="value")

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the rows are; the scalar decoder reads partial rows."""
        return Envelope(
            fields=_Message,
            operation=("type",),
            kinds=(
                {
                    "insert": RowKind.INSERT,
                    "bootstrap-insert": RowKind.INSERT,
                    "update": RowKind.UPDATE_AFTER,
                    "delete": RowKind.DELETE,
                    "bootstrap-start": Ignored.SNAPSHOT_MARK,
                    "bootstrap-complete": Ignored.SNAPSHOT_MARK,
                }
            ),
            codes=Codes(
                without_table=(
                    {
                        f"{what}-{action}": Ignored.DDL
                        for what in ("table", "database")
                        for action in ("create", "alter", "drop")
                    }
                )
            ),
            after="data",
            before="old",
            deleted="data",
            images=Images(
                before_has="changed columns",
                missing_is_null=self.binlog_row_image == "FULL",
                partial=PartialRows(rows, self.binlog_row_image, "primary_key_columns"),
            ),
            attributes={"database": ("database", None), "table": ("table", None)},
            columnar=Columnar(needs_before=True),
        )

    def position(self, message: Any) -> Position | None:
        """Return the position in the binlog and the transaction; a bootstrap's row has a clock."""
        position, last, number = unraw(message.position), message.commit is True, message.xoffset
        if position is None and message.type != "bootstrap-insert":
            raise MissingFieldError(
                "`position` is missing: set Maxwell's output_binlog_position=true", "$.position"
            )
        # Seconds: in milliseconds, 53 bits are 63.
        clock = None if message.ts is None else integer(message.ts, 53, "$.ts") * 1000
        server = message.server_id
        history = "" if server is None else str(integer(server, 64, "$.server_id"))
        if position is None:
            return Position(history, None, 0, clock)
        file, _, at = position.rpartition(":") if isinstance(position, str) else ("", "", "")
        if not file:
            raise malformed(
                "a file and an offset, as in 'master.000006:800911'", position, "$.position"
            )
        if not last and number is None:
            raise MissingFieldError(
                "`xoffset` is missing: set Maxwell's output_xoffset=true and "
                "output_commit_info=true",
                "$.xoffset",
            )
        offset = digits(at, 32, "$.position") << 32
        number = (2**32 - 1) if last else integer(number, 32, "$.xoffset")
        return Position(history, file_number(file, "$.position"), offset | number, clock)


_Message = fields_struct(
    "type database table data old ts primary_key_columns xoffset commit server_id",
    raw="position xid",
)
