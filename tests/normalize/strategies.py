"""Hypothesis strategies and small readings of changelogs, shared by the tests of the stage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from cdc_formats import RowKind
from normalize.fold import FoldOptions, fold

Row = tuple[Any, ...]
KeyChange = tuple[int, Row | None]

KEYS = st.integers(0, 4)
ROWS = st.tuples(KEYS, st.sampled_from(["a", "b", None]), st.integers(0, 2))


@st.composite
def key_changes(draw: st.DrawFn) -> KeyChange:
    """Draw a change of one of few keys to one of few rows, so that equal rows and unknown deletes come up."""
    row = draw(ROWS)
    return row[0], None if draw(st.integers(0, 3)) == 0 else row


RETRACT = FoldOptions()
HISTORIES = st.lists(key_changes(), max_size=40)
"""Changes in order."""


def fold_history(history: Iterable[KeyChange], options: FoldOptions = RETRACT) -> list[tuple[RowKind, Row]]:
    """Fold a history with the pure function alone: what every engine must give, key by key."""
    stored: dict[int, Row | None] = {}
    changelog: list[tuple[RowKind, Row]] = []
    for key, row in history:
        output, stored[key] = fold(stored.get(key), row, options)
        changelog.extend(output)
    return changelog


def by_key(changelog: Iterable[tuple[RowKind, Sequence[Any]]]) -> dict[Any, list[tuple[str, Row]]]:
    """Group changelog rows by their key (the first column); order across keys means nothing."""
    grouped: dict[Any, list[tuple[str, Row]]] = {}
    for kind, row in changelog:
        grouped.setdefault(row[0], []).append((RowKind(kind).short_string, tuple(row)))
    return grouped


def table_of(changelog: Iterable[tuple[RowKind | str, Sequence[Any]]]) -> dict[Any, Row]:
    """Apply a changelog to an empty table, and refuse one that is no retract stream."""
    table: dict[Any, Row] = {}
    before: tuple[str, Row] | None = None
    for kind, values in changelog:
        kind, row = kind if isinstance(kind, str) else kind.short_string, tuple(values)
        if before is not None:
            assert kind == "+U", f"{kind} {row} after -U {before}"
            assert row[0] == before[1][0], "-U and +U of different keys"
        if kind in ("-U", "-D"):
            assert table.get(row[0]) == row, f"{kind} of {row}, and the table has {table.get(row[0])}"
            del table[row[0]]
        else:
            assert row[0] not in table, f"{kind} of {row}, and the table has {table[row[0]]}"
            table[row[0]] = row
        before = (kind, row) if kind == "-U" else None
    assert before is None, "a -U at the end"
    return table


def last_rows(history: Iterable[KeyChange]) -> dict[int, Row]:
    """The table in the end, by the last change of each key alone."""
    last = dict(history)
    return {key: row for key, row in last.items() if row is not None}
