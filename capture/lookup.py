"""Reads the current rows of some keys."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import pyarrow as pa

from .columns import SourceColumn, to_arrow
from .keys import NUMBERS, literal
from .options import CaptureOptions
from .select import texts_of
from .server import LogPosition, Server
from .table import Row, Table, quoted

_AT_ONCE = 500


def rows_of_keys(
    server: Server,
    options: CaptureOptions,
    table: Table,
    names: Sequence[str],
    keys: Sequence[Sequence[str | None]],
) -> tuple[pa.Table, LogPosition]:
    """Return the rows that have one of the keys, and the end of the log at that time.

    Parameters
    ----------
    names : sequence of str
        The columns of the keys.
    keys : sequence of sequences
        Values as text; bytes as hexadecimal digits. Rows that are equal in the columns' collations
        are returned too.
    """
    of_key = [next(column for column in table.columns if column.name == name) for name in names]
    rows: list[Row] = []
    server.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = server.written()
    possible = [key for key in keys if all(map(_can_have, of_key, key))]
    # Keys without NULL first: their statements have IN alone, which uses an index.
    possible.sort(key=lambda key: None in key)
    for start in range(0, len(possible), _AT_ONCE):
        condition = _is_one_of(of_key, possible[start : start + _AT_ONCE])
        rows += server.rows(f"SELECT {table.selected} FROM {table.qualified} WHERE {condition}")
    server.rows("COMMIT")
    texts = texts_of(table, rows)
    arrays = [
        to_arrow(column, values, zero_dates=options.zero_dates)
        for column, values in zip(table.columns, texts.columns, strict=True)
    ]
    return pa.table(arrays, names=texts.column_names), position


def _is_one_of(columns: Sequence[SourceColumn], keys: Sequence[Sequence[str | None]]) -> str:
    """Return the condition of rows that have one of the keys."""
    names = [quoted(column.name) for column in columns]
    # IN is never true for NULL.
    listed = [f"({', '.join(map(_literal, columns, key))})" for key in keys if None not in key]
    conditions = [f"({', '.join(names)}) IN ({', '.join(listed)})"] if listed else []
    conditions += [
        " AND ".join(map("{} <=> {}".format, names, map(_literal, columns, key)))
        for key in keys
        if None in key
    ]
    return " OR ".join(conditions)


def _literal(column: SourceColumn, text: str | None) -> str:
    return "NULL" if text is None else literal(column, text)


def _can_have(column: SourceColumn, text: str | None) -> bool:
    """Return whether a column can have a value: in a number column only NULL and numbers."""
    if text is None or column.data_type not in NUMBERS:
        return True
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
