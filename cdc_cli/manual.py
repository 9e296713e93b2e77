"""Docstrings as a terminal shows them, without the marks of reStructuredText.

They are filled paragraphs and tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from textwrap import wrap

_RULE = re.compile(r"=+(?: +=+)+$")
_CODE = re.compile(r"``(.+?)``|`(.+?)`", re.DOTALL)
_WIDEST = 100  # longer lines are hard to read


def without_marks(text: str) -> str:
    """Return a text without backquotes, and with one colon before a block.

    Examples
    --------
    >>> without_marks("``t`` is `Ignored.TRUNCATE`. A message::")
    't is Ignored.TRUNCATE. A message:'
    """
    return re.sub(
        r"::$", ":", _CODE.sub(lambda match: match[1] or match[2], text), flags=re.MULTILINE
    )


def manual(docstring: str, width: int) -> list[str]:
    r"""Return a docstring as lines of at most `width` characters; only code is not wrapped.

    Examples
    --------
    >>> print(*manual("Rows of\n``op``::\n\n    {}\n\n==  ====\nop  rows\n==  ====\nc   `+I`\n==  ====", 40), sep="\n")
    Rows of op:
    <BLANKLINE>
        {}
    <BLANKLINE>
    op  rows
    --  ----
    c   +I
    """
    width = min(width, _WIDEST)
    lines: list[str] = []
    for paragraph in re.split(r"\n(?:[ \t]*\n)+", docstring.strip("\n")):
        lines += [*([""] if lines else []), *_shown(paragraph.splitlines(), width)]
    return lines


def hanging(text: str, width: int, *, indent: int = 0) -> list[str]:
    """Return a text as lines of at most `width` characters, all of them indented."""
    margin, room = " " * indent, max(min(width, _WIDEST), indent + 20)
    return wrap(text, room, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False)


def _shown(lines: Sequence[str], width: int) -> Iterator[str]:
    if lines[0].startswith(" "):
        yield from lines
    elif _RULE.match(lines[0]):
        yield from _table(lines, width)
    else:
        for item in re.split(r"\n(?=- )", "\n".join(lines)):
            first, *rest = hanging(without_marks(item), width)
            yield from [first, *(f"  {line}" if item.startswith("- ") else line for line in rest)]


def _table(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield a table; if it is too wide, a paragraph for each row."""
    rows = _rows(lines)
    widths = [max(map(len, cells)) for cells in zip(*rows, strict=True)]
    if sum(widths) + 2 * (len(widths) - 1) <= width:
        for cells in (rows[0], ["-" * each for each in widths], *rows[1:]):
            yield "  ".join(
                cell.ljust(each) for cell, each in zip(cells, widths, strict=True)
            ).rstrip()
        return
    for name, *cells in rows[1:]:
        yield name
        for cell in filter(None, cells):
            yield from hanging(cell, width, indent=4)


def _rows(lines: Sequence[str]) -> list[list[str]]:
    """Return the cells of a simple table; a line without a first cell continues the row before."""
    starts = [match.start() for match in re.finditer("=+", lines[0])]
    rows: list[list[str]] = []
    for line in lines:
        cells = [
            without_marks(line[start:end].strip())
            for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        if _RULE.match(line):
            continue
        if not cells[0] and rows:
            rows[-1] = [
                f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)
            ]
        else:
            rows.append(cells)
    return rows
