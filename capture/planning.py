"""Finds the end of the next micro-batch: the driver scans the log without its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .binlog import LogReader
from .entries import Statement, TableCreation, TransactionEnd
from .errors import BinlogPurgedError, SchemaChangedError
from .failover import lacking
from .limits import Limits
from .offset import Offset
from .options import CaptureOptions
from .server import LogPosition, Server
from .shapes import first_schema_change, may_differ, shape_after
from .statements import Effect
from .table import Table, TableId, read_table


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
