"""A chunk of the table as it was at a position of the log: selected later, and rolled back by the log.

Netflix's DBLog and Flink CDC select a chunk between two watermarks of the log and *replay* what happened in between, so that the chunk
is as of the high watermark. Here it is turned around. A micro-batch of Spark ends at an offset that is chosen before its tasks run: at a
position E. So a task selects the chunk at any time after E, reads the log from E to HIGH, the position after its SELECT, and *rolls back*
what happened in between, by the before-images that the log has. The chunk is as of E, whenever it is selected::

    log      ... ── E ── ~k1 ── -k3 ── +k7 ── SELECT ── ~k5 ── ~k1 ── HIGH ── ...

    table at E      │ SELECT gives        log E..HIGH, first of each key     emitted
    k1 = a          │ k1 = A              ~k1: was a                         +I k1 = a
    k2 = b          │ k2 = b                                                 +I k2 = b
    k3 = c          │ (nothing)           -k3: was c                         +I k3 = c
    k4 = d          │ k4 = d                                                 +I k4 = d
    k5 = e          │ k5 = e              ~k5: was e (not seen by SELECT)    +I k5 = e
    k6 = f          │ k6 = f                                                 +I k6 = f
    (nothing)       │ k7 = g              +k7: was nothing                   (nothing)

The rule needs no more than the first event of each key: its before-image is the row as of E, and none where the event is an insert.
A key without an event has the row that was selected. What follows after E, the log's reader emits in later batches: for keys up to the
*frontier*, the key up to which chunks are done, from the position that their chunk is as of.

- A chunk that is read again, by a task tried again or by a batch replayed after a crash, gives the very same rows: nothing but E and the
  range of keys has to be kept, so that the offset does not grow with the table.
- It needs all of the log up to E to be visible to the SELECT: E is a settled position (`capture.server`).
- Rows are told apart by the exact value of their primary key, whatever its collation: ``A`` that becomes ``a`` is an event of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from .binlog import Change, LogReader, Statement
from .errors import SchemaChangedError
from .keys import KeyRange, condition, in_range
from .select import Selector, rows_of, texts_of
from .server import Position, Server
from .shapes import projected, projection, shape_after
from .table import Row, Table


class Undo:
    """What rows were before the changes since a position: the before-image of the first change of each key."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.images: dict[Row, Row | None] = {}

    def note(self, change: Change) -> None:
        """Take note of the next change in the log."""
        if change.before is not None:
            self.images.setdefault(self.table.identity(change.before), change.before)
        if change.after is not None:
            self.images.setdefault(self.table.identity(change.after), None)

    def untouched(self, texts: pa.Table) -> pa.Table:
        """Return the rows that no change was of."""
        if not self.images:
            return texts
        return texts.filter(pa.array([identity not in self.images for identity in rows_of(texts, self.table.primary_key)], pa.bool_()))

    def present(self) -> list[Row]:
        """Return the rows that there were, of the keys that changes were of."""
        return [row for row in self.images.values() if row is not None]


def read_chunks(
    server: Server, log: LogReader, ranges: Sequence[KeyRange], as_of: Position, later: Callable[[str], bool] = lambda _: True
) -> Iterator[pa.Table]:
    """Return the rows of neighbouring chunks as they were at a position, one chunk after the other, as columns of texts.

    The log is read once, each chunk going on where the one before it stopped. Rows have the columns that the table had at the position,
    whatever was added since.

    Parameters
    ----------
    as_of : Position
        No transaction before it is rolled back.
    later : callable
        Of transactions after it, by their GTIDs, whether they are: in another server's log those before it may come after it.

    Raises
    ------
    SchemaChangedError
        When the table was altered since, other than by a column that was added.
    """
    table, places = log.table, projection(log.table, log.table)
    undo, read, selector = Undo(table), as_of, Selector(server, log.options, table)
    for keys in ranges:
        selected = selector.select(condition(table, keys))
        for entry in log.read(read, server.written(), later):
            if isinstance(entry, Statement):
                log.take_table(_after(server, log, entry))
                places = projection(log.table, table)
            if isinstance(entry, Change):
                undo.note(entry._replace(before=projected(entry.before, places), after=projected(entry.after, places)))
        read = log.position
        before = undo.present()
        inside = in_range(server, table, [table.key(row) for row in before], keys)
        again = texts_of(table, [row for row, inside_ in zip(before, inside, strict=True) if inside_])
        yield pa.concat_tables([undo.untouched(selected), again])


def _after(server: Server, log: LogReader, statement: Statement) -> Table:
    found = shape_after(server, log.options, statement, log.table)
    if found is None:
        raise _altered(log.table, statement)
    return found


def _altered(table: Table, statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{table.qualified} was changed at {statement.position} while its snapshot was read: {statement.text[:200]!r}. "
        "Begin anew, with another checkpoint"
    )
