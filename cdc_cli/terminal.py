"""Terminal output: consoles, colours, and messages on standard error. Kafka messages cannot control the terminal."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Literal

import typer

from cdc_formats.errors import ChangelogError
from cdc_formats.printable import printable

if TYPE_CHECKING:
    from rich.console import Console


class Color(str, Enum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def console(color: Color = Color.AUTO, *, stderr: bool = False) -> Console:
    """Return a console. ``auto`` has colours on a terminal, unless the environment has ``NO_COLOR``.

    Parameters
    ----------
    color : Color
    stderr : bool
        Whether the console writes to standard error.
    """
    from rich.console import Console

    always = color is Color.ALWAYS
    # "always" is kept for a terminal that does not report its abilities; "never" writes no escape codes.
    systems: dict[Color, Literal["auto", "standard"] | None] = {Color.AUTO: "auto", Color.ALWAYS: "standard", Color.NEVER: None}
    return Console(
        stderr=stderr,
        force_terminal=True if always else None,
        no_color=False if always else None,
        color_system=systems[color],
        highlight=False,
        markup=False,
        emoji=False,
        soft_wrap=True,
    )


def is_interactive(color: Color) -> bool:
    """Whether a person reads standard output: it is a terminal, or colours are requested."""
    return color is Color.ALWAYS or sys.stdout.isatty()


def print_result(text: str, color: Color, style: str) -> None:
    """Print a result on standard output, on a terminal with its first line in a style."""
    if is_interactive(color):
        first, _, rest = text.partition("\n")
        console(color).print(first, style=style)
        console(color).print(rest)
    else:
        typer.echo(text)


def print_message(text: str, style: str = "") -> None:
    """Print a message on standard error; line breaks are kept, other control characters are escaped.

    Parameters
    ----------
    text : str
    style : str
        A rich style for the whole text.
    """
    sys.stdout.flush()  # so that earlier output appears first
    lines = "\n".join(map(printable, text.split("\n")))
    if not sys.stderr.isatty():
        print(lines, file=sys.stderr, flush=True)
        return
    from rich.text import Text

    _stderr().print(Text(lines, style), soft_wrap=False)


@cache
def _stderr() -> Console:
    return console(stderr=True)  # shared, so that messages appear above the status line


@contextmanager
def status_line(text: str) -> Iterator[None]:
    """Show a status line, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.text import Text

    with _stderr().status(Text(printable(text))):
        yield


def print_error(error: Exception) -> None:
    """Print why a command failed."""
    if isinstance(error, (ChangelogError, OSError)):
        print_message(f"error: {error}", "red")
    else:
        print_message(f"error: [INTERNAL] {type(error).__name__}: {error}; this is a bug, --traceback shows where", "red")


_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def interactive_json(line: bytes) -> bytes:
    r"""Return the same JSON, with escapes for control characters and for characters that hide or reorder text.

    Examples
    --------
    >>> print(interactive_json('{"name": "\u202etxt.exe"}'.encode()).decode())
    {"name": "\u202etxt.exe"}
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()
