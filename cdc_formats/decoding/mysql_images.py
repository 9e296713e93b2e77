"""Rows that are incomplete in MySQL's log, as written by Canal and Maxwell.

With ``binlog_row_image=MINIMAL`` an update has the primary key and the columns that the statement
set, and a delete has the primary key. ``NOBLOB`` omits unchanged TEXT and BLOB columns. If the
setting is not declared, a message is treated as minimal in two cases: an update without a changed
column in ``old``, and an update or delete with only the primary key. If the table's primary key is
unknown, the second case is an update with a single column, which changed.

In all other messages a missing column is NULL: it was added to the table later, or Maxwell omits
NULLs (``output_nulls=false``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from cdc_formats.errors import MissingBeforeImageError
from cdc_formats.events import Event, RowKind
from cdc_formats.values.schema import ABSENT

from .rows import RowConverter

WHOLE_ROWS = (
    "configure MySQL to write whole rows (binlog_row_image=FULL; if it does, set the option "
    "binlog_row_image)"
)
"""The remedy in errors about a row that lacks columns."""

Names = Callable[[str], Collection[str]]
"""A function from a field of the message, ``data`` or ``old``, to all names in it, declared or not.
It parses the message again."""


class PartialRows:
    """Recognises rows whose missing columns are unchanged, not NULL.

    Parameters
    ----------
    rows : RowConverter
    row_image : str or None
        The server's ``binlog_row_image``; None if it is not declared.
    """

    def __init__(self, rows: RowConverter, row_image: str | None) -> None:
        self.rows, self.row_image = rows, row_image

    def update(self, after: Any, old: Any, key: Collection[str], names: Names) -> bool:
        """Whether an update lacks columns that did not change.

        Parameters
        ----------
        after : Struct or mapping
        old : Struct, mapping or None
            The columns that changed; None if there are none, declared or not.
        key : collection of str
            The primary key's columns; empty if unknown.
        names : callable
        """
        present = self._present(after)
        if present is None or self.row_image is not None:
            return present is not None
        if old is None:
            return True
        if key:
            return _within(present, key) and _within(names("data"), key)
        # If the key is unknown, a single changed column is treated as the key.
        return len(present) == 1 and set(names("data")) == set(names("old"))

    def delete(self, before: Any, key: Collection[str], names: Names) -> bool:
        """Whether a delete lacks columns; parameters as in `update`."""
        present = self._present(before)
        if present is None or self.row_image is not None:
            return present is not None
        return _within(present, key) and _within(names("data"), key)

    def mark(self, event: Event, key: Collection[str], names: Names) -> None:
        """Mark an event whose missing columns are unchanged, not NULL; parameters as in `update`."""
        if event.kind is RowKind.DELETE:
            event.sparse = self.delete(event.before, key, names)
        elif event.kind is RowKind.UPDATE_AFTER:
            event.sparse = self.update(event.after, event.before, key, names)

    def nulls(self, kind: Any, image: Any, old: Any, key: Collection[str]) -> bool:
        """Return whether a row's missing columns are certainly NULL, from declared columns only.

        The parameters are as in `update`.
        """
        present = self._present(image)
        if present is None or kind is RowKind.INSERT:
            return present is None or bool(present)
        changed = kind is RowKind.DELETE or (
            old is not None and any(value is not ABSENT for value in self.rows.raw(old))
        )
        other = not _within(present, (*key, *self.rows.unique_key))
        return self.row_image is None and changed and other and len(present) > 1

    def _present(self, image: Any) -> set[str] | None:
        """Return an image's declared columns; None if it has all, or if every image is whole."""
        if self.row_image == "FULL":
            return None
        present = {
            name
            for name, value in zip(self.rows.names, self.rows.raw(image), strict=True)
            if value is not ABSENT
        }
        return None if len(present) == len(self.rows.names) else present


def require_same_key(
    what: str, unique_key: Collection[str], key: Collection[Any], path: str
) -> None:
    """Raise for an update if a column of the declared key is not in the table's primary key.

    Raises
    ------
    MissingBeforeImageError
    """
    if other := next((name for name in unique_key if name not in key), None):
        raise MissingBeforeImageError(
            f"{what}, and `{other}` is not in the table's primary key, so it may have changed: "
            f"{WHOLE_ROWS}",
            path,
        )


def _within(names: Collection[str], key: Collection[Any]) -> bool:
    # A message's key can have any JSON values, which a set could not have.
    return all(name in key for name in names)
