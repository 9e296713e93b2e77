"""Reads the current rows of some keys."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from itertools import chain

import pyarrow as pa

from .columns import SourceColumn, to_arrow
from .keys import NUMBERS, literal
from .options import Options
from .select import texts_of
from .server import LogPosition, Server
from .table import Row, Table, quoted

_AT_ONCE = 500


def rows_of_keys(
    server: Server,
    options: Options,
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
        are returned too, and for a key with NULL all rows that have NULL in one of the columns.
    """
    of_key = [next(column for column in table.columns if column.name == name) for name in names]
    operands = [quoted(name) for name in names]
    select = f"SELECT {table.selected} FROM {table.qualified} WHERE "
    rows: list[Row] = []
    server.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = server.written()
    possible = [[str(text) for text in key] for key in keys if all(map(_can_have, of_key, key))]
    for start in range(0, len(possible), _AT_ONCE):
        tuples = (
            f"({', '.join(map(literal, of_key, key))})"
            for key in possible[start : start + _AT_ONCE]
        )
        rows += server.rows(f"{select}({', '.join(operands)}) IN ({', '.join(tuples)})")
    if None in chain(*keys):
        # SQL compares no value with NULL, so the rows above have none.
        rows += server.rows(select + " OR ".join(f"{operand} IS NULL" for operand in operands))
    server.rows("COMMIT")
    texts = texts_of(table, rows)
    arrays = [
        to_arrow(column, values, zero_dates=options.zero_dates)
        for column, values in zip(table.columns, texts.columns, strict=True)
    ]
    return pa.table(arrays, names=texts.column_names), position


def _can_have(column: SourceColumn, text: str | None) -> bool:
    """Return whether a column can have a value: never NULL, and only numbers in a number column."""
    if text is None or column.data_type not in NUMBERS:
        return text is not None
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
