"""What the demo prints: changes as aligned columns, and the results as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cdc_formats.errors import printable

Say = Callable[[str], None]
"""Prints one line."""

_MOST_CHARACTERS = 60


@dataclass(frozen=True)
class Result:
    """The outcome of one part of the demo.

    Attributes
    ----------
    title : str
    messages, changes, rows : int
        Kafka records read, changes in the result, and rows of the table that the changes make.
    equal : bool
        True if these rows are the expected ones.
    """

    title: str
    messages: int
    changes: int
    rows: int
    equal: bool


def show_changes(rows: Sequence[Any], columns: Sequence[str], say: Say) -> None:
    """Print a changelog's row count by kind, and an inserted, an updated and a deleted row."""
    kinds = [row.row_kind for row in rows]
    inserted, updated, deleted = (f"{kinds.count(kind):,}" for kind in ("+I", "+U", "-D"))
    say(
        f"   changes: {inserted} inserts (+I), {updated} updates (-U the row before, +U the row "
        f"after), {deleted} deletes (-D)"
    )
    update = kinds.index("-U")  # its +U follows
    shown = [rows[place] for place in (kinds.index("+I"), update, update + 1, kinds.index("-D"))]
    for line in aligned([columns, *shown]):
        say(f"     {line}")


def aligned(table: Sequence[Sequence[Any]]) -> list[str]:
    """Return the rows of a table as lines; numbers below a header are aligned on the right."""
    cells = [[_text(value) for value in row] for row in table]
    columns = list(zip(*cells, strict=True))
    pads = [
        str.rjust if all(cell.replace(",", "").isdigit() for cell in column[1:]) else str.ljust
        for column in columns
    ]
    widths = [max(map(len, column)) for column in columns]
    return [
        "  ".join(
            pad(cell, width) for pad, cell, width in zip(pads, row, widths, strict=True)
        ).rstrip()
        for row in cells
    ]


def _text(value: Any) -> str:
    # Texts from a database may contain control codes for the terminal.
    text = "NULL" if value is None else printable(str(value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[: _MOST_CHARACTERS - 3]}..."
