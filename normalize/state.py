"""The state of one key group, as bytes: all its keys' rows, so that a restart reads what an older version wrote.

The value is the MessagePack array ``[version, key_groups, columns, unique_key, keys, rows, written]``:

===========  =========================================================================================================
version      int, 1
key_groups   int: the number of key groups that the state was laid out with
columns      str: DDL of the columns that the rows have
unique_key   array of str: the columns of the keys
keys         array of bin: packed keys (`packing`)
rows         array of bin: each key's row, packed
written      array of int, or nil without a state TTL: when each row was written, ms of processing time
===========  =========================================================================================================

A query that is restarted with other columns reads the rows by column name: a column that is new is NULL in them, one that is gone
is left out. A column whose type changed, another key, or another number of key groups is an error that says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import msgspec

from cdc_formats.errors import StateVersionError
from cdc_formats.schema import Column, columns as to_columns, to_ddl

from .packing import pack, unpack

VERSION = 1


class _Stored(msgspec.Struct, array_like=True, gc=False):
    version: int
    key_groups: int
    columns: str
    unique_key: list[str]
    keys: list[bytes]
    rows: list[bytes]
    written: list[int] | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Stored).decode


@dataclass
class KeyGroup:
    """The rows of a key group.

    Attributes
    ----------
    rows : dict
        Packed key to packed row.
    written : dict
        Packed key to the processing time of its last write in ms; used with a TTL only.
    """

    rows: dict[bytes, bytes] = field(default_factory=dict)
    written: dict[bytes, int] = field(default_factory=dict)

    def expire(self, before_ms: int) -> int:
        """Forget the rows that were written before `before_ms`, and return how many."""
        expired = [key for key, at in self.written.items() if at < before_ms]
        for key in expired:
            del self.written[key], self.rows[key]
        return len(expired)


@dataclass(frozen=True)
class Layout:
    """What the state of a query is laid out by.

    Parameters
    ----------
    key_groups : int
    columns : tuple of Column
    unique_key : tuple of str
    with_ttl : bool
    """

    key_groups: int
    columns: tuple[Column, ...]
    unique_key: tuple[str, ...]
    with_ttl: bool = False

    def encode(self, group: KeyGroup) -> bytes:
        """Return a key group as bytes."""
        written = [group.written[key] for key in group.rows] if self.with_ttl else None
        stored = _Stored(
            VERSION,
            self.key_groups,
            to_ddl(self.columns),
            list(self.unique_key),
            list(group.rows),
            list(group.rows.values()),
            written,
        )
        return _encode(stored)

    def decode(self, data: bytes, now_ms: int) -> KeyGroup:
        """Return the key group that was stored as `data`.

        Parameters
        ----------
        data : bytes
        now_ms : int
            Processing time. Rows of a state without a TTL count as written now, when the query has one.

        Raises
        ------
        StateVersionError
            When the state is of another version, number of key groups or key, or a column's type changed.
        """
        stored = _read(data)
        self._check(stored)
        rows = stored.rows
        if stored.columns != to_ddl(self.columns):
            remap = _remapper(stored.columns, self.columns)
            rows = [remap(row) for row in rows]
        group = KeyGroup(dict(zip(stored.keys, rows, strict=True)))
        if self.with_ttl:
            group.written = dict(zip(stored.keys, stored.written or [now_ms] * len(stored.keys), strict=True))
        return group

    def _check(self, stored: _Stored) -> None:
        if stored.key_groups != self.key_groups:
            raise StateVersionError(
                f"the checkpoint's state has {stored.key_groups} key groups, and key_groups is {self.key_groups}: a key would be looked "
                f"for where it is not. Set key_groups={stored.key_groups}, or start from a new checkpoint"
            )
        if stored.unique_key != list(self.unique_key):
            raise StateVersionError(
                f"the checkpoint's state is by primary key ({', '.join(stored.unique_key)}), and the query's is "
                f"({', '.join(self.unique_key)}): start from a new checkpoint"
            )


def _read(data: bytes) -> _Stored:
    version = data[1] if len(data) > 1 else None
    if version != VERSION:
        raise StateVersionError(f"the checkpoint's state has version {version}; this release reads version {VERSION}")
    return _decode(data)


@lru_cache(maxsize=8)
def _remapper(stored: str, wanted: Sequence[Column]) -> Callable[[bytes], bytes]:
    """Return the function from a row of the stored columns to one of the wanted columns."""
    old = {column.name: (index, column) for index, column in enumerate(to_columns(stored))}
    places: list[int | None] = []
    for column in wanted:
        index, before = old.get(column.name, (None, column))
        if before.type != column.type:
            raise StateVersionError(
                f"column {column.name} is {column.type} now and {before.type} in the checkpoint's state: start from a new checkpoint"
            )
        places.append(index)

    def remap(row: bytes) -> bytes:
        values = unpack(row)
        return pack(tuple([None if place is None else values[place] for place in places]))

    return remap
