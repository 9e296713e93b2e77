"""Keys and rows as numbers, for the compact layout of the state.

A hash is pandas' SipHash of the packed bytes, which is the same on all platforms. Two keys of one key group with the same hash would be
treated as one key: for ``n`` keys in ``g`` groups the probability is about ``n**2 / g / 2**65`` (a billion keys in 100,000 groups: 3e-7).
Two different rows compare as equal with a probability of 2**-48.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pandas.util import hash_array

SPARE_BITS = 16
"""The number of low bits of a row's hash that are 0; the state stores the position's epoch in them."""


def key_hashes(keys: Sequence[bytes]) -> pa.Array:
    """Return the hash of each packed key."""
    return pa.array(_hashes(keys))


def row_hashes(rows: Sequence[bytes]) -> pa.Array:
    """Return the hash of each packed row."""
    return pa.array(_hashes(rows) >> np.uint64(SPARE_BITS) << np.uint64(SPARE_BITS))


def _hashes(values: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.uint64]]:
    objects = np.empty(len(values), object)
    objects[:] = values
    hashes: np.ndarray[Any, np.dtype[np.uint64]] = hash_array(objects, categorize=False)
    return hashes
