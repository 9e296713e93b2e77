"""Entries of a binary log: row changes, statements, and ends of transactions."""

from __future__ import annotations

from typing import NamedTuple

from .server import LogPosition
from .statements import Effect
from .table import Row, TableId


class RowChange(NamedTuple):
    """A row change.

    Attributes
    ----------
    before, after : Row or None
        `before` is None for an insert, `after` for a delete.
    position : Position
        The end of its event. If the server does not write that (MariaDB since 11.4), the end of the
        last event that has one.
    number : int
        The index of the row among the captured tables' rows in the transaction.
    seconds : int
        The source's time, since 1970-01-01 UTC.
    server_id : int
        The server where the change was made.
    gtid : str or None
        The transaction's GTID; None if there is none or it cannot be read.
    table : TableId
    """

    before: Row | None
    after: Row | None
    position: LogPosition
    number: int
    seconds: int
    server_id: int
    gtid: str | None
    table: TableId


class Statement(NamedTuple):
    """A statement that affects a table.

    Attributes
    ----------
    text : str
    position : Position
        The end of its event.
    table : TableId
    effect : Effect
    names : frozenset of str
        Its words and quoted names, in lower case.
    removed : frozenset of str
        The columns that it drops or renames, in lower case.
    """

    text: str
    position: LogPosition
    table: TableId
    effect: Effect
    names: frozenset[str]
    removed: frozenset[str]


class TableCreation(NamedTuple):
    """A statement that may have created or renamed a table."""

    position: LogPosition


class TransactionEnd(NamedTuple):
    """The end of a transaction.

    Attributes
    ----------
    touched : frozenset of TableId
        The tables that the transaction may have changed. A reader without row changes reports a
        table only for the first such transaction.
    seconds, gtid
        See `RowChange`.
    """

    position: LogPosition
    touched: frozenset[TableId]
    seconds: int
    gtid: str | None


LogEntry = RowChange | Statement | TableCreation | TransactionEnd
