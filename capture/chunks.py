"""Divides a table into chunks by Flink's rules, one chunk at a time.

Even: the key is one integer and ``(max - min + 1) / rows`` is between the two bounds. A chunk is
then a fixed number of key values. Otherwise a chunk ends at the key of every n-th row:
``... WHERE key > ? ORDER BY key LIMIT n - 1, 1``, which an index answers. Offsets do not store how
a batch was divided, because its rows do not depend on it.
"""

from __future__ import annotations

from typing import NamedTuple

from .keys import KeyRange, condition
from .options import CaptureOptions
from .server import Server
from .table import Key, Table, key_texts, quoted

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
    name = quoted(table.key_columns()[0].name)
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
    names = ", ".join(quoted(column.name) for column in table.key_columns())
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
