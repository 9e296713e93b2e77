"""The position of a change in its source's log, which can be compared, and the checks of its parts.

A `Position` is two unsigned 64-bit integers in a history. Nothing is guessed: a malformed field is
an error. Parts of a producer's position beyond 128 bits are omitted if no two changes of one key
need them; otherwise they are an error too.

Each format describes its positions in its module, and `Format.position` reads them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cdc_formats.decoding.json_reader import json_text

from .errors import TypeConversionError


class Position(msgspec.Struct, frozen=True, gc=False):
    """The position of a change in its source's log.

    Attributes
    ----------
    history : str
        The identity of the log. Only positions of one history can be compared.
    high, low : int or None, int
        From 0 to 2**64-1, compared as a pair; `high` is None if the change has no position in the
        log.
    clock_ms : int or None
        The source's own time of the change, in milliseconds since 1970-01-01 UTC.
    """

    history: str
    high: int | None
    low: int
    clock_ms: int | None


def file_number(file: str, path: str) -> int:
    """Return the number at the end of a log file's name, such as ``binlog.000006``.

    Raises
    ------
    TypeConversionError
    """
    number = file.rpartition(".")[2]
    if not (number.isascii() and number.isdigit() and len(number) < len(file)):
        raise malformed("a file with a number, as in 'binlog.000006'", file, path)
    return digits(number, 64, path)


def digits(text: str, bits: int, path: str) -> int:
    """Return the number in text of digits, which has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    if not (text.isascii() and text.isdigit() and len(text) < 40):
        raise malformed("text of digits", text, path)
    return within(int(text), bits, path)


def integer(value: Any, bits: int, path: str) -> int:
    """Return an integer that is not negative and has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    if type(value) is not int:
        raise malformed("an integer", value, path)
    return within(value, bits, path)


def within(number: int, bits: int, path: str) -> int:
    """Return a number if it has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    # Negative numbers stay negative when shifted.
    if number >> bits:
        raise malformed(f"an integer from 0 to 2**{bits} - 1", number, path)
    return number


def malformed(expected: str, value: Any, path: str) -> TypeConversionError:
    """Return the error of a value that is not the expected one."""
    return TypeConversionError(
        f"expected {expected}, got {json_text(value)[:40]}", path, bare=f"expected {expected}"
    )
