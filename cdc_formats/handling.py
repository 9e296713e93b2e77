"""Value encodings that depend on the producer's configuration, and the error of a value that its column does not take."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from .schema import SqlType

Converter = Callable[[Any], Any]

DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
ROUNDING = ("error", "half_up")
Rounding = Literal["error", "half_up"]


@dataclass(frozen=True)
class Handling:
    """How a producer writes values, as far as its configuration decides that; and how decimals with too many digits are read.

    Parameters
    ----------
    decimal : {"text", "precise", "string", "double"} or None
        ``text``: a number or its digits. ``precise``: base64 of the unscaled big-endian bytes, at the column's scale.
        ``None``: not declared: a JSON number is taken, a string is an error that says what to declare.
    decimal_scale : int or None
        The scale of ``precise``, where the message tells it; else it is the column's.
    time : {"text", "adaptive", ...} or None
        ``text``: ISO or SQL text only. Debezium's ``time.precision.mode`` otherwise; ``None``: not declared.
    epoch_unit : {"ms", "us", "ns"} or None
        The unit of an epoch number, where the message's own schema tells it; else it follows from `time`.
    binary : {"bytes", "base64", "base64-url-safe", "hex", "latin1"} or None
        The text form of bytes (``bytes`` is base64 in JSON). ``None``: not declared: text in a BINARY column is an error.
    bigint_unsigned : {"long", "precise"} or None
        How a ``DECIMAL(20,0)`` column's unsigned 64-bit numbers are written. ``long``: a JSON integer, in two's complement.
        ``precise``: base64 of the big-endian bytes, whatever `decimal` is.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; ``None``: such text is an error.
    placeholder : str or None
        Debezium's unavailable-value placeholder; a value equal to it is `ABSENT`.
    native : bool
        Whether the producer writes booleans and integers as JSON's own: a hint for speed alone.
    rounding : {"error", "half_up"}
        What happens to a decimal with more digits after the point than its column holds.
    parts : mapping or None
        How the parts of a nested column are written, where the message describes them: by ``STRUCT.<field>``, ``MAP.key`` and
        ``MAP.value``. A part without an entry is written as the column is.
    """

    decimal: Literal["text", "precise", "string", "double"] | None = "text"
    decimal_scale: int | None = None
    time: str | None = "text"
    epoch_unit: Literal["ms", "us", "ns"] | None = None
    binary: str | None = "base64"
    bigint_unsigned: Literal["long", "precise"] | None = None
    time_zone: str | None = None
    placeholder: str | None = None
    native: bool = True
    rounding: Rounding = "error"
    parts: Mapping[str, Handling] | None = None

    def of_part(self, name: str) -> Handling:
        """Return how a part of a nested column is written; the placeholder stands for a whole column only."""
        found = (self.parts or {}).get(name)
        return replace(self, placeholder=None, parts=None) if found is None else replace(found, placeholder=None)


class Unfit(ValueError):  # noqa: N818 - it is caught and becomes a TypeConversionError
    """A value that its column's type does not take; the caller adds the place.

    Parameters
    ----------
    reason : str
    bare : str
        `reason` without the value, where it shows one (as `errors.DecodeError`).
    """

    def __init__(self, reason: str, bare: str = "") -> None:
        super().__init__(reason)
        self.bare = bare


def refuse(sql_type: SqlType | str, value: Any, hint: str = "") -> Unfit:
    """Return the error of a value that a column does not take: what was expected, what came, and what to do."""
    hint = f": {hint}" if hint else ""
    expected = f"expected `{sql_type}`, got `{_kind(value)}`"
    return Unfit(f"{expected} {_shown(value)}{hint}", expected + hint)


def _kind(value: Any) -> str:
    if isinstance(value, Decimal):
        return "number"
    return {int: "number", str: "str", bool: "boolean", dict: "object", list: "array"}.get(type(value), type(value).__name__)


def _shown(value: Any) -> str:
    # A cut, since a value may be a megabyte (and str() of a huge int is refused by Python).
    if isinstance(value, int) and abs(value) >= 10**40:
        return "of more than 40 digits"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."
