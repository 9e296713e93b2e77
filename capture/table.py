"""A captured table: its columns and keys from the server's ``information_schema``."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from .columns import SourceColumn, select_expression
from .errors import ServerNotReadyError
from .options import CaptureOptions
from .server import Server

Key = tuple[str, ...]
"""Values of key columns as a query returns them; bytes are hexadecimal digits."""
Row = tuple[Any, ...]
"""Values of all columns, as a query returns them: str, bytes or None."""


def quoted(name: str) -> str:
    """Return a name in backquotes, for SQL."""
    return "`" + name.replace("`", "``") + "`"


class TableId(NamedTuple):
    """The name of a table, with its database."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{quoted(self.database)}.{quoted(self.name)}"


@dataclass(frozen=True)
class Table:
    """A captured table.

    Attributes
    ----------
    database, name : str
    columns : tuple of SourceColumn
        In the order of the table, which is also the order in the log.
    primary_key, chunk_key : tuple of int
        Indexes of columns. `primary_key` identifies rows and `chunk_key` divides chunks; they are
        usually equal.
    """

    database: str
    name: str
    columns: tuple[SourceColumn, ...]
    primary_key: tuple[int, ...]
    chunk_key: tuple[int, ...]

    @property
    def id(self) -> TableId:
        return TableId(self.database, self.name)

    @property
    def qualified(self) -> str:
        return str(self.id)

    @property
    def fingerprint(self) -> str:
        """A hash of columns and keys."""
        return _digest((self.columns, self.primary_key))

    @property
    def key_fingerprint(self) -> str:
        """A hash of the chunk key's columns, which determine the order of chunks."""
        return _digest(self.key_columns())

    @property
    def selected(self) -> str:
        """The select list with all columns."""
        return ", ".join(select_expression(column, quoted(column.name)) for column in self.columns)

    def identity(self, row: Row) -> Row:
        """Return the primary key of a row."""
        return tuple(row[index] for index in self.primary_key)

    def key(self, row: Row) -> Key:
        """Return a row's chunk key."""
        return key_texts(tuple(row[index] for index in self.chunk_key))

    def key_columns(self) -> list[SourceColumn]:
        return [self.columns[index] for index in self.chunk_key]


def _digest(of: object) -> str:
    return hashlib.sha256(repr(of).encode()).hexdigest()[:16]


def key_texts(values: Sequence[Any]) -> Key:
    """Return values of key columns in the format of offsets."""
    return tuple(value.hex() if isinstance(value, bytes) else value for value in values)


_COLUMNS = """
SELECT column_name, data_type, column_type, is_nullable, character_set_name, collation_name,
       COALESCE(datetime_precision, numeric_precision, 0), COALESCE(numeric_scale, 0), COALESCE(character_octet_length, 0)
FROM information_schema.columns WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position
"""
_UNIQUE_KEYS = """
SELECT index_name, IF(index_name = 'PRIMARY' OR sub_part IS NULL, column_name, NULL) FROM information_schema.statistics
WHERE table_schema = %s AND table_name = %s AND non_unique = 0 ORDER BY index_name, seq_in_index
"""
_KEY_TYPES = {
    *(
        "tinyint",
        "smallint",
        "mediumint",
        "int",
        "bigint",
        "decimal",
        "char",
        "varchar",
        "binary",
        "varbinary",
    ),
    *("date", "datetime", "timestamp", "year"),
}


def read_table(server: Server, options: CaptureOptions, of: TableId) -> Table:
    """Read a table's columns and keys.

    Raises
    ------
    ServerNotReadyError
        If the table does not exist or cannot be captured.
    """
    columns = tuple(_column(row) for row in server.rows(_COLUMNS, of))
    if not columns:
        raise ServerNotReadyError(
            f"table {of.database}.{of.name} does not exist, or {options.username!r} has no access "
            f"to it: GRANT SELECT ON {quoted(of.database)}.* TO {server.account()}"
        )
    names = [column.name for column in columns]
    chosen = _chunk_key(of, names, options)
    primary = _key_of_rows(server, of, columns, chosen)
    table = Table(of.database, of.name, columns, primary, chosen or primary)
    for column in table.columns:
        column.column  # noqa: B018 (raises an error for an unsupported type)
    for column in table.key_columns():
        _require_orderable(column)
    return table


def _key_of_rows(
    server: Server, of: TableId, columns: Sequence[SourceColumn], chosen: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the primary key; without one, the chosen chunk key if it is unique."""
    # A part of a unique key that is a prefix or an expression, and not a whole column, becomes
    # None.
    places: dict[str | None, int] = {column.name: place for place, column in enumerate(columns)}
    unique: dict[str, list[int | None]] = {}
    for index, name in server.rows(_UNIQUE_KEYS, of):
        unique.setdefault(index, []).append(places.get(name))
    if "PRIMARY" in unique:
        return tuple(place for place in unique["PRIMARY"] if place is not None)
    if (
        chosen
        and not any(columns[place].nullable for place in chosen)
        and set[int | None](chosen) in map(set, unique.values())
    ):
        return chosen
    raise ServerNotReadyError(
        f"{of.database}.{of.name} has no primary key, so its rows cannot be identified: ALTER "
        f"TABLE {of} ADD COLUMN id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY; or set "
        "scan.incremental.snapshot.chunk.key-column to the columns of another unique key, all NOT "
        "NULL"
    )


def _column(row: Row) -> SourceColumn:
    name, data_type, column_type, nullable, charset, collation, precision, scale, length = row
    return SourceColumn(
        str(name),
        str(data_type).lower(),
        str(column_type),
        nullable == "YES",
        charset,
        collation,
        int(precision),
        int(scale),
        int(length),
    )


def _chunk_key(of: TableId, names: Sequence[str], options: CaptureOptions) -> tuple[int, ...]:
    unknown = [name for name in options.chunk_key or () if name not in names]
    if unknown:
        raise ServerNotReadyError(
            f"scan.incremental.snapshot.chunk.key-column: {of} has no column {', '.join(unknown)}"
        )
    return tuple(names.index(name) for name in options.chunk_key or ())


def _require_orderable(column: SourceColumn) -> None:
    if column.data_type not in _KEY_TYPES or column.nullable:
        what = "may be NULL" if column.nullable else f"is a {column.column_type}"
        raise ServerNotReadyError(
            f"column `{column.name}` cannot divide the table into chunks, because it {what}: set "
            "scan.incremental.snapshot.chunk.key-column to a NOT NULL column of numbers, text, "
            "binary values or dates"
        )
