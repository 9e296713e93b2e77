"""Rows of formats whose readers convert as they read."""

from __future__ import annotations

from typing import Any

from .handling import Handling
from .rows import Image, RowConverter


class CanonicalRows(RowConverter):
    """The rows of a table whose images are canonical already.

    An image is a tuple in the order of the columns; `ABSENT` in it is a value that is not available, never a missing column.
    """

    def __init__(self, rows: RowConverter) -> None:
        super().__init__(rows.columns, Handling(), rows.unique_key)
        self._there = (None,) * len(rows.columns)

    def raw(self, image: Any) -> tuple[Any, ...]:
        """Return nothing that is missing."""
        return self._there

    def row(self, image: Any, path: str) -> tuple[Any, ...]:
        """Return the image."""
        row: tuple[Any, ...] = image
        return row

    def key(self, image: Any, path: str) -> tuple[Any, ...]:
        """Return the key's columns of the image."""
        return tuple([image[index] for index in self.key_indices])

    def same_key(self, before: Image, after: Image) -> bool:
        """Whether two images have one key."""
        return self.key(before, "") == self.key(after, "")
