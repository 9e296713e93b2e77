"""`LastChanges`, the native engine's collector: the last change of each key in a task as a typed row.

==============  ==================================================================
column          content
==============  ==================================================================
``key``         the packed key (`arrow.pack`); for a fact, its name in UTF-8
``batch``       the number of the micro-batch
``stamp``       Kafka's timestamp in ms, made monotone within the Kafka partition
``source``      ``topic[partition]``
``offset``      the record's offset
``row``         the typed row after the change; NULL for a delete
``metadata``    the typed metadata, if any is requested
``fact``        a fact about the query, which must never change; NULL for a change
==============  ==================================================================

A fact is what the guard of the key-group engine compares (`normalize.core.guard`): the primary key,
the table, the ids of the topics.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from cdc_formats.errors import PartialImageError, PartitionsAddedError
from cdc_formats.events import KeyedChange
from cdc_formats.values.schema import Column, SqlType, columns
from normalize.core.arrow import arrow_type, of_stored, slices, spark_type
from normalize.core.changes import ChangeBatch, ChangeBuilder, ChangeColumns, Partial, Shape
from normalize.core.fold_columns import Ints
from normalize.core.guard import PartitionSummary
from normalize.core.last import (
    METADATA,
    FirstRecord,
    completed,
    last_in_partitions,
    last_in_records,
    last_of_keys,
    most_partitions,
    partition_facts,
    since_last_whole,
    table_fact,
)
from normalize.core.order import RowOrder, not_redelivered, stored_position
from normalize.core.output import ROW_KIND, Output, SideOutput
from normalize.core.records import Records
from normalize.worker import worker

from .collectors import Collector

ABSENT = "absent"
"""The column with the missing columns of a partial row, as text: ``010`` for the second of three;
NULL for a whole row."""
POSITION = "position"
"""The column with the position in the source's log (`stored_position`), if positions are
requested."""
_MOST_HELD = 65_536


class ChangeHolder(Protocol):
    """Holds the changes of a task.

    Attributes
    ----------
    torn : int
        How many keys have changes of a second Kafka partition, of those that `finish` ordered.
    """

    torn: int

    def add(self, changes: pa.Table) -> None:
        """Add changes of one Kafka partition."""

    def finish(self, row_order: RowOrder | None) -> Iterator[pa.RecordBatch]:
        """Yield the changes that remain."""


class HeldChanges(Collector):
    """A task's last change of each key, all at its end; for `LastChanges` and `normalize.tables`.

    A partial row is completed from the changes of its key before it, and keeps `ABSENT` if columns
    are still missing. With a `partial_remedy`, which ends the text, it is an error.

    Parameters
    ----------
    output, key_groups, shape
        Same as `Collector`.
    row_order : {"log", "offset", "row"} or None
        The order of the records (`order.RowOrder`); None: the last change of each key in each partition,
        to be merged later (`merge_pass`).
    """

    keyed = True
    partial_remedy = ""

    def __init__(
        self, output: Output, key_groups: int, shape: Shape, *, row_order: RowOrder | None
    ) -> None:
        self.row_order = row_order
        self.last: ChangeHolder = LastOfKeys()
        super().__init__(output, key_groups, shape)

    def start(self) -> None:
        """Clear nothing: the changes are held until `finish`."""

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> None:
        builder = ChangeBuilder(self.shape)
        builder.take(records, decoded)
        if builder.partials and self.partial_remedy:
            raise partial_row(self.partial_remedy, builder.partials[0].record.where)
        if builder.keys:
            changes = builder.changes()
            self._hold(records.source, builder.offsets, _with_positions(changes), changes.partials)

    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        self._hold(
            records.source, records.offsets[changes.places], _with_positions(changes.changes)
        )

    def _hold(
        self, source: str, offsets: Any, changes: pa.RecordBatch, partials: Sequence[Partial] = ()
    ) -> None:
        """Add changes of one Kafka partition, in any order."""
        columns = {name: changes.column(name) for name in changes.schema.names}
        columns["offset"] = pa.array(offsets, pa.int64())
        columns["source"] = pa.DictionaryArray.from_arrays(
            pa.array(np.zeros(len(changes), np.int32)), pa.array([source])
        )
        if partials:
            flags = dict.fromkeys(range(len(changes)), "") | {
                each.change: _flags(each.absent, len(self.output.columns)) for each in partials
            }
            columns[ABSENT] = pa.array([flag or None for flag in flags.values()], pa.string())
        self.last.add(pa.table(columns))

    def add_side_output(self, records: Records, index: int, side_output: SideOutput) -> None:
        raise NotImplementedError("the call refuses side outputs")

    def flush(self) -> Iterator[pa.RecordBatch]:
        yield from ()

    def finish(self) -> Iterator[pa.RecordBatch]:
        for part in self.last.finish(self.row_order):
            yield self._typed(part)

    @abstractmethod
    def _typed(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes with the collector's schema."""


def _with_positions(changes: ChangeBatch) -> pa.RecordBatch:
    """Return changes with the column `POSITION`, if they have positions."""
    if not changes.positions:
        return changes.batch
    return changes.batch.append_column(
        POSITION,
        pa.array([stored_position(position) for _, position in changes.positions], pa.binary()),
    )


def partial_row(remedy: str, where: str) -> PartialImageError:
    """Return the error for a row that cannot be completed.

    Parameters
    ----------
    remedy : str
        What cannot complete it, and what to use.
    where : str
        The record.
    """
    return PartialImageError(
        f"the row lacks unchanged columns, and {remedy}, or let the producer write all columns "
        "(PostgreSQL: REPLICA IDENTITY FULL; GoldenGate: NOCOMPRESSUPDATES; MySQL: "
        "binlog_row_image=FULL)",
        "$.after",
        where=where,
    )


def _flags(absent: Sequence[int], length: int) -> str:
    flags = ["0"] * length
    for index in absent:
        flags[index] = "1"
    return "".join(flags)


class LastChanges(HeldChanges):
    """A task's last change of each key, or of each key and partition if merged later, and facts.

    Parameters
    ----------
    output, key_groups, shape
        Same as `Collector`.
    row_order : {"log", "offset", "row"}
        The order of the records (`order.RowOrder`).
    facts : mapping
        The facts that are known on the driver, by name.
    partitions : mapping
        The number of partitions of each topic, as in `partition_facts`.
    merged : bool
        Whether `merge_pass` follows.
    """

    partial_remedy = "engine='native' cannot complete it: use engine='key_groups'"

    def __init__(
        self,
        output: Output,
        key_groups: int,
        shape: Shape,
        *,
        row_order: RowOrder,
        facts: Mapping[str, str],
        partitions: Mapping[str, int],
        merged: bool,
    ) -> None:
        place = "key BINARY, batch BIGINT, stamp BIGINT, source STRING, offset BIGINT"
        metadata = [Column(METADATA, struct_type(output.metadata))] if output.metadata else []
        typed = [
            *columns(place),
            Column("row", struct_type(output.columns)),
            *metadata,
            *columns("fact STRING"),
        ]
        self.schema = pa.schema([(each.name, arrow_type(each.type)) for each in typed])
        context = TaskContext.get()
        assert context is not None  # on a worker
        self.batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        self.facts, self.partitions = set(facts.items()), partitions
        self.first_records: dict[tuple[str, int], FirstRecord] = {}
        super().__init__(output, key_groups, shape, row_order=None if merged else row_order)

    @staticmethod
    def ddl(output: Output) -> str:
        metadata = (
            f"{METADATA} {spark_type(struct_type(output.metadata))}, " if output.metadata else ""
        )
        row = spark_type(struct_type(output.columns))
        return (
            f"key BINARY, batch BIGINT, stamp BIGINT, source STRING, offset BIGINT, row {row}, "
            f"{metadata}fact STRING"
        )

    def see(self, seen: PartitionSummary) -> None:
        self.facts.update(map(table_fact, seen.tables))
        first = FirstRecord(seen.topic, seen.partition, seen.first_offset, seen.first_stamp)
        self.first_records.setdefault((seen.topic, seen.partition), first)

    def finish(self) -> Iterator[pa.RecordBatch]:
        for first in self.first_records.values():
            _require_known(first, self.partitions)
            self.facts.update(partition_facts(first, self.partitions, self.batch))
        if self.facts:
            names, values = zip(*sorted(self.facts), strict=True)
            yield self._batch(
                {
                    "key": pa.array([name.encode() for name in names], pa.binary()),
                    "fact": pa.array(values),
                },
                len(names),
            )
        yield from super().finish()

    def _typed(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        columns = {name: changes.column(name) for name in ("key", "stamp", "offset")}
        columns["source"] = changes.column("source").cast(pa.string())
        columns["row"] = struct_of(self.output.columns, changes, "c", changes.column("deleted"))
        if self.with_metadata:
            columns[METADATA] = struct_of(self.output.metadata, changes, "m")
        return self._batch(columns, changes.num_rows)

    def _batch(self, columns: Mapping[str, pa.Array], length: int) -> pa.RecordBatch:
        by_name = {"batch": pa.array(np.full(length, self.batch)), **columns}
        arrays = [by_name.get(field.name, pa.nulls(length, field.type)) for field in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _require_known(first: FirstRecord, counts: Mapping[str, int]) -> None:
    """Raise an error for a partition whose number is too far beyond those at the query's start.

    Older records are not compared with the records of such a partition.

    Raises
    ------
    PartitionsAddedError
    """
    count = counts.get(first.topic, first.partition)
    if first.partition >= most_partitions(count):
        raise PartitionsAddedError(
            f"{first.topic} had {count} partitions when the query started, and now has "
            f"[{first.partition}]: start it again"
        )


def merge_pass(
    batches: Iterable[pa.RecordBatch], *, row_order: RowOrder, most_held: int = _MOST_HELD
) -> Iterator[pa.RecordBatch]:
    """Reduce all tasks' changes to each key's last; for ``mapInArrow`` after a repartition by key.

    Parameters
    ----------
    batches : iterable of pyarrow.RecordBatch
        The batches of a `HeldChanges`, with ``key``, ``stamp``, ``source`` and ``offset``. Facts,
        which only `LastChanges` has, are kept.
    row_order : {"log", "offset", "row"}
    most_held : int
        More changes than these are reduced before all are read.

    Raises
    ------
    RowOrderError
        When the order of the last two changes of a key is unknown.
    """
    held = LastOfKeys(most_held)
    with worker():
        for batch in batches:
            if "fact" in batch.schema.names:
                is_fact = batch.column("fact").is_valid()
                if is_fact.true_count:
                    yield batch.filter(is_fact)
                batch = batch.filter(batch.column("fact").is_null())
            held.add(pa.Table.from_batches([batch]))
        yield from held.finish(row_order)


def merged(changes: DataFrame, output: Output, row_order: RowOrder) -> DataFrame:
    """Return the last change of each key, of the batches of `LastChanges` of all tasks."""
    return changes.repartition("key").mapInArrow(
        partial(merge_pass, row_order=row_order), LastChanges.ddl(output)
    )


class AllChanges:
    """All changes of each key, not only the last; of several in one record, only the last."""

    torn = 0

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def add(self, changes: pa.Table) -> None:
        places = last_in_records(*numbers_of(changes, "key", "offset"))
        self.tables.append(
            changes if len(places) == changes.num_rows else changes.take(pa.array(places))
        )

    def finish(self, row_order: RowOrder | None) -> Iterator[pa.RecordBatch]:
        """Yield the changes, in no order."""
        for table in self.tables:
            for batch in table.combine_chunks().to_batches():
                yield from slices(batch)


class LastOfKeys:
    """The last change of each key and partition; with partial rows, all since the last whole one.

    They are compacted whenever they have doubled.
    """

    def __init__(self, least: int = _MOST_HELD) -> None:
        self.torn, self.tables = 0, list[pa.Table]()
        self.rows, self.least, self.most = 0, least, least

    def add(self, changes: pa.Table) -> None:
        self.tables.append(changes)
        self.rows += changes.num_rows
        if self.rows > self.most:
            table = self._compacted()
            self.tables, self.rows = [table], table.num_rows
            self.most = max(self.least, 2 * self.rows)

    def finish(self, row_order: RowOrder | None) -> Iterator[pa.RecordBatch]:
        """Yield the changes; with an order, only the last of each key."""
        if not self.rows:
            return
        table = self._compacted()
        if row_order is not None:
            table = without_redeliveries(table, ("key",), ("stamp", "source", "offset"))
            keys, sources, stamps = numbers_of(table, "key", "source", "stamp")
            if sources.any():
                pairs = np.unique(keys * (sources.max() + 1) + sources)
                self.torn = len(pairs) - len(np.unique(keys))
            if _has_partials(table):
                table = _with_completed_rows(table, keys, sources, stamps)
            else:
                table = table.take(pa.array(last_of_keys(keys, sources, stamps, row_order)))
        for batch in table.combine_chunks().to_batches():
            yield from slices(batch)

    def _compacted(self) -> pa.Table:
        table = pa.concat_tables(self.tables, promote_options="default").unify_dictionaries()
        table = without_redeliveries(table, ("key", "source"), ("offset",))
        numbers = numbers_of(table, "key", "source", "offset", "stamp")
        if _has_partials(table):
            places, stamps = since_last_whole(
                *numbers, partial=table.column(ABSENT).is_valid().to_numpy()
            )
        else:
            places, stamps = last_in_partitions(*numbers)
        return table.take(pa.array(places)).set_column(
            table.schema.get_field_index("stamp"), "stamp", pa.array(stamps)
        )


def _has_partials(changes: pa.Table) -> bool:
    return ABSENT in changes.schema.names and changes.column(ABSENT).null_count < changes.num_rows


def without_redeliveries(
    changes: pa.Table, groups: Sequence[str], order: Sequence[str]
) -> pa.Table:
    """Return changes without those delivered before another of their group, by `POSITION`.

    Parameters
    ----------
    changes : pyarrow.Table
        Without the column, all are returned.
    groups, order : sequence of str
        The columns that identify a group, and those of the order of arrival.
    """
    if POSITION not in changes.schema.names:
        return changes
    numbers = numbers_of(changes, *groups)
    arrival = np.lexsort(tuple(reversed(numbers_of(changes, *order))))
    keys = zip(*(number[arrival].tolist() for number in numbers), strict=True)
    first = not_redelivered(keys, changes.column(POSITION).take(pa.array(arrival)).to_pylist())
    return changes if all(first) else changes.take(pa.array(np.sort(arrival[first])))


def _with_completed_rows(changes: pa.Table, keys: Any, sources: Any, stamps: Any) -> pa.Table:
    """Return the last change of each key, with the values that it lacks from the changes before it.

    Raises
    ------
    PartialImageError
        When the change before it is a delete.
    """
    texts = changes.column(ABSENT)
    length = len(pc.max(texts).as_py())
    absent = np.zeros((changes.num_rows, length), bool)
    absent[texts.is_valid().to_numpy()] = (
        np.frombuffer("".join(texts.drop_null().to_pylist()).encode(), "S1").reshape(-1, length)
        == b"1"
    )
    last, bases, places = completed(keys, sources, stamps, absent)
    deleted = (
        changes.column("deleted")
        if "deleted" in changes.schema.names
        else pc.equal(changes.column(ROW_KIND), "-D")
    )
    lost = np.flatnonzero((bases >= 0) & (bases != last) & deleted.to_numpy()[bases])
    if len(lost):
        source, offset = (
            changes.column(name)[last[lost[0]]].as_py() for name in ("source", "offset")
        )
        raise partial_row(
            "the change of its key before it is a delete: read the table again from a snapshot",
            f"{source}@{offset}",
        )
    rows = changes.take(pa.array(last))
    for index, of_column in enumerate(places):
        # Where no change has a value, the last one has NULL.
        values = changes.column(f"c{index}").take(
            pa.array(np.where(of_column < 0, last, of_column))
        )
        rows = rows.set_column(rows.schema.get_field_index(f"c{index}"), f"c{index}", values)
    still = (places < 0).T
    flags = np.ascontiguousarray(np.where(still, b"1", b"0")).view(f"S{length}")[:, 0].astype(str)
    return rows.set_column(
        rows.schema.get_field_index(ABSENT),
        ABSENT,
        pa.array(flags, pa.string(), mask=~still.any(axis=1)),
    )


def numbers_of(table: pa.Table, *names: str) -> list[Any]:
    """Return columns as integers: a number per value, in the values' order if they are text."""
    columns = (table.column(name) for name in names)
    return [
        column.to_numpy() if pa.types.is_integer(column.type) else _codes(column)
        for column in columns
    ]


def _codes(values: pa.ChunkedArray) -> Any:
    """Return a number for each value, in the order of the values if they are text."""
    encoded = values if pa.types.is_dictionary(values.type) else values.dictionary_encode()
    whole = encoded.unify_dictionaries().combine_chunks()
    codes = whole.indices.to_numpy()
    if not pa.types.is_string(whole.dictionary.type):
        return codes
    rank = np.empty(len(whole.dictionary), np.int64)
    rank[pc.sort_indices(whole.dictionary).to_numpy()] = np.arange(len(whole.dictionary))
    return rank[codes]


def struct_type(columns: Sequence[Column]) -> SqlType:
    """Return the type of rows with these columns."""
    return SqlType("STRUCT", fields=tuple(columns))


def struct_of(
    columns: Sequence[Column], changes: pa.RecordBatch, prefix: str, absent: pa.Array | None = None
) -> pa.Array:
    """Return rows as one column, of columns named by prefix and number; NULL where `absent`."""
    children = [
        of_stored(column.type, changes.column(f"{prefix}{index}"))
        for index, column in enumerate(columns)
    ]
    return pa.StructArray.from_arrays(
        children, fields=list(arrow_type(struct_type(columns))), mask=absent
    )


# --------------------------------------------------------------------------------------------------
# `ChangesWithMoves`: the last change of each key, where rows have columns of other keys' rows.


# --------------------------------------------------------------------------------------------------
# Rows whose key changed and that lack columns: the row of the earlier key has them.
#
# A key's row is followed from change to change, and from key to key. It ends with a place for each
# column: the change that has its value, or none. Then the target has the value, in the row of the key
# at which the row began (its base).


class FollowedRow(NamedTuple):
    """The last change of a key.

    Attributes
    ----------
    change : int
    base : bytes or None
        The key whose row in the target has the values that no change has; None if there are none.
    places : tuple of int
        For each column the change that has its value, or -1; empty for a delete.
    """

    change: int
    base: bytes | None = None
    places: tuple[int, ...] = ()


class UnknownRowError(ValueError):
    """A row that lacks columns cannot be followed; the arguments are its change and the reason."""


_DELETED = "the change of its key before it is a delete: read the table again from a snapshot"
_REUSED = (
    "its earlier key, in another partition, had several rows meanwhile: read the table again from "
    "a snapshot"
)


class _Deleted(NamedTuple):
    row: FollowedRow
    source: int
    times: int


def in_order(sources: Ints, offsets: Ints, stamps: Ints) -> Ints:
    """Return the order of changes: of a partition by offset, and between partitions by timestamp.

    Timestamps are made monotone in each partition. Changes of one record keep their order.

    Parameters
    ----------
    sources, offsets, stamps : array of int
        The numbers of partitions are in the order of their names.

    Examples
    --------
    >>> in_order(*map(np.array, ([0, 1, 0, 0], [7, 3, 8, 8], [5, 4, 3, 3]))).tolist()
    [1, 0, 2, 3]
    """
    placed = np.lexsort((offsets, sources))
    times, of = stamps[placed], sources[placed]
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    monotone = np.concatenate([np.maximum.accumulate(part) for part in np.split(times, starts[1:])])
    order: Ints = placed[np.lexsort((of, monotone))]
    return order


def follow_moves(
    keys: Sequence[bytes],
    moved_from: Sequence[bytes | None],
    deleted: Sequence[bool],
    absent: Sequence[Sequence[bool] | None],
    sources: Sequence[int],
    columns: int,
) -> dict[bytes, FollowedRow]:
    """Return the last change of each key, among all changes of these keys in their order.

    Parameters
    ----------
    keys : sequence of bytes
    moved_from : sequence of bytes or None
        The earlier key of a row that lacks columns, if its key changed.
    deleted : sequence of bool
    absent : sequence of (sequence of bool) or None
        The columns that a row lacks; None for a whole row and a delete.
    sources : sequence of int
        The Kafka partition of each change.
    columns : int
        The number of columns.

    Raises
    ------
    UnknownRowError
    """
    rows, deletes = dict[bytes, FollowedRow](), dict[bytes, _Deleted]()

    def row_of(key: bytes) -> FollowedRow:
        return (
            rows[key] if key in rows and rows[key].places else FollowedRow(-1, key, (-1,) * columns)
        )

    def origin(at: int, key: bytes) -> FollowedRow:
        """Return the row that moved away from a key: the deleted one, if its delete was read."""
        if key not in deletes:
            return row_of(key)
        # Partitions are merged by time: another row may have had the key meanwhile.
        last = deletes[key]
        if last.source != sources[at] and (last.times > 1 or rows[key].places):
            raise UnknownRowError(at, _REUSED)
        return last.row

    for at, key in enumerate(keys):
        lacks, earlier = absent[at], moved_from[at]
        is_there = key not in rows or bool(rows[key].places)
        if deleted[at]:
            if is_there:
                times = deletes[key].times + 1 if key in deletes else 1
                deletes[key] = _Deleted(row_of(key), sources[at], times)
            rows[key] = FollowedRow(at)
        elif lacks is None:
            rows[key] = FollowedRow(at, None, (at,) * columns)
        elif earlier is None and not is_there:
            raise UnknownRowError(at, _DELETED)
        else:
            before = row_of(key) if earlier is None else origin(at, earlier)
            places = tuple(
                [was if missing else at for missing, was in zip(lacks, before.places, strict=True)]
            )
            rows[key] = FollowedRow(at, before.base if -1 in places else None, places)
    return rows


MOVED, BASE = "moved", "base"
"""The column with the earlier key of a partial row whose key changed, and the one with the key
whose row in the target has its columns."""


class ChangesWithMoves:
    """All changes; at the end the last of each key.

    They have the column `MOVED`, if a key changed, and then at the end `BASE`.
    """

    def __init__(self) -> None:
        self.torn, self.tables = 0, list[pa.Table]()

    def add(self, changes: pa.Table) -> None:
        self.tables.append(changes)

    def finish(self, row_order: RowOrder | None) -> Iterator[pa.RecordBatch]:
        """Yield the last change of each key."""
        if not self.tables:
            return
        changes = pa.concat_tables(self.tables, promote_options="default").unify_dictionaries()
        unmoved = LastOfKeys()
        if MOVED in changes.schema.names:
            changes = without_redeliveries(changes, ("key",), ("stamp", "source", "offset"))
            keys, moved = changes.column("key"), changes.column(MOVED)
            involved = pc.is_in(
                keys,
                value_set=pa.chunked_array(
                    [*keys.filter(moved.is_valid()).chunks, *moved.drop_null().chunks], pa.binary()
                ),
            )
            if moved.null_count < len(moved):  # otherwise all were redeliveries
                for batch in _followed(changes.filter(involved)).combine_chunks().to_batches():
                    yield from slices(batch)
            changes = changes.filter(pc.invert(involved)).drop_columns([MOVED])
        unmoved.add(changes)
        yield from unmoved.finish(row_order)
        self.torn = unmoved.torn


def _followed(changes: pa.Table) -> pa.Table:
    """Return the last change of each key, with the values that it lacks from the changes before it.

    Raises
    ------
    PartialImageError
    """
    changes = changes.take(pa.array(in_order(*numbers_of(changes, "source", "offset", "stamp"))))
    texts = changes.column(ABSENT)
    absent = [
        None if text is None else [flag == "1" for flag in text] for text in texts.to_pylist()
    ]
    columns = len(texts.drop_null()[0].as_py())
    keys, moved, deleted = (changes.column(name).to_pylist() for name in ("key", MOVED, "deleted"))
    (sources,) = numbers_of(changes, "source")
    try:
        rows = follow_moves(keys, moved, deleted, absent, sources.tolist(), columns)
    except UnknownRowError as error:
        at, reason = error.args
        raise partial_row(
            reason, f"{changes.column('source')[at]}@{changes.column('offset')[at]}"
        ) from None
    bases = [row.base if row.base != key else None for key, row in rows.items()]
    return _last_rows(changes, list(rows.values()), columns).append_column(
        BASE, pa.array(bases, pa.binary())
    )


def _last_rows(changes: pa.Table, rows: Sequence[FollowedRow], columns: int) -> pa.Table:
    """Return the last change of each row, with the values of the changes that have them."""
    last = changes.take(pa.array([row.change for row in rows], pa.int64())).drop_columns([MOVED])
    for index in range(columns):
        # Where no change has a value, the last one has NULL.
        places = [
            row.places[index] if row.places and row.places[index] >= 0 else row.change
            for row in rows
        ]
        values = changes.column(f"c{index}").take(pa.array(places, pa.int64()))
        last = last.set_column(last.schema.get_field_index(f"c{index}"), f"c{index}", values)
    flags = [
        "".join("1" if place < 0 else "0" for place in row.places) if -1 in row.places else None
        for row in rows
    ]
    return last.set_column(
        last.schema.get_field_index(ABSENT), ABSENT, pa.array(flags, pa.string())
    )
