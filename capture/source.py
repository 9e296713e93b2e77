"""The data source ``mysql-changelog`` of Spark's structured streaming.

The driver chooses where a micro-batch ends: a settled position of the log, and the key up to which chunks are read. Its tasks read the
chunks as of that position (`capture.chunk`), and one reads the log for the keys that were done before.

A stream has the columns that the table had when it began, or those that ``readStream.schema(...)`` declares. A column that is added:

- to the stream of a declared schema that has it, comes from the first row after the ``ALTER TABLE`` on, and is NULL before it;
- to any other is left out, with one warning.

Rows that are there when a column is added with a DEFAULT get no change for it, since the log has none: their next change has the value
in its ``-U`` too. Any other ``ALTER TABLE``, and what empties, renames or drops the table, stops the query after all that was before.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from .binlog import Change, Committed, LogReader, Statement
from .chunk import read_chunks
from .chunks import even_step, next_chunks
from .declared import absent, fitted, require_declared
from .errors import BinlogError, BinlogPurgedError, ConnectionLostError, SchemaChangedError
from .failover import begin_at, end_at, gtids_after, gtids_at, lacking
from .keys import KeyRange
from .offset import Offset
from .options import Options, read_options
from .rows import METADATA, ROW_KIND, Writer, spark_ddl
from .server import AGAIN_AFTER, Place, Position, Server, ask, connect, require_one_server
from .shapes import reshaped_after, shape_after, with_fingerprint
from .startup import start_place
from .table import Table, read_table
from .validation import validate

_SERVER_IDS = (2**30, 2**32 - 2**20)
_LOG = logging.getLogger(__name__)


@dataclass
class Chunks(InputPartition):
    """Neighbouring chunks, for one task."""

    table: Table
    ranges: list[KeyRange]
    as_of: Place
    server_id: int


@dataclass
class Log(InputPartition):
    """A part of the log, for one task."""

    table: Table
    start: Place
    end: Place
    done: KeyRange
    server_id: int


class MySqlChangelog(DataSource):
    """A table of MySQL or MariaDB as a changelog."""

    @classmethod
    def name(cls) -> str:
        return "mysql-changelog"

    def schema(self) -> str:
        options = read_options(self.options)
        return ask(options, lambda server: spark_ddl(read_table(server, options)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ChangelogReader(read_options(self.options), to_arrow_schema(schema))


class ChangelogReader(DataSourceStreamReader):
    """Plans micro-batches on the driver and reads their partitions in tasks.

    Spark keeps the ends of batches, and not where the first one began: if that is replayed, it asks for a new initial offset,
    whose position is later. So nothing of a first batch may depend on where it begins. Chunks do not; and where there is no
    snapshot, the first batch has no rows, and its end is the beginning that is kept.
    """

    def __init__(self, options: Options, declared: pa.Schema) -> None:
        self.options = options
        self.declared = declared
        self._tables: dict[str, Table] = {}
        self._told: set[str] = set()
        self._first: Offset | None = None
        self._seen: Offset | None = None
        self._moved = time.monotonic()
        self._server_id = options.server_id[0] if options.server_id else random.randint(*_SERVER_IDS)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return ask(self.options, self._initial_once).to_json()

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        return ask(self.options, self._latest).to_json()

    def _latest(self, server: Server) -> Offset:
        if self._seen is not None:
            return self._next(server, self._seen)
        first = self._initial_once(server)
        return self._next(server, first) if first.snapshot else first

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, finish = Offset.of_json(start), Offset.of_json(end)
        self._seen = finish
        if begin == finish:
            return []
        self._require_forward(begin, finish)
        self._moved = time.monotonic()
        return ask(self.options, lambda server: self._partitions(server, begin, finish))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return a partition's rows; where the connection ends, a new one goes on after the parts that were given."""
        given, failures, identity = 0, 0, ""
        while True:
            try:
                with connect(self.options) as server:
                    identity = require_one_server(identity if given else server.identity, server.identity)
                    for part in _parts(server, self.options, partition, given):
                        yield from (fitted(batch, self.declared) for batch in part)
                        given, failures = given + 1, 0
                return
            except ConnectionLostError:
                failures += 1
                if failures > self.options.connect_max_retries:
                    raise
                time.sleep(AGAIN_AFTER)

    def _table_now(self, server: Server) -> Table:
        """Return the table as it is now, and tell once which columns the stream does not have, or has and the table does not."""
        table = read_table(server, self.options)
        if table.fingerprint not in self._told:
            require_declared(table, Writer(server, table, self.options).schema, self.declared)
            self._told.add(table.fingerprint)
            self._tables[table.fingerprint] = table
            names = [column.name for column in table.columns]
            for name in absent(names, self.declared.names):
                _LOG.warning("%s: column `%s` is left out; to have it, declare it or start the query again", table.qualified, name)
            for name in absent(self.declared.names, [*names, ROW_KIND, *METADATA]):
                _LOG.warning("%s has no column `%s`: it is NULL until it is added", table.qualified, name)
        return table

    def _table_at(self, server: Server, seen: Offset) -> Table | None:
        """Return the table that rows of the log are of at an offset, None where that is not known."""
        if seen.schema not in self._tables:
            found = with_fingerprint(self._table_now(server), seen.schema)
            if found is not None:
                self._tables[seen.schema] = found
        return self._tables.get(seen.schema)

    def _initial_once(self, server: Server) -> Offset:
        if self._first is None:
            self._first = self._initial(server)
        return self._first

    def _initial(self, server: Server) -> Offset:
        table = self._table_now(server)
        validate(server, self.options, table)
        snapshot = self.options.startup_mode in ("initial", "snapshot")
        place = start_place(server, self.options, table, self._server_id)
        if read_table(server, self.options) != table:
            return self._initial(server)
        step = even_step(server, table, self.options) if snapshot else None
        return Offset(place.server, place.position, snapshot, None, step, table.fingerprint, table.key_fingerprint, place.gtids)

    def _next(self, server: Server, seen: Offset) -> Offset:
        if self.options.startup_mode == "snapshot" and not seen.snapshot:
            return seen
        here = self._here(server, seen)
        return self._further(server, self._with_chunks(server, here), here)

    def _here(self, server: Server, seen: Offset) -> Offset:
        """Return an offset as one of this server, and with the transactions before it."""
        if seen.server != server.identity:
            table = self._table_now(server)
            validate(server, self.options, table)
            begin = begin_at(server, table, seen.place, self._server_id)
            _LOG.warning("%s: its server is now %s, whose log is read from %s on", table.qualified, server.identity, begin)
            return replace(seen, server=server.identity, position=begin)
        if seen.gtids is None:
            table = self._table_at(server, seen) or self._table_now(server)
            return replace(seen, gtids=gtids_at(server, table, seen.position, self._server_id))
        return seen

    def _with_chunks(self, server: Server, seen: Offset) -> Offset:
        if not seen.snapshot:
            return seen
        last = next_chunks(server, self._table_of_chunks(server, seen), seen.frontier, self.options, seen.step)[-1]
        return replace(seen, frontier=last.upto, snapshot=last.upto is not None)

    def _table_of_chunks(self, server: Server, seen: Offset) -> Table:
        table = self._table_at(server, seen) or self._table_now(server)
        if seen.frontier is not None and seen.key not in (None, table.key_fingerprint):
            raise SchemaChangedError(
                f"{table.qualified} has another key than the chunks that are done were divided by: begin anew, with another checkpoint"
            )
        return table

    def _further(self, server: Server, planned: Offset, seen: Offset) -> Offset:
        """Return the offset with the furthest position that a batch may end at."""
        table = self._table_at(server, seen)
        reach = furthest(server, self.options, table, seen, self._server_id)
        if planned == seen and not reach.touched and time.monotonic() - self._moved < self.options.heartbeat:
            return seen
        if reach.table is not None and reach.table != table:
            self._tables[reach.table.fingerprint] = reach.table
            self._table_now(server)
        gtids = gtids_after(server, seen.gtids, reach.gtids)
        schema = reach.table.fingerprint if reach.table else seen.schema
        return replace(planned, position=reach.position, gtids=gtids, schema=schema)

    def _require_forward(self, begin: Offset, end: Offset) -> None:
        back = begin.server == end.server and end.position.order < begin.position.order
        if begin != self._first and (back or (end.snapshot and not begin.snapshot)):
            raise BinlogError(f"a batch cannot go back from {begin.position} to {end.position}")

    def _partitions(self, server: Server, begin: Offset, end: Offset) -> list[InputPartition]:
        table = self._table_at(server, end)
        if table is None:
            raise _unknown(self.options, begin.position)
        found: list[InputPartition] = []
        done = begin.done
        if done is not None and begin.place != end.place:
            found.append(Log(table, begin.place, end.place, done, self._server_id))
        if begin.snapshot and (begin.frontier, begin.snapshot) != (end.frontier, end.snapshot):
            ranges = next_chunks(server, table, begin.frontier, replace(self.options, chunks_per_batch=2**62), end.step, upto=end.frontier)
            shares = divided(ranges, self.options.parallelism)
            found += [Chunks(table, share, end.place, self._server_id + 1 + index) for index, share in enumerate(shares)]
        return found


def divided(ranges: list[KeyRange], tasks: int) -> list[list[KeyRange]]:
    """Divide chunks among tasks: neighbours to one."""
    size = -(-len(ranges) // tasks)
    return [ranges[start : start + size] for start in range(0, len(ranges), size)]


@dataclass
class Reach:
    """How far a batch may go, what the table is there, and the transactions up to there; `touched` where its rows may have changed."""

    position: Position
    touched: bool
    table: Table | None
    gtids: list[str]


def furthest(server: Server, options: Options, table: Table | None, seen: Offset, server_id: int) -> Reach:
    """Look through the log, without its rows, for where the next batch ends.

    That is the settled position of now, or earlier: where enough bytes have been read, or before a statement that alters the table's
    columns, so that all rows of a batch have the same.

    Parameters
    ----------
    table : Table or None
        What the table is at `seen`; None where that is not known.

    Raises
    ------
    BinlogPurgedError
        When the log does not reach to where it was read.
    SchemaChangedError
        When such a statement is next and did more than to add columns, or when rows are next whose columns are not known.
    """
    target = server.settled()
    _require_reached(server, seen.position)
    log = LogReader(server, table or read_table(server, options), server_id, rows=False)
    gtids: list[str] = []
    reach, size, last = Reach(seen.position, False, table, gtids), 0, seen.position
    for entry in log.read(seen.position, target, lacking(server, seen.gtids)):
        if isinstance(entry, Statement):
            after = shape_after(server, options, entry, reach.table)
            if after is None or after != reach.table:
                if reach.position != seen.position:
                    return reach
                # The log is being read by this server id.
                if after is None or reshaped_after(server, entry, after, server_id + 1):
                    raise _altered(log.table, entry)
            reach.table = after
        if isinstance(entry, Committed):
            if entry.touched and reach.table is None:
                raise _unknown(options, seen.position)
            size += entry.position.pos - (last.pos if entry.position.file == last.file else 0)
            last = entry.position
            gtids += [entry.gtid] if entry.gtid is not None else []
            reach = Reach(entry.position, reach.touched or entry.touched, reach.table, gtids)
            if size >= options.max_bytes:
                return reach
    # What is settled now may lie before what is seen: the end of a file, where the log goes on in the next.
    return replace(reach, position=target) if log.position.order >= target.order > reach.position.order else reach


def _require_reached(server: Server, position: Position) -> None:
    end = server.written()
    if end.order < position.order:
        raise BinlogPurgedError(
            f"the server's log ends at {end}, before {position}: it was begun anew since (RESET MASTER), or was never there. "
            "Begin anew, with another checkpoint"
        )


def _altered(table: Table, statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{table.qualified} is altered at {statement.position}: {statement.text[:200]!r}. All before it has been emitted, nothing "
        "after it: start the query again from its checkpoint, and it goes on with the table's columns of then, or says again why it "
        "cannot: then begin anew, with another checkpoint"
    )


def _unknown(options: Options, position: Position) -> SchemaChangedError:
    return SchemaChangedError(
        f"{options.database}.{options.table} was altered since {position}, and the columns that it had there are not known: "
        "begin anew, with another checkpoint"
    )


def _parts(server: Server, options: Options, partition: InputPartition, given: int) -> Iterator[Iterable[pa.RecordBatch]]:
    """Return the parts of a partition after those that were given: chunks, or batches of the log. They are the same each time."""
    if isinstance(partition, Chunks):
        yield from _read_chunks(server, options, partition, partition.ranges[given:])
    elif isinstance(partition, Log):
        yield from ([batch] for batch in islice(_read_log(server, options, partition), given, None))


def _read_chunks(server: Server, options: Options, partition: Chunks, ranges: list[KeyRange]) -> Iterator[Iterator[pa.RecordBatch]]:
    table, place = partition.table, partition.as_of
    as_of = begin_at(server, table, place, partition.server_id)
    writer, log = Writer(server, table, options), LogReader(server, table, partition.server_id)
    for texts in read_chunks(server, log, ranges, as_of, lacking(server, place.gtids)):
        yield writer.snapshot(texts, as_of)


def _read_log(server: Server, options: Options, partition: Log) -> Iterator[pa.RecordBatch]:
    table, number = partition.table, partition.server_id
    start, end = begin_at(server, table, partition.start, number), end_at(server, table, partition.end, number)
    log = LogReader(server, table, number)
    changes = (entry for entry in log.read(start, end, _between(server, partition)) if isinstance(entry, Change))
    yield from Writer(server, table, options).changes(changes, partition.done)
    if log.position.order < end.order:
        raise BinlogError(f"the log ends at {log.position}, before {end}")


def _between(server: Server, partition: Log) -> Callable[[str], bool]:
    """Return which transactions a part of the log has: in another server's, they may have others among them."""
    after, later = lacking(server, partition.start.gtids), lacking(server, partition.end.gtids)
    return after if partition.end.server == server.identity else lambda gtid: after(gtid) and not later(gtid)
