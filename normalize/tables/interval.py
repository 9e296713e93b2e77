"""`MergedDeltaTarget`: a Delta table that is merged at an interval.

Its changes can be read at once.

Each micro-batch appends the last change of each key to a table beside the target. When the oldest
of these changes is as old as the interval, one ``MERGE`` applies the last change of each key, and
the changes are removed.

============  ====================================================================================
a kill after  what then happens
============  ====================================================================================
the append    Spark repeats the micro-batch, which replaces its changes
the MERGE     the changes are merged again, which ends in the same rows; until then `fresh_rows`
              returns the same rows, too
the removal   the repeated micro-batch is appended again, and merged later: no newer change exists
============  ====================================================================================

The changes of a micro-batch are a partition of their table, and so are replaced and removed without
reading them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructField, StructType

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.arguments import seconds_of
from normalize.core.output import ROW_KIND
from normalize.spark.sessions import is_connect

from .batches import Batch, Record, running_batch
from .latest import computed, count
from .merge import ABSENT_COLUMN, BASE_COLUMN, merged_rows
from .table_spec import TableSpec
from .targets import TableTarget, TargetError, repeat_conflicts
from .writers.lake import DeltaTarget, LakeSink, LakeTarget, column_definition, is_path

_COLUMNS = ["query", "batch", "appended_ms", ROW_KIND, "key", "row", "deleted"]
"""The last three are structs: the key, all columns, and the column of soft deletes, which is
missing with hard deletes."""


class Waiting(NamedTuple):
    """The changes that are not merged.

    Attributes
    ----------
    batches : dict of str to int
        The last micro-batch of each query.
    since : int
        When the oldest change was appended, in ms.
    layout : str
        The columns of their table; empty without the table.
    """

    batches: Mapping[str, int]
    since: int = 0
    layout: str = ""


@dataclass(frozen=True)
class MergedDeltaTarget(DeltaTarget):
    """A Delta table that is merged at an interval.

    Parameters
    ----------
    name, writer, only_writer, storage_options
        Same as in `DeltaTarget`; only Spark writes.
    merge_every : str
        How long a change may wait, by the driver's clock: ``"10 minutes"``. The first micro-batch
        with changes after that merges all.
    """

    merge_every: str
    remembered: list[Waiting] = field(default_factory=list, init=False, repr=False, compare=False)
    """What waits; empty if it has to be read, at the start of a query and after an error."""
    histories: ClassVar[bool] = False
    positions: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.seconds  # raises for an interval that cannot be read

    @property
    def delta_rs(self) -> None:
        """Only Spark merges the changes, of which there are many."""

    @property
    def seconds(self) -> int:
        """The interval in seconds."""
        return seconds_of("merge_every", self.merge_every)

    def sink(self, spark: SparkSession) -> LakeSink:
        if is_connect(spark):
            raise ArgumentError("MergedDeltaTarget requires a classic session: pass a DeltaTarget")
        return MergedSink(spark, self)


def changes_table(target: LakeTarget) -> DeltaTarget:
    """Return the table with the changes that are not merged.

    Examples
    --------
    >>> changes_table(DeltaTarget("/lake/orders/")).name, changes_table(DeltaTarget("shop.`order.items`")).name
    ('/lake/orders_unmerged', '`shop`.`order.items_unmerged`')
    """
    if is_path(target.name):
        return DeltaTarget(f"{target.name.rstrip('/')}_unmerged")
    *above, table = target.parts
    return DeltaTarget(".".join(map(backquoted, [*above, f"{table}_unmerged"])))


@dataclass(frozen=True)
class ChangesSink(LakeSink):
    """Writes the table with the changes that are not merged."""

    def layout(self, spec: TableSpec) -> str:
        """Return the columns, as ``CREATE TABLE`` declares them."""
        parts = [
            column_definition(StructField(name, StructType(fields)), self.table)
            for name, fields in _parts(spec).items()
        ]
        return ", ".join(
            ["query STRING, batch BIGINT, appended_ms BIGINT, row_kind STRING", *parts]
        )

    def create(self, spec: TableSpec) -> None:
        """Create the table, or replace an empty one that has other columns."""
        # CREATE OR REPLACE cannot replace the columns of a path. Names of columns come from
        # messages. No query reads the statistics.
        options = {
            "overwriteSchema": "true",
            "delta.columnMapping.mode": "name",
            "delta.dataSkippingNumIndexedCols": "0",
        }
        empty = self.spark.createDataFrame([], self.layout(spec))
        writer = (
            empty.write.format("delta")
            .mode("overwrite")
            .options(**options)
            .partitionBy("query", "batch")
        )
        if is_path(self.table.name):
            writer.save(self.table.name)
        else:
            writer.saveAsTable(self.table.sql_name)

    def spec(self) -> TableSpec | None:
        """Return the columns and key of the changes; None without the table.

        Raises
        ------
        TargetError
            When the table is one of somebody else.
        """
        schema = self._schema()
        if schema is None:
            return None
        if schema.names not in (_COLUMNS, _COLUMNS[:-1]):
            raise TargetError(
                f"changes are kept in {self.table}, which has other columns: rename it, or choose "
                "another target"
            )
        key, row, *deleted = (
            tuple(getattr(each.dataType, "fields", ())) for each in schema.fields[4:]
        )
        fields = sum(deleted, row)
        return TableSpec(
            fields,
            tuple(each.name for each in key),
            deleted_column=fields[-1].name if deleted else None,
        )

    def waiting(self) -> Waiting:
        """Return what the table has."""
        spec = self.spec()
        if spec is None:
            return Waiting({})
        queries = self.rows().groupBy("query").agg({"batch": "max", "appended_ms": "min"}).collect()
        since = min((row["min(appended_ms)"] for row in queries), default=0)
        return Waiting(
            {row["query"]: row["max(batch)"] for row in queries}, since, self.layout(spec)
        )

    def put(self, latest: DataFrame, spec: TableSpec, batch: Batch, now: int) -> None:
        """Append the changes of a micro-batch, in place of those of an earlier attempt."""
        parts = (
            F.struct(*(backquoted(each.name) for each in fields))
            for fields in _parts(spec).values()
        )
        values = F.lit(batch.query), F.lit(batch.number), F.lit(now), F.col(ROW_KIND), *parts
        rows = latest.select(
            *(value.alias(name) for name, value in zip(_COLUMNS, values, strict=False))
        )
        with self.conflicts(), self.recording(batch):
            if not self.has(batch):
                rows.writeTo(self.table.sql_name).overwrite(
                    F.expr(f"query = '{batch.query}' AND batch = {batch.number}")
                )

    def remove(self, batches: Mapping[str, int]) -> None:
        """Remove the changes of these micro-batches and of those before them."""
        with self.conflicts():
            self.spark.sql(f"DELETE FROM {self.table.sql_name} WHERE {_until(batches)}")


@dataclass(frozen=True)
class MergedSink(LakeSink):
    """Appends changes, and merges them at an interval."""

    table: MergedDeltaTarget

    @property
    def changes(self) -> ChangesSink:
        """The sink of the changes."""
        return ChangesSink(self.spark, changes_table(self.table))

    def merge(
        self,
        latest: DataFrame,
        spec: TableSpec,
        keep: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        batch, remembered = running_batch(self.spark), self.table.remembered
        waiting = remembered.pop() if remembered else self.changes.waiting()
        # Only the target completes partial rows.
        if batch is None or ABSENT_COLUMN in latest.columns or BASE_COLUMN in latest.columns:
            self.merge_changes(waiting.batches)
            super().merge(latest, spec, keep)
            remembered.append(waiting._replace(batches={}))
        else:
            remembered.append(self._put(latest, spec, batch, waiting))

    def exists(self) -> bool:
        return super().exists() or self.changes.exists()

    def record(self, batch: Batch) -> Record | None:
        tables = [
            each for each in (LakeSink(self.spark, self.table), self.changes) if each.exists()
        ]
        records = [each.table_record(batch) for each in tables]
        return max(filter(None, records), default=None)

    def _put(self, latest: DataFrame, spec: TableSpec, batch: Batch, waiting: Waiting) -> Waiting:
        """Append changes, and merge all if it is time; return what waits then."""
        layout, now = self.changes.layout(spec), int(time.time() * 1000)
        # A new checkpoint numbers its micro-batches anew.
        if layout != waiting.layout or not waiting.batches.keys() <= {batch.query}:
            self.merge_changes(waiting.batches)
            waiting = waiting._replace(batches={})
        if layout != waiting.layout:
            self.changes.create(spec)
        self.changes.put(latest, spec, batch, now)
        waiting = Waiting(
            {batch.query: batch.number}, waiting.since if waiting.batches else now, layout
        )
        if now - waiting.since < self.table.seconds * 1000:
            return waiting
        self.merge_changes(waiting.batches)
        return waiting._replace(batches={})

    def merge_changes(self, batches: Mapping[str, int]) -> None:
        """Merge the changes of these micro-batches, and remove them."""
        spec = self.changes.spec() if batches else None
        if spec is not None:
            last = _last(self.changes.rows().where(_until(batches)))
            with computed(last, count) as (rows, _), self.conflicts():
                batch = self._last_batch(batches)
                if not self.has(batch):
                    self.execute_merge(rows, spec, batch)
            self.changes.remove(batches)

    def _last_batch(self, batches: Mapping[str, int]) -> Batch | None:
        """Return the last micro-batch of waiting changes, which their ``MERGE`` carries.

        None for changes of several queries.
        """
        if len(batches) != 1:
            return None
        ((query, number),) = batches.items()
        running = running_batch(self.spark)
        is_running = running is not None and running[:2] == (query, number)
        return running if is_running else Batch(query, number)


def merge_changes(spark: SparkSession, target: DeltaTarget) -> None:
    """Merge the waiting changes into a table that is no longer a `MergedDeltaTarget`.

    Stop the table's query before.

    Parameters
    ----------
    spark : SparkSession
    target : DeltaTarget

    Raises
    ------
    TargetError, ConflictError
    """
    sink = MergedSink(target.session(spark), MergedDeltaTarget(target.name, "0 seconds"))
    repeat_conflicts(lambda: sink.merge_changes(sink.changes.waiting().batches))


def require_merged(spark: SparkSession, target: TableTarget) -> None:
    """Raise an error for a `DeltaTarget` with changes that are not merged, which would get lost.

    Raises
    ------
    TargetError
    """
    if type(target) is DeltaTarget and ChangesSink(spark, changes_table(target)).waiting().batches:
        raise TargetError(
            f"{target} has changes that are not merged: pass MergedDeltaTarget({target.name!r}, "
            "...), or first call merge_changes(spark, target) of normalize.tables.interval"
        )


def fresh_rows(spark: SparkSession, target: DeltaTarget) -> DataFrame:
    """Return the rows of a `MergedDeltaTarget` with the changes that are not merged yet.

    The rows are as they are now.

    The DataFrame is one state of the table: call this function again to see newer changes.

    Parameters
    ----------
    spark : SparkSession
    target : DeltaTarget

    Raises
    ------
    TargetError
        When the changes cannot be read.
    """
    changes, version = changes_table(target), -1
    spec = ChangesSink(spark, changes).spec()
    if spec is None:
        return target.sink(spark).rows()
    # Changes are removed after they are merged: while the target is the same before and after, none
    # is in both tables or in neither.
    while version != (version := _version(spark, target)):
        of_changes = _version(spark, changes)
    return merged_rows(
        spec.plan(), _at(spark, target, version), _last(_at(spark, changes, of_changes))
    )


def _parts(spec: TableSpec) -> dict[str, list[StructField]]:
    """Return the fields of each struct."""
    row = [each for each in spec.fields if each.name != spec.deleted_column]
    deleted = [each for each in spec.fields if each.name == spec.deleted_column]
    return {"key": [each for each in row if each.name in spec.primary_key], "row": row} | (
        {"deleted": deleted} if deleted else {}
    )


def _last(changes: DataFrame) -> DataFrame:
    """Return the last change of each key."""
    parts = [name for name in ("row", "deleted") if name in changes.columns]
    last = changes.groupBy("key").agg(F.max_by(F.struct(ROW_KIND, *parts), "batch").alias("last"))
    return last.select(f"last.{ROW_KIND}", *(f"last.{name}.*" for name in parts))


def _until(batches: Mapping[str, int]) -> str:
    """Return the condition of these micro-batches and those before them."""
    return " OR ".join(
        f"query = '{query}' AND batch <= {number}" for query, number in batches.items()
    )


def _version(spark: SparkSession, table: DeltaTarget) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {table.sql_name} LIMIT 1").collect()[0]["version"])


def _at(spark: SparkSession, table: DeltaTarget, version: int) -> DataFrame:
    return spark.sql(f"SELECT * FROM {table.sql_name} VERSION AS OF {version}")
