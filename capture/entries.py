"""What a binary log has: changes of rows, statements, and the ends of transactions."""

from __future__ import annotations

from typing import NamedTuple

from .server import Position
from .statements import Effect
from .table import Row, TableId


class Change(NamedTuple):
    """A change of a row.

    Attributes
    ----------
    before, after : Row or None
        None where there was no row, or is none.
    position : Position
        The end of its event; where the server does not write that (MariaDB since 11.4), the end of the last event that has one.
    number : int
        Its place among the captured tables' rows in the transaction.
    seconds : int
        The source's time, since 1970-01-01 UTC.
    server_id : int
        The server that it was made on.
    gtid : str or None
        The transaction; None where it has none that can be read.
    table : TableId
    """

    before: Row | None
    after: Row | None
    position: Position
    number: int
    seconds: int
    server_id: int
    gtid: str | None
    table: TableId


class Statement(NamedTuple):
    """A statement that has an effect on a table.

    Attributes
    ----------
    text : str
    position : Position
        The end of its event.
    table : TableId
    effect : Effect
    names : frozenset of str
        The words and quoted names in it, in lower case.
    removed : frozenset of str
        The names of columns that it drops, or gives another name, in lower case.
    """

    text: str
    position: Position
    table: TableId
    effect: Effect
    names: frozenset[str]
    removed: frozenset[str]


class Creation(NamedTuple):
    """A statement that may have made a table, or given one another name."""

    position: Position


class Committed(NamedTuple):
    """The end of a transaction.

    Attributes
    ----------
    touched : frozenset of TableId
        The tables that it may have changed; where changes are left out, a table is in the first that did alone.
    seconds, gtid
        As of a change.
    """

    position: Position
    touched: frozenset[TableId]
    seconds: int
    gtid: str | None


LogEntry = Change | Statement | Creation | Committed
