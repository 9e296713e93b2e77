"""`MergeEvery`: a Delta table that is merged at an interval, and whose changes can be read at once.

Each micro-batch appends the last change of each key to a table beside the target. When the oldest of these changes is as old as the
interval, one ``MERGE`` applies the last change of each key, and the changes are removed.

================  =================================================================================================================
a kill after      what then happens
================  =================================================================================================================
the append        Spark repeats the micro-batch, which replaces its changes
the MERGE         the changes are merged again, which ends in the same rows; until then `fresh_rows` reads the same rows, too
the removal       the repeated micro-batch is appended again, and merged later: no newer change exists
================  =================================================================================================================

The changes of a micro-batch are a partition of their table, and so are replaced and removed without reading them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.connect import is_connect
from normalize.core.output import ROW_KIND

from .lake import DeltaTarget, LakeSink, LakeTarget, column_definition, is_path
from .latest import ADDS, computed
from .partial_rows import ABSENT_COLUMN, BASE_COLUMN
from .table_spec import Batch, TableSpec, running_batch
from .targets import Sink, TableTarget, TargetError, repeat_conflicts

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession
    from pyspark.sql.types import StructField, StructType

_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}
_OF_BATCH = ["query", "batch", "appended_ms", ROW_KIND]
_KEY, _ROW, _DELETED = "key", "row", "deleted"


def seconds_of(interval: str) -> int:
    """Return the seconds of an interval.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> seconds_of("10 minutes"), seconds_of("1 hour")
    (600, 3600)
    """
    found = re.fullmatch(rf"(\d+) ({'|'.join(_SECONDS)})s?", str(interval))
    if not found:
        raise ArgumentError(f"the interval is {interval!r}: write a number of seconds, minutes, hours or days, such as '10 minutes'")
    return int(found[1]) * _SECONDS[found[2]]


def changes_target(target: DeltaTarget) -> DeltaTarget:
    """Return the table with the changes that are not merged yet.

    Examples
    --------
    >>> changes_target(DeltaTarget("/lake/orders/")).name, changes_target(DeltaTarget("shop.`order.items`")).name
    ('/lake/orders_unmerged', '`shop`.`order.items_unmerged`')
    """
    if is_path(target.name):
        return DeltaTarget(f"{target.name.rstrip('/')}_unmerged")
    *above, table = target.parts
    return DeltaTarget(".".join(map(backquoted, [*above, f"{table}_unmerged"])))


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

    batches: dict[str, int]
    since: int = 0
    layout: str = ""


@dataclass(frozen=True)
class MergeEvery(TableTarget):
    """A Delta table that is merged at an interval.

    Parameters
    ----------
    target : DeltaTarget
    interval : str
        How long a change may wait, by the driver's clock: ``"10 minutes"``. The first micro-batch with changes after that merges all.
    """

    target: DeltaTarget
    interval: str
    known: list[Waiting] = field(default_factory=list, init=False, repr=False, compare=False)
    """What waits; empty if it has to be read, at the start of a query and after an error."""

    def __post_init__(self) -> None:
        if not isinstance(self.target, DeltaTarget):
            raise ArgumentError(f"MergeEvery is for Delta tables, got {self.target!r}: pass a DeltaTarget, or the target without it")
        seconds_of(self.interval)

    @property
    def sql_name(self) -> str:
        """The target's name in SQL."""
        return self.target.sql_name

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return a session for a Delta table."""
        return DeltaTarget.session(spark)

    def sink(self, spark: SparkSession) -> Sink:
        if is_connect(spark):
            raise ArgumentError("MergeEvery requires a classic session: in Spark Connect, pass its DeltaTarget")
        return IntervalSink(self.target.sink(spark), ChangesSink(spark, changes_target(self.target)), seconds_of(self.interval), self.known)


@dataclass(frozen=True)
class ChangesSink(LakeSink):
    """The table with the changes that are not merged."""

    def layout(self, spec: TableSpec) -> str:
        """Return the columns, as ``CREATE TABLE`` declares them."""
        from pyspark.sql.types import LongType, StringType, StructField, StructType

        types = dict(zip(_OF_BATCH, (StringType(), LongType(), LongType(), StringType()), strict=True))
        parts = {name: StructType(fields) for name, fields in _parts(spec).items() if fields}
        return ", ".join(column_definition(StructField(name, kind), self.table) for name, kind in (types | parts).items())

    def create_statement(self, spec: TableSpec) -> str:
        """Return the statement that creates the table, or replaces an empty one that has other columns."""
        # Names of columns come from messages. No query reads the statistics.
        properties = "'delta.columnMapping.mode' = 'name', 'delta.dataSkippingNumIndexedCols' = '0'"
        table = f"{self.table.sql_name} ({self.layout(spec)}) USING delta PARTITIONED BY (query, batch)"
        return f"CREATE OR REPLACE TABLE {table} TBLPROPERTIES ({properties})"

    def spec(self) -> TableSpec | None:
        """Return the columns and key of the changes; None without the table.

        Raises
        ------
        TargetError
            When the table is one of somebody else.
        """
        found = self._schema()
        if found is None:
            return None
        names = found.fieldNames()
        if names[:6] != [*_OF_BATCH, _KEY, _ROW] or names[6:] not in ([], [_DELETED]):
            raise TargetError(f"MergeEvery keeps changes in {self.table}, which has other columns: rename it, or choose another target")
        deleted = _fields_of(found, _DELETED)
        return TableSpec(
            tuple(_fields_of(found, _ROW) + deleted),
            tuple(each.name for each in _fields_of(found, _KEY)),
            create=True,
            on_new_column="add",
            deleted_column=deleted[0].name if deleted else None,
        )

    def waiting(self) -> Waiting:
        """Return what the table has."""
        from pyspark.sql import functions as F

        spec = self.spec()
        if spec is None:
            return Waiting({})
        found = self.rows().groupBy("query").agg(F.max("batch").alias("batch"), F.min("appended_ms").alias("since")).collect()
        return Waiting({row["query"]: row["batch"] for row in found}, min((row["since"] for row in found), default=0), self.layout(spec))

    def put(self, latest: DataFrame, spec: TableSpec, batch: Batch, now: int) -> None:
        """Append the changes of a micro-batch, in place of those of an earlier attempt."""
        from pyspark.sql import functions as F

        of_batch = zip(_OF_BATCH, (F.lit(batch.query), F.lit(batch.number), F.lit(now), F.col(ROW_KIND)), strict=True)
        parts = [
            F.struct(*(F.col(backquoted(each.name)) for each in fields)).alias(name) for name, fields in _parts(spec).items() if fields
        ]
        rows = latest.select(*(value.alias(name) for name, value in of_batch), *parts)
        with self.conflicts():
            rows.writeTo(self.table.sql_name).overwrite(_until({batch.query: batch.number}, first=batch.number))

    def last(self, spec: TableSpec, batches: Mapping[str, int] | None = None, version: int | None = None) -> DataFrame:
        """Return the last change of each key, of these micro-batches or of a version of the table."""
        from pyspark.sql import functions as F

        rows = self.rows().where(_until(batches)) if batches is not None else _at(self.spark, self.table, version)
        deleted = [_DELETED] * (spec.deleted_column is not None)
        last = F.max_by(F.struct(ROW_KIND, _ROW, *deleted), "batch").alias("last")
        return rows.groupBy(_KEY).agg(last).select(f"last.{ROW_KIND}", f"last.{_ROW}.*", *(f"last.{each}.*" for each in deleted))

    def remove(self, batches: Mapping[str, int]) -> None:
        """Remove the changes of these micro-batches."""
        where = " OR ".join(f"query = '{query}' AND batch <= {number}" for query, number in batches.items())
        with self.conflicts():
            self.spark.sql(f"DELETE FROM {self.table.sql_name} WHERE {where}")


@dataclass(frozen=True)
class IntervalSink(Sink):
    """Appends changes, and merges them at an interval."""

    target: Sink
    changes: ChangesSink
    seconds: int
    known: list[Waiting]

    def needed(self, spec: TableSpec) -> list[str]:
        return self.target.needed(spec)

    def prepare(self, spec: TableSpec) -> TableSpec:
        return self.target.prepare(spec)

    def widen(self, old: StructField, new: StructField, *, in_key: bool = False) -> list[str]:
        return self.target.widen(old, new, in_key=in_key)

    def conflicts(self) -> AbstractContextManager[None]:
        return self.target.conflicts()

    def merge(self, latest: DataFrame, spec: TableSpec, keep: Callable[[DataFrame], DataFrame] | None = None) -> None:
        batch = running_batch(self.changes.spark)
        waiting = self.known.pop() if self.known else self.changes.waiting()
        # Only the target completes partial rows.
        if batch is None or ABSENT_COLUMN in latest.columns or BASE_COLUMN in latest.columns:
            self.merge_changes(waiting.batches)
            self.target.merge(latest, spec, keep)
            waiting = waiting._replace(batches={})
        else:
            waiting = self._put(latest, spec, batch, waiting)
        self.known.append(waiting)

    def _put(self, latest: DataFrame, spec: TableSpec, batch: Batch, waiting: Waiting) -> Waiting:
        """Append changes, and merge all if it is time; return what waits then."""
        layout, now = self.changes.layout(spec), int(time.time() * 1000)
        earlier = waiting.batches
        # A new checkpoint, or one that was set back, numbers its micro-batches anew.
        if layout != waiting.layout or any(query != batch.query or number > batch.number for query, number in earlier.items()):
            self.merge_changes(earlier)
            earlier = {}
        if layout != waiting.layout:
            self.changes.spark.sql(self.changes.create_statement(spec))
        self.changes.put(latest, spec, batch, now)
        since, batches = waiting.since if earlier else now, {batch.query: batch.number}
        if now - since >= self.seconds * 1000:
            self.merge_changes(batches)
            batches = {}
        return Waiting(batches, since, layout)

    def merge_changes(self, batches: Mapping[str, int]) -> None:
        """Merge the changes of these micro-batches, and remove them."""
        spec = self.changes.spec() if batches else None
        if spec is not None:
            with computed(self.changes.last(spec, batches)) as rows:
                self.target.merge(rows, spec)
            self.changes.remove(batches)


def merge_changes(spark: SparkSession, target: DeltaTarget) -> None:
    """Merge all changes into a table that was a target of `MergeEvery`; stop its query before.

    Parameters
    ----------
    spark : SparkSession
    target : DeltaTarget

    Raises
    ------
    ArgumentError, TargetError, ConflictError
    """
    session = MergeEvery.session(spark)
    changes = ChangesSink(session, changes_target(target))
    sink = IntervalSink(target.sink(session), changes, 0, [])
    repeat_conflicts(lambda: sink.merge_changes(changes.waiting().batches))


def require_merged(spark: SparkSession, target: TableTarget) -> None:
    """Raise an error for a table with changes that are not merged: other ways to write it would ignore them.

    Raises
    ------
    TargetError
    """
    if not isinstance(target, DeltaTarget):
        return
    changes = ChangesSink(spark, changes_target(target))
    if changes.spec() is not None and not changes.rows().isEmpty():
        raise TargetError(
            f"{changes.table} has changes that are not merged into {target}: pass MergeEvery({target}, ...), or first call "
            "merge_changes(spark, target) of normalize.sinks.merge_every"
        )


def fresh_rows(spark: SparkSession, target: DeltaTarget) -> DataFrame:
    """Return the rows of a target of `MergeEvery` with the changes that are not merged yet, as they are now.

    The DataFrame is one state of the table: call this function again to see newer changes.

    Parameters
    ----------
    spark : SparkSession
    target : DeltaTarget

    Raises
    ------
    TargetError
        When the table with the changes cannot be read.
    """
    from pyspark.sql import functions as F

    changes = ChangesSink(spark, changes_target(target))
    spec = changes.spec()
    if spec is None:
        return target.sink(spark).rows()
    # Changes leave their table after they are in the target: a target that is the same before and after has none of them twice or never.
    version, of_changes = _version(spark, target), _version(spark, changes.table)
    while version != (version := _version(spark, target)):
        of_changes = _version(spark, changes.table)
    stored, last = _at(spark, target, version).alias("t"), changes.last(spec, version=of_changes).alias("s")
    adds, own = F.col(f"s.{ROW_KIND}").isin(*ADDS), {name.lower(): name for name in spec.names}
    same = [F.col(f"t.{backquoted(name)}") == F.col(f"s.{backquoted(name)}") for name in spec.primary_key]
    updated, inserted = list[SparkColumn](), list[SparkColumn]()
    for each in stored.schema:
        name, there = own.get(each.name.lower()), F.col(f"t.{backquoted(each.name)}")
        change = F.lit(None).cast(each.dataType) if name is None else F.col(f"s.{backquoted(name)}").cast(each.dataType)
        # The first delete counts, as in the MERGE.
        unchanged = F.coalesce(there, change) if name is not None and name == spec.deleted_column else there
        updated.append((there if name is None else F.when(adds, change).otherwise(unchanged)).alias(each.name))
        inserted.append(change.alias(each.name))
    kept = F.lit(True) if spec.deleted_column is not None else F.col(f"s.{ROW_KIND}").isNull() | adds
    changed = stored.join(last, same, "left_semi").alias("t")
    new = last.where(adds).join(changed, same, "left_anti")
    return stored.join(last, same, "left").where(kept).select(*updated).union(new.select(*inserted))


def _parts(spec: TableSpec) -> dict[str, list[StructField]]:
    """Return the fields of each struct."""
    return {
        _KEY: [each for each in spec.fields if each.name in spec.primary_key],
        _ROW: [each for each in spec.fields if each.name != spec.deleted_column],
        _DELETED: [each for each in spec.fields if each.name == spec.deleted_column],
    }


def _fields_of(schema: StructType, name: str) -> list[StructField]:
    from pyspark.sql.types import StructType

    kind = schema[name].dataType if name in schema.fieldNames() else StructType()
    assert isinstance(kind, StructType)
    return kind.fields


def _until(batches: Mapping[str, int], first: int = 0) -> SparkColumn:
    """Return the condition of these micro-batches and those before them."""
    from pyspark.sql import functions as F

    of_queries = ((F.col("query") == query) & F.col("batch").between(first, number) for query, number in batches.items())
    return reduce(or_, of_queries)


def _version(spark: SparkSession, table: LakeTarget) -> int:
    row = spark.sql(f"DESCRIBE HISTORY {table.sql_name} LIMIT 1").first()
    assert row is not None  # a table has a first version
    return int(row["version"])


def _at(spark: SparkSession, table: LakeTarget, version: int | None) -> DataFrame:
    return spark.sql(f"SELECT * FROM {table.sql_name} VERSION AS OF {version}")
