"""A report for a terminal, plain or with rich; markup and control codes in messages are escaped.

A progress bar, drawn by rich in a terminal or notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from itertools import zip_longest
from textwrap import wrap
from typing import TYPE_CHECKING, TypeVar

from cdc_formats.errors import MissingDependencyError, printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
    from rich.table import Table


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
    facts : tuple of (str, str)
        Pairs of name and text.
    grid : Grid or None
    warnings : tuple of str
    code : str
        Python text of several lines.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
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
        facts=tuple((_clip(name), _clip(text)) for name, text in section.facts),
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
# A report as notebook HTML: inline styles, readable on light and dark themes, all data escaped.

_LINE = "rgba(128,128,128,.35)"
_SHADE = "rgba(128,128,128,.10)"
_FONT = (
    "font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
    "sans-serif;font-size:13px;line-height:1.45"
)
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12px"
_KIND_COLORS = {"+I": "#22a861", "-U": "#d18f00", "+U": "#3a95d6", "-D": "#e5533d"}
_MOST_OPEN = 12


def html_text(report: Report) -> str:
    """Return a report as HTML."""
    badge = "#1a9850" if report.good else "#d7301f"
    identifier, _, rest = report.headline.partition(": ")
    head = (
        '<div style="margin-bottom:8px"><span '
        f'style="font-size:17px;font-weight:600">{_text(report.title)}</span> <span '
        'style="margin-left:8px;padding:2px '
        f'9px;border-radius:10px;background:{badge};color:#fff;font-weight:600">{_text(identifier)}</span> '
        f'<span style="margin-left:8px;opacity:.75">{_text(rest)}</span></div>'
    )
    return (
        "<div "
        f'style="{_FONT};max-width:1100px;text-align:left">{head}{"".join(map(_section, report.sections))}</div>'
    )


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def _section(section: Section) -> str:
    facts = "".join(_fact(name, text) for name, text in section.facts)
    return (
        (
            '<div style="margin:14px 0 4px;font-weight:600;border-bottom:1px solid '
            f'{_LINE};padding-bottom:2px">{_text(section.title)}</div>'
        )
        + (
            f'<table style="border:0;border-collapse:collapse;margin:4px 0">{facts}</table>'
            if facts
            else ""
        )
        + (_grid(section.grid) if section.grid else "")
        + "".join(map(_warning, section.warnings))
        + (_code(section.code) if section.code else "")
    )


def _fact(name: str, text: str) -> str:
    return (
        '<tr style="background:transparent;border:0"><td '
        'style="text-align:left;vertical-align:top;padding:1px 16px 1px '
        f'0;border:0;opacity:.7;min-width:130px">{_text(name)}</td><td '
        'style="text-align:left;vertical-align:top;padding:1px '
        f'0;border:0;overflow-wrap:anywhere">{_text(text)}</td></tr>'
    )


def _warning(text: str) -> str:
    style = (
        "margin:4px 0;padding:3px 10px;border-left:3px solid #c98200;background:rgba(201,130,0,"
        ".12);overflow-wrap:anywhere"
    )
    return f'<div style="{style}">{_text(text)}</div>'


def _code(code: str) -> str:
    lines = "\n".join(_text(line) for line in code.split("\n"))
    style = (
        f"{_MONO};margin:4px 0;padding:10px 12px;background:{_SHADE};border:1px solid "
        f"{_LINE};border-radius:6px;overflow-x:auto"
    )
    return f'<pre style="{style};color:inherit;white-space:pre">{lines}</pre>'


def _grid(grid: Grid) -> str:
    head = "".join(_cell("th", name, name in grid.numbers, name) for name in grid.header)
    rows = "".join(
        '<tr style="background:transparent">'
        + "".join(
            _cell("td", cell, name in grid.numbers, name)
            for name, cell in zip(grid.header, row, strict=True)
        )
        + "</tr>"
        for row in grid.rows
    )
    opened = (
        '<div style="overflow-x:auto"><table style="border:0;border-collapse:collapse;margin:4px '
        '0"><thead><tr '
        f'style="background:{_SHADE}">{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    if len(grid.rows) <= _MOST_OPEN:
        return opened
    return (
        f'<details><summary style="cursor:pointer">{len(grid.rows)} '
        f"rows</summary>{opened}</details>"
    )


def _cell(tag: str, text: str, number: bool, column: str) -> str:
    style = (
        f"text-align:{'right' if number else 'left'};vertical-align:top;padding:3px "
        f"12px;border:0;border-bottom:1px solid {_LINE}"
    )
    style += (
        ";white-space:nowrap;font-variant-numeric:tabular-nums"
        if number
        else ";overflow-wrap:anywhere"
    )
    style += ";min-width:150px" if column == "table" else ""
    if column in _KIND_COLORS and text != "-":
        style += f";color:{_KIND_COLORS[column]};font-weight:600"
    return f'<{tag} style="{style}">{_text(text)}</{tag}>'


_WIDTH = 120
_LEAST_COLUMN = 8
_WIDEST = 10_000
_KIND_STYLES = {"+I": "green", "-U": "yellow", "+U": "cyan", "-D": "red"}


def plain_text(report: Report) -> str:
    """Return a report as plain text, at most 120 columns wide except for code."""
    title = f"{report.title}  {report.headline}"
    return "\n".join(
        [printable(title), *(line for section in report.sections for line in _plain(section))]
    )


def _plain(section: Section) -> list[str]:
    lines = ["", printable(section.title)]
    width = max((len(printable(name)) for name, _ in section.facts), default=0)
    width = min(width, _WIDTH // 3)
    for name, text in section.facts:
        lines += _hanging(f"  {printable(name):{width}}  ", printable(text))
    lines += _plain_grid(section.grid) if section.grid else []
    for warning in section.warnings:
        lines += _hanging("  ! ", printable(warning))
    return lines + [
        f"  {printable(line)}".rstrip() for line in section.code.split("\n") if section.code
    ]


def _hanging(first: str, text: str) -> list[str]:
    room = max(_WIDTH - len(first), _WIDTH // 3)
    lines = wrap(text, room, break_on_hyphens=False) or [""]
    return [
        (first if number == 0 else " " * len(first)) + line for number, line in enumerate(lines)
    ]


def _plain_grid(grid: Grid) -> list[str]:
    rows = [[printable(cell) for cell in row] for row in (grid.header, *grid.rows)]
    widths = _widths(rows)
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


def _widths(rows: list[list[str]]) -> list[int]:
    """Return the widths of columns; the widest shrink until all fit."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    while sum(widths) + 2 * len(widths) > _WIDTH and max(widths) > _LEAST_COLUMN:
        widths[widths.index(max(widths))] -= 1
    return widths


# --------------------------------------------------------------------------------------------------
# rich


def renderable(report: Report) -> Group:
    """Return a report as a rich renderable.

    Raises
    ------
    ImportError
        When rich is not installed.
    """
    from rich.console import Group
    from rich.text import Text

    title = Text.assemble(
        (printable(report.title), "bold"),
        "  ",
        (printable(report.headline), "green" if report.good else "red"),
    )
    return Group(title, *(part for section in report.sections for part in _drawn(section)))


def _drawn(section: Section) -> list[RenderableType]:
    from rich.padding import Padding
    from rich.syntax import Syntax
    from rich.table import Table
    from rich.text import Text

    parts: list[RenderableType] = [Text(f"\n{printable(section.title)}", style="bold cyan")]
    if section.facts:
        facts = Table(box=None, show_header=False, padding=(0, 2, 0, 2))
        facts.add_column(style="dim", no_wrap=True, max_width=40)
        facts.add_column(overflow="fold")
        for name, text in section.facts:
            facts.add_row(Text(printable(name)), Text(printable(text)))
        parts.append(facts)
    if section.grid:
        parts.append(_FittingGrid(section.grid))
    parts += [
        Padding(Text(f"! {printable(warning)}", style="yellow"), (0, 2))
        for warning in section.warnings
    ]
    if section.code:
        code = "\n".join(printable(line) for line in section.code.split("\n"))
        parts.append(
            Padding(
                Syntax("", "python", theme="ansi_dark", word_wrap=True).highlight(code),
                (0, 2),
                expand=False,
            )
        )
    return parts


class _FittingGrid:
    """Draws a grid as a table; if it is too wide, as a list with a line for each cell."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = _drawn_grid(self.grid)
        fits = console.measure(table, options=options.update(width=_WIDEST)).minimum
        if fits <= options.max_width:
            yield table
        else:
            yield from _listed(self.grid)


def _listed(grid: Grid) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    for first, *rest in grid.rows:
        yield Text(f"  {printable(first)}", style="cyan")
        for name, cell in zip(grid.header[1:], rest, strict=True):
            if cell not in ("", "-"):
                line = Text.assemble((f"{name}  ", "dim"), printable(cell))
                yield Padding(line, (0, 0, 0, 4))


def _drawn_grid(grid: Grid) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="dim", pad_edge=True, padding=(0, 1))
    for index, name in enumerate(grid.header):
        number = name in grid.numbers
        table.add_column(
            Text(name),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=number or index == 0,
            min_width=max(map(len, name.split()), default=None),  # words of a header are not broken
            style=_KIND_STYLES.get(name),
        )
    for row in grid.rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


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
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)
