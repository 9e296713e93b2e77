"""`verify_table`: whether a target table equals its source table.

::

    source at one position ──► key, row hash ──► count and sum of hashes by range of keys ─┐
                                                                                           ├─► ranges that differ ──► keys that differ
    target                 ──► key, row hash ──► count and sum of hashes by range of keys ─┘                          │
                                                                            ▲                                         ▼
                                                                            └─── again until they are equal, or proven different

A range is one of the hash of a key, so that both sides divide keys in the same way, whatever collation a database orders text by.

Both sides are equal for a key if the target has the row that the source has at the position of its snapshot. That is a fact about two
contents. It needs no knowledge of what the target has applied. A key that differs is not a fact yet: the target may be behind, or ahead.
Such keys are read again, the source first. A key is *different* if it still differs after its source row did not change for the longest
time that the target may be behind. If its source row keeps changing, nothing is known about it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NamedTuple
from urllib.parse import urlsplit

from cdc_formats.errors import ArgumentError, MissingDependencyError, SchemaError
from cdc_formats.values.schema import backquoted
from normalize.arguments import names_of
from normalize.connect import require_jvm
from normalize.sinks.jdbc import JdbcTable
from normalize.sinks.lake import LakeTarget, lake_target
from normalize.sinks.targets import TableTarget

from .canonical import HASHES, KEY_HASH, ROW_HASH, ComparedColumn, compared_column, hashed
from .database_table import DatabaseTable
from .repair import DebeziumSignal, check_repair, merge_source_rows
from .source import JdbcSource
from .tables import ComparableTable, Key, LakeTable
from .verification import KINDS, Difference, Kind, Verification

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGES = 4_096
"""The number of ranges of the hash of a key."""
MOST_KEYS = 10_000
"""The most keys that are compared again."""
_RANGE, _ROWS, _SUM = "key_range", "row_count", "hash_sum"
_LOOKS_PER_LAG = 4
_PATIENCE = 5
"""After how many times the longest lag keys whose source rows keep changing are given up."""
_SCANS = 3


def verify_table(
    spark: SparkSession,
    source: JdbcSource,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    target_where: str = "",
    max_lag_seconds: float = 60.0,
    limit: int = 20,
    repair: Literal["merge"] | DebeziumSignal | None = None,
) -> Verification:
    """Return whether a target table equals its source table at one position of the source's log.

    Neither the writes to the source nor the query that writes the target need to be paused.

    Parameters
    ----------
    spark : SparkSession
        A classic session. For PostgreSQL and for a `JdbcTarget` it needs the database's JDBC driver.
    source : JdbcSource
        For MySQL and MariaDB, the server must write its binary log as for ``mysql-changelog``, and the extra ``capture`` is required.
    target : DeltaTarget, IcebergTarget, JdbcTarget or str
        A string is the name of a Delta or Iceberg table.
    keys : str or sequence of str
        The columns that identify a row, with the source's names; by default the source's primary key. They must not be NULL in the source.
    exclude : str or sequence of str
        Columns of the source that are not compared. Columns that only the target has are never compared, and are listed in the result.
    target_where : str
        SQL that selects the target's rows to compare: ``deleted_at IS NULL`` for soft deletes, ``__END_AT IS NULL`` for a history.
    max_lag_seconds : float
        The longest time that the target may be behind the source. A key that differs all that time, and whose source row did not change
        in that time, is a difference. 0 is right only if the writes are paused and the target has applied all changes.
    limit : int
        The most differences that the result lists.
    repair : "merge", DebeziumSignal or None
        What happens to the rows that differ. ``"merge"`` writes the source's rows of these keys to the target, deletes those that only
        the target has, and compares them again: the result has what still differs. A `DebeziumSignal` asks the connector of the source
        table to read these rows again.

    Returns
    -------
    Verification

    Raises
    ------
    ArgumentError, SchemaError, TargetError
        When the tables cannot be compared: no key, a column that the target lacks, or types without an exact common type.
    CaptureError
        When a MySQL or MariaDB source cannot be read.
    MissingDependencyError

    Notes
    -----
    The whole source table is read once, and the whole target table once; ranges that differ, twice. Keys and hashes (some 50 bytes a row)
    are kept on the executors' disks meanwhile. The hashes are 64 bits long (``xxhash64``): a row that differs goes unnoticed with a
    probability of 1 in 1.8e19. They do not protect from somebody who constructs equal hashes.

    Each further look at keys that differed reads those keys from a database, and a whole Delta or Iceberg table.

    A key that the source changed and changed back between two looks counts as unchanged.
    """
    require_jvm(spark, "verify_table", "run it in a classic session")
    if max_lag_seconds < 0 or limit < 0:
        raise ArgumentError("max_lag_seconds and limit must not be negative")
    began = time.monotonic()
    comparison = _comparison(spark, source, target, names_of(keys), names_of(exclude), target_where)
    if repair is not None:
        check_repair(repair, comparison)
    scan = comparison.scan()
    for attempt in range(_SCANS):
        looks = Looks(comparison.look, max_lag_seconds)
        looks.run(scan.differing)
        if scan.is_complete or looks.proven or attempt == _SCANS - 1:
            break
        scan = comparison.scan()
    repaired = 0
    if repair is not None and looks.proven:
        kinds = {key: pair.kind for key, pair in looks.proven.items()}
        if isinstance(repair, DebeziumSignal):
            repaired = repair.send(spark, source, comparison.keys, kinds)
        else:
            merge_source_rows(comparison, target, kinds)
            looks.run(looks.take_proven())
            repaired = len(kinds) - len(looks.proven) - len(looks.unsettled)
    return comparison.result(scan, looks, limit, time.monotonic() - began, repaired)


# ------------------------------------------------------------------------------------------------------------- what differs


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
    """The result of a comparison of all rows.

    Attributes
    ----------
    position : str
    source_rows, target_rows : int
    differing : dict of Key to Pair
        At most `MOST_KEYS`.
    is_complete : bool
        Whether these are all keys that differ.
    """

    position: str
    source_rows: int
    target_rows: int
    differing: dict[Key, Pair]
    is_complete: bool


Look = Callable[[Sequence[Key]], tuple[dict[Key, Pair], str]]


class Looks:
    """Looks at keys that differed until each is equal, proven different, or given up.

    Parameters
    ----------
    look : callable
        Returns both tables' rows of some keys as of now, and the source's position. It reads the source first.
    max_lag_seconds : float
    clock, sleep : callable
        Seconds, and a pause.
    """

    def __init__(
        self,
        look: Look,
        max_lag_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.look, self.max_lag = look, max_lag_seconds
        self.clock, self.sleep = clock, sleep
        self.proven: dict[Key, Pair] = {}
        self.unsettled: dict[Key, Pair] = {}
        self.position: str | None = None

    def take_proven(self) -> dict[Key, Pair]:
        """Return the keys that are proven different, to look at them again."""
        proven, self.proven = self.proven, {}
        return proven

    def run(self, differing: Mapping[Key, Pair]) -> None:
        """Look at keys until nothing more can be found out; sets `proven` and `unsettled`."""
        pending, began = dict(differing), self.clock()
        unchanged_since = dict.fromkeys(pending, began)
        while pending:
            now = self.clock()
            pairs, self.position = self.look(list(pending))
            seen = self.clock()
            for key, before in list(pending.items()):
                pair = pairs[key]
                if pair.source[:2] != before.source[:2]:
                    unchanged_since[key] = seen
                if pair.is_equal:
                    del pending[key]
                elif pair.source[:2] == before.source[:2] and now - unchanged_since[key] >= self.max_lag:
                    self.proven[key] = pair
                    del pending[key]
                else:
                    pending[key] = pair
            if pending and now - began > _PATIENCE * self.max_lag:
                self.unsettled |= pending
                return
            if pending:
                self.sleep(self.max_lag / _LOOKS_PER_LAG)


# ------------------------------------------------------------------------------------------------------------- with Spark


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

    @property
    def target_keys(self) -> tuple[str, ...]:
        """The target's names of the key columns."""
        return tuple(column.target_name for name in self.keys for column in self.columns if column.name == name)

    def scan(self) -> Scan:
        """Compare all rows."""
        from pyspark import StorageLevel
        from pyspark.sql import functions as F

        with self.source.snapshot() as snapshot:
            source = self._hashed(snapshot.rows, of_target=False).persist(StorageLevel.DISK_ONLY)
            try:
                source_ranges = _ranges(source)
                with self.target.snapshot() as copy:
                    target = self._hashed(copy.rows, of_target=True)
                    target_ranges = _ranges(target)
                    differ = [number for number in range(RANGES) if source_ranges.get(number) != target_ranges.get(number)]
                    sides = [side.where(F.col(_RANGE).isin(differ)) for side in (source, target)]
                    differing, is_complete = self._differing(*sides) if differ else ({}, True)
            finally:
                source.unpersist()
        rows = [sum(count for count, _ in ranges.values()) for ranges in (source_ranges, target_ranges)]
        return Scan(snapshot.position, rows[0], rows[1], differing, is_complete)

    def look(self, keys: Sequence[Key]) -> tuple[dict[Key, Pair], str]:
        """Return both tables' rows of some keys, and the source's position."""
        rows, position = self.rows_of_keys(keys, of_target=False)
        source = self._of_keys(rows)
        target = self._of_keys(self.rows_of_keys(keys, of_target=True)[0])
        return {key: Pair(source.get(key, _NONE), target.get(key, _NONE)) for key in keys}, position

    def result(self, scan: Scan, looks: Looks, limit: int, seconds: float, repaired: int) -> Verification:
        """Return the result of a scan and the looks after it."""
        counts = dict.fromkeys(KINDS, 0)
        for pair in looks.proven.values():
            counts[pair.kind] += 1
        listed = sorted(looks.proven.items(), key=lambda each: [(text is not None, len(text or ""), text or "") for text in each[0]])
        differences = tuple(
            Difference(pair.kind, tuple(zip(self.keys, key, strict=True)), self._different_columns(pair)) for key, pair in listed[:limit]
        )
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

    def _hashed(self, rows: DataFrame, *, of_target: bool, detailed: bool = False) -> DataFrame:
        from pyspark.sql import functions as F

        if of_target and self.target_where:
            rows = rows.where(self.target_where)
        with_hashes = hashed(rows, self.columns, self.keys, of_target=of_target, detailed=detailed)
        return with_hashes.withColumn(_RANGE, F.pmod(F.col(KEY_HASH), F.lit(RANGES)).cast("int"))

    def _differing(self, source: DataFrame, target: DataFrame) -> tuple[dict[Key, Pair], bool]:
        """Return the keys of some ranges that differ, and whether they are all."""
        from pyspark.sql import functions as F

        names = [f"k{index}" for index in range(len(self.keys))]
        sides = [side.withColumn("of_target", F.lit(number)) for number, side in enumerate((source, target))]
        by_key = sides[0].unionByName(sides[1]).groupBy(*names, KEY_HASH)
        counts = [F.count_if(F.col("of_target") == number) for number in (0, 1)]
        sums = [F.sum(F.when(F.col("of_target") == number, F.col(ROW_HASH).cast("decimal(20,0)"))) for number in (0, 1)]
        aggregates = zip(("source_count", "target_count", "source_hash", "target_hash"), [*counts, *sums], strict=True)
        compared = by_key.agg(*(value.alias(name) for name, value in aggregates))
        differ = compared.where("source_count <> target_count OR NOT source_hash <=> target_hash")
        differing = differ.orderBy(KEY_HASH).limit(MOST_KEYS + 1).collect()
        pairs = {
            tuple(row[name] for name in names): Pair(
                RowsOfKey(row.source_count, int(row.source_hash or 0)), RowsOfKey(row.target_count, int(row.target_hash or 0))
            )
            for row in differing[:MOST_KEYS]
        }
        return pairs, len(differing) <= MOST_KEYS

    def rows_of_keys(self, keys: Sequence[Key], *, of_target: bool) -> tuple[DataFrame, str]:
        """Return one table's rows of some keys as of now, as `hashed` does in detail, and the source's position."""
        from pyspark.sql import functions as F

        table, key_columns = (self.target, self.target_keys) if of_target else (self.source, self.keys)
        snapshot = table.lookup(key_columns, keys)
        names = [f"k{index}" for index in range(len(self.keys))]
        listed = self.spark.createDataFrame([tuple(key) for key in keys], ", ".join(f"w{index} STRING" for index in range(len(names))))
        with_hashes = self._hashed(snapshot.rows, of_target=of_target, detailed=True)
        is_listed = [F.col(name).eqNullSafe(F.col(f"w{index}")) for index, name in enumerate(names)]
        return with_hashes.join(F.broadcast(listed), is_listed, "left_semi"), snapshot.position

    def _of_keys(self, rows: DataFrame) -> dict[Key, RowsOfKey]:
        names = [f"k{index}" for index in range(len(self.keys))]
        of_keys: dict[Key, RowsOfKey] = {}
        for row in rows.select(*names, ROW_HASH, HASHES).collect():
            key = tuple(row[name] for name in names)
            rows_before = of_keys.get(key, _NONE)
            of_keys[key] = RowsOfKey(rows_before.number + 1, rows_before.total + row[ROW_HASH], tuple(row[HASHES]))
        return of_keys

    def _different_columns(self, pair: Pair) -> tuple[str, ...]:
        if pair.kind != "different":
            return ()
        hashes = zip(self.columns, pair.source.columns, pair.target.columns, strict=True)
        return tuple(column.name for column, of_source, of_target in hashes if of_source != of_target)


def _ranges(side: DataFrame) -> dict[int, tuple[int, int]]:
    """Return the number of rows and the sum of their hashes for each range of keys."""
    from pyspark.sql import functions as F

    total = F.sum(F.col(ROW_HASH).cast("decimal(20,0)")).alias(_SUM)
    ranges = side.groupBy(_RANGE).agg(F.count("*").alias(_ROWS), total).collect()
    return {row[_RANGE]: (row[_ROWS], int(row[_SUM])) for row in ranges}


# ------------------------------------------------------------------------------------------------------------- the arguments


def _comparison(
    spark: SparkSession, source: JdbcSource, target: TableTarget | str, keys: Sequence[str], exclude: Sequence[str], target_where: str
) -> Comparison:
    """Return how the two tables are compared.

    Raises
    ------
    ArgumentError, SchemaError, TargetError
    """
    read, copy = _source_table(spark, source), _target_table(spark, target)
    for table in (read, copy):
        _require_distinct_names(table)
    key = _key(read, keys, exclude)
    columns = _compared_columns(read, copy, exclude)
    of_source = {name.lower() for name in read.schema.fieldNames()}
    only_target = [name for name in copy.schema.fieldNames() if name.lower() not in of_source]
    return Comparison(spark, read, copy, columns, key, (*exclude, *only_target), target_where)


def _compared_columns(read: ComparableTable, copy: ComparableTable, exclude: Sequence[str]) -> tuple[ComparedColumn, ...]:
    fields = [field for field in read.schema.fields if field.name not in exclude]
    copied = {field.name.lower(): field for field in copy.schema.fields}
    if absent := [field.name for field in fields if field.name.lower() not in copied]:
        raise SchemaError(
            f"{copy.name} has no column {', '.join(map(backquoted, absent))}, which {read.name} has: add it to the target, or exclude it"
        )
    pairs = [(field, copied[field.name.lower()]) for field in fields]
    return tuple(
        compared_column(field.name, field.dataType, same.name, same.dataType, is_json=field.name in read.json_columns)
        for field, same in pairs
    )


def _key(read: ComparableTable, keys: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify a row of the source.

    Raises
    ------
    ArgumentError
        When there are none, or the arguments do not fit the source's columns.
    """
    key, columns = tuple(keys) or read.primary_key, read.schema.fieldNames()
    if not key:
        raise ArgumentError(f"{read.name} has no primary key: pass keys=..., the columns that identify a row")
    for argument, names in (("keys", key), ("exclude", exclude)):
        if unknown := [name for name in names if name not in columns]:
            raise ArgumentError(f"{argument}: {read.name} has no column {', '.join(map(backquoted, unknown))}")
    if excluded := [name for name in key if name in exclude]:
        raise ArgumentError(f"exclude: {', '.join(map(backquoted, excluded))} is part of the key, which cannot be excluded")
    return key


def _require_distinct_names(table: ComparableTable) -> None:
    """Raise an error for columns whose names differ in upper and lower case alone: Spark takes them for one."""
    names = sorted(table.schema.fieldNames(), key=str.lower)
    for name, other in pairwise(names):
        if name.lower() == other.lower():
            raise SchemaError(
                f"{table.name} has the columns {backquoted(name)} and {backquoted(other)}, whose names Spark cannot tell apart: compare a "
                "view that renames one of them"
            )


def _source_table(spark: SparkSession, source: JdbcSource) -> ComparableTable:
    if source.url.startswith("jdbc:postgresql:"):
        return DatabaseTable(spark, source)
    try:
        from .mysql_table import MySqlTable
    except ImportError as error:
        raise MissingDependencyError(f"{error}; pip install 'pyspark-kafka-changelog[capture,spark]'") from error
    address = urlsplit(source.url.removeprefix("jdbc:"))
    *schema, table = source.table.split(".")
    database = schema[0] if schema else address.path.strip("/")
    if not address.hostname or not database:
        raise ArgumentError(f"JdbcSource has the url {source.url!r}: it must have a host and a database, as in jdbc:mysql://db:3306/shop")
    options = {
        "hostname": address.hostname,
        "port": str(address.port or 3306),
        "username": source.user or "",
        "password": source.password or "",
    }
    return MySqlTable.of(spark, {**options, "database-name": database, "table-name": table, **source.options})


def _target_table(spark: SparkSession, target: TableTarget | str) -> ComparableTable:
    if isinstance(target, JdbcTable):
        return DatabaseTable(spark, target)
    if isinstance(target, LakeTarget):
        return LakeTable(spark, target)
    if isinstance(target, str):
        return LakeTable(spark, lake_target(spark, target))
    raise ArgumentError(f"target is {target!r}: pass a DeltaTarget, an IcebergTarget, a JdbcTarget or the name of a table")
