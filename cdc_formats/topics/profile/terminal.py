"""A report for a terminal, plain or with rich; markup and control codes in messages are escaped.

A progress bar, drawn by rich in a terminal or notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from io import StringIO
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

from cdc_formats.errors import MissingDependencyError, printable

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult


# --------------------------------------------------------------------------------------------------
# A report: a title, a headline and sections of text, which the renderings show and escape.

_MOST_TEXT = 400
_MOST_LISTED = 6


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Parameters
    ----------
    header : tuple of str
    rows : tuple of tuple of str
    numbers : frozenset of str
        The names of the numeric columns.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    title : str
    entries : tuple of (str, str)
        Pairs of name and text.
    grid : Grid or None
    warnings : tuple of str
    code : str
        Python text of several lines.
    """

    title: str
    entries: tuple[tuple[str, str], ...] = ()
    grid: Grid | None = None
    warnings: tuple[str, ...] = ()
    code: str = ""


@dataclass(frozen=True)
class Report:
    """What all renderings show.

    Parameters
    ----------
    title, headline : str
    good : bool
        Whether the headline is good news.
    sections : tuple of Section
    """

    title: str
    headline: str
    good: bool
    sections: tuple[Section, ...]


def clipped(section: Section) -> Section:
    """Return a section whose texts are cut to a length that a reader can take."""
    grid = section.grid
    return replace(
        section,
        entries=tuple((_clip(name), _clip(text)) for name, text in section.entries),
        grid=grid and replace(grid, rows=tuple(tuple(map(_clip, row)) for row in grid.rows)),
        warnings=tuple(map(_clip, section.warnings)),
    )


def _clip(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({len(text):,} characters)"


def shortened(texts: Sequence[str]) -> str:
    """Return the first texts as a list in a sentence, and how many more there are."""
    return ", ".join(texts[:_MOST_LISTED]) + (
        f" and {len(texts) - _MOST_LISTED} more" if len(texts) > _MOST_LISTED else ""
    )


# --------------------------------------------------------------------------------------------------
# A report as HTML for a notebook: what rich draws, or plain text.


def html_text(report: Report) -> str:
    """Return a report as HTML, in colours if rich is installed; all data is escaped."""
    if find_spec("rich") is None:
        text = escape(plain_text(report))
    else:
        from rich.console import Console

        console = Console(record=True, file=StringIO(), width=_WIDTH, force_jupyter=False)
        console.print(renderable(report))
        text = console.export_html(inline_styles=True, code_format="{code}")
    return (
        '<pre style="font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;'
        f'font-size:12px;line-height:1.45;overflow-x:auto">{text}</pre>'
    )


_WIDTH = 120


def plain_text(report: Report) -> str:
    """Return a report as plain text, at most 120 columns wide except for code."""
    title = f"{report.title}  {report.headline}"
    return "\n".join(
        [printable(title), *(line for section in report.sections for line in _plain(section))]
    )


def _plain(section: Section) -> list[str]:
    lines = ["", printable(section.title)]
    width = max((len(printable(name)) for name, _ in section.entries), default=0)
    width = min(width, _WIDTH // 3)
    for name, text in section.entries:
        lines += _hanging(f"  {printable(name):{width}}  ", printable(text))
    lines += _plain_grid(section.grid) if section.grid else []
    for warning in section.warnings:
        lines += _hanging("  ! ", printable(warning))
    return lines + [
        f"  {printable(line)}".rstrip() for line in section.code.split("\n") if section.code
    ]


def _hanging(first: str, text: str) -> list[str]:
    lines = wrap(text, max(_WIDTH - len(first), _WIDTH // 3), break_on_hyphens=False) or [""]
    return [
        (first if number == 0 else " " * len(first)) + line for number, line in enumerate(lines)
    ]


def _plain_grid(grid: Grid) -> list[str]:
    rows = [[printable(cell) for cell in row] for row in (grid.header, *grid.rows)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    # The widest columns shrink until all fit.
    while sum(widths) + 2 * len(widths) > _WIDTH and max(widths) > 8:
        widths[widths.index(max(widths))] -= 1
    lines: list[str] = []
    for row in rows:
        cells = [
            wrap(cell, width, break_on_hyphens=False)
            for cell, width in zip(row, widths, strict=True)
        ]
        for parts in zip_longest(*cells, fillvalue=""):
            aligned = [
                part.rjust(width) if name in grid.numbers else part.ljust(width)
                for part, width, name in zip(parts, widths, grid.header, strict=True)
            ]
            lines.append(("  " + "  ".join(aligned)).rstrip())
        if row is rows[0]:
            lines.append("  " + "  ".join("-" * width for width in widths))
    return lines


# --------------------------------------------------------------------------------------------------
# rich


def renderable(report: Report) -> Group:
    """Return a report as a rich renderable.

    Raises
    ------
    ImportError
        When rich is not installed.
    """
    from rich import console, text

    title = text.Text.assemble(
        (printable(report.title), "bold"),
        "  ",
        (printable(report.headline), "green" if report.good else "red"),
    )
    return console.Group(title, *(part for section in report.sections for part in _drawn(section)))


def _drawn(section: Section) -> list[RenderableType]:
    from rich import padding, syntax, table, text

    parts: list[RenderableType] = [text.Text(f"\n{printable(section.title)}", style="bold cyan")]
    if section.entries:
        entries = table.Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        entries.add_column(style="dim", no_wrap=True, max_width=40)
        entries.add_column(overflow="fold")
        for entry in section.entries:
            entries.add_row(*(text.Text(printable(part)) for part in entry))
        parts.append(entries)
    if section.grid:
        parts.append(_FittingGrid(section.grid))
    parts += [
        padding.Padding(text.Text(f"! {printable(warning)}", style="yellow"), (0, 2))
        for warning in section.warnings
    ]
    if section.code:
        code = "\n".join(printable(line) for line in section.code.split("\n"))
        drawn = syntax.Syntax("", "python", theme="ansi_dark", word_wrap=True).highlight(code)
        parts.append(padding.Padding(drawn, (0, 2), expand=False))
    return parts


@dataclass(frozen=True)
class _FittingGrid:
    """Draws a grid as a table; if it is too wide, as a list with a line for each cell."""

    grid: Grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich import box, padding, table, text

        drawn = table.Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=True, padding=(0, 1))
        for index, name in enumerate(self.grid.header):
            number = name in self.grid.numbers
            drawn.add_column(
                text.Text(name),
                justify="right" if number else "left",
                overflow="fold",
                no_wrap=number or index == 0,
                # Words of a header are not broken.
                min_width=max(map(len, name.split()), default=None),
                style={"+I": "green", "-U": "yellow", "+U": "cyan", "-D": "red"}.get(name),
            )
        for row in self.grid.rows:
            drawn.add_row(*(text.Text(printable(cell)) for cell in row))
        fits = console.measure(drawn, options=options.update(width=10_000)).minimum
        if fits <= options.max_width:
            yield drawn
        else:
            for first, *rest in self.grid.rows:
                yield text.Text(f"  {printable(first)}", style="cyan")
                for name, cell in zip(self.grid.header[1:], rest, strict=True):
                    if cell not in ("", "-"):
                        yield padding.Padding(
                            text.Text.assemble((f"{name}  ", "dim"), printable(cell)), (0, 0, 0, 4)
                        )


# --------------------------------------------------------------------------------------------------
# A progress bar, drawn by rich in a terminal or notebook

T = TypeVar("T")


def tracked(items: Iterable[T], total: int, title: str, *, progress: bool | None) -> Iterator[T]:
    """Yield the items and draw a progress bar on stderr.

    Parameters
    ----------
    items : iterable
    total : int
        The largest possible number of items.
    title : str
    progress : bool or None
        None draws the bar when rich is installed and stderr is a terminal, or this is a notebook
        that can draw it.

    Raises
    ------
    MissingDependencyError
        When `progress` is True and rich is not installed.
    """
    if progress is False or (progress is None and find_spec("rich") is None):
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError as error:
        raise MissingDependencyError(
            "a progress bar requires rich: pip install 'pyspark-kafka-changelog[cli]'"
        ) from error
    console = Console(stderr=True, force_terminal=progress)
    # In a notebook rich draws with ipywidgets, and warns when they are not installed.
    shown = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (progress or shown)
    ) as bar:
        yield from bar.track(items, total, description=title)
