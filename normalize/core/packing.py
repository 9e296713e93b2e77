"""Canonical values as MessagePack: keys, and other values that are sent as one.

Equal keys have the same bytes, since decoders return the same values for equal keys
(`cdc_formats.values.equality`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from cdc_formats.values.images import ABSENT

_ABSENT_CODE = 1


def _enc_hook(value: Any) -> Any:
    if value is ABSENT:
        return msgspec.msgpack.Ext(_ABSENT_CODE, b"")
    raise NotImplementedError(f"no canonical value: {type(value)}")


def _ext_hook(code: int, data: memoryview) -> Any:
    return ABSENT


pack = msgspec.msgpack.Encoder(enc_hook=_enc_hook).encode
"""Encodes a row or key (a tuple of canonical values)."""
_unpack = msgspec.msgpack.Decoder(ext_hook=_ext_hook).decode


def unpack(row: bytes) -> list[Any]:
    """Return the canonical values of a row or key."""
    values: list[Any] = _unpack(row)
    return values


encode = msgspec.msgpack.Encoder().encode
"""Encodes a struct or list of plain values."""


def key_group_of(key: bytes, key_groups: int) -> int:
    """Return the key group of a packed key.

    It must never change, since it determines the layout of the state.
    """
    return crc32(key) % key_groups


def key_groups_of(keys: Sequence[bytes], key_groups: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the key group of each packed key."""
    return np.fromiter(map(crc32, keys), np.int64, len(keys)) % key_groups
