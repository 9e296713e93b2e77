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

from cdc_formats.decoding.rows import key_indices
from cdc_formats.values.schema import Column, SqlType
from normalize.core.arrow import arrow_type, of_stored, spark_type, to_arrow
from normalize.core.changes import Shape
from normalize.core.output import ROW_KIND, Output
from normalize.core.packing import unpack
from normalize.decode.decode_pass import COUNTS, Source, decode_pass, needed_columns
from normalize.decode.last_changes import HeldChanges, merge_pass
from normalize.monitoring.counts import COLUMN as COUNTS_COLUMN, counts_ddl, observe_counts
from normalize.monitoring.notice import Notice

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ORDER = [("key", pa.binary()), ("stamp", pa.int64()), ("source", pa.string()), ("offset", pa.int64())]
_ORDER_DDL = "key BINARY, stamp BIGINT, source STRING, offset BIGINT"
_ROWS_OF_TASK = 50_000


def _written(sql_type: SqlType) -> SqlType:
    """Return the type in the target: none has intervals, which are written in microseconds."""
    return SqlType("BIGINT") if sql_type.name.startswith("INTERVAL") else sql_type


def _arrow_fields(columns: Sequence[Column]) -> list[tuple[str, pa.DataType]]:
    return [(ROW_KIND, pa.string()), *((f"c{index}", arrow_type(_written(column.type))) for index, column in enumerate(columns))]


def _rows_ddl(columns: Sequence[Column]) -> str:
    return ", ".join([f"{ROW_KIND} STRING", *(f"c{index} {spark_type(_written(column.type))}" for index, column in enumerate(columns))])


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
    """

    counts: Mapping[str, int]
    rows: int
    stamps: tuple[int, int]


class Changes(NamedTuple):
    """The changes of a table, a row for each key.

    Attributes
    ----------
    rows : DataFrame
        ``row_kind`` and the columns.
    found : callable
        Returns what was found, once the rows are computed.
    """

    rows: DataFrame
    found: Callable[[], Found]


class TableChanges(HeldChanges):
    """The last change of each key: ``+U`` with the whole row, or ``-D`` with the key.

    Parameters
    ----------
    output, key_groups, shape
        As of `Target`.
    key : tuple of int
        The indexes of the key's columns.
    merged : bool
        Whether `merge_pass` follows.
    """

    partial_remedy = (
        "only a stored row can complete it, which sync_database does not have: use from_kafka_changelog and apply_changes for this table"
    )

    def __init__(self, output: Output, key_groups: int, shape: Shape, *, key: tuple[int, ...], merged: bool) -> None:
        self.schema = pa.schema([*_ORDER, *_arrow_fields(output.columns)])
        self.key = key
        super().__init__(output, key_groups, shape, row_order=None if merged else "log")

    @staticmethod
    def ddl(output: Output) -> str:
        return f"{_ORDER_DDL}, {_rows_ddl(output.columns)}"

    def _typed(self, changes: pa.RecordBatch) -> pa.RecordBatch:
        deleted = changes.column("deleted")
        columns = [of_stored(column.type, changes.column(f"c{index}")) for index, column in enumerate(self.output.columns)]
        if pc.any(deleted).as_py():
            keys, flags = (changes.column(name).to_pylist() for name in ("key", "deleted"))
            gone = [unpack(key) if there else None for key, there in zip(keys, flags, strict=True)]
            for part, index in enumerate(self.key):
                values = to_arrow(self.output.columns[index].type, [None if key is None else key[part] for key in gone])
                columns[index] = pc.if_else(deleted, values, columns[index])
        columns = [array.cast(pa.int64()) if pa.types.is_duration(array.type) else array for array in columns]
        kinds = pc.if_else(deleted, "-D", "+U")
        order = [changes.column(name).cast(kind) for name, kind in _ORDER]
        return pa.RecordBatch.from_arrays([*order, kinds, *columns], schema=self.schema)


def changes_here(spark: SparkSession, records: pa.Table, source: Source) -> Changes:
    """Return the changes of records, decoded on the driver.

    Parameters
    ----------
    spark : SparkSession
    records : pyarrow.Table
        The columns of `route.RECORD_DDL`.
    source : Source
    """
    target = partial(TableChanges, key=key_indices(source.columns, source.unique_key), merged=False)
    needed = records.select(needed_columns(source)).combine_chunks().to_batches()
    decoded = list(decode_pass(iter(needed), source=source, target=target, report=_unreported))
    schema = pa.schema(_arrow_fields(source.columns))
    # The rows of counts have no key.
    found = [batch.filter(batch.column("key").is_valid()).select(schema.names) for batch in decoded]
    table = pa.Table.from_batches(found, schema)
    counts = Counter[str]()
    for batch in decoded:
        for counted in batch.column(COUNTS_COLUMN).drop_null().to_pylist():
            counts.update(counted)
    stamps = pc.min_max(records.column("stamp")).as_py()
    result = Found(counts, table.num_rows, (stamps["min"], stamps["max"]))
    return Changes(_named(spark.createDataFrame(table, _rows_ddl(source.columns)), source.columns), lambda: result)


def changes_on_spark(records: DataFrame, source: Source, *, number: int) -> Changes:
    """Return the changes of records, decoded by Spark.

    Parameters
    ----------
    records : DataFrame
        The columns of `route.RECORD_DDL`.
    source : Source
    number : int
        The number of records.
    """
    from pyspark.sql import Observation, functions as F

    target = partial(TableChanges, key=key_indices(source.columns, source.unique_key), merged=True)
    ddl = TableChanges.ddl(source.output)
    decode: Any = partial(decode_pass, source=source, target=target, report=_unreported)
    counts, stamps, merged = Observation(), Observation(), Observation()
    timed = records.observe(stamps, F.min("stamp").alias("least"), F.max("stamp").alias("greatest"))
    decoded = timed.select(*needed_columns(source)).mapInArrow(decode, f"{ddl}, {counts_ddl(COUNTS)}")
    keyed = observe_counts(decoded, COUNTS, counts).repartition(1 + number // _ROWS_OF_TASK, "key")
    merge: Any = partial(merge_pass, row_order="log")
    rows = keyed.mapInArrow(merge, ddl).observe(merged, F.count(F.lit(1)).alias("rows"))

    def found() -> Found:
        return Found(counts.get, merged.get["rows"], (stamps.get["least"], stamps.get["greatest"]))

    return Changes(_named(rows, source.columns), found)


def _unreported(notices: list[Notice]) -> None:
    """Drop notices on columns: the query itself compares them with the schema, and counts bad records."""


def _named(changes: DataFrame, columns: tuple[Column, ...]) -> DataFrame:
    from pyspark.sql import functions as F

    return changes.select(ROW_KIND, *(F.col(f"c{index}").alias(column.name) for index, column in enumerate(columns)))
