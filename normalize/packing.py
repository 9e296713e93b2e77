"""Rows as opaque bytes: what crosses between the passes of a query, and what the state holds.

Between Kafka and the typed rows at the end nothing looks into a row: it is MessagePack of its canonical values, two rows are
equal when their bytes are, and many rows travel as one value. The cost of a crossing into Python is a matter of rows and
columns of the frame, and so the frame has few: one row for all that a Kafka partition's batch says about one key group.

A packed block of changes is the MessagePack array ``[stamps, keys, rows, metadata, partials]``:

===========  ===========================================================================================================
stamps       array of int: each change's Kafka timestamp in ms, made monotone within the Kafka partition
keys         array of bin: each change's key
rows         array of bin or nil: the row after the change, nil for a delete
metadata     array of bin, or nil where no metadata is asked for
partials     array of ``[index, record]``: the changes whose row lacks columns, with their `KafkaRecord`
===========  ===========================================================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from cdc_formats.images import ABSENT, complete

_ABSENT_CODE = 1


def _enc_hook(value: Any) -> Any:
    if value is ABSENT:
        return msgspec.msgpack.Ext(_ABSENT_CODE, b"")
    raise NotImplementedError(f"no canonical value: {type(value)}")


def _ext_hook(code: int, data: memoryview) -> Any:
    return ABSENT


pack = msgspec.msgpack.Encoder(enc_hook=_enc_hook).encode
"""From a row or key (a tuple of canonical values) to its bytes."""
_unpack = msgspec.msgpack.Decoder(ext_hook=_ext_hook).decode


def unpack(row: bytes) -> list[Any]:
    """Return the canonical values of a row or key."""
    values: list[Any] = _unpack(row)
    return values


def complete_packed(row: bytes, stored: bytes) -> bytes:
    """Return `row` with its absent columns taken from `stored`."""
    return pack(complete(tuple(unpack(row)), tuple(unpack(stored))))


def key_group_of(key: bytes, key_groups: int) -> int:
    """Return the key group of a packed key; fixed for all time, since state is laid out by it."""
    return crc32(key) % key_groups


class KafkaRecord(NamedTuple):
    """A record as it is in Kafka, for what has to be told of the record itself.

    Attributes
    ----------
    topic, partition, offset : str, int, int
    timestamp : int
        In ms since 1970-01-01 UTC.
    key, value : bytes or None
    headers : sequence of (str, bytes or None)
        Empty where they were not read.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def where(self) -> str:
        """The record's place, as errors name it."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class Partial(NamedTuple):
    """A change whose row lacks columns, by its place in the block, and the record it came from."""

    change: int
    record: KafkaRecord


class Changes(msgspec.Struct, array_like=True, gc=False):
    """A packed block of changes, unpacked: parallel lists, in the order of the Kafka partition."""

    stamps: list[int]
    keys: list[bytes]
    rows: list[bytes | None]
    metadata: list[bytes] | None = None
    partials: list[Partial] = []


encode_block = msgspec.msgpack.Encoder().encode
decode_changes = msgspec.msgpack.Decoder(Changes).decode


def join_rows(rows: Sequence[bytes]) -> bytes:
    """Return packed rows as one packed array of rows."""
    return b"\xdd" + len(rows).to_bytes(4, "big") + b"".join(rows)


def split_rows(block: bytes) -> list[list[Any]]:
    """Return the rows of `join_rows`, unpacked."""
    rows: list[list[Any]] = _unpack(block)
    return rows
