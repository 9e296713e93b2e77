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

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import quote

import connectorx
import pyarrow as pa
import pymysql

from cdc_formats.values.key_range import Key, KeyRange
from cdc_formats.values.schema import backquoted

from .binlog import LogReader
from .columns import as_text, to_arrow
from .errors import SchemaChangedError
from .options import CaptureOptions
from .planning import first_schema_change, may_differ, projected, projection, shape_after
from .server import LogPosition, Server, session_settings
from .statements import LogEntry, RowChange, Statement
from .table import Row, Table, TableId, condition, in_range, key_texts

# --------------------------------------------------------------------------------------------------
# Divides a table into chunks by Flink's rules, one chunk at a time.
#
# Even: the key is one integer and ``(max - min + 1) / rows`` is between the two bounds. A chunk is
# then a fixed number of key values. Otherwise a chunk ends at the key of every n-th row:
# ``... WHERE key > ? ORDER BY key LIMIT n - 1, 1``, which an index answers. Offsets do not store how
# a batch was divided, because its rows do not depend on it.

_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_ROWS = (
    "SELECT table_rows FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
)


class Chunk(NamedTuple):
    """A table and a range of its keys."""

    table: Table
    keys: KeyRange


def even_step(server: Server, table: Table, options: CaptureOptions) -> int | None:
    """Return a chunk's number of key values; None unless the key is one evenly spread integer."""
    column = table.key_columns()[0]
    if len(table.chunk_key) > 1 or column.data_type not in _INTEGERS:
        return None
    ends = _ends(server, table, KeyRange(None, None))
    rows = int(server.value(_ROWS, (table.database, table.name)) or 0)
    if ends is None or rows == 0:
        return None
    factor = (ends[1] - ends[0] + 1) / rows
    return (
        max(int(factor * options.chunk_size), 1)
        if options.lower_factor <= factor <= options.upper_factor
        else None
    )


def _ends(server: Server, table: Table, keys: KeyRange) -> tuple[int, int] | None:
    name = backquoted(table.key_columns()[0].name)
    least, most = server.rows(
        f"SELECT MIN({name}), MAX({name}) FROM {table.qualified} WHERE {condition(table, keys)}"
    )[0]
    return None if least is None else (int(least), int(most))


def next_chunks(
    server: Server,
    table: Table,
    after: Key | None,
    options: CaptureOptions,
    step: int | None,
    *,
    upto: Key | None = None,
    most: int = 2**62,
) -> list[KeyRange]:
    """Return the next chunks; the last chunk of the table has no upper bound.

    Parameters
    ----------
    after : Key or None
        The end of the previous chunk.
    upto : Key or None
        The end of the batch, if it is known.
    most : int
        The largest number of chunks, if `upto` is None.
    """
    chunks: list[KeyRange] = []
    while upto is not None or len(chunks) < most:
        end = _next_end(server, table, KeyRange(after, upto), options, step)
        chunks.append(KeyRange(after, end or upto))
        if end is None or end == upto:
            break
        after = end
    return chunks


def _next_end(
    server: Server, table: Table, keys: KeyRange, options: CaptureOptions, step: int | None
) -> Key | None:
    if step is not None:
        return _even_end(server, table, keys, step)
    names = ", ".join(backquoted(column.name) for column in table.key_columns())
    ends = server.rows(
        f"SELECT {names} FROM {table.qualified} WHERE {condition(table, keys)} ORDER BY {names} "
        f"LIMIT {options.chunk_size - 1}, 1"
    )
    return key_texts(ends[0]) if ends else None


def _even_end(server: Server, table: Table, keys: KeyRange, step: int) -> Key | None:
    """Return the end of a chunk that begins at the next existing key, so gaps have no chunks."""
    ends = _ends(server, table, keys)
    if ends is None or ends[0] + step > ends[1]:
        return None
    return (str(ends[0] + step - 1),)


# --------------------------------------------------------------------------------------------------
# Selects rows as columns of text, with connectorx or PyMySQL.
#
# connectorx returns Arrow and takes a tenth of PyMySQL's time. PyMySQL replaces it for a client
# certificate, which connectorx does not support, and if connectorx fails, for example at another
# login method. Both return the same rows. Both encrypt the connection and verify the server in the
# same cases.

_LOG = logging.getLogger(__name__)
_ALTERED = (1054, 1146)
"""Error codes for a missing column or table."""


def texts_of(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Return rows as columns of text, with the table's column names."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    arrays = [
        pa.array(values, column.text_type)
        for column, values in zip(table.columns, columns, strict=True)
    ]
    return pa.table(arrays, names=[column.name for column in table.columns])


def rows_of(texts: pa.Table, columns: Sequence[int]) -> list[Row]:
    """Return some columns of text as rows."""
    return list(zip(*(texts.column(index).to_pylist() for index in columns), strict=True))


class Selector:
    """Selects chunks of a table as columns of text.

    Parameters
    ----------
    server : Server
    options : CaptureOptions
    table : Table
    """

    def __init__(self, server: Server, options: CaptureOptions, table: Table) -> None:
        self.server = server
        self.options = options
        self.table = table
        self.encrypted = server.encrypted()
        self.by_arrow = options.ssl_cert is None and options.ssl_key is None

    def select(self, condition: str) -> pa.Table:
        """Return the rows that satisfy a condition."""
        if self.by_arrow:
            try:
                return self._read_arrow(condition)
            except Exception as error:  # PyMySQL reads the same rows, or raises the error again
                # The error's text can contain the address with the password, so the log has only
                # its type.
                _LOG.warning(
                    "%s: connectorx failed (%s); PyMySQL reads the table, more slowly",
                    self.table.qualified,
                    type(error).__name__,
                )
                self.by_arrow = False
        try:
            rows = self.server.stream(
                f"SELECT {self.table.selected} FROM {self.table.qualified} WHERE {condition}"
            )
            return texts_of(self.table, list(rows))
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _ALTERED:
                raise
            raise SchemaChangedError(
                f"{self.table.qualified} was altered while its snapshot was read: "
                f"{error.args[-1]}. Start with a new checkpoint"
            ) from None

    def _read_arrow(self, condition: str) -> pa.Table:
        options, columns = self.options, self.table.columns
        user, password = quote(options.username, safe=""), quote(options.password, safe="")
        database = quote(self.table.database, safe="")
        address = f"mysql://{user}:{password}@{options.hostname}:{options.port}/{database}{self._encryption()}"
        selected = ", ".join(
            f"{as_text(column)} AS `c{index}`" for index, column in enumerate(columns)
        )
        # The assignment fails on any other server than the one whose log is read.
        guard = f"@one_server = IF(@@server_id = {self.server.id}, 1, (SELECT 1 UNION SELECT 2))"
        rows = connectorx.read_sql(
            address,
            f"SELECT {selected} FROM {self.table.qualified} WHERE {condition}",
            return_type="arrow",
            protocol="text",
            pre_execution_query=f"{session_settings(self.server.is_mariadb)}, {guard}",
        )
        arrays = [rows.column(index).cast(column.text_type) for index, column in enumerate(columns)]
        return pa.table(arrays, names=[column.name for column in columns])

    def _encryption(self) -> str:
        if self.options.ssl_ca is not None:
            return f"?ssl-mode=VERIFY_IDENTITY&ssl-ca={quote(self.options.ssl_ca)}"
        return "?ssl-mode=REQUIRED" if self.encrypted else "?ssl-mode=DISABLED"


# --------------------------------------------------------------------------------------------------
# Reads current rows.


def current_rows(
    server: Server, options: CaptureOptions, table: Table, condition: str
) -> tuple[pa.Table, LogPosition]:
    """Return the current rows of a condition, and a position whose transactions they all have."""
    position = server.settled()
    rows = server.rows(f"SELECT {table.selected} FROM {table.qualified} WHERE {condition}")
    texts = texts_of(table, rows)
    arrays = [
        to_arrow(column, values, zero_dates=options.zero_dates)
        for column, values in zip(table.columns, texts.columns, strict=True)
    ]
    return pa.table(arrays, names=texts.column_names), position


# --------------------------------------------------------------------------------------------------
# The rows of chunks as of a position.


class Rollback:
    """The before-image of each key's first change: a table's rows before the changes."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self.indexes = projection(table, table)
        self.images: dict[Row, Row | None] = {}

    def reshape(self, now: Table) -> None:
        """Accept further changes with the columns of an altered table."""
        self.indexes = projection(now, self.table)

    def note(self, change: RowChange) -> None:
        """Add the next change of the log."""
        before, after = (
            projected(change.before, self.indexes),
            projected(change.after, self.indexes),
        )
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
    before = log.table(entry.table)
    after = shape_after(server, log.options, entry, before)
    if after is None:
        raise _altered(entry)
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


def _altered(statement: Statement) -> SchemaChangedError:
    return SchemaChangedError(
        f"{statement.table} was changed at {statement.position} while its snapshot was read: "
        f"{statement.text[:200]!r}. Start with a new checkpoint"
    )
