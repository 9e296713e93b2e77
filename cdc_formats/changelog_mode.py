"""Changelog modes (Flink's ``ChangelogMode``): row kinds that formats declare or consumers need."""

from __future__ import annotations

from dataclasses import dataclass

from .row_kind import RowKind


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
