"""Shows changelog rows as a table, as tab-separated lines, or as JSON."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdc_formats.errors import printable
from cdc_formats.events import SHORT_STRINGS, RowKind
from cdc_formats.format import get_format
from cdc_formats.topics.sampler import SampledRecord
from cdc_formats.values import numbers
from cdc_formats.values.json_reader import json_bytes
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import TIMESTAMP_TYPES
from cdc_formats.values.types import TYPES

from .terminal import Color, console, interactive_json, is_interactive

Row = tuple[Any, ...]
Shown = tuple[SampledRecord, RowKind, Row]
"""A row, its kind, and the record that it came in."""

NULL = "<NULL>"  # as in Flink's SQL client
_STYLES = {
    RowKind.INSERT: "green",
    RowKind.UPDATE_BEFORE: "yellow",
    RowKind.UPDATE_AFTER: "bright_yellow",
    RowKind.DELETE: "red",
}
_WIDEST = 30  # as Flink's display.max-column-width
_NARROW_TEXT = 10
_WIDTHS = {
    "BOOLEAN": 5,
    "TINYINT": 4,
    "SMALLINT": 6,
    "INT": 8,
    "BIGINT": 12,
    **{
        name: len(TYPES[name].to_text(1000)) for name in ("DATE", "TIME", *TIMESTAMP_TYPES)
    },  # with milliseconds
    "STRING": 12,
    "VARCHAR": 12,
}
"""Minimum widths by type: later rows may be wider than the first ones."""
_RIGHT = numbers.TYPES.keys() - {"BOOLEAN"}
_FIXED = _RIGHT | _WIDTHS.keys() - set(TEXT_TYPES)


class View(ABC):
    """Shows rows."""

    @abstractmethod
    def show(self, rows: Sequence[Shown]) -> None:
        """Show more rows."""

    def end(self) -> None:  # noqa: B027 - lines need no end
        """Show the end of the rows."""


def view_of(columns: Sequence[Column], *, json: bool, color: Color, expanded: bool = False) -> View:
    """Return the view: JSON if requested, a table for a person, else tab-separated lines.

    If the table is expanded, it has a line for each column.

    Raises
    ------
    SchemaError
        When a column cannot be written as JSON.
    """
    if json:
        return JsonView(columns)
    return (
        TableView(columns, console(color), expanded=expanded)
        if is_interactive(color)
        else TextView(columns)
    )


# --------------------------------------------------------------------------------------------------
# values


def text_of(sql_type: SqlType) -> Callable[[Any], str]:
    """Return the function from a canonical value to its text, with escaped control characters.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> text_of(columns("tags ARRAY<STRING>")[0].type)(["a", None])
    '[a, <NULL>]'
    """
    if sql_type.name in TYPES:
        to_text = TYPES[sql_type.name].to_text
        return lambda value: NULL if value is None else printable(to_text(value))
    inner = [text_of(field.type) for field in sql_type.fields]
    named = [printable(field.name) for field in sql_type.fields]
    nested: dict[str, Callable[[Any], str]] = {
        "ARRAY": lambda value: f"[{', '.join(map(inner[0], value))}]",
        "MAP": lambda value: (
            "{" + ", ".join(f"{inner[0](key)}: {inner[1](item)}" for key, item in value) + "}"
        ),
        "STRUCT": lambda value: (
            "{"
            + ", ".join(
                f"{name}: {to(of)}" for name, to, of in zip(named, inner, value, strict=True)
            )
            + "}"
        ),
    }
    to = nested[sql_type.name]
    return lambda value: NULL if value is None else to(value)


class RowTexts:
    """The texts of rows."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.columns = columns
        self.names = [printable(column.name) for column in columns]
        self.fixed = [column.type.name in _FIXED for column in columns]
        self._cells = [text_of(column.type) for column in columns]

    def __call__(self, row: Row) -> list[str]:
        return [cell(value) for cell, value in zip(self._cells, row, strict=True)]


# --------------------------------------------------------------------------------------------------
# views


class TextView(View):
    """A view of a header and tab-separated rows; tabs and line breaks in texts are escaped."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.texts = RowTexts(columns)
        self.begun = False

    def show(self, rows: Sequence[Shown]) -> None:
        """Write lines."""
        lines = [["op", *self.texts.names]] if not self.begun else []
        self.begun = True
        lines += [[SHORT_STRINGS[kind], *self.texts(row)] for _, kind, row in rows]
        sys.stdout.write("".join("\t".join(cells) + "\n" for cells in lines))
        sys.stdout.flush()


class JsonView(View):
    """Writes a changelog-json message for each row, with the position of its record."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self.encoder = get_format("changelog-json").encoder(tuple(columns))

    def show(self, rows: Sequence[Shown]) -> None:
        """Write lines."""
        sys.stdout.buffer.write(b"".join(self._line(*shown) for shown in rows))
        sys.stdout.buffer.flush()

    def _line(self, record: SampledRecord, kind: RowKind, row: Row) -> bytes:
        encoded = self.encoder.encode(kind, row)
        assert encoded is not None  # changelog-json has a message for every row
        origin = json_bytes(
            {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        )
        return interactive_json((encoded[1] or b"")[:-1] + b"," + origin[1:]) + b"\n"


class TableView(View):
    """Prints a table as wide as the terminal, with a colour for each row kind.

    The first rows determine the widths; they are chosen again when the terminal's width changes.
    Longer texts are cut. If the terminal is too narrow for all columns, or on request, each column
    of a row is a line, and nothing is cut.
    """

    def __init__(
        self, columns: Sequence[Column], console: Console, *, expanded: bool = False
    ) -> None:
        self.texts, self.console, self.expanded = RowTexts(columns), console, expanded
        self.full_widths = [
            max(
                len(name),
                min((column.type.precision or 0) + 2, 14)
                if column.type.name == "DECIMAL"
                else _WIDTHS.get(column.type.name, len(NULL)),
            )
            for name, column in zip(self.texts.names, columns, strict=True)
        ]
        self.widths: list[int] = []
        self.fitted_to = 0

    def show(self, rows: Sequence[Shown]) -> None:
        """Print rows; print the header first if it is missing."""
        cells = [self.texts(row) for _, _, row in rows]
        if rows and self.console.width != self.fitted_to:
            self._fit(cells)
            if self.widths:
                for line in (
                    self._rule(),
                    self._line(["op", *self.texts.names], "bold"),
                    self._rule(),
                ):
                    self._print(line)
        for (_, kind, _), texts in zip(rows, cells, strict=True):
            if self.widths:
                self._print(self._line([SHORT_STRINGS[kind], *texts], _STYLES[kind]))
            else:
                self._print_expanded(kind, texts)

    def end(self) -> None:
        """Close the table."""
        if self.widths:
            self._print(self._rule())

    def _fit(self, cells: Sequence[Sequence[str]]) -> None:
        self.fitted_to = self.console.width
        for texts in cells:
            pairs = zip(self.full_widths, texts, strict=True)
            self.full_widths = [max(width, min(cell_len(text), _WIDEST)) for width, text in pairs]
        fitting = (
            []
            if self.expanded
            else fit_widths(self.full_widths, self.fitted_to - len("| op |"), self.texts.fixed)
        )
        self.widths = [2, *fitting] if fitting else []

    def _print_expanded(self, kind: RowKind, texts: Sequence[str]) -> None:
        """Print a row as psql's expanded display does: its kind, and a line for each column."""
        style = _STYLES[kind]
        self._print(
            Text(f"-[ {SHORT_STRINGS[kind]} ]".ljust(min(self.console.width, 40), "-"), style)
        )
        grid = Table.grid(padding=(0, 1))
        grid.add_column(max_width=max(self.console.width // 3, 1), overflow="fold")
        grid.add_column()
        grid.add_column(overflow="fold")
        for name, text in zip(self.texts.names, texts, strict=True):
            grid.add_row(
                Text(name, "bold"),
                Text("|", "dim"),
                Text(text, f"{style} dim" if text == NULL else style),
            )
        self.console.print(grid, soft_wrap=False)

    def _rule(self) -> Text:
        return Text("+" + "+".join("-" * (width + 2) for width in self.widths) + "+", "dim")

    def _line(self, texts: Sequence[str], style: str) -> Text:
        right = [False, *(column.type.name in _RIGHT for column in self.texts.columns)]
        line = Text()
        line.append("|", "dim")
        for text, width, to_right in zip(texts, self.widths, right, strict=True):
            line.append(
                f" {_cut(text, width, to_right)} ", f"{style} dim" if text == NULL else style
            ).append("|", "dim")
        return line

    def _print(self, line: Text) -> None:
        self.console.print(line, no_wrap=True, overflow="crop", crop=True, soft_wrap=False)


def _cut(text: str, width: int, to_right: bool) -> str:
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, width - 1) + "…"
    return " " * (width - size) + text if to_right else text + " " * (width - size)


def fit_widths(full_widths: Sequence[int], room: int, fixed: Sequence[bool]) -> list[int]:
    """Return widths that fit: text columns shrink, the widest first.

    The result is empty if they would shrink to less than a reader can use.

    Parameters
    ----------
    full_widths : sequence of int
    room : int
        The width for all columns; each takes three more characters.
    fixed : sequence of bool
        Whether a column's values are of little use when cut.

    Examples
    --------
    >>> [fit_widths([8, 30, 24], room, [True, False, False]) for room in (80, 50, 16)]
    [[8, 30, 24], [8, 17, 16], []]
    """
    widths = list(full_widths)
    text = [index for index, is_fixed in enumerate(fixed) if not is_fixed]
    for _ in range(sum(widths) + 3 * len(widths) - room):
        widest = max(text, key=lambda index: (widths[index], index), default=None)
        if widest is None or widths[widest] <= _NARROW_TEXT:
            return []
        widths[widest] -= 1
    return widths
