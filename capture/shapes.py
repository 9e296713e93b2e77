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

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from .binlog import LogReader
from .entries import Statement
from .errors import ServerNotReadyError
from .options import Options
from .server import Server
from .table import Row, Table, quoted, read_table

_ASIDE = re.compile(r"'(?:[^'\\]|\\.|'')*'|/\*.*?\*/|--[^\n]*", re.DOTALL)
_KEEPS_ROWS = re.compile(r"\s*(?:ALTER|DROP\s+INDEX)\b", re.IGNORECASE)
_LOSES_ROWS = re.compile(
    r"\b(?:RENAME\s+(?!COLUMN\b|INDEX\b|KEY\b)|(?:TRUNCATE|DROP|EXCHANGE)\s+PARTITION\b|(?:DISCARD|IMPORT)\s+(?:PARTITION|TABLESPACE)\b)",
    re.IGNORECASE,
)
_RESHAPES = re.compile(
    r"\b(?:MODIFY|CHANGE|CONVERT|RENAME|DROP\s+(?!INDEX\b|KEY\b|CONSTRAINT\b|FOREIGN\b|CHECK\b|DEFAULT\b))", re.IGNORECASE
)


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
    """Return the table as it is after a statement, None where that is not known, or where the statement has done something to rows.

    Parameters
    ----------
    shape : Table or None
        The table before it; None where that is not known, and is not needed: a query was started again to go on with the columns of now.
    """
    text = _ASIDE.sub(" ", statement.text)
    if not _KEEPS_ROWS.match(text) or _LOSES_ROWS.search(text):
        return None
    try:
        now = read_table(server, options, statement.table)
    except ServerNotReadyError:
        return None
    return now if shape is None else _with_named(text, shape, now)


def _with_named(text: str, shape: Table, now: Table) -> Table | None:
    old = {column.name for column in shape.columns}
    kept = [place for place, column in enumerate(now.columns) if column.name in old or _names(text, column.name)]
    found = restricted(now, kept)
    if found is None:
        return None
    before = restricted(found, [place for place, column in enumerate(found.columns) if column.name in old])
    return found if before == shape else None


def _names(text: str, name: str) -> bool:
    return quoted(name) in text or re.search(rf"(?<![\w$`]){re.escape(name)}(?![\w$`])", text, re.IGNORECASE) is not None


def reshaped_after(server: Server, statement: Statement, shape: Table, server_id: int) -> bool:
    """Return whether columns were changed again after a statement, so that those of now are not those that it left."""
    log = LogReader(server, [shape], server_id, rows=False)
    later = (entry for entry in log.read(statement.position, server.written()) if isinstance(entry, Statement))
    return any(_RESHAPES.search(_ASIDE.sub(" ", entry.text)) for entry in later)
