"""The last change of each key among changes that several tasks may have read.

The order is that of `changes.ChangeBatch.of_blocks`: changes of a partition are in the order of offsets, and partitions are merged by
timestamps; equal timestamps are ordered by the partition's name.
"""

from __future__ import annotations

import numpy as np

from .fold_columns import Ints
from .row_order import RowOrder, unknown_order


def last_in_partitions(keys: Ints, sources: Ints, offsets: Ints, stamps: Ints) -> tuple[Ints, Ints]:
    """Return the place of the last change of each key in each partition, and its timestamp made monotone.

    Changes may be reduced in parts, in any order: the result is the same.

    Parameters
    ----------
    keys, sources : array of int
        The key and the Kafka partition of each change, as numbers.
    offsets, stamps : array of int

    Returns
    -------
    (places, stamps) : (array of int, array of int)

    Examples
    --------
    >>> places, stamps = last_in_partitions(*map(np.array, ([0, 0, 1], [0, 0, 0], [7, 8, 9], [5, 4, 6])))
    >>> places.tolist(), stamps.tolist()
    ([1, 2], [5, 6])
    """
    order = np.lexsort((offsets, sources, keys))
    changed = (keys[order][1:] != keys[order][:-1]) | (sources[order][1:] != sources[order][:-1])
    starts = np.flatnonzero(np.append(True, changed))
    return order[np.append(starts[1:], len(order)) - 1], np.maximum.reduceat(stamps[order], starts)


def last_of_keys(keys: Ints, sources: Ints, stamps: Ints, row_order: RowOrder) -> Ints:
    """Return the place of the last change of each key, among all changes of `last_in_partitions`.

    Parameters
    ----------
    keys, sources, stamps : array of int
        The numbers of partitions are in the order of their names.
    row_order : {"log", "offset", "row"}

    Raises
    ------
    RowOrderError
        When the order of the last two changes of a key is unknown (`row_order`).

    Examples
    --------
    >>> last_of_keys(*map(np.array, ([0, 0, 1], [0, 1, 1], [7, 6, 5])), "log").tolist()
    [0, 2]
    """
    order = np.lexsort((sources, stamps, keys))
    arranged, times = keys[order], stamps[order]
    last = np.append(arranged[1:] != arranged[:-1], True)
    tied = ~last[:-1] & last[1:] & (times[1:] == times[:-1])
    if tied.any() and (row_order == "row" or (row_order == "offset" and not stamps.any())):
        raise unknown_order(row_order)
    places: Ints = order[last]
    return places
