"""Finds the end of the next micro-batch: the driver scans the log without its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from .binlog import LogReader
from .entries import Committed, Creation, Statement
from .errors import BinlogPurgedError, SchemaChangedError
from .failover import lacking
from .offset import Offset
from .options import Options
from .server import Position, Server
from .shapes import may_differ, reshaping, shape_after
from .statements import Effect
from .table import Table, TableId, read_table


@dataclass
class Reach:
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
        Whether the whole settled log was scanned.
    """

    position: Position
    touched: bool
    created: Position | None
    tables: dict[TableId, Table | None]
    gtids: list[str]
    complete: bool = False


def furthest(server: Server, options: Options, tables: Mapping[TableId, Table | None], seen: Offset, server_id: int) -> Reach:
    """Scan the log without its rows and return where the next batch ends.

    The batch ends at the current settled position. It ends earlier after `Options.max_bytes`, or before a statement that alters a table's
    columns: all rows of a table in a batch have the same columns.

    Parameters
    ----------
    tables : mapping of TableId to (Table or None)
        The tables at `seen`; None for a table whose columns are unknown.

    Raises
    ------
    BinlogPurgedError
        If the log ends before `seen`.
    SchemaChangedError
        If the next statement does more than add columns, or the columns of the next rows are unknown.
    """
    target = server.settled()
    _require_reached(server, seen.position)
    log = LogReader(server, [table or read_table(server, options, of) for of, table in tables.items()], server_id, rows=False)
    reach, size, last = Reach(seen.position, False, None, dict(tables), []), 0, seen.position
    for entry in log.read(seen.position, target, lacking(server, seen.gtids)):
        if isinstance(entry, Creation):
            reach.created = entry.position
        if isinstance(entry, Statement) and not _pass(server, options, reach, entry, seen, server_id):
            return reach
        if isinstance(entry, Committed):
            _require_known(reach, entry, seen)
            size += entry.position.pos - (last.pos if entry.position.file == last.file else 0)
            last = entry.position
            reach.gtids += [entry.gtid] if entry.gtid is not None else []
            reach = replace(reach, position=entry.position, touched=reach.touched or bool(entry.touched))
            if size >= options.max_bytes:
                return reach
    # The settled position can be before `seen`, which is the end of a file: the log continues in the next file.
    reach = replace(reach, position=target) if log.position.order >= target.order > reach.position.order else reach
    return replace(reach, complete=reach.position.order >= target.order)


def _pass(server: Server, options: Options, reach: Reach, statement: Statement, seen: Offset, server_id: int) -> bool:
    """Record a table's columns after a statement; return whether the batch may continue past it."""
    before = reach.tables[statement.table]
    after = shape_after(server, options, statement, before)
    is_first = reach.position == seen.position
    if (after is None or after != before) and not is_first:
        return False
    # Another reader of the log is using server_id.
    if after is None or (may_differ(statement, before, after) and reshaping(server, statement.position, [after], server_id + 1)):
        if is_first:
            raise _altered(statement)
        return False
    reach.tables[statement.table] = after
    return True


def _require_known(reach: Reach, committed: Committed, seen: Offset) -> None:
    for table in sorted(committed.touched):
        if reach.tables[table] is None:
            raise unknown(table, seen.position)


def _require_reached(server: Server, position: Position) -> None:
    end = server.written()
    if end.order < position.order:
        raise BinlogPurgedError(
            f"the server's log ends at {end}, before the start position {position}: the log was reset (RESET MASTER), or the position is "
            "wrong. Start with a new checkpoint"
        )


def _altered(statement: Statement) -> SchemaChangedError:
    table, position, text = statement.table, statement.position, repr(statement.text[:200])
    if statement.effect is Effect.WRITES:
        return SchemaChangedError(
            f"{table} is changed at {position}: {text}. The log has this statement instead of the rows that it changed. The query has "
            "emitted all changes before it and none after it. Use binlog_format = ROW in every session, and start with a new checkpoint"
        )
    return SchemaChangedError(
        f"{table} is altered at {position}: {text}. The query has emitted all changes before it and none after it. Restart the query from "
        "its checkpoint: it continues with the table's new columns. If this error repeats, start with a new checkpoint"
    )


def unknown(table: TableId, position: Position) -> SchemaChangedError:
    """Return the error for rows whose columns are unknown."""
    return SchemaChangedError(
        f"{table} was altered since {position}, and the columns that it had there are unknown: start with a new checkpoint"
    )
