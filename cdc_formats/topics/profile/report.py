"""A report: a title, a headline and sections of text, which the renderings show and escape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
