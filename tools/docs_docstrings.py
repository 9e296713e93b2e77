"""A Griffe extension that converts reStructuredText in docstrings to Markdown.

It converts simple tables, literal blocks and plain asterisks.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from typing import Any

import griffe

_RULE = re.compile(r"=+(?: +=+)+$")
_CODE = re.compile(r"(``.*?``|`.*?`)")
_CODE_WITH_BACKQUOTE = re.compile(r"``([^`\n]*`[^`\n]+`)``(?!`)")
_CHOICES = re.compile(r"^( *[\w, ]+ : )\{(.*?)\}")
"""Griffe takes the first of a parameter's choices for its default, also where the signature has
another."""


class RestructuredText(griffe.Extension):
    """Converts every docstring before it is parsed."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Convert the object's docstring."""
        if obj.docstring:
            obj.docstring.value = to_markdown(obj.docstring.value)

    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        """Convert the package's own docstring."""
        self.on_object(obj=pkg)


def to_markdown(text: str) -> str:
    """Return a docstring with Markdown's tables and fenced code."""
    return "\n".join(_literals(list(_tables([_plain(line) for line in text.splitlines()]))))


def _plain(line: str) -> str:
    """Return a line with its choices, code with backquotes, and asterisks in Markdown.

    Choices become alternatives, code with backquotes is put in spaces, and an asterisk after a word
    is no emphasis.
    """
    line = _CHOICES.sub(
        lambda match: match[1] + " | ".join(part.strip() for part in match[2].split(",")), line
    )
    line = _CODE_WITH_BACKQUOTE.sub(r"`` \1 ``", line)
    return _outside_code(r"(?<=[\w.])\*(?!\*)", r"\\*", line)


def _outside_code(pattern: str, replacement: str, line: str) -> str:
    parts = _CODE.split(line)
    parts[::2] = [re.sub(pattern, replacement, part) for part in parts[::2]]
    return "".join(parts)


def _tables(lines: list[str]) -> Iterator[str]:
    """Replace simple tables; their columns begin where the rule of equals signs begins."""
    place = 0
    while place < len(lines):
        rules = _rules_of_table(lines, place)
        if rules is None:
            yield lines[place]
            place += 1
            continue
        head, end = rules
        starts = [match.start() for match in re.finditer("=+", lines[place])]
        (header,), rows = (
            _rows(lines[place + 1 : head], starts),
            _rows(lines[head + 1 : end], starts),
        )
        yield from ("", _row(header), _row(["---"] * len(starts)), *map(_row, rows), "")
        place = end + 1


def _rules_of_table(lines: list[str], place: int) -> tuple[int, int] | None:
    """Return the lines of the second and third rule of the table that begins at `place`."""
    if not _RULE.match(lines[place].strip()):
        return None
    rules = []
    for number in range(place + 1, len(lines)):
        if lines[number].strip() == lines[place].strip():
            rules.append(number)
        if not lines[number].strip() or len(rules) == 2:
            break
    return (rules[0], rules[1]) if len(rules) == 2 else None


def _rows(lines: list[str], starts: list[int]) -> list[list[str]]:
    """Return the cells of each row; a line without a first cell continues the row before."""
    rows: list[list[str]] = []
    for line in lines:
        cells = [
            line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)
        ]
        if not cells[0] and rows:
            rows[-1] = [
                f"{above} {cell}".strip() for above, cell in zip(rows[-1], cells, strict=True)
            ]
        else:
            rows.append(cells)
    return rows


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(_outside_code(r'[|]', '&#124;', cell) for cell in cells)} |"


def _literals(lines: list[str]) -> Iterator[str]:
    """Replace the indented block after ``::`` by fenced code."""
    place = 0
    while place < len(lines):
        line = lines[place]
        place += 1
        if not line.rstrip().endswith("::"):
            yield line
            continue
        indent = len(line) - len(line.lstrip())
        end = _end_of_block(lines, place, indent)
        yield "" if line.strip() == "::" else line.rstrip()[:-1]
        yield from _fenced(lines[place:end], " " * indent)
        place = end


def _end_of_block(lines: list[str], place: int, indent: int) -> int:
    while place < len(lines) and (
        not lines[place].strip() or lines[place].startswith(" " * (indent + 1))
    ):
        place += 1
    return place


def _fenced(lines: list[str], indent: str) -> Iterator[str]:
    block = textwrap.dedent("\n".join(lines)).strip("\n").splitlines()
    language = (
        "python"
        if any(re.match(r"\s*(import |from |with |def |>>>)", line) for line in block)
        else "text"
    )
    yield ""
    yield f"{indent}```{language}"
    yield from (indent + line for line in block)
    yield from (f"{indent}```", "")
