"""`ValueType`: the declaration of one SQL type in its family's module."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .handling import Converter, Handling
from .schema import SqlType


def same(value: Any) -> Any:
    """Return the value itself: the converter of values that need none."""
    return value


@dataclass(frozen=True)
class ValueType:
    """How values of one SQL type are held, read and written.

    ARRAY, MAP and STRUCT depend on the types of their parts, so they have none: see `nested`.

    Parameters
    ----------
    canonical : callable
        Returns the msgspec type of the canonical values, with their range.
    converter : callable
        Returns the function from a message's value (never None) to the canonical value.
    writer : callable
        Returns the inverse function, or None if the canonical value is also the JSON value. The
        third argument is the `iso` of `types.writer`.
    to_python : callable
        Returns the Python value of a canonical value.
    to_text : callable
        Returns the text of a canonical value, for people.
    """

    canonical: Callable[[SqlType], Any]
    converter: Callable[[SqlType, Handling], Converter]
    writer: Callable[[SqlType, Handling, bool], Converter | None]
    to_python: Converter = same
    to_text: Callable[[Any], str] = str
