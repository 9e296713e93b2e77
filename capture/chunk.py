"""A table's chunk as of a log position: a task selects it later and rolls back the changes since.

Netflix's DBLog and Flink CDC select a chunk between two watermarks of the log and *replay* the
changes in between. Their chunk is as of the high watermark. This module does the reverse. Spark
chooses the end of a micro-batch, position E, before its tasks run. A task selects the chunk at any
time after E. It then reads the log from E to HIGH, the position after its SELECT, and *rolls back*
these changes with the before-images of the log. The chunk is as of E, whenever the task selects
it::

    log      ... ── E ── ~k1 ── -k3 ── +k7 ── SELECT ── ~k5 ── ~k1 ── HIGH ── ...

    table at E      │ SELECT gives        log E..HIGH, first of each key     emitted
    k1 = a          │ k1 = A              ~k1: was a                         +I k1 = a
    k2 = b          │ k2 = b                                                 +I k2 = b
    k3 = c          │ (nothing)           -k3: was c                         +I k3 = c
    k4 = d          │ k4 = d                                                 +I k4 = d
    k5 = e          │ k5 = e              ~k5: was e (not seen by SELECT)    +I k5 = e
    k6 = f          │ k6 = f                                                 +I k6 = f
    (nothing)       │ k7 = g              +k7: was nothing                   (nothing)

Only the first event of each key matters. Its before-image is the row as of E; an insert means that
the row did not exist. A key without an event keeps the selected row. The log reader emits the
changes after E in later batches, for keys up to the *frontier*: the last key whose chunk is done.

- A retried task and a batch replayed after a crash return the same rows. The offset stores only E
  and the range of keys, so it does not grow with the table.
- The SELECT must see every transaction up to E: E is a settled position (`capture.server`).
- Rows are identified by the exact value of the primary key, whatever its collation: an update from
  ``A`` to ``a`` changes two keys.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from .binlog import LogReader
from .chunks import Chunk
from .entries import LogEntry, RowChange, Statement
from .errors import SchemaChangedError
from .keys import KeyRange, condition, in_range
from .select import Selector, rows_of, texts_of
from .server import LogPosition, Server
from .shapes import first_schema_change, may_differ, projected, projection, shape_after
from .table import Row, Table, TableId


class Rollback:
    """The before-image of each key's first change: a table's rows before the changes."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.places = projection(table, table)
        self.images: dict[Row, Row | None] = {}

    def reshape(self, now: Table) -> None:
        """Accept further changes with the columns of an altered table."""
        self.places = projection(now, self.table)

    def note(self, change: RowChange) -> None:
        """Add the next change of the log."""
        before, after = projected(change.before, self.places), projected(change.after, self.places)
        if before is not None:
            self.images.setdefault(self.table.identity(before), before)
        if after is not None:
            self.images.setdefault(self.table.identity(after), None)

    def untouched(self, texts: pa.Table) -> pa.Table:
        """Return the rows that did not change."""
        if not self.images:
            return texts
        return texts.filter(
            pa.array(
                [
                    identity not in self.images
                    for identity in rows_of(texts, self.table.primary_key)
                ],
                pa.bool_(),
            )
        )

    def present(self) -> list[Row]:
        """Return the earlier rows of the keys that changed."""
        return [row for row in self.images.values() if row is not None]


def read_chunks(
    server: Server,
    log: LogReader,
    chunks: Sequence[Chunk],
    as_of: LogPosition,
    later: Callable[[str], bool] = lambda _: True,
) -> Iterator[tuple[Table, pa.Table]]:
    """Return the rows of each chunk as of a position, as columns of text.

    The log is read once: each chunk continues where the previous one stopped. A table is no longer
    read after its last chunk. Rows have the columns that the table had at the position.

    Parameters
    ----------
    log : LogReader
        A reader of the chunks' tables.
    chunks : sequence of Chunk
        Grouped by table.
    as_of : Position
        No transaction before it is rolled back.
    later : callable
        Returns whether a transaction, given by its GTID, is after the position. Logs of different
        servers can differ in order.

    Raises
    ------
    SchemaChangedError
        If a table was altered before its chunks were read. Added columns are allowed.
    """
    undone = {table.id: Rollback(table) for table, _ in chunks}
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
            if first_schema_change(
                server, statement.position, [log.table(statement.table)], log.server_id
            ):
                raise _altered(statement)
        read = log.position
        yield table, _undone(server, undone[table.id], selected, keys)
        if after != table.id:
            log.leave(table.id)
            del undone[table.id]


def _note(
    server: Server, log: LogReader, entry: LogEntry, undone: dict[TableId, Rollback]
) -> list[Statement]:
    """Apply the next log entry; return a statement, in a list, if its new columns are uncertain."""
    if isinstance(entry, RowChange):
        undone[entry.table].note(entry)
    if not isinstance(entry, Statement):
        return []
    before, after = log.table(entry.table), _after(server, log, entry)
    log.take_table(after)
    undone[entry.table].reshape(after)
    return [entry] if may_differ(entry, before, after) else []


def _undone(server: Server, rollback: Rollback, selected: pa.Table, keys: KeyRange) -> pa.Table:
    before = rollback.present()
    inside = in_range(server, rollback.table, [rollback.table.key(row) for row in before], keys)
    again = texts_of(
        rollback.table, [row for row, inside_ in zip(before, inside, strict=True) if inside_]
    )
    return pa.concat_tables([rollback.untouched(selected), again])


def _after(server: Server, log: LogReader, statement: Statement) -> Table:
    shape = shape_after(server, log.options, statement, log.table(statement.table))
    if shape is None:
        raise _altered(statement)
    return shape


def _altered(statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{statement.table} was changed at {statement.position} while its snapshot was read: "
        f"{statement.text[:200]!r}. Start with a new checkpoint"
    )
