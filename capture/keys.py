"""Ranges of keys: as SQL conditions, and as a test for keys from the log.

A range ``(after, upto]`` excludes its lower end and includes its upper end; None is the end of the
table. Keys of several columns are compared as rows, so a constant first column can still be
divided. Only the server can compare text by its collation. So text keys from the log are sent to
the server, in the condition that selected the chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from pymysql.converters import escape_string

from .columns import SourceColumn
from .server import Server
from .table import Key, Table, quoted

NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year")
_TEXTS = ("char", "varchar")
_BINARIES = ("binary", "varbinary")
_ASK = 500


class KeyRange(NamedTuple):
    """The keys greater than `after`, up to and including `upto`."""

    after: Key | None
    upto: Key | None


def condition(table: Table, keys: KeyRange) -> str:
    """Return the SQL condition that selects the rows of a range."""
    return _condition(table, [quoted(column.name) for column in table.key_columns()], keys)


def _condition(table: Table, operands: Sequence[str], keys: KeyRange) -> str:
    columns = table.key_columns()
    parts = []
    if keys.after is not None:
        parts.append(
            _compared(
                operands,
                ">",
                ">",
                [literal(*each) for each in zip(columns, keys.after, strict=True)],
            )
        )
    if keys.upto is not None:
        parts.append(
            _compared(
                operands,
                "<",
                "<=",
                [literal(*each) for each in zip(columns, keys.upto, strict=True)],
            )
        )
    return " AND ".join(parts) or "TRUE"


def _compared(operands: Sequence[str], strict: str, last: str, values: Sequence[str]) -> str:
    """Return (a > 1) OR (a = 1 AND b > 2), which the server executes as one index range.

    The server does not do so for (a, b) > (1, 2).
    """
    cases = []
    for index, (operand, value) in enumerate(zip(operands, values, strict=True)):
        equal = [f"{operands[i]} = {values[i]}" for i in range(index)]
        operator = last if index == len(operands) - 1 else strict
        cases.append("(" + " AND ".join([*equal, f"{operand} {operator} {value}"]) + ")")
    return "(" + " OR ".join(cases) + ")"


def literal(column: SourceColumn, text: str) -> str:
    """Return a value of a key column as SQL."""
    if column.data_type in NUMBERS:
        return str(Decimal(text))
    if column.data_type in _BINARIES:
        return f"x'{text}'"
    return f"'{escape_string(text)}'"


def in_range(server: Server, table: Table, keys: Sequence[Key], limits: KeyRange) -> list[bool]:
    """Return for each key of the log whether it is in a range."""
    if limits == KeyRange(None, None):
        return [True] * len(keys)
    if any(column.data_type in _TEXTS for column in table.key_columns()):
        return _asked(server, table, keys, limits)
    after, upto = (None if end is None else _comparable(table, end) for end in limits)
    comparable = map(partial(_comparable, table), keys)
    return [(after is None or key > after) and (upto is None or key <= upto) for key in comparable]


def _comparable(table: Table, key: Key) -> tuple[Any, ...]:
    """Return a key that Python orders as the server does.

    Dates are text of equal length, and binary values are hexadecimal.
    """
    columns = table.key_columns()
    return tuple(
        Decimal(text) if column.data_type in NUMBERS else text
        for column, text in zip(columns, key, strict=True)
    )


def _asked(server: Server, table: Table, keys: Sequence[Key], limits: KeyRange) -> list[bool]:
    columns = table.key_columns()
    selects = []
    for key in keys:
        operands = [_as_of_column(column, text) for column, text in zip(columns, key, strict=True)]
        selects.append(f"SELECT {_condition(table, operands, limits)}")
    batches = (
        " UNION ALL ".join(selects[start : start + _ASK]) for start in range(0, len(selects), _ASK)
    )
    return [answer == "1" for batch in batches for (answer,) in server.rows(batch)]


def _as_of_column(column: SourceColumn, text: str) -> str:
    """Return a literal with a column's collation, so that the server compares both the same way."""
    value = literal(column, text)
    return (
        f"CONVERT({value} USING {column.charset}) COLLATE {column.collation}"
        if column.data_type in _TEXTS
        else value
    )
