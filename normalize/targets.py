"""What the first pass collects changes into: one target for each shape that a plan asks for.

- `Blocks`: packed blocks of changes by key group, for the keyed stage;
- `KeyedRows`: a row for each change, for a bounded read, which sorts them natively;
- `TypedRows`: the changelog as it is in the topic, typed, where no stage is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple

import msgspec
import pyarrow as pa

from cdc_formats.base import Change, KeyedChange
from cdc_formats.row_kind import RowKind

from .packing import Changes, KafkaRecord, Partial, encode_block, key_group_of, pack
from .typed import Aside, Output


class Records(NamedTuple):
    """Consecutive records of one Kafka partition, as columns.

    Attributes
    ----------
    topic, partition : str, int
    offsets : list of int
    stamps : list of int
        Kafka's timestamps in ms, raised to the highest before them in the partition, so that partitions can be merged by time
        without ever reordering one.
    keys, values : list of bytes or None
    timestamps : list of int
        Kafka's own, in ms.
    headers : pyarrow.Array or None
        Lists of ``{key, value}``; None where nobody needs headers.
    """

    topic: str
    partition: int
    offsets: Sequence[int]
    stamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    timestamps: Sequence[int] = ()
    headers: Any = None

    @property
    def source(self) -> str:
        """The partition, as it stands in the order of changes and in errors."""
        return f"{self.topic}[{self.partition}]"

    def record(self, index: int) -> KafkaRecord:
        """One of them, with its headers where they were read."""
        given = [] if self.headers is None else header_pairs(self.headers[index].as_py())
        timestamp, key, value = self.timestamps[index], self.keys[index], self.values[index]
        return KafkaRecord(self.topic, self.partition, self.offsets[index], timestamp, key, value, given)


def header_pairs(headers: Sequence[Any] | None) -> list[tuple[str, bytes | None]]:
    """Return the headers of a record, as Spark gives them, as names and values; those without a name are left out, as in Flink."""
    return [(header["key"], header["value"]) for header in headers or () if header["key"] is not None]


class Target(ABC):
    """Collects the changes of a task, and hands them out as batches.

    Parameters
    ----------
    output : Output
        The columns that the user gets in the end.
    key_groups : int
    """

    keyed: ClassVar[bool]
    """Whether it takes `KeyedChange` (what a record says about keys) or `Change` (changelog rows)."""
    schema: pa.Schema
    """Of what it hands out."""

    def __init__(self, output: Output, key_groups: int) -> None:
        self.output, self.key_groups = output, key_groups
        self.with_metadata = bool(output.metadata)
        self.start()

    @staticmethod
    @abstractmethod
    def ddl(output: Output) -> str:
        """Return the Spark schema of what it hands out."""

    @abstractmethod
    def start(self) -> None:
        """Begin anew after a flush."""

    @abstractmethod
    def add(self, records: Records, index: int, changes: Sequence[Any]) -> None:
        """Take a record's changes."""

    @abstractmethod
    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        """Take what a record gives that is no row of the table."""

    @abstractmethod
    def flush(self) -> Iterator[pa.RecordBatch]:
        """Hand out what was taken."""


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


class Blocks(Target):
    """Packed blocks of changes by key group; what is flushed at once is of one Kafka partition."""

    keyed = True
    schema = pa.schema(
        [
            ("key_group", pa.int32()),
            ("source", pa.string()),
            ("first_offset", pa.int64()),
            ("changes", pa.binary()),
            ("asides", pa.binary()),
        ]
    )

    @staticmethod
    def ddl(output: Output) -> str:
        return "key_group INT, source STRING, first_offset BIGINT, changes BINARY, asides BINARY"

    def start(self) -> None:
        self.groups: dict[int, tuple[str, int, Changes]] = {}
        self.asides: list[Aside] = []

    def add(self, records: Records, index: int, changes: Sequence[KeyedChange]) -> None:
        for change in changes:
            packed, row = pack(change.key), change.row
            group = key_group_of(packed, self.key_groups)
            known = self.groups.get(group)
            if known is None:
                known = (
                    records.source,
                    records.offsets[index],
                    Changes([], [], [], [] if self.with_metadata else None, []),
                )
                self.groups[group] = known
            block = known[2]
            block.stamps.append(records.stamps[index])
            block.keys.append(packed)
            block.rows.append(None if row is None else pack(row))
            if block.metadata is not None:
                block.metadata.append(pack(change.metadata))
            if change.partial:
                block.partials.append(Partial(len(block.rows) - 1, records.record(index)))

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        if not self.asides:
            self.asides_of = (records.source, records.offsets[index])
        self.asides.append(aside)

    def flush(self) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = [
            (group, source, first, encode_block(block), None) for group, (source, first, block) in self.groups.items()
        ]
        if self.asides:
            # Asides have no key: they pass the stage with the key group of their partition's name.
            source, first = self.asides_of
            rows.append((key_group_of(source.encode(), self.key_groups), source, first, None, encode_block(self.asides)))
        if rows:
            yield _batch(rows, self.schema)
        self.start()


class KeyedRows(Target):
    """A row for each change: its key, its place in the order, the row after it."""

    keyed = True
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
            ("asides", pa.binary()),
        ]
    )

    @staticmethod
    def ddl(output: Output) -> str:
        order = "stamp BIGINT, source STRING, offset BIGINT, seq INT"
        return f"key BINARY, {order}, row BINARY, metadata BINARY, partial BINARY, asides BINARY"

    def start(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def add(self, records: Records, index: int, changes: Sequence[KeyedChange]) -> None:
        for seq, change in enumerate(changes):
            partial = encode_block(records.record(index)) if change.partial else None
            packed, extra = None if change.row is None else pack(change.row), pack(change.metadata) if self.with_metadata else None
            self.rows.append(
                (
                    pack(change.key),
                    records.stamps[index],
                    records.source,
                    records.offsets[index],
                    seq,
                    packed,
                    extra,
                    partial,
                    None,
                )
            )

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        place = (records.stamps[index], records.source, records.offsets[index], 0)
        self.rows.append((None, *place, None, None, None, encode_block([aside])))

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.rows:
            yield _batch(self.rows, self.schema)
        self.start()


class TypedRows(Target):
    """The changelog as it is in the topic."""

    keyed = False

    def __init__(self, output: Output, key_groups: int) -> None:
        self.schema = output.arrow_schema
        super().__init__(output, key_groups)

    @staticmethod
    def ddl(output: Output) -> str:
        return output.ddl

    def start(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.metadata: list[tuple[Any, ...]] = []
        self.asides: list[Aside] = []

    def add(self, records: Records, index: int, changes: Sequence[Change]) -> None:
        for change in changes:
            self.kinds.append(change.kind)
            self.rows.append(change.row)
            if self.with_metadata:
                self.metadata.append(change.metadata)

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        self.asides.append(aside)

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.kinds or self.asides:
            yield self.output.batch(self.kinds, self.rows, self.metadata, self.asides)
        self.start()


def without_update_before(key_indices: Sequence[int]) -> Callable[[Sequence[Change]], list[Change]]:
    """Return the function that drops ``-U`` of an event's changes, for consumers of upserts.

    Where the ``+U`` after it has another key, the ``-U`` is the delete of the old one.

    Parameters
    ----------
    key_indices : sequence of int
        Where the primary key's columns stand in a row.
    """
    key_of = itemgetter(*key_indices)

    def drop(changes: Sequence[Change]) -> list[Change]:
        kept = []
        for change, after in zip(changes, [*changes[1:], None], strict=True):
            if change.kind is not RowKind.UPDATE_BEFORE:
                kept.append(change)
            elif after is not None and after.kind is RowKind.UPDATE_AFTER and key_of(change.row) != key_of(after.row):
                kept.append(msgspec.structs.replace(change, kind=RowKind.DELETE))
        return kept

    return drop
