"""The SQL by which a comparison reads some keys of a database, or those between two others.

Each dialect has its literals, and its own way to use an index. Ranges are those of `cdc_formats.values.key_range`,
by which the capture reads its chunks, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cdc_formats.values.key_range import Key, KeyRange
from normalize.tables.writers.dialects import Dialect, MySql

_BITS = {"smallint": 16, "integer": 32, "bigint": 64}
_CASTS = {
    **{kind: kind for kind in (*_BITS, "boolean", "bytea", "date", "numeric", "text")},
    **{
        f"timestamp {zone} time zone": f"timestamp {zone} time zone" for zone in ("with", "without")
    },
    "character varying": "text",
    "character": "bpchar",  # as text, its blanks would count
}
"""PostgreSQL's types whose values have one text, so that an index finds them, and the types of
their literals."""


@dataclass(frozen=True)
class DatabaseColumn:
    """A column of a database table.

    Attributes
    ----------
    name : str
    kind : str
        The database's type without a size.
    full : str
        The type with its size.
    selected : str
        The SQL expression that selects it.
    spark_type : str
    """

    name: str
    kind: str
    full: str
    selected: str
    spark_type: str


Where = Callable[[Dialect, Sequence[DatabaseColumn]], str]
"""Returns what follows ``WHERE``, of the key columns of a table."""


def listed(dialect: Dialect, columns: Sequence[DatabaseColumn], *, keys: Sequence[Key]) -> str:
    """Return the condition of rows that have one of the keys.

    It also selects rows whose text is equal to that of a key in the column's collation.
    """
    is_mysql = isinstance(dialect, MySql)
    possible = [key for key in keys if is_mysql or all(map(_can_have, columns, key))]
    if len(columns) == 1 and possible and (None,) not in possible:
        values = ", ".join(_literal(dialect, columns[0], str(text)) for (text,) in possible)
        return f"{_indexed(dialect, columns[0])} IN ({values})"
    # Not (a, b) IN ((1, 'é'), ...): MariaDB does not convert this text to the column's character
    # set, and finds no row.
    same = (" AND ".join(map(partial(_equality, dialect), columns, key)) for key in possible)
    return f"({' OR '.join(same) or 'FALSE'})"


def _equality(dialect: Dialect, column: DatabaseColumn, text: str | None) -> str:
    indexed = _indexed(dialect, column)
    return (
        f"{indexed} IS NULL" if text is None else f"{indexed} = {_literal(dialect, column, text)}"
    )


def _indexed(dialect: Dialect, column: DatabaseColumn) -> str:
    """Return what is compared with a literal: the column, so that an index is used, if it can be."""
    name = dialect.name(column.name)
    is_exact = isinstance(dialect, MySql) or column.kind in _CASTS
    return name if is_exact else f"CAST({name} AS text)"


def next_rows(
    dialect: Dialect, columns: Sequence[DatabaseColumn], *, keys: KeyRange, most: int | None
) -> str:
    """Return the condition of rows in a range of keys, and their order if their number is limited.

    A database then orders keys in the same way as Spark: text by its bytes.
    """
    is_mysql = isinstance(dialect, MySql)
    text = (
        "CAST(CONVERT({} USING utf8mb4) AS BINARY)" if is_mysql else 'CAST({} AS text) COLLATE "C"'
    )
    operands = [
        (text if column.spark_type == "STRING" else "{}").format(dialect.name(column.name))
        for column in columns
    ]
    compared = [
        replace(each, kind="text") if each.spark_type == "STRING" else each for each in columns
    ]
    where = keys.condition(
        operands,
        lambda key: [_literal(dialect, *each) for each in zip(compared, key, strict=True)],
        by_rows=not is_mysql,
    )
    return where if most is None else f"{where} ORDER BY {', '.join(operands)} LIMIT {most}"


def _can_have(column: DatabaseColumn, text: str | None) -> bool:
    """Return whether a column can have a value: not if the other table has a larger type."""
    if text is None or column.kind not in _BITS:
        return True
    limit = 2 ** (_BITS[column.kind] - 1)
    return re.fullmatch("-?[0-9]{1,20}", text) is not None and -limit <= int(text) < limit


def _literal(dialect: Dialect, column: DatabaseColumn, text: str) -> str:
    is_binary = column.spark_type == "BINARY"
    if isinstance(dialect, MySql):
        if is_binary:
            return f"x'{text}'"
        # As text, the server compares large numbers as DOUBLE.
        is_number = column.spark_type != "STRING" and re.fullmatch("-?[0-9]+([.][0-9]+)?", text)
        return text if is_number else dialect.literal(text)
    zone = "+00" * (column.kind == "timestamp with time zone")
    shown = dialect.literal(f"\\x{text}" if is_binary else text + zone)
    return f"CAST({shown} AS {_CASTS.get(column.kind, 'text')})"
