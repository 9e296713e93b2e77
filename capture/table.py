"""A captured table: its columns and keys from the server's ``information_schema``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache, partial
from typing import Any, NamedTuple

from pymysql.converters import escape_string
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import RowsEvent

from cdc_formats.values.key_range import Key, KeyRange
from cdc_formats.values.schema import backquoted

from .columns import ZERO_DATE, SourceColumn, select_expression, text_of
from .errors import BinlogError, ServerNotReadyError
from .options import CaptureOptions
from .server import Server

Row = tuple[Any, ...]
"""Values of all columns, as a query returns them: str, bytes or None."""


class TableId(NamedTuple):
    """The name of a table, with its database."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{backquoted(self.database)}.{backquoted(self.name)}"


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
        return ", ".join(map(select_expression, self.columns))

    def identity(self, row: Row) -> Row:
        """Return the primary key of a row."""
        return tuple(row[index] for index in self.primary_key)

    def key(self, row: Row) -> Key:
        """Return a row's chunk key."""
        return key_texts(tuple(row[index] for index in self.chunk_key))

    def key_columns(self) -> list[SourceColumn]:
        return [self.columns[index] for index in self.chunk_key]

    def literals(self, key: Key) -> list[str]:
        """Return a chunk key's values as SQL."""
        return [_literal(*each) for each in zip(self.key_columns(), key, strict=True)]


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
            f"to it: GRANT SELECT ON {backquoted(of.database)}.* TO {server.account()}"
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
    indexes: dict[str | None, int] = {column.name: index for index, column in enumerate(columns)}
    unique: dict[str, list[int | None]] = {}
    for of_key, name in server.rows(_UNIQUE_KEYS, of):
        unique.setdefault(of_key, []).append(indexes.get(name))
    if "PRIMARY" in unique:
        return tuple(index for index in unique["PRIMARY"] if index is not None)
    if (
        chosen
        and not any(columns[index].nullable for index in chosen)
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


# --------------------------------------------------------------------------------------------------
# Reads row images of the log as text, with one reader function for each column.
#
# mysql-replication decodes the values. Decoded values of fixed-size columns are cached by their
# bytes, because the after-image of an update mostly repeats its before-image.

_REMEMBERED = 1024
_STRINGS = (FIELD_TYPE.VARCHAR, FIELD_TYPE.STRING, FIELD_TYPE.BLOB)
_NUMBERS = {
    FIELD_TYPE.SHORT: (BinLogPacketWrapper.read_int16, BinLogPacketWrapper.read_uint16),
    FIELD_TYPE.INT24: (BinLogPacketWrapper.read_int24, BinLogPacketWrapper.read_uint24),
    FIELD_TYPE.LONG: (BinLogPacketWrapper.read_int32, BinLogPacketWrapper.read_uint32),
    FIELD_TYPE.LONGLONG: (BinLogPacketWrapper.read_int64, BinLogPacketWrapper.read_uint64),
}


class Bytes(BinLogPacketWrapper):  # type: ignore[misc]
    """The library's packet class, reading from the bytes of one event."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def read(self, size: int) -> bytes:
        begin = self.position
        self.position = begin + size
        return self.data[begin : self.position]

    def unread(self, data: bytes) -> None:
        end = self.position
        self.position = end - len(data)
        self.data = self.data[: self.position] + data + self.data[end:]


class _Value(RowsEvent):  # type: ignore[misc]
    """The library's event class, reading a single value."""

    def __init__(self, wire: Any) -> None:
        self.table_id = 0
        self.table_map = {0: self}
        self.columns = [wire]
        self._RowsEvent__none_sources: dict[str, str] = {}

    def read(self, packet: Bytes) -> Any:
        self.packet = packet
        return self._RowsEvent__read_values_name(
            self.columns[0], b"\0", 0, False, b"\1", self.columns[0].unsigned, 0
        )


Reader = Callable[[Bytes], Any]


class RowImageReader:
    """Reads the row images of a table's events.

    Parameters
    ----------
    columns : sequence of SourceColumn
    wires : sequence
        The same columns as the library read them from the log.
    """

    def __init__(self, columns: Sequence[SourceColumn], wires: Sequence[Any]) -> None:
        self._readers = [_reader(column, wire) for column, wire in zip(columns, wires, strict=True)]
        self._all = 2 ** len(self._readers) - 1
        self._size = (len(self._readers) + 7) // 8

    def complete(self, present: bytes) -> bool:
        """Return whether a bitmap of present columns has all columns."""
        return not self._all & ~int.from_bytes(present, "little")

    def read(self, event: RowsEvent) -> Iterator[Row]:
        """Return the images of an event; an update has a before-image, then an after-image."""
        packet = Bytes(event.packet.read(event.event_size - event.packet.read_bytes))
        while packet.position < len(packet.data):
            yield self._image(packet)
        if packet.position != len(packet.data):
            raise BinlogError(
                "a log event ends within a row: the log is damaged, or mysql-replication cannot "
                "read it"
            )

    def _image(self, packet: Bytes) -> Row:
        nulls = int.from_bytes(packet.read(self._size), "little") & self._all
        if not nulls:
            return tuple([read(packet) for read in self._readers])
        return tuple(
            [
                None if nulls >> index & 1 else read(packet)
                for index, read in enumerate(self._readers)
            ]
        )


def _reader(column: SourceColumn, wire: Any) -> Reader:
    to_text = text_of(column)
    if wire.type in _STRINGS:
        size = _length_size(wire)
        return lambda packet: to_text(packet.read_length_coded_pascal_string(size))
    if wire.type in _NUMBERS:
        number = _NUMBERS[wire.type][column.unsigned]
        return lambda packet: to_text(number(packet))
    value = _Value(wire)
    of_none = {"set": "", "json": "null"}.get(column.data_type, ZERO_DATE)

    def read(packet: Bytes) -> Any:
        decoded = value.read(packet)
        return of_none if decoded is None else to_text(decoded)

    return read if wire.type == FIELD_TYPE.JSON else _remembering(read)


def _length_size(wire: Any) -> int:
    if wire.type == FIELD_TYPE.BLOB:
        return int(wire.length_size)
    return 2 if wire.max_length > 255 else 1


def _remembering(read: Reader) -> Reader:
    """Return a reader with a cache of recently decoded bytes; the first value sets their number."""
    size = 0

    @lru_cache(_REMEMBERED)
    def text(data: bytes) -> Any:
        return read(Bytes(data))

    def remembered(packet: Bytes) -> Any:
        nonlocal size
        if not size:
            ahead = Bytes(packet.data[packet.position :])
            read(ahead)
            size = ahead.position
        return text(packet.read(size))

    return remembered


# --------------------------------------------------------------------------------------------------
# Ranges of keys: as SQL conditions, and as a test for keys from the log.
#
# Only the server can compare text by its collation. So text keys from the log are sent to the
# server, in the condition that selected the chunk.

NUMBERS = ("tinyint", "smallint", "mediumint", "int", "bigint", "decimal", "year")
_TEXTS = ("char", "varchar")
_BINARIES = ("binary", "varbinary")
_ASK = 500


def condition(table: Table, keys: KeyRange) -> str:
    """Return the SQL condition that selects the rows of a range."""
    names = [backquoted(column.name) for column in table.key_columns()]
    return keys.condition(names, table.literals)


def _literal(column: SourceColumn, text: str) -> str:
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
    operands = ([_as_of_column(*each) for each in zip(columns, key, strict=True)] for key in keys)
    selects = [f"SELECT {limits.condition(each, table.literals)}" for each in operands]
    batches = (
        " UNION ALL ".join(selects[start : start + _ASK]) for start in range(0, len(selects), _ASK)
    )
    return [answer == "1" for batch in batches for (answer,) in server.rows(batch)]


def _as_of_column(column: SourceColumn, text: str) -> str:
    """Return a literal with a column's collation, so that the server compares both the same way."""
    value = _literal(column, text)
    return (
        f"CONVERT({value} USING {column.charset}) COLLATE {column.collation}"
        if column.data_type in _TEXTS
        else value
    )
