"""``cdc formats``: a list of built-in and installed formats, or one of them with its options."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import chain, takewhile
from textwrap import wrap
from typing import Annotated, Any

import msgspec
import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from cdc_formats.avro.registry_client import RegistryOptions
from cdc_formats.errors import ChangelogError, FormatOptionError, printable
from cdc_formats.format import Format, format_class, get_format, list_formats
from cdc_formats.message_format import Traits

from .arguments import Json, WhichColor, complete_format
from .terminal import Color, console, interactive_json, is_interactive, print_message

_HEADS = ("identifier", "messages", "rows", "Kafka key", "null value", "positions", "written")
_OWN = "options of the format"
_GROUPS = {"MessageFormat": "options of every format", "RegistryOptions": "options of a registry"}
_ORDER = (_OWN, *_GROUPS.values())
_NARROW = 100  # a table of options has no room for their descriptions below this width
_AFTER_THE_RULES = ("Differs from Flink", "Source:")


def formats(
    name: Annotated[
        str,
        typer.Argument(
            help="Show what this format reads, and its options.", autocompletion=complete_format
        ),
    ] = "",
    json: Json = False,
    color: WhichColor = Color.AUTO,
) -> None:
    """List the formats, or show one with its options."""
    if name:
        described = describe(_declared(name))
        _print_json(described) if json else _show_one(described, color)
        return
    summaries = [
        summary
        for identifier in list_formats()
        if (summary := _summary_or_none(identifier)) is not None
    ]
    _print_json(summaries) if json else show_table(
        _HEADS, [_cells(summary) for summary in summaries], color
    )


def _declared(identifier: str) -> Format | type[Format]:
    """Return a format with default options, or its class if an option has no default."""
    try:
        return get_format(identifier)
    except (FormatOptionError, TypeError):
        return format_class(identifier)


def summary_of(format: Format | type[Format]) -> dict[str, Any]:
    """Return what a format declares, as JSON values."""
    cls, traits = format if isinstance(format, type) else type(format), Traits.of(format)
    text = (cls.__doc__ or "").partition("\n")[0].rstrip(".")
    return {
        "identifier": format.identifier,
        "changelog_mode": [kind.short_string for kind in sorted(format.changelog_mode.kinds)],
        "reads_key": traits.reads_key,
        "null_value": "read" if traits.reads_tombstones else "ignored",
        "positions": not traits.positions,
        "written": cls.encoder is not Format.encoder or cls.written_by is not None,
        "class": f"{cls.__module__}.{cls.__qualname__}",
        # A dataclass without a docstring has its signature in its place.
        "messages": "" if text.startswith(f"{cls.__name__}(") else text,
    }


def describe(format: Format | type[Format]) -> dict[str, Any]:
    """Return a format's declarations, its options, and its module docstring's description."""
    cls = format if isinstance(format, type) else type(format)
    documented, groups = option_texts(cls), option_groups(cls)
    if issubclass(cls, RegistryOptions):  # a format's own docstring only refers to it
        documented |= option_texts(RegistryOptions)
    order = list(groups)
    options = [
        {
            "name": field.name,
            "type": field.type
            if isinstance(field.type, str)
            else getattr(field.type, "__name__", str(field.type)),
            "default": None if field.default is MISSING else field.default,
            "required": field.default is MISSING and field.default_factory is MISSING,
            "description": documented.get(field.name, ""),
            "group": groups[field.name],
        }
        for field in sorted(fields(format), key=lambda field: order.index(field.name))
    ]
    return {
        **summary_of(format),
        "metadata": sorted(format.metadata),
        "description": _rules(cls),
        "options": options,
    }


def option_groups(cls: type[Format]) -> dict[str, str]:
    """Return the group of each option: first the format's own, then common ones, the registry's.

    An option that is required is one of the format's own.
    """
    owners = {
        name: each
        for each in reversed(cls.__mro__)
        for name in vars(each).get("__annotations__", {})
    }
    own = list(dict.fromkeys(owners[field.name] for field in fields(cls)))
    ranked = []
    for field in fields(cls):
        owner = owners[field.name]
        required = field.default is MISSING and field.default_factory is MISSING
        group = _OWN if required else _GROUPS.get(owner.__name__, _OWN)
        ranked.append(
            (list(_ORDER).index(group), not required, -own.index(owner), field.name, group)
        )
    return {name: group for *_, name, group in sorted(ranked, key=lambda each: each[:3])}


def option_texts(cls: type) -> dict[str, str]:
    """Return parameter descriptions by name, from numpydoc docstrings of a class and its bases."""
    texts: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        _, _, section = inspect.cleandoc(each.__dict__.get("__doc__") or "").partition(
            "\nParameters\n----------\n"
        )
        for names, text in re.findall(
            r"((?:^\S.*\n)+)((?:^ +.*\n?)+)", section.split("\n\n")[0], re.MULTILINE
        ):
            # Several lines of names may share one description.
            named = [
                name.strip()
                for line in names.splitlines()
                for name in line.partition(" : ")[0].split(",")
            ]
            texts.update(dict.fromkeys(named, " ".join(text.split())))
    return texts


def _rules(cls: type) -> str:
    """Return a module's docstring without the comparison with Flink and the sources at its end."""
    text = inspect.getdoc(sys.modules[cls.__module__]) or inspect.getdoc(cls) or ""
    paragraphs = re.split(r"\n\n(?=\S)", text)
    rules = takewhile(lambda each: not each.startswith(_AFTER_THE_RULES), paragraphs)
    return "\n\n".join(rules)


def _summary_or_none(identifier: str) -> dict[str, Any] | None:
    try:
        return summary_of(_declared(identifier))
    except (ChangelogError, ImportError, TypeError, AttributeError) as error:
        # A broken package does not hide the others.
        print_message(f"{identifier} cannot be loaded: {error}", "red")
        return None


# --------------------------------------------------------------------------------------------------
# showing


def _print_json(value: Any) -> None:
    typer.echo(
        interactive_json(msgspec.json.format(msgspec.json.encode(value, enc_hook=str))).decode()
    )


def _cells(summary: Mapping[str, Any]) -> list[str]:
    return [
        summary["identifier"],
        without_marks(summary["messages"]),
        " ".join(summary["changelog_mode"]),
        "read" if summary["reads_key"] else "not read",
        summary["null_value"],
        *("yes" if summary[name] else "no" for name in ("positions", "written")),
    ]


def _show_one(described: Mapping[str, Any], color: Color) -> None:
    out = console(color)
    out.print(Text("\n".join(map(printable, manual(described["description"], out.width)))))
    out.print(
        Text(
            (
                f"\n{described['identifier']}: {' '.join(described['changelog_mode'])}; class "
                f"{described['class']}"
            ),
            "bold",
        ),
        soft_wrap=False,
    )
    if described["metadata"]:
        out.print(
            Text("\n".join(hanging(f"metadata: {', '.join(described['metadata'])}", out.width)))
        )
    out.print()
    groups: dict[str, list[list[str]]] = {}
    for option in described["options"]:
        row = [
            option["name"],
            option["type"],
            "required" if option["required"] else repr(option["default"]),
            without_marks(option["description"]),
        ]
        groups.setdefault(option["group"], []).append(row)
    if not is_interactive(color):
        show_table(
            ("option", "type", "default", ""), list(chain.from_iterable(groups.values())), color
        )
        return
    for group, rows in groups.items():
        out.print(Text(f"{group}\n", "bold"))
        if out.width < _NARROW:
            for name, kind, default, description in rows:
                head = default if default == "required" else f"default {default}"
                out.print(
                    Text.assemble((printable(name), "cyan"), printable(f"  {kind}, {head}")),
                    soft_wrap=False,
                )
                out.print(
                    Text("\n".join([*hanging(printable(description), out.width, indent=4), ""]))
                )
        else:
            show_table(("option", "type", "default", ""), rows, color)


def show_table(heads: Sequence[str], rows: Sequence[Sequence[str]], color: Color) -> None:
    """Show rows: a table for a person, otherwise lines with tab-separated columns."""
    if not is_interactive(color):
        for cells in (heads, *rows):
            typer.echo("\t".join(map(printable, cells)))
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(heads):
        table.add_column(
            head, style="cyan" if index == 0 else "", no_wrap=index == 0, overflow="fold"
        )
    for cells in rows:
        table.add_row(*(Text(printable(cell)) for cell in cells))
    console(color).print(table, soft_wrap=False)


# --------------------------------------------------------------------------------------------------
# Docstrings as a terminal shows them, without the marks of reStructuredText: filled paragraphs and
# tables.

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
        yield from _docstring_table(lines, width)
    else:
        for item in re.split(r"\n(?=- )", "\n".join(lines)):
            first, *rest = hanging(without_marks(item), width)
            yield from [first, *(f"  {line}" if item.startswith("- ") else line for line in rest)]


def _docstring_table(lines: Sequence[str], width: int) -> Iterator[str]:
    """Yield a table; if it is too wide, a paragraph for each row.

    A line without a first cell continues the row before.
    """
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
