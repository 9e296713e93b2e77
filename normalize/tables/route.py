"""The first pass of `sync_database`, on workers: each record's source table, and its rows' columns.

A message names its table (`Format.table_identity`). Where it does not, and where a record without a
value is a delete, the topic is the table.

The pass packs the records of each table: Spark moves few values, and no column of a record. Where
the driver sends a table's decoder, the pass decodes them too, and packs their changes. It returns
these columns, and in the end a row for each table of the task, in which only ``small`` and
``summary`` are set:

============  ===================================================================================
column        content
============  ===================================================================================
``table``     the source table (`source_id`), of shards the table that they are merged into
``ipc``       records of the table, in the task's order: Arrow IPC with the columns of `RECORD_DDL`,
              or ``decoded`` ones: changes as `TableDecoder` returns them
``decoded``   whether they are changes
``sample``    whether they belong to the sample from which a schema is inferred: the first ones,
              and those with new columns
``small``     whether the task's records until these are small; in rows with ``summary``: whether
              all are
``summary``   a `TableSummary`, as MessagePack
============  ===================================================================================

Only columns with a value count: a column that is NULL in all rows has no type yet, and nothing is
lost without it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from cdc_formats.decoder import decode_one, in_record
from cdc_formats.errors import ChangelogError, DecodeError
from cdc_formats.events import Event, Headers, Ignored
from cdc_formats.format import Format
from cdc_formats.message_format import table_reader
from cdc_formats.topics.inference.infer import AnyColumns
from cdc_formats.values.schema import source_id
from normalize.core.arrow import encode
from normalize.core.fold_columns import Ints
from normalize.core.output import Destination, Letter
from normalize.core.records import KafkaRecord, Values, header_lists, header_pairs
from normalize.decode.columnar.known_rows import KnownRows, Names, Table
from normalize.kafka.dead_letter import send
from normalize.spark.packed import packed_batches, values_of
from normalize.worker import worker

from .changes import TableDecoder
from .table_options import Selection

RECORD_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, stamp BIGINT, headers "
    "ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
ROUTED_DDL = (
    "table STRING, ipc BINARY, decoded BOOLEAN, sample BOOLEAN, small BOOLEAN, summary BINARY"
)
_ROUTED = pa.schema(
    [
        ("table", pa.string()),
        ("ipc", pa.binary()),
        ("decoded", pa.bool_()),
        ("sample", pa.bool_()),
        ("small", pa.bool_()),
        ("summary", pa.binary()),
    ]
)
_MOST_BYTES = 8 << 20
"""About the most bytes of records in one value."""
MOST_HELD = 256 << 20
"""The most bytes of records that a task holds before it decodes them."""
_SAMPLE = 1_000
"""So many records of a table and task are a sample."""
_SAMPLE_OF_NEW = 100
"""So many records after one with a new column are, too."""
_FEWEST = 64
"""Fewer records are routed one by one."""


MessageKind = tuple[str, Names, str]
"""A topic, the names of a table in its messages, and the shard (`Routed.shard`)."""


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
    undecoded : bool
        Whether a task has left out records, since the table's decoder cannot decode them.
    kinds : set of MessageKind
        The messages with a row.
    absent : set of str
        The columns that no row has a value of.
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
    undecoded: bool = False
    kinds: set[MessageKind] = msgspec.field(default_factory=set)
    absent: set[str] = msgspec.field(default_factory=set)

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
        self.undecoded |= other.undecoded
        self.kinds |= other.kinds
        self.absent = (self.absent | other.absent) - self.names


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
    named : tuple or None
        The names of the table in the message, if it has a row or its table is not selected.
    absent : frozenset of str
        The columns without a value in the rows.
    """

    table: str
    rows: int = 0
    names: frozenset[str] = frozenset()
    reason: str = ""
    shard: str = ""
    source_key: tuple[str, ...] = ()
    named: Names | None = None
    absent: frozenset[str] = frozenset()


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
        self._row_names, self._table_parts = format.traits.row_names, format.traits.table_parts
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
        named = self._table_of(events[0].message)
        table = source_id(self._table_parts(named)) or topic
        if not self._selects(table):
            return replace(_OTHER, named=named)
        source_key = self.reader.sampler.source_key(events[0].message, key, headers)
        return self._with_rows(table, named, events, source_key)

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
        source_key = self.reader.sampler.source_key(events[0].message, key, headers)
        return self._with_rows(topic, (), events, source_key)

    def _with_rows(
        self, table: str, named: Names, events: Sequence[Event], source_key: tuple[str, ...]
    ) -> Routed:
        """Return where a record belongs whose rows these are, and which columns have a value."""
        rows, names, absent = 0, set[str](), set[str]()
        for event in events:
            if event.after is not None:
                rows += 1
                row_names = self._row_names(event)
                added = () if row_names is None else row_names.added
                for name, each in event.after.items():
                    if name not in added:
                        (absent if each is None else names).add(name)
        return Routed(
            table,
            rows,
            frozenset(names),
            source_key=source_key,
            named=named,
            absent=frozenset(absent - names),
        )

    def _selects(self, table: str) -> bool:
        if table not in self._merged:
            self._merged[table] = (
                self.selection.target(table) if self.selection.selects(table) else ""
            )
        return bool(self._merged[table])

    def _subject(
        self, topic: str, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers
    ) -> str:
        """Return the table of a truncate; empty if it is not selected."""
        event = self.format.control_event(key, value, reason, headers)
        parts = [name for name in (event.database, event.schema, event.table) if name is not None]
        table = topic if event.table is None else source_id(parts)
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
    small : int
        The most bytes of a task's records that the driver gets with its summaries.
    decoders : mapping of str to TableDecoder
        The decoder of each table whose records the pass decodes.
    most_bytes : int
        The most bytes of a task's changes.
    native : bool
        Whether the native decoder may read.
    """

    format: Format
    selection: Selection
    fail: bool
    dead_letters: Destination | None
    stops_table: bool = False
    small: int = 0
    decoders: Mapping[str, TableDecoder] = field(default_factory=dict)
    most_bytes: int = 0
    native: bool = True


def route_pass(batches: Iterator[pa.RecordBatch], *, route: Route) -> Iterator[pa.RecordBatch]:
    """Route a task's records; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        The columns of `RECORD_DDL`.
    route : Route
    """
    task, left, known = _Task(route), route.small, _KnownTables(route)
    with worker():
        for batch in batches:
            values = [
                (table, packed_batches([records]), False, is_sample)
                for table, is_sample, records in _by_table(task.routed(batch))
                if not known.hold(table, records)
            ]
            left -= sum(value.size for _, value, *_ in values)
            yield from _rows(values, small=left >= 0)
        yield from _rows([*known.decoded(task.summaries)], small=True)
        summaries = [
            {"small": left >= 0, "summary": encode(each)} for each in task.summaries.values()
        ]
        if summaries:
            yield pa.RecordBatch.from_pylist(summaries, _ROUTED)


def _rows(
    values: Sequence[tuple[str, pa.Buffer, bool, bool]], *, small: bool
) -> Iterator[pa.RecordBatch]:
    """Yield rows of the pass, if there are values."""
    if values:
        tables, packed, *flags = map(list, zip(*values, strict=True))
        columns = [pa.array(tables), values_of(packed), *map(pa.array, flags)]
        columns += [pa.repeat(small, len(values)), pa.nulls(len(values), pa.binary())]
        yield pa.RecordBatch.from_arrays(columns, schema=_ROUTED)


class _KnownTables:
    """Decodes a task's records of the tables whose decoders the driver sends.

    Parameters
    ----------
    route : Route
    """

    def __init__(self, route: Route) -> None:
        self.route, self.left = route, MOST_HELD
        self.held = {table: list[pa.RecordBatch]() for table in route.decoders}

    def hold(self, table: str, records: pa.RecordBatch) -> bool:
        """Keep records until the end of the task; False for those of another table.

        All that a task decodes at once become one change of each key.
        """
        if table not in self.held:
            return False
        self.left -= records.nbytes
        if self.left >= 0:
            self.held[table].append(records)
        return True

    def decoded(
        self, summaries: Mapping[str, TableSummary]
    ) -> Iterator[tuple[str, pa.Buffer, bool, bool]]:
        """Yield the packed changes of each table."""
        bytes_left = self.route.most_bytes
        for table, records in self.held.items():
            if (summary := summaries.get(table)) is None:
                continue
            decoder = self.route.decoders[table]
            summary.undecoded = self.left < 0 or not summary.names <= decoder.names
            if not summary.undecoded:
                try:
                    value = packed_batches([*decoder.decoded(iter(records))])
                except ChangelogError:
                    # The driver decodes the table again, and says what its error means.
                    summary.undecoded = True
                    continue
                bytes_left -= value.size
                summary.undecoded = bytes_left < 0
                if not summary.undecoded:
                    yield table, value, True, False


_Rows = TypeVar("_Rows", pa.Array, pa.RecordBatch)


def _at(records: _Rows, indexes: Ints) -> _Rows:
    """Return records by their indexes; those that follow each other are not copied."""
    if len(indexes) and (np.diff(indexes) == 1).all():
        return records.slice(indexes[0], len(indexes))
    return records.take(pa.array(indexes))


def _by_table(records: pa.RecordBatch) -> Iterator[tuple[str, bool, pa.RecordBatch]]:
    """Yield the records of each table, and whether they are of the sample."""
    tables = records.column("table").dictionary_encode()
    codes = tables.indices.to_numpy()
    sampled = records.column("sample").to_numpy(zero_copy_only=False)
    if not len(codes):
        return
    order = np.argsort(codes, kind="stable")
    ends = np.flatnonzero(np.diff(2 * codes[order] + sampled[order])) + 1
    rows = _at(records.drop_columns(["table", "sample"]), order)
    most = max(1, len(order) * _MOST_BYTES // max(1, records.nbytes))
    for begin, end in pairwise([0, *ends, len(order)]):
        table, is_sample = tables[order[begin]].as_py(), bool(sampled[order[begin]])
        for at in range(begin, end, most):
            yield table, is_sample, rows.slice(at, min(most, end - at))


class _Task:
    """Routes the records of a task: those of known tables and columns together, others one by one.

    Parameters
    ----------
    route : Route

    Attributes
    ----------
    summaries : dict of str to TableSummary
    """

    def __init__(self, route: Route) -> None:
        self.route, self.identifier = route, route.format.identifier
        self.router = Router(route.format, route.selection)
        self.summaries = dict[str, TableSummary]()
        self.chosen = Counter[str]()
        self.tables = dict[Table, Routed]()
        """Where the records of tables belong that `known` has."""

    @cached_property
    def known(self) -> KnownRows | None:
        """The tables and columns seen before; few records are not worth its compilation."""
        known = KnownRows.of(self.route.format, native=self.route.native)
        if known is not None:
            for table, decoder in self.route.decoders.items():
                names, absent = decoder.names, decoder.absent - decoder.names
                for topic, named, shard in decoder.kinds:
                    routed = Routed(table, 1, names, shard=shard, absent=absent)
                    self._learn(known, (topic, named), routed)
        return known

    def routed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records with their ``table`` and ``sample``; those without rows are counted."""
        self.table_of = np.full(batch.num_rows, None, object)
        self.in_sample = np.zeros(batch.num_rows, bool)
        topics = batch.column("topic")
        for topic in topics.unique().to_pylist():
            rest = np.flatnonzero(pc.equal(topics, topic).to_numpy(zero_copy_only=False))
            known = self.known if len(rest) >= _FEWEST else None
            step = len(rest) if known is None else 1
            if known is not None:
                rest = self._together(batch, topic, rest, known)
            while len(rest):
                self._one_by_one(batch, rest[:step], known)
                rest, step = rest[step:], step * 8
                if known is not None and len(rest) >= _FEWEST:
                    left = self._together(batch, topic, rest, known)
                    # Tables that are new or messages that are read one by one.
                    rest, step = left, step if len(left) < len(rest) else len(left)
        arrays = [pa.array(self.table_of, pa.string()), pa.array(self.in_sample)]
        names = [*batch.schema.names, "table", "sample"]
        return pa.RecordBatch.from_arrays([*batch.columns, *arrays], names).filter(
            arrays[0].is_valid()
        )

    def _one_by_one(self, batch: pa.RecordBatch, indexes: Ints, known: KnownRows | None) -> None:
        route, letters, records = self.route, list[Letter](), _at(batch, indexes)
        columns = [records.column(name).to_pylist() for name in ("topic", "key", "value")]
        columns.append(header_lists(records.column("headers")))
        for at, (topic, key, value, headers) in enumerate(zip(*columns, strict=True)):
            routed = decode_one(self.identifier, self.router.route, topic, key, value, headers)
            if isinstance(routed, DecodeError):
                letters.append(_bad(routed, records, at, route))
                routed = Routed("", reason=routed.condition)
                if route.stops_table:
                    self._summary("").unread.setdefault(topic, str(letters[-1].error))
            elif known is not None and routed.named is not None:
                self._learn(known, (topic, routed.named), routed)
            summary = self._count(routed, topic, 1)
            if routed.source_key:
                summary.source_keys.add(routed.source_key)
            if routed.table:
                summary.size += len(value or b"")
                summary.rows += routed.rows
                summary.absent |= routed.absent
                if routed.rows and routed.named is not None:
                    summary.kinds.add((topic, routed.named, routed.shard))
                source = routed.shard or routed.table
                if not routed.names <= summary.names:
                    summary.names |= routed.names
                    self.chosen[source] = min(self.chosen[source], _SAMPLE - _SAMPLE_OF_NEW)
                self._place(indexes[at : at + 1], routed.table, source)
        if route.dead_letters is not None:
            send(route.dead_letters, letters)

    def _together(self, batch: pa.RecordBatch, topic: str, indexes: Ints, known: KnownRows) -> Ints:
        """Route the records of known tables without new columns; return the others."""
        values = _at(batch.column("value"), indexes)
        sizes = pc.fill_null(pc.binary_length(values), 0).to_numpy()
        seen = list[int]()
        for table, rows in known.read(topic, Values(values)).items():
            routed = self.tables[table]
            if routed.table and rows:
                # It says what the source's primary key is: a key that changed is in all later records.
                last = max(rows)
                self._one_by_one(batch, indexes[[last]], known)
                seen.append(last)
                del rows[last]
            of_table, summary = sorted(rows), self._count(routed, topic, len(rows))
            if routed.table:
                summary.size += int(sizes[of_table].sum())
                summary.rows += sum(rows.values())
                source = routed.shard or routed.table
                self._place(indexes[of_table], routed.table, source)
            seen += of_table
        return np.delete(indexes, seen)

    def _learn(self, known: KnownRows, table: Table, routed: Routed) -> None:
        self.tables[table] = Routed(routed.table, reason=routed.reason, shard=routed.shard)
        if not routed.table:
            known.exclude(table)
        elif routed.rows:
            known.learn(table, (*routed.names, *routed.absent), routed.names)

    def _count(self, routed: Routed, topic: str, records: int) -> TableSummary:
        """Count records of a table, or of none; return its summary."""
        summary = self._summary(routed.table)
        summary.records += records
        if records:
            summary.topics.add(topic)
        if not routed.table:
            summary.reasons[routed.reason] = summary.reasons.get(routed.reason, 0) + records
        return summary

    def _summary(self, table: str) -> TableSummary:
        return self.summaries.setdefault(table, TableSummary(table))

    def _place(self, indexes: Ints, table: str, source: str) -> None:
        """Set the table of records, the first of which belong to the sample of their source."""
        self.table_of[indexes] = table
        self.in_sample[indexes[: max(0, _SAMPLE - self.chosen[source])]] = True
        self.chosen[source] += len(indexes)


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
