"""Determines the columns of log rows before and after an ``ALTER TABLE``.

The server returns only the current columns, and the log has no column names. The columns of rows
are derived as follows:

====================  ==============================================================================
rows                  columns
====================  ==============================================================================
before the statement  those with the offset's fingerprint: the current columns, or these without one
                      run of neighbouring columns
after the statement   the same, and those current columns that the statement names
====================  ==============================================================================

The capture stops at a statement that changes columns in another way, or that changes rows without
row events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from .binlog import LogReader
from .errors import ServerNotReadyError
from .options import CaptureOptions
from .server import LogPosition, Server
from .statements import Effect, Statement, TransactionEnd
from .table import Row, Table, TableId, read_table

_CHANGING_ROWS = (Effect.EMPTIES, Effect.WRITES, Effect.REPLACES)
_RESHAPING = (Effect.RESHAPES, Effect.REPLACES)


def with_columns(table: Table, kept: Sequence[int]) -> Table | None:
    """Return a table with some of its columns; None if a key column is not one of them."""
    places = {index: place for place, index in enumerate(kept)}
    if not places.keys() >= {*table.primary_key, *table.chunk_key}:
        return None
    primary, chunk = (
        tuple(places[index] for index in key) for key in (table.primary_key, table.chunk_key)
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
    places = {column.name: place for place, column in enumerate(table.columns)}
    return [places[column.name] for column in onto.columns]


def projected(row: Row | None, places: Sequence[int]) -> Row | None:
    """Return a row's values at some indexes."""
    return None if row is None else tuple(row[place] for place in places)


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
        place
        for place, column in enumerate(now.columns)
        if column.name in old or column.name.lower() in names
    ]
    reshaped = with_columns(now, kept)
    if reshaped is None:
        return None
    before = with_columns(
        reshaped, [place for place, column in enumerate(reshaped.columns) if column.name in old]
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
