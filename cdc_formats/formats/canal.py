"""Canal JSON ("flat message"), as written by Alibaba Canal (vectors: Canal 1.1.7).

A message, which may hold several rows of one statement::

    {"data": [{"id": "106", "name": "hammer", "weight": "1.0"}], "old": [{"weight": "1.1"}], "type": "UPDATE", "isDdl": false,
     "database": "inventory", "table": "products", "pkNames": ["id"], "es": 1589373560000, "ts": 1589373560798, "id": 9}

=====================  ============================================================================
type                   rows
=====================  ============================================================================
``INSERT``, ``INIT``   ``+I`` for each element of ``data``
``UPDATE``             ``-U``, ``+U`` for each element; the before-image is ``data[i]`` overwritten
                       with ``old[i]``
``DELETE``             ``-D`` for each element of ``data``, or of ``old`` if ``data`` is null
``TRUNCATE``           `Ignored.TRUNCATE`
other with ``isDdl``   `Ignored.DDL`
other DDL types        `Ignored.DDL`; ``QUERY`` without ``isDdl`` (a statement's text):
                       `Ignored.MESSAGE`
=====================  ============================================================================

Changelog mode: all. Key: not read (Canal writes none). Null value: `Ignored.TOMBSTONE`.

Absent and null: a column missing in ``old[i]`` did not change, null there means it was NULL.

A column missing in ``data[i]`` is NULL, unless MySQL's ``binlog_row_image`` is ``MINIMAL`` or
``NOBLOB``: then it did not change, and is `ABSENT`. Only ChangelogNormalize can complete such a
row, from its state, and only if the statement set the primary key: Canal omits a key that did not
change. Without the option ``binlog_row_image``, two kinds of messages are recognized as
``MINIMAL``: an update with an empty ``old[i]``, and a message with only the primary key in
``data[i]``. Other messages are read as whole rows. In an insert a missing column is NULL.

Dialects of other producers:

======================  ========================================================================
producer                differs
======================  ========================================================================
Huawei DRS, JSON        ``INIT`` and ``INIT_DDL`` of a full load; the row of a delete is in
                        ``old``; bytes as ``[72, 101]``; a TIMESTAMP as seconds since 1970 with a
                        fraction (``1624614713.201``), which only a DECIMAL or STRING reads
Huawei DRS, JSON-C      ``INIT``; a TIMESTAMP is text
Tencent DTS             ``INIT``; bytes as ``0x4865``, and a TIMESTAMP with its zone
                        (``2021-05-17 07:22:42 +00:00``), unless it is fully compatible
Tencent CKafka          ``old`` has all columns; ``pkNames`` and ``mysqlType`` are null; ``es`` is in
                        seconds, so that ``event-timestamp`` is wrong
Alibaba DTS             ``INIT``
======================  ========================================================================

Types: text or null, read by the declared type (``mysqlType`` and ``sqlType`` are not used). Bytes
are ISO-8859-1 characters.

Differs from Flink:

- A column's old value is read only from ``old[i]``. Flink's ``findValue`` searches all of ``old``:
  if row 0 changed a column that row 1 did not, row 1's before-image gets NULL instead of its value.
- A column that an update omits is completed; if that is not possible, it is an error (Flink: NULL).
- DDL is recognized by ``isDdl`` and by all of Canal's types (Flink skips only ``CREATE``, other DDL
  fails the job). TRUNCATE is reported.
- BOOLEAN from ``"1"`` is true (Flink: false), bytes are decoded (Flink requires base64).
- A message is decoded completely or not at all; under ``ignore-parse-errors`` Flink emits the rows
  before the broken one.
- Updates are written as ``UPDATE``, with the columns that changed in ``old`` (Flink: a delete and
  an insert), and values as text.

Source: Canal's FlatMessage, MQMessageUtils and EventType; Flink's CanalJsonDeserializationSchema and
FLINK-32862; Huawei DRS's page "Kafka Message Format"; Tencent's pages 571/102285 and 597/83345.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from cdc_formats.decoding.envelope import (
    WHOLE_ROWS,
    Columnar,
    Envelope,
    Images,
    PartialRows,
    control_event,
    epoch_ms,
    fields_struct,
    int_map,
    text,
    text_list,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding import EnvelopeEncoder
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    ControlEvent,
    Headers,
    Ignored,
)
from cdc_formats.format import FilteredFormat, MetadataColumn, choice
from cdc_formats.values.schema import Handling

KINDS = {"INSERT": INSERT, "UPDATE": UPDATE_AFTER, "DELETE": DELETE}


@dataclass(frozen=True, kw_only=True)
class MysqlFormat(FilteredFormat):
    """The common parts of formats whose messages have `database`, `table`, and `sql` of a DDL."""

    timestamp_format_standard: str = choice("SQL", "ISO-8601")

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "database": MetadataColumn("STRING", lambda message: text(message.database)),
        "table": MetadataColumn("STRING", lambda message: text(message.table)),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "database": "database_include",
        "table": "table_include",
    }

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the database, table and statement; for a snapshot's mark its ``type``."""
        return control_event(
            value,
            reason,
            database="database",
            table="table",
            statement="type" if reason is Ignored.SNAPSHOT_MARK else "sql",
        )


@dataclass(frozen=True, kw_only=True)
class CanalFormat(MysqlFormat):
    """The common parts of Canal's and TiCDC's formats."""

    written_by = EnvelopeEncoder
    key_names = "pkNames"

    binary_handling_mode: str | None = choice(None, "latin1", "base64", "hex", "numbers")

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        **MysqlFormat.metadata,
        "sql-type": MetadataColumn(
            "MAP<STRING, INT>", lambda message: int_map(message.sql_type, "$.sqlType")
        ),
        "pk-names": MetadataColumn("ARRAY<STRING>", lambda message: text_list(message.pkNames)),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_ms(message.ts, "$.ts")
        ),
        "event-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_ms(message.es, "$.es")
        ),
    }

    @property
    def encodings(self) -> Handling:
        """Text; bytes as declared."""
        return Handling(
            binary=self.binary_handling_mode or "latin1 or digits",
            time_zone=self.time_zone,
            native=False,
        )


@dataclass(frozen=True, kw_only=True)
class CanalJson(CanalFormat):
    """Alibaba Canal's flat messages.

    Parameters
    ----------
    timestamp_format_standard : {"SQL", "ISO-8601"}
        How timestamps are written: with a blank or with a ``T`` between date and time. Both are
        read.
    database_include, table_include : str or None
        Regular expressions that ``database`` and ``table`` must match in full; other tables are
        ignored without validation.
    binlog_row_image : {"FULL", "MINIMAL", "NOBLOB"} or None
        The server's ``binlog_row_image``. With ``FULL`` a missing column is NULL, otherwise it did
        not change.
    binary_handling_mode : {"latin1", "base64", "hex", "numbers"} or None
        How bytes are written: Canal as ISO-8859-1 characters, Flink as base64, Tencent DTS as ``hex``
        (``0x48656C``), and Huawei DRS as ``numbers`` (``[72, 101, 108]``). None: as Canal does, and a
        value that may be such digits is an error.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column (the zone of Canal's session with the
        server).
    """

    identifier = "canal-json"
    sampler = "cdc_formats.topics.samplers.messages:CanalSampler"
    positions = (
        "Canal writes no binlog position (`es` is the source's time in whole seconds, `ts` is "
        "Canal's own clock, `id` numbers its batches and starts again when Canal restarts)"
    )
    whole_rows = WHOLE_ROWS

    binlog_row_image: str | None = choice(None, "FULL", "MINIMAL", "NOBLOB")

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the rows are.

        The scalar decoder reads rows that may lack unchanged columns.
        """
        return Envelope(
            fields=MESSAGE,
            operation=("type",),
            kinds={
                **KINDS,
                "INIT": INSERT,
                **(
                    {
                        **(
                            dict.fromkeys(
                                (
                                    "CREATE",
                                    "ALTER",
                                    "ERASE",
                                    "RENAME",
                                    "CINDEX",
                                    "DINDEX",
                                    "INIT_DDL",
                                ),
                                Ignored.DDL,
                            )
                        ),
                        "TRUNCATE": Ignored.TRUNCATE,
                        "QUERY": Ignored.MESSAGE,
                    }
                ),
            },
            inspect=lambda message, kind: (
                Ignored.DDL if message.is_ddl is True and kind is not Ignored.TRUNCATE else None
            ),
            after="data",
            before="old",
            deleted="data",
            images=Images(
                remedy="Canal writes the row into `data`",
                many="array",
                before_has="changed columns",
                missing_is_null=self.binlog_row_image == "FULL",
                partial=PartialRows(rows, self.binlog_row_image, "pkNames", in_arrays=True),
                deleted_in_either=True,
            ),
            attributes={"database": ("database", None), "table": ("table", None)},
            columnar=Columnar(plain={"is_ddl": (False, None)}, needs_before=True),
        )


MESSAGE = fields_struct(
    "type is_ddl database table data old ts es",
    raw="pkNames sql_type",
    rename={"is_ddl": "isDdl", "sql_type": "sqlType"},
)
"""The fields read from a message; `rows.message_reader` adds the rows."""
