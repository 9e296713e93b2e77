"""The changes of one table in a micro-batch: the last of each key, as typed rows for a MERGE.

Few records of a table are decoded on the driver: a Spark job for each table would cost more than
the decoding. Others are decoded by Spark. If several tasks do so, a second pass merges the changes
of a key from all of them, after a shuffle by key. All use the same decode pass, and give the same
rows.

The pass also returns a summary of the records (`PassSummary`), as rows without a key: what a guard
compares before anything is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F
from pyspark.sql.types import StructField, StructType

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import DecodeError, InferenceError, PartialImageError
from cdc_formats.events import Headers, Ignored, KeyedChange
from cdc_formats.topics.inference.sample import AnyColumns
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
    BASE,
    MOVED,
    POSITION,
    AllChanges,
    ChangesWithMoves,
    HeldChanges,
    LastOfKeys,
    merge_pass,
)
from normalize.decode.plan import DecodePlan, needed_columns
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.watch import COUNTS_DDL, observe_counts, read_counts
from normalize.spark.plans import partition_count, rows_of

from .latest import stored
from .merge import ABSENT_COLUMN, BASE_COLUMN
from .packed import collected, packed

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


def _numbered(prefix: str, columns: Sequence[Column]) -> list[Column]:
    """Return columns as they are written, named by a prefix and a number.

    No target has intervals: they are written in microseconds.
    """
    types = (
        SqlType("BIGINT") if column.type.name.startswith("INTERVAL") else column.type
        for column in columns
    )
    return [Column(f"{prefix}{index}", kind) for index, kind in enumerate(types)]


def _layout(plan: DecodePlan, options: ChangeOptions, *, merged: bool) -> list[Column]:
    """Return the columns of `TableChanges`."""
    written = _numbered("c", options.with_shard(plan.result_columns))
    bases = (
        to_columns(f"{MOVED} BINARY") if merged else _numbered(_BASES, _key_columns(plan, options))
    )
    position = to_columns(f"{POSITION} BINARY") if options.position_column is not None else ()
    return [
        *_ORDER,
        *to_columns(f"{ROW_KIND} STRING"),
        *written,
        *to_columns(f"{ABSENT} STRING, fact BINARY"),
        *position,
        *bases,
    ]


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {spark_type(column.type)}" for column in columns)


class PassSummary(msgspec.Struct, array_like=True):
    """What a task found beside changes.

    Attributes
    ----------
    partitions : list of PartitionSummary
        The first record and the tables of each Kafka partition.
    source_keys : set of tuple of str
        The columns of the source's primary key, as records name them: the last record of each batch
        is asked.
    stamps : (int, int) or None
        The least and the greatest timestamp of the records, in ms; None without records.
    torn : int
        Same as in `ChangeHolder`; not counted where Spark merges the changes of several tasks.
    """

    partitions: list[PartitionSummary] = []
    source_keys: set[tuple[str, ...]] = set()
    stamps: tuple[int, int] | None = None
    torn: int = 0

    def stamped(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a task, and note their timestamps."""
        for batch in batches:
            if batch.num_rows:
                self._add_stamps(tuple(pc.min_max(batch.column("stamp")).as_py().values()))
            yield batch

    def add(self, other: PassSummary) -> None:
        """Add what another task found."""
        self.partitions += other.partitions
        self.source_keys |= other.source_keys
        self._add_stamps(other.stamps)
        self.torn += other.torn

    def _add_stamps(self, stamps: tuple[int, int] | None) -> None:
        both = [each for each in (self.stamps, stamps) if each is not None]
        if both:
            self.stamps = min(low for low, _ in both), max(high for _, high in both)


_decode_summary = msgspec.msgpack.Decoder(PassSummary).decode


class PassResult(NamedTuple):
    """What computing the changes of a table showed.

    Attributes
    ----------
    counts : mapping
        The counts of `decode_pass`.
    rows : int
        The number of changes.
    moved : int
        The number of partial rows whose key changed, and which are still to be followed
        (`changes_on_spark`).
    summary : PassSummary
        Those of all tasks.
    """

    counts: Mapping[str, int]
    rows: int
    moved: int = 0
    summary: PassSummary = PassSummary()


class Changes(NamedTuple):
    """The changes of a table, a row for each key.

    Attributes
    ----------
    rows : DataFrame
        ``row_kind`` and the columns; `ABSENT_COLUMN` and `BASE_COLUMN`, if there may be partial
        rows; and `SUMMARY`, in the rows of summaries.
    finish : callable
        Called with the stored rows (`normalize.tables.latest.stored`), returns the changes among
        them, and the result of the pass. `ABSENT_COLUMN` remains if a row is partial,
        `BASE_COLUMN` if a row has a base.
    """

    rows: DataFrame
    finish: Callable[[DataFrame], tuple[DataFrame, PassResult]]


class ChangeOptions(NamedTuple):
    """Which changes are returned, and their columns besides those of the source table.

    Attributes
    ----------
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
    """

    shard_column: Column | None = None
    every: bool = False
    position_column: str | None = None
    topic_ids: Mapping[str, str] = {}

    def with_shard(self, columns: Iterable[Column]) -> list[Column]:
        """Return columns with that of the shard, if there is one."""
        return [*columns, *([] if self.shard_column is None else [self.shard_column])]


class TableChanges(HeldChanges):
    """The last change of each key: ``+U`` with the row, or ``-D`` with the key.

    Parameters
    ----------
    output, key_groups, shape
        Same as `Collector`.
    plan : DecodePlan
    merged : bool
        Whether `merge_pass` follows. Otherwise rows whose key changed are followed, and have their
        base.
    options : ChangeOptions
    summary : PassSummary
        That of the task, which has the timestamps of its records.
    """

    def __init__(
        self,
        output: Output,
        key_groups: int,
        shape: Shape,
        *,
        plan: DecodePlan,
        merged: bool,
        options: ChangeOptions,
        summary: PassSummary,
    ) -> None:
        self.schema = pa.schema(
            [
                (column.name, arrow_type(column.type))
                for column in _layout(plan, options, merged=merged)
            ]
        )
        self.key, self.by_shard, self.merged = (
            key_indices(plan.result_columns, plan.unique_key),
            options.shard_column is not None,
            merged,
        )
        self.source_key = _source_key(plan)
        self.table_parts = plan.format.traits.table_parts
        self.has_position, self.topic_ids = options.position_column is not None, options.topic_ids
        self.summary, self.partitions = summary, dict[tuple[str, int], PartitionSummary]()
        self.moved: list[bytes | None] = []
        super().__init__(output, key_groups, shape, row_order=None if merged else "log")
        if options.every:
            self.last = AllChanges()
            self.partial_remedy = "a history cannot complete it: pass scd_type=1 for this table"
        elif not merged:
            self.last = ChangesWithMoves()

    @staticmethod
    def ddl(output: Output) -> str:
        raise NotImplementedError("the columns depend on the options: see _layout")

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
        record = records.record(index)
        if key := self.source_key(record.key, record.value, record.headers):
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
        yield from super().finish()
        self.summary.partitions, self.summary.torn = [*self.partitions.values()], self.last.torn
        summary = pa.array([encode(self.summary)], pa.binary())
        columns = [
            summary if field.name == "fact" else pa.nulls(1, field.type) for field in self.schema
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _hold(
        self, source: str, offsets: Any, changes: pa.RecordBatch, partials: Sequence[Partial] = ()
    ) -> None:
        if self.by_shard:
            names = [
                changes.column(f"m{at}").to_pylist() for at in range(len(self.output.metadata))
            ]
            # The topic's name where messages do not name their source table.
            topic = source.rpartition("[")[0]
            shards = [source_id(self.table_parts(of)) or topic for of in zip(*names, strict=True)]
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
        shards = list[pa.Array]()
        if self.by_shard:
            split = [key.split(_END_OF_SHARD, 1) for key in changes.column("key").to_pylist()]
            shards = [pa.array([shard.decode() for shard, _ in split], pa.string())]
            packed = [key for _, key in split]
        columns = [
            of_stored(column.type, changes.column(f"c{index}"))
            for index, column in enumerate(self.output.columns)
        ]
        if pc.any(deleted).as_py():
            keys, flags = (
                packed if self.by_shard else changes.column("key").to_pylist(),
                deleted.to_pylist(),
            )
            deleted_keys = [
                unpack(key) if there else None for key, there in zip(keys, flags, strict=True)
            ]
            for index, values in zip(self.key, self._key_arrays(deleted_keys), strict=True):
                columns[index] = pc.if_else(deleted, values, columns[index])
        kinds = pc.if_else(deleted, "-D", "+U")
        order = [changes.column(column.name).cast(arrow_type(column.type)) for column in _ORDER]
        absent = (
            changes.column(ABSENT)
            if ABSENT in changes.schema.names
            else pa.nulls(changes.num_rows, pa.string())
        )
        rows = map(_duration_as_integer, columns)
        no_facts = pa.nulls(changes.num_rows, pa.binary())
        extra = [
            absent,
            no_facts,
            *([self._positions(changes)] if self.has_position else []),
            *self._bases(changes),
        ]
        return pa.RecordBatch.from_arrays(
            [*order, kinds, *rows, *shards, *extra], schema=self.schema
        )

    def _positions(self, changes: pa.RecordBatch) -> pa.Array:
        """Return the position of each change."""
        if self.shape.positions:
            return changes.column(POSITION)
        places = zip(
            *(changes.column(name).to_pylist() for name in ("source", "offset", "stamp")),
            strict=True,
        )
        ids = self.topic_ids
        positions = (
            kafka_position(source, ids.get(source.rpartition("[")[0], ""), offset, stamp)
            for source, offset, stamp in places
        )
        return pa.array(map(stored_position, positions), pa.binary())

    def _bases(self, changes: pa.RecordBatch) -> list[pa.Array]:
        """Return the column `MOVED`, or else the parts of the key in `BASE`."""
        name = MOVED if self.merged else BASE
        packed = (
            changes.column(name)
            if name in changes.schema.names
            else pa.nulls(changes.num_rows, pa.binary())
        )
        if self.merged:
            return [packed]
        if packed.null_count == len(packed):
            return [
                pa.nulls(len(packed), kind)
                for kind in self.schema.types[self.schema.get_field_index(f"{_BASES}0") :]
            ]
        split = [
            None if key is None else key.split(_END_OF_SHARD, 1) if self.by_shard else [b"", key]
            for key in packed.to_pylist()
        ]
        parts = self._key_arrays([None if each is None else unpack(each[1]) for each in split])
        shards = (
            [pa.array([each and each[0].decode() for each in split], pa.string())]
            if self.by_shard
            else []
        )
        return [*map(_duration_as_integer, parts), *shards]

    def _key_arrays(self, keys: Sequence[Sequence[Any] | None]) -> list[pa.Array]:
        """Return the columns of keys."""
        types = [self.output.columns[index].type for index in self.key]
        return [
            to_arrow(kind, [None if key is None else key[part] for key in keys])
            for part, kind in enumerate(types)
        ]


def _duration_as_integer(array: pa.Array) -> pa.Array:
    return array.cast(pa.int64()) if pa.types.is_duration(array.type) else array


def _source_key(
    plan: DecodePlan,
) -> Callable[[bytes | None, bytes | None, Headers], tuple[str, ...]]:
    """Return the function from a record to the source's primary key that it names.

    The function returns the columns of this key; the result is empty if the record names none.
    """
    try:
        reader = AnyColumns(plan.format)
    except InferenceError:
        return lambda key, value, headers: ()

    def source_key(key: bytes | None, value: bytes | None, headers: Headers) -> tuple[str, ...]:
        try:
            events = reader.events(key, value, headers)
        except DecodeError:
            return ()
        message = None if isinstance(events, Ignored) or not events else events[0].message
        return reader.sampler.source_key(message, key, headers)

    return source_key


def _key_columns(plan: DecodePlan, options: ChangeOptions) -> list[Column]:
    """Return the columns of the target's key."""
    written = plan.result_columns
    return options.with_shard(written[index] for index in key_indices(written, plan.unique_key))


def _columns_of_records(plan: DecodePlan) -> list[str]:
    """Return the columns that are decoded.

    They include the key, which may name the source's key.
    """
    return list(dict.fromkeys([*needed_columns(plan), "key"]))


class ArrowChanges(NamedTuple):
    """The changes of a table as Arrow's columns, a row for each key.

    Attributes
    ----------
    rows : pyarrow.Table
        The columns of `_layout`.
    result : PassResult
    plan : DecodePlan
    options : ChangeOptions
    """

    rows: pa.Table
    result: PassResult
    plan: DecodePlan
    options: ChangeOptions

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the changes as a DataFrame, as those of `Changes`."""
        may_be_null = {
            ABSENT,
            "fact",
            *(name for name in self.rows.column_names if name.startswith(_BASES)),
        }
        layout = [
            column
            for column in _layout(self.plan, self.options, merged=False)
            if column.name in self.rows.column_names
            and (
                column.name not in may_be_null
                or self.rows.column(column.name).null_count < self.rows.num_rows
            )
        ]
        rows = spark.createDataFrame(
            self.rows.select([column.name for column in layout]), _ddl(layout)
        )
        return _named(rows, self.plan, self.options)

    def table(self) -> pa.Table | None:
        """Return the same columns for a writer of Arrow; None if only Spark has all their types.

        A key that changed is completed by Spark, too.
        """
        columns, rows = _result_columns(self.plan, self.options), self.rows
        of_spark = self.options.every or any(
            frame_type(column.type) != spark_type(column.type) for column in columns
        )
        base = f"{_BASES}0"
        if of_spark or (base in rows.column_names and rows.column(base).null_count < len(rows)):
            return None
        names = {ROW_KIND: ROW_KIND, **{f"c{i}": each.name for i, each in enumerate(columns)}}
        if self.options.position_column is not None:
            names[POSITION] = self.options.position_column
        named = rows.select(list(names)).rename_columns(list(names.values()))
        absent = rows.column(ABSENT)
        if absent.null_count == len(rows):
            return named
        offsets = rows.column("offset").cast(pa.string())
        where = pc.binary_join_element_wise(rows.column("source"), offsets, "@")
        return named.append_column(ABSENT_COLUMN, pc.binary_join_element_wise(absent, where, " "))


def _arrow_changes(decoded: pa.Table, plan: DecodePlan, options: ChangeOptions) -> ArrowChanges:
    """Return the changes of the decode pass."""
    counts = read_counts(decoded, DECODE_COUNTS)
    # Rows of counts and of summaries have no key.
    changes = decoded.filter(decoded.column("key").is_valid())
    moved = len(changes) - changes.column(MOVED).null_count if MOVED in changes.column_names else 0
    summary = _united(decoded.column("fact").drop_null().to_pylist())
    result = PassResult(counts, changes.num_rows, moved, summary)
    return ArrowChanges(changes, result, plan, options)


@contextmanager
def table_changes(
    records: DataFrame | pa.Table,
    plan: DecodePlan,
    options: ChangeOptions,
    most_bytes: int | None,
) -> Iterator[tuple[DataFrame | ArrowChanges, PassResult]]:
    """Yield the changes of a table in a micro-batch, and the result of the pass.

    Parameters
    ----------
    records : DataFrame or pyarrow.Table
        The columns of `route.RECORD_DDL`. Those of a table are decoded on the driver.
    plan : DecodePlan
    options : ChangeOptions
    most_bytes : int or None
        The most bytes of changes that are collected on the driver; None: Spark writes them.
    """
    collected: ArrowChanges | None = None
    if isinstance(records, pa.Table):
        collected = changes_on_driver(records, plan, options)
    elif most_bytes is not None:
        collected = collected_changes(records, plan, options, most_bytes)
    if collected is not None:
        yield collected, collected.result
        return
    # One task follows rows whose key changed; several count them.
    for in_one_task in (False, True):
        of_tasks = records.coalesce(1) if in_one_task else records
        changes = changes_on_spark(of_tasks, plan, options)
        with stored(changes.rows) as kept:
            try:
                rows, result = changes.finish(kept)
            except PySparkException as error:
                # One task completes the row if its key changed, and else raises the error again.
                if in_one_task or not explain_error(error).startswith(_PARTIAL):
                    raise
                continue
            if not result.moved:
                yield rows, result
                return


_PARTIAL = f"[{PartialImageError.condition}]"


def changes_on_driver(records: pa.Table, plan: DecodePlan, options: ChangeOptions) -> ArrowChanges:
    """Return the changes of records, decoded on the driver.

    Parameters
    ----------
    records : pyarrow.Table
        The columns of `route.RECORD_DDL`.
    plan : DecodePlan
    options : ChangeOptions
    """
    needed = records.select(_columns_of_records(plan)).combine_chunks().to_batches()
    decoded = pa.Table.from_batches(
        _decoded(iter(needed), plan=plan, options=options, merged=False)
    )
    return _arrow_changes(decoded, plan, options)


def collected_changes(
    records: DataFrame, plan: DecodePlan, options: ChangeOptions, most_bytes: int
) -> ArrowChanges | None:
    """Return the changes of records, decoded by Spark and collected on the driver.

    Parameters
    ----------
    records, plan, options
        Same as in `changes_on_spark`.
    most_bytes : int
        The most bytes that are collected.

    Returns
    -------
    ArrowChanges or None
        None when there are more bytes, or when only one task can complete the rows whose key
        changed: call `changes_on_spark`.
    """
    tasks = partition_count(records)
    merged = tasks > 1
    needed = records.select(*_columns_of_records(plan))
    decode = partial(_decoded, plan=plan, options=options, merged=merged)
    decoded = collected(packed(needed, decode), tasks, most_bytes)
    if decoded is None:
        return None
    changes = _arrow_changes(pa.concat_tables(decoded), plan, options)
    if changes.result.moved:
        return None
    # As a rule, all changes of a key are in one partition, and one task reads it.
    if not merged or pc.count_distinct(changes.rows.column("key")).as_py() == len(changes.rows):
        return changes
    last_of_keys = LastOfKeys()
    last_of_keys.add(changes.rows)
    rows = pa.Table.from_batches(last_of_keys.finish("log"), changes.rows.schema)
    changes.result.summary.torn += last_of_keys.torn
    return changes._replace(rows=rows, result=changes.result._replace(rows=rows.num_rows))


def _decoded(
    batches: Iterator[pa.RecordBatch], *, plan: DecodePlan, options: ChangeOptions, merged: bool
) -> Iterator[pa.RecordBatch]:
    """Decode the records of a task.

    Notices on columns are dropped: the query compares them with the schema, and counts bad records.
    """
    summary = PassSummary()
    collector = partial(TableChanges, plan=plan, merged=merged, options=options, summary=summary)
    read = summary.stamped(batches)
    return decode_pass(read, plan=plan, collector=collector, report=lambda notices: None)


def changes_on_spark(records: DataFrame, plan: DecodePlan, options: ChangeOptions) -> Changes:
    """Return the changes of records, decoded by Spark.

    Parameters
    ----------
    records : DataFrame
        The columns of `route.RECORD_DDL`.
    plan : DecodePlan
    options : ChangeOptions
    """
    tasks = partition_count(records)
    merged = tasks > 1
    layout = _layout(plan, options, merged=merged)
    decode: Any = partial(_decoded, plan=plan, options=options, merged=merged)
    counts, changes = Observation(), Observation()
    needed = records.select(*_columns_of_records(plan))
    decoded = needed.mapInArrow(decode, f"{_ddl(layout)}, {COUNTS_DDL}")
    keyed = observe_counts(decoded, DECODE_COUNTS, counts)
    moves = Observation()
    if merged:
        keyed = keyed.observe(moves, F.count(MOVED).alias("moved"))
    if merged and not options.every:
        merge: Any = partial(merge_pass, row_order="log")
        keyed = keyed.repartition(tasks, "key").mapInArrow(merge, _ddl(layout))
    partial_columns = {ABSENT_COLUMN: ABSENT, BASE_COLUMN: f"{_BASES}0"}
    numbers = [
        F.count(of).alias(name) for name, of in partial_columns.items() if of in keyed.columns
    ]
    rows = _named(keyed.observe(changes, F.count("key").alias("rows"), *numbers), plan, options)

    def finish(stored: DataFrame) -> tuple[DataFrame, PassResult]:
        # The first action computes and stores all rows.
        packed = stored.where(f"{SUMMARY} IS NOT NULL").select(SUMMARY).collect()
        summary = _united(bytes(row[SUMMARY]) for row in packed)
        moved = moves.get["moved"] if merged else 0
        result = PassResult(counts.get, changes.get["rows"], moved, summary)
        # All rows are whole, and no row has a base: a MERGE needs no columns for them.
        empty = [name for name in partial_columns if not changes.get.get(name)]
        return rows_of(stored).where(f"{SUMMARY} IS NULL").drop(SUMMARY, *empty), result

    return Changes(rows, finish)


def _united(packed: Iterable[bytes]) -> PassSummary:
    """Return the summary of all tasks."""
    united = PassSummary()
    for each in packed:
        united.add(_decode_summary(each))
    return united


def _result_columns(plan: DecodePlan, options: ChangeOptions) -> list[Column]:
    """Return the columns that are written, without positions."""
    written = options.with_shard(plan.result_columns)
    types = (each.type for each in _numbered("c", written))
    return [replace(of, type=kind) for of, kind in zip(written, types, strict=True)]


def written_fields(plan: DecodePlan, options: ChangeOptions) -> tuple[StructField, ...]:
    """Return the columns that are written, with the position."""
    columns = _result_columns(plan, options)
    ddl = [f"{backquoted(each.name)} {frame_type(each.type)}" for each in columns]
    if options.position_column is not None:
        ddl.append(f"{backquoted(options.position_column)} BINARY")
    return _fields(", ".join(ddl))


@cache
def _fields(ddl: str) -> tuple[StructField, ...]:
    """Return the fields of a DDL, which Spark parses in its JVM."""
    of_table: Any = StructType.fromDDL(ddl)
    return tuple(of_table.fields)


def _named(changes: DataFrame, plan: DecodePlan, options: ChangeOptions) -> DataFrame:
    """Return the columns of the target with their names, of those of `TableChanges`."""
    columns = options.with_shard(plan.result_columns)
    placed = [replace(column, name=f"c{index}") for index, column in enumerate(columns)]
    changes = with_frame_types(changes, placed)
    named = [F.col(f"c{index}").alias(column.name) for index, column in enumerate(columns)]
    if options.position_column is not None:
        named.append(F.col(POSITION).alias(options.position_column))
    summary = [F.col("fact").alias(SUMMARY)] * ("fact" in changes.columns)
    if options.every:
        return changes.select(
            ROW_KIND,
            *named,
            F.struct(F.col("source").alias("partition"), "offset").alias(PLACE),
            *summary,
        )
    absent = [F.concat(ABSENT, F.lit(" "), "source", F.lit("@"), "offset").alias(ABSENT_COLUMN)] * (
        ABSENT in changes.columns
    )
    bases = [
        F.col(f"{_BASES}{part}").alias(column.name)
        for part, column in enumerate(_key_columns(plan, options))
    ]
    base = [F.when(F.col(f"{_BASES}0").isNotNull(), F.struct(*bases)).alias(BASE_COLUMN)] * (
        f"{_BASES}0" in changes.columns
    )
    return changes.select(ROW_KIND, *named, *absent, *base, *summary)
