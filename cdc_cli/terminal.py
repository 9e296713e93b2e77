"""What goes to a terminal: consoles, colours, and what is said on standard error. Nothing out of a message acts on the terminal."""

from __future__ import annotations

import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Literal

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
        Whether it is of standard error.
    """
    from rich.console import Console

    always = color is Color.ALWAYS
    # What a person asked for is not less for a terminal that says nothing of itself; "never" has no codes at all.
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


def for_eyes(color: Color) -> bool:
    """Whether standard output is looked at by a person: it is a terminal, or colours are wanted."""
    return color is Color.ALWAYS or sys.stdout.isatty()


def tell(text: str, style: str = "") -> None:
    """Say something on standard error; lines stay lines, whatever else is in the text is shown.

    Parameters
    ----------
    text : str
    style : str
        Of rich, for the whole.
    """
    sys.stdout.flush()  # what was written before comes before
    lines = "\n".join(map(printable, text.split("\n")))
    if not sys.stderr.isatty():
        print(lines, file=sys.stderr, flush=True)
        return
    from rich.text import Text

    _stderr().print(Text(lines, style), soft_wrap=False)


@cache
def _stderr() -> Console:
    return console(stderr=True)  # one, so that what is said stands above what is being done


@contextmanager
def doing(text: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show what is being done, where standard error is a terminal, and give the function that changes the text.

    Parameters
    ----------
    text : str
    quiet : bool
        Whether nothing is to be shown after all.
    """
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.text import Text

    with _stderr().status(Text(printable(text))) as status:
        yield lambda text: status.update(Text(printable(text)))


@contextmanager
def unbroken() -> Iterator[None]:
    """Let a Ctrl-C take effect when the block ends, so that what it does is done and counted, or neither; a second one ends it at once."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # no Ctrl-C is heard here, or somebody else hears it
        return
    pressed = 0

    def press(number: int, frame: object) -> None:
        nonlocal pressed
        pressed += 1
        if pressed > 1:
            raise KeyboardInterrupt

    signal.signal(signal.SIGINT, press)
    try:
        yield
    except SystemError:  # what the Kafka client makes of one that falls into a callback of its
        if pressed < 2:
            raise
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


def tell_error(error: Exception) -> None:
    """Say why a command failed."""
    if isinstance(error, (ChangelogError, OSError)):
        tell(f"error: {error}", "red")
    else:
        tell(f"error: [INTERNAL] {type(error).__name__}: {error}; this is a bug, --traceback shows where", "red")


_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")


def json_for_eyes(line: bytes) -> bytes:
    r"""Return JSON text with escapes in place of what a terminal would obey, or what hides or reorders text: the same JSON.

    Examples
    --------
    >>> print(json_for_eyes('{"name": "\u202etxt.exe"}'.encode()).decode())
    {"name": "\u202etxt.exe"}
    """
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", line.decode()).encode()
