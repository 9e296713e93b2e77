"""The semantics of ChangelogNormalize for one key, as a pure function of one change.

`cdc_formats.values.equality` defines equal rows. `fold_columns` folds all changes of a key group at
once; tests compare the two.

=================  ==============================  ================================================
change             nothing stored                  a row is stored
=================  ==============================  ================================================
a row              ``+I`` row; store it            equal row: no output. Else ``-U`` stored, ``+U``
                                                   row; store it
a delete           no output                       ``-D`` stored (with all columns); forget it
=================  ==============================  ================================================

This is ``processLastRowOnChangelog`` of Flink's DeduplicateFunctionHelper, with the input from
Flink's planner: newest rows and deletes, no ``-U``. Inserts and updates are treated alike. With a
state TTL an equal row is emitted, so that downstream state does not expire (as in Flink).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

from cdc_formats.errors import PartialImageError
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    KeyedChange,
    RowKind,
)
from cdc_formats.values.equality import equal
from cdc_formats.values.schema import complete

Row = TypeVar("Row")


class FoldOptions(NamedTuple):
    """Options of the fold.

    Parameters
    ----------
    generate_update_before : bool
        Whether to emit ``-U``.
    suppress_equal : bool
        Whether to drop a row that is equal to the stored one.
    """

    generate_update_before: bool = True
    suppress_equal: bool = True


def fold(
    stored: Row | None, row: Row | None, options: FoldOptions
) -> tuple[tuple[tuple[RowKind, Row], ...], Row | None]:
    """Return the changelog rows for one change, and the new stored row of its key.

    Parameters
    ----------
    stored : Row or None
        The key's stored row, if any.
    row : Row or None
        The row after the change; None for a delete.
    options : FoldOptions

    Returns
    -------
    (output, stored) : (tuple of (RowKind, Row), Row or None)
        Up to two changelog rows, and the new stored row.

    Examples
    --------
    >>> fold("scooter", "bike", FoldOptions())
    (((<RowKind.UPDATE_BEFORE: 1>, 'scooter'), (<RowKind.UPDATE_AFTER: 2>, 'bike')), 'bike')
    """
    if row is None:
        return (((DELETE, stored),) if stored is not None else ()), None
    if stored is None:
        return ((INSERT, row),), row
    if options.suppress_equal and equal(stored, row):
        return (), stored
    if options.generate_update_before:
        return ((UPDATE_BEFORE, stored), (UPDATE_AFTER, row)), row
    return ((UPDATE_AFTER, row),), row


class FoldedTable:
    """The newest row of each key, in memory: folds the changes of one record after the other.

    Parameters
    ----------
    options : FoldOptions or None
        None: the defaults.
    """

    def __init__(self, options: FoldOptions | None = None) -> None:
        self.options = options or FoldOptions()
        self.stored: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    def apply(self, changes: Iterable[KeyedChange]) -> list[tuple[RowKind, tuple[Any, ...]]]:
        """Return the changelog rows of one record's changes, in order.

        All changes are stored, or none if one of them is an error.

        Raises
        ------
        PartialImageError
            When the producer left out unchanged columns of a row, and none is stored for its key.
        """
        rows: list[tuple[RowKind, tuple[Any, ...]]] = []
        new: dict[tuple[Any, ...], tuple[Any, ...] | None] = {}
        for change in changes:
            before = new[change.key] if change.key in new else self.stored.get(change.key)
            base = before if change.moved_from is None else self.stored.get(change.moved_from)
            row = change.row
            if change.partial and row is not None:
                if base is None:
                    raise PartialImageError(
                        "the producer left unchanged columns out, and no earlier row of the key was "
                        "read: start at an earlier offset"
                    )
                row = complete(row, base)
            output, new[change.key] = fold(before, row, self.options)
            rows += output
        for key, row in new.items():
            if row is None:
                self.stored.pop(key, None)
            else:
                self.stored[key] = row
        return rows
