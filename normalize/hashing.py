"""Keys and rows as numbers, for the compact layout of the state.

A hash is pandas' SipHash of the packed bytes, whose values are the same everywhere. Two keys of one key group with one hash would be
taken for one key: for ``n`` keys in ``g`` groups that happens with a probability of about ``n**2 / g / 2**65`` (a billion keys in
100,000 groups: 3e-7). A row is taken for another with 2**-48 for each comparison.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pandas.util import hash_array

SPARE_BITS = 16
"""The low bits of a row's hash are 0: the state has the position's epoch there."""


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
