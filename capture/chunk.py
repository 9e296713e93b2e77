"""A chunk of a table as it was at a position of the log: selected later, and rolled back by the log.

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

from .binlog import LogReader
from .chunks import Chunk
from .entries import Change, LogEntry, Statement
from .errors import SchemaChangedError
from .keys import KeyRange, condition, in_range
from .select import Selector, rows_of, texts_of
from .server import Position, Server
from .shapes import may_differ, projected, projection, reshaping, shape_after
from .table import Row, Table, TableId


class Undo:
    """What a table's rows were before the changes since a position: the before-image of the first change of each key."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.places = projection(table, table)
        self.images: dict[Row, Row | None] = {}

    def reshape(self, now: Table) -> None:
        """Take note of changes whose rows have columns more."""
        self.places = projection(now, self.table)

    def note(self, change: Change) -> None:
        """Take note of the next change in the log."""
        before, after = projected(change.before, self.places), projected(change.after, self.places)
        if before is not None:
            self.images.setdefault(self.table.identity(before), before)
        if after is not None:
            self.images.setdefault(self.table.identity(after), None)

    def untouched(self, texts: pa.Table) -> pa.Table:
        """Return the rows that no change was of."""
        if not self.images:
            return texts
        return texts.filter(pa.array([identity not in self.images for identity in rows_of(texts, self.table.primary_key)], pa.bool_()))

    def present(self) -> list[Row]:
        """Return the rows that there were, of the keys that changes were of."""
        return [row for row in self.images.values() if row is not None]


def read_chunks(
    server: Server, log: LogReader, chunks: Sequence[Chunk], as_of: Position, later: Callable[[str], bool] = lambda _: True
) -> Iterator[tuple[Table, pa.Table]]:
    """Return the rows of chunks as they were at a position, one chunk after the other, as columns of texts.

    The log is read once, each chunk going on where the one before it stopped; a table that no more chunks are of is left. Rows have the
    columns that their table had at the position, whatever was added since.

    Parameters
    ----------
    log : LogReader
        Of the chunks' tables.
    chunks : sequence of Chunk
        Those of one table are neighbours.
    as_of : Position
        No transaction before it is rolled back.
    later : callable
        Of transactions after it, by their GTIDs, whether they are: in another server's log those before it may come after it.

    Raises
    ------
    SchemaChangedError
        When a table was altered before its chunks were read, other than by a column that was added.
    """
    undone = {table.id: Undo(table) for table, _ in chunks}
    read, following = as_of, [*(chunk.table.id for chunk in chunks[1:]), None]
    selector: Selector | None = None
    for (table, keys), after in zip(chunks, following, strict=True):
        if selector is None or selector.table.id != table.id:
            selector = Selector(server, log.options, table)
        selected = selector.select(condition(table, keys))
        doubtful: list[Statement] = []
        for entry in log.read(read, server.written(), later):
            doubtful += _note(server, log, entry, undone)
        for statement in doubtful:
            if reshaping(server, statement.position, [log.table(statement.table)], log.server_id):
                raise _altered(statement)
        read = log.position
        yield table, _undone(server, undone[table.id], selected, keys)
        if after != table.id:
            log.leave(table.id)
            del undone[table.id]


def _note(server: Server, log: LogReader, entry: LogEntry, undone: dict[TableId, Undo]) -> list[Statement]:
    """Take note of what comes next in the log; return the statement if it left columns that may be others than those of now."""
    doubtful: list[Statement] = []
    if isinstance(entry, Statement):
        before, after = log.table(entry.table), _after(server, log, entry)
        log.take_table(after)
        undone[entry.table].reshape(after)
        doubtful += [entry] if may_differ(entry, before, after) else []
    if isinstance(entry, Change):
        undone[entry.table].note(entry)
    return doubtful


def _undone(server: Server, undo: Undo, selected: pa.Table, keys: KeyRange) -> pa.Table:
    before = undo.present()
    inside = in_range(server, undo.table, [undo.table.key(row) for row in before], keys)
    again = texts_of(undo.table, [row for row, inside_ in zip(before, inside, strict=True) if inside_])
    return pa.concat_tables([undo.untouched(selected), again])


def _after(server: Server, log: LogReader, statement: Statement) -> Table:
    found = shape_after(server, log.options, statement, log.table(statement.table))
    if found is None:
        raise _altered(statement)
    return found


def _altered(statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{statement.table} was changed at {statement.position} while its snapshot was read: {statement.text[:200]!r}. "
        "Begin anew, with another checkpoint"
    )
