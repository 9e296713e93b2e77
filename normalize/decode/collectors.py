"""The collectors in which the first pass collects changes, one for each kind of plan.

- `Blocks`: packed blocks of changes by key group, for the keyed stage;
- `SortedBlocks`: smaller blocks with their places, for a bounded read, in which Spark sorts them;
- `last_changes.LastChanges`: the last change of each key as a typed row, for the native engine;
- `TypedRows`: the topic's changelog as typed rows, for a plan without a stage.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from cdc_formats.decoding.rows import key_indices
from cdc_formats.events import Change, KeyedChange, RowKind
from cdc_formats.values.equality import key_getter
from cdc_formats.values.schema import Column
from normalize.core.arrow import encode, hashes, key_group_of, slices
from normalize.core.changes import (
    Block,
    ChangeBatch,
    ChangeBuilder,
    ChangeColumns,
    Shape,
    concatenated,
    cut,
    stored_columns,
)
from normalize.core.fold_columns import Ints
from normalize.core.guard import GUARD, PartitionSummary
from normalize.core.output import Output, SideOutput
from normalize.core.records import Records

_KEY_GROUPS = 1024
"""The key groups of a bounded read: a thousandth of a table is in memory."""
_BLOCK_BYTES = 8 << 10
"""The size of a block that Spark sorts: Spark sends 10,000 blocks to Python at once."""


class Collector(ABC):
    """Collects the changes of a task, and returns them as batches.

    Parameters
    ----------
    output : Output
        The columns of the resulting DataFrame.
    key_groups : int
    shape : Shape
        The columns of changes.
    """

    by_partition: ClassVar[bool] = False
    """Whether each flush may only have changes of one Kafka partition."""
    keyed: ClassVar[bool]
    """Whether it collects `KeyedChange` (the newest row or the delete of a key) or `Change`
    (changelog rows)."""
    schema: pa.Schema
    """The Arrow schema of its batches."""

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        self.output, self.key_groups, self.shape = output, key_groups, shape
        self.with_metadata = bool(output.metadata)
        self.start()

    @staticmethod
    @abstractmethod
    def ddl(output: Output) -> str:
        """Return the Spark schema of its batches."""

    @abstractmethod
    def start(self) -> None:
        """Clear what was collected."""

    @abstractmethod
    def take(self, records: Records, decoded: Sequence[Sequence[Any]]) -> None:
        """Add the changes of each record; adds nothing if it raises.

        Parameters
        ----------
        records : Records
        decoded : sequence of sequences
            `KeyedChange` or `Change`, see `keyed`.
        """

    @abstractmethod
    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        """Add the changes of some records, before or after the changes of the other records."""

    @abstractmethod
    def add_side_output(self, records: Records, index: int, side_output: SideOutput) -> None:
        """Add a side output of a record."""

    def see(self, seen: PartitionSummary) -> None:
        """Add what the guard compares; ignored by a collector without a stage."""
        return None

    @abstractmethod
    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what was collected, and clear it."""

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield what it holds until the end of the task; most collectors hold nothing."""
        yield from ()


CollectorMaker = Callable[[Output, int, Shape], Collector]
"""A subclass of `Collector`, or a partial call of one with its other parameters."""


class Blocks(Collector):
    """Blocks of changes by key group (`changes.Block`); each flush has one Kafka partition."""

    by_partition = True
    keyed = True
    schema = pa.schema([("key_group", pa.int32()), ("block", pa.binary())])
    place: ClassVar[tuple[Any, ...]] = ()
    """The additional columns of a block without changes."""

    @staticmethod
    def ddl(output: Output) -> str:
        return "key_group INT, block BINARY"

    def start(self) -> None:
        # By Kafka partition: changes, with the key group and the offset of each.
        self.taken = dict[str, list[tuple[ChangeBatch, Ints, Ints]]]()
        self.side_outputs: list[SideOutput] = []
        self.begin: tuple[str, int] | None = None
        self.seen: PartitionSummary | None = None

    def see(self, seen: PartitionSummary) -> None:
        # The timestamps of a task never decrease: the first record has the least.
        self.seen = seen if self.seen is None else replace(seen, first_stamp=self.seen.first_stamp)

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> None:
        gathered = ChangeBuilder(self.shape)
        gathered.take(records, decoded)
        self._take(records, gathered.changes(), hashes(gathered.keys), gathered.offsets)

    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        self._take(records, changes.changes, changes.hashes, records.offsets[changes.places])

    def _take(self, records: Records, changes: ChangeBatch, of_keys: Ints, offsets: Ints) -> None:
        taken = self.taken.setdefault(records.source, [])
        taken.append((changes, of_keys % self.key_groups, offsets))
        self.begin = self.begin or (records.source, int(records.offsets[0]))

    def add_side_output(self, records: Records, index: int, side_output: SideOutput) -> None:
        self.side_outputs.append(side_output)
        self.begin = self.begin or (records.source, int(records.offsets[0]))

    def flush(self) -> Iterator[pa.RecordBatch]:
        rows: list[tuple[Any, ...]] = (
            [] if self.seen is None else [(GUARD, encode(self.seen), *self.place)]
        )
        for source, taken in self.taken.items():
            changes, groups, offsets = zip(*taken, strict=True)
            joined = ChangeBatch.joined(changes, self.shape.schema)
            for group, of_group in cut(joined, np.concatenate(groups), np.concatenate(offsets)):
                rows += [(group, *block) for block in self._packed(of_group, source)]
        if self.begin is not None and self.side_outputs:
            # Side outputs have no key: they are sent with the key group of their partition's name.
            block = Block(*self.begin, side_outputs=encode(self.side_outputs))
            rows.append(
                (key_group_of(block.source.encode(), self.key_groups), encode(block), *self.place)
            )
        if rows:
            columns = zip(zip(*rows, strict=True), self.schema, strict=True)
            arrays = [pa.array(column, field.type) for column, field in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self.start()

    def _packed(self, changes: ChangeBatch, source: str) -> Iterator[tuple[Any, ...]]:
        """Yield the columns of the blocks of a key group's changes, without the key group."""
        assert self.begin is not None  # something was taken
        yield (encode(changes.packed(source, self.begin[1])),)


class SortedBlocks(Blocks):
    """Small blocks for a bounded read, in which Spark sorts them.

    It sorts them by key group and by the place of their first change.
    """

    by_partition = False
    schema = pa.schema(
        [
            *Blocks.schema,
            ("stamp", pa.int64()),
            ("source", pa.string()),
            ("offset", pa.int64()),
            ("seq", pa.int32()),
        ]
    )
    place = (0, "", 0, 0)

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        # No state fixes the number of key groups.
        super().__init__(output, _KEY_GROUPS, shape)

    @staticmethod
    def ddl(output: Output) -> str:
        return f"{Blocks.ddl(output)}, stamp BIGINT, source STRING, offset BIGINT, seq INT"

    def _packed(self, changes: ChangeBatch, source: str) -> Iterator[tuple[Any, ...]]:
        step = max(1, _BLOCK_BYTES * len(changes) // changes.batch.nbytes)
        for seq in range(0, len(changes), step):
            part = (
                changes
                if step >= len(changes)
                else changes.take(np.arange(seq, min(seq + step, len(changes))))
            )
            stamp, offset = (part.batch.column(name)[0].as_py() for name in ("stamp", "offset"))
            yield encode(part.packed(source, offset)), stamp, source, offset, seq


class TypedRows(Collector):
    """The topic's changelog as typed rows."""

    keyed = False

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        self.schema = output.arrow_schema
        super().__init__(output, key_groups, shape)

    @staticmethod
    def ddl(output: Output) -> str:
        return output.ddl

    def start(self) -> None:
        self.parts: list[pa.RecordBatch] = []
        self.numbers: list[Ints] = []
        self.side_outputs: list[SideOutput] = []

    def take(self, records: Records, decoded: Sequence[Sequence[Change]]) -> None:
        changes = [change for of_record in decoded for change in of_record]
        if changes:
            kinds = pa.array([change.kind for change in changes], pa.int8())
            rows = stored_columns(self.shape.columns, [change.row for change in changes])
            metadata = stored_columns(self.shape.metadata, [change.metadata for change in changes])
            self.parts.append(
                pa.RecordBatch.from_arrays(
                    [kinds, *rows, *metadata], schema=self.shape.changelog_schema
                )
            )
            self.numbers.append(
                np.repeat(records.numbers, [len(of_record) for of_record in decoded])
            )

    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        self.parts.append(changes.changes.batch)
        self.numbers.append(records.numbers[changes.places])

    def add_side_output(self, records: Records, index: int, side_output: SideOutput) -> None:
        self.side_outputs.append(side_output)

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.parts:
            rows, numbers = (
                concatenated(self.parts, self.shape.changelog_schema),
                np.concatenate(self.numbers),
            )
            if np.any(numbers[1:] < numbers[:-1]):
                rows = rows.take(pa.array(np.argsort(numbers, kind="stable")))
            yield from slices(self.output.of_stored(rows))
        if self.side_outputs:
            yield self.output.of_side_outputs(self.side_outputs)
        self.start()


def update_before_changer(
    columns: Sequence[Column], unique_key: Sequence[str], *, drop: bool, ignore_deletes: bool
) -> Callable[[Sequence[Change]], list[Change]]:
    """Return the function that keeps, drops or changes the ``-U`` of an event's changes.

    If the next ``+U`` has another key, the ``-U`` removes the row of the old key.

    Parameters
    ----------
    columns : sequence of Column
    unique_key : sequence of str
    drop : bool
        Whether ``-U`` is dropped, for consumers of upserts. One that removes a row becomes a
        delete.
    ignore_deletes : bool
        Whether the row of an old key stays.
    """
    key_of = key_getter(columns, key_indices(columns, unique_key))

    def removes(change: Change, after: Change | None) -> bool:
        if after is None or after.kind is not RowKind.UPDATE_AFTER:
            return False
        return bool(key_of(change.row) != key_of(after.row))

    def changed(changes: Sequence[Change]) -> list[Change]:
        kept = []
        for change, after in zip(
            changes, [*changes[1:], None], strict=False
        ):  # there may be no change
            if change.kind is not RowKind.UPDATE_BEFORE:
                kept.append(change)
            elif not removes(change, after):
                kept += [] if drop else [change]
            elif not ignore_deletes:
                kept.append(replace(change, kind=RowKind.DELETE) if drop else change)
        return kept

    return changed
