"""From a message's value to a column's: one small converter per SQL type, compiled once per column.

A converter takes what a JSON reader gives (``None`` never reaches it) and returns the *canonical* value of its type. Canonical
values are plain and cheap, two rows are equal exactly when their canonical values are, and no float or clock touches them:

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

What differs between producers is data: a `Handling`. Nothing is guessed from a number's size; a number whose unit nobody
declared is an error that names the option to set. Fractions of a second beyond microseconds are cut, since Spark has none.
`values.py` turns canonical values into Python's and JSON's.
"""

from __future__ import annotations

import base64
import binascii
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import lru_cache
from typing import Any, Literal
from zoneinfo import ZoneInfo

from .errors import FormatOptionError
from .images import ABSENT
from .json_reader import json_text
from .schema import Column, SqlType

Converter = Callable[[Any], Any]

DECIMAL_MODES = ("precise", "string", "double")
TIME_MODES = ("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds")
BINARY_MODES = ("bytes", "base64", "base64-url-safe", "hex")


@dataclass(frozen=True)
class Handling:
    """How a producer writes the values whose spelling is a matter of its configuration.

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
    binary : {"bytes", "base64", "base64-url-safe", "hex", "latin1"}
        The text form of bytes (``bytes`` is base64 in JSON).
    bigint_unsigned : {"long", "precise"} or None
        ``long``: a JSON integer in a ``DECIMAL(20,0)`` column is an unsigned 64-bit number in two's complement.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; ``None``: such text is an error.
    placeholder : str or None
        Debezium's unavailable-value placeholder; a value equal to it is `ABSENT`.
    native : bool
        Whether the producer writes booleans and integers as JSON's own: a hint for speed alone.
    """

    decimal: Literal["text", "precise", "string", "double"] | None = "text"
    decimal_scale: int | None = None
    time: str | None = "text"
    epoch_unit: Literal["ms", "us", "ns"] | None = None
    binary: str = "base64"
    bigint_unsigned: Literal["long", "precise"] | None = None
    time_zone: str | None = None
    placeholder: str | None = None
    native: bool = True


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


def converter(sql_type: SqlType, handling: Handling) -> Converter:
    """Return the function from a message's value (never None) to the canonical value of `sql_type`.

    Raises
    ------
    Unfit
        From the returned function, when a value is not one of the type's, or out of its range.
    """
    convert = _FACTORIES[sql_type.name](sql_type, handling)
    placeholder = placeholder_form(sql_type, handling)
    return convert if placeholder is None else _with_placeholder(convert, placeholder)


def null_or(convert: Converter) -> Converter:
    """Return `convert` for values that may be None."""
    return lambda value: None if value is None else convert(value)


def _refuse(sql_type: SqlType | str, value: Any, hint: str = "") -> Unfit:
    hint = f": {hint}" if hint else ""
    expected = f"expected `{sql_type}`, got `{_kind(value)}`"
    return Unfit(f"{expected} {_shown(value)}{hint}", expected + hint)


def _kind(value: Any) -> str:
    return {Decimal: "number", int: "number", str: "str", bool: "boolean", dict: "object", list: "array"}.get(
        type(value), type(value).__name__
    )


def _shown(value: Any) -> str:
    # A cut, since a value may be a megabyte (and str() of a huge int is refused by Python).
    if isinstance(value, int) and abs(value) >= 10**40:
        return "of more than 40 digits"
    text = ascii(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:60] + "..."


# ------------------------------------------------------------------------------------------------- booleans and integers

_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


def _boolean(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> bool:
        if type(value) is bool:
            return value
        if type(value) is int and value in (0, 1):
            return value == 1
        if type(value) is str and (known := _BOOLEANS.get(value.strip().lower())) is not None:
            return known
        raise _refuse(sql_type, value)

    return convert


INTEGER_BITS = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}
_INTEGER_TEXT = re.compile(r"[+-]?[0-9]{1,40}")


def _integer(sql_type: SqlType, handling: Handling) -> Converter:
    most = 2 ** INTEGER_BITS[sql_type.name] - 1
    least = -most - 1

    def convert(value: Any) -> int:
        number = value if type(value) is int else _integer_of(sql_type, value)
        if least <= number <= most:
            return number
        raise _refuse(sql_type, value, f"out of its range, {least} to {most}")

    return convert


def _integer_of(sql_type: SqlType, value: Any) -> int:
    if type(value) is str and _INTEGER_TEXT.fullmatch(text := value.strip()):
        return int(text)
    # adjusted() first: int() of 1E+999999999 would not end.
    if type(value) is Decimal and value.adjusted() <= 40 and value == value.to_integral_value():
        return int(value)
    raise _refuse(sql_type, value)


# --------------------------------------------------------------------------------------------------------------- floats

_FLOAT_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_SPECIAL_FLOATS = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}
_SINGLE = struct.Struct("<f")


def _float(sql_type: SqlType, handling: Handling) -> Converter:
    single = sql_type.name == "FLOAT"

    def convert(value: Any) -> float:
        if type(value) is float:  # not out of JSON: upsert-kafka's raw
            return value
        if type(value) is str:
            text = value.strip()
            if text in _SPECIAL_FLOATS:
                return float(_SPECIAL_FLOATS[text])
            if not _FLOAT_TEXT.fullmatch(text):
                raise _refuse(sql_type, value)
            value = text
        elif type(value) not in (Decimal, int):
            raise _refuse(sql_type, value)
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
        raise _refuse(sql_type, value, "out of its range")
    return number


# -------------------------------------------------------------------------------------------------------------- decimals

_EXACT = Context(prec=120)
_WIDE = Context(prec=200)
_DECIMAL_TEXT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")
_UNDECLARED_DECIMAL = (
    "is it base64 or digits? Set decimal_handling_mode to the connector's decimal.handling.mode: 'precise', 'string' or 'double'"
)


def decimal_text(value: Decimal, precision: int, scale: int) -> str:
    """Return the canonical text of a decimal, rounded half up to `scale` as Flink and SQL do.

    Raises
    ------
    Unfit
        When it is not finite, or has more than ``precision - scale`` digits before the point (Flink: NULL).

    Examples
    --------
    >>> decimal_text(Decimal("1E+2"), 10, 2)
    '100.00'
    """
    if not value:
        return "0" if scale == 0 else "0." + "0" * scale
    # adjusted() first: quantizing 1E+999999999 would write out its zeros.
    if value.is_finite() and value.adjusted() < precision - scale:
        rounded = value.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _EXACT)
        if not rounded:
            return decimal_text(Decimal(0), precision, scale)
        if rounded.adjusted() < precision - scale:
            return f"{rounded:f}"
    raise _refuse(f"DECIMAL({precision},{scale})", value, "out of its range")


def _decimal(sql_type: SqlType, handling: Handling) -> Converter:
    precision, scale = sql_type.precision or 10, sql_type.scale or 0
    whole = precision - scale
    unsigned = handling.bigint_unsigned if handling.decimal in DECIMAL_MODES or handling.decimal is None else "precise"
    of_text = _decimal_text_reader(sql_type, handling, precision, scale)

    def convert(value: Any) -> str:
        if type(value) is str:
            # Digits as producers write them ("12.34" for a scale of 2) need no Decimal: this is the hot path.
            if digits_are_text and scale and value[-scale - 1 : -scale] == "." and len(value) <= precision + 1:
                digits = value[: -scale - 1] + value[-scale:]
                if digits.isdigit() and digits.isascii() and scale < len(digits) and (value[0] != "0" or value[1] == "."):
                    return value if len(digits) - scale <= whole else of_text(value)
            return of_text(value)
        if type(value) is int:
            if precision == 20 and scale == 0:
                value = _unsigned(sql_type, value, unsigned)
            if abs(value) < 10**whole:
                return str(value) if scale == 0 else f"{value}.{'0' * scale}"
            raise _refuse(sql_type, value, "out of its range")
        if type(value) is Decimal:
            return decimal_text(value, precision, scale)
        if type(value) is dict and set(value) == {"scale", "value"}:
            return decimal_text(_variable_scale(sql_type, value), precision, scale)
        raise _refuse(sql_type, value)

    digits_are_text = handling.decimal in ("text", "string", "double")
    return convert


def _decimal_text_reader(sql_type: SqlType, handling: Handling, precision: int, scale: int) -> Callable[[str], str]:
    def undeclared(value: str) -> str:
        raise _refuse(sql_type, value, _UNDECLARED_DECIMAL)

    def of_base64(value: str) -> str:
        return decimal_text(Decimal(_big_endian(sql_type, value)).scaleb(-written, _WIDE), precision, scale)

    def of_digits(value: str) -> str:
        if not _DECIMAL_TEXT.fullmatch(text := value.strip()):
            raise _refuse(sql_type, value)
        return decimal_text(Decimal(text), precision, scale)

    written = scale if handling.decimal_scale is None else handling.decimal_scale
    return {None: undeclared, "precise": of_base64}.get(handling.decimal, of_digits)


def _unsigned(sql_type: SqlType, value: int, mode: str | None) -> int:
    if value >= 0 or mode == "precise":
        return value
    if mode == "long" and value >= -(2**63):
        return value + 2**64
    raise _refuse(
        sql_type,
        value,
        "an unsigned BIGINT in two's complement? Then set bigint_unsigned_handling_mode='long', else 'precise'",
    )


def _big_endian(sql_type: SqlType, value: Any) -> int:
    if type(value) is not str:
        raise _refuse(sql_type, value)
    raw = _base64(sql_type, value)
    if not raw or len(raw) > 64:
        raise _refuse(sql_type, value, "expected base64 of an unscaled number (decimal.handling.mode=precise)")
    return int.from_bytes(raw, "big", signed=True)


def _variable_scale(sql_type: SqlType, value: Mapping[str, Any]) -> Decimal:
    # io.debezium.data.VariableScaleDecimal: a numeric without a scale of its own.
    if type(value["scale"]) is not int or abs(value["scale"]) > 20000:
        raise _refuse(sql_type, value)
    return Decimal(_big_endian(sql_type, value["value"])).scaleb(-value["scale"], _WIDE)


# ----------------------------------------------------------------------------------------------------- strings and bytes


def _string(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> str:
        if type(value) is str:
            return value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) in (list, dict):
            return json_text(value)
        if type(value) is int and abs(value) >= 10**4000:
            raise _refuse(sql_type, value)
        return str(value)

    return convert


def _base64(sql_type: SqlType, value: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise _refuse(sql_type, value, "not base64") from None


def _binary(sql_type: SqlType, handling: Handling) -> Converter:
    def of_hex(value: str) -> bytes:
        return binascii.unhexlify(value)

    def of_url_safe(value: str) -> bytes:
        return base64.b64decode(value, altchars=b"-_", validate=True)

    def of_latin1(value: str) -> bytes:
        return value.encode("latin-1")

    def of_base64(value: str) -> bytes:
        return base64.b64decode(value, validate=True)

    read = {"hex": of_hex, "base64-url-safe": of_url_safe, "latin1": of_latin1}.get(handling.binary, of_base64)

    def convert(value: Any) -> bytes:
        if type(value) is bytes:  # not out of JSON: upsert-kafka's raw
            return value
        if type(value) is str:
            try:
                return read(value)
            except ValueError:  # binascii.Error and UnicodeError are ValueErrors
                raise _refuse(sql_type, value, f"not {handling.binary}") from None
        raise _refuse(sql_type, value)

    return convert


# ------------------------------------------------------------------------------------------------------- dates and times

_DAY = 86_400_000_000
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LEAST_DAY, _MOST_DAY = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
LEAST_STAMP, MOST_STAMP = _LEAST_DAY * _DAY, (_MOST_DAY + 1) * _DAY - 1
_TIME_TEXT = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(Z?)")
_ZONE_TEXT = re.compile(r"([+-])([0-9]{2})(?::?([0-9]{2}))?")
_INTERVAL_TEXT = re.compile(r"(-?)([0-9]{1,9}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
_UNDECLARED_TIME = "in which unit? Set time_precision_mode to the connector's time.precision.mode"
_TEXT_ONLY = "this format writes dates and times as text"


def _days(text: str) -> int:
    if len(text) != 10 or text[4] != "-" or text[7] != "-":
        raise ValueError
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _micros(fraction: str | None) -> int:
    return int(fraction[:6].ljust(6, "0")) if fraction else 0


def _date(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> int:
        if type(value) is str:
            try:
                return _days(value[:10] if handling.time == "isostring" and value.endswith("Z") else value)
            except ValueError:
                raise _refuse(sql_type, value, "expected yyyy-MM-dd") from None
        # In every mode of Debezium's but isostring a date is a number of days, so that this needs no declaration.
        if type(value) is int and handling.time != "text":
            if _LEAST_DAY <= value <= _MOST_DAY:
                return value
            raise _refuse(sql_type, value, "out of its range, years 1 to 9999")
        raise _refuse(sql_type, value, _TEXT_ONLY if type(value) is int else "")

    return convert


_UNITS = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
_UNIT_BY_MODE = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}


def epoch_unit(sql_type: SqlType, handling: Handling) -> tuple[str, str]:
    """Return the unit of an epoch number in a column, and where there is none the reason.

    Parameters
    ----------
    sql_type : SqlType
        TIME, TIMESTAMP, TIMESTAMP_NTZ or INTERVAL DAY TO SECOND.

    Returns
    -------
    (unit, reason) : (str, str)
        The unit, ``ms``, ``us`` or ``ns``, or ``""`` and what has to be declared.
    """
    if handling.epoch_unit:
        return handling.epoch_unit, ""
    if handling.time is None:
        return "", _UNDECLARED_TIME
    if handling.time in ("text", "isostring"):
        return "", _TEXT_ONLY
    if sql_type.name == "INTERVAL DAY TO SECOND":
        # io.debezium.time.MicroDuration and MicroTime; Connect's own times have no duration.
        return ("us", "") if handling.time.endswith(("adaptive", "microseconds")) else ("", "declare TIME or BIGINT")
    if handling.time == "adaptive_time_microseconds" and sql_type.name == "TIME":
        return "us", ""
    if handling.time in _UNIT_BY_MODE:
        return _UNIT_BY_MODE[handling.time], ""
    if sql_type.precision is None:
        return "", (
            f"'{handling.time}' writes milliseconds for a source column of precision 0 to 3 and microseconds for 4 to 6: "
            f"declare {sql_type.name}(3) or {sql_type.name}(6), as in the source table"
        )
    # SQL Server's datetime2(7) and Oracle's timestamp(9) are nanoseconds in the adaptive modes.
    return ("ms", "") if sql_type.precision <= 3 else ("us", "") if sql_type.precision <= 6 else ("ns", "")


def _epoch(sql_type: SqlType, handling: Handling, least: int, most: int) -> Callable[[Any], int]:
    unit, reason = epoch_unit(sql_type, handling)
    times, by = _UNITS.get(unit, (0, 1))

    def convert(value: Any) -> int:
        if type(value) is not int or not unit:
            raise _refuse(sql_type, value, reason if type(value) is int else "")
        micros = value * times // by
        if least <= micros <= most:
            return micros
        raise _refuse(sql_type, value, f"out of its range (in {unit})")

    return convert


def _time(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch(sql_type, handling, 0, _DAY - 1)

    def convert(value: Any) -> int:
        if type(value) is not str:
            return of_number(value)
        match = _TIME_TEXT.fullmatch(value)
        if match is None or (match[5] and handling.time == "text"):
            raise _refuse(sql_type, value, "expected HH:mm:ss[.fraction]")
        hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3])
        if hours > 23 or minutes > 59 or seconds > 59:
            raise _refuse(sql_type, value, "out of its range")
        return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + _micros(match[4])

    return convert


def _interval(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch(sql_type, handling, -(2**63), 2**63 - 1)

    def convert(value: Any) -> int:
        if type(value) is not str:
            return of_number(value)
        match = _INTERVAL_TEXT.fullmatch(value)
        if match is None or int(match[3]) > 59 or int(match[4]) > 59:
            raise _refuse(sql_type, value, "expected [-]hours:mm:ss[.fraction]")
        micros = ((int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])) * 1_000_000 + _micros(match[5])
        return -micros if match[1] else micros

    return convert


_FRACTIONS = {"": 0, **{f".{millis:03d}": millis * 1000 for millis in range(1000)}}
_TWO_DIGITS = {f"{number:02d}": number for number in range(60)}
_HOURS = {text: number for text, number in _TWO_DIGITS.items() if number < 24}


@lru_cache(maxsize=8192)
def _whole_seconds(text: str) -> int:
    """Return the microseconds of ``yyyy-MM-dd HH:mm:ss``; the rows of a stream share their seconds."""
    # By hand: fromisoformat() also takes shapes that no producer means.
    if len(text) != 19 or text[10] not in " T" or text[13] != ":" or text[16] != ":":
        raise ValueError
    try:
        clock = _HOURS[text[11:13]] * 3600 + _TWO_DIGITS[text[14:16]] * 60 + _TWO_DIGITS[text[17:]]
    except KeyError:
        raise ValueError from None
    return (_days(text[:10]) * 86400 + clock) * 1_000_000


def _split_stamp(text: str) -> tuple[int, str]:
    """Return the microseconds of a date and time, and its zone's text ('' where there is none)."""
    micros, rest = _whole_seconds(text[:19]), text[19:]
    if rest[:1] != ".":
        return micros, rest
    zone = rest[1:].lstrip("0123456789")
    fraction = rest[1 : len(rest) - len(zone)]
    if not 1 <= len(fraction) <= 9:
        raise ValueError
    return micros + _micros(fraction), zone


def _timestamp(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch(sql_type, handling, LEAST_STAMP, MOST_STAMP)
    with_zone = sql_type.name == "TIMESTAMP"
    to_utc = _zone_reader(handling.time_zone)
    # Whole seconds and milliseconds, with the zone that needs no thought: this is the hot path.
    usual = {f"{fraction}{'Z' if with_zone else ''}": micros for fraction, micros in _FRACTIONS.items()}

    def convert(value: Any) -> int:
        if type(value) is not str:
            return of_number(value)
        try:
            micros = usual.get(value[19:], -1)
            if micros >= 0:
                return _whole_seconds(value[:19]) + micros
            micros, zone = _split_stamp(value)
            if not with_zone:
                if not zone or (zone == "Z" and handling.time == "isostring"):
                    return micros
                raise _refuse(sql_type, value, "it has a time zone: declare TIMESTAMP")
            if zone == "Z":
                return micros
            micros = micros - _offset(zone) if zone else to_utc(micros)
        except Unfit:
            raise
        except ValueError:
            raise _refuse(sql_type, value, "expected yyyy-MM-dd HH:mm:ss[.fraction][zone]") from None
        if LEAST_STAMP <= micros <= MOST_STAMP:
            return micros
        raise _refuse(sql_type, value, "out of its range, years 1 to 9999")

    return convert


def _offset(zone: str) -> int:
    match = _ZONE_TEXT.fullmatch(zone)
    if match is None or int(match[2]) > 18 or int(match[3] or 0) > 59:
        raise ValueError
    micros = (int(match[2]) * 60 + int(match[3] or 0)) * 60_000_000
    return -micros if match[1] == "-" else micros


def _zone_reader(time_zone: str | None) -> Callable[[int], int]:
    """Return the function from microseconds of zone-less text to microseconds in UTC."""

    def undeclared(micros: int) -> int:
        raise Unfit(
            "expected a time zone in a TIMESTAMP's text, got none: declare TIMESTAMP_NTZ, or set time_zone to the zone that the "
            "producer writes in"
        )

    if time_zone is None:
        return undeclared
    if time_zone == "UTC":
        return lambda micros: micros
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError):
        raise FormatOptionError(f"time_zone {time_zone!r} is not known; it is a name such as 'Europe/Berlin', or 'UTC'") from None

    def of_zone(micros: int) -> int:
        local = datetime(1970, 1, 1) + timedelta(microseconds=micros)
        return (local.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(microseconds=1)

    return of_zone


# ---------------------------------------------------------------------------------------------------------------- nested


def _inner(column: Column, handling: Handling) -> Converter:
    return null_or(converter(column.type, replace(handling, placeholder=None)))


def _array(sql_type: SqlType, handling: Handling) -> Converter:
    element = _inner(sql_type.fields[0], handling)

    def convert(value: Any) -> list[Any]:
        if type(value) is list:
            return [element(item) for item in value]
        raise _refuse(sql_type, value)

    return convert


def _map(sql_type: SqlType, handling: Handling) -> Converter:
    key, item = (_inner(column, handling) for column in sql_type.fields)

    def convert(value: Any) -> list[Any]:
        if type(value) is dict:
            # Sorted, since the order of a map's entries is no difference between two rows.
            return sorted([[key(name), item(entry)] for name, entry in value.items()], key=lambda entry: entry[0])
        raise _refuse(sql_type, value)

    return convert


def _struct(sql_type: SqlType, handling: Handling) -> Converter:
    fields = [(column.name, _inner(column, handling)) for column in sql_type.fields]

    def convert(value: Any) -> list[Any]:
        if type(value) is dict:
            return [field(value.get(name)) for name, field in fields]
        raise _refuse(sql_type, value)

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
    "DATE": _date,
    "TIME": _time,
    "TIMESTAMP": _timestamp,
    "TIMESTAMP_NTZ": _timestamp,
    "INTERVAL DAY TO SECOND": _interval,
    "ARRAY": _array,
    "MAP": _map,
    "STRUCT": _struct,
}

# ----------------------------------------------------------------------------- Debezium's unavailable-value placeholder


def _encoded_placeholder(handling: Handling) -> str:
    raw = (handling.placeholder or "").encode()
    if handling.binary == "hex":
        return raw.hex()
    return base64.urlsafe_b64encode(raw).decode() if "url" in handling.binary else base64.b64encode(raw).decode()


def _array_placeholder(handling: Handling, sql_type: SqlType) -> Any:
    element = sql_type.fields[0].type.name
    if element in INTEGER_BITS:
        return list((handling.placeholder or "").encode())
    return [_encoded_placeholder(handling) if element == "BINARY" else handling.placeholder]


# What stands in the message, by the column's type (Debezium's UnchangedToastedPlaceholder).
_PLACEHOLDERS: dict[str, Callable[[Handling, SqlType], Any]] = {
    "STRING": lambda handling, _: handling.placeholder,
    "CHAR": lambda handling, _: handling.placeholder,
    "VARCHAR": lambda handling, _: handling.placeholder,
    "BINARY": lambda handling, _: _encoded_placeholder(handling),
    "ARRAY": _array_placeholder,
    "MAP": lambda handling, _: {handling.placeholder: handling.placeholder},
}


def placeholder_form(sql_type: SqlType, handling: Handling) -> Any:
    """Return what stands for an unavailable value of a column in the message, None where nothing does."""
    if handling.placeholder is None or sql_type.name not in _PLACEHOLDERS:
        return None
    return _PLACEHOLDERS[sql_type.name](handling, sql_type)


def _with_placeholder(convert: Converter, placeholder: Any) -> Converter:
    return lambda value: ABSENT if value == placeholder else convert(value)
