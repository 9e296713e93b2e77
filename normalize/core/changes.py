"""Changes as Arrow columns, sent from the first pass to the stage as one block for each key group.

The cost of a transfer to Python depends on the number of rows and columns. The transferred frame
therefore has one column, and one row for all changes of a task to one key group: a block. In it the
changes are an Arrow record batch, so that the stage needs no Python code for each change.

=================  ===================================================================
column             content
=================  ===================================================================
``key``            the packed key (`arrow.pack`)
``stamp``          Kafka's timestamp in ms, made monotone within the Kafka partition
``deleted``        whether the change deletes the key's row
``c0``, ...        the row after the change (`arrow.stored_type`); NULL for a delete
``m0``, ...        the requested metadata
``offset``         the record's offset, if the records are not in the order of offsets
=================  ===================================================================
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby, pairwise
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from cdc_formats.events import KeyedChange, Position
from cdc_formats.values.schema import ABSENT, Column, absent_as_null

from .arrow import pack, stored_type, to_stored
from .fold_columns import Bools, Ints
from .order import RowOrder, require_known_order, unknown_order
from .records import KafkaRecord, Records


class Partial(NamedTuple):
    """A change whose row lacks columns.

    Attributes
    ----------
    change : int
        Its index among the changes.
    absent : list of int
        The indexes of the missing columns, which are NULL in its row.
    record : KafkaRecord
        The record of the change.
    """

    change: int
    absent: list[int]
    record: KafkaRecord


class Block(msgspec.Struct, array_like=True, gc=False):
    """The changes of one key group in a task's records of one Kafka partition.

    Attributes
    ----------
    source : str
        ``topic[partition]``.
    first_offset : int
    changes : bytes
        A record batch of `Shape.schema`, without its schema; empty if there are only side outputs.
    partials : list of Partial
    positions : list of (Position or None)
        One for each change with ``order="source"``, else empty.
    side_outputs : bytes
        Packed side outputs (`output.SideOutput`).
    """

    source: str
    first_offset: int
    changes: bytes = b""
    partials: list[Partial] = []
    positions: list[Position | None] = []
    side_outputs: bytes = b""

    def unpacked(self, schema: pa.Schema) -> ChangeBatch:
        """Return its changes."""
        batch = pa.ipc.read_record_batch(pa.py_buffer(self.changes), schema)
        return ChangeBatch(
            batch, self.partials, [(self.source, position) for position in self.positions]
        )


decode_block = msgspec.msgpack.Decoder(Block).decode


@dataclass(frozen=True)
class Shape:
    """The columns of changes.

    Parameters
    ----------
    columns, metadata : tuple of Column
    ignored : tuple of int
        The indexes of the columns that are ignored when rows are compared.
    positions : bool
        Whether changes have the source's positions.
    offsets : bool
        Whether changes have their record's offset, by which they are sorted.
    """

    columns: tuple[Column, ...]
    metadata: tuple[Column, ...] = ()
    ignored: tuple[int, ...] = ()
    positions: bool = False
    offsets: bool = False

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of changes."""
        key = [("key", pa.binary()), ("stamp", pa.int64()), ("deleted", pa.bool_())]
        offset = [("offset", pa.int64())] if self.offsets else []
        return pa.schema(
            [*key, *self._fields("c", self.columns), *self._fields("m", self.metadata), *offset]
        )

    @cached_property
    def changelog_schema(self) -> pa.Schema:
        """The Arrow schema of changelog rows: ``kind`` (a number), ``c0``, ..., ``m0``, ..."""
        return pa.schema(
            [
                ("kind", pa.int8()),
                *self._fields("c", self.columns),
                *self._fields("m", self.metadata),
            ]
        )

    @staticmethod
    def _fields(prefix: str, columns: Sequence[Column]) -> list[tuple[str, pa.DataType]]:
        return [
            (f"{prefix}{index}", stored_type(column.type)) for index, column in enumerate(columns)
        ]


class ChangeBuilder:
    """Builds columns of changes from parallel lists.

    Attributes
    ----------
    keys : list of bytes
        Packed keys.
    stamps : list of int
    rows : list of (tuple or None)
        The row after each change; None for a delete.
    metadata : list of tuple
        Empty unless requested.
    partials : list of Partial
        Partial rows; `changes` fills in their `absent`.
    positions : list of (str, Position or None)
        Empty unless requested.
    offsets : list of int
        Empty unless requested.
    """

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.keys: list[bytes] = []
        self.stamps: Any = []
        self.rows: list[Sequence[Any] | None] = []
        self.metadata: list[Sequence[Any]] = []
        self.partials: list[Partial] = []
        self.positions: list[tuple[str, Position | None]] = []
        self.offsets: Any = []

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> None:
        """Set the lists to the changes of these records."""
        changes = list(chain.from_iterable(decoded))
        counts = np.fromiter(map(len, decoded), int)
        self.stamps = np.repeat(records.stamps, counts)
        self.offsets = np.repeat(records.offsets, counts)
        self.keys = [pack(change.key) for change in changes]
        self.rows = [change.row for change in changes]
        if self.shape.metadata:
            self.metadata = [change.metadata for change in changes]
        if self.shape.positions:
            self.positions = [(records.source, change.position) for change in changes]
        if any([change.partial for change in changes]):
            self.partials = _partials(records, decoded)

    def changes(self) -> ChangeBatch:
        """Return the changes as columns."""
        shape, rows = self.shape, self.rows
        partials = []
        for change, _, record in self.partials:
            row = rows[change] or ()
            partials.append(
                Partial(
                    change, [index for index, value in enumerate(row) if value is ABSENT], record
                )
            )
            rows[change] = absent_as_null(tuple(row))
        deleted = [row is None for row in rows]
        columns = stored_columns(shape.columns, rows)
        arrays = [
            pa.array(self.keys, pa.binary()),
            pa.array(self.stamps, pa.int64()),
            pa.array(deleted, pa.bool_()),
            *columns,
            *stored_columns(shape.metadata, self.metadata),
        ]
        if shape.offsets:
            arrays.append(pa.array(self.offsets, pa.int64()))
        return ChangeBatch(
            pa.RecordBatch.from_arrays(arrays, schema=shape.schema), partials, self.positions
        )


def _partials(records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> list[Partial]:
    """Return the partial rows of records, without their absent columns."""
    changes = ((index, change) for index, of_record in enumerate(decoded) for change in of_record)
    return [
        Partial(at, [], records.record(index))
        for at, (index, change) in enumerate(changes)
        if change.partial
    ]


def stored_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[Any] | None]
) -> list[pa.Array]:
    """Return rows of canonical values as columns; they are null where the row is None."""
    nothing = (None,) * len(columns)
    values: Sequence[Sequence[Any]] = list(
        zip(*[nothing if row is None else row for row in rows], strict=True)
    )
    return [
        to_stored(column.type, of_column)
        for column, of_column in zip(columns, values or [()] * len(columns), strict=True)
    ]


@dataclass
class ChangeBatch:
    """Changes of a key group, in their order.

    Attributes
    ----------
    batch : pyarrow.RecordBatch
        The columns of `Shape.schema`.
    partials : list of Partial
    positions : list of (str, Position or None)
        The Kafka partition and the source's position of each change; empty unless requested.
    """

    batch: pa.RecordBatch
    partials: list[Partial]
    positions: list[tuple[str, Position | None]]

    @classmethod
    def of_blocks(
        cls,
        blocks: Sequence[Block],
        schema: pa.Schema,
        row_order: RowOrder = "log",
        before: tuple[int, str] | None = None,
    ) -> tuple[ChangeBatch, list[Block]]:
        """Return the changes of blocks in their order, and blocks of those after a timestamp.

        Changes of a partition are in the order of offsets. Partitions are merged by Kafka's
        timestamps, the best available approximation of the order in which the records were written;
        equal timestamps are ordered by the partition's name.

        Parameters
        ----------
        blocks : sequence of Block
        schema : pyarrow.Schema
        row_order : {"log", "offset", "row"}
        before : (int, str) or None
            A timestamp and a partition: changes after them are returned as blocks.

        Raises
        ------
        RowOrderError
            When two partitions have a key, and the order of its changes is unknown (`order.RowOrder`).
        """
        if row_order == "row" and "offset" in schema.names:
            return cls._by_time(blocks, schema), []
        if len(blocks) == 1 and before is None and "offset" not in schema.names:
            return blocks[0].unpacked(schema), []
        parts: list[ChangeBatch] = []
        stamps: list[Ints] = []
        rest: list[Block] = []
        for source, of_source in groupby(
            sorted(blocks, key=lambda block: (block.source, block.first_offset)),
            lambda block: block.source,
        ):
            part = cls.joined([block.unpacked(schema) for block in of_source], schema)
            if "offset" in schema.names:
                # Blocks of several key groups, or of records in any order, have offsets between
                # those of others.
                part = part.take(np.argsort(part.ints("offset"), kind="stable"))
            # Each block's stamps are monotone; those of a partition that several tasks read may
            # decrease between two blocks.
            times = np.maximum.accumulate(part.ints("stamp"))
            end = (
                len(part)
                if before is None
                else int(
                    np.searchsorted(times, before[0], "right" if source <= before[1] else "left")
                )
            )
            if end < len(part):
                rest.append(
                    part.take(np.arange(end, len(part))).packed(
                        source, int(part.ints("offset")[end])
                    )
                )
            parts.append(part.take(np.arange(end)) if end < len(part) else part)
            stamps.append(times[:end])
        require_known_order([part.batch.column("key") for part in parts], stamps, row_order)
        changes = cls.joined(parts, schema)
        return changes if len(stamps) < 2 else changes.take(
            np.argsort(np.concatenate(stamps), kind="stable")
        ), rest

    @classmethod
    def _by_time(cls, blocks: Sequence[Block], schema: pa.Schema) -> ChangeBatch:
        """Return the changes of records without an order in the order of their timestamps.

        Equal changes may have the same timestamp.
        """
        parts = [block.unpacked(schema) for block in blocks]
        changes = cls.joined(parts, schema)
        numbers = np.unique([block.source for block in blocks], return_inverse=True)[1]
        sources = np.repeat(numbers, [len(part) for part in parts])
        stamps, offsets = changes.ints("stamp"), changes.ints("offset")
        keys = changes.batch.column("key").dictionary_encode().indices.to_numpy()
        order = np.lexsort((offsets, sources, stamps, keys))
        same = [each[order[1:]] == each[order[:-1]] for each in (keys, stamps, sources, offsets)]
        rows = changes.batch.select(schema.names[:-1])
        for index in np.flatnonzero(same[0] & same[1] & ~(same[2] & same[3])):
            left, right = rows.take(pa.array(order[index : index + 2])).to_pylist()
            if repr(left) != repr(right):
                raise unknown_order("row")
        return changes.take(np.lexsort((offsets, sources, stamps)))

    @classmethod
    def joined(cls, parts: Sequence[ChangeBatch], schema: pa.Schema) -> ChangeBatch:
        """Return the concatenation of changes."""
        partials: list[Partial] = []
        positions: list[tuple[str, Position | None]] = []
        start = 0
        for part in parts:
            partials += [
                partial._replace(change=start + partial.change) for partial in part.partials
            ]
            positions += part.positions
            start += len(part)
        return cls(concatenated([part.batch for part in parts], schema), partials, positions)

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def take(self, indexes: Ints) -> ChangeBatch:
        """Return the changes at these indexes, in this order."""
        partials = self.partials
        if partials:
            now = {int(before): index for index, before in enumerate(indexes)}
            partials = sorted(
                (
                    partial._replace(change=now[partial.change])
                    for partial in partials
                    if partial.change in now
                ),
                key=lambda partial: partial.change,
            )
        positions = [self.positions[index] for index in indexes] if self.positions else []
        return ChangeBatch(self.batch.take(pa.array(indexes)), partials, positions)

    def packed(self, source: str, first_offset: int) -> Block:
        """Return changes of one Kafka partition as a block."""
        return Block(
            source,
            first_offset,
            bytes(self.batch.serialize()),
            self.partials,
            [position for _, position in self.positions],
        )

    def columns(self, prefix: str, count: int) -> list[pa.Array]:
        """Return the columns of a row: ``c`` or ``m``."""
        first = self.batch.schema.get_field_index(f"{prefix}0") if count else 0
        columns: list[pa.Array] = self.batch.columns[first : first + count]
        return columns

    def ints(self, name: str) -> Ints:
        """Return a column of integers."""
        ints: Ints = self.batch.column(name).to_numpy()
        return ints

    def flags(self, name: str) -> Bools:
        """Return a column of booleans."""
        flags: Bools = self.batch.column(name).to_numpy(zero_copy_only=False)
        return flags


class ChangeColumns(NamedTuple):
    """Changes as columns.

    Attributes
    ----------
    changes : ChangeBatch
        In a plan without a stage, its rows are those of the topic's changelog
        (`Shape.changelog_schema`).
    places : array of int
        The index of each change's record.
    hashes : array of int
        The hash of each change's packed key (`arrow.hashes`); empty in a plan without a stage.
    """

    changes: ChangeBatch
    places: Ints
    hashes: Ints


def concatenated(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """Return the rows of all batches as one."""
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    if len(batches) == 1:
        return batches[0]
    parts = pa.Table.from_batches(batches, schema).combine_chunks().to_batches()
    if len(parts) == 1:
        return parts[0]
    # All are empty, or together too large for one array, which is an error.
    arrays = [
        pa.concat_arrays([batch.column(index) for batch in batches]) for index in range(len(schema))
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def cut(changes: ChangeBatch, groups: Ints, offsets: Ints) -> list[tuple[int, ChangeBatch]]:
    """Return the changes of each key group in the order of their records, sorted by key group.

    Parameters
    ----------
    changes : Changes
    groups : array of int
        The key group of each change.
    offsets : array of int
        The offset of each change's record.
    """
    if not len(groups):
        return []
    arranged, numbers = changes, groups
    if len(groups) > 1:
        in_order = not np.any(offsets[1:] < offsets[:-1])
        order = np.argsort(groups, kind="stable") if in_order else np.lexsort((offsets, groups))
        arranged, numbers = changes.take(order), groups[order]
    starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(numbers)]
    partials: dict[int, list[Partial]] = {}
    for partial in arranged.partials:
        start = starts[bisect_right(starts, partial.change) - 1]
        partials.setdefault(start, []).append(partial._replace(change=partial.change - start))
    return [
        (
            int(numbers[start]),
            ChangeBatch(
                arranged.batch.slice(start, end - start),
                partials.get(start, []),
                arranged.positions[start:end],
            ),
        )
        for start, end in pairwise(starts)
    ]
