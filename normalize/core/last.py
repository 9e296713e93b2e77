"""The last change of each key among changes that several tasks may have read."""

from __future__ import annotations

import numpy as np

from .fold_columns import Bools, Ints
from .row_order import RowOrder, unknown_order


def last_changes(keys: Ints, sources: Ints, offsets: Ints, stamps: Ints, row_order: RowOrder) -> tuple[Ints, Ints]:
    """Return the place of the last change of each key, and its timestamp made monotone within its partition.

    The order is that of `changes.ChangeBatch.of_blocks`: changes of a partition are in the order of offsets, and partitions are merged by
    timestamps; equal timestamps are ordered by the partition's name. Changes may be reduced in parts: the result is the same.

    Parameters
    ----------
    keys, sources : array of int
        The key and the Kafka partition of each change, as numbers; those of partitions are in the order of their names.
    offsets, stamps : array of int
    row_order : {"log", "offset", "row"}

    Returns
    -------
    (places, stamps) : (array of int, array of int)

    Raises
    ------
    RowOrderError
        When the order of the last two changes of a key is unknown (`row_order`).

    Examples
    --------
    >>> places, stamps = last_changes(*map(np.array, ([0, 0, 1], [0, 0, 0], [7, 8, 9], [5, 4, 6])), "log")
    >>> places.tolist(), stamps.tolist()
    ([1, 2], [5, 6])
    """
    order = np.lexsort((offsets, sources, keys))
    changed = (keys[order][1:] != keys[order][:-1]) | (sources[order][1:] != sources[order][:-1])
    starts = np.flatnonzero(np.append(True, changed))
    last = order[np.append(starts[1:], len(order)) - 1]
    monotone = np.maximum.reduceat(stamps[order], starts)
    merged = np.lexsort((sources[last], monotone, keys[last]))
    places, stamps = last[merged], monotone[merged]
    final: Bools = np.append(keys[places][1:] != keys[places][:-1], True)
    tied = ~final[:-1] & final[1:] & (stamps[1:] == stamps[:-1])
    if tied.any() and (row_order == "row" or (row_order == "offset" and not stamps.any())):
        raise unknown_order(row_order)
    return places[final], stamps[final]
