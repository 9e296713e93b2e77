"""The comparison of two tables: all rows at first, then the keys that differed, repeatedly.

::

    source at one position ──► key, row hash ──► count and sum of hashes by range of keys ─┐
                                                                                           ├─► ranges that differ ──► keys that differ
    target                 ──► key, row hash ──► count and sum of hashes by range of keys ─┘                          │
                                                                            ▲                                         ▼
                                                                            └─── again until they are equal, or proven different

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
from typing import NamedTuple, Protocol

from pyspark import StorageLevel
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from cdc_formats.values.schema import backquoted
from normalize.tables.expressions import COMPUTED_PROPERTY, DELETED_PROPERTY, computed_columns
from normalize.tables.targets import TargetError
from normalize.tables.writers.lake import LakeTarget, properties_of

from .canonical import HASHES, KEY_HASH, ROW_HASH, ComparedColumn, hashed
from .verification import KINDS, Difference, Kind, Verification

# --------------------------------------------------------------------------------------------------
# What a comparison needs of a table, and tables of the session's catalogs (Delta, Iceberg).

Key = tuple["str | None", ...]
"""The values of the key columns as text, in the types in which both tables are compared; binary
values are hexadecimal digits."""


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

    def lookup(self, names: Sequence[str], keys: Sequence[Key]) -> Snapshot:
        """Return at least the current rows with one of the keys; `names` are the key columns."""

    def between(
        self, names: Sequence[str], after: Key | None, upto: Key | None, most: int | None
    ) -> Snapshot:
        """Return the current rows between two keys, at most a number of them.

        With a number they are in the order of the key. Spark orders keys in the same way: text by
        its bytes. Without a number there may be other rows, too.
        """


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
        properties = properties_of(self.spark, self.target)
        return computed_columns(properties.get(COMPUTED_PROPERTY, "[]"))

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

    def lookup(self, names: Sequence[str], keys: Sequence[Key]) -> Snapshot:
        return Snapshot(self._read(), "")

    def between(
        self, names: Sequence[str], after: Key | None, upto: Key | None, most: int | None
    ) -> Snapshot:
        return Snapshot(self._read(), "")


RANGES = 4_096
"""The number of ranges of the hash of a key."""
MOST_KEYS = 10_000
"""The most keys that are compared again."""
_RANGE, _ROWS, _SUM = "key_range", "row_count", "hash_sum"
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
        Of a chunk, only the source's are counted.
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
    look : callable
        Returns both tables' rows of some keys as of now, and the source's position. It reads the
        source first.
    max_lag_seconds : float
    clock, sleep : callable
        Seconds, and a pause.
    applied : callable or None
        Returns the time up to which the target has the changes that were written to its topics.
        None: the lag alone decides.
    """

    def __init__(
        self,
        look: Look,
        max_lag_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        applied: Callable[[], float] | None = None,
    ) -> None:
        self.look, self.max_lag = look, max_lag_seconds
        self.clock, self.sleep = clock, sleep
        self.applied = applied or clock
        self.pending: dict[Key, Pending] = {}
        self.proven: dict[Key, Pair] = {}
        self.unsettled: dict[Key, Pair] = {}
        self.position: str | None = None

    @property
    def kinds(self) -> dict[Key, Kind]:
        """How each key differs that is proven different."""
        return {key: pair.kind for key, pair in self.proven.items()}

    def take_proven(self) -> dict[Key, Pair]:
        """Return the keys that are proven different, to look at them again."""
        proven, self.proven = self.proven, {}
        return proven

    def run(self, differing: Mapping[Key, Pair]) -> None:
        """Look at keys until nothing more can be found out; sets `proven` and `unsettled`."""
        self.add(differing)
        while self.pending:
            self.step()
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

    def step(self) -> None:
        """Look at the keys once more."""
        applied, before = self.applied(), self.pending
        pairs, self.position = self.look(list(before))
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
        return tuple(column.target_name for column in self._key_columns())

    def _key_columns(self) -> list[ComparedColumn]:
        return [column for name in self.keys for column in self.columns if column.name == name]

    def scan(self) -> Scan:
        """Compare all rows."""
        with self.source.snapshot() as snapshot:
            source = self._hashed(snapshot.rows, of_target=False).persist(StorageLevel.DISK_ONLY)
            try:
                source_ranges = _ranges(source)
                with self.target.snapshot() as copy:
                    target = self._hashed(copy.rows, of_target=True)
                    target_ranges = _ranges(target)
                    differ = [
                        number
                        for number in range(RANGES)
                        if source_ranges.get(number) != target_ranges.get(number)
                    ]
                    sides = [side.where(F.col(_RANGE).isin(differ)) for side in (source, target)]
                    differing, is_complete = self._differing(*sides) if differ else ({}, True)
            finally:
                source.unpersist()
        rows = [
            sum(count for count, _ in ranges.values()) for ranges in (source_ranges, target_ranges)
        ]
        return Scan(snapshot.position, rows[0], rows[1], differing, is_complete)

    def chunk(self, after: Key | None, most: int) -> Scan:
        """Compare the next rows in the order of the key with the target's present ones."""
        snapshot = self.source.between(self.keys, after, None, most)
        rows = snapshot.rows.persist(StorageLevel.MEMORY_AND_DISK)
        try:
            names, key_columns = (
                [f"k{index}" for index in range(len(self.keys))],
                self._key_columns(),
            )
            keys = hashed(rows, key_columns, self.keys, of_target=False).select(*names).toArrow()
            last = keys.slice(most - 1).to_pylist()
            upto = tuple(last[0].values()) if last else None
            copy = self.target.between(self.target_keys, after, upto, None).rows
            sides = [
                self._hashed(_within(side, values, after, upto), of_target=of_target)
                for of_target, side, values in (
                    (False, rows, [each.source_value for each in key_columns]),
                    (True, copy, [each.target_value for each in key_columns]),
                )
            ]
            differing, is_complete = self._differing(*sides)
        finally:
            rows.unpersist()
        return Scan(snapshot.position, keys.num_rows, 0, differing, is_complete, upto)

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
        pairs = tuple(zip(self.keys, key, strict=True))
        return Difference(pair.kind, pairs, self._different_columns(pair))

    def _hashed(self, rows: DataFrame, *, of_target: bool, detailed: bool = False) -> DataFrame:
        if not of_target:
            rows = self.source_where(rows)
        if of_target and self.deleted_column:
            rows = rows.where(F.col(backquoted(self.deleted_column)).isNull())
        if of_target and self.target_where:
            rows = rows.where(self.target_where)
        with_hashes = hashed(rows, self.columns, self.keys, of_target=of_target, detailed=detailed)
        return with_hashes.withColumn(_RANGE, F.pmod(F.col(KEY_HASH), F.lit(RANGES)).cast("int"))

    def _differing(self, source: DataFrame, target: DataFrame) -> tuple[dict[Key, Pair], bool]:
        """Return the keys of some ranges that differ, and whether they are all."""
        names = [f"k{index}" for index in range(len(self.keys))]
        sides = [
            side.withColumn("of_target", F.lit(number))
            for number, side in enumerate((source, target))
        ]
        by_key = sides[0].unionByName(sides[1]).groupBy(*names, KEY_HASH)
        counts = [F.count_if(F.col("of_target") == number) for number in (0, 1)]
        sums = [
            F.sum(F.when(F.col("of_target") == number, F.col(ROW_HASH).cast("decimal(20,0)")))
            for number in (0, 1)
        ]
        aggregates = zip(
            ("source_count", "target_count", "source_hash", "target_hash"),
            [*counts, *sums],
            strict=True,
        )
        compared = by_key.agg(*(value.alias(name) for name, value in aggregates))
        differ = compared.where("source_count <> target_count OR NOT source_hash <=> target_hash")
        differing = differ.orderBy(KEY_HASH).limit(MOST_KEYS + 1).collect()
        pairs = {
            tuple(row[name] for name in names): Pair(
                RowsOfKey(row.source_count, int(row.source_hash or 0)),
                RowsOfKey(row.target_count, int(row.target_hash or 0)),
            )
            for row in differing[:MOST_KEYS]
        }
        return pairs, len(differing) <= MOST_KEYS

    def rows_of_keys(self, keys: Sequence[Key], *, of_target: bool) -> tuple[DataFrame, str]:
        """Return one table's rows of some keys as of now, and the source's position.

        The rows are as `hashed` returns them in detail.
        """
        table, key_columns = (
            (self.target, self.target_keys) if of_target else (self.source, self.keys)
        )
        snapshot = table.lookup(key_columns, keys)
        names = [f"k{index}" for index in range(len(self.keys))]
        listed = self.spark.createDataFrame(
            [tuple(key) for key in keys],
            ", ".join(f"w{index} STRING" for index in range(len(names))),
        )
        with_hashes = self._hashed(snapshot.rows, of_target=of_target, detailed=True)
        is_listed = [F.col(name).eqNullSafe(F.col(f"w{index}")) for index, name in enumerate(names)]
        return with_hashes.join(F.broadcast(listed), is_listed, "left_semi"), snapshot.position

    def _of_keys(self, rows: DataFrame) -> dict[Key, RowsOfKey]:
        names = [f"k{index}" for index in range(len(self.keys))]
        of_keys: dict[Key, RowsOfKey] = {}
        for row in rows.select(*names, ROW_HASH, HASHES).collect():
            key = tuple(row[name] for name in names)
            rows_before = of_keys.get(key, _NONE)
            of_keys[key] = RowsOfKey(
                rows_before.number + 1, rows_before.total + row[ROW_HASH], tuple(row[HASHES])
            )
        return of_keys

    def _different_columns(self, pair: Pair) -> tuple[str, ...]:
        if pair.kind != "different":
            return ()
        hashes = zip(self.columns, pair.source.columns, pair.target.columns, strict=True)
        return tuple(
            column.name for column, of_source, of_target in hashes if of_source != of_target
        )


def _within(
    rows: DataFrame, values: Sequence[str], after: Key | None, upto: Key | None
) -> DataFrame:
    """Return the rows between two keys, whose columns have these expressions."""
    kinds = [kind for _, kind in rows.selectExpr(*values).dtypes]
    for operator, key in ((">", after), ("<=", upto)):
        if key is not None:
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


def _ranges(side: DataFrame) -> dict[int, tuple[int, int]]:
    """Return the number of rows and the sum of their hashes for each range of keys."""
    total = F.sum(F.col(ROW_HASH).cast("decimal(20,0)")).alias(_SUM)
    ranges = side.groupBy(_RANGE).agg(F.count("*").alias(_ROWS), total).collect()
    return {row[_RANGE]: (row[_ROWS], int(row[_SUM])) for row in ranges}
