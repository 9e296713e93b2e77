"""Escaping of message text for display.

Characters that control a terminal, or hide or reorder text, become visible.
"""

from __future__ import annotations

import re

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    # invisible, or changing the direction of text
    "\u00ad\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\u2028-\u202e"  # separators of lines and paragraphs, embeddings and overrides of direction
    "\ud800-\udfff"  # lone surrogates, which no encoding can write
    "\U000e0000-\U000e007f"  # tags, which are invisible
    "]"
)


def printable(text: str) -> str:
    r"""Return text without characters that have side effects when displayed.

    Control characters (C0, C1, DEL), Unicode's direction controls, line separators, invisible
    characters and lone surrogates are replaced by Python's escapes. All other text is unchanged,
    including backslashes: the result is for display, not for parsing.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> print(printable("\x1b[31mred\x1b[0m\nand \u202etxt.exe, café"))
    \x1b[31mred\x1b[0m\nand \u202etxt.exe, café
    """
    return _UNSAFE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode("ascii")
