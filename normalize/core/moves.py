"""Rows whose key changed and that lack columns: the row of the earlier key has them.

A key's row is followed from change to change, and from key to key. It ends with a place for each
column: the change that has its value, or none. Then the target has the value, in the row of the key
at which the row began (its base).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .fold_columns import Ints


class FollowedRow(NamedTuple):
    """The last change of a key.

    Attributes
    ----------
    change : int
    base : bytes or None
        The key whose row in the target has the values that no change has; None if there are none.
    places : tuple of int
        For each column the change that has its value, or -1; empty for a delete.
    """

    change: int
    base: bytes | None = None
    places: tuple[int, ...] = ()


class UnknownRowError(ValueError):
    """A row that lacks columns cannot be followed; the arguments are its change and the reason."""


_DELETED = "the change of its key before it is a delete: read the table again from a snapshot"
_REUSED = (
    "its earlier key, in another partition, had several rows meanwhile: read the table again from "
    "a snapshot"
)


class _Deleted(NamedTuple):
    row: FollowedRow
    source: int
    times: int


def in_order(sources: Ints, offsets: Ints, stamps: Ints) -> Ints:
    """Return the order of changes: of a partition by offset, and between partitions by timestamp.

    Timestamps are made monotone in each partition. Changes of one record keep their order.

    Parameters
    ----------
    sources, offsets, stamps : array of int
        The numbers of partitions are in the order of their names.

    Examples
    --------
    >>> in_order(*map(np.array, ([0, 1, 0, 0], [7, 3, 8, 8], [5, 4, 3, 3]))).tolist()
    [1, 0, 2, 3]
    """
    placed = np.lexsort((offsets, sources))
    times, of = stamps[placed], sources[placed]
    starts = np.flatnonzero(np.append(True, of[1:] != of[:-1]))
    monotone = np.concatenate([np.maximum.accumulate(part) for part in np.split(times, starts[1:])])
    order: Ints = placed[np.lexsort((of, monotone))]
    return order


def follow_moves(
    keys: Sequence[bytes],
    moved_from: Sequence[bytes | None],
    deleted: Sequence[bool],
    absent: Sequence[Sequence[bool] | None],
    sources: Sequence[int],
    columns: int,
) -> dict[bytes, FollowedRow]:
    """Return the last change of each key, among all changes of these keys in their order.

    Parameters
    ----------
    keys : sequence of bytes
    moved_from : sequence of bytes or None
        The earlier key of a row that lacks columns, if its key changed.
    deleted : sequence of bool
    absent : sequence of (sequence of bool) or None
        The columns that a row lacks; None for a whole row and a delete.
    sources : sequence of int
        The Kafka partition of each change.
    columns : int
        The number of columns.

    Raises
    ------
    UnknownRowError
    """
    rows, deletes = dict[bytes, FollowedRow](), dict[bytes, _Deleted]()

    def row_of(key: bytes) -> FollowedRow:
        return (
            rows[key] if key in rows and rows[key].places else FollowedRow(-1, key, (-1,) * columns)
        )

    def origin(at: int, key: bytes) -> FollowedRow:
        """Return the row that moved away from a key: the deleted one, if its delete was read."""
        if key not in deletes:
            return row_of(key)
        # Partitions are merged by time: another row may have had the key meanwhile.
        last = deletes[key]
        if last.source != sources[at] and (last.times > 1 or rows[key].places):
            raise UnknownRowError(at, _REUSED)
        return last.row

    for at, key in enumerate(keys):
        lacks, earlier = absent[at], moved_from[at]
        is_there = key not in rows or bool(rows[key].places)
        if deleted[at]:
            if is_there:
                times = deletes[key].times + 1 if key in deletes else 1
                deletes[key] = _Deleted(row_of(key), sources[at], times)
            rows[key] = FollowedRow(at)
        elif lacks is None:
            rows[key] = FollowedRow(at, None, (at,) * columns)
        elif earlier is None and not is_there:
            raise UnknownRowError(at, _DELETED)
        else:
            before = row_of(key) if earlier is None else origin(at, earlier)
            places = tuple(
                [was if missing else at for missing, was in zip(lacks, before.places, strict=True)]
            )
            rows[key] = FollowedRow(at, before.base if -1 in places else None, places)
    return rows
