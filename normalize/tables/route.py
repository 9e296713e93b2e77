"""The first pass of `sync_database`, on workers: each record's source table, and its rows' columns.

A message names its table (`Format.table_identity`). Where it does not, and where a record without a
value is a delete, the topic is the table.

The pass returns the records with these columns, followed by a row for each table of the task, in
which only ``summary`` is set:

============  ===================================================================================
column        content
============  ===================================================================================
``table``     the source table (`source_id`), of shards the table that they are merged into; NULL
              for a record without rows
``sample``    whether the record belongs to the sample from which a schema is inferred: the first
              ones, and those with new columns
``summary``   a `TableSummary`, as MessagePack
============  ===================================================================================

Only columns with a value count: a column that is NULL in all rows has no type yet, and nothing is
lost without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
from msgspec.structs import replace

from cdc_formats.decoder import decode_one, in_record
from cdc_formats.errors import DecodeError
from cdc_formats.events import Event, Headers, Ignored
from cdc_formats.format import Format
from cdc_formats.message_format import table_reader
from cdc_formats.topics.inference.sample import AnyColumns
from normalize.core.arrow import encode
from normalize.core.output import Destination, Letter
from normalize.core.records import KafkaRecord, header_pairs
from normalize.decode.decode_pass import header_lists
from normalize.kafka.dead_letter import send
from normalize.worker import worker

from .database_target import source_id
from .table_options import Selection

RECORD_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, stamp BIGINT, headers "
    "ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
ROUTED_DDL = f"{RECORD_DDL}, table STRING, sample BOOLEAN, summary BINARY"
_SAMPLE = 1_000
"""So many records of a table and task are a sample."""
_SAMPLE_OF_NEW = 100
"""So many records after one with a new column are, too."""


class TableSummary(msgspec.Struct):
    """What a task found of a source table.

    Attributes
    ----------
    table : str
        Empty for records without rows.
    records, size : int
        The number of records, and of bytes in their values.
    rows : int
        The number of inserts and updates.
    names : set of str
        The columns that have a value in a row.
    reasons : dict
        Why records have no rows, with their number.
    topics : set of str
        The topics of its records.
    source_keys : set of tuple of str
        The columns of the source's primary key, as records name them.
    unread : dict of str to str
        The topics with records that cannot be read and stop their table, each with its first error.
    """

    table: str
    records: int = 0
    size: int = 0
    rows: int = 0
    names: set[str] = msgspec.field(default_factory=set)
    reasons: dict[str, int] = msgspec.field(default_factory=dict)
    topics: set[str] = msgspec.field(default_factory=set)
    source_keys: set[tuple[str, ...]] = msgspec.field(default_factory=set)
    unread: dict[str, str] = msgspec.field(default_factory=dict)

    def add(self, other: TableSummary) -> None:
        """Add what another task found."""
        self.records += other.records
        self.size += other.size
        self.rows += other.rows
        self.names |= other.names
        self.reasons = dict(Counter(self.reasons) + Counter(other.reasons))
        self.topics |= other.topics
        self.source_keys |= other.source_keys
        self.unread = other.unread | self.unread


decode_summary = msgspec.msgpack.Decoder(TableSummary).decode


def merged(summaries: Iterable[TableSummary]) -> dict[str, TableSummary]:
    """Return the summary of each table over all tasks."""
    tables: dict[str, TableSummary] = {}
    for summary in summaries:
        tables.setdefault(summary.table, TableSummary(summary.table)).add(summary)
    return tables


class Routed(msgspec.Struct, frozen=True, gc=False):
    """Where a record belongs.

    Attributes
    ----------
    table : str
        Empty if the record has no rows, or its table is not selected.
    rows : int
        The number of inserts and updates.
    names : frozenset of str
        The columns with a value in them.
    reason : str
        Why the record has no rows.
    shard : str
        The source table, if it is one of several that are merged into `table`.
    source_key : tuple of str
        The columns of the source's primary key that it names; empty if it names none.
    """

    table: str
    rows: int = 0
    names: frozenset[str] = frozenset()
    reason: str = ""
    shard: str = ""
    source_key: tuple[str, ...] = ()


class Router:
    """Finds the source table of records.

    Parameters
    ----------
    format : Format
    selection : Selection

    Raises
    ------
    InferenceError
        When the format has no column names.
    """

    def __init__(self, format: Format, selection: Selection) -> None:
        self.format, self.selection = format, selection
        self.reader = AnyColumns(format)
        # A record without a value names no table: then all records of the topic belong to the
        # topic's.
        self.by_topic = format.traits.reads_tombstones or not format.traits.table_identity
        self._row_names = format.traits.row_names
        self._table_of = table_reader(format, list(format.traits.table_identity))
        self._merged: dict[str, str] = {}

    def route(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Routed:
        """Return where a record belongs.

        Raises
        ------
        DecodeError
            When the record cannot be read.
        ArgumentError
            When the source table is a shard of two tables, or has the name of a merged one.
        """
        routed = self._routed(topic, key, value, headers)
        merged = self._merged.get(routed.table) if routed.table else ""
        return (
            routed
            if merged == routed.table or not merged
            else replace(routed, table=merged, shard=routed.table)
        )

    def _routed(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Routed:
        if self.by_topic:
            return self._of_topic(topic, key, value, headers) if self._selects(topic) else _OTHER
        events = self.reader.events(key, value, headers)
        if isinstance(events, Ignored):
            table = (
                self._subject(topic, key, value, events, headers)
                if events is Ignored.TRUNCATE
                else ""
            )
            return Routed(table, reason="" if table else events.value)
        if not events:
            return Routed("", reason="MESSAGE")
        table = self._named(events[0].message) or topic
        if not self._selects(table):
            return _OTHER
        return self._with_names(
            table, events, self.reader.sampler.source_key(events[0].message, key, headers)
        )

    def _of_topic(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers
    ) -> Routed:
        """Return the topic's table, also for a record without a row or one that cannot be read.

        A record without a row may be a delete.
        """
        try:
            events = self.reader.events(key, value, headers)
        except DecodeError:
            return Routed(topic)
        if isinstance(events, Ignored) or not events:
            return Routed(topic, source_key=self.reader.sampler.source_key(None, key, headers))
        return self._with_names(
            topic, events, self.reader.sampler.source_key(events[0].message, key, headers)
        )

    def _with_names(
        self, table: str, events: Sequence[Event], source_key: tuple[str, ...]
    ) -> Routed:
        rows, names = 0, set[str]()
        for event in events:
            if event.after is not None:
                rows += 1
                row_names = self._row_names(event)
                added = () if row_names is None else row_names.added
                names.update(
                    name
                    for name, each in event.after.items()
                    if each is not None and name not in added
                )
        return Routed(table, rows, frozenset(names), source_key=source_key)

    def _selects(self, table: str) -> bool:
        if table not in self._merged:
            self._merged[table] = (
                self.selection.target(table) if self.selection.selects(table) else ""
            )
        return bool(self._merged[table])

    def _named(self, message: Any) -> str:
        return source_id([str(name) for name in self._table_of(message) if name is not None])

    def _subject(
        self, topic: str, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers
    ) -> str:
        """Return the table of a truncate; empty if it is not selected."""
        event = self.format.control_event(key, value, reason, headers)
        parts = [name for name in (event.database, event.schema, event.table) if name is not None]
        # OGG's name of a table is one text.
        named = ".".join(parts) if len(self.format.traits.table_identity) == 1 else source_id(parts)
        table = topic if event.table is None else named
        return table if self._selects(table) else ""


_OTHER = Routed("", reason=Ignored.OTHER_TABLE.value)


@dataclass(frozen=True)
class Route:
    """The arguments of the pass; built on the driver, sent to the workers.

    Parameters
    ----------
    format : Format
    selection : Selection
    fail : bool
        Whether a record that cannot be read fails the query.
    dead_letters : Destination or None
        The destination of such records; None drops them.
    stops_table : bool
        Whether such a record stops its table.
    """

    format: Format
    selection: Selection
    fail: bool
    dead_letters: Destination | None
    stops_table: bool = False


def route_pass(batches: Iterator[pa.RecordBatch], *, route: Route) -> Iterator[pa.RecordBatch]:
    """Route a task's records; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        The columns of `RECORD_DDL`.
    route : Route
    """
    router, summaries = Router(route.format, route.selection), dict[str, TableSummary]()
    chosen, identifier = Counter[str](), route.format.identifier
    schema = None
    with worker():
        for batch in batches:
            tables, sample, letters = [], [], list[Letter]()
            for index, (topic, key, value, headers) in enumerate(
                zip(*_arguments(batch), strict=True)
            ):
                routed = decode_one(identifier, router.route, topic, key, value, headers)
                if isinstance(routed, DecodeError):
                    letters.append(_bad(routed, batch, index, route))
                    routed = Routed("", reason=routed.condition)
                    if route.stops_table:
                        summaries.setdefault("", TableSummary("")).unread.setdefault(
                            topic, str(letters[-1].error)
                        )
                tables.append(routed.table or None)
                sample.append(_see(summaries, chosen, routed, topic, len(value or b"")))
            if route.dead_letters is not None:
                send(route.dead_letters, letters)
            summary = pa.nulls(batch.num_rows, pa.binary())
            names = [*batch.schema.names, "table", "sample", "summary"]
            routed_batch = pa.RecordBatch.from_arrays(
                [
                    *batch.columns,
                    pa.array(tables, pa.string()),
                    pa.array(sample, pa.bool_()),
                    summary,
                ],
                names=names,
            )
            schema = routed_batch.schema
            # A record without rows is counted, and needs no place.
            yield routed_batch.filter(routed_batch.column("table").is_valid())
        if schema is not None:
            packed = pa.array([encode(summary) for summary in summaries.values()], pa.binary())
            nothing = [pa.nulls(len(packed), field.type) for field in schema][:-1]
            yield pa.RecordBatch.from_arrays([*nothing, packed], schema=schema)


def _arguments(batch: pa.RecordBatch) -> list[Sequence[Any]]:
    return [
        *(batch.column(name).to_pylist() for name in ("topic", "key", "value")),
        header_lists(batch.column("headers")),
    ]


def _see(
    summaries: dict[str, TableSummary], chosen: Counter[str], routed: Routed, topic: str, size: int
) -> bool:
    """Add a record to its table's summary, and return whether it belongs to the sample."""
    summary = summaries.setdefault(routed.table, TableSummary(routed.table))
    summary.records += 1
    summary.topics.add(topic)
    if routed.source_key:
        summary.source_keys.add(routed.source_key)
    if not routed.table:
        summary.reasons[routed.reason] = summary.reasons.get(routed.reason, 0) + 1
        return False
    summary.size += size
    summary.rows += routed.rows
    source = routed.shard or routed.table
    if not routed.names <= summary.names:
        summary.names |= routed.names
        chosen[source] = min(chosen[source], _SAMPLE - _SAMPLE_OF_NEW)
    chosen[source] += 1
    return chosen[source] <= _SAMPLE


def _bad(error: DecodeError, batch: pa.RecordBatch, index: int, route: Route) -> Letter:
    row: Mapping[str, Any] = batch.slice(index, 1).to_pylist()[0]
    headers = header_pairs(row["headers"])
    record = KafkaRecord(
        row["topic"],
        row["partition"],
        row["offset"],
        row["stamp"],
        row["key"],
        row["value"],
        headers,
    )
    error = in_record(error, record, excerpt=route.format.error_excerpt)
    if route.fail:
        raise error
    return Letter(error, record.without_content() if route.format.handling.masks else record)
