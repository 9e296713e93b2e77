"""The changes of one table in a micro-batch: the last of each key, as typed rows for a MERGE.

Few records are decoded on the driver: a Spark job for each table would cost more than the decoding. Many are decoded by Spark, and a second
pass merges the changes of a key from several tasks. Both use the same decode pass, and give the same rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.decoding.images import ABSENT as ABSENT_VALUE
from cdc_formats.decoding.rows import RowConverter, key_indices
from cdc_formats.errors import DecodeError
from cdc_formats.events import Headers, KeyedChange
from cdc_formats.format import Format
from cdc_formats.values.equality import row_unifier
from cdc_formats.values.schema import Column, SqlType, columns as to_columns
from normalize.core.arrow import arrow_type, of_stored, spark_type, to_arrow
from normalize.core.changes import Partial, Shape
from normalize.core.counts import DECODE_COUNTS
from normalize.core.output import ROW_KIND, Output
from normalize.core.packing import pack, unpack
from normalize.core.records import Records
from normalize.decode.decode_pass import decode_pass
from normalize.decode.last_changes import ABSENT, AllChanges, HeldChanges, merge_pass
from normalize.decode.moved_rows import BASE, MOVED, ChangesWithMoves
from normalize.decode.source import DecodePlan, needed_columns
from normalize.decode.targets import TargetMaker
from normalize.monitoring.counts import COLUMN as COUNTS_COLUMN, counts_ddl, observe_counts
from normalize.monitoring.notice import Notice
from normalize.sinks.databases import source_id
from normalize.sinks.partial_rows import ABSENT_COLUMN, BASE_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ORDER = to_columns("key BINARY, stamp BIGINT, source STRING, offset BIGINT")
_BASES = "b"
"""The prefix of the columns with the key whose row in the target has the columns that a row lacks."""
_ROWS_OF_TASK = 50_000
PLACE = "__place"
"""The column of a history's changes with the place of their record: a struct of ``partition`` (``topic[partition]``) and ``offset``."""
_END_OF_SHARD = b"\0"
"""Between the name of a shard and the packed key."""


def _numbered(prefix: str, columns: Sequence[Column]) -> list[Column]:
    """Return columns as they are written, named by a prefix and a number: no target has intervals, which are written in microseconds."""
    types = (SqlType("BIGINT") if column.type.name.startswith("INTERVAL") else column.type for column in columns)
    return [Column(f"{prefix}{index}", kind) for index, kind in enumerate(types)]


def _layout(source: DecodePlan, options: ChangeOptions, *, merged: bool) -> list[Column]:
    """Return the columns of `TableChanges`."""
    written = _numbered("c", _written_columns(source.columns, options.shard_column))
    bases = to_columns(f"{MOVED} BINARY") if merged else _numbered(_BASES, _key_columns(source, options))
    return [*_ORDER, *to_columns(f"{ROW_KIND} STRING"), *written, *to_columns(f"{ABSENT} STRING"), *bases]


def _ddl(columns: Sequence[Column]) -> str:
    return ", ".join(f"{column.name} {spark_type(column.type)}" for column in columns)


class Found(NamedTuple):
    """What was found while the changes of a table were computed.

    Attributes
    ----------
    counts : mapping
        The counts of `decode_pass`.
    rows : int
        The number of changes.
    stamps : (int, int)
        The least and the greatest timestamp of the records, in ms.
    moved : int
        The number of partial rows whose key changed, and which are still to be followed (`changes_on_spark`).
    """

    counts: Mapping[str, int]
    rows: int
    stamps: tuple[int, int]
    moved: int = 0


class Changes(NamedTuple):
    """The changes of a table, a row for each key.

    Attributes
    ----------
    rows : DataFrame
        ``row_kind`` and the columns; and `ABSENT_COLUMN` and `BASE_COLUMN`, if there may be partial rows.
    found : callable
        Returns what was found, once the rows are computed.
    """

    rows: DataFrame
    found: Callable[[], Found]


class ChangeOptions(NamedTuple):
    """Which changes are returned, and what they have beside the columns of the source table.

    Attributes
    ----------
    shard_column : Column or None
        The column with the name of the source table, after the others, if it is part of the key. The metadata are the parts of the name.
    every : bool
        Whether all changes are returned, for a history, and not only the last of each key. They have their record's place (`PLACE`).
    """

    shard_column: Column | None = None
    every: bool = False


class TableChanges(HeldChanges):
    """The last change of each key: ``+U`` with the row, or ``-D`` with the key.

    Parameters
    ----------
    output, key_groups, shape
        As of `Target`.
    source : DecodePlan
    merged : bool
        Whether `merge_pass` follows. Otherwise rows whose key changed are followed, and have their base.
    options : ChangeOptions
    """

    def __init__(self, output: Output, key_groups: int, shape: Shape, *, source: DecodePlan, merged: bool, options: ChangeOptions) -> None:
        self.schema = pa.schema([(column.name, arrow_type(column.type)) for column in _layout(source, options, merged=merged)])
        self.key, self.by_shard, self.merged = key_indices(source.columns, source.unique_key), options.shard_column is not None, merged
        self.previous_key = _previous_key(source)
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

    def take(self, records: Records, decoded: Sequence[Sequence[KeyedChange]]) -> None:
        self.moved = [
            self._moved_from(change, records, index) if change.partial else None
            for index, of_record in enumerate(decoded)
            for change in of_record
        ]
        super().take(records, decoded)
        self.moved = []

    def _moved_from(self, change: KeyedChange, records: Records, index: int) -> bytes | None:
        """Return the packed key that a partial row had before; None if it is not known, or the same."""
        earlier = change.moved_from
        if earlier is None and records.headers is not None:
            earlier = self.previous_key(records.record(index).headers)
        return None if earlier is None or earlier == change.key else pack(earlier)

    def _hold(self, source: str, offsets: Any, changes: pa.RecordBatch, partials: Sequence[Partial] = ()) -> None:
        if self.by_shard:
            names = [changes.column(f"m{index}").to_pylist() for index in range(len(self.output.metadata))]
            shards = [source_id([str(name) for name in parts if name is not None]) for parts in zip(*names, strict=True)]
            topic = source.rpartition("[")[0]
            prefixes = [(shard or topic).encode() + _END_OF_SHARD for shard in shards or [topic] * len(changes)]
            keys = [prefix + key for prefix, key in zip(prefixes, changes.column("key").to_pylist(), strict=True)]
            changes = changes.set_column(changes.schema.get_field_index("key"), "key", pa.array(keys, pa.binary()))
            self.moved = [key and prefix + key for prefix, key in zip(prefixes, self.moved, strict=False)]
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
        columns = [of_stored(column.type, changes.column(f"c{index}")) for index, column in enumerate(self.output.columns)]
        if pc.any(deleted).as_py():
            keys, flags = packed if self.by_shard else changes.column("key").to_pylist(), deleted.to_pylist()
            deleted_keys = [unpack(key) if there else None for key, there in zip(keys, flags, strict=True)]
            for index, values in zip(self.key, self._key_arrays(deleted_keys), strict=True):
                columns[index] = pc.if_else(deleted, values, columns[index])
        kinds = pc.if_else(deleted, "-D", "+U")
        order = [changes.column(column.name).cast(arrow_type(column.type)) for column in _ORDER]
        absent = changes.column(ABSENT) if ABSENT in changes.schema.names else pa.nulls(changes.num_rows, pa.string())
        rows = map(_duration_as_integer, columns)
        return pa.RecordBatch.from_arrays([*order, kinds, *rows, *shards, absent, *self._bases(changes)], schema=self.schema)

    def _bases(self, changes: pa.RecordBatch) -> list[pa.Array]:
        """Return the column `MOVED`, or else the parts of the key in `BASE`."""
        name = MOVED if self.merged else BASE
        packed = changes.column(name) if name in changes.schema.names else pa.nulls(changes.num_rows, pa.binary())
        if self.merged:
            return [packed]
        if packed.null_count == len(packed):
            return [pa.nulls(len(packed), kind) for kind in self.schema.types[self.schema.get_field_index(f"{_BASES}0") :]]
        split = [None if key is None else key.split(_END_OF_SHARD, 1) if self.by_shard else [b"", key] for key in packed.to_pylist()]
        parts = self._key_arrays([None if each is None else unpack(each[1]) for each in split])
        shards = [pa.array([each and each[0].decode() for each in split], pa.string())] if self.by_shard else []
        return [*map(_duration_as_integer, parts), *shards]

    def _key_arrays(self, keys: Sequence[Sequence[Any] | None]) -> list[pa.Array]:
        """Return the columns of keys."""
        types = [self.output.columns[index].type for index in self.key]
        return [to_arrow(kind, [None if key is None else key[part] for key in keys]) for part, kind in enumerate(types)]


def _duration_as_integer(array: pa.Array) -> pa.Array:
    return array.cast(pa.int64()) if pa.types.is_duration(array.type) else array


def _previous_key(source: DecodePlan) -> Callable[[Headers], tuple[Any, ...] | None]:
    """Return the function from a record's headers to the key that its row had before; None if they do not name it."""
    rows = RowConverter(source.columns, source.format.handling, source.unique_key)
    unified = row_unifier([source.columns[index] for index in rows.key_indices]) or tuple

    def previous_key(headers: Headers) -> tuple[Any, ...] | None:
        image = source.format.previous_key(headers)
        try:
            key = rows.key(image, "$") if image else (ABSENT_VALUE,)
        except DecodeError:  # a type that the producer writes in another way in headers
            return None
        return None if None in key or ABSENT_VALUE in key else unified(key)

    return previous_key


def _key_columns(source: DecodePlan, options: ChangeOptions) -> list[Column]:
    """Return the columns of the target's key."""
    columns = [source.columns[index] for index in key_indices(source.columns, source.unique_key)]
    return columns if options.shard_column is None else [*columns, options.shard_column]


def _columns_of_records(source: DecodePlan) -> list[str]:
    """Return the columns that are decoded, with headers if they name the earlier key of a row."""
    needed, in_headers = needed_columns(source), type(source.format).previous_key is not Format.previous_key
    return [*needed, "headers"] if in_headers and "headers" not in needed else needed


def _written_columns(columns: tuple[Column, ...], shard_column: Column | None) -> tuple[Column, ...]:
    return columns if shard_column is None else (*columns, shard_column)


def changes_here(spark: SparkSession, records: pa.Table, source: DecodePlan, options: ChangeOptions) -> Changes:
    """Return the changes of records, decoded on the driver.

    Parameters
    ----------
    spark : SparkSession
    records : pyarrow.Table
        The columns of `route.RECORD_DDL`.
    source : DecodePlan
    options : ChangeOptions
    """
    needed = records.select(_columns_of_records(source)).combine_chunks().to_batches()
    decoded = pa.Table.from_batches(
        decode_pass(iter(needed), source=source, target=_target(source, options, merged=False), report=_unreported)
    )
    counts = Counter[str]()
    for counted in decoded.column(COUNTS_COLUMN).drop_null().to_pylist():
        counts.update(counted)
    # The rows of counts have no key.
    changes = decoded.filter(decoded.column("key").is_valid())
    may_be_null = {ABSENT, *(name for name in changes.column_names if name.startswith(_BASES))}
    layout = [
        column
        for column in _layout(source, options, merged=False)
        if column.name not in may_be_null or changes.column(column.name).null_count < changes.num_rows
    ]
    stamps = pc.min_max(records.column("stamp")).as_py()
    result = Found(counts, changes.num_rows, (stamps["min"], stamps["max"]))
    rows = spark.createDataFrame(changes.select([column.name for column in layout]), _ddl(layout))
    return Changes(_named(rows, source, options), lambda: result)


def changes_on_spark(records: DataFrame, source: DecodePlan, options: ChangeOptions, *, number: int, in_one_task: bool = False) -> Changes:
    """Return the changes of records, decoded by Spark.

    Parameters
    ----------
    records : DataFrame
        The columns of `route.RECORD_DDL`.
    source : DecodePlan
    options : ChangeOptions
    number : int
        The number of records.
    in_one_task : bool
        Whether one task decodes all records, so that rows whose key changed are followed from key to key. Otherwise they are counted.
    """
    from pyspark.sql import Observation, functions as F

    merged = not in_one_task
    ddl = _ddl(_layout(source, options, merged=merged))
    decode: Any = partial(decode_pass, source=source, target=_target(source, options, merged=merged), report=_unreported)
    counts, stamps, rows_found = Observation(), Observation(), Observation()
    timed = records.observe(stamps, F.min("stamp").alias("least"), F.max("stamp").alias("greatest")).select(*_columns_of_records(source))
    decoded = (timed.coalesce(1) if in_one_task else timed).mapInArrow(decode, f"{ddl}, {counts_ddl(DECODE_COUNTS)}")
    keyed = observe_counts(decoded, DECODE_COUNTS, counts)
    moves = Observation()
    if merged:
        keyed = keyed.observe(moves, F.count(MOVED).alias("moved"))
    if merged and not options.every:
        merge: Any = partial(merge_pass, row_order="log")
        keyed = keyed.repartition(1 + number // _ROWS_OF_TASK, "key").mapInArrow(merge, ddl)
    rows = keyed.observe(rows_found, F.count(F.lit(1)).alias("rows"))

    def found() -> Found:
        moved = moves.get["moved"] if merged else 0
        return Found(counts.get, rows_found.get["rows"], (stamps.get["least"], stamps.get["greatest"]), moved)

    return Changes(_named(rows, source, options), found)


def _target(source: DecodePlan, options: ChangeOptions, *, merged: bool) -> TargetMaker:
    return partial(TableChanges, source=source, merged=merged, options=options)


def without_absent_column(rows: DataFrame) -> DataFrame:
    """Return the rows of `Changes` without `ABSENT_COLUMN`, if all are whole, and without `BASE_COLUMN`, if none has a base."""
    for name in (BASE_COLUMN, ABSENT_COLUMN):
        if name in rows.columns and rows.where(f"{name} IS NOT NULL").isEmpty():
            rows = rows.drop(name)
    return rows


def _unreported(notices: list[Notice]) -> None:
    """Drop notices on columns: the query itself compares them with the schema, and counts bad records."""


def _named(changes: DataFrame, source: DecodePlan, options: ChangeOptions) -> DataFrame:
    """Return the columns of the target with their names, of those of `TableChanges`."""
    from pyspark.sql import functions as F

    columns = _written_columns(source.columns, options.shard_column)
    named = [F.col(f"c{index}").alias(column.name) for index, column in enumerate(columns)]
    if options.every:
        return changes.select(ROW_KIND, *named, F.struct(F.col("source").alias("partition"), "offset").alias(PLACE))
    absent = [F.concat(ABSENT, F.lit(" "), "source", F.lit("@"), "offset").alias(ABSENT_COLUMN)] * (ABSENT in changes.columns)
    bases = [F.col(f"{_BASES}{part}").alias(column.name) for part, column in enumerate(_key_columns(source, options))]
    base = [F.when(F.col(f"{_BASES}0").isNotNull(), F.struct(*bases)).alias(BASE_COLUMN)] * (f"{_BASES}0" in changes.columns)
    return changes.select(ROW_KIND, *named, *absent, *base)
