"""Row kinds: the effect of one changelog row on the table.

Values and short strings are those of Flink's ``org.apache.flink.types.RowKind``; the values are
part of the state format.
"""

from __future__ import annotations

from enum import IntEnum


class RowKind(IntEnum):
    """The kind of one changelog row.

    Examples
    --------
    >>> RowKind.UPDATE_BEFORE.short_string
    '-U'
    >>> RowKind.from_short_string("+I")
    <RowKind.INSERT: 0>
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short_string(self) -> str:
        """``+I``, ``-U``, ``+U`` or ``-D``."""
        return SHORT_STRINGS[self]

    @classmethod
    def from_short_string(cls, text: str) -> RowKind:
        """Return the kind with the short string `text`.

        Raises
        ------
        ValueError
            When `text` is not one of ``+I -U +U -D``.
        """
        if text not in SHORT_STRINGS:
            raise ValueError(f"{text!r} is not a row kind; use one of {', '.join(SHORT_STRINGS)}")
        return cls(SHORT_STRINGS.index(text))


SHORT_STRINGS = ("+I", "-U", "+U", "-D")
"""Short strings by the row kind's value."""
