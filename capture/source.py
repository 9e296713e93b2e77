"""The data source ``mysql-changelog`` of Spark's structured streaming.

The driver chooses where a micro-batch ends: a settled position of the log, and the key up to which chunks are read. Its tasks read the
chunks as of that position (`capture.chunk`), and one reads the log for the keys that were done before.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from .binlog import Change, Committed, LogReader, Statement
from .chunk import read_chunks
from .chunks import even_step, next_chunks
from .errors import BinlogError, SchemaChangedError, ServerChangedError
from .keys import KeyRange
from .offset import Offset
from .options import Options, read_options
from .rows import Writer, spark_ddl
from .server import Position, Server, connect
from .startup import start_position
from .table import Table, columns_unchanged, read_table
from .validation import validate

_SERVER_IDS = (2**30, 2**32 - 2**20)


@dataclass
class Chunks(InputPartition):
    """Neighbouring chunks, for one task."""

    table: Table
    ranges: list[KeyRange]
    as_of: Position
    server_id: int


@dataclass
class Log(InputPartition):
    """A part of the log, for one task."""

    table: Table
    start: Position
    end: Position
    done: KeyRange
    server_id: int


class MySqlChangelog(DataSource):
    """A table of MySQL or MariaDB as a changelog."""

    @classmethod
    def name(cls) -> str:
        return "mysql-changelog"

    def schema(self) -> str:
        options = read_options(self.options)
        with connect(options) as server:
            return spark_ddl(read_table(server, options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ChangelogReader(read_options(self.options))


class ChangelogReader(DataSourceStreamReader):
    """Plans micro-batches on the driver and reads their partitions in tasks.

    Spark keeps the ends of batches, and not where the first one began: if that is replayed, it asks for a new initial offset,
    whose position is later. So nothing of a first batch may depend on where it begins. Chunks do not; and where there is no
    snapshot, the first batch has no rows, and its end is the beginning that is kept.
    """

    def __init__(self, options: Options) -> None:
        self.options = options
        self._table: Table | None = None
        self._first: Offset | None = None
        self._seen: Offset | None = None
        self._moved = time.monotonic()
        self._server_id = options.server_id[0] if options.server_id else random.randint(*_SERVER_IDS)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        with connect(self.options) as server:
            return self._initial_once(server).to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        with connect(self.options) as server:
            if self._seen is not None:
                return self._next(server, self._seen).to_json()
            first = self._initial_once(server)
            return (self._next(server, first) if first.snapshot else first).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, finish = Offset.of_json(start), Offset.of_json(end)
        self._seen = finish
        if begin == finish:
            return []
        self._require_forward(begin, finish)
        self._moved = time.monotonic()
        with connect(self.options) as server:
            return self._partitions(server, begin, finish)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with connect(self.options) as server:
            if isinstance(partition, Chunks):
                yield from _read_chunks(server, self.options, partition)
            elif isinstance(partition, Log):
                yield from _read_log(server, self.options, partition)

    def _table_of(self, server: Server) -> Table:
        if self._table is None:
            self._table = read_table(server, self.options)
        return self._table

    def _initial_once(self, server: Server) -> Offset:
        if self._first is None:
            self._first = self._initial(server)
        return self._first

    def _initial(self, server: Server) -> Offset:
        table = self._table_of(server)
        validate(server, self.options, table)
        snapshot = self.options.startup_mode in ("initial", "snapshot")
        position = start_position(server, self.options, table, self._server_id)
        step = even_step(server, table, self.options) if snapshot else None
        return Offset(server.identity(), position, snapshot, None, step, table.fingerprint)

    def _next(self, server: Server, seen: Offset) -> Offset:
        if server.identity() != seen.server:
            raise ServerChangedError(
                f"{self.options.hostname}:{self.options.port} is another server than the one whose log was read so far, "
                f"{seen.server}: positions of its log mean nothing in this one's"
            )
        if self.options.startup_mode == "snapshot" and not seen.snapshot:
            return seen
        return self._further(server, self._with_chunks(server, seen), seen)

    def _with_chunks(self, server: Server, seen: Offset) -> Offset:
        if not seen.snapshot:
            return seen
        last = next_chunks(server, self._table_of(server), seen.frontier, self.options, seen.step)[-1]
        return replace(seen, frontier=last.upto, snapshot=last.upto is not None)

    def _further(self, server: Server, planned: Offset, seen: Offset) -> Offset:
        """Return the offset with the furthest position that a batch may end at."""
        table = self._table_of(server)
        reach = furthest(server, self.options, table, seen, self._server_id)
        if planned == seen and not reach.touched and time.monotonic() - self._moved < self.options.heartbeat:
            return seen
        return replace(planned, position=reach.position, schema=reach.schema)

    def _require_forward(self, begin: Offset, end: Offset) -> None:
        if begin != self._first and (end.position.order < begin.position.order or (end.snapshot and not begin.snapshot)):
            raise BinlogError(f"a batch cannot go back from {begin.position} to {end.position}")

    def _partitions(self, server: Server, begin: Offset, end: Offset) -> list[InputPartition]:
        table = self._table_of(server)
        found: list[InputPartition] = []
        done = begin.done
        if done is not None and begin.position.order < end.position.order:
            found.append(Log(table, begin.position, end.position, done, self._server_id))
        if begin.snapshot and (begin.frontier, begin.snapshot) != (end.frontier, end.snapshot):
            ranges = next_chunks(server, table, begin.frontier, replace(self.options, chunks_per_batch=2**62), end.step, upto=end.frontier)
            shares = divided(ranges, self.options.parallelism)
            found += [Chunks(table, share, end.position, self._server_id + 1 + index) for index, share in enumerate(shares)]
        return found


def divided(ranges: list[KeyRange], tasks: int) -> list[list[KeyRange]]:
    """Divide chunks among tasks: neighbours to one."""
    size = -(-len(ranges) // tasks)
    return [ranges[start : start + size] for start in range(0, len(ranges), size)]


@dataclass
class Reach:
    """How far a batch may go; `touched` where the table may have changed since."""

    position: Position
    touched: bool
    schema: str


def furthest(server: Server, options: Options, table: Table, seen: Offset, server_id: int) -> Reach:
    """Look through the log, without its rows, for where the next batch ends.

    That is the settled position of now, or earlier: where enough bytes have been read, or before a statement that alters the table.

    Raises
    ------
    SchemaChangedError
        When such a statement is next, and the table was not declared anew since (by a restart).
    """
    target = server.settled()
    log = LogReader(options, table, server_id, rows=False)
    reach, size, last = Reach(seen.position, False, seen.schema), 0, seen.position
    for entry in log.read(seen.position, target):
        if isinstance(entry, Statement):
            if not columns_unchanged(server, options, table, entry.text):
                if reach.position != seen.position:
                    return reach
                if seen.schema == table.fingerprint:
                    raise _altered(table, entry)
            reach.schema = table.fingerprint
        if isinstance(entry, Committed):
            size += entry.position.pos - (last.pos if entry.position.file == last.file else 0)
            last = entry.position
            reach = Reach(entry.position, reach.touched or entry.touched, reach.schema)
            if size >= options.max_bytes:
                return reach
    # What is settled now may lie before what is seen: the end of a file, where the log goes on in the next.
    return replace(reach, position=target) if log.position.order >= target.order > reach.position.order else reach


def _altered(table: Table, statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{table.qualified} is altered at {statement.position}: {statement.text[:200]!r}. All before it has been emitted, nothing "
        "after it: start the query again from its checkpoint, and it goes on with the table's columns of then"
    )


def _read_chunks(server: Server, options: Options, partition: Chunks) -> Iterator[pa.RecordBatch]:
    writer = Writer(server, partition.table, options)
    log = LogReader(options, partition.table, partition.server_id)
    for rows in read_chunks(server, log, partition.ranges, partition.as_of):
        yield from writer.snapshot(rows, partition.as_of)


def _read_log(server: Server, options: Options, partition: Log) -> Iterator[pa.RecordBatch]:
    log = LogReader(options, partition.table, partition.server_id)
    changes = (entry for entry in log.read(partition.start, partition.end) if isinstance(entry, Change))
    yield from Writer(server, partition.table, options).changes(changes, partition.done)
    if log.position.order < partition.end.order:
        raise BinlogError(f"the log ends at {log.position}, before {partition.end}")
