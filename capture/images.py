"""Reads row images of the log as text, with one reader function for each column.

mysql-replication decodes the values. Decoded values of fixed-size columns are cached by their
bytes, because the after-image of an update mostly repeats its before-image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.packet import BinLogPacketWrapper
from pymysqlreplication.row_event import RowsEvent

from .columns import ZERO_DATE, SourceColumn, text_of
from .errors import BinlogError
from .table import Row

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
        self.place = 0

    def read(self, size: int) -> bytes:
        begin = self.place
        self.place = begin + size
        return self.data[begin : self.place]

    def unread(self, data: bytes) -> None:
        end = self.place
        self.place = end - len(data)
        self.data = self.data[: self.place] + data + self.data[end:]


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
        while packet.place < len(packet.data):
            yield self._image(packet)
        if packet.place != len(packet.data):
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
            ahead = Bytes(packet.data[packet.place :])
            read(ahead)
            size = ahead.place
        return text(packet.read(size))

    return remembered
