"""Finds the start and the end of a micro-batch: the driver scans the log without its rows.

After a failover, it finds them in the log of another server.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from .binlog import UNREADABLE, Gtids, LogReader, MariaDbGtids, MySqlGtids
from .errors import (
    BinlogError,
    BinlogPurgedError,
    SchemaChangedError,
    ServerChangedError,
    ServerNotReadyError,
)
from .offset import Offset
from .options import CaptureOptions
from .server import AGAIN_AFTER, FIRST_EVENT, LogPosition, Server, ServerPosition
from .statements import Effect, Statement, TableCreation, TransactionEnd
from .table import Row, Table, TableId, read_table
from .tables import matching

# --------------------------------------------------------------------------------------------------
# Determines the columns of log rows before and after an ``ALTER TABLE``.
#
# The server returns only the current columns, and the log has no column names. The columns of rows
# are derived as follows:
#
# ====================  ==============================================================================
# rows                  columns
# ====================  ==============================================================================
# before the statement  those with the offset's fingerprint: the current columns, or these without one
#                       run of neighbouring columns
# after the statement   the same, and those current columns that the statement names
# ====================  ==============================================================================
#
# The capture stops at a statement that changes columns in another way, or that changes rows without
# row events.

_CHANGING_ROWS = (Effect.EMPTIES, Effect.WRITES, Effect.REPLACES)
_RESHAPING = (Effect.RESHAPES, Effect.REPLACES)


def with_columns(table: Table, kept: Sequence[int]) -> Table | None:
    """Return a table with some of its columns; None if a key column is not one of them."""
    kept_as = {before: after for after, before in enumerate(kept)}
    if not kept_as.keys() >= {*table.primary_key, *table.chunk_key}:
        return None
    primary, chunk = (
        tuple(kept_as[index] for index in key) for key in (table.primary_key, table.chunk_key)
    )
    return replace(
        table,
        columns=tuple(table.columns[index] for index in kept),
        primary_key=primary,
        chunk_key=chunk,
    )


def with_fingerprint(now: Table, fingerprint: str) -> Table | None:
    """Return the table as it was when it had a fingerprint.

    The result is None if the table differs by more than added neighbouring columns.
    """
    return next((shape for shape in _earlier(now) if shape.fingerprint == fingerprint), None)


def _earlier(now: Table) -> Iterator[Table]:
    """Yield the table, then the table without each run of columns.

    Short runs come first; of runs of equal length, the last comes first.
    """
    yield now
    everything = range(len(now.columns))
    for length in everything[1:]:
        for start in reversed(range(len(everything) - length + 1)):
            if shape := with_columns(now, [*everything[:start], *everything[start + length :]]):
                yield shape


def projection(table: Table, onto: Table) -> list[int]:
    """Return the indexes in a table's rows of the columns of an earlier version of the table."""
    indexes = {column.name: index for index, column in enumerate(table.columns)}
    return [indexes[column.name] for column in onto.columns]


def projected(row: Row | None, indexes: Sequence[int]) -> Row | None:
    """Return a row's values at some indexes."""
    return None if row is None else tuple(row[index] for index in indexes)


def shape_after(
    server: Server, options: CaptureOptions, statement: Statement, shape: Table | None
) -> Table | None:
    """Return the table after a statement; None if unknown, or if it may have changed rows.

    Parameters
    ----------
    shape : Table or None
        The table before it. None if that is unknown and not needed: a restarted query continues
        with the current columns.
    """
    if statement.effect in _CHANGING_ROWS:
        return None
    if shape is not None and statement.removed & {column.name.lower() for column in shape.columns}:
        return None  # even if the table now has another column of that name
    try:
        now = read_table(server, options, statement.table)
    except ServerNotReadyError:
        return None
    return now if shape is None else _with_named(statement.names, shape, now)


def _with_named(names: frozenset[str], shape: Table, now: Table) -> Table | None:
    old = {column.name for column in shape.columns}
    kept = [
        index
        for index, column in enumerate(now.columns)
        if column.name in old or column.name.lower() in names
    ]
    reshaped = with_columns(now, kept)
    if reshaped is None:
        return None
    before = with_columns(
        reshaped, [index for index, column in enumerate(reshaped.columns) if column.name in old]
    )
    return reshaped if before == shape else None


def may_differ(statement: Statement, before: Table | None, after: Table) -> bool:
    """Return whether the columns after a statement may differ from the current columns.

    Equal columns before the statement and now do not suffice: a later statement may have undone the
    change.
    """
    return after != before or statement.effect is Effect.RESHAPES


def first_schema_change(
    server: Server,
    start: LogPosition,
    tables: Sequence[Table],
    server_id: int,
    *,
    after_rows: bool = False,
) -> Statement | None:
    """Return the first statement after a position that may have changed a table's columns, or None.

    Parameters
    ----------
    after_rows : bool
        Return only a statement that follows a row change of its table.
    """
    log = LogReader(server, tables, server_id, rows=False)
    changed: set[TableId] = set()
    for entry in log.read(start, server.written()):
        if isinstance(entry, TransactionEnd):
            changed |= entry.touched
        elif (
            isinstance(entry, Statement)
            and entry.effect in _RESHAPING
            and (not after_rows or entry.table in changed)
        ):
            return entry
    return None


# --------------------------------------------------------------------------------------------------
# Limits of a micro-batch: Spark's read limit, and the target of a run with ``availableNow``.

_UNLIMITED = 2**62


class Limits(NamedTuple):
    """The limits of one micro-batch.

    Attributes
    ----------
    chunks : int
        The largest number of chunks.
    max_bytes : int
        The number of bytes of the log after which the batch ends. A transaction is never divided.
    target : Position or None
        The position after which nothing is read; None reads up to the end of the log.
    """

    chunks: int
    max_bytes: int
    target: LogPosition | None = None


class RunEnd(NamedTuple):
    """Where a run with ``availableNow`` ends. The run reads nothing that is written later.

    Attributes
    ----------
    position : ServerPosition
        A settled position.
    new : list of Table
        The tables that may be added: they existed at the position, with these columns.
    """

    position: ServerPosition
    new: list[Table]


def fix_target(server: Server, options: CaptureOptions, server_id: int) -> RunEnd:
    """Return the target of a run that starts now."""
    # The tables are listed first: all of them exist at the position.
    tables = (
        [read_table(server, options, of) for of in matching(server, options)]
        if options.newly_added
        else []
    )
    position = server.settled()
    return RunEnd(
        ServerPosition(server.identity, position, gtids_at(server, position, server_id)), tables
    )


def target_in(server: Server, target: RunEnd, server_id: int) -> RunEnd:
    """Return a target with its position in the server's log: another server may have taken over."""
    if target.position.server == server.identity:
        return target
    position = end_at(server, target.position, server_id)
    return target._replace(
        position=target.position._replace(server=server.identity, position=position)
    )


def limits_of(options: CaptureOptions, target: RunEnd | None, *, unlimited: bool) -> Limits:
    """Return the limits of the next micro-batch.

    Parameters
    ----------
    target : RunEnd or None
        None for a query without ``availableNow``.
    unlimited : bool
        Whether Spark requests everything in one batch, as ``trigger(once=True)`` does.
    """
    limits = (
        Limits(_UNLIMITED, _UNLIMITED)
        if unlimited
        else Limits(options.chunks_per_batch, options.max_bytes)
    )
    return limits if target is None else limits._replace(target=target.position.position)


@dataclass
class BatchEnd:
    """The possible end of a batch, and the tables at that position.

    Attributes
    ----------
    position : Position
    touched : bool
        Whether rows of the tables may have changed since the previous batch.
    created : Position or None
        The position of the last statement that may have created a table.
    tables : dict of TableId to (Table or None)
        None for a table whose columns are unknown.
    gtids : list of str
        The GTIDs of the transactions up to the position.
    complete : bool
        Whether the log was scanned up to the settled position or the target.
    """

    position: LogPosition
    touched: bool
    created: LogPosition | None
    tables: dict[TableId, Table | None]
    gtids: list[str]
    complete: bool = False


def find_batch_end(
    server: Server,
    options: CaptureOptions,
    tables: Mapping[TableId, Table | None],
    seen: Offset,
    server_id: int,
    limits: Limits,
) -> BatchEnd:
    """Scan the log without its rows and return where the next batch ends.

    The batch ends at the current settled position. It ends earlier at the limits, or before a
    statement that alters a table's columns: all rows of a table in a batch have the same columns.

    Parameters
    ----------
    tables : mapping of TableId to (Table or None)
        The tables at `seen`; None for a table whose columns are unknown.

    Raises
    ------
    BinlogPurgedError
        If the log ends before `seen`.
    SchemaChangedError
        If the next statement does more than add columns, or the columns of the next rows are
        unknown.
    """
    settled = server.settled()
    target = (
        settled
        if limits.target is None
        else min(settled, limits.target, key=lambda each: each.order)
    )
    _require_reached(server, seen.position)
    log = LogReader(
        server,
        [table or read_table(server, options, of) for of, table in tables.items()],
        server_id,
        rows=False,
    )
    batch_end, size, last = BatchEnd(seen.position, False, None, dict(tables), []), 0, seen.position
    for entry in log.read(seen.position, target, lacking(server, seen.gtids)):
        if isinstance(entry, TableCreation):
            batch_end.created = entry.position
        if isinstance(entry, Statement) and not _pass(
            server, options, batch_end, entry, seen, server_id
        ):
            return batch_end
        if isinstance(entry, TransactionEnd):
            _require_known(batch_end, entry, seen)
            size += entry.position.pos - (last.pos if entry.position.file == last.file else 0)
            last = entry.position
            batch_end.gtids += [entry.gtid] if entry.gtid is not None else []
            batch_end = replace(
                batch_end, position=entry.position, touched=batch_end.touched or bool(entry.touched)
            )
            if size >= limits.max_bytes:
                return batch_end
    # The settled position can be before `seen`, which is the end of a file: the log continues in
    # the next file.
    batch_end = (
        replace(batch_end, position=target)
        if log.position.order >= target.order > batch_end.position.order
        else batch_end
    )
    return replace(batch_end, complete=batch_end.position.order >= target.order)


def _pass(
    server: Server,
    options: CaptureOptions,
    batch_end: BatchEnd,
    statement: Statement,
    seen: Offset,
    server_id: int,
) -> bool:
    """Record a table's columns after a statement; return whether the batch may continue past it."""
    before = batch_end.tables[statement.table]
    after = shape_after(server, options, statement, before)
    is_first = batch_end.position == seen.position
    if (after is None or after != before) and not is_first:
        return False
    # Another reader of the log is using server_id.
    if after is None or (
        may_differ(statement, before, after)
        and first_schema_change(server, statement.position, [after], server_id + 1)
    ):
        if is_first:
            raise _altered(statement)
        return False
    batch_end.tables[statement.table] = after
    return True


def _require_known(batch_end: BatchEnd, committed: TransactionEnd, seen: Offset) -> None:
    for table in sorted(committed.touched):
        if batch_end.tables[table] is None:
            raise unknown(table, seen.position)


def _require_reached(server: Server, position: LogPosition) -> None:
    end = server.written()
    if end.order < position.order:
        raise BinlogPurgedError(
            f"the server's log ends at {end}, before the start position {position}: the log was "
            "reset (RESET MASTER), or the position is wrong. Start with a new checkpoint"
        )


def _altered(statement: Statement) -> SchemaChangedError:
    table, position, text = statement.table, statement.position, repr(statement.text[:200])
    if statement.effect is Effect.WRITES:
        return SchemaChangedError(
            f"{table} is changed at {position}: {text}. The log has this statement instead of the "
            "rows that it changed. The query has emitted all changes before it and none after it. "
            "Use binlog_format = ROW in every session, and start with a new checkpoint"
        )
    return SchemaChangedError(
        f"{table} is altered at {position}: {text}. The query has emitted all changes before it "
        "and none after it. Restart the query from its checkpoint: it continues with the table's "
        "new columns. If this error repeats, start with a new checkpoint"
    )


def unknown(table: TableId, position: LogPosition) -> SchemaChangedError:
    """Return the error for rows whose columns are unknown."""
    return SchemaChangedError(
        f"{table} was altered since {position}, and the columns that it had there are unknown: "
        "start with a new checkpoint"
    )


# --------------------------------------------------------------------------------------------------
# The start position of a capture: ``scan.startup.mode``.


def start_position(server: Server, options: CaptureOptions, server_id: int) -> ServerPosition:
    """Return where the stream starts to read the log."""
    if options.startup_mode == "specific-offset" and options.startup_gtids is not None:
        gtids = options.startup_gtids
        if (
            not server.is_mariadb
        ):  # MySQL returns the set in canonical form, and raises an error for an invalid set
            gtids = str(server.value("SELECT GTID_SUBTRACT(%s, '')", (gtids,)))
        return ServerPosition(server.identity, begin_after(server, gtids, server_id), gtids)
    position = _start_in_log(server, options, server_id)
    return ServerPosition(server.identity, position, gtids_at(server, position, server_id))


def require_unaltered(
    server: Server,
    options: CaptureOptions,
    tables: Sequence[Table],
    start: LogPosition,
    server_id: int,
) -> None:
    """Check that the columns of all row changes after the start are known.

    Raises
    ------
    SchemaChangedError
        If a statement after a row change may have changed the table's columns.
    """
    if options.startup_mode in ("initial", "snapshot", "latest-offset"):
        return
    if change := first_schema_change(server, start, tables, server_id, after_rows=True):
        raise SchemaChangedError(
            f"{change.table} may have had other columns before {change.position}, where the log "
            f"has {change.text[:200]!r}: the columns of earlier changes are unknown. Start there "
            "or later: scan.startup.mode = specific-offset, scan.startup.specific-offset.file = "
            f"{change.position.file}, scan.startup.specific-offset.pos = {change.position.pos}"
        )


def _start_in_log(server: Server, options: CaptureOptions, server_id: int) -> LogPosition:
    if options.startup_mode == "specific-offset":
        return LogPosition(str(options.startup_file), int(options.startup_pos or FIRST_EVENT))
    if options.startup_mode == "earliest-offset":
        return _earliest(server)
    if options.startup_mode == "timestamp":
        return _at(server, options.startup_timestamp or 0, server_id)
    return server.settled()


def _earliest(server: Server) -> LogPosition:
    return LogPosition(server.rows("SHOW BINARY LOGS")[0][0], FIRST_EVENT)


def _at(server: Server, millis: int, server_id: int) -> LogPosition:
    """Return the end of the last transaction before a time."""
    end = _earliest(server)
    for entry in transactions(server, end, server.settled(), server_id):
        if entry.seconds * 1000 >= millis:
            break
        end = entry.position
    return end


# --------------------------------------------------------------------------------------------------
# The position in another server's log where a capture continues after a failover.
#
# The new server has the same transactions under the same GTIDs, but in other files. Their order can
# differ (MySQL's ``replica_preserve_commit_order = OFF``, MariaDB's domains), and local transactions
# can lie in between. The capture reads from the first transaction that it has not read, and skips
# those that it has read. A replica with GTID auto-positioning does the same.


def gtids_of(server: Server, text: str) -> Gtids:
    """Parse GTIDs in the format of a server."""
    return MariaDbGtids(text) if server.is_mariadb else MySqlGtids(text)


def gtids_at(server: Server, position: LogPosition, server_id: int) -> str | None:
    """Return the transactions before a position of the log; None if their GTIDs cannot be read.

    MariaDB has a function for it. For MySQL, these are all transactions of the server except those
    after the position.
    """
    if server.is_mariadb:
        return _gtids_before(server, position)
    try:
        executed = MySqlGtids(server.executed())
    except BinlogError:
        return None
    entries = transactions(server, position, server.written(), server_id)
    later = [entry.gtid for entry in entries if entry.gtid is not None]
    return None if UNREADABLE in later else str(executed.minus(later))


def gtids_after(server: Server, before: str | None, gtids: Iterable[str]) -> str | None:
    """Return transactions `before` and the later `gtids`; None if their GTIDs cannot be read."""
    later = list(gtids)
    if before is None or UNREADABLE in later:
        return None
    return str(gtids_of(server, before).plus(later)) if later else before


def lacking(server: Server, gtids: str | None) -> Callable[[str], bool]:
    """Return a function that returns whether a transaction is missing from `gtids`."""
    if gtids is None:
        return lambda _: True
    seen = gtids_of(server, gtids)
    return lambda gtid: gtid not in seen


def begin_at(server: Server, after: ServerPosition, server_id: int) -> LogPosition:
    """Return where the transactions after a position begin in the server's log.

    Raises
    ------
    ServerChangedError
        If this is another server, and the GTIDs are unknown or it lacks transactions before the
        position.
    BinlogPurgedError
        If this is another server, and it purged the log of transactions that the capture has not
        read.
    """
    return (
        after.position
        if after.server == server.identity
        else begin_after(server, _required_gtids(server, after), server_id)
    )


def end_at(server: Server, upto: ServerPosition, server_id: int) -> LogPosition:
    """Return where the transactions up to a position end in the server's log.

    Raise `begin_at`'s errors.
    """
    if upto.server == server.identity:
        return upto.position
    before = _required_gtids(server, upto)
    gtids, begin = gtids_of(server, before), begin_after(server, before, server_id)
    ends = (
        entry.position
        for entry in transactions(server, begin, server.written(), server_id)
        if entry.gtid is not None and entry.gtid in gtids
    )
    return max(ends, key=lambda each: each.order, default=begin)


def begin_after(server: Server, gtids: str, server_id: int) -> LogPosition:
    """Return the start of the first transaction not in `gtids`; raise the errors of `begin_at`."""
    seen = gtids_of(server, gtids)
    _require_all(server, seen)
    begin = _file_before(server, seen)
    for entry in transactions(server, begin, server.written(), server_id):
        if entry.gtid is not None and entry.gtid not in seen:
            break
        begin = entry.position
    return begin


def _required_gtids(server: Server, at: ServerPosition) -> str:
    if at.gtids is None:
        raise ServerChangedError(
            f"{server.options.hostname}:{server.options.port} is not the server whose log was read "
            f"before ({at.server}), and the checkpoint has no GTIDs that can be read: connect "
            "to that server, or start with a new checkpoint"
        )
    return at.gtids


def transactions(
    server: Server, start: LogPosition, end: LogPosition, server_id: int
) -> Iterator[TransactionEnd]:
    """Yield the ends of the transactions between two positions of the log."""
    entries = LogReader(server, [], server_id, rows=False).read(start, end)
    return (entry for entry in entries if isinstance(entry, TransactionEnd))


def _require_all(server: Server, gtids: Gtids) -> None:
    """Wait for all transactions; raise an error on timeout or if the log lacks replicated ones."""
    if not _logs_all(server):
        raise ServerChangedError(
            f"the log of {server.options.hostname}:{server.options.port} lacks replicated "
            "transactions: start replicas with "
            f"{'--log-slave-updates' if server.is_mariadb else '--log-replica-updates'}, and start "
            "with a new checkpoint"
        )
    deadline = time.monotonic() + server.options.connect_timeout
    while not _has(server, gtids):
        if time.monotonic() > deadline:
            raise ServerChangedError(
                f"{server.options.hostname}:{server.options.port} ({server.identity}) has the "
                f"transactions {server.executed()}, but not all of {gtids}, which come before the "
                "start position: restart the query when the server has them. If they are lost, "
                "start with a new checkpoint"
            )
        time.sleep(AGAIN_AFTER)


def _logs_all(server: Server) -> bool:
    """Return whether the server's own log contains replicated transactions."""
    if server.is_mariadb:
        return MariaDbGtids(server.executed()).includes(
            MariaDbGtids(str(server.value("SELECT @@GLOBAL.gtid_slave_pos")))
        )
    settings = server.rows(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_replica_updates', 'log_slave_updates')"
    )
    return all(value == "ON" for _, value in settings)


def _has(server: Server, gtids: Gtids) -> bool:
    """Return whether transactions are in the server's log and visible to queries."""
    if isinstance(gtids, MySqlGtids):
        return MySqlGtids(server.executed()).includes(gtids)
    seen = MariaDbGtids(_gtids_before(server, server.settled()))
    return MariaDbGtids(server.executed()).includes(gtids) and seen.covers(gtids)


def _file_before(server: Server, gtids: Gtids) -> LogPosition:
    """Return the start of the last file that has only these transactions before it."""
    for file, *_ in reversed(server.rows("SHOW BINARY LOGS")):
        if _covers(gtids, server, LogPosition(file, FIRST_EVENT)):
            return LogPosition(file, FIRST_EVENT)
    raise BinlogPurgedError(
        f"the log of {server.options.hostname}:{server.options.port} begins after transactions "
        f"that are not in {gtids}, the set to continue from. Their changes are lost: start with a "
        "new checkpoint, and keep the log longer (SET GLOBAL binlog_expire_logs_seconds = 604800)"
    )


def _covers(gtids: Gtids, server: Server, head: LogPosition) -> bool:
    if isinstance(gtids, MariaDbGtids):
        return gtids.covers(MariaDbGtids(_gtids_before(server, head)))
    events = server.rows("SHOW BINLOG EVENTS IN %s LIMIT 3", (head.file,))
    by_kind = {kind: info for _, _, kind, _, _, info, *_ in events}
    return gtids.covers(MySqlGtids(by_kind.get("Previous_gtids", "")))


def _gtids_before(server: Server, position: LogPosition) -> str:
    """Return the transactions before a position of a MariaDB log."""
    return str(server.value("SELECT BINLOG_GTID_POS(%s, %s)", position) or "")
