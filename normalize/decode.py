"""The first pass: Kafka records to changes, on Spark's workers, in ``mapInArrow``.

One decoder is compiled per task. What a record gives is collected by a *target*, one for each shape that a plan asks for:

- `Blocks`: packed blocks of changes by key group, for the keyed stage;
- `KeyedRows`: a row for each change, for a bounded read, which sorts them natively;
- `TypedRows`: the changelog as it is in the topic, typed, where no stage is needed.

Records that give no rows are counted by reason. The counts leave the pass in rows of their own, which an observed metric sums up
and a filter then takes out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Any, Literal, NamedTuple

import pyarrow as pa

from cdc_formats.base import Change, Decoder, Format, Ignored, KeyedChange, key_indices
from cdc_formats.errors import DECODE_CONDITIONS, DecodeError, TruncateError
from cdc_formats.images import ABSENT
from cdc_formats.row_kind import RowKind
from cdc_formats.schema import Column, columns as to_columns

from .packing import Changes, Partial, encode_block, key_group_of, pack
from .typed import Corrupt, Output

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]

COUNTS = ("RECORDS", *(reason.value for reason in Ignored), *DECODE_CONDITIONS)
"""What is counted: records read, records ignored by reason, records dropped or kept as corrupt by condition."""

COUNTS_TYPE = pa.struct([(name, pa.int64()) for name in COUNTS])
_COUNTS_DDL = f"counts STRUCT<{', '.join(f'{name}: BIGINT' for name in COUNTS)}>"

KAFKA_METADATA: dict[str, Column] = {
    column.name: column
    for column in to_columns(
        "topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP(3), `timestamp-type` STRING, "
        "headers MAP<STRING, BINARY>, `header-list` ARRAY<STRUCT<key: STRING, value: BINARY>>"
    )
}
"""Metadata columns of the Kafka record itself, with Flink's names."""

_TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime"}
_MOST_CHANGES = 65_536
_MOST_BYTES = 32 << 20


@dataclass(frozen=True)
class Source:
    """What the first pass has to know; made on the driver, sent to the workers.

    Parameters
    ----------
    format : Format
    columns : tuple of Column
        The declared columns.
    unique_key : tuple of str
    metadata : tuple of str
        The metadata columns asked for, the format's and Kafka's, in the order asked.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
    on_truncate : {"fail", "ignore"}
    topic : str or None
        The topic, where there is but one: then no record needs to carry its name.
    key_groups : int
    drop_update_before : bool
        Whether ``-U`` is left out where there is no stage.
    """

    format: Format
    columns: tuple[Column, ...]
    unique_key: tuple[str, ...] = ()
    metadata: tuple[str, ...] = ()
    mode: Mode = "FAILFAST"
    on_truncate: Literal["fail", "ignore"] = "fail"
    topic: str | None = None
    key_groups: int = 1
    drop_update_before: bool = False

    @property
    def output(self) -> Output:
        """The columns of the DataFrame in the end."""
        decoder = self.decoder()
        of_format = {column.name: column for column in decoder.metadata_columns}
        return Output(self.columns, tuple(of_format.get(name) or KAFKA_METADATA[name] for name in self.metadata), self.permissive)

    @property
    def permissive(self) -> bool:
        """Whether corrupt records become rows."""
        return self.mode == "PERMISSIVE"

    def decoder(self) -> Decoder:
        """Compile the decoder."""
        of_format = [name for name in self.metadata if name in self.format.metadata]
        return self.format.decoder(self.columns, unique_key=self.unique_key, metadata=of_format)


class Records(NamedTuple):
    """Consecutive records of one Kafka partition, as columns.

    Attributes
    ----------
    stamps : list of int
        Kafka's timestamps in ms, raised to the highest before them in the partition, so that partitions can be merged by time
        without ever reordering one.
    """

    topic: str
    partition: int
    offsets: list[int]
    stamps: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    kafka: list[tuple[Any, ...]]

    def where(self, index: int) -> str:
        """The record's place, as errors name it."""
        return f"{self.topic}[{self.partition}]@{self.offsets[index]}"


class Target(ABC):
    """Collects what the records of a task give, and hands it out as batches."""

    schema: pa.Schema
    """Of what it hands out."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.decoder = source.decoder()
        self.merge = _metadata_merger(source)
        self.start()

    @classmethod
    @abstractmethod
    def ddl_of(cls, source: Source) -> str:
        """Return the Spark schema of the pass's result: that of `schema`, and ``counts``."""

    @abstractmethod
    def start(self) -> None:
        """Begin anew after a flush."""

    @abstractmethod
    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Any] | Ignored:
        """Decode a record."""

    @abstractmethod
    def add(self, records: Records, index: int, changes: Sequence[Any]) -> None:
        """Take a record's changes."""

    @abstractmethod
    def add_corrupt(self, record: Corrupt) -> None:
        """Take a record that could not be decoded."""

    @abstractmethod
    def flush(self) -> Iterator[pa.RecordBatch]:
        """Hand out what was taken, without the column ``counts``."""

    def metadata_of(self, records: Records, index: int, of_format: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a change's metadata in the order asked."""
        return self.merge(of_format, records.kafka[index])


def _metadata_merger(source: Source) -> Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]]:
    of_format = [name for name in source.metadata if name in source.format.metadata]
    of_kafka = [name for name in source.metadata if name not in source.format.metadata]
    if not of_kafka:
        return lambda ours, kafka: ours
    places = [(of_format + of_kafka).index(name) for name in source.metadata]
    return lambda ours, kafka: tuple([(ours + kafka)[place] for place in places])


class Blocks(Target):
    """Packed blocks of changes by key group."""

    schema = pa.schema(
        [("key_group", pa.int32()), ("source", pa.string()), ("first_offset", pa.int64()), ("changes", pa.binary()), ("corrupt", pa.binary())]
    )

    @classmethod
    def ddl_of(cls, source: Source) -> str:
        return f"key_group INT, source STRING, first_offset BIGINT, changes BINARY, corrupt BINARY, {_COUNTS_DDL}"

    def start(self) -> None:
        self.groups: dict[int, tuple[int, Changes]] = {}
        self.corrupt: list[Corrupt] = []
        self.at = ""

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Any] | Ignored:
        return self.decoder.upserts(key, value)

    def add(self, records: Records, index: int, changes: Sequence[KeyedChange]) -> None:
        self.at = f"{records.topic}[{records.partition}]"
        for key, row, metadata in changes:
            packed = pack(key)
            group = key_group_of(packed, self.source.key_groups)
            known = self.groups.get(group)
            if known is None:
                known = (records.offsets[index], Changes([], [], [], [] if self.source.metadata else None, []))
                self.groups[group] = known
            block = known[1]
            block.stamps.append(records.stamps[index])
            block.keys.append(packed)
            block.rows.append(None if row is None else pack(row))
            if block.metadata is not None:
                block.metadata.append(pack(self.metadata_of(records, index, metadata)))
            if row is not None and ABSENT in row:
                block.partials.append(_partial(records, index, len(block.rows) - 1))

    def add_corrupt(self, record: Corrupt) -> None:
        self.corrupt.append(record)

    def flush(self) -> Iterator[pa.RecordBatch]:
        rows = [(group, self.at, first, encode_block(block), None) for group, (first, block) in self.groups.items()]
        if self.corrupt:
            # Corrupt records have no key: they pass the stage with the key group of their partition's name.
            first = self.corrupt[0]
            group = key_group_of(f"{first.topic}[{first.partition}]".encode(), self.source.key_groups)
            rows.append((group, "", first.offset, None, encode_block(self.corrupt)))
        if rows:
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), self.schema, strict=True)], schema=self.schema
            )
        self.start()


class KeyedRows(Target):
    """A row for each change: its key, its place in the order, the row after it."""

    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("stamp", pa.int64()),
            ("source", pa.string()),
            ("offset", pa.int64()),
            ("seq", pa.int32()),
            ("row", pa.binary()),
            ("metadata", pa.binary()),
            ("partial", pa.binary()),
            ("corrupt", pa.binary()),
        ]
    )

    @classmethod
    def ddl_of(cls, source: Source) -> str:
        order = "stamp BIGINT, source STRING, offset BIGINT, seq INT"
        return f"key BINARY, {order}, row BINARY, metadata BINARY, partial BINARY, corrupt BINARY, {_COUNTS_DDL}"

    def start(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Any] | Ignored:
        return self.decoder.upserts(key, value)

    def add(self, records: Records, index: int, changes: Sequence[KeyedChange]) -> None:
        at = f"{records.topic}[{records.partition}]"
        for seq, (key, row, metadata) in enumerate(changes):
            partial = encode_block(_partial(records, index, 0)) if row is not None and ABSENT in row else None
            packed = None if row is None else pack(row)
            extra = pack(self.metadata_of(records, index, metadata)) if self.source.metadata else None
            self.rows.append((pack(key), records.stamps[index], at, records.offsets[index], seq, packed, extra, partial, None))

    def add_corrupt(self, record: Corrupt) -> None:
        self.rows.append((None, 0, record.topic, record.offset, 0, None, None, None, encode_block([record])))

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.rows:
            columns = zip(*self.rows, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, self.schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self.start()


def _partial(records: Records, index: int, change: int) -> Partial:
    return Partial(
        change, records.topic, records.partition, records.offsets[index], _bytes(records.keys[index]), _bytes(records.values[index])
    )


def _bytes(value: bytes | None) -> bytes | None:
    return None if value is None else bytes(value)


class TypedRows(Target):
    """The changelog as it is in the topic."""

    def __init__(self, source: Source) -> None:
        self.output = source.output
        self.schema = self.output.arrow_schema
        self.key_of = itemgetter(*key_indices(source.columns, source.unique_key)) if source.unique_key else None
        super().__init__(source)

    @classmethod
    def ddl_of(cls, source: Source) -> str:
        return f"{source.output.ddl}, {_COUNTS_DDL}"

    def start(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.metadata: list[tuple[Any, ...]] = []
        self.corrupt: list[Corrupt] = []

    def decode(self, key: bytes | None, value: bytes | None) -> Sequence[Any] | Ignored:
        return self.decoder.decode(key, value)

    def add(self, records: Records, index: int, changes: Sequence[Change]) -> None:
        for kind, row, metadata in self._without_before(changes) if self.source.drop_update_before else changes:
            self.kinds.append(kind)
            self.rows.append(row)
            if self.source.metadata:
                self.metadata.append(self.metadata_of(records, index, metadata))

    def _without_before(self, changes: Sequence[Change]) -> Iterator[Change]:
        """Drop ``-U``; where its ``+U`` has another key it is the delete of the old one."""
        assert self.key_of is not None  # the plan drops nothing without a primary key
        for change, after in zip(changes, [*changes[1:], None], strict=True):
            if change.kind is not RowKind.UPDATE_BEFORE:
                yield change
            elif after is not None and after.kind is RowKind.UPDATE_AFTER and self.key_of(change.row) != self.key_of(after.row):
                yield change._replace(kind=RowKind.DELETE)

    def add_corrupt(self, record: Corrupt) -> None:
        self.corrupt.append(record)

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.kinds or self.corrupt:
            yield self.output.batch(self.kinds, self.rows, self.metadata, self.corrupt)
        self.start()


def decode_pass(batches: Iterator[pa.RecordBatch], *, source: Source, target: type[Target]) -> Iterator[pa.RecordBatch]:
    """Decode a task's records into a target's batches; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        Kafka's records, with the columns of `needed_columns`.
    source : Source
    target : type
        A subclass of `Target`.
    """
    return _Task(source, target(source)).run(batches)


class _Task:
    """One task's records, in the order of their partition."""

    def __init__(self, source: Source, target: Target) -> None:
        self.source, self.target = source, target
        self.counts: Counter[str] = Counter()
        self.held = 0
        self.held_bytes = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        at, stamp = ("", -1), 0
        for batch in batches:
            for records in _records(batch, self.source, at, stamp):
                if at != (records.topic, records.partition):
                    # A block is of one partition: its place in the order is that of its first offset.
                    yield from self.flush()
                at, stamp = (records.topic, records.partition), records.stamps[-1]
                self.decode(records)
                self.held_bytes += batch.nbytes
                if self.held >= _MOST_CHANGES or self.held_bytes >= _MOST_BYTES:
                    yield from self.flush()
        yield from self.flush()

    def decode(self, records: Records) -> None:
        decode, add, counts = self.target.decode, self.target.add, self.counts
        for index, value in enumerate(records.values):
            try:
                changes = decode(records.keys[index], value)
            except DecodeError as error:
                self.bad(records, index, error)
                continue
            if isinstance(changes, Ignored):
                self.ignore(records, index, changes)
            else:
                add(records, index, changes)
        counts["RECORDS"] += len(records.values)
        self.held += len(records.values)

    def ignore(self, records: Records, index: int, reason: Ignored) -> None:
        if reason is Ignored.TRUNCATE and self.source.on_truncate == "fail":
            raise TruncateError(
                f"the source table was truncated - in {records.where(index)}. The changelog has no row for that: start anew from a "
                "snapshot, or set on_truncate='ignore' to count it and go on"
            )
        self.counts[reason.value] += 1

    def bad(self, records: Records, index: int, error: DecodeError) -> None:
        error = error.at(where=records.where(index))
        if self.source.mode == "FAILFAST":
            raise error from None
        self.counts[error.condition] += 1
        if self.source.permissive:
            key, value = _bytes(records.keys[index]), _bytes(records.values[index])
            self.target.add_corrupt(Corrupt(str(error), records.topic, records.partition, records.offsets[index], key, value))

    def flush(self) -> Iterator[pa.RecordBatch]:
        for batch in self.target.flush():
            nulls = pa.nulls(batch.num_rows, COUNTS_TYPE)
            yield pa.RecordBatch.from_arrays([*batch.columns, nulls], schema=batch.schema.append(pa.field("counts", COUNTS_TYPE)))
        if self.counts:
            yield _counts_batch(self.target.schema, self.counts)
        self.counts.clear()
        self.held = self.held_bytes = 0


def _counts_batch(schema: pa.Schema, counts: Counter[str]) -> pa.RecordBatch:
    row = pa.array([{name: counts[name] for name in COUNTS}], COUNTS_TYPE)
    return pa.RecordBatch.from_arrays(
        [*(pa.nulls(1, field.type) for field in schema), row], schema=schema.append(pa.field("counts", COUNTS_TYPE))
    )


def needed_columns(source: Source) -> list[str]:
    """Return the columns of Kafka's records that the pass reads, each of them a cost for every record."""
    columns = ["value", "partition", "offset", "stamp"]
    if source.format.reads_key or source.permissive:
        columns.append("key")
    if source.topic is None:
        columns.append("topic")
    wanted = {"timestamp": "timestamp", "timestamp-type": "timestampType", "headers": "headers", "header-list": "headers"}
    return columns + sorted({wanted[name] for name in source.metadata if name in wanted and name not in source.format.metadata})


def _records(batch: pa.RecordBatch, source: Source, at: tuple[str, int], stamp: int) -> Iterator[Records]:
    """Cut a batch where the Kafka partition changes; all but always it is of one."""
    partitions = batch.column("partition").to_pylist()
    topics = batch.column("topic").to_pylist() if source.topic is None else [source.topic] * len(partitions)
    start = 0
    for place, run in groupby(zip(topics, partitions, strict=True)):
        length = sum(1 for _ in run)
        yield _cut(batch.slice(start, length), source, place, stamp if place == at else 0)
        start += length


def _cut(batch: pa.RecordBatch, source: Source, place: tuple[str, int], stamp: int) -> Records:
    keys = batch.column("key").to_pylist() if "key" in batch.schema.names else [None] * batch.num_rows
    stamps = list(accumulate(batch.column("stamp").to_pylist(), max, initial=stamp))[1:]
    return Records(*place, batch.column("offset").to_pylist(), stamps, keys, batch.column("value").to_pylist(), _kafka(batch, source, place))


def _kafka(batch: pa.RecordBatch, source: Source, place: tuple[str, int]) -> list[tuple[Any, ...]]:
    """Return each record's own metadata, as far as it is asked for."""
    names = [name for name in source.metadata if name not in source.format.metadata]
    columns = [_KAFKA_READERS[name](batch, place) for name in names]
    return list(zip(*columns, strict=True)) if columns else []


_KAFKA_READERS: dict[str, Callable[[pa.RecordBatch, tuple[str, int]], list[Any]]] = {
    "topic": lambda batch, place: [place[0]] * batch.num_rows,
    "partition": lambda batch, place: [place[1]] * batch.num_rows,
    "offset": lambda batch, place: batch.column("offset").to_pylist(),
    "timestamp": lambda batch, place: batch.column("timestamp").to_pylist(),
    "timestamp-type": lambda batch, place: [_TIMESTAMP_TYPES.get(kind, "NoTimestampType") for kind in batch.column("timestampType").to_pylist()],
    "headers": lambda batch, place: [_header_map(headers) for headers in batch.column("headers").to_pylist()],
    "header-list": lambda batch, place: [_header_list(headers) for headers in batch.column("headers").to_pylist()],
}


def _header_list(headers: list[dict[str, Any]] | None) -> list[Any]:
    return [[header["key"], header["value"]] for header in headers or [] if header["key"] is not None]


def _header_map(headers: list[dict[str, Any]] | None) -> list[Any]:
    # The last of several headers with one name wins, as in Flink.
    return sorted([key, value] for key, value in dict(map(tuple, _header_list(headers))).items())
