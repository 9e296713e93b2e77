"""Converters from a message's value to a column's canonical value: one per SQL type, compiled once per column.

A converter takes a JSON reader's value (never ``None``) and returns the *canonical* value of its type. Canonical values are exact and
cheap to compare; `equality` defines when two of them are equal:

==========================  =======================================================================================
SQL type                    canonical value
==========================  =======================================================================================
BOOLEAN, integers           ``bool``, ``int``
FLOAT, DOUBLE               ``float`` (a FLOAT rounded to 32 bits)
DECIMAL(p,s)                ``str``: plain digits, exactly ``s`` of them after the point, no exponent, no ``-0``
STRING, CHAR, VARCHAR       ``str`` (lengths are not enforced, as in Flink)
BINARY                      ``bytes``
DATE                        ``int``: days since 1970-01-01
TIME                        ``int``: microseconds since midnight
TIMESTAMP                   ``int``: microseconds since 1970-01-01 00:00:00 UTC (an instant; Flink's TIMESTAMP_LTZ)
TIMESTAMP_NTZ               ``int``: the same of a date and time without zone (Flink's TIMESTAMP)
INTERVAL DAY TO SECOND      ``int``: microseconds
ARRAY, STRUCT               ``list`` of canonical values; a STRUCT's in the order of its fields
MAP                         ``list`` of ``[key, value]``, sorted by key
==========================  =======================================================================================

Differences between producers are configuration: a `Handling`. Units are never guessed from a number's size; a number without a declared
unit is an error that names the option to set. A decimal with more digits after the point than its column holds is an error unless rounding
is enabled; trailing zeros always fit. Fractions of a second beyond microseconds are truncated, since Spark has none. `values.py` converts
canonical values to Python and JSON values.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from .equality import sorted_entries
from .handling import DECIMAL_MODES, Converter, Handling, Rounding, refuse
from .images import ABSENT
from .json_reader import json_text
from .placeholders import placeholder_form
from .schema import INTEGER_BITS, Column, SqlType
from .times import date_converter, interval_converter, time_converter, timestamp_converter


def converter(sql_type: SqlType, handling: Handling) -> Converter:
    """Return the function from a message's value (never None) to the canonical value of `sql_type`.

    Raises
    ------
    Unfit
        From the returned function, when a value does not have the type or is out of its range.
    """
    convert = _FACTORIES[sql_type.name](sql_type, handling)
    placeholder = placeholder_form(sql_type, handling)
    return convert if placeholder is None else _with_placeholder(convert, placeholder)


def null_or(convert: Converter) -> Converter:
    """Return `convert` for values that may be None."""
    return lambda value: None if value is None else convert(value)


def _with_placeholder(convert: Converter, placeholder: Any) -> Converter:
    return lambda value: ABSENT if value == placeholder else convert(value)


# ----------------------------------------------------------------------------------------------- booleans and integers

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _boolean(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> bool:
        if type(value) is bool:
            return value
        if type(value) is int and value in (0, 1):
            return value == 1
        if type(value) is str:
            known = _BOOLEANS.get(value)
            if known is None:
                known = _BOOLEANS.get(value.strip().lower())
            if known is not None:
                return known
        raise refuse(sql_type, value)

    return convert


_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")


def _integer(sql_type: SqlType, handling: Handling) -> Converter:
    most = 2 ** INTEGER_BITS[sql_type.name] - 1
    least = -most - 1

    def convert(value: Any) -> int:
        if type(value) is str and value.isascii() and value.isdigit() and len(value) < 20:
            number = int(value)
        else:
            number = value if type(value) is int else _integer_of(sql_type, value)
        if least <= number <= most:
            return number
        raise refuse(sql_type, value, f"out of its range, {least} to {most}")

    return convert


def _integer_of(sql_type: SqlType, value: Any) -> int:
    if type(value) is str and _INTEGER_TEXT.fullmatch(text := value.strip()):
        return int(text)
    # Check adjusted() first: int() of 1E+999999999 would not terminate.
    if isinstance(value, Decimal) and value.adjusted() <= 40 and value == value.to_integral_value():
        return int(value)
    raise refuse(sql_type, value)


# --------------------------------------------------------------------------------------------------------------- floats

_FLOAT_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOATS = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_SINGLE = struct.Struct("<f")


def _float(sql_type: SqlType, handling: Handling) -> Converter:
    single = sql_type.name == "FLOAT"

    def convert(value: Any) -> float:
        if type(value) is float:  # not from JSON: upsert-kafka's raw, a custom format
            return _finite(sql_type, value, True) if single and math.isfinite(value) else value
        if type(value) is str:
            text = value.strip()
            if text in _SPECIAL_FLOATS:
                return float(_SPECIAL_FLOATS[text])
            if not _FLOAT_TEXT.fullmatch(text):
                raise refuse(sql_type, value)
            value = text
        elif type(value) is not int and not isinstance(value, Decimal):
            raise refuse(sql_type, value)
        return _finite(sql_type, value, single)

    return convert


def _finite(sql_type: SqlType, value: Any, single: bool) -> float:
    try:
        number = float(value)
        if single:
            (number,) = _SINGLE.unpack(_SINGLE.pack(number))
    except OverflowError:
        number = float("inf")
    if number in (float("inf"), float("-inf")):
        raise refuse(sql_type, value, "out of its range")
    return number


_FORMS = tuple(f"%.{digits}g" for digits in range(2, 9))
_LEAST_NORMAL = 2.0**-126


def shortest(value: float) -> float:
    """Return the float with the fewest digits that equals the same 32-bit float.

    Examples
    --------
    >>> shortest(3.140000104904175)
    3.14
    """
    packed = _SINGLE.pack(value)
    # Six digits identify every decimal of up to six digits. Only subnormal floats can have fewer significant digits.
    for form in _FORMS if -_LEAST_NORMAL < value < _LEAST_NORMAL else _FORMS[4:]:
        number = float(form % value)
        if _SINGLE.pack(number) == packed:
            return number
    return float(f"{value:.9g}")


# -------------------------------------------------------------------------------------------------------------- decimals

_EXACT = Context(prec=120)
_WIDE = Context(prec=200)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_FLOAT = "a float may have lost digits: read the message with cdc_formats.read_object, which gives a Decimal, instead of json.loads"
_UNDECLARED_DECIMAL = (
    "is it base64 or digits? Set decimal_handling_mode to the connector's decimal.handling.mode: 'precise', 'string' or 'double'"
)
_TOO_MANY_DIGITS = "more digits after the point than the type holds: declare a type that holds them, or set rounding='half_up'"
_UNSIGNED_BASE64 = re.compile("[A-Za-f][A-Za-z0-9+/]*={0,2}")
"""Base64 of a non-negative number: its first bit is 0. Decimal digits never match."""
_UNDECLARED_UNSIGNED = "if it is base64 of an unsigned BIGINT, set bigint_unsigned_handling_mode='precise'"


def decimal_text(value: Decimal, precision: int, scale: int, rounding: Rounding = "error") -> str:
    """Return the canonical text of a decimal.

    Parameters
    ----------
    value : Decimal
    precision, scale : int
    rounding : {"error", "half_up"}
        The treatment of more than `scale` digits after the point; trailing zeros always fit. Flink rounds half up.

    Raises
    ------
    Unfit
        When the value is not finite, has more than ``precision - scale`` digits before the point (Flink: NULL), or needs rounding that is
        not enabled.

    Examples
    --------
    >>> decimal_text(Decimal("1E+2"), 10, 2), decimal_text(Decimal("9.990"), 10, 2), decimal_text(Decimal("9.995"), 10, 2, "half_up")
    ('100.00', '9.99', '10.00')
    """
    if not value:
        return "0" if scale == 0 else "0." + "0" * scale
    # Check adjusted() first: quantizing 1E+999999999 would write all its zeros.
    if value.is_finite() and value.adjusted() < precision - scale:
        rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
        if rounded != value and rounding != "half_up":
            raise refuse(f"DECIMAL({precision},{scale})", value, _TOO_MANY_DIGITS)
        if not rounded:
            return decimal_text(Decimal(0), precision, scale)
        if rounded.adjusted() < precision - scale:
            return f"{rounded:f}"
    raise refuse(f"DECIMAL({precision},{scale})", value, "out of its range")


def scaled(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled / 10**scale`` with all digits (Python's default context keeps 28)."""
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _decimal(sql_type: SqlType, handling: Handling) -> Converter:
    precision, scale, rounding = sql_type.precision or 10, sql_type.scale or 0, handling.rounding
    whole = precision - scale
    unsigned = handling.bigint_unsigned if handling.decimal in DECIMAL_MODES or handling.decimal is None else "precise"
    of_text = _decimal_text_reader(sql_type, handling, precision, scale)
    canonical = _canonical_decimal(precision, scale) if handling.decimal in ("text", "string", "double") else _never

    def convert(value: Any) -> str:
        if type(value) is str:
            # Hot path: digits as producers write them ("12.34" for a scale of 2) are already canonical.
            return value if canonical(value) else of_text(value)
        if type(value) is int:
            if precision == 20 and scale == 0:
                value = _unsigned(sql_type, value, unsigned)
            if abs(value) < 10**whole:
                return str(value) if scale == 0 else f"{value}.{'0' * scale}"
            raise refuse(sql_type, value, "out of its range")
        if isinstance(value, Decimal):
            return decimal_text(value, precision, scale, rounding)
        if type(value) is dict and set(value) == {"scale", "value"}:
            return decimal_text(_variable_scale(sql_type, value), precision, scale, rounding)
        raise refuse(sql_type, value, _FLOAT if type(value) is float else "")

    return convert


def _canonical_decimal(precision: int, scale: int) -> Callable[[str], object]:
    """Return a match function for canonical text; it misses some, such as ``-0.50``."""
    whole = f"(?:0|-?[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    return re.compile(whole + (rf"\.[0-9]{{{scale}}}" if scale else "")).fullmatch


def _never(text: str) -> None:
    return None


def _decimal_text_reader(sql_type: SqlType, handling: Handling, precision: int, scale: int) -> Callable[[str], str]:
    def undeclared(value: str) -> str:
        raise refuse(sql_type, value, _UNDECLARED_DECIMAL)

    def of_base64(value: str) -> str:
        return decimal_text(scaled(_big_endian(sql_type, value), written), precision, scale, handling.rounding)

    def of_digits(value: str) -> str:
        if not _DECIMAL_TEXT.fullmatch(text := value.strip()):
            raise refuse(sql_type, value)
        return decimal_text(Decimal(text), precision, scale, handling.rounding)

    written = scale if handling.decimal_scale is None else handling.decimal_scale
    read = {None: undeclared, "precise": of_base64}.get(handling.decimal, of_digits)
    if (precision, scale) == (20, 0) and handling.decimal in (None, "string", "double"):
        return _unsigned_text_reader(sql_type, handling, read)
    return read


def _unsigned_text_reader(sql_type: SqlType, handling: Handling, read: Callable[[str], str]) -> Callable[[str], str]:
    # With bigint.unsigned.handling.mode=precise an unsigned BIGINT is base64 in every decimal.handling.mode. Digits are never
    # ambiguous: as base64 they are a negative number.
    def convert(value: str) -> str:
        if not _UNSIGNED_BASE64.fullmatch(value):
            return read(value)
        if handling.bigint_unsigned != "precise":
            undeclared = f"{_UNDECLARED_DECIMAL}; {_UNDECLARED_UNSIGNED}" if handling.decimal is None else _UNDECLARED_UNSIGNED
            raise refuse(sql_type, value, undeclared)
        number = _big_endian(sql_type, value)
        if number < 2**64:
            return str(number)
        raise refuse(sql_type, value, "out of the range of 64 bits")

    return convert


def _unsigned(sql_type: SqlType, value: int, mode: str | None) -> int:
    if value >= 0 or mode == "precise":
        return value
    if mode == "long" and value >= -(2**63):
        return value + 2**64
    raise refuse(
        sql_type,
        value,
        "an unsigned BIGINT in two's complement? Then set bigint_unsigned_handling_mode='long', else 'precise'",
    )


def _big_endian(sql_type: SqlType, value: Any) -> int:
    if type(value) is not str:
        raise refuse(sql_type, value)
    raw = _base64(sql_type, value)
    if not raw or len(raw) > 64:
        raise refuse(sql_type, value, "expected base64 of an unscaled number (decimal.handling.mode=precise)")
    return int.from_bytes(raw, "big", signed=True)


def _variable_scale(sql_type: SqlType, value: Mapping[str, Any]) -> Decimal:
    # io.debezium.data.VariableScaleDecimal: a numeric without a scale of its own.
    if type(value["scale"]) is not int or abs(value["scale"]) > 20000:
        raise refuse(sql_type, value)
    return scaled(_big_endian(sql_type, value["value"]), value["scale"])


# ----------------------------------------------------------------------------------------------------- strings and bytes


def _string(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> str:
        if type(value) is str:
            # JSON text is well-formed, but a custom format can return a lone surrogate, which Arrow and Spark cannot encode.
            try:
                value.isascii() or value.encode()
            except UnicodeEncodeError:
                raise refuse(sql_type, value, "a lone surrogate is not a character") from None
            return value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) in (list, dict):
            return json_text(value)
        if type(value) is int and abs(value) >= 10**4000:
            raise refuse(sql_type, value)
        return str(value)

    return convert


UNDECLARED_BINARY = "the schema declares text: set binary_handling_mode to the connector's binary.handling.mode, or declare STRING"


def _base64(sql_type: SqlType, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise refuse(sql_type, value, "not base64") from None


def _binary(sql_type: SqlType, handling: Handling) -> Converter:
    def of_hex(value: str) -> bytes:
        return binascii.unhexlify(value.removeprefix("0x"))

    def of_url_safe(value: str) -> bytes:
        return base64.b64decode(value, altchars=b"-_", validate=True)

    def of_latin1(value: str) -> bytes:
        return value.encode("latin-1")

    def of_base64(value: str) -> bytes:
        return base64.b64decode(value, validate=True)

    read = {"hex": of_hex, "base64-url-safe": of_url_safe, "latin1": of_latin1}.get(handling.binary or "", of_base64)

    def convert(value: Any) -> bytes:
        if type(value) is bytes:  # not from JSON: upsert-kafka's raw
            return value
        if type(value) is str:
            if handling.binary is None:
                raise refuse(sql_type, value, UNDECLARED_BINARY)
            try:
                return read(value)
            except ValueError:  # binascii.Error and UnicodeError are ValueErrors
                raise refuse(sql_type, value, f"not {handling.binary}") from None
        raise refuse(sql_type, value)

    return convert


# ---------------------------------------------------------------------------------------------------------------- nested


def nested_converter(sql_type: SqlType, of: Callable[[Column], Converter]) -> Converter:
    """Return the converter of an ARRAY, a MAP or a STRUCT; `of` returns the converter of a part, and null becomes None."""
    inner = [null_or(of(column)) for column in sql_type.fields]
    names = [column.name for column in sql_type.fields]
    return {"ARRAY": _array, "MAP": _map, "STRUCT": _struct}[sql_type.name](sql_type, inner, names)


def _nested(sql_type: SqlType, handling: Handling) -> Converter:
    if sql_type.name == "ARRAY":
        # A schema block's handling of an array is that of its elements.
        element = replace(handling, placeholder=None)
        return nested_converter(sql_type, lambda column: converter(column.type, element))
    return nested_converter(sql_type, lambda column: converter(column.type, handling.of_part(f"{sql_type.name}.{column.name}")))


def _array(sql_type: SqlType, inner: Sequence[Converter], names: Sequence[str]) -> Converter:
    (element,) = inner

    def convert(value: Any) -> list[Any]:
        if type(value) is list:
            return [element(item) for item in value]
        raise refuse(sql_type, value)

    return convert


def _map(sql_type: SqlType, inner: Sequence[Converter], names: Sequence[str]) -> Converter:
    key, item = inner

    def convert(value: Any) -> list[Any]:
        if type(value) is dict:
            return sorted_entries([key(name), item(entry)] for name, entry in value.items())
        raise refuse(sql_type, value)

    return convert


def _struct(sql_type: SqlType, inner: Sequence[Converter], names: Sequence[str]) -> Converter:
    fields = list(zip(names, inner, strict=True))

    def convert(value: Any) -> list[Any]:
        if type(value) is dict:
            return [field(value.get(name)) for name, field in fields]
        raise refuse(sql_type, value)

    return convert


_FACTORIES: dict[str, Callable[[SqlType, Handling], Converter]] = {
    "BOOLEAN": _boolean,
    "TINYINT": _integer,
    "SMALLINT": _integer,
    "INT": _integer,
    "BIGINT": _integer,
    "FLOAT": _float,
    "DOUBLE": _float,
    "DECIMAL": _decimal,
    "STRING": _string,
    "CHAR": _string,
    "VARCHAR": _string,
    "BINARY": _binary,
    "DATE": date_converter,
    "TIME": time_converter,
    "TIMESTAMP": timestamp_converter,
    "TIMESTAMP_NTZ": timestamp_converter,
    "INTERVAL DAY TO SECOND": interval_converter,
    "ARRAY": _nested,
    "MAP": _nested,
    "STRUCT": _nested,
}
