"""`fold` for all changes of a key group at once, on arrays of indexes."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cdc_formats.events import RowKind

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


class FoldResult(NamedTuple):
    """The changelog rows and the new stored rows of a key group, as indexes.

    An index below the number of stored rows is that stored row; the index of a change is its index
    plus that number.

    Attributes
    ----------
    kinds : array of int8
        The kinds of the changelog rows as numbers, in the order of the changes that caused them.
    rows : array of int
        The index of each row.
    causes : array of int
        The index of the change that caused each row.
    kept : array of int
        The indexes to store for the keys that changed, including deletes.
    """

    kinds: np.ndarray[Any, np.dtype[np.int8]]
    rows: Ints
    causes: Ints
    kept: Ints


class Predecessors:
    """The stored rows and changes of a key group, and the predecessor of each change.

    A predecessor is the last change or stored row of the change's key.

    Parameters
    ----------
    codes : array of int
        The key of each change, as a number; a number below `stored` is the index of the key's
        stored row.
    deleted : array of bool
        Whether each change is a delete.
    without_row : array of bool
        Whether each stored row has expired, or is only a remembered delete.

    Attributes
    ----------
    before : array of int
        The index of each change's predecessor, or -1.
    has_before : array of bool
        Whether the predecessor has a row.
    """

    def __init__(self, codes: Ints, deleted: Bools, without_row: Bools) -> None:
        self.codes, self.deleted, self.stored = codes, deleted, len(without_row)
        self.without_row = np.concatenate([without_row, deleted])
        self.order = np.argsort(codes, kind="stable")
        self.arranged = codes[self.order]
        self.first = np.ones(len(codes), bool)
        np.not_equal(self.arranged[1:], self.arranged[:-1], out=self.first[1:])
        self.of_state = np.where(self.arranged < self.stored, self.arranged, -1)
        previous = np.concatenate([self.order[-1:], self.order[:-1]])
        arranged_before = np.where(self.first, self.of_state, self.stored + previous)
        self.before = np.empty_like(arranged_before)
        self.before[self.order] = arranged_before

    @cached_property
    def has_before(self) -> Bools:
        # Computed when `without_row` is final: a row that cannot be completed counts as missing.
        has_before: Bools = (self.before >= 0) & ~self.without_row[self.before]
        return has_before

    @property
    def last(self) -> Bools:
        """Whether each change is its key's last."""
        last = np.empty(len(self.codes), bool)
        last[self.order] = np.append(self.first[1:], True)[: len(self.codes)]
        return last

    def fold(self, suppressed: Bools, generate_update_before: bool) -> FoldResult:
        """Return the result of all changes.

        Parameters
        ----------
        suppressed : array of bool
            Whether each change is dropped, because its row is equal to the one before it.
        generate_update_before : bool
            See `FoldOptions`.
        """
        has_before, deleted = self.has_before, self.deleted
        before = self._emitted_before(suppressed)
        inserts, deletes = ~deleted & ~has_before, deleted & has_before
        updates = ~deleted & has_before & ~suppressed
        counts = inserts.astype(np.int64) + deletes + updates * (1 + generate_update_before)
        starts = np.cumsum(counts) - counts
        kinds = np.empty(int(counts.sum()), np.int8)
        rows = np.empty(len(kinds), np.int64)
        indexes = self.stored + np.arange(len(deleted))
        for which, kind, of in (
            (inserts, RowKind.INSERT, indexes),
            (deletes, RowKind.DELETE, before),
        ):
            kinds[starts[which]], rows[starts[which]] = kind, of[which]
        if generate_update_before:
            kinds[starts[updates]], rows[starts[updates]] = RowKind.UPDATE_BEFORE, before[updates]
        after = starts[updates] + generate_update_before
        kinds[after], rows[after] = RowKind.UPDATE_AFTER, indexes[updates]
        last = self.last
        kept = np.where(suppressed[last], before[last], indexes[last])
        return FoldResult(kinds, rows, np.repeat(np.arange(len(deleted)), counts), kept)

    def _emitted_before(self, suppressed: Bools) -> Ints:
        """Return the index of the last emitted (not suppressed) row before each change."""
        if not suppressed.any():
            return self.before
        index = np.arange(len(suppressed))
        emitted = np.maximum.accumulate(np.where(suppressed[self.order], -1, index))
        so_far = np.append(-1, emitted[:-1])
        starts = np.maximum.accumulate(np.where(self.first, index, 0))
        before = np.empty_like(self.before)
        before[self.order] = np.where(
            so_far >= starts, self.stored + self.order[so_far], self.of_state
        )
        return before
