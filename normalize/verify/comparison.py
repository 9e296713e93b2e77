"""The comparison of two tables: all rows at first, then the keys that differed, repeatedly.

::

    source at one position ──► key, row hash ─┐
                                              ├─► count and sum of hashes by range of keys ─► ranges that differ ─► keys that differ
    target                 ──► key, row hash ─┘                                                                     │
                                                                        ▲                                           ▼
                                                                        └────── again until they are equal, or proven different

A range is one of the hash of a key, so that both sides divide keys in the same way, whatever
collation a database orders text by.

Both sides are equal for a key if the target has the row that the source has at the position of its
snapshot. That depends on the two rows alone, and not on what the target has applied. A key that
differs is not known to be different: the target may be behind, or ahead. Such keys are read again,
the source first. A key is *different* if it still differs after its source row did not change for
the longest time that the target may be behind. If its source row keeps changing, nothing is known
about it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession, functions as F
from pyspark.sql.types import StructType

from cdc_formats.errors import ArgumentError
from cdc_formats.values.key_range import Key, KeyRange
from cdc_formats.values.schema import backquoted
from normalize.tables.expressions import COMPUTED_PROPERTY, DELETED_PROPERTY, computed_columns
from normalize.tables.targets import TargetError
from normalize.tables.writers.lake import LakeTarget, properties_of

from .canonical import HASHES, ROW_HASH, ComparedColumn, hashed
from .chunk import Where, listed, next_rows
from .verification import KINDS, Difference, Kind, Verification

# --------------------------------------------------------------------------------------------------
# What a comparison needs of a table, and tables of the session's catalogs (Delta, Iceberg).


class Snapshot(NamedTuple):
    """A table's rows at one position.

    Attributes
    ----------
    rows : DataFrame
    position : str
        Empty for a target.
    """

    rows: DataFrame
    position: str


class ComparableTable(Protocol):
    """A table that can be compared."""

    @property
    def name(self) -> str:
        """The table's name, without secrets."""

    @property
    def schema(self) -> StructType:
        """The columns as Spark reads them."""

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key columns; empty if the table does not declare any."""

    @property
    def json_columns(self) -> frozenset[str]:
        """The columns of type JSON."""

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Return all rows as of one position; they can be read until the end of the block."""

    def current(self, names: Sequence[str], where: Where) -> Snapshot:
        """Return at least the current rows that SQL selects by the key columns, called `names`."""


class TargetTable(ComparableTable, Protocol):
    """A target table."""

    @property
    def deleted_column(self) -> str | None:
        """The column of soft deletes that the table declares, or None."""

    @property
    def computed_columns(self) -> frozenset[str]:
        """The computed columns that the table declares, in lower case."""


@dataclass(frozen=True)
class LakeTable:
    """A Delta or Iceberg table."""

    spark: SparkSession
    target: LakeTarget

    primary_key = ()
    json_columns: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        return self.target.name

    @property
    def schema(self) -> StructType:
        return self._read().schema

    @property
    def deleted_column(self) -> str | None:
        return properties_of(self.spark, self.target).get(DELETED_PROPERTY)

    @property
    def computed_columns(self) -> frozenset[str]:
        return computed_columns(properties_of(self.spark, self.target).get(COMPUTED_PROPERTY, "[]"))

    def _read(self) -> DataFrame:
        try:
            self.target.refresh(self.spark)
            return self.spark.table(self.target.sql_name)
        except AnalysisException as error:
            raise TargetError(
                f"{self.target} cannot be read: {' '.join(str(error).split())[:300]}"
            ) from None

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        yield Snapshot(self._read(), "")

    def current(self, names: Sequence[str], where: Where) -> Snapshot:
        return Snapshot(self._read(), "")


RANGES = 4_096
"""The number of ranges of the hash of a key."""
MOST_KEYS = 10_000
"""The most keys that are compared again."""
_LOOKS_PER_LAG = 4
_PATIENCE = 5
"""After how many times the longest lag keys whose source rows keep changing are given up."""


class RowsOfKey(NamedTuple):
    """The rows of a key in one table.

    Attributes
    ----------
    number : int
    total : int
        The sum of their row hashes.
    columns : tuple of int
        The hash of each column of one of them; empty if unknown.
    """

    number: int
    total: int
    columns: tuple[int, ...] = ()


_NONE = RowsOfKey(0, 0)


class Pair(NamedTuple):
    """The rows of a key in both tables."""

    source: RowsOfKey
    target: RowsOfKey

    @property
    def is_equal(self) -> bool:
        return self.source[:2] == self.target[:2]

    @property
    def kind(self) -> Kind:
        if not self.target.number:
            return "missing"
        if not self.source.number:
            return "extra"
        return "duplicate" if self.target.number > self.source.number else "different"


class Scan(NamedTuple):
    """The result of a comparison of all rows, or of a chunk.

    Attributes
    ----------
    position : str
    source_rows, target_rows : int
        The source's that were read, also if the target does not have them by design.
    differing : dict of Key to Pair
        At most `MOST_KEYS`.
    is_complete : bool
        Whether these are all keys that differ.
    upto : Key or None
        The last key of a chunk; None: the table has no more rows.
    """

    position: str
    source_rows: int
    target_rows: int
    differing: dict[Key, Pair]
    is_complete: bool
    upto: Key | None = None


Look = Callable[[Sequence[Key]], tuple[dict[Key, Pair], str]]
"""Returns both tables' rows of some keys as of now, and the source's position. It reads the source
first."""


class Pending(NamedTuple):
    """A key that differed, and is looked at again.

    Attributes
    ----------
    pair : Pair
        The rows of the last look.
    began : float
        When it differed first.
    since : float
        Since when its source row did not change, or since a pause.
    waited : bool
        Whether the times began again after a pause.
    """

    pair: Pair
    began: float
    since: float
    waited: bool = False


class Looks:
    """Looks at keys that differed until each is equal, proven different, or given up.

    Parameters
    ----------
    max_lag_seconds : float
    clock, sleep : callable
        Seconds, and a pause.
    applied : callable or None
        Returns the time up to which the target has the changes that were written to its topics.
        None: the lag alone decides.
    """

    def __init__(
        self,
        max_lag_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        applied: Callable[[], float] | None = None,
    ) -> None:
        self.max_lag, self.clock, self.sleep = max_lag_seconds, clock, sleep
        self.applied = applied or clock
        self.pending: dict[Key, Pending] = {}
        self.proven: dict[Key, Pair] = {}
        self.unsettled: dict[Key, Pair] = {}
        self.position: str | None = None

    @property
    def kinds(self) -> dict[Key, Kind]:
        """How each key differs that is proven different."""
        return {key: pair.kind for key, pair in self.proven.items()}

    def run(self, look: Look, differing: Mapping[Key, Pair]) -> None:
        """Look at keys until nothing more can be found out; sets `proven` and `unsettled`."""
        self.add(differing)
        while self.pending:
            self.step(look)
            if self.pending:
                self.sleep(self.max_lag / _LOOKS_PER_LAG)

    def add(self, differing: Mapping[Key, Pair]) -> None:
        """Take keys that differ."""
        now = self.clock()
        self.pending |= {key: Pending(pair, now, now) for key, pair in differing.items()}

    def wait_again(self) -> None:
        """Begin the lag again, once for each key: after a pause, a producer catches up first."""
        now = self.clock()
        for key, each in self.pending.items():
            if not each.waited:
                self.pending[key] = Pending(each.pair, now, now, waited=True)

    def step(self, look: Look) -> None:
        """Look at the keys once more."""
        applied, before = self.applied(), self.pending
        pairs, self.position = look(list(before))
        self.pending, seen = {}, self.clock()
        for key, last in before.items():
            pair, since = pairs[key], last.since
            is_same = pair.source[:2] == last.pair.source[:2]
            if pair.is_equal:
                continue
            if is_same and applied - since >= self.max_lag:
                self.proven[key] = pair
            elif applied - last.began > _PATIENCE * self.max_lag:
                self.unsettled[key] = pair
            else:
                self.pending[key] = last._replace(pair=pair, since=since if is_same else seen)


# --------------------------------------------------------------------------------------------------
# with Spark


@dataclass(frozen=True)
class Comparison:
    """Two tables, and how their rows are compared."""

    spark: SparkSession
    source: ComparableTable
    target: ComparableTable
    columns: tuple[ComparedColumn, ...]
    keys: tuple[str, ...]
    not_compared: tuple[str, ...]
    target_where: str
    deleted_column: str | None
    """The target's column of soft deletes, whose rows are not compared; empty if it has hard
    deletes, None if it is not known."""
    source_where: Callable[[DataFrame], DataFrame] = lambda rows: rows
    """Selects the source's rows that the target has."""

    @property
    def target_keys(self) -> tuple[str, ...]:
        """The target's names of the key columns."""
        return tuple(column.target_name for column in self.key_columns)

    @property
    def _names(self) -> list[str]:
        """The names of the key columns in rows that are `hashed`."""
        return [f"k{index}" for index in range(len(self.keys))]

    @property
    def key_columns(self) -> list[ComparedColumn]:
        """The key columns, in the order of the key."""
        return [column for name in self.keys for column in self.columns if column.name == name]

    def scan(self) -> Scan:
        """Compare all rows of the source at one position with the target's."""
        with self.source.snapshot() as read, self.target.snapshot() as copy:
            return self._compared(read, copy.rows)

    def chunk(self, after: Key | None, most: int) -> Scan:
        """Compare the next rows in the order of the key with the target's present ones.

        Raises
        ------
        ArgumentError
            When the tables may order keys in two ways.
        """
        if names := [each.name for each in self.key_columns if not each.has_one_order]:
            raise ArgumentError(
                f"source and target may not order the key column {backquoted(names[0])} in one way, "
                "because of its types: call verify_table"
            )
        ahead = KeyRange(after, None)
        read = self.source.current(self.keys, partial(next_rows, keys=ahead, most=most))
        rows = read.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            of_rows = (
                hashed(rows, self.key_columns, self.keys, of_target=False).drop(ROW_HASH).toArrow()
            )
            last = of_rows.slice(most - 1).to_pylist()
            upto = tuple(last[0].values()) if last else None
            keys = ahead._replace(upto=upto)
            where = partial(next_rows, keys=keys, most=None)
            copy = self.target.current(self.target_keys, where).rows
            within = _within(copy, [each.target_value for each in self.key_columns], keys)
            scan = self._compared(read._replace(rows=rows), within)
            return scan._replace(source_rows=of_rows.num_rows, upto=upto)
        finally:
            rows.unpersist()

    def look(self, keys: Sequence[Key]) -> tuple[dict[Key, Pair], str]:
        """Return both tables' rows of some keys, and the source's position."""
        rows, position = self.rows_of_keys(keys, of_target=False)
        source = self._of_keys(rows)
        target = self._of_keys(self.rows_of_keys(keys, of_target=True)[0])
        return {key: Pair(source.get(key, _NONE), target.get(key, _NONE)) for key in keys}, position

    def result(
        self, scan: Scan, looks: Looks, limit: int, seconds: float, repaired: int
    ) -> Verification:
        """Return the result of a scan and the looks after it."""
        counts = dict.fromkeys(KINDS, 0) | Counter(looks.kinds.values())
        listed = sorted(
            looks.proven.items(),
            key=lambda each: [(text is not None, len(text or ""), text or "") for text in each[0]],
        )
        differences = tuple(self.difference(*each) for each in listed[:limit])
        return Verification(
            source=self.source.name,
            target=self.target.name,
            position=scan.position,
            source_rows=scan.source_rows,
            target_rows=scan.target_rows,
            columns=tuple(column.name for column in self.columns),
            not_compared=self.not_compared,
            counts=counts,
            unsettled=len(looks.unsettled),
            differences=differences,
            rechecked=len(scan.differing),
            rechecked_position=looks.position,
            is_complete=scan.is_complete,
            repaired=repaired,
            seconds=seconds,
        )

    def difference(self, key: Key, pair: Pair) -> Difference:
        """Return how a key differs, and in which columns."""
        hashes = zip(self.columns, pair.source.columns, pair.target.columns, strict=False)
        is_different = pair.kind == "different"
        names = (each.name for each, of, copied in hashes if is_different and of != copied)
        return Difference(pair.kind, tuple(zip(self.keys, key, strict=True)), tuple(names))

    def _hashed(self, rows: DataFrame, *, of_target: bool, detailed: bool = False) -> DataFrame:
        not_deleted = (
            f"{backquoted(self.deleted_column)} IS NULL" if self.deleted_column else "TRUE"
        )
        rows = (
            rows.where(not_deleted).where(self.target_where or "TRUE")
            if of_target
            else self.source_where(rows)
        )
        return hashed(rows, self.columns, self.keys, of_target=of_target, detailed=detailed)

    def _compared(self, read: Snapshot, copy: DataFrame) -> Scan:
        """Return the keys whose rows differ, and how many rows there are.

        Ranges of keys are compared first: their groups are few, and often all of them are equal.
        """
        source = self._hashed(read.rows, of_target=False).persist(StorageLevel.DISK_ONLY)
        try:
            target = self._hashed(copy, of_target=True).withColumn("of_target", F.lit(True))
            rows = source.withColumn("of_target", F.lit(False)).unionByName(target)
            key_range = F.pmod(F.xxhash64(*self._names), F.lit(RANGES)).alias("key_range")
            ranges = _groups(rows, key_range).collect()
            differ = [row.key_range for row in ranges if not _pair(row).is_equal]
            keys = _groups(rows.where(key_range.isin(differ)), *self._names).orderBy(*self._names)
            keys = keys.where("source <> target OR source_hash <> target_hash").limit(MOST_KEYS + 1)
            different = keys.collect() if differ else []
        finally:
            source.unpersist()
        pairs = {
            tuple(row[name] for name in self._names): _pair(row) for row in different[:MOST_KEYS]
        }
        totals = sum(row.source for row in ranges), sum(row.target for row in ranges)
        return Scan(read.position, *totals, pairs, len(different) <= MOST_KEYS)

    def rows_of_keys(self, keys: Sequence[Key], *, of_target: bool) -> tuple[DataFrame, str]:
        """Return one table's rows of some keys as of now, and the source's position.

        The rows are as `hashed` returns them in detail.
        """
        table, key_columns = (
            (self.target, self.target_keys) if of_target else (self.source, self.keys)
        )
        snapshot = table.current(key_columns, partial(listed, keys=keys))
        key_rows = self.spark.createDataFrame(
            [tuple(key) for key in keys],
            ", ".join(f"w{index} STRING" for index in range(len(self.keys))),
        )
        with_hashes = self._hashed(snapshot.rows, of_target=of_target, detailed=True)
        is_listed = [
            F.col(name).eqNullSafe(F.col(f"w{index}")) for index, name in enumerate(self._names)
        ]
        return with_hashes.join(F.broadcast(key_rows), is_listed, "left_semi"), snapshot.position

    def _of_keys(self, rows: DataFrame) -> dict[Key, RowsOfKey]:
        of_keys: dict[Key, RowsOfKey] = {}
        for row in rows.select(*self._names, ROW_HASH, HASHES).collect():
            key = tuple(row[name] for name in self._names)
            rows_before = of_keys.get(key, _NONE)
            of_keys[key] = RowsOfKey(
                rows_before.number + 1, rows_before.total + row[ROW_HASH], tuple(row[HASHES])
            )
        return of_keys


def _within(rows: DataFrame, values: Sequence[str], keys: KeyRange) -> DataFrame:
    """Return the rows in a range of keys, whose columns have these expressions."""
    kinds = [kind for _, kind in rows.selectExpr(*values).dtypes]
    for operator, key in keys.ends:
        bounds = [
            f"X'{text}'"
            if kind == "binary"
            else f"CAST(CAST(X'{str(text).encode().hex()}' AS STRING) AS {kind})"
            for text, kind in zip(key, kinds, strict=True)
        ]
        of_rows, of_key = (
            ", ".join(f"{value} AS k{index}" for index, value in enumerate(side))
            for side in (values, bounds)
        )
        # The first column alone, too: files without its values are skipped.
        first = f"{values[0]} {operator[0]}= {bounds[0]}"
        rows = rows.where(f"{first} AND struct({of_rows}) {operator} struct({of_key})")
    return rows


def _groups(rows: DataFrame, *by: str | Column) -> DataFrame:
    """Return how many rows each group has in both tables, and the sums of their hashes."""
    values = []
    for name, condition in (("source", ~F.col("of_target")), ("target", F.col("of_target"))):
        row_hash = F.when(condition, F.col(ROW_HASH).cast("decimal(20,0)")).otherwise(0)
        values += [F.count_if(condition).alias(name), F.sum(row_hash).alias(f"{name}_hash")]
    return rows.groupBy(*by).agg(*values)


def _pair(row: Row) -> Pair:
    return Pair(
        RowsOfKey(row.source, int(row.source_hash)), RowsOfKey(row.target, int(row.target_hash))
    )
