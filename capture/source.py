"""The Spark Structured Streaming source ``mysql-changelog``.

The driver chooses the end of a micro-batch: a settled position of the log and a key. Tasks read the
chunks up to that key as of that position (`capture.chunk`). One task reads the log for the keys of
earlier chunks. The stream lists its tables when it begins and stores them in its offset. It reads
the chunks of one table after the other, and the log for all tables at once.

A stream has the columns that the tables had when it began, or those that ``readStream.schema(...)``
declares. A column that is added later:

- has values from the first row after the ``ALTER TABLE``, and is NULL before it, if the declared
  schema contains it;
- is omitted with one warning otherwise.

A new column with a DEFAULT causes no changes of existing rows, because the log has none. The next
``-U`` of such a row has the default. Any other ``ALTER TABLE`` stops the query, as does a statement
that empties, renames or drops the table. The query first emits all earlier changes.
"""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from cdc_formats.values.key_range import KeyRange

from .binlog import LogReader
from .chunk import Chunk, even_step, next_chunks, read_chunks
from .errors import BinlogError, ConnectionLostError, SchemaChangedError
from .offset import Offset, TableState
from .options import CaptureOptions, read_options
from .planning import (
    Limits,
    RunEnd,
    begin_at,
    end_at,
    find_batch_end,
    fix_target,
    gtids_after,
    gtids_at,
    lacking,
    limits_of,
    require_unaltered,
    start_position,
    target_in,
    unknown,
    with_fingerprint,
)
from .rows import (
    METADATA,
    ROW_KIND,
    BatchWriter,
    changes_of,
    missing_names,
    project,
    require_declared,
    spark_ddl,
)
from .server import (
    AGAIN_AFTER,
    Connections,
    LogPosition,
    Server,
    ServerPosition,
    connect,
    require_one_server,
    run_query,
)
from .statements import RowChange
from .table import Table, TableId, read_table
from .tables import find_tables, matching, read_tables, require_alike, require_named, validate

# --------------------------------------------------------------------------------------------------
# What differs between the versions of Spark that the source runs on.
#
# Spark 4.2 passes a start and a limit to ``latestOffset``, and lets the source fix where a run with
# ``availableNow`` ends. Spark 4.0 and 4.1 do neither: they ask the source once, so that
# ``availableNow`` runs one micro-batch.

HAS_READ_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark limits a micro-batch of a Python source, and reads several with
``availableNow``."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit, which Spark 4.0 and 4.1 never pass."""

    class SupportsTriggerAvailableNow:
        """A mixin, which Spark 4.0 and 4.1 ignore."""

    ReadAllAvailable = ReadMaxBytes = ReadLimit

__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]

_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema, with UTC timestamps, that Spark expects of Python source batches."""
    return to_arrow_schema(schema, **_IN_UTC)


_SERVER_IDS = (2**30, 2**32 - 2**20)
_IDLE_SECONDS = 0.1
_LOG = logging.getLogger(__name__)


@dataclass
class Chunks(InputPartition):
    """Neighbouring chunks that one task reads."""

    chunks: list[Chunk]
    as_of: ServerPosition
    server_id: int


@dataclass
class Log(InputPartition):
    """A part of the log that one task reads: for each table the keys whose chunks are done."""

    tables: list[tuple[Table, KeyRange]]
    start: ServerPosition
    end: ServerPosition
    server_id: int


class MySqlChangelog(DataSource):
    """Reads tables of MySQL or MariaDB as a changelog."""

    @classmethod
    def name(cls) -> str:
        return "mysql-changelog"

    def schema(self) -> str:
        options = read_options(self.options)
        tables = run_query(options, lambda server: read_tables(server, options))
        require_alike(tables)
        return spark_ddl(tables[0])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        return ChangelogReader(read_options(self.options), arrow_schema(schema))


class ChangelogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans micro-batches on the driver and reads their partitions in tasks.

    Spark stores the ends of batches, but not the start of the first one. To replay the first batch,
    it requests a new initial offset, whose position is later. So the first batch must not depend on
    its start. Chunks do not. Without a snapshot, the first batch has no rows, and its end is the
    stored start of the stream.
    """

    def __init__(self, options: CaptureOptions, declared: pa.Schema) -> None:
        self.options = options
        self.declared = declared
        self._tables: dict[TableState, Table] = {}
        self._checked: set[TableState | TableId] = set()
        self._listed: tuple[str, LogPosition] | None = None
        self._created: LogPosition | None = None
        self._first: Offset | None = None
        self._seen: Offset | None = None
        self._target: RunEnd | None = None
        self._moved = time.monotonic()
        self.connections = Connections(options)
        self._idle_until = 0.0
        self._server_id = (
            options.server_id[0] if options.server_id else random.randint(*_SERVER_IDS)
        )

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.connections.run_query(self._initial_once).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Fix where the run ends. Only Spark 4.2 and later call this."""
        self._target = self.connections.run_query(
            lambda server: fix_target(server, self.options, self._server_id)
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return a limit that Spark passes back to `latestOffset`; `Limits` limits chunks too."""
        return ReadMaxBytes(self.options.max_bytes)

    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Return where the next micro-batch ends, or `start` if there is nothing to read.

        Parameters
        ----------
        start : dict or None
            The end of the previous batch. Spark 4.0 and 4.1 do not pass it: it is the end of the
            batch that was planned last.
        limit : ReadLimit or None
            ``ReadAllAvailable`` ignores the options that limit a micro-batch.
        """
        time.sleep(max(self._idle_until - time.monotonic(), 0))
        seen = self._seen if start is None else Offset.of_json(start, self._only)
        unlimited = isinstance(limit, ReadAllAvailable)
        latest = self.connections.run_query(
            lambda server: self._latest(server, seen, unlimited=unlimited)
        )
        if latest == seen:  # Spark calls again immediately
            self._idle_until = time.monotonic() + _IDLE_SECONDS
        # An offset of an older release has other fields, and Spark compares texts.
        return start if start is not None and latest == seen else latest.to_json()

    def stop(self) -> None:
        self.connections.close()

    @property
    def _only(self) -> TableId:
        return TableId(self.options.database, self.options.table)

    def _latest(self, server: Server, seen: Offset | None, *, unlimited: bool) -> Offset:
        begin = seen or self._initial_once(server)
        if self._seen is None and begin == self._first and not begin.snapshot:
            return begin
        if self._target is not None:
            self._target = target_in(server, self._target, self._server_id)
        return self._next(server, begin, limits_of(self.options, self._target, unlimited=unlimited))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, finish = Offset.of_json(start, self._only), Offset.of_json(end, self._only)
        self._seen = finish
        if begin == finish:
            return []
        first, begin = begin == self._first, begin.joined(finish.tables[len(begin.tables) :])
        if not first:
            back = begin.server == finish.server and finish.position.order < begin.position.order
            if back or (finish.snapshot and not begin.snapshot):
                raise BinlogError(
                    f"a batch cannot go back from {begin.position} to {finish.position}: start with "
                    "a new checkpoint"
                )
        self._moved = time.monotonic()
        return self.connections.run_query(lambda server: self._partitions(server, begin, finish))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield a partition's rows; after a lost connection, reconnect and skip yielded parts."""
        yielded, failures, identity = 0, 0, ""
        while True:
            try:
                with connect(self.options) as server:
                    if yielded:
                        require_one_server(identity, server.identity)
                    identity = server.identity
                    for part in _parts(server, self.options, partition, yielded):
                        yield from (project(batch, self.declared) for batch in part)
                        yielded, failures = yielded + 1, 0
                return
            except ConnectionLostError:
                failures += 1
                if failures > self.options.connect_max_retries:
                    raise
                time.sleep(AGAIN_AFTER)

    def _table_now(self, server: Server, of: TableId) -> Table:
        """Return the current table; warn once of columns that only it or only the stream has."""
        table = read_table(server, self.options, of)
        if table_state(table) not in self._checked:
            require_declared(table, BatchWriter(server, table, self.options).schema, self.declared)
            self._checked.add(table_state(table))
            self._tables[table_state(table)] = table
            names = [column.name for column in table.columns]
            for name in missing_names(names, self.declared.names):
                _LOG.warning(
                    "%s: column `%s` is omitted; to read it, declare it or restart the query",
                    table.qualified,
                    name,
                )
            for name in missing_names(self.declared.names, [*names, ROW_KIND, *METADATA]):
                _LOG.warning(
                    "%s has no column `%s`: it is NULL until it is added", table.qualified, name
                )
        return table

    def _table_at(self, server: Server, seen: TableState) -> Table | None:
        """Return the table with its log rows' columns at an offset; None if they are unknown."""
        if seen not in self._tables:
            table = with_fingerprint(self._table_now(server, seen.id), seen.schema)
            if table is not None:
                self._tables[seen] = table
        return self._tables.get(seen)

    def _initial_once(self, server: Server) -> Offset:
        if self._first is None:
            self._first = self._initial(server)
        return self._first

    def _initial(self, server: Server) -> Offset:
        tables = [self._table_now(server, each) for each in find_tables(server, self.options)]
        validate(server, self.options, tables)
        snapshot = self.options.startup_mode in ("initial", "snapshot")
        start = start_position(server, self.options, self._server_id)
        require_unaltered(server, self.options, tables, start.position, self._server_id)
        if read_tables(server, self.options) != tables:
            return self._initial(server)
        states = tuple(table_state(table) for table in tables)
        return Offset(start.server, start.position, snapshot, None, None, states, gtids=start.gtids)

    def _next(self, server: Server, seen: Offset, limits: Limits) -> Offset:
        if self.options.startup_mode == "snapshot" and not seen.snapshot:
            return seen
        converted = self._on_server(server, seen)
        new = self._new(server, converted)
        ended, complete = self._further(
            server,
            self._with_chunks(server, converted, limits),
            converted,
            limits,
            at_once=bool(new),
        )
        return self._with_new(server, ended, new, limits) if complete else ended

    def _on_server(self, server: Server, seen: Offset) -> Offset:
        """Return an offset converted to this server's log, with the transactions before it."""
        if seen.server != server.identity:
            validate(
                server, self.options, [self._table_now(server, each.id) for each in seen.tables]
            )
            begin = begin_at(server, seen.in_log, self._server_id)
            _LOG.warning(
                "%s is now the server %s; its log is read from %s",
                self.options.hostname,
                server.identity,
                begin,
            )
            return replace(seen, server=server.identity, position=begin)
        if seen.gtids is None:
            return replace(seen, gtids=gtids_at(server, seen.position, self._server_id))
        return seen

    def _with_chunks(self, server: Server, seen: Offset, limits: Limits) -> Offset:
        planned, left = seen, limits.chunks
        while planned.snapshot and left:
            table = self._table_in_work(server, planned)
            if planned.frontier is None:
                planned = replace(
                    planned, step=even_step(server, table, self.options), key=table.key_fingerprint
                )
            ranges = next_chunks(
                server, table, planned.frontier, self.options, planned.step, most=left
            )
            left -= len(ranges)
            planned = planned.past(ranges[-1].upto)
        return planned

    def _table_in_work(self, server: Server, seen: Offset) -> Table:
        of = seen.tables[seen.work]
        table = self._table_at(server, of) or self._table_now(server, of.id)
        if seen.frontier is not None and seen.key not in (None, table.key_fingerprint):
            raise SchemaChangedError(
                f"{table.qualified} has another key than the one that divided its finished chunks: "
                "start with a new checkpoint"
            )
        return table

    def _further(
        self, server: Server, planned: Offset, seen: Offset, limits: Limits, *, at_once: bool
    ) -> tuple[Offset, bool]:
        """Return the batch's last possible end, and whether the scan of the log is complete.

        The scan is complete if it reached the settled position or the target.
        """
        tables = {each.id: self._table_at(server, each) for each in seen.tables}
        batch_end = find_batch_end(server, self.options, tables, seen, self._server_id, limits)
        self._created = batch_end.created
        # A run with a target moves to it, even if only other tables changed: otherwise the offset
        # would stay, until its log is purged.
        waits = (
            not at_once
            and limits.target is None
            and time.monotonic() - self._moved < self.options.heartbeat
        )
        if planned == seen and not batch_end.touched and waits:
            return seen, False
        for of, table in batch_end.tables.items():
            if table is not None and table != tables[of]:
                self._tables[table_state(table)] = table
                self._table_now(server, of)
        now = tuple(
            table_state(table) if (table := batch_end.tables[each.id]) else each
            for each in seen.tables
        )
        gtids = gtids_after(server, seen.gtids, batch_end.gtids)
        return replace(
            planned, position=batch_end.position, gtids=gtids, tables=now
        ), batch_end.complete

    def _new(self, server: Server, seen: Offset) -> list[Table]:
        """Return new tables to add; if the stream adds none, warn once about each instead."""
        uncaptured = self._uncaptured(server, seen)
        if not self.options.newly_added:
            self._warn(uncaptured)
            return []
        new = [self._table_now(server, each) for each in uncaptured]
        if (
            self._target is not None
        ):  # tables that were created or altered since are added in the next run
            new = [table for table in new if table in self._target.new]
        if new:
            validate(server, self.options, new)
        return new

    def _with_new(self, server: Server, ended: Offset, new: list[Table], limits: Limits) -> Offset:
        """Return the offset with added tables, unless one was altered since.

        At the offset, the added tables must have their current columns.
        """
        if not new or [read_table(server, self.options, table.id) for table in new] != new:
            return ended
        joined = ended.joined([table_state(table) for table in new])
        return joined if ended.snapshot else self._with_chunks(server, joined, limits)

    def _uncaptured(self, server: Server, seen: Offset) -> list[TableId]:
        """Return the matching uncaptured tables; empty if no table was created since the last call.

        Raise an error if the options do not match a captured table.
        """
        listed, created, identity = self._listed, self._created, server.identity
        if (
            listed is not None
            and listed[0] == identity
            and (created is None or created.order <= listed[1].order)
        ):
            return []
        captured = {each.id for each in seen.tables}
        require_named(server, self.options, captured)
        uncaptured = sorted({*matching(server, self.options)} - captured)
        # Tables to add are listed again until they are added.
        self._listed = (
            None
            if uncaptured and self.options.newly_added
            else (identity, created or seen.position)
        )
        return uncaptured

    def _warn(self, uncaptured: list[TableId]) -> None:
        for table in uncaptured:
            if table not in self._checked:
                self._checked.add(table)
                _LOG.warning(
                    "%s is not captured: it did not exist or did not match the options when the "
                    "stream began; to capture it, set scan.newly-added-table.enabled = true",
                    table,
                )

    def _partitions(self, server: Server, begin: Offset, end: Offset) -> list[InputPartition]:
        partitions: list[InputPartition] = []
        done = [
            (index, keys)
            for index in range(len(end.tables))
            if (keys := begin.done(index)) is not None
        ]
        if done and begin.in_log != end.in_log:
            tables = [
                (self._required_table(server, begin, end, index), keys) for index, keys in done
            ]
            partitions.append(Log(tables, begin.in_log, end.in_log, self._server_id))
        shares = split_chunks(self._chunks(server, begin, end), self.options.parallelism)
        return partitions + [
            Chunks(share, end.in_log, self._server_id + 1 + index)
            for index, share in enumerate(shares)
        ]

    def _chunks(self, server: Server, begin: Offset, end: Offset) -> list[Chunk]:
        """Return the chunks of all tables between two offsets."""
        chunks: list[Chunk] = []
        for index in range(begin.work, end.work + 1) if begin.snapshot else ():
            after = begin.frontier if index == begin.work else None
            is_last = index == end.work and end.snapshot
            upto = end.frontier if is_last else None
            if is_last and upto == after:
                break
            table = self._required_table(server, begin, end, index)
            step = end.step if index == end.work else even_step(server, table, self.options)
            chunks += [
                Chunk(table, keys)
                for keys in next_chunks(server, table, after, self.options, step, upto=upto)
            ]
        return chunks

    def _required_table(self, server: Server, begin: Offset, end: Offset, index: int) -> Table:
        table = self._table_at(server, end.tables[index])
        if table is None:
            raise unknown(end.tables[index].id, begin.position)
        return table


def table_state(table: Table) -> TableState:
    """Return the description of a table that an offset stores."""
    return TableState(table.database, table.name, table.fingerprint)


def split_chunks(chunks: list[Chunk], tasks: int) -> list[list[Chunk]]:
    """Divide chunks among tasks; each task gets neighbouring chunks."""
    size = max(-(-len(chunks) // tasks), 1)
    return [chunks[start : start + size] for start in range(0, len(chunks), size)]


def _parts(
    server: Server, options: CaptureOptions, partition: InputPartition, skipped: int
) -> Iterator[Iterable[pa.RecordBatch]]:
    """Yield the parts of a partition (chunks, or batches of the log) after `skipped` ones.

    Every call has the same parts.
    """
    if isinstance(partition, Chunks):
        yield from _read_chunks(server, options, partition, partition.chunks[skipped:])
    elif isinstance(partition, Log):
        yield from (
            [batch] for batch in islice(_read_log(server, options, partition), skipped, None)
        )


def _read_chunks(
    server: Server, options: CaptureOptions, partition: Chunks, chunks: list[Chunk]
) -> Iterator[Iterator[pa.RecordBatch]]:
    tables = {table.id: table for table, _ in chunks}
    writers = {of: BatchWriter(server, table, options) for of, table in tables.items()}
    as_of = begin_at(server, partition.as_of, partition.server_id)
    log = LogReader(server, list(tables.values()), partition.server_id)
    for table, texts in read_chunks(
        server, log, chunks, as_of, lacking(server, partition.as_of.gtids)
    ):
        yield writers[table.id].snapshot(texts, as_of)


def _read_log(server: Server, options: CaptureOptions, partition: Log) -> Iterator[pa.RecordBatch]:
    number = partition.server_id
    start, end = begin_at(server, partition.start, number), end_at(server, partition.end, number)
    log = LogReader(server, [table for table, _ in partition.tables], number)
    writers = {
        table.id: (BatchWriter(server, table, options), done) for table, done in partition.tables
    }
    changes = (
        entry
        for entry in log.read(start, end, _between(server, partition))
        if isinstance(entry, RowChange)
    )
    yield from changes_of(writers, changes)
    if log.position.order < end.order:
        raise BinlogError(
            f"the log ends at {log.position}, before the end of the batch at {end}: restart the "
            "query. If this error repeats, start with a new checkpoint"
        )


def _between(server: Server, partition: Log) -> Callable[[str], bool]:
    """Return a function that returns whether a transaction belongs to a part of the log.

    The log of another server can have other transactions there.
    """
    after, later = lacking(server, partition.start.gtids), lacking(server, partition.end.gtids)
    return (
        after
        if partition.end.server == server.identity
        else lambda gtid: after(gtid) and not later(gtid)
    )
