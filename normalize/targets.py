"""What the first pass collects changes into: one target for each shape that a plan asks for.

- `Blocks`: packed blocks of changes by key group, for the keyed stage;
- `KeyedRows`: a row for each change, for a bounded read, which sorts them natively;
- `TypedRows`: the changelog as it is in the topic, typed, where no stage is needed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from msgspec.structs import replace

from cdc_formats.base import Change, KeyedChange
from cdc_formats.equality import key_getter
from cdc_formats.handling import Converter
from cdc_formats.row_kind import RowKind
from cdc_formats.rows import key_indices
from cdc_formats.schema import Column

from .changes import NO_TEXT, Block, Changes, Gathered, Shape, cut, pack_change
from .fold_columns import Ints
from .guard import GUARD, Seen
from .packing import encode, key_group_of, key_groups_of, pack
from .records import Records
from .typed import Aside, Output


class Target(ABC):
    """Collects the changes of a task, and hands them out as batches.

    Parameters
    ----------
    output : Output
        The columns that the user gets in the end.
    key_groups : int
    shape : Shape
        Of changes.
    """

    takes_text: ClassVar[bool] = False
    """Whether it converts the text of whole columns (`Format.decoder`, ``raw_text``)."""
    keyed: ClassVar[bool]
    """Whether it takes `KeyedChange` (what a record says about keys) or `Change` (changelog rows)."""
    schema: pa.Schema
    """Of what it hands out."""

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        self.output, self.key_groups, self.shape = output, key_groups, shape
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
    def take(self, records: Records, decoded: Sequence[Sequence[Any]], text_columns: Mapping[int, Converter]) -> None:
        """Take the changes of each record, all of them or none.

        Parameters
        ----------
        records : Records
        decoded : sequence of sequences
            `KeyedChange` or `Change`, as `keyed` says.
        text_columns : mapping
            The columns that may have text as it stands in the messages, with their converters; only where `takes_text`.
        """

    @abstractmethod
    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        """Take what a record gives that is no row of the table."""

    def see(self, seen: Seen) -> None:
        """Take what the guard compares; a target without a stage behind it needs none of it."""
        return None

    @abstractmethod
    def flush(self) -> Iterator[pa.RecordBatch]:
        """Hand out what was taken."""


def _batch(rows: Sequence[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema)


class Blocks(Target):
    """Blocks of changes by key group (`changes.Block`); what is flushed at once is of one Kafka partition."""

    keyed = True
    schema = pa.schema([("key_group", pa.int32()), ("block", pa.binary())])

    @staticmethod
    def ddl(output: Output) -> str:
        return "key_group INT, block BINARY"

    takes_text = True

    def start(self) -> None:
        self.taken: list[Changes] = []
        self.groups: list[Ints] = []
        self.asides: list[Aside] = []
        self.begin: tuple[str, int] | None = None
        self.seen: Seen | None = None

    def see(self, seen: Seen) -> None:
        # The timestamps of a task do not fall, so that its first record has the least.
        self.seen = seen if self.seen is None else replace(seen, first_stamp=self.seen.first_stamp)

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]], text_columns: Mapping[int, Converter]) -> None:
        gathered = Gathered(self.shape)
        gathered.take(records, decoded)
        self.take_gathered(records.source, int(records.offsets[0]), gathered, (), text_columns)

    def take_gathered(
        self,
        source: str,
        first_offset: int,
        gathered: Gathered,
        asides: Sequence[Aside] = (),
        text_columns: Mapping[int, Converter] = NO_TEXT,
    ) -> None:
        """Take changes and asides of one Kafka partition."""
        self.taken.append(gathered.changes(text_columns))
        self.groups.append(key_groups_of(gathered.keys, self.key_groups))
        self.asides += asides
        self.begin = self.begin or (source, first_offset)

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        self.asides.append(aside)
        self.begin = self.begin or (records.source, int(records.offsets[0]))

    def flush(self) -> Iterator[pa.RecordBatch]:
        rows = [] if self.seen is None else [(GUARD, encode(self.seen))]
        if self.begin is not None:
            source, first = self.begin
            parts = cut(Changes.joined(self.taken, self.shape.schema), np.concatenate(self.groups)) if self.groups else []
            rows += [(group, encode(changes.packed(source, first))) for group, changes in parts]
            if self.asides:
                # Asides have no key: they pass the stage with the key group of their partition's name.
                rows.append((key_group_of(source.encode(), self.key_groups), encode(Block(source, first, asides=encode(self.asides)))))
        if rows:
            yield _batch(rows, self.schema)
        self.start()


class KeyedRows(Target):
    """A row for each change: its key, its place in the order, and what `changes.Gathered` takes of it, packed.

    Rows with what the guard compares (`seen`), and those with asides, have no key.
    """

    keyed = True
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("stamp", pa.int64()),
            ("source", pa.string()),
            ("offset", pa.int64()),
            ("seq", pa.int32()),
            ("change", pa.binary()),
            ("asides", pa.binary()),
            ("seen", pa.binary()),
        ]
    )

    @staticmethod
    def ddl(output: Output) -> str:
        return "key BINARY, stamp BIGINT, source STRING, offset BIGINT, seq INT, change BINARY, asides BINARY, seen BINARY"

    def start(self) -> None:
        self.rows: list[tuple[Any, ...]] = []

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]], text_columns: Mapping[int, Converter]) -> None:
        for index, changes in enumerate(decoded):
            place = (records.stamps[index], records.source, records.offsets[index])
            for seq, change in enumerate(changes):
                self.rows.append((pack(change.key), *place, seq, pack_change(change, records, index), None, None))

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        self.rows.append((None, records.stamps[index], records.source, records.offsets[index], 0, None, encode([aside]), None))

    def see(self, seen: Seen) -> None:
        self.rows.append((None, seen.first_stamp, f"{seen.topic}[{seen.partition}]", 0, 0, None, None, encode(seen)))

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.rows:
            yield _batch(self.rows, KeyedRows.schema)
        self.start()


class TypedRows(Target):
    """The changelog as it is in the topic."""

    keyed = False

    def __init__(self, output: Output, key_groups: int, shape: Shape) -> None:
        self.schema = output.arrow_schema
        super().__init__(output, key_groups, shape)

    @staticmethod
    def ddl(output: Output) -> str:
        return output.ddl

    def start(self) -> None:
        self.kinds: list[int] = []
        self.rows: list[tuple[Any, ...]] = []
        self.metadata: list[tuple[Any, ...]] = []
        self.asides: list[Aside] = []

    def take(self, records: Records, decoded: Sequence[Sequence[Change]], text_columns: Mapping[int, Converter]) -> None:
        changes = [change for of_record in decoded for change in of_record]
        self.kinds += [change.kind for change in changes]
        self.rows += [change.row for change in changes]
        if self.with_metadata:
            self.metadata += [change.metadata for change in changes]

    def add_aside(self, records: Records, index: int, aside: Aside) -> None:
        self.asides.append(aside)

    def flush(self) -> Iterator[pa.RecordBatch]:
        if self.kinds or self.asides:
            yield self.output.batch(self.kinds, self.rows, self.metadata, self.asides)
        self.start()


def without_update_before(columns: Sequence[Column], unique_key: Sequence[str]) -> Callable[[Sequence[Change]], list[Change]]:
    """Return the function that drops ``-U`` of an event's changes, for consumers of upserts.

    Where the ``+U`` after it has another key, the ``-U`` is the delete of the old one.

    Parameters
    ----------
    columns : sequence of Column
    unique_key : sequence of str
    """
    key_of = key_getter(columns, key_indices(columns, unique_key))

    def drop(changes: Sequence[Change]) -> list[Change]:
        kept = []
        for change, after in zip(changes, [*changes[1:], None], strict=True):
            if change.kind is not RowKind.UPDATE_BEFORE:
                kept.append(change)
            elif after is not None and after.kind is RowKind.UPDATE_AFTER and key_of(change.row) != key_of(after.row):
                kept.append(replace(change, kind=RowKind.DELETE))
        return kept

    return drop
