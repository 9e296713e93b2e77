"""How far a micro-batch may go: the driver's look through the log, without its rows."""

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
    """How far a batch may go, and what the tables are there.

    Attributes
    ----------
    position : Position
    touched : bool
        Whether rows of the tables may have changed since.
    created : Position or None
        Where the last statement is that may have made a table.
    tables : dict of TableId to (Table or None)
        None where that is not known.
    gtids : list of str
        The transactions up to there, by their GTIDs.
    complete : bool
        Whether it is all of the log that was settled.
    """

    position: Position
    touched: bool
    created: Position | None
    tables: dict[TableId, Table | None]
    gtids: list[str]
    complete: bool = False


def furthest(server: Server, options: Options, tables: Mapping[TableId, Table | None], seen: Offset, server_id: int) -> Reach:
    """Look through the log, without its rows, for where the next batch ends.

    That is the settled position of now, or earlier: where enough bytes have been read, or before a statement that alters a table's
    columns, so that all of a table's rows in a batch have the same.

    Parameters
    ----------
    tables : mapping of TableId to (Table or None)
        What the tables are at `seen`; None where that is not known.

    Raises
    ------
    BinlogPurgedError
        When the log does not reach to where it was read.
    SchemaChangedError
        When such a statement is next and did more than to add columns, or when rows are next whose columns are not known.
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
    # What is settled now may lie before what is seen: the end of a file, where the log goes on in the next.
    reach = replace(reach, position=target) if log.position.order >= target.order > reach.position.order else reach
    return replace(reach, complete=reach.position.order >= target.order)


def _pass(server: Server, options: Options, reach: Reach, statement: Statement, seen: Offset, server_id: int) -> bool:
    """Note what a statement has left of its table; return whether a batch may go past it."""
    before = reach.tables[statement.table]
    after = shape_after(server, options, statement, before)
    is_first = reach.position == seen.position
    if (after is None or after != before) and not is_first:
        return False
    # The log is being read by this server id.
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
            f"the server's log ends at {end}, before {position}: it was begun anew since (RESET MASTER), or was never there. "
            "Begin anew, with another checkpoint"
        )


def _altered(statement: Statement) -> SchemaChangedError:
    table, position, text = statement.table, statement.position, repr(statement.text[:200])
    if statement.effect is Effect.WRITES:
        return SchemaChangedError(
            f"{table} is changed at {position}: {text}. The log has this statement instead of the rows that it changed. All before it has "
            "been emitted, nothing after it. Use binlog_format = ROW in every session, and begin anew, with another checkpoint"
        )
    return SchemaChangedError(
        f"{table} is altered at {position}: {text}. All before it has been emitted, nothing after it. Start the query again from its "
        "checkpoint: it goes on with the columns that the table has then, or reports this error again. In that case begin anew, with "
        "another checkpoint"
    )


def unknown(table: TableId, position: Position) -> SchemaChangedError:
    """Return the error of rows of the log whose columns are not known."""
    return SchemaChangedError(
        f"{table} was altered since {position}, and the columns that it had there are not known: begin anew, with another checkpoint"
    )
