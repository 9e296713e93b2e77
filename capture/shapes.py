"""The columns that rows of the log have: the table's before an ``ALTER TABLE``, or those after it.

The server tells the columns of now alone, and the log has no names. What is known:

==================  ================================================================================================================
rows                columns
==================  ================================================================================================================
before a statement  those whose fingerprint the offset has: the columns of now, or these without one run of neighbours, added since
after it            the same, and of the columns of now those that the statement names
==================  ================================================================================================================

A statement that does anything else to columns, or to rows and not by rows, is where a capture stops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .binlog import LogReader
from .entries import Committed, Statement
from .errors import ServerNotReadyError
from .options import Options
from .server import Position, Server
from .statements import Effect
from .table import Row, Table, TableId, read_table

_CHANGING_ROWS = (Effect.EMPTIES, Effect.WRITES, Effect.REPLACES)
_RESHAPING = (Effect.RESHAPES, Effect.REPLACES)


def restricted(table: Table, kept: Sequence[int]) -> Table | None:
    """Return a table with some of its columns, None where its keys are not among them."""
    places = {index: place for place, index in enumerate(kept)}
    if not places.keys() >= {*table.primary_key, *table.chunk_key}:
        return None
    primary, chunk = (tuple(places[index] for index in key) for key in (table.primary_key, table.chunk_key))
    return replace(table, columns=tuple(table.columns[index] for index in kept), primary_key=primary, chunk_key=chunk)


def with_fingerprint(now: Table, fingerprint: str) -> Table | None:
    """Return the table as it was when it had a fingerprint, None where more was done to it than to add neighbouring columns."""
    return next((shape for shape in _earlier(now) if shape.fingerprint == fingerprint), None)


def _earlier(now: Table) -> Iterator[Table]:
    """Return the table without each run of columns, the shortest and last first."""
    yield now
    everything = range(len(now.columns))
    for length in everything[1:]:
        for start in reversed(range(len(everything) - length + 1)):
            if shape := restricted(now, [*everything[:start], *everything[start + length :]]):
                yield shape


def projection(table: Table, onto: Table) -> list[int]:
    """Return where a table's row has the columns of an earlier shape of it."""
    places = {column.name: place for place, column in enumerate(table.columns)}
    return [places[column.name] for column in onto.columns]


def projected(row: Row | None, places: Sequence[int]) -> Row | None:
    """Return a row's values at some places."""
    return None if row is None else tuple(row[place] for place in places)


def shape_after(server: Server, options: Options, statement: Statement, shape: Table | None) -> Table | None:
    """Return the table as it is after a statement, None where that is not known, or where the statement may have changed rows.

    Parameters
    ----------
    shape : Table or None
        The table before it; None where that is not known, and is not needed: a query was started again to go on with the columns of now.
    """
    if statement.effect in _CHANGING_ROWS:
        return None
    if shape is not None and statement.removed & {column.name.lower() for column in shape.columns}:
        return None  # even if the table has a column of that name now: it is another
    try:
        now = read_table(server, options, statement.table)
    except ServerNotReadyError:
        return None
    return now if shape is None else _with_named(statement.names, shape, now)


def _with_named(names: frozenset[str], shape: Table, now: Table) -> Table | None:
    old = {column.name for column in shape.columns}
    kept = [place for place, column in enumerate(now.columns) if column.name in old or column.name.lower() in names]
    found = restricted(now, kept)
    if found is None:
        return None
    before = restricted(found, [place for place, column in enumerate(found.columns) if column.name in old])
    return found if before == shape else None


def may_differ(statement: Statement, before: Table | None, after: Table) -> bool:
    """Return whether the columns that a statement left may be others than those of now.

    Where they are the same before the statement and now, it may have changed them, and a later one may have undone that.
    """
    return after != before or statement.effect is Effect.RESHAPES


def reshaping(server: Server, start: Position, tables: Sequence[Table], server_id: int, *, after_rows: bool = False) -> Statement | None:
    """Return the first statement after a position that may have changed columns of a table, None where there is none.

    Parameters
    ----------
    after_rows : bool
        Look only for one that comes after a change of its table's rows.
    """
    log = LogReader(server, tables, server_id, rows=False)
    changed: set[TableId] = set()
    for entry in log.read(start, server.written()):
        if isinstance(entry, Committed):
            changed |= entry.touched
        elif isinstance(entry, Statement) and entry.effect in _RESHAPING and (not after_rows or entry.table in changed):
            return entry
    return None
