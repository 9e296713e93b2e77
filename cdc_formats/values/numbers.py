"""Booleans, integers, floats and decimals: reading and writing.

The canonical values are ``bool``, ``int``, ``float`` (a FLOAT rounded to 32 bits), and a DECIMAL's
text: plain digits, exactly as many after the point as its scale, no exponent, no ``-0``. `Handling`
describes how a producer writes decimals and unsigned integers.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Annotated, Any

import msgspec

from .binary import base64_bytes, base64_text
from .json_reader import raw_json
from .schema import DECIMAL_MODES, Converter, Handling, Rounding, SqlType, ValueType, refuse

INTEGER_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
"""Bits of the integer types, without the sign."""
FLOAT_TYPES = ("FLOAT", "DOUBLE")

# --------------------------------------------------------------------------------------------------
# booleans

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _boolean_converter(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> bool:
        if type(value) is bool:
            return value
        if type(value) is int and value in (0, 1):
            return value == 1
        if type(value) is str:
            boolean = _BOOLEANS.get(value)
            if boolean is None:
                boolean = _BOOLEANS.get(value.strip().lower())
            if boolean is not None:
                return boolean
        raise refuse(sql_type, value)

    return convert


# --------------------------------------------------------------------------------------------------
# integers

_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")


def _integer_converter(sql_type: SqlType, handling: Handling) -> Converter:
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


# --------------------------------------------------------------------------------------------------
# floats

_FLOAT_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOATS = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_SINGLE = struct.Struct("<f")


def _float_converter(sql_type: SqlType, handling: Handling) -> Converter:
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
        number = _SINGLE.unpack(_SINGLE.pack(_to_round(value)))[0] if single else float(value)
    except OverflowError:
        number = float("inf")
    if number in (float("inf"), float("-inf")):
        raise refuse(sql_type, value, "out of its range")
    return number


_LEAST_NORMAL = 2.0**-126
_BITS = struct.Struct("<d"), struct.Struct("<Q")
_LOST_BITS, _HALF = 2**29 - 1, 2**28
"""The bits of a 64-bit float that a 32-bit float lacks, and their value half-way between two."""


def _to_round(value: Any) -> float:
    """Return a 64-bit float that has the same nearest 32-bit float as a number or its text."""
    number = float(value)
    bits: int = _BITS[1].unpack(_BITS[0].pack(number))[0]
    if bits & _LOST_BITS != _HALF and abs(number) >= _LEAST_NORMAL:
        return number
    # Rounding to 64 bits hides on which side of half-way the number is: an odd last bit shows it.
    exact = Decimal(value)
    if exact == number or bits & 1:
        return number
    return math.nextafter(number, math.inf if exact > number else -math.inf)


_FORMS = tuple(f"%.{digits}g" for digits in range(2, 9))


def shortest(value: float) -> float:
    """Return the float with the fewest digits that equals the same 32-bit float.

    Examples
    --------
    >>> shortest(3.140000104904175)
    3.14
    """
    packed = _SINGLE.pack(value)
    # Six digits identify every decimal of up to six digits. Only subnormal floats can have fewer
    # significant digits.
    for form in _FORMS if -_LEAST_NORMAL < value < _LEAST_NORMAL else _FORMS[4:]:
        number = float(form % value)
        if _SINGLE.pack(number) == packed:
            return number
    return float(f"{value:.9g}")


def _float_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    single = sql_type.name == "FLOAT"

    def write(value: float) -> float | str:
        if math.isfinite(value):
            try:
                number = shortest(value) if single else value
            except OverflowError:
                raise refuse(sql_type, value, "out of its range") from None
            return number if handling.native else repr(number)
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"

    return write


# --------------------------------------------------------------------------------------------------
# decimals

_EXACT = Context(prec=120)
_WIDE = Context(prec=200)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_UNDECLARED_DECIMAL = (
    "is it base64 or digits? Set decimal_handling_mode to the connector's decimal.handling.mode: "
    "'precise', 'string' or 'double'"
)
_UNSIGNED_BASE64 = re.compile("[A-Za-f][A-Za-z0-9+/]*={0,2}")
"""Base64 of a non-negative number: its first bit is 0. Decimal digits never match."""
_UNDECLARED_UNSIGNED = (
    "if it is base64 of an unsigned BIGINT, set bigint_unsigned_handling_mode='precise'"
)


def decimal_text(value: Decimal, precision: int, scale: int, rounding: Rounding = "error") -> str:
    """Return the canonical text of a decimal.

    Parameters
    ----------
    value : Decimal
    precision, scale : int
    rounding : {"error", "half_up"}
        The treatment of more than `scale` digits after the point; trailing zeros always fit. Flink
        rounds half up.

    Raises
    ------
    ConversionError
        When the value is not finite, has more than ``precision - scale`` digits before the point
        (Flink: NULL), or needs rounding that is not enabled.

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
            raise refuse(
                f"DECIMAL({precision},{scale})",
                value,
                "more digits after the point than the type holds: declare a type that holds them, "
                "or set rounding='half_up'",
            )
        if not rounded:
            return decimal_text(Decimal(0), precision, scale)
        if rounded.adjusted() < precision - scale:
            return f"{rounded:f}"
    raise refuse(f"DECIMAL({precision},{scale})", value, "out of its range")


def scaled(unscaled: int, scale: int) -> Decimal:
    """Return ``unscaled / 10**scale`` with all digits (Python's default context keeps 28)."""
    return Decimal(unscaled).scaleb(-scale, _WIDE)


def _decimal_converter(sql_type: SqlType, handling: Handling) -> Converter:
    precision, scale, rounding = sql_type.precision or 10, sql_type.scale or 0, handling.rounding
    whole = precision - scale
    unsigned = (
        handling.bigint_unsigned
        if handling.decimal in DECIMAL_MODES or handling.decimal is None
        else "precise"
    )
    of_text = _decimal_text_reader(sql_type, handling, precision, scale)
    canonical = (
        _canonical_decimal(precision, scale)
        if handling.decimal in ("text", "string", "double")
        else lambda text: None
    )

    def convert(value: Any) -> str:
        if type(value) is str:
            # Hot path: digits as producers write them ("12.34" for a scale of 2) are already
            # canonical.
            return value if canonical(value) else of_text(value)
        if type(value) is int:
            if value < 0 and precision == 20 and scale == 0 and unsigned != "precise":
                if unsigned != "long" or value < -(2**63):
                    raise refuse(
                        sql_type,
                        value,
                        "an unsigned BIGINT in two's complement? Then set "
                        "bigint_unsigned_handling_mode='long', else 'precise'",
                    )
                value += 2**64
            if abs(value) < 10**whole:
                return str(value) if scale == 0 else f"{value}.{'0' * scale}"
            raise refuse(sql_type, value, "out of its range")
        if isinstance(value, Decimal):
            return decimal_text(value, precision, scale, rounding)
        if type(value) is dict and set(value) == {"scale", "value"}:
            return decimal_text(_variable_scale(sql_type, value), precision, scale, rounding)
        raise refuse(
            sql_type,
            value,
            (
                "a float may have lost digits: read the message with cdc_formats.read_object, which gives a "
                "Decimal, instead of json.loads"
            )
            if type(value) is float
            else "",
        )

    return convert


def _canonical_decimal(precision: int, scale: int) -> Callable[[str], object]:
    """Return a match function for canonical text; it misses some, such as ``-0.50``."""
    whole = f"(?:0|-?[1-9][0-9]{{0,{precision - scale - 1}}})" if precision > scale else "0"
    return re.compile(whole + (rf"\.[0-9]{{{scale}}}" if scale else "")).fullmatch


def _decimal_text_reader(
    sql_type: SqlType, handling: Handling, precision: int, scale: int
) -> Callable[[str], str]:
    def undeclared(value: str) -> str:
        raise refuse(sql_type, value, _UNDECLARED_DECIMAL)

    def of_base64(value: str) -> str:
        return decimal_text(
            scaled(_big_endian(sql_type, value), written), precision, scale, handling.rounding
        )

    def of_digits(value: str) -> str:
        if not _DECIMAL_TEXT.fullmatch(text := value.strip()):
            raise refuse(sql_type, value)
        return decimal_text(Decimal(text), precision, scale, handling.rounding)

    written = scale if handling.decimal_scale is None else handling.decimal_scale
    read = {None: undeclared, "precise": of_base64}.get(handling.decimal, of_digits)
    if (precision, scale) != (20, 0) or handling.decimal not in (None, "string", "double"):
        return read

    # With bigint.unsigned.handling.mode=precise an unsigned BIGINT is base64 in every
    # decimal.handling.mode. Digits are never ambiguous: as base64 they are a negative number.
    def of_unsigned(value: str) -> str:
        if not _UNSIGNED_BASE64.fullmatch(value):
            return read(value)
        if handling.bigint_unsigned != "precise":
            hint = f"{_UNDECLARED_DECIMAL}; " if handling.decimal is None else ""
            raise refuse(sql_type, value, hint + _UNDECLARED_UNSIGNED)
        number = _big_endian(sql_type, value)
        if number < 2**64:
            return str(number)
        raise refuse(sql_type, value, "out of the range of 64 bits")

    return of_unsigned


def _big_endian(sql_type: SqlType, value: Any) -> int:
    if type(value) is not str:
        raise refuse(sql_type, value)
    raw = base64_bytes(sql_type, value)
    if not raw or len(raw) > 64:
        raise refuse(
            sql_type, value, "expected base64 of an unscaled number (decimal.handling.mode=precise)"
        )
    return int.from_bytes(raw, "big", signed=True)


def _variable_scale(sql_type: SqlType, value: Mapping[str, Any]) -> Decimal:
    # io.debezium.data.VariableScaleDecimal: a numeric without a scale of its own.
    if type(value["scale"]) is not int or abs(value["scale"]) > 20000:
        raise refuse(sql_type, value)
    return scaled(_big_endian(sql_type, value["value"]), value["scale"])


def _decimal_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    number = raw_json if handling.native else None
    writers = {"precise": lambda value: base64_text(unscaled_bytes(value)), "string": None}
    write = writers.get(handling.decimal or "", number)
    if (sql_type.precision, sql_type.scale) != (20, 0) or (
        handling.decimal is not None and handling.decimal not in DECIMAL_MODES
    ):
        return write
    long = handling.bigint_unsigned == "long"

    def unsigned(value: str) -> Any:
        if long and 0 <= int(value) < 2**64:
            return int(value) - (2**64 if int(value) >= 2**63 else 0)
        if write is raw_json and value[0] == "-":
            # Written as a double: an integer would be read as two's complement.
            return raw_json(f"{value}.0")
        return value if write is None else write(value)

    return unsigned


def unscaled_bytes(value: str) -> bytes:
    """Return a canonical decimal's digits as a big-endian number, in the fewest bytes.

    They include the sign, as in Java's BigInteger.
    """
    number = int(value.replace(".", ""))
    return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)


def _decimal_canonical(sql_type: SqlType) -> Any:
    precision, scale = sql_type.precision or 10, sql_type.scale or 0
    whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
    fraction = rf"\.[0-9]{{{scale}}}" if scale else ""
    return Annotated[str, msgspec.Meta(pattern=rf"^-?{whole}{fraction}\Z")]


# --------------------------------------------------------------------------------------------------
# the types

TYPES = {
    "BOOLEAN": ValueType(
        canonical=lambda _: bool,
        converter=_boolean_converter,
        # Not "1" and "0": Flink reads "1" as false.
        writer=lambda _, handling, iso: None if handling.native else _boolean_text,
        to_text=_boolean_text,
    ),
    **dict.fromkeys(
        INTEGER_BITS,
        ValueType(
            canonical=lambda sql_type: Annotated[
                int,
                msgspec.Meta(
                    ge=-(2 ** INTEGER_BITS[sql_type.name]), le=2 ** INTEGER_BITS[sql_type.name] - 1
                ),
            ],
            converter=_integer_converter,
            writer=lambda _, handling, iso: None if handling.native else str,
        ),
    ),
    "FLOAT": ValueType(
        canonical=lambda _: float,
        converter=_float_converter,
        writer=_float_writer,
        to_text=lambda value: str(shortest(value)),
    ),
    "DOUBLE": ValueType(
        canonical=lambda _: float, converter=_float_converter, writer=_float_writer
    ),
    "DECIMAL": ValueType(
        canonical=_decimal_canonical,
        converter=_decimal_converter,
        writer=_decimal_writer,
        to_python=Decimal,
    ),
}
