"""Pairing of an update's two rows, ``-U`` and ``+U``, to one update with the row before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from cdc_formats.row_kind import RowKind
from cdc_formats.values.equality import equal

Row = tuple[Any, ...]
Change = tuple[RowKind, Row, Row | None]
"""A kind, a row, and the row before it."""


def pair_updates(
    rows: Iterable[tuple[RowKind, Row]], key_indices: Sequence[int] = ()
) -> Iterator[Change]:
    """Yield each ``-U`` and directly following ``+U`` as one update, if they have the same key.

    A ``-U`` is held back until the next row or the end: chain batches to one iterable. Nothing else
    is held back, and the order is kept.

    Parameters
    ----------
    rows : iterable of (RowKind, tuple)
        A changelog whose rows are canonical values.
    key_indices : sequence of int
        The indices of the unique key's columns; if empty, any such neighbours are one update.

    Yields
    ------
    (RowKind, tuple, tuple or None)
        ``+U`` with the row before it; every other row unchanged, with None.

    Examples
    --------
    >>> rows = [(RowKind.UPDATE_BEFORE, (1, "scooter")), (RowKind.UPDATE_AFTER, (1, "bike")), (RowKind.DELETE, (1, "bike"))]
    >>> for kind, row, before in pair_updates(rows, key_indices=[0]):
    ...     print(kind.short_string, row, before)
    +U (1, 'bike') (1, 'scooter')
    -D (1, 'bike') None
    """
    held: Row | None = None
    for kind, row in rows:
        before, held = held, None
        if before is not None:
            if kind is RowKind.UPDATE_AFTER and all(
                equal(before[index], row[index]) for index in key_indices
            ):
                yield kind, row, before
                continue
            yield RowKind.UPDATE_BEFORE, before, None
        if kind is RowKind.UPDATE_BEFORE:
            held = row
        else:
            yield kind, row, None
    if held is not None:
        yield RowKind.UPDATE_BEFORE, held, None
