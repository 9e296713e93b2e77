"""Hypothesis strategies and small changelog functions, shared by the tests of the stage."""

import math
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from hypothesis import strategies as st

from cdc_formats import RowKind
from cdc_formats.fold import FoldOptions, fold

Row = tuple[Any, ...]
KeyChange = tuple[Any, Row | None]

DDL = "id DOUBLE, name STRING, qty INT, score DOUBLE, marks MAP<FLOAT, ARRAY<DOUBLE>>"
"""The columns of `HISTORIES`; the key is the first."""
NAN, OTHER_NAN = (
    struct.unpack("<d", struct.pack("<Q", bits))[0]
    for bits in (0x7FF8000000000000, 0xFFF8000000000001)
)
KEYS = st.sampled_from([0.0, -0.0, NAN, OTHER_NAN, 1.5])
_MARKS = [[-0.0, [NAN, 0.0]], [NAN, None]]
_EQUAL_MARKS = [[0.0, [OTHER_NAN, -0.0]], [NAN, None]]
# Few rows, so that equal ones occur; half of them equal another row in a different encoding.
VALUES = [
    ("a", 0, 0.0, None),
    ("a", 0, -0.0, None),
    ("a", 1, 0.0, None),
    (None, 0, NAN, _MARKS),
    (None, 0, OTHER_NAN, _EQUAL_MARKS),
    (None, 0, -math.inf, _MARKS),
    (None, 0, None, _EQUAL_MARKS),
]
ROWS = st.tuples(KEYS, st.sampled_from(VALUES)).map(lambda row: (row[0], *row[1]))


@st.composite
def key_changes(draw: st.DrawFn) -> KeyChange:
    """Draw a change of one of few keys and rows, so that equal rows and unknown deletes occur."""
    row = draw(ROWS)
    return row[0], None if draw(st.integers(0, 3)) == 0 else row


RETRACT = FoldOptions()
HISTORIES = st.lists(key_changes(), max_size=40)
"""Changes in order."""


def unified(value: Any) -> Any:
    """The representative of all equal values, by the table in `cdc_formats.values.equality`."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return type(value)(map(unified, value)) if isinstance(value, (list, tuple)) else value


def exact(value: Any) -> Any:
    """A value with its floats as bits, so that 0.0, -0.0 and each NaN differ."""
    if isinstance(value, float):
        return f"{value} {struct.pack('>d', value).hex()}"
    return type(value)(map(exact, value)) if isinstance(value, (list, tuple)) else value


def fold_history(
    history: Iterable[KeyChange], options: FoldOptions = RETRACT
) -> list[tuple[RowKind, Row]]:
    """Fold a history with the pure function: the result that every engine must return per key."""
    stored: dict[Any, Row | None] = {}
    changelog: list[tuple[RowKind, Row]] = []
    for key, row in history:
        output, stored[unified(key)] = fold(stored.get(unified(key)), row, options)
        changelog.extend(output)
    return changelog


def by_key(
    changelog: Iterable[tuple[RowKind, Sequence[Any]]], values: Any = exact
) -> dict[Any, list[tuple[str, Row]]]:
    """Group changelog rows, as bits, by key (the first column), ignoring the order across keys."""
    grouped: dict[Any, list[tuple[str, Row]]] = {}
    for kind, row in changelog:
        grouped.setdefault(unified(row[0]), []).append(
            (RowKind(kind).short_string, values(tuple(row)))
        )
    return grouped


def table_of(changelog: Iterable[tuple[RowKind | str, Sequence[Any]]]) -> dict[Any, Row]:
    """Apply a retract stream to an empty table and return its `unified` rows.

    The function fails on any other changelog.
    """
    table: dict[Any, Row] = {}
    before: tuple[str, Row] | None = None
    for kind, values in changelog:
        kind, row = kind if isinstance(kind, str) else kind.short_string, tuple(values)
        key = unified(row[0])
        if before is not None:
            assert kind == "+U", f"{kind} {row} after -U {before}"
            assert key == unified(before[1][0]), "-U and +U of different keys"
        if kind in ("-U", "-D"):
            assert exact(table.get(key)) == exact(row), (
                f"{kind} of {row}, and the table has {table.get(key)}"
            )
            del table[key]
        else:
            assert key not in table, f"{kind} of {row}, and the table has {table[key]}"
            table[key] = row
        before = (kind, row) if kind == "-U" else None
    assert before is None, "a -U at the end"
    return {key: unified(row) for key, row in table.items()}


def last_rows(history: Iterable[KeyChange]) -> dict[Any, Row]:
    """The final table by the last change of each key, with `unified` rows."""
    last = {unified(key): unified(row) for key, row in history}
    return {key: row for key, row in last.items() if row is not None}
