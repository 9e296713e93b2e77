"""What ChangelogNormalize does to one key: the whole of its semantics, as a pure function of one change.

`cdc_formats.equality` says when two rows are the same. `fold_columns` does this to all changes of a key group at once, and tests hold
the one to the other.

=================  ==============================  ==================================================================
change             nothing stored                  a row is stored
=================  ==============================  ==================================================================
a row              ``+I`` row; store it            the same row: nothing. Else ``-U`` stored, ``+U`` row; store it
a delete           nothing                         ``-D`` stored (in full, whatever the delete carried); forget it
=================  ==============================  ==================================================================

That is ``processLastRowOnChangelog`` of Flink's DeduplicateFunctionHelper, with the input that Flink's planner gives it: newest
rows and deletes, no ``-U``. Whether a change was written as an insert or an update does not matter. With a state TTL an equal row
is not suppressed, so that what follows stays fresh (as Flink).
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

from cdc_formats.equality import equal
from cdc_formats.row_kind import RowKind

Row = TypeVar("Row")


class FoldOptions(NamedTuple):
    """How a key is folded.

    Parameters
    ----------
    generate_update_before : bool
        Whether the consumer needs ``-U``.
    suppress_equal : bool
        Whether a row equal to the stored one gives nothing.
    """

    generate_update_before: bool = True
    suppress_equal: bool = True


def fold(stored: Row | None, row: Row | None, options: FoldOptions) -> tuple[tuple[tuple[RowKind, Row], ...], Row | None]:
    """Fold one change into what is stored of its key.

    Parameters
    ----------
    stored : Row or None
        The key's row; None where it has none.
    row : Row or None
        The row after the change; None for a delete.
    options : FoldOptions

    Returns
    -------
    (output, stored) : (tuple of (RowKind, Row), Row or None)
        The changelog rows, none to two, and what is to be stored.

    Examples
    --------
    >>> fold("scooter", "bike", FoldOptions())
    (((<RowKind.UPDATE_BEFORE: 1>, 'scooter'), (<RowKind.UPDATE_AFTER: 2>, 'bike')), 'bike')
    """
    if row is None:
        return (((_DELETE, stored),) if stored is not None else ()), None
    if stored is None:
        return ((_INSERT, row),), row
    if options.suppress_equal and equal(stored, row):
        return (), stored
    if options.generate_update_before:
        return ((_UPDATE_BEFORE, stored), (_UPDATE_AFTER, row)), row
    return ((_UPDATE_AFTER, row),), row


_INSERT, _UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = (
    RowKind.INSERT,
    RowKind.UPDATE_BEFORE,
    RowKind.UPDATE_AFTER,
    RowKind.DELETE,
)
