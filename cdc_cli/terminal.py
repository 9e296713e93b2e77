"""Terminal output, which Kafka messages cannot control: consoles, colours, messages on stderr."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import ClassVar, Literal

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from cdc_formats.errors import ChangelogError, printable
from normalize.monitoring.explain_error import explain_error

_LONG_READ = 10_000
"""Records; fewer take less than a second."""
_REDRAWN_AFTER = 0.2
"""Seconds."""


class Color(str, Enum):
    """When to use colours."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


def console(color: Color = Color.AUTO, *, stderr: bool = False) -> Console:
    """Return a console; ``auto`` has colours on a terminal, unless ``NO_COLOR`` is set.

    Parameters
    ----------
    color : Color
    stderr : bool
        Whether the console writes to standard error.
    """
    always = color is Color.ALWAYS
    # "always" is kept for a terminal that does not report its abilities; "never" writes no escape
    # codes.
    systems: dict[Color, Literal["auto", "standard"] | None] = {
        Color.AUTO: "auto",
        Color.ALWAYS: "standard",
        Color.NEVER: None,
    }
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
    """Print a message on standard error; keep line breaks and escape other control characters.

    Parameters
    ----------
    text : str
    style : str
        A rich style for the whole text.
    """
    sys.stdout.flush()  # so that earlier output appears first
    ReadProgress.remove()
    lines = "\n".join(map(printable, text.split("\n")))
    if not sys.stderr.isatty():
        print(lines, file=sys.stderr, flush=True)
        return
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
    with _stderr().status(Text(printable(text))):
        yield


@contextmanager
def progress_bar(text: str) -> Iterator[Callable[[int, int | None], None]]:
    """Yield a function that shows what is done and left, if standard error is a terminal.

    The bar is not shown while nothing is left, or it is not known.
    """
    if not sys.stderr.isatty():
        yield lambda done, left: None
        return
    columns = (
        BarColumn(),
        TextColumn("{task.fields[left]:,} " + text),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=_stderr(), transient=True) as progress:
        task = progress.add_task("", total=None, left=0, visible=False)

        def show(done: int, left: int | None) -> None:
            total = done + (left or 0)
            progress.update(task, completed=done, total=total, left=left or 0, visible=bool(left))

        yield show


class ReadProgress:
    """A line on standard error, rewritten in place, with the progress of a long read.

    Other output replaces it.

    Parameters
    ----------
    title : str
    total : int
        The number of records to read. A short read, or one without a terminal, shows nothing.
    """

    shown: ClassVar[bool] = False

    def __init__(self, title: str, total: int) -> None:
        self.title, self.total = printable(title), total
        self.active = total >= _LONG_READ and sys.stderr.isatty() and not _stderr().is_dumb_terminal
        self.begun = self.next = time.monotonic()

    def show(self, done: int) -> None:
        """Show how many records are read, how many a second, and how many are left.

        Remove the line when none is left.
        """
        now = time.monotonic()
        if done >= self.total:
            self.remove()
            self.active = False
        if self.active and now >= self.next and now > self.begun:
            rate = done / (now - self.begun)
            text = (
                f"{self.title}: {done:,} of {self.total:,} records, {rate:,.0f}/s, "
                f"{self.total - done:,} behind"
            )
            self.remove()
            sys.stderr.write(text[: _stderr().width - 1])
            sys.stderr.flush()
            ReadProgress.shown, self.next = True, now + _REDRAWN_AFTER

    @classmethod
    def remove(cls) -> None:
        """Remove the line, so that other output can take its place."""
        if cls.shown:
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()
            cls.shown = False


def print_error(error: Exception, *, of_spark: bool) -> None:
    """Print why a command failed.

    Parameters
    ----------
    error : Exception
    of_spark : bool
        Whether the command runs Spark, whose errors are explained.
    """
    if isinstance(error, (ChangelogError, OSError)):
        text = str(error)
    elif of_spark:
        text = explain_error(error)
    else:
        text = f"[INTERNAL] {type(error).__name__}: {error}; this is a bug, --traceback shows where"
    print_message(f"error: {text}", "red")


_UNSAFE_IN_JSON = re.compile(
    "[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
)


def interactive_json(line: bytes) -> bytes:
    r"""Return the same JSON, escaping control characters and those that hide or reorder text.

    Examples
    --------
    >>> print(interactive_json('{"name": "\u202etxt.exe"}'.encode()).decode())
    {"name": "\u202etxt.exe"}
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()
