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
from typing import Any, Protocol

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
from normalize.core.guard import PartitionSummary
from normalize.core.last import (
    METADATA,
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
MOVED = "moved"
"""The column with the earlier key of a partial row whose key changed. It is empty in a change that
only gives the row before a delete, which may be such a key's row, and NULL in other changes."""
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
            columns_of_row = range(len(self.output.columns))
            flags = dict.fromkeys(range(len(changes)), "") | {
                each.change: "".join("01"[index in each.absent] for index in columns_of_row)
                for each in partials
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
        self.first_seen = dict[tuple[str, int], PartitionSummary]()
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
        self.first_seen.setdefault((seen.topic, seen.partition), seen)

    def finish(self) -> Iterator[pa.RecordBatch]:
        for first in self.first_seen.values():
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


def _require_known(first: PartitionSummary, counts: Mapping[str, int]) -> None:
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

    Parameters
    ----------
    least : int
        More changes than these are compacted.
    keeps_deleted : bool
        Whether the row before each delete is kept, with the column `MOVED`.
    """

    def __init__(self, least: int = _MOST_HELD, *, keeps_deleted: bool = False) -> None:
        self.torn, self.tables, self.keeps_deleted = 0, list[pa.Table](), keeps_deleted
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
        table = pa.concat_tables(self.tables, promote_options="default").unify_dictionaries()
        # As a rule, all changes of a key are in one partition, and one task reads it.
        is_last = (
            row_order is not None
            and pc.count_distinct(table.column("key")).as_py() == table.num_rows
        )
        if not is_last:
            table = self._compacted()
        if row_order is not None:
            table = without_moved(table)
        if row_order is not None and not is_last:
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
        nothing, earlier = np.zeros(table.num_rows, bool), np.zeros(0, bool)
        partial = table.column(ABSENT).is_valid().to_numpy() if _has_partials(table) else nothing
        deleted = table.column("deleted").to_numpy() if self.keeps_deleted else nothing
        moved = _is_moved(table).to_numpy() if MOVED in table.schema.names else nothing
        if partial.any() or deleted.any():
            places, stamps, earlier = since_last_whole(
                *numbers, partial=partial, deleted=deleted, moved=moved
            )
        else:
            places, stamps = last_in_partitions(*numbers)
        table = table.take(pa.array(places)).set_column(
            table.schema.get_field_index("stamp"), "stamp", pa.array(stamps)
        )
        if not earlier.any():
            return table
        marks = pa.chunked_array(
            [pa.array([b"" if each else None for each in earlier], pa.binary())]
        )
        if MOVED not in table.schema.names:
            return table.append_column(MOVED, marks)
        marks = pc.coalesce(table.column(MOVED), marks)
        return table.set_column(table.schema.get_field_index(MOVED), MOVED, marks)


def _is_moved(changes: pa.Table) -> pa.ChunkedArray:
    """Return which rows lack columns and have an earlier key."""
    return pc.fill_null(pc.not_equal(changes.column(MOVED), b""), False)


def moved_keys(changes: pa.Table) -> pa.Array:
    """Return the keys of the rows that lack columns and have an earlier key."""
    return changes.column("key").filter(_is_moved(changes)).combine_chunks()


def without_moved(changes: pa.Table) -> pa.Table:
    """Return changes without those of the `moved_keys`, and without those that only these need."""
    if MOVED not in changes.schema.names or changes.column(MOVED).null_count == changes.num_rows:
        return changes
    of_moved = pc.is_in(changes.column("key"), value_set=moved_keys(changes))
    return changes.filter(pc.and_not(changes.column(MOVED).is_null(), of_moved))


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
