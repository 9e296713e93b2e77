"""The state of one key group, as bytes with a version: the rows of all its keys.

Version 3 is ASCII text: the digit 3, then in base64 the length of version 2 as four little-endian
bytes, and version 2 compressed by zstd. It is compressed because Spark copies and stores the whole
state. It is text because Spark pickles bytes for Python as text, one character after the other.
Bytes from 0x80 take three times as long in Java, forty times as long in Python, and twice the
space.

Version 2 is the MessagePack array
``[version, key_groups, columns, unique_key, compact, extras, rows, epochs, deleted]``:

===========  ======================================================================================
version      int, 2
key_groups   int: the number of key groups that the state was laid out with
columns      str: DDL of the rows' columns
unique_key   array of str: the columns of the keys
compact      bool: False; earlier releases also stored hashes of keys and rows instead of the rows
             (`read` refuses them)
extras       array of str: the columns of `EXTRAS` that are stored with each row
rows         bin: an Arrow record batch without its schema: the packed ``key``, the row's columns
             ``c0``, ... (`arrow.stored_type`), and the extras
epochs       array: the `order.Epoch` of ``order="source"``
deleted      bin: the remembered deletes, a record batch of ``key``, the extras and ``deleted_at``;
             or empty
===========  ======================================================================================

Version 1, ``[version, key_groups, columns, unique_key, keys, rows, written]``, has arrays of packed
keys and packed rows, and of processing times in ms, or nil.

A query that is restarted with other columns reads the rows by column name: a new column is NULL, a
removed one is dropped, and one with a wider type is cast. An incompatible type, another key, or
number of key groups is an error.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from cdc_formats.errors import StateDamagedError, StateVersionError
from cdc_formats.values.schema import Column, columns as to_columns, to_ddl
from cdc_formats.values.types import holds

from .arrow import encode, stored_type, to_stored, unpack
from .order import Epoch

VERSION = 3

EXTRAS: dict[str, pa.DataType] = {
    "written": pa.int64(),
    "epoch": pa.int32(),
    "high": pa.uint64(),
    "low": pa.uint64(),
}
"""``written`` is the time of the last write in ms of processing time (with a TTL); the others are
the position (``order="source"``)."""
POSITION = ("epoch", "high", "low")

_LENGTH = 4
"""The number of bytes of the length in version 3."""


class _Stored(msgspec.Struct, array_like=True, gc=False):
    version: int
    key_groups: int
    columns: str
    unique_key: list[str]
    compact: bool
    extras: list[str]
    rows: bytes
    epochs: list[Epoch]
    deleted: bytes


class _Stored1(msgspec.Struct, array_like=True, gc=False):
    version: int
    key_groups: int
    columns: str
    unique_key: list[str]
    keys: list[bytes]
    rows: list[bytes]
    written: list[int] | None = None


_zstd = pa.Codec("zstd")
_decode = msgspec.msgpack.Decoder(_Stored).decode
_decode_1 = msgspec.msgpack.Decoder(_Stored1).decode


@dataclass
class KeyGroup:
    """The rows of a key group.

    Attributes
    ----------
    rows : pyarrow.RecordBatch
        A row for each key, in any order, with `Layout.schema`; ``deleted_at`` is not 0 for a
        remembered delete, which has no row.
    epochs : list of Epoch
    """

    rows: pa.RecordBatch
    epochs: list[Epoch] = field(default_factory=list)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def extra(self, name: str) -> np.ndarray[Any, Any]:
        """Return a column of `EXTRAS`, or ``deleted_at``."""
        values: np.ndarray[Any, Any] = self.rows.column(name).to_numpy()
        return values


@dataclass(frozen=True)
class Layout:
    """The layout of a query's state.

    Parameters
    ----------
    key_groups : int
    columns : tuple of Column
    unique_key : tuple of str
    with_ttl, with_positions : bool
        Whether processing times and positions are stored.
    """

    key_groups: int
    columns: tuple[Column, ...]
    unique_key: tuple[str, ...]
    with_ttl: bool = False
    with_positions: bool = False

    @cached_property
    def extras(self) -> tuple[str, ...]:
        """The names of the stored columns of `EXTRAS`."""
        return ("written",) * self.with_ttl + POSITION * self.with_positions

    @cached_property
    def ddl(self) -> str:
        """The columns as DDL, as stored in the state."""
        return to_ddl(self.columns)

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema of `KeyGroup.rows`."""
        return _schema(self.columns, (*self.extras, "deleted_at"))

    def empty(self) -> KeyGroup:
        """Return a key group without keys."""
        return KeyGroup(pa.RecordBatch.from_pylist([], schema=self.schema))

    def encode(self, group: KeyGroup) -> bytes:
        """Return a key group as bytes."""
        deleted = group.extra("deleted_at") != 0
        rows, dead = group.rows, b""
        if deleted.any():
            rows, remembered = rows.filter(pa.array(~deleted)), rows.filter(pa.array(deleted))
            dead = bytes(remembered.select(["key", *self.extras, "deleted_at"]).serialize())
        extras = self.extras
        data = rows.select(range(1 + len(self.columns) + len(extras))).serialize()
        return _to_text(
            _Stored(
                2,
                self.key_groups,
                self.ddl,
                list(self.unique_key),
                False,
                list(extras),
                bytes(data),
                group.epochs,
                dead,
            )
        )

    def decode(self, data: bytes, now_ms: int) -> KeyGroup:
        """Return the key group that was stored as `data`.

        Parameters
        ----------
        data : bytes
        now_ms : int
            Processing time: the time of the last write for rows that were stored without a TTL.

        Raises
        ------
        StateVersionError
            When the state has another version, layout, number of key groups or key, or an
            incompatible type of a column.
        StateDamagedError
            When the bytes cannot be decoded.
        """
        stored = read(data)
        self._check(stored)
        with _undamaged():
            columns, live, schema = _stored_columns(stored.columns, tuple(stored.extras))
            rows = _rows(stored, live, schema)
        if stored.columns == self.ddl and rows.schema.equals(self.schema):
            return KeyGroup(rows, stored.epochs)
        return KeyGroup(
            self._laid_out(rows, columns, now_ms), stored.epochs if self.with_positions else []
        )

    def _laid_out(
        self, rows: pa.RecordBatch, columns: Sequence[Column], now_ms: int
    ) -> pa.RecordBatch:
        # After a key without a position any change is accepted (`order.UNORDERED`).
        defaults = {"written": now_ms, "epoch": 0, "high": 0, "low": 0}
        extras = [
            rows.column(name)
            if name in rows.schema.names
            else pa.array(np.full(rows.num_rows, defaults[name]), EXTRAS[name])
            for name in self.extras
        ]
        arrays = [
            rows.column("key"),
            *remapped(rows, columns, self.columns),
            *extras,
            rows.column("deleted_at"),
        ]
        laid_out = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        if self.with_positions:
            return laid_out
        # Without positions no deletes are remembered.
        return laid_out.filter(pa.array(laid_out.column("deleted_at").to_numpy() == 0))

    def _check(self, stored: _Stored) -> None:
        if stored.key_groups != self.key_groups:
            raise StateVersionError(
                f"the checkpoint's state has {stored.key_groups} key groups, and key_groups is "
                f"{self.key_groups}: set key_groups={stored.key_groups}, or start from a new "
                "checkpoint"
            )
        if stored.unique_key != list(self.unique_key):
            raise StateVersionError(
                f"the checkpoint's state has the primary key ({', '.join(stored.unique_key)}), and "
                f"the query's is ({', '.join(self.unique_key)}): start from a new checkpoint"
            )


def read(data: bytes) -> _Stored:
    """Return a key group's decoded state, with version 1 converted to version 2.

    Raises
    ------
    StateVersionError
        When it has another version, or is compact.
    StateDamagedError
        When the bytes cannot be decoded.
    """
    is_text = data[:1].isdigit()
    version = int(data[:1]) if is_text else data[1] if len(data) > 1 else None
    if version not in ((VERSION,) if is_text else (1, 2)):
        raise StateVersionError(
            f"the checkpoint's state has version {version}; this release reads versions 1 to "
            f"{VERSION}"
        )
    with _undamaged():
        decode = _of_text if is_text else _of_version_1 if version == 1 else _decode
        stored = decode(data)
    if stored.compact:
        raise StateVersionError(
            "the checkpoint's state is compact (state_layout='compact'), with hashes instead of "
            "rows, which this release does not read: start from a new checkpoint"
        )
    return stored


def stored_names(data: bytes) -> list[str]:
    """Return the names of the columns of a key group's state; raises as `read`."""
    return [column.name for column in to_columns(read(data).columns)]


def _to_text(stored: _Stored) -> bytes:
    data = encode(stored)
    compressed = _zstd.compress(data, asbytes=True)
    return b"%d" % VERSION + b64encode(len(data).to_bytes(_LENGTH, "little") + compressed)


def _of_text(text: bytes) -> _Stored:
    data = b64decode(memoryview(text)[1:], validate=True)
    length = int.from_bytes(data[:_LENGTH], "little")
    return _decode(_zstd.decompress(memoryview(data)[_LENGTH:], decompressed_size=length))


@contextmanager
def _undamaged() -> Iterator[None]:
    try:
        yield
    except (
        msgspec.MsgspecError,
        pa.ArrowException,
        ValueError,
        TypeError,
        KeyError,
        OverflowError,
        OSError,
    ) as error:
        raise StateDamagedError(
            f"the checkpoint's state is damaged ({type(error).__name__}): restore the checkpoint "
            "from a backup, or start from a new one"
        ) from None


def _batch(data: bytes, schema: pa.Schema) -> pa.RecordBatch:
    batch = pa.ipc.read_record_batch(pa.py_buffer(data), schema)
    # Arrow does not validate by itself: a wrong offset would crash the process.
    batch.validate(full=True)
    return batch


def _of_version_1(data: bytes) -> _Stored:
    stored = _decode_1(data)
    columns = to_columns(stored.columns)
    values = list(zip(*map(unpack, stored.rows), strict=True)) or [()] * len(columns)
    arrays = [pa.array(stored.keys, pa.binary())]
    arrays += [
        to_stored(column.type, of_column) for column, of_column in zip(columns, values, strict=True)
    ]
    extras = []
    if stored.written is not None:
        extras.append("written")
        arrays.append(pa.array(stored.written, pa.int64()))
    rows = pa.RecordBatch.from_arrays(
        arrays, [str(index) for index in range(len(arrays))]
    ).serialize()
    return _Stored(
        2, stored.key_groups, stored.columns, stored.unique_key, False, extras, bytes(rows), [], b""
    )


def _schema(columns: Sequence[Column], extras: Sequence[str]) -> pa.Schema:
    row = [(f"c{index}", stored_type(column.type)) for index, column in enumerate(columns)]
    return pa.schema(
        [("key", pa.binary()), *row, *((name, EXTRAS.get(name, pa.int64())) for name in extras)]
    )


@lru_cache(maxsize=64)
def _stored_columns(
    ddl: str, extras: tuple[str, ...]
) -> tuple[tuple[Column, ...], pa.Schema, pa.Schema]:
    """Return the columns of a state, and the schema of its rows without and with ``deleted_at``."""
    columns = to_columns(ddl)
    return columns, _schema(columns, extras), _schema(columns, (*extras, "deleted_at"))


def _rows(stored: _Stored, of_live: pa.Schema, schema: pa.Schema) -> pa.RecordBatch:
    """Return all rows of a state, including remembered deletes, with ``deleted_at``."""
    live = _batch(stored.rows, of_live)
    arrays = [*live.columns, pa.array(np.zeros(live.num_rows, np.int64))]
    if not stored.deleted:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    of_deleted = pa.schema([schema.field(name) for name in ("key", *stored.extras, "deleted_at")])
    dead = _batch(stored.deleted, of_deleted)
    columns_of_all = [
        pa.concat_arrays(
            [
                array,
                dead.column(each.name)
                if each.name in of_deleted.names
                else pa.nulls(len(dead), each.type),
            ]
        )
        for each, array in zip(schema, arrays, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns_of_all, schema=schema)


# --------------------------------------------------------------------------------------------------
# other columns


def remapped(
    rows: pa.RecordBatch, stored: Sequence[Column], columns: Sequence[Column]
) -> list[pa.Array]:
    """Return the columns ``c0``, ... of stored rows, matched by name and cast to these columns.

    Raises
    ------
    StateVersionError
        When a column's type cannot represent all values of the stored type.
    """
    indexes = _indexes(tuple(stored), tuple(columns))
    return [
        pa.nulls(rows.num_rows, stored_type(column.type))
        if index is None
        else rows.column(f"c{index}").cast(stored_type(column.type))
        for index, column in zip(indexes, columns, strict=True)
    ]


@lru_cache(maxsize=8)
def _indexes(stored: tuple[Column, ...], columns: tuple[Column, ...]) -> tuple[int | None, ...]:
    old = {column.name: (index, column.type) for index, column in enumerate(stored)}
    for column in columns:
        before = old.get(column.name, (0, column.type))[1]
        if not holds(column.type, before):
            raise StateVersionError(
                f"column {column.name} is {before} in the checkpoint's state, and {column.type} "
                "cannot represent all its values: start from a new checkpoint"
            )
    return tuple(old[column.name][0] if column.name in old else None for column in columns)
