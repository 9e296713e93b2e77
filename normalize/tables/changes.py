"""The changes of one table in a micro-batch: the last of each key, as typed rows for a MERGE.

Few records of a table are decoded on the driver: a Spark job for each table would cost more than
the decoding. Others are decoded by Spark. If several tasks do so, a second pass merges the changes
of a key from all of them, after a shuffle by key. All use the same decode pass, and give the same
rows.

The pass also returns a summary of the records (`PassSummary`), as rows without a key: what a guard
compares before anything is written.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F
from pyspark.sql.types import StructField, StructType

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import DecodeError, InferenceError
from cdc_formats.events import Ignored, KeyedChange
from cdc_formats.topics.inference.infer import AnyColumns
from cdc_formats.values.schema import (
    Column,
    SqlType,
    backquoted,
    columns as to_columns,
    source_id,
)
from normalize.core.arrow import (
    arrow_type,
    encode,
    frame_type,
    of_stored,
    pack,
    spark_type,
    to_arrow,
    unpack,
)
from normalize.core.changes import ChangeColumns, Partial, Shape
from normalize.core.guard import PartitionSummary
from normalize.core.order import kafka_position, stored_position
from normalize.core.output import ROW_KIND, Output
from normalize.core.records import DECODE_COUNTS, Records
from normalize.dataframe import with_frame_types
from normalize.decode.decode_pass import decode_pass
from normalize.decode.last_changes import (
    ABSENT,
    MOVED,
    POSITION,
    AllChanges,
    HeldChanges,
    LastOfKeys,
    merge_pass,
)
from normalize.decode.moves import BASE, followed
from normalize.decode.plan import DecodePlan, needed_columns
from normalize.monitoring.watch import COLUMN, read_counts
from normalize.spark.packed import Pass, batches_in, collected, packed
from normalize.spark.plans import partition_count, rows_of, stored

from .merge import ABSENT_COLUMN, BASE_COLUMN

SUMMARY = "__summary"
"""The column with `PassSummary` as MessagePack; NULL in changes."""
_ORDER = to_columns("key BINARY, stamp BIGINT, source STRING, offset BIGINT")
_BASES = "b"
"""The prefix of the columns with the key whose row in the target has the columns that a row
lacks."""
PLACE = "__place"
"""The column of a history's changes with the place of their record: a struct of ``partition``
(``topic[partition]``) and ``offset``."""
_END_OF_SHARD = b"\0"
"""Between the name of a shard and the packed key."""


def _written(columns: Iterable[Column]) -> list[Column]:
    """Return columns as they are written: no target has intervals, which become microseconds."""
    micros = SqlType("BIGINT")
    return [
        replace(each, type=micros) if each.type.name.startswith("INTERVAL") else each
        for each in columns
    ]


def _numbered(prefix: str, columns: Iterable[Column]) -> list[Column]:
    """Return columns as they are written, named by a prefix and a number."""
    written = enumerate(_written(columns))
    return [replace(each, name=f"{prefix}{index}") for index, each in written]


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {spark_type(column.type)}" for column in columns)


class PassSummary(msgspec.Struct, array_like=True):
    """What the tasks of a pass showed beside changes.

    Attributes
    ----------
    partitions : list of PartitionSummary
        The first record and the tables of each Kafka partition.
    source_keys : set of tuple of str
        The columns of the source's primary key, as records name them: the last record of each batch
        is asked.
    stamps : list of int
        The least and the greatest timestamp of the records, in ms; empty without records. In the
        summary of a task, those of each batch.
    moved : set of bytes
        The keys of the rows that lack columns and whose key changed, and their earlier keys.
    counts : dict of str to int
        The sums of the counts of `decode_pass`.
    rows : int
        The number of changes that are written; 0 in the summary of a task.
    torn : int
        Same as in `ChangeHolder`; not counted where Spark merges the changes of several tasks.
    """

    partitions: list[PartitionSummary] = []
    source_keys: set[tuple[str, ...]] = set()
    stamps: list[int] = []
    moved: set[bytes] = set()
    counts: dict[str, int] = {}
    rows: int = 0
    torn: int = 0

    def stamped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task, and note their timestamps."""
        for batch in batches:
            if batch.num_rows:
                self.stamps += pc.min_max(batch.column("stamp")).as_py().values()
            yield batch

    @classmethod
    def united(cls, packed: Iterable[bytes]) -> PassSummary:
        """Return the summary of all tasks."""
        united = cls()
        for other in map(_decode_summary, packed):
            united.partitions += other.partitions
            united.source_keys |= other.source_keys
            united.moved |= other.moved
            united.stamps += other.stamps
            united.add_counts(other.counts)
        united.stamps = [of(united.stamps) for of in (min, max) if united.stamps]
        return united

    def add_counts(self, counts: Mapping[str, int]) -> None:
        """Add counts of `decode_pass`."""
        self.counts |= {name: self.counts.get(name, 0) + each for name, each in counts.items()}


_decode_summary = msgspec.msgpack.Decoder(PassSummary).decode


@dataclass(frozen=True)
class TableDecoder:
    """Decodes the records of a table whose schema is known; also in the tasks that route them.

    Parameters
    ----------
    plan : DecodePlan
    shard_column : Column or None
        The column with the name of the source table, after the others, if it is part of the key.
        The metadata are the parts of the name.
    every : bool
        Whether all changes are returned, for a history, and not only the last of each key. They
        have their record's place (`PLACE`).
    position_column : str or None
        The column with the position of each change (`stored_position`): in the source's log if
        `DecodePlan.positions`, else in its topic.
    topic_ids : mapping
        The ids of the topics that Kafka described, for positions in a topic.
    names : frozenset of str
        The columns whose values it decodes, or that the table's options ignore.
    topics : frozenset of str
        The topics that it knows.
    kinds, absent : frozenset
        Same as in `TableSummary`.
    """

    plan: DecodePlan
    shard_column: Column | None = None
    every: bool = False
    position_column: str | None = None
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    kinds: frozenset[tuple[str, tuple[str | None, ...], str]] = frozenset()
    absent: frozenset[str] = frozenset()

    def with_seen(self, seen: Any) -> TableDecoder:
        """Return a decoder that also knows what another one, or a `TableSummary`, does."""
        return replace(
            self,
            names=self.names.union(seen.names),
            topics=self.topics.union(seen.topics),
            kinds=self.kinds.union(seen.kinds),
            absent=self.absent.union(seen.absent),
        )

    @property
    def columns(self) -> list[Column]:
        """The columns of the target, as they are decoded."""
        return self._with_shard(self.plan.result_columns)

    @property
    def key(self) -> list[Column]:
        """The columns of the target's key."""
        columns = self.plan.result_columns
        indices = key_indices(columns, self.plan.unique_key)
        return self._with_shard(columns[index] for index in indices)

    def _with_shard(self, columns: Iterable[Column]) -> list[Column]:
        return [*columns, *([] if self.shard_column is None else [self.shard_column])]

    @property
    def layout(self) -> list[Column]:
        """The columns of `TableChanges`."""
        return [
            *_ORDER,
            *to_columns(f"{ROW_KIND} STRING"),
            *_numbered("c", self.columns),
            *to_columns(f"{ABSENT} STRING, fact BINARY"),
            *(to_columns(f"{POSITION} BINARY") if self.position_column is not None else ()),
            *to_columns(f"{MOVED} BINARY"),
        ]

    @property
    def needed(self) -> list[str]:
        """The columns of records that are read; the key may name the source's key."""
        return list(dict.fromkeys([*needed_columns(self.plan), "key"]))

    @property
    def written_fields(self) -> tuple[StructField, ...]:
        """The columns that are written, with the position."""
        written = _written(self.columns)
        ddl = [f"{backquoted(each.name)} {frame_type(each.type)}" for each in written]
        if self.position_column is not None:
            ddl.append(f"{backquoted(self.position_column)} BINARY")
        return _fields(", ".join(ddl))

    def decoded(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the changes of a task's records, which may be packed, and its summary in the end.

        Notices on columns are dropped: the query compares them with the schema, and counts bad
        records.
        """
        summary = PassSummary()
        collector = partial(TableChanges, decoder=self, summary=summary)
        rows = chain.from_iterable(
            batches_in(batch.column(0)) if batch.schema.names == ["ipc"] else [batch]
            for batch in batches
        )
        needed = self.needed
        read = summary.stamped(each.select(needed) for each in rows)
        for batch in decode_pass(
            read, plan=self.plan, collector=collector, report=lambda notices: None
        ):
            if counts := read_counts(batch, DECODE_COUNTS):
                summary.add_counts(counts)
            else:
                yield batch.drop_columns([COLUMN])

    def changes(self, decoded: pa.Table) -> tuple[ArrowChanges, PassSummary]:
        """Return the changes that tasks have decoded, and what their records showed."""
        summary = PassSummary.united(decoded.column("fact").drop_null().to_pylist())
        changes = decoded.filter(decoded.column("key").is_valid())
        rows = changes
        if not self.every:
            last_of_keys = LastOfKeys(changes.num_rows)
            last_of_keys.add(changes)
            rows = pa.Table.from_batches(last_of_keys.finish("log"), changes.schema)
            summary.torn = last_of_keys.torn
        if summary.moved:
            moved = _moved(_of_keys(changes, summary.moved), self)
            rows = pa.concat_tables([rows, moved], promote_options="default")
        summary.rows = rows.num_rows
        return ArrowChanges(rows, self), summary


class TableChanges(HeldChanges):
    """The last change of each key in each partition: ``+U`` with the row, or ``-D`` with the key.

    Also the changes that rows need whose key changed (`last_changes.MOVED`).

    Parameters
    ----------
    output, key_groups, shape
        Same as `Collector`.
    decoder : TableDecoder
    summary : PassSummary
        That of the task, which has the timestamps of its records.
    """

    def __init__(
        self,
        output: Output,
        key_groups: int,
        shape: Shape,
        *,
        decoder: TableDecoder,
        summary: PassSummary,
    ) -> None:
        self.schema = pa.schema(
            [(column.name, arrow_type(column.type)) for column in decoder.layout]
        )
        plan = decoder.plan
        self.key = key_indices(plan.result_columns, plan.unique_key)
        self.reader: AnyColumns | None = None
        with suppress(InferenceError):  # a format without samples names no key
            self.reader = AnyColumns(plan.format)
        self.decoder, self.summary = decoder, summary
        self.partitions = dict[tuple[str, int], PartitionSummary]()
        self.moved: list[bytes | None] = []
        super().__init__(output, key_groups, shape, row_order=None)
        self.last = LastOfKeys(keeps_deleted=True)
        if decoder.every:
            self.last = AllChanges()
            self.partial_remedy = "a history cannot complete it: pass scd_type=1 for this table"

    @staticmethod
    def ddl(output: Output) -> str:
        raise NotImplementedError("the columns depend on the decoder: see TableDecoder.layout")

    def see(self, seen: PartitionSummary) -> None:
        first = self.partitions.setdefault((seen.topic, seen.partition), seen)
        first.first_stamp, first.tables = min(first.first_stamp, seen.first_stamp), seen.tables

    def take_columns(self, records: Records, changes: ChangeColumns) -> None:
        super().take_columns(records, changes)
        if len(changes.places):
            self._see_key(records, int(changes.places.max()))

    def _see_key(self, records: Records, index: int) -> None:
        """Note the source's primary key that a record names.

        A key that changed is in all later records.
        """
        if self.reader is None:
            return
        record = records.record(index)
        try:
            events = self.reader.events(record.key, record.value, record.headers)
        except DecodeError:
            return
        message = None if isinstance(events, Ignored) or not events else events[0].message
        if key := self.reader.sampler.source_key(message, record.key, record.headers):
            self.summary.source_keys.add(key)

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> None:
        self.moved = [
            None if change.moved_from is None else pack(change.moved_from)
            for of_record in decoded
            for change in of_record
        ]
        super().take(records, decoded)
        self.moved = []
        if with_changes := [index for index, of_record in enumerate(decoded) if of_record]:
            self._see_key(records, with_changes[-1])

    def finish(self) -> Iterator[pa.RecordBatch]:
        for changes in super().finish():
            is_moved = pc.not_equal(changes.column(MOVED), b"")
            for name in ("key", MOVED):
                self.summary.moved.update(changes.column(name).filter(is_moved).to_pylist())
            yield changes
        self.summary.partitions = [*self.partitions.values()]
        summary = pa.array([encode(self.summary)], pa.binary())
        columns = [
            summary if field.name == "fact" else pa.nulls(1, field.type) for field in self.schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _hold(
        self, source: str, offsets: Any, changes: pa.RecordBatch, partials: Sequence[Partial] = ()
    ) -> None:
        if self.decoder.shard_column is not None:
            names = [
                changes.column(f"m{at}").to_pylist() for at in range(len(self.output.metadata))
            ]
            # The topic's name where messages do not name their source table.
            topic = source.rpartition("[")[0]
            parts = self.decoder.plan.format.traits.table_parts
            shards = [source_id(parts(of)) or topic for of in zip(*names, strict=True)]
            prefixes = [
                shard.encode() + _END_OF_SHARD for shard in shards or [topic] * len(changes)
            ]
            keys = [
                prefix + key
                for prefix, key in zip(prefixes, changes.column("key").to_pylist(), strict=True)
            ]
            changes = changes.set_column(
                changes.schema.get_field_index("key"), "key", pa.array(keys, pa.binary())
            )
            self.moved = [
                key and prefix + key for prefix, key in zip(prefixes, self.moved, strict=False)
            ]
        if any(self.moved):
            changes = changes.append_column(MOVED, pa.array(self.moved, pa.binary()))
        super()._hold(source, offsets, changes, partials)

    def _typed(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        deleted = changes.column("deleted")
        columns = [
            of_stored(column.type, changes.column(f"c{index}"))
            for index, column in enumerate(self.output.columns)
        ]
        by_shard, has_deletes = self.decoder.shard_column is not None, pc.any(deleted).as_py()
        keys = changes.column("key").to_pylist() if by_shard or has_deletes else []
        if by_shard:
            split = [key.split(_END_OF_SHARD, 1) for key in keys]
            columns.append(pa.array([shard.decode() for shard, _ in split], pa.string()))
            keys = [key for _, key in split]
        if has_deletes:
            # A delete has the columns of the key alone.
            flags = deleted.to_pylist()
            rows = [unpack(key) if flag else None for key, flag in zip(keys, flags, strict=True)]
            for part, index in enumerate(self.key):
                values = [row and row[part] for row in rows]
                of_key = to_arrow(self.output.columns[index].type, values)
                columns[index] = pc.if_else(deleted, of_key, columns[index])
        arrays = dict(zip(changes.schema.names, changes.columns, strict=True))
        arrays |= {f"c{index}": column for index, column in enumerate(columns)}
        arrays[ROW_KIND] = pc.if_else(deleted, "-D", "+U")
        if self.decoder.position_column is not None and not self.shape.positions:
            arrays[POSITION] = self._kafka_positions(changes)
        return pa.RecordBatch.from_arrays(
            [
                arrays[field.name].cast(field.type)
                if field.name in arrays
                else pa.nulls(len(changes), field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )

    def _kafka_positions(self, changes: pa.RecordBatch) -> pa.Array:
        """Return the position of each change in its topic."""
        names, ids = ("source", "offset", "stamp"), self.decoder.topic_ids
        places = zip(*(changes.column(name).to_pylist() for name in names), strict=True)
        positions = (
            kafka_position(source, ids.get(source.rpartition("[")[0], ""), offset, stamp)
            for source, offset, stamp in places
        )
        return pa.array(map(stored_position, positions), pa.binary())


def _moved(changes: pa.Table, decoder: TableDecoder) -> pa.Table:
    """Return the rows that lack columns and whose key changed, with the keys of their bases.

    Parameters
    ----------
    changes : pyarrow.Table
        The changes of `PassSummary.moved`, as the tasks return them.
    decoder : TableDecoder
    """
    rows = followed(changes)
    bases = rows.column(BASE).to_pylist()
    if not any(bases):
        return rows
    by_shard, key = decoder.shard_column is not None, decoder.key
    split = [each and (each.split(_END_OF_SHARD, 1) if by_shard else [b"", each]) for each in bases]
    values = [each and [*unpack(each[1]), each[0].decode()] for each in split]
    for index, (column, number) in enumerate(zip(key, _numbered(_BASES, key), strict=True)):
        part = to_arrow(column.type, [each and each[index] for each in values])
        rows = rows.append_column(number.name, part.cast(arrow_type(number.type)))
    return rows


class ArrowChanges(NamedTuple):
    """The changes of a table as Arrow's columns, a row for each key.

    Attributes
    ----------
    rows : pyarrow.Table
        The columns of `TableDecoder.layout`, and of the keys in `moves.BASE` if there are any.
    decoder : TableDecoder
    """

    rows: pa.Table
    decoder: TableDecoder

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the changes as a DataFrame, without the columns that all of them lack."""
        bases = _numbered(_BASES, self.decoder.key)
        may_be_null = {ABSENT, "fact", MOVED}
        columns = [
            column
            for column in [*self.decoder.layout, *bases]
            if column.name in self.rows.column_names
            and (
                column.name not in may_be_null
                or self.rows.column(column.name).null_count < self.rows.num_rows
            )
        ]
        rows = spark.createDataFrame(
            self.rows.select([column.name for column in columns]), _ddl(columns)
        )
        return _named(rows, self.decoder)

    def table(self) -> pa.Table | None:
        """Return the same columns for a writer of Arrow; None if only Spark has all their types.

        A key that changed is completed by Spark, too.
        """
        columns, rows = _written(self.decoder.columns), self.rows
        of_spark = self.decoder.every or any(
            frame_type(column.type) != spark_type(column.type) for column in columns
        )
        if of_spark or f"{_BASES}0" in rows.column_names:
            return None
        names = {ROW_KIND: ROW_KIND, **{f"c{i}": each.name for i, each in enumerate(columns)}}
        if self.decoder.position_column is not None:
            names[POSITION] = self.decoder.position_column
        named = rows.select(list(names)).rename_columns(list(names.values()))
        absent = rows.column(ABSENT)
        if absent.null_count == len(rows):
            return named
        offsets = rows.column("offset").cast(pa.string())
        where = pc.binary_join_element_wise(rows.column("source"), offsets, "@")
        return named.append_column(ABSENT_COLUMN, pc.binary_join_element_wise(absent, where, " "))


@contextmanager
def table_changes(
    records: DataFrame | pa.Table, decoder: TableDecoder, most_bytes: int | None
) -> Iterator[tuple[DataFrame | ArrowChanges, PassSummary]]:
    """Yield the changes of a table in a micro-batch, and what its records showed.

    Parameters
    ----------
    records : DataFrame or pyarrow.Table
        The columns of `route.RECORD_DDL`, or ``ipc`` with packed ones (`packed`). Those of a table
        are decoded on the driver.
    decoder : TableDecoder
    most_bytes : int or None
        The most bytes of changes that are collected on the driver; None: Spark writes them.
    """
    needed = decoder.needed
    if isinstance(records, pa.Table):
        batches = records.select(needed).combine_chunks().to_batches()
        yield decoder.changes(pa.Table.from_batches(decoder.decoded(batches)))
        return
    tasks = partition_count(records)
    records = records.select("ipc" if "ipc" in records.columns else needed)
    parts = most_bytes and collected(packed(records, decoder.decoded), tasks, most_bytes)
    if parts:
        yield decoder.changes(pa.concat_tables(parts))
        return
    changes = changes_on_spark(records, tasks, decoder)
    totals = Observation()
    numbers = [ROW_KIND, *[ABSENT_COLUMN] * (ABSENT_COLUMN in changes.columns)]
    counted = changes.observe(totals, *(F.count(name).alias(name) for name in numbers))
    with stored(counted) as kept:
        # The first action computes and stores all rows.
        summaries = kept.where(f"{SUMMARY} IS NOT NULL").select(SUMMARY).collect()
        summary = PassSummary.united(bytes(row[SUMMARY]) for row in summaries)
        summary.rows = totals.get[ROW_KIND]
        # If all rows are whole, a MERGE needs no column for them.
        empty = [] if totals.get.get(ABSENT_COLUMN) else [ABSENT_COLUMN]
        rows = rows_of(kept).where(f"{SUMMARY} IS NULL").drop(SUMMARY, *empty)
        if summary.moved:
            # Few micro-batches have such rows, and all tasks decode again at once.
            of_keys: Any = partial(
                _in_turn, decoder.decoded, partial(map, partial(_of_keys, keys=summary.moved))
            )
            of_moved = records.mapInArrow(of_keys, _ddl(decoder.layout)).toArrow()
            moved = ArrowChanges(_moved(of_moved, decoder), decoder)
            rows = rows.unionByName(moved.frame(records.sparkSession), allowMissingColumns=True)
            summary.rows += moved.rows.num_rows
        yield rows, summary


def _in_turn(
    first: Pass, second: Pass, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return what `second` computes of what `first` computes of the batches of a task."""
    return iter(second(iter(first(batches))))


def _of_keys(changes: pa.Table | pa.RecordBatch, keys: Iterable[bytes]) -> Any:
    """Return the changes of some keys."""
    return changes.filter(pc.is_in(changes.column("key"), pa.array(keys, pa.binary())))


def changes_on_spark(records: DataFrame, tasks: int, decoder: TableDecoder) -> DataFrame:
    """Return the changes of records, a row for each key, and the tasks' summaries in `SUMMARY`.

    Rows whose key changed and that lack columns are not among them. With ``decoder.every``, there
    is a row for each change.

    Parameters
    ----------
    records : DataFrame
        With the columns that are decoded, in `tasks` partitions.
    tasks : int
    decoder : TableDecoder
    """
    columns, merge = _ddl(decoder.layout), partial(merge_pass, row_order="log")
    decode: Any = decoder.decoded
    if tasks < 2 and not decoder.every:
        # The task has them in its memory.
        decode = partial(_in_turn, decode, partial(merge, most_held=sys.maxsize))
    changes = records.mapInArrow(decode, columns)
    if tasks > 1 and not decoder.every:
        by_key: Any = merge
        changes = changes.repartition(tasks, "key").mapInArrow(by_key, columns)
    return _named(changes, decoder)


@cache
def _fields(ddl: str) -> tuple[StructField, ...]:
    """Return the fields of a DDL, which Spark parses in its JVM."""
    of_table: Any = StructType.fromDDL(ddl)
    return tuple(of_table.fields)


def _named(changes: DataFrame, decoder: TableDecoder) -> DataFrame:
    """Return the columns of the target with their names, of those of `TableChanges`."""
    columns = decoder.columns
    placed = [replace(column, name=f"c{index}") for index, column in enumerate(columns)]
    changes = with_frame_types(changes, placed)
    named = [F.col(f"c{index}").alias(column.name) for index, column in enumerate(columns)]
    if decoder.position_column is not None:
        named.append(F.col(POSITION).alias(decoder.position_column))
    summary = [F.col("fact").alias(SUMMARY)] * ("fact" in changes.columns)
    if decoder.every:
        return changes.select(
            ROW_KIND,
            *named,
            F.struct(F.col("source").alias("partition"), "offset").alias(PLACE),
            *summary,
        )
    absent = [F.concat(ABSENT, F.lit(" "), "source", F.lit("@"), "offset").alias(ABSENT_COLUMN)] * (
        ABSENT in changes.columns
    )
    bases = [F.col(f"{_BASES}{part}").alias(column.name) for part, column in enumerate(decoder.key)]
    base = [F.when(F.col(f"{_BASES}0").isNotNull(), F.struct(*bases)).alias(BASE_COLUMN)] * (
        f"{_BASES}0" in changes.columns
    )
    return changes.select(ROW_KIND, *named, *absent, *base, *summary)
