"""From the two rows of an update, ``-U`` and ``+U``, to one update with the row before it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from .equality import equal
from .row_kind import RowKind

Row = tuple[Any, ...]
Change = tuple[RowKind, Row, Row | None]
"""A kind, a row, and the row before it."""


def pair_updates(rows: Iterable[tuple[RowKind, Row]], key_indices: Sequence[int] = ()) -> Iterator[Change]:
    """Put a ``-U`` and the ``+U`` that directly follows it together, where they are of one key.

    A ``-U`` is held back until the next row comes, or the end: batches are to be chained to one iterable. Nothing else is held, and
    the order stays.

    Parameters
    ----------
    rows : iterable of (RowKind, tuple)
        A changelog, its rows as canonical values.
    key_indices : sequence of int
        Where the unique key's columns stand in a row; none: any two such neighbours are one update.

    Yields
    ------
    (RowKind, tuple, tuple or None)
        ``+U`` with the row before it; every other row as it came, with None.

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
            if kind is RowKind.UPDATE_AFTER and all(equal(before[index], row[index]) for index in key_indices):
                yield kind, row, before
                continue
            yield RowKind.UPDATE_BEFORE, before, None
        if kind is RowKind.UPDATE_BEFORE:
            held = row
        else:
            yield kind, row, None
    if held is not None:
        yield RowKind.UPDATE_BEFORE, held, None
