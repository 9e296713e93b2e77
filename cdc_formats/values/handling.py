"""Value encodings that producers configure, and the error for a value that a column cannot hold.

`ValueType`: the declaration of one SQL type in its family's module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Literal

from cdc_formats.values.masks import NO_MASKS, Masks
from cdc_formats.values.schema import SqlType

Converter = Callable[[Any], Any]

DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = (
    "adaptive",
    "adaptive_time_microseconds",
    "connect",
    "isostring",
    "microseconds",
    "nanoseconds",
    "structured",
)
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")
Rounding = Literal["error", "half_up"]


@dataclass(frozen=True)
class Handling:
    r"""A producer's configurable value encodings, and the rounding of decimals with too many digits.

    Parameters
    ----------
    decimal : {"text", "precise", "string", "double"} or None
        ``text``: a number or its digits. ``precise``: base64 of the unscaled big-endian bytes, at
        the column's scale. ``None``: not declared: a JSON number is accepted, a string is an error
        that names the option.
    decimal_scale : int or None
        The scale of ``precise`` if the message contains it; otherwise the column's is used.
    time : {"text", "adaptive", ...} or None
        ``text``: ISO or SQL text only. Debezium's ``time.precision.mode`` otherwise; ``None``: not
        declared.
    epoch_unit : {"ms", "us", "ns"} or None
        The unit of an epoch number if the message's schema contains it; otherwise it follows from
        `time`.
    binary : {"bytes", "base64", "base64-url-safe", "hex", "bytea", "numbers", "latin1", ...} or None
        The text form of bytes (``bytes`` is base64 in JSON). ``bytea``: as PostgreSQL, ``\\x48``.
        ``numbers``: ``[72, 101]``. ``latin1 or digits``: text that may be one of ``0x48`` and
        ``[72]`` is an error. ``None``: not declared: text in a BINARY column is an error.
    bigint_unsigned : {"long", "precise"} or None
        The encoding of unsigned 64-bit numbers in a ``DECIMAL(20,0)`` column. ``long``: a JSON
        integer, in two's complement. ``precise``: base64 of the big-endian bytes, for every
        `decimal`.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; ``None``: such text is an error.
    placeholder : str or None
        Debezium's unavailable-value placeholder; a value equal to it is `ABSENT`.
    json : {"text", "value", "extended"}
        How the values of JSON columns are written: as a string with their text, or as JSON values
        of the message. ``extended``: all values are in the Extended JSON of MongoDB's documents
        (`extended_json`).
    native : bool
        Whether the producer writes booleans and integers as JSON types: only a hint for speed.
    rounding : {"error", "half_up"}
        The treatment of a decimal with more digits after the point than its column holds.
    parts : mapping or None
        The handling of a nested column's parts if the message describes them, by
        ``STRUCT.<field>``, ``MAP.key`` and ``MAP.value``. A part without an entry has the column's
        handling.
    masks : Masks
        The masks of whole columns, which `decoding.rows.RowConverter` applies.
    """

    decimal: Literal["text", "precise", "string", "double"] | None = "text"
    decimal_scale: int | None = None
    time: str | None = "text"
    epoch_unit: Literal["ms", "us", "ns"] | None = None
    binary: str | None = "base64"
    bigint_unsigned: Literal["long", "precise"] | None = None
    time_zone: str | None = None
    placeholder: str | None = None
    json: Literal["text", "value", "extended"] = "text"
    native: bool = True
    rounding: Rounding = "error"
    parts: Mapping[str, Handling] | None = None
    masks: Masks = NO_MASKS

    def of_part(self, name: str) -> Handling:
        """Return a nested column part's handling; the placeholder only replaces whole columns."""
        part = (self.parts or {}).get(name)
        return (
            replace(self, placeholder=None, parts=None)
            if part is None
            else replace(part, placeholder=None)
        )


def null_or(convert: Converter) -> Converter:
    """Return `convert` for values that may be None."""
    return lambda value: None if value is None else convert(value)


class ConversionError(ValueError):
    """A value that its column's type cannot hold; the caller adds the location.

    Parameters
    ----------
    reason : str
    bare : str
        `reason` without the value, if it shows one (as in `errors.DecodeError`).
    """

    def __init__(self, reason: str, bare: str = "") -> None:
        super().__init__(reason)
        self.bare = bare


def refuse(sql_type: SqlType | str, value: Any, hint: str = "") -> ConversionError:
    """Return the error for a value that a column cannot hold: expected type, value, what to do."""
    hint = f": {hint}" if hint else ""
    expected = f"expected `{sql_type}`, got `{_kind(value)}`"
    return ConversionError(f"{expected} {_shown(value)}{hint}", expected + hint)


def _kind(value: Any) -> str:
    if isinstance(value, Decimal):
        return "number"
    return {int: "number", str: "str", bool: "boolean", dict: "object", list: "array"}.get(
        type(value), type(value).__name__
    )


def _shown(value: Any) -> str:
    # Shorten the value: it may be a megabyte (and Python rejects str() of a huge int).
    if isinstance(value, int) and abs(value) >= 10**40:
        return "of more than 40 digits"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


# --------------------------------------------------------------------------------------------------
# `ValueType`: the declaration of one SQL type in its family's module


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
