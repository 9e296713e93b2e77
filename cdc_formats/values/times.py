"""Dates, times, timestamps and durations: reading and writing.

In a message they are text, epoch numbers in a declared unit, or objects of their parts.

The canonical values are integers: a DATE's days since 1970-01-01, a TIME's microseconds since
midnight, microseconds since 1970-01-01 00:00:00 (of a TIMESTAMP in UTC, of a TIMESTAMP_NTZ without
a zone), and a duration's microseconds. `Handling` describes the producer's units and zone.

Avro's logical types of times: the column's type of each, and its unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo

import msgspec

from cdc_formats.errors import FormatOptionError
from cdc_formats.values.schema import (
    ConversionError,
    Converter,
    Handling,
    SqlType,
    ValueType,
    refuse,
)

DAY_MICROS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_LEAST_DAY, _MOST_DAY = date.min.toordinal() - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
LEAST_STAMP, MOST_STAMP = _LEAST_DAY * DAY_MICROS, (_MOST_DAY + 1) * DAY_MICROS - 1
_TEXT_ONLY = "this format writes dates and times as text"
# MySQL's TIME is from -838:59:59 to 838:59:59.
_YEARS = ", years 1 to 9999"
_DURATION_REMEDY = ": a TIME is within 24 hours, declare INTERVAL DAY TO SECOND or STRING"


def _micros(fraction: str | None) -> int:
    return int(fraction[:6].ljust(6, "0")) if fraction else 0


def _within(
    sql_type: SqlType, value: Any, number: int, least: int, most: int, hint: str = ""
) -> int:
    """Return a value's number; raise the error of the value if the number is out of its range."""
    if least <= number <= most:
        return number
    raise refuse(sql_type, value, f"out of its range{hint}")


def _ranged(sql_type: SqlType, least: int, most: int, write: Converter | None) -> Converter:
    def convert(value: int) -> Any:
        number = _within(sql_type, value, value, least, most)
        return number if write is None else write(number)

    return convert


# --------------------------------------------------------------------------------------------------
# epoch numbers

MICROS_PER_UNIT = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}
"""By the unit of an epoch number: a factor and a divisor that convert it to microseconds."""
_UNIT_BY_MODE = {"connect": "ms", "microseconds": "us", "nanoseconds": "ns"}


def unit_of_precision(precision: int) -> str:
    """Return the largest unit (``ms``, ``us``, ``ns``) that holds a second's fractional digits."""
    return "ms" if precision <= 3 else "us" if precision <= 6 else "ns"


def epoch_unit(sql_type: SqlType, handling: Handling) -> tuple[str, str]:
    """Return the unit of an epoch number in a column, or the reason why it is unknown.

    Parameters
    ----------
    sql_type : SqlType
        TIME, TIMESTAMP, TIMESTAMP_NTZ or INTERVAL DAY TO SECOND.

    Returns
    -------
    (unit, reason) : (str, str)
        The unit, ``ms``, ``us`` or ``ns``, or ``""`` and the required declaration.
    """
    if handling.epoch_unit:
        return handling.epoch_unit, ""
    if handling.time is None:
        return (
            "",
            "its unit is unknown: set time_precision_mode to the connector's time.precision.mode",
        )
    if handling.time in ("text", "isostring"):
        return "", _TEXT_ONLY
    if handling.time == "structured":
        return "", "'structured' writes dates and times as objects of their parts"
    if sql_type.name == "INTERVAL DAY TO SECOND":
        # io.debezium.time.MicroDuration and MicroTime; Connect's own times have no duration.
        return (
            ("us", "")
            if handling.time.endswith(("adaptive", "microseconds"))
            else ("", "declare TIME or BIGINT")
        )
    if handling.time == "adaptive_time_microseconds" and sql_type.name == "TIME":
        return "us", ""
    if handling.time in _UNIT_BY_MODE:
        return _UNIT_BY_MODE[handling.time], ""
    if sql_type.precision is None:
        return "", (
            f"'{handling.time}' writes milliseconds for a source column of precision 0 to 3 and "
            f"microseconds for 4 to 6: declare {sql_type.name}(3) or {sql_type.name}(6), as in the "
            "source table"
        )
    # SQL Server's datetime2(7) and Oracle's timestamp(9) are nanoseconds in the adaptive modes.
    return unit_of_precision(sql_type.precision), ""


def _epoch(sql_type: SqlType, handling: Handling, least: int, most: int) -> Callable[[Any], int]:
    unit, reason = epoch_unit(sql_type, handling)
    times, by = MICROS_PER_UNIT.get(unit, (0, 1))
    hint = f" (in {unit}){_DURATION_REMEDY if sql_type.name == 'TIME' else ''}"

    def convert(value: Any) -> int:
        if type(value) is not int or not unit:
            raise refuse(sql_type, value, reason if type(value) is int else "")
        return _within(sql_type, value, value * times // by, least, most, hint)

    return convert


def _epoch_writer(sql_type: SqlType, unit: str) -> Converter:
    times, by = MICROS_PER_UNIT[unit]

    def write(value: int) -> int:
        number, rest = divmod(value * by, times)
        if rest:
            raise refuse(sql_type, value, "it has microseconds, but milliseconds are declared")
        if -(2**63) <= number < 2**63:
            return number
        raise refuse(sql_type, value, f"out of the range of 64 bits (in {unit})")

    return write


# --------------------------------------------------------------------------------------------------
# objects of parts: Debezium's time.precision.mode=structured

_DATE_PARTS = ("year", "month", "day")
_CLOCK_PARTS = ("hour", "minute", "second", "nanos")
_DURATION_PARTS = ("years", "months", "days", "hours", "minutes", "seconds", "nanos")
_SPECIAL, _OFFSET = "specialValue", "offsetSeconds"
_MORE_PARTS = (_OFFSET, "zoneId", _SPECIAL, "precision")
STRUCTURED: dict[str, tuple[str, tuple[str, ...]]] = {
    f"Structured{name}": (sql_type, parts)
    for name, sql_type, parts in (
        ("Date", "DATE", (*_DATE_PARTS, _SPECIAL)),
        ("Time", "TIME", (*_CLOCK_PARTS, "precision")),
        ("Timestamp", "TIMESTAMP_NTZ", (*_DATE_PARTS, *_CLOCK_PARTS, _SPECIAL, "precision")),
        ("ZonedTime", "STRING", (*_CLOCK_PARTS, _OFFSET, "precision")),
        ("ZonedTimestamp", "TIMESTAMP", (*_DATE_PARTS, *_CLOCK_PARTS, *_MORE_PARTS)),
        ("Duration", "INTERVAL DAY TO SECOND", (*_DURATION_PARTS, "precision")),
    )
}
"""The column's type and the parts of Debezium's structured types, by their names. Spark has no type
for the offset of a time."""


def _parts(sql_type: SqlType, value: Any, names: Sequence[str]) -> list[int]:
    """Return the parts of a date or time.

    Raises
    ------
    ConversionError
        When one is missing, there are others, or the value is an infinity.
    """
    if value.get(_SPECIAL) is not None:
        raise refuse(sql_type, value, "it is PostgreSQL's infinity: declare STRING")
    parts = [value.get(name) for name in names]
    if any(type(part) is not int for part in parts) or set(value) - {*names, *_MORE_PARTS}:
        raise refuse(sql_type, value, f"expected an object of {', '.join(names)}")
    return parts


def _date_of(sql_type: SqlType, value: Any, parts: Sequence[int]) -> int:
    try:
        return date(*parts).toordinal() - _EPOCH_DAY
    except (ValueError, OverflowError):
        raise refuse(sql_type, value, "no date of the years 1 to 9999: declare STRING") from None


def _clock_of(sql_type: SqlType, value: Any, parts: Sequence[int]) -> int:
    hour, minute, second, nanos = parts
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= nanos < 10**9):
        raise refuse(sql_type, value, "no time of day: declare STRING")
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + nanos // 1000


def _duration_of(sql_type: SqlType, value: Any) -> int:
    years, months, days, hours, minutes, seconds, nanos = _parts(sql_type, value, _DURATION_PARTS)
    if years or months:
        raise refuse(sql_type, value, "a month has no length: declare STRING")
    # A fraction is cut towards zero, as in text: a negative duration has negative parts.
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 10**9 + nanos
    micros = _within(sql_type, value, abs(total) // 1000, 0, 2**63 - 1)
    return -micros if total < 0 else micros


def _time_of_parts(sql_type: SqlType, value: Any) -> int:
    if "hour" in value:
        return _clock_of(sql_type, value, _parts(sql_type, value, _CLOCK_PARTS))
    # MySQL's TIME is a duration.
    micros = _duration_of(sql_type, value)
    return _within(sql_type, value, micros, 0, DAY_MICROS - 1, _DURATION_REMEDY)


def _stamp_of_parts(sql_type: SqlType, value: Any, to_utc: Callable[[int], int]) -> int:
    parts, offset = _parts(sql_type, value, (*_DATE_PARTS, *_CLOCK_PARTS)), value.get(_OFFSET)
    micros = _date_of(sql_type, value, parts[:3]) * DAY_MICROS
    micros += _clock_of(sql_type, value, parts[3:])
    if sql_type.name != "TIMESTAMP":
        if _OFFSET in value:
            raise refuse(sql_type, value, "it has a time zone: declare TIMESTAMP")
        return micros
    micros = micros - offset * 1_000_000 if type(offset) is int else to_utc(micros)
    return _within(sql_type, value, micros, LEAST_STAMP, MOST_STAMP, _YEARS)


# --------------------------------------------------------------------------------------------------
# dates


def _days(text: str) -> int:
    if len(text) != 10 or text[4] != "-" or text[7] != "-":
        raise ValueError
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def date_text(days: int) -> str:
    """Return days since 1970-01-01 as ``yyyy-MM-dd``."""
    return date.fromordinal(days + _EPOCH_DAY).isoformat()


def _date_converter(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> int:
        if type(value) is str:
            try:
                return _days(
                    value[:10] if handling.time == "isostring" and value.endswith("Z") else value
                )
            except ValueError:
                raise refuse(sql_type, value, "expected yyyy-MM-dd") from None
        if type(value) is dict:
            return _date_of(sql_type, value, _parts(sql_type, value, _DATE_PARTS))
        # In most of Debezium's modes a date is a number of days, so this needs no
        # declaration.
        if type(value) is int and handling.time != "text":
            return _within(sql_type, value, value, _LEAST_DAY, _MOST_DAY, _YEARS)
        raise refuse(sql_type, value, _TEXT_ONLY if type(value) is int else "")

    return convert


def _date_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    days = handling.time not in ("text", "isostring", None)
    zone = "Z" if handling.time == "isostring" else ""
    return _ranged(
        sql_type,
        LEAST_STAMP // DAY_MICROS,
        MOST_STAMP // DAY_MICROS,
        None if days else lambda value: date_text(value) + zone,
    )


# --------------------------------------------------------------------------------------------------
# times of day

_TIME_TEXT = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?(Z?)")


def time_text(micros: int) -> str:
    """Return microseconds since midnight as ``HH:mm:ss`` with the significant digits of a fraction.

    Examples
    --------
    >>> time_text(45_296_120_000)
    '12:34:56.12'
    """
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return f"{text}.{fraction:06d}".rstrip("0") if fraction else text


def _time_converter(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch(sql_type, handling, 0, DAY_MICROS - 1)

    def convert(value: Any) -> int:
        if type(value) is dict:
            return _time_of_parts(sql_type, value)
        if type(value) is not str:
            return of_number(value)
        match = _TIME_TEXT.fullmatch(value)
        if match is None or (match[5] and handling.time == "text"):
            is_duration = _INTERVAL_TEXT.fullmatch(value) is not None
            reason = (
                f"out of its range{_DURATION_REMEDY}"
                if is_duration
                else "expected HH:mm:ss[.fraction]"
            )
            raise refuse(sql_type, value, reason)
        hours, minutes, seconds = int(match[1]), int(match[2]), int(match[3])
        if minutes > 59 or seconds > 59:
            raise refuse(sql_type, value, "out of its range")
        if hours > 23:
            raise refuse(sql_type, value, f"out of its range{_DURATION_REMEDY}")
        return ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + _micros(match[4])

    return convert


def _time_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    unit = epoch_unit(sql_type, handling)[0]
    zone = "Z" if handling.time == "isostring" else ""
    return _ranged(
        sql_type,
        0,
        DAY_MICROS - 1,
        _epoch_writer(sql_type, unit) if unit else lambda value: time_text(value) + zone,
    )


# --------------------------------------------------------------------------------------------------
# timestamps

_ZONE_TEXT = re.compile(r" ?([+-])([0-9]{2})(?::?([0-9]{2}))?")
_FRACTIONS = {"": 0, **{f".{millis:03d}": millis * 1000 for millis in range(1000)}}
_FRACTIONS_UTC = {f"{fraction}Z": micros for fraction, micros in _FRACTIONS.items()}
_TWO_DIGITS = {f"{number:02d}": number for number in range(60)}
_HOURS = {text: number for text, number in _TWO_DIGITS.items() if number < 24}


def _whole_seconds(text: str) -> int:
    """Return the microseconds of ``yyyy-MM-dd HH:mm:ss``."""
    # Not fromisoformat(), which also accepts forms that no producer writes.
    if len(text) != 19 or text[10] not in " T" or text[13] != ":" or text[16] != ":":
        raise ValueError
    try:
        clock = _HOURS[text[11:13]] * 3600 + _TWO_DIGITS[text[14:16]] * 60 + _TWO_DIGITS[text[17:]]
    except KeyError:
        raise ValueError from None
    return (_days(text[:10]) * 86400 + clock) * 1_000_000


class _WholeSeconds(dict[str, int]):
    """Results of `_whole_seconds`, faster than lru_cache; rows of a stream share their seconds."""

    def __missing__(self, text: str) -> int:
        if len(self) >= 8192:
            self.clear()
        micros = self[text] = _whole_seconds(text)
        return micros


def _split_stamp(text: str) -> tuple[int, str]:
    """Return the microseconds of a date and time, and its zone's text ('' if there is none)."""
    micros, rest = _whole_seconds(text[:19]), text[19:]
    if rest[:1] != ".":
        return micros, rest
    zone = rest[1:].lstrip("0123456789")
    fraction = rest[1 : len(rest) - len(zone)]
    if not 1 <= len(fraction) <= 9:
        raise ValueError
    return micros + _micros(fraction), zone


def timestamp_text(micros: int, between: str = " ") -> str:
    """Return epoch microseconds as ``yyyy-MM-dd HH:mm:ss`` and a fraction's significant digits."""
    days, rest = divmod(micros, DAY_MICROS)
    return date_text(days) + between + time_text(rest)


def _epoch_stamp(sql_type: SqlType, handling: Handling) -> Callable[[Any], int]:
    of_number = _epoch(sql_type, handling, LEAST_STAMP, MOST_STAMP)

    def convert(value: Any) -> int:
        if value in (2**63 - 1, -(2**63)):  # otherwise times of a real year
            raise refuse(sql_type, value, "it is PostgreSQL's infinity: declare BIGINT")
        return of_number(value)

    return convert if epoch_unit(sql_type, handling)[0] == "ns" else of_number


def _timestamp_converter(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch_stamp(sql_type, handling)
    with_zone = sql_type.name == "TIMESTAMP"
    to_utc = _zone_reader(handling.time_zone)
    # Hot path: whole seconds and milliseconds, without zone conversion.
    usual = (_FRACTIONS_UTC if with_zone else _FRACTIONS).get
    seconds = _WholeSeconds()

    of_object = _object_reader(sql_type, handling, to_utc)

    def convert(value: Any) -> int:
        if type(value) is not str:
            return of_object(value) if type(value) is dict else of_number(value)
        try:
            fraction = usual(value[19:])
            if fraction is not None:
                return seconds[value[:19]] + fraction
            micros, zone = _split_stamp(value)
            if not with_zone:
                if not zone or (zone == "Z" and handling.time == "isostring"):
                    return micros
                raise refuse(sql_type, value, "it has a time zone: declare TIMESTAMP")
            if zone == "Z":
                return micros
            micros = micros - _offset(zone) if zone else to_utc(micros)
        except ConversionError:
            raise
        except ValueError:
            raise refuse(sql_type, value, "expected yyyy-MM-dd HH:mm:ss[.fraction][zone]") from None
        return _within(sql_type, value, micros, LEAST_STAMP, MOST_STAMP, _YEARS)

    return convert


def _object_reader(
    sql_type: SqlType, handling: Handling, to_utc: Callable[[int], int]
) -> Callable[[Any], int]:
    """Return the function from an object of parts, or of text and its zone, to microseconds."""
    by_zone = dict[str, Converter]()

    def convert(value: Any) -> int:
        # TiCDC's simple protocol writes a zone's name, and text in this zone.
        if value.keys() != {"location", "value"}:
            return _stamp_of_parts(sql_type, value, to_utc)
        zone, text = str(value["location"]), value["value"]
        if sql_type.name != "TIMESTAMP" or type(text) is not str:
            raise refuse(sql_type, value, "it is text in a time zone: declare TIMESTAMP")
        if zone not in by_zone:
            try:
                by_zone[zone] = _timestamp_converter(sql_type, replace(handling, time_zone=zone))
            except FormatOptionError:
                raise refuse(sql_type, value, "an unknown time zone: declare STRING") from None
        return int(by_zone[zone](text))

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
        raise ConversionError(
            "expected a time zone in a TIMESTAMP's text, got none: declare TIMESTAMP_NTZ, or set "
            "time_zone to the zone that the producer writes in"
        )

    if time_zone is None:
        return undeclared
    if time_zone == "UTC":
        return lambda micros: micros
    try:
        zone = ZoneInfo(time_zone)
    except (KeyError, ValueError, OSError):
        raise FormatOptionError(
            f"time_zone {time_zone!r} is unknown; use a name such as 'Europe/Berlin' or 'UTC'"
        ) from None

    def of_zone(micros: int) -> int:
        local = datetime(1970, 1, 1) + timedelta(microseconds=micros)
        return (
            local.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=timezone.utc)
        ) // timedelta(microseconds=1)

    return of_zone


def _timestamp_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    with_zone = sql_type.name == "TIMESTAMP"
    unit = "" if with_zone else epoch_unit(sql_type, handling)[0]
    between = "T" if iso or handling.time not in ("text", None) else " "
    zone = "Z" if with_zone or handling.time == "isostring" else ""
    write = (
        _epoch_writer(sql_type, unit)
        if unit
        else lambda value: timestamp_text(value, between) + zone
    )
    return _ranged(sql_type, LEAST_STAMP, MOST_STAMP, write)


# --------------------------------------------------------------------------------------------------
# durations

_INTERVAL_TEXT = re.compile(r"(-?)([0-9]{1,9}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?")
_MOST_INTERVAL = 10**9 * 3_600_000_000 - 1
"""A duration's text has at most nine digits of hours."""


def interval_text(micros: int) -> str:
    """Return a duration as ``[-]HH:mm:ss[.fraction]``; hours can exceed 24."""
    return f"-{time_text(-micros)}" if micros < 0 else time_text(micros)


def _interval_converter(sql_type: SqlType, handling: Handling) -> Converter:
    of_number = _epoch(sql_type, handling, -(2**63), 2**63 - 1)

    def convert(value: Any) -> int:
        if type(value) is dict:
            return (_time_of_parts if "hour" in value else _duration_of)(sql_type, value)
        if type(value) is not str:
            return of_number(value)
        match = _INTERVAL_TEXT.fullmatch(value)
        if match is None or int(match[3]) > 59 or int(match[4]) > 59:
            raise refuse(sql_type, value, "expected [-]hours:mm:ss[.fraction]")
        micros = ((int(match[2]) * 60 + int(match[3])) * 60 + int(match[4])) * 1_000_000 + _micros(
            match[5]
        )
        return -micros if match[1] else micros

    return convert


def _interval_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter | None:
    unit = epoch_unit(sql_type, handling)[0]
    return (
        _epoch_writer(sql_type, unit)
        if unit
        else _ranged(sql_type, -_MOST_INTERVAL, _MOST_INTERVAL, interval_text)
    )


# --------------------------------------------------------------------------------------------------
# the types

INT64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
TYPES = {
    "DATE": ValueType(
        canonical=lambda _: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)],
        converter=_date_converter,
        writer=_date_writer,
        to_python=lambda value: date.fromordinal(value + _EPOCH_DAY),
        to_text=date_text,
    ),
    "TIME": ValueType(
        canonical=lambda _: Annotated[int, msgspec.Meta(ge=0, lt=DAY_MICROS)],
        converter=_time_converter,
        writer=_time_writer,
        to_python=lambda value: (_EPOCH + timedelta(microseconds=value)).time(),
        to_text=time_text,
    ),
    "TIMESTAMP": ValueType(
        canonical=lambda _: INT64,
        converter=_timestamp_converter,
        writer=_timestamp_writer,
        to_python=lambda value: (_EPOCH + timedelta(microseconds=value)).replace(
            tzinfo=timezone.utc
        ),
        to_text=lambda value: timestamp_text(value) + "Z",
    ),
    "TIMESTAMP_NTZ": ValueType(
        canonical=lambda _: INT64,
        converter=_timestamp_converter,
        writer=_timestamp_writer,
        to_python=lambda value: _EPOCH + timedelta(microseconds=value),
        to_text=timestamp_text,
    ),
    "INTERVAL DAY TO SECOND": ValueType(
        canonical=lambda _: INT64,
        converter=_interval_converter,
        writer=_interval_writer,
        to_python=lambda value: timedelta(microseconds=value),
        to_text=interval_text,
    ),
}
EPOCH_TYPES = tuple(name for name in TYPES if name != "DATE")
"""The types whose numbers have a unit; a DATE's are days."""
TIMESTAMP_TYPES = ("TIMESTAMP", "TIMESTAMP_NTZ")
UNAMBIGUOUS_TEXT = ("DATE", "TIMESTAMP_NTZ")
"""The types whose text has a single meaning, independent of the producer's configuration."""
GUESSED_FROM_TEXT = ("DATE", "TIMESTAMP", "TIMESTAMP_NTZ")
"""The types that inference tries for text, in this order."""


# --------------------------------------------------------------------------------------------------
# Avro's logical types of times: the column's type of each, and its unit

LOGICAL_TIMES: Mapping[str, tuple[SqlType, Literal["ms", "us", "ns"]]] = {
    "time-millis": (SqlType("TIME", 3), "ms"),
    "time-micros": (SqlType("TIME", 6), "us"),
    "timestamp-millis": (SqlType("TIMESTAMP", 3), "ms"),
    "timestamp-micros": (SqlType("TIMESTAMP", 6), "us"),
    "timestamp-nanos": (SqlType("TIMESTAMP", 9), "ns"),
    "local-timestamp-millis": (SqlType("TIMESTAMP_NTZ", 3), "ms"),
    "local-timestamp-micros": (SqlType("TIMESTAMP_NTZ", 6), "us"),
    "local-timestamp-nanos": (SqlType("TIMESTAMP_NTZ", 9), "ns"),
}
"""A ``timestamp-*`` is an instant, and a ``local-timestamp-*`` has no zone."""
