"""Row kinds: the effect of one changelog row on the table.

Values and short strings are those of Flink's ``org.apache.flink.types.RowKind``; the values are
part of the state format. A `ChangelogMode` is the set of row kinds that a format declares or a
consumer needs.
"""

from __future__ import annotations

from dataclasses import dataclass
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


# --------------------------------------------------------------------------------------------------
# Changelog modes (Flink's ``ChangelogMode``): row kinds that formats declare or consumers n


@dataclass(frozen=True)
class ChangelogMode:
    """A set of row kinds, declared before any data is read.

    Parameters
    ----------
    kinds : frozenset of RowKind
        The kinds that can appear.
    key_only_deletes : bool
        Whether a ``-D`` may carry only the key columns, like a Kafka tombstone. Flink's Kafka
        connector declares full deletes for upsert-kafka although its tombstones have only the key.

    Examples
    --------
    >>> ChangelogMode.all().contains(RowKind.UPDATE_BEFORE)
    True
    >>> str(ChangelogMode.upsert())
    '[+I, +U, ~D]'
    """

    kinds: frozenset[RowKind]
    key_only_deletes: bool = False

    @classmethod
    def insert_only(cls) -> ChangelogMode:
        """Only ``+I``."""
        return cls(frozenset({RowKind.INSERT}))

    @classmethod
    def upsert(cls, *, key_only_deletes: bool = True) -> ChangelogMode:
        """``+I +U -D``: updates without their before-image."""
        kinds = frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE})
        return cls(kinds, key_only_deletes)

    @classmethod
    def all(cls) -> ChangelogMode:
        """``+I -U +U -D``: a changelog that can be retracted."""
        return cls(frozenset(RowKind))

    def contains(self, kind: RowKind) -> bool:
        """Whether rows of `kind` can appear."""
        return kind in self.kinds

    def __str__(self) -> str:
        return "[" + ", ".join(self._spell(kind) for kind in sorted(self.kinds)) + "]"

    def _spell(self, kind: RowKind) -> str:
        return "~D" if kind is RowKind.DELETE and self.key_only_deletes else kind.short_string
