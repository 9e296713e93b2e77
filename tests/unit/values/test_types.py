"""Converters: accepted and refused values of each type, without lost or guessed digits."""

import base64
import math
import struct
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_HALF_UP, Decimal, localcontext
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import ABSENT, Column, Handling, columns, get_format, to_ddl
from cdc_formats.decoding.rows import RowConverter, undeclared
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.nested import NESTED_TYPES
from cdc_formats.values.numbers import INTEGER_BITS, decimal_text, shortest
from cdc_formats.values.schema import TYPE_NAMES, ConversionError, SqlType, backquoted, name_parts
from cdc_formats.values.times import epoch_unit
from cdc_formats.values.types import TYPES, converter, cuts, holds, wider
from tests.support.error_texts import error_test, text_test
from tests.support.examples import examples

quick = settings(max_examples=examples(100), deadline=None, derandomize=True)
D = Decimal
DEFAULT = Handling()


def of(sql_type: str, handling: Handling = DEFAULT):
    return converter(columns(f"c {sql_type}")[0].type, handling)


PRECISE, STRING, UNDECLARED = (
    Handling(decimal="precise"),
    Handling(decimal="string"),
    Handling(decimal=None, time=None),
)
LONG, UNSIGNED = (
    Handling(decimal="precise", bigint_unsigned="long"),
    Handling(decimal="precise", bigint_unsigned="precise"),
)
ISO, UTC = Handling(time="isostring"), Handling(time_zone="UTC")
HALF_UP = Handling(rounding="half_up")
MS, US, NS = Handling(time="connect"), Handling(time="microseconds"), Handling(time="nanoseconds")
ADAPTIVE, ADAPTIVE_US = Handling(time="adaptive"), Handling(time="adaptive_time_microseconds")
BERLIN, NEW_YORK = Handling(time_zone="Europe/Berlin"), Handling(time_zone="America/New_York")
DAY = 86_400_000_000
TEXT = "__debezium_unavailable_value"
PLACE = Handling(placeholder=TEXT)


def test_every_type_of_a_schema_is_declared_in_its_family() -> None:
    assert sorted([*TYPES, *NESTED_TYPES]) == sorted(TYPE_NAMES)


ACCEPTED: list[tuple[str, Handling, Any, Any]] = [
    ("BOOLEAN", Handling(), True, True),
    ("BOOLEAN", Handling(), False, False),
    ("BOOLEAN", Handling(), 1, True),
    ("BOOLEAN", Handling(), 0, False),
    ("BOOLEAN", Handling(), "1", True),
    ("BOOLEAN", Handling(), "0", False),
    ("BOOLEAN", Handling(), " TRUE ", True),
    ("BOOLEAN", Handling(), "false", False),
    ("TINYINT", Handling(), -128, -128),
    ("TINYINT", Handling(), D("1.0"), 1),
    ("SMALLINT", Handling(), "32767", 32767),
    ("INT", Handling(), " +7 ", 7),
    ("INT", Handling(), "-0", 0),
    ("INT", Handling(), D("1E+2"), 100),
    ("INT", Handling(), D("7.00"), 7),
    ("INT", Handling(), "007", 7),
    ("BIGINT", Handling(), -(2**63), -(2**63)),
    ("BIGINT", Handling(), str(2**63 - 1), 2**63 - 1),
    ("DOUBLE", Handling(), 1, 1.0),
    ("DOUBLE", Handling(), D("0.1"), 0.1),
    ("DOUBLE", Handling(), "1.0E308", 1e308),
    ("DOUBLE", Handling(), " .5 ", 0.5),
    ("DOUBLE", Handling(), "5.", 5.0),
    ("DOUBLE", Handling(), D("1E-400"), 0.0),
    ("DOUBLE", Handling(), 0.25, 0.25),
    ("DOUBLE", Handling(), "Infinity", math.inf),
    ("DOUBLE", Handling(), "-Infinity", -math.inf),
    ("FLOAT", Handling(), D("0.1"), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
    ("FLOAT", Handling(), 16777217, 16777216.0),
    ("FLOAT", Handling(), "1.00000005960464477539062500000000000001", 1 + 2.0**-23),
    ("FLOAT", Handling(), 2**60 + 2**36 + 1, 2.0**60 + 2.0**37),
    ("FLOAT", Handling(), "340282356779733661637539395458142568447.9", 3.4028234663852886e38),
    ("DECIMAL(10,3)", Handling(), "3.140", "3.140"),
    ("DECIMAL(10,3)", Handling(), "3.14", "3.140"),
    ("DECIMAL(10,3)", Handling(), "-3.140", "-3.140"),
    ("DECIMAL(10,3)", Handling(), "0.000", "0.000"),
    ("DECIMAL(10,3)", Handling(), "-0.000", "0.000"),
    ("DECIMAL(10,3)", Handling(), "00.140", "0.140"),
    ("DECIMAL(10,3)", Handling(), "+1.000", "1.000"),
    ("DECIMAL(10,3)", Handling(), ".500", "0.500"),
    ("DECIMAL(10,3)", Handling(), "1234567.891", "1234567.891"),
    ("DECIMAL(10,3)", Handling(), "1.00500", "1.005"),
    ("DECIMAL(10,3)", Handling(), D("1.00500"), "1.005"),
    ("DECIMAL(10,3)", Handling(), "1e-3", "0.001"),
    ("DECIMAL(10,3)", Handling(), D("1.0E-3"), "0.001"),
    ("DECIMAL(10,3)", HALF_UP, "1.0005", "1.001"),
    ("DECIMAL(10,3)", HALF_UP, "-1.0005", "-1.001"),
    ("DECIMAL(10,3)", HALF_UP, "0.0004", "0.000"),
    ("DECIMAL(10,3)", HALF_UP, D("0.30000000000000004"), "0.300"),
    ("DECIMAL(10,3)", Handling(), " 1.5 ", "1.500"),
    ("DECIMAL(10,3)", Handling(), "1e3", "1000.000"),
    ("DECIMAL(10,3)", Handling(), "0E-18", "0.000"),
    ("DECIMAL(10,3)", Handling(), D("0E+999999999"), "0.000"),
    ("DECIMAL(10,3)", HALF_UP, D("1E-999999999"), "0.000"),
    ("DECIMAL(10,3)", Handling(), 5, "5.000"),
    ("DECIMAL(10,3)", Handling(), -5, "-5.000"),
    ("DECIMAL(3,3)", Handling(), "0.999", "0.999"),
    ("DECIMAL(3,3)", HALF_UP, D("0.0005"), "0.001"),
    ("DECIMAL(5,0)", Handling(), "123", "123"),
    ("DECIMAL(5,0)", Handling(), "-0", "0"),
    ("DECIMAL(5,0)", Handling(), "1.0", "1"),
    ("DECIMAL(5,0)", HALF_UP, "1.5", "2"),
    ("DECIMAL(38,18)", Handling(), D("99999999999999999999.999999999999999999"), "99999999999999999999.999999999999999999"),
    ("DECIMAL(38,38)", Handling(), D("1E-38"), "0." + "0" * 37 + "1"),
    ("DECIMAL(38,0)", Handling(), 10**38 - 1, "9" * 38),
    ("DECIMAL", Handling(), "7", "7"),
    ("DECIMAL(10,2)", PRECISE, "ATM=", "3.07"),
    ("DECIMAL(10,2)", PRECISE, "/w==", "-0.01"),
    ("DECIMAL(10,2)", PRECISE, "AA==", "0.00"),
    ("DECIMAL(10,2)", PRECISE, {"scale": 3, "value": "BM4="}, "1.23"),
    ("DECIMAL(10,2)", Handling(decimal="precise", rounding="half_up"), {"scale": 3, "value": "BNI="}, "1.23"),
    ("DECIMAL(10,2)", PRECISE, {"scale": -2, "value": "BQ=="}, "500.00"),
    ("DECIMAL(10,2)", PRECISE, D("1.5"), "1.50"),
    ("DECIMAL(10,2)", Handling(decimal="precise", decimal_scale=4), "Zrw=", "2.63"),
    ("DECIMAL(10,2)", Handling(decimal="precise", decimal_scale=4, rounding="half_up"), "ZqY=", "2.63"),
    ("DECIMAL(10,2)", UNDECLARED, D("1.5"), "1.50"),
    ("DECIMAL(10,2)", Handling(decimal="double"), D("3.14"), "3.14"),
    ("DECIMAL(10,2)", Handling(decimal="double", rounding="half_up"), D("1.005"), "1.01"),
    ("ARRAY<STRUCT<a: DECIMAL(3,1)>>", HALF_UP, [{"a": D("1.25")}], [["1.3"]]),
    ("DECIMAL(20,0)", LONG, -1, "18446744073709551615"),
    ("DECIMAL(20,0)", LONG, -(2**63), "9223372036854775808"),
    ("DECIMAL(20,0)", LONG, 5, "5"),
    ("DECIMAL(20,0)", UNSIGNED, -1, "-1"),
    ("DECIMAL(20,0)", UNDECLARED, 5, "5"),
    ("DECIMAL(20,0)", Handling(), -1, "-1"),
    ("STRING", Handling(), "", ""),
    ("STRING", Handling(), 5, "5"),
    ("STRING", Handling(), D("1.10"), "1.10"),
    ("STRING", Handling(), True, "true"),
    ("STRING", Handling(), {"a": [1, D("2.50"), None, "x"]}, '{"a":[1,2.50,null,"x"]}'),
    ("STRING", Handling(), [10**30], "[" + "1" + "0" * 30 + "]"),
    ("CHAR(2)", Handling(), "longer than two", "longer than two"),
    ("VARCHAR(2)", Handling(), " x ", " x "),
    ("BINARY", Handling(), "AP8=", b"\x00\xff"),
    ("BINARY", Handling(), "", b""),
    ("BINARY", Handling(binary="hex"), "00fF", b"\x00\xff"),
    ("BINARY", Handling(binary="base64-url-safe"), "-_8=", b"\xfb\xff"),
    ("BINARY", Handling(binary="latin1"), "\x00ÿ", b"\x00\xff"),
    ("BINARY", Handling(), b"\x00", b"\x00"),
    ("DATE", Handling(), "1970-01-01", 0),
    ("DATE", Handling(), "1969-12-31", -1),
    ("DATE", Handling(), "0001-01-01", date.min.toordinal() - date(1970, 1, 1).toordinal()),
    ("DATE", UNDECLARED, 20090, 20090),
    ("DATE", ADAPTIVE, -1, -1),
    ("DATE", ISO, "2025-01-02Z", 20090),
    ("DATE", ISO, "2025-01-02", 20090),
    ("TIME", Handling(), "00:00:00", 0),
    ("TIME", Handling(), "23:59:59.999999", DAY - 1),
    ("TIME", Handling(), "12:00:00.1234567", DAY // 2 + 123456),
    ("TIME", ISO, "03:04:05Z", 11_045_000_000),
    ("TIME", MS, 1, 1000),
    ("TIME", US, DAY - 1, DAY - 1),
    ("TIME", NS, 1999, 1),
    ("TIME", ADAPTIVE_US, 7, 7),
    ("TIME(3)", ADAPTIVE, 7, 7000),
    ("TIME(6)", ADAPTIVE, 7, 7),
    ("TIMESTAMP(3)", ADAPTIVE, 7, 7000),
    ("TIMESTAMP_NTZ(3)", ADAPTIVE_US, 7, 7000),
    ("TIMESTAMP_NTZ(4)", ADAPTIVE_US, 7, 7),
    ("TIMESTAMP_NTZ(9)", ADAPTIVE, -1, -1),
    ("TIMESTAMP_NTZ", NS, 1999, 1),
    ("TIMESTAMP_NTZ", Handling(epoch_unit="ms", time="isostring"), -1, -1000),
    ("TIMESTAMP_NTZ", Handling(), "1970-01-01 00:00:00", 0),
    ("TIMESTAMP_NTZ", Handling(), "1970-01-01T00:00:00.1", 100_000),
    ("TIMESTAMP_NTZ", Handling(), "1969-12-31 23:59:59.999999999", -1),
    ("TIMESTAMP_NTZ", ISO, "1970-01-01T00:00:00Z", 0),
    ("TIMESTAMP", Handling(), "1970-01-01 01:00:00+01:00", 0),
    ("TIMESTAMP", Handling(), "1970-01-01T00:00:00.000001Z", 1),
    ("TIMESTAMP", Handling(), "1969-12-31 18:30:00-0530", 0),
    ("TIMESTAMP", Handling(), "1970-01-01 14:00:00+14", 0),
    ("TIMESTAMP", UTC, "1970-01-01 00:00:00", 0),
    ("TIMESTAMP", BERLIN, "1970-01-01 01:00:00", 0),
    ("TIMESTAMP", BERLIN, "2025-07-01 02:00:00", 1_751_328_000_000_000),
    ("TIMESTAMP", BERLIN, "1970-01-01 00:00:00Z", 0),
    ("INTERVAL DAY TO SECOND", Handling(), "-838:59:59", -(838 * 3600 + 59 * 60 + 59) * 1_000_000),
    ("INTERVAL DAY TO SECOND", Handling(), "0:00:00.5", 500_000),
    ("INTERVAL DAY TO SECOND", ADAPTIVE, -5, -5),
    ("ARRAY<INT>", Handling(), [1, None, "2"], [1, None, 2]),
    ("ARRAY<INT>", Handling(), [], []),
    ("STRING", Handling(), TEXT, TEXT),
    ("ARRAY<STRING>", PLACE, ["x", TEXT], ["x", TEXT]),
    ("ARRAY<STRING>", PLACE, [TEXT, TEXT], [TEXT, TEXT]),
    ("MAP<STRING, INT>", Handling(), {"b": 1, "a": None}, [["a", None], ["b", 1]]),
    ("MAP<INT, STRING>", Handling(), {"10": "x", "9": "y"}, [[9, "y"], [10, "x"]]),
    ("MAP<SMALLINT, DOUBLE>", Handling(), [[3, -2.0], [1, 1.5]], [[1, 1.5], [3, -2.0]]),
    ("MAP<SMALLINT, DOUBLE>", Handling(), [], []),
    ("STRUCT<a: INT, b: DATE>", Handling(), {"b": "1970-01-02", "c": 1}, [None, 1]),
    ("ARRAY<STRUCT<a: ARRAY<DECIMAL(3,1)>>>", Handling(), [{"a": [1]}], [[["1.0"]]]),
    ("ARRAY<DECIMAL(3,1)>", PRECISE, ["AQ=="], ["0.1"]),
]  # fmt: skip


def parts(**more: Any) -> dict[str, Any]:
    """Return the object of a time as time.precision.mode=structured writes it."""
    day = {"year": 1969, "month": 12, "day": 31}
    clock = {"hour": 23, "minute": 59, "second": 59, "nanos": 999_999_999}
    return {**day, **clock, "specialValue": None, "precision": 6, **more}


def day_parts(**more: Any) -> dict[str, Any]:
    return {"year": 2025, "month": 1, "day": 2, "specialValue": None, **more}


def clock_parts(**more: Any) -> dict[str, Any]:
    return {"hour": 3, "minute": 4, "second": 5, "nanos": 6_999, "precision": None, **more}


def duration_parts(**more: Any) -> dict[str, Any]:
    zero = dict.fromkeys(("years", "months", "days", "hours", "minutes", "seconds", "nanos"), 0)
    return {**zero, "precision": 0, **more}


SPECIAL = dict.fromkeys(parts()) | {"specialValue": "POSITIVE_INFINITY", "precision": 6}
STRUCTURED = Handling(time="structured")
ACCEPTED += [
    ("DATE", STRUCTURED, day_parts(), 20090),
    ("DATE", ISO, day_parts(year=1), date(1, 1, 2).toordinal() - date(1970, 1, 1).toordinal()),
    ("TIME", STRUCTURED, clock_parts(), 11_045_000_006),
    ("TIME(6)", STRUCTURED, duration_parts(hours=23, minutes=59, seconds=59, nanos=1000), DAY - 999_999),
    ("TIMESTAMP_NTZ", STRUCTURED, parts(), -1),
    ("TIMESTAMP_NTZ(3)", UNDECLARED, parts(year=1500, month=3, day=10, hour=0, minute=0, second=0, nanos=0), -171_596 * DAY),
    ("TIMESTAMP", STRUCTURED, parts(offsetSeconds=3600, zoneId="+01:00"), -3_600_000_001),
    ("TIMESTAMP", STRUCTURED, parts(offsetSeconds=0, zoneId=None), -1),
    ("TIMESTAMP", BERLIN, parts(), -3_600_000_001),
    ("INTERVAL DAY TO SECOND", STRUCTURED, duration_parts(hours=-838, minutes=-59, seconds=-59), -(838 * 3600 + 59 * 60 + 59) * 1_000_000),
    ("INTERVAL DAY TO SECOND", STRUCTURED, duration_parts(nanos=-1_999), -1),
    ("INTERVAL DAY TO SECOND", STRUCTURED, duration_parts(days=1, seconds=2), DAY + 2_000_000),
    ("INTERVAL DAY TO SECOND", STRUCTURED, clock_parts(), 11_045_000_006),
    ("ARRAY<DATE>", STRUCTURED, [day_parts(), None], [20090, None]),
    ("STRING", STRUCTURED, day_parts(), '{"year":2025,"month":1,"day":2,"specialValue":null}'),
]  # fmt: skip

REFUSED: list[tuple[str, Handling, Any]] = [
    ("DATE", STRUCTURED, {}),
    ("DATE", STRUCTURED, parts()),
    ("DATE", STRUCTURED, day_parts(day=None)),
    ("DATE", STRUCTURED, day_parts(day=True)),
    ("DATE", STRUCTURED, day_parts(month=13)),
    ("DATE", STRUCTURED, day_parts(year=0, month=0, day=0)),
    ("DATE", STRUCTURED, day_parts(year=-4712)),
    ("DATE", STRUCTURED, day_parts(year=10**12)),
    ("DATE", STRUCTURED, {**dict.fromkeys(day_parts()), "specialValue": "NEGATIVE_INFINITY"}),
    ("TIME", STRUCTURED, clock_parts(hour=24)),
    ("TIME", STRUCTURED, clock_parts(nanos=10**9)),
    ("TIME", STRUCTURED, duration_parts(hours=24)),
    ("TIME", STRUCTURED, duration_parts(nanos=-1000)),
    ("TIME", STRUCTURED, 5),
    ("TIMESTAMP_NTZ", STRUCTURED, day_parts()),
    ("TIMESTAMP_NTZ", STRUCTURED, SPECIAL),
    ("TIMESTAMP_NTZ", STRUCTURED, parts(offsetSeconds=0)),
    ("TIMESTAMP_NTZ", STRUCTURED, parts(second=60)),
    ("TIMESTAMP_NTZ", STRUCTURED, 5),
    ("TIMESTAMP", STRUCTURED, parts()),
    ("TIMESTAMP", STRUCTURED, parts(year=9999, offsetSeconds=-3600)),
    ("TIMESTAMP", STRUCTURED, {**SPECIAL, "offsetSeconds": None, "zoneId": None}),
    ("INTERVAL DAY TO SECOND", STRUCTURED, duration_parts(months=1)),
    # PostgreSQL's infinities, as Debezium writes them (recorded: 3.7.0), and its last timestamp.
    ("DATE", ADAPTIVE, -622_191_234),
    ("DATE", ADAPTIVE, 2_146_033_979),
    ("DATE", ADAPTIVE, -625_821_272),
    ("DATE", ADAPTIVE, -2_147_472_691),
    ("TIMESTAMP_NTZ(6)", ADAPTIVE, -9_223_372_036_853_775_810),
    ("TIMESTAMP_NTZ(3)", ADAPTIVE, 9_223_372_036_825_200_000),
    ("TIMESTAMP_NTZ(3)", ADAPTIVE, -9_223_372_036_832_400_000),
    ("TIMESTAMP_NTZ(6)", ADAPTIVE, 9_223_372_036_825_200_000),
    ("TIMESTAMP_NTZ(6)", ADAPTIVE, -9_223_372_036_832_400_000),
    ("TIMESTAMP_NTZ(6)", ADAPTIVE, 2**63 - 1),
    ("TIMESTAMP_NTZ(6)", ADAPTIVE, -(2**63)),
    ("TIMESTAMP_NTZ", ISO, "infinity"),
    ("TIMESTAMP", Handling(), "-infinity"),
    ("INTERVAL DAY TO SECOND", STRUCTURED, duration_parts(seconds=2**62)),
    ("BOOLEAN", Handling(), 2),
    ("BOOLEAN", Handling(), "yes"),
    ("BOOLEAN", Handling(), ""),
    ("BOOLEAN", Handling(), D("1.0")),
    ("TINYINT", Handling(), 128),
    ("SMALLINT", Handling(), "-32769"),
    ("INT", Handling(), 2**31),
    ("INT", Handling(), D("0.5")),
    ("INT", Handling(), D("1E+999999999")),
    ("INT", Handling(), D("1E-999999999")),
    ("INT", Handling(), "1.0"),
    ("INT", Handling(), "1e2"),
    ("INT", Handling(), "٣"),
    ("INT", Handling(), "1_000"),
    ("INT", Handling(), "9" * 41),
    ("INT", Handling(), True),
    ("INT", Handling(), 1.0),
    ("BIGINT", Handling(), 2**63),
    ("DOUBLE", Handling(), "nan"),
    ("DOUBLE", Handling(), "1_0"),
    ("DOUBLE", Handling(), "0x10"),
    ("DOUBLE", Handling(), True),
    ("DOUBLE", Handling(), 10**400),
    ("DOUBLE", Handling(), "1e999"),
    ("FLOAT", Handling(), D("3.4028236E+38")),
    ("FLOAT", Handling(), "340282356779733661637539395458142568448"),
    ("DECIMAL(10,3)", Handling(), "1.0005"),
    ("DECIMAL(10,3)", Handling(), "0.0004"),
    ("DECIMAL(10,3)", Handling(), D("1.0005")),
    ("DECIMAL(10,3)", Handling(), D("1E-999999999")),
    ("DECIMAL(10,3)", Handling(decimal="double"), D("0.30000000000000004")),
    ("DECIMAL(10,2)", Handling(decimal="precise", decimal_scale=4), "ZqY="),
    ("DECIMAL(10,2)", PRECISE, {"scale": 3, "value": "BNI="}),
    ("DECIMAL(3,3)", Handling(), D("0.0005")),
    ("DECIMAL(5,0)", Handling(), "1.5"),
    ("DECIMAL(5,0)", HALF_UP, "99999.5"),
    ("DECIMAL(10,3)", HALF_UP, "12345678.000"),
    ("DECIMAL(10,3)", HALF_UP, "NaN"),
    ("ARRAY<STRUCT<a: DECIMAL(3,1)>>", Handling(), [{"a": D("1.25")}]),
    ("BINARY", Handling(binary=None), "AP8="),
    ("DECIMAL(10,3)", Handling(), "12345678.000"),
    ("DECIMAL(10,3)", Handling(), "9999999.9995"),
    ("DECIMAL(10,3)", Handling(), 10**7),
    ("DECIMAL(10,3)", Handling(), "1E+999999999"),
    ("DECIMAL(10,3)", Handling(), "1E+9999999999"),
    ("DECIMAL(10,3)", Handling(), "NaN"),
    ("DECIMAL(10,3)", Handling(), "Infinity"),
    ("DECIMAL(10,3)", Handling(), ""),
    ("DECIMAL(10,3)", Handling(), "."),
    ("DECIMAL(10,3)", Handling(), "1.٣٣٣"),
    ("DECIMAL(10,3)", Handling(), "1,5"),
    ("DECIMAL(10,3)", Handling(), "--1.000"),
    ("DECIMAL(10,3)", Handling(), "1-1.000"),
    ("DECIMAL(10,3)", Handling(), "_1.000"),
    ("DECIMAL(10,3)", Handling(), True),
    ("DECIMAL(10,3)", Handling(), 1.5),
    ("DECIMAL(10,3)", Handling(), [1]),
    ("DECIMAL(10,3)", Handling(), {"scale": 1}),
    ("DECIMAL(10,3)", Handling(), {"scale": True, "value": "AQ=="}),
    ("DECIMAL(10,3)", Handling(), {"scale": 10**9, "value": "AQ=="}),
    ("DECIMAL(10,3)", Handling(), {"scale": 1, "value": 5}),
    ("DECIMAL(10,3)", Handling(), {"scale": 1, "value": ""}),
    ("DECIMAL(3,3)", Handling(), 1),
    ("DECIMAL(10,2)", PRECISE, "12.34"),
    ("DECIMAL(10,2)", PRECISE, "AQ"),
    ("DECIMAL(10,2)", PRECISE, "A Q=="),
    ("DECIMAL(10,2)", PRECISE, base64.b64encode(b"\x7f" * 65).decode()),
    ("DECIMAL(10,2)", UNDECLARED, "12.34"),
    ("DECIMAL(10,2)", STRING, "AQ=="),
    ("DECIMAL(20,0)", UNDECLARED, -1),
    ("DECIMAL(20,0)", PRECISE, -1),
    ("DECIMAL(20,0)", LONG, -(2**63) - 1),
    ("BINARY", Handling(), "AP8"),
    ("BINARY", Handling(), "AP8=!"),
    ("BINARY", Handling(), "ü"),
    ("BINARY", Handling(), 5),
    ("BINARY", Handling(binary="hex"), "0"),
    ("BINARY", Handling(binary="hex"), "zz"),
    ("BINARY", Handling(binary="latin1"), "€"),
    ("DATE", Handling(), 0),
    ("DATE", Handling(), "2025-1-2"),
    ("DATE", Handling(), "2025-02-30"),
    ("DATE", Handling(), "2025-W01-1"),
    ("DATE", Handling(), "20250102"),
    ("DATE", Handling(), "2025-01-02Z"),
    ("DATE", Handling(), "10000-01-01"),
    ("DATE", ADAPTIVE, 2**31 - 1),
    ("DATE", ADAPTIVE, True),
    ("TIME", Handling(), "03:04:05Z"),
    ("TIME", Handling(), "24:00:00"),
    ("TIME", Handling(), "12:60:00"),
    ("TIME", Handling(), "12:00:60"),
    ("TIME", Handling(), "12:00:00."),
    ("TIME", Handling(), "12:00:00.1234567890"),
    ("TIME", Handling(), "-01:00:00"),
    ("TIME", Handling(), 1),
    ("TIME", ISO, 1),
    ("TIME", UNDECLARED, 1),
    ("TIME", ADAPTIVE, 1),
    ("TIME", US, -1),
    ("TIME", US, DAY),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02"),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02 03:04"),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02  03:04:05"),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02 03:04:05."),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02 03:04:05Z"),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02 03:04:05 BC"),
    ("TIMESTAMP_NTZ", Handling(), "0000-00-00 00:00:00"),
    ("TIMESTAMP_NTZ", Handling(), "2025-01-02 03:04:60"),
    ("TIMESTAMP_NTZ", UNDECLARED, 1),
    ("TIMESTAMP_NTZ", ADAPTIVE, 1),
    ("TIMESTAMP_NTZ", US, D("1.5")),
    ("TIMESTAMP_NTZ", US, 2**63 - 1),
    ("TIMESTAMP_NTZ", US, 10**400),
    ("TIMESTAMP", Handling(), "2025-01-02 03:04:05"),
    ("TIMESTAMP", Handling(), "2025-01-02 03:04:05+01:"),
    ("TIMESTAMP", Handling(), "2025-01-02 03:04:05+19:00"),
    ("TIMESTAMP", Handling(), "2025-01-02 03:04:05+01:60"),
    ("TIMESTAMP", Handling(), "2025-01-02 03:04:05 UTC"),
    ("TIMESTAMP", Handling(), "infinity"),
    ("TIMESTAMP", Handling(), "0001-01-01 00:00:00+01:00"),
    ("TIMESTAMP", Handling(), "9999-12-31 23:59:59-01:00"),
    ("TIMESTAMP", BERLIN, "0001-01-01 00:00:00"),
    ("TIMESTAMP", NEW_YORK, "9999-12-31 23:59:59"),
    ("INTERVAL DAY TO SECOND", Handling(), "1:2:3"),
    ("INTERVAL DAY TO SECOND", Handling(), "01:60:00"),
    ("INTERVAL DAY TO SECOND", Handling(), 5),
    ("INTERVAL DAY TO SECOND", MS, 5),
    ("INTERVAL DAY TO SECOND", US, 2**63),
    ("ARRAY<INT>", Handling(), "[1]"),
    ("ARRAY<INT>", Handling(), {"a": 1}),
    ("ARRAY<INT>", Handling(), [[1]]),
    ("MAP<STRING, INT>", Handling(), [["a", 1]]),
    ("MAP<STRING, INT>", Handling(), {"a": "x"}),
    ("MAP<INT, INT>", Handling(), {"a": 1}),
    ("TIMESTAMP_NTZ", Handling(time="nanoseconds"), 2**63 - 1),
    ("TIMESTAMP_NTZ(9)", Handling(time="adaptive"), -(2**63)),
    ("MAP<INT, INT>", Handling(), [[1, 2, 3]]),
    ("MAP<INT, INT>", Handling(), [[None, 2]]),
    ("MAP<INT, INT>", Handling(), [1]),
    ("STRUCT<a: INT>", Handling(), [1]),
    ("STRUCT<a: INT>", Handling(), {"a": "x"}),
]  # fmt: skip


def declared(handling: Handling) -> str:
    default = Handling()
    set_ = [
        f"{name}={getattr(handling, name)}"
        for name in vars(default)
        if getattr(handling, name) != getattr(default, name)
    ]
    return f" with {', '.join(set_)}" if set_ else ""


def shown(value: Any) -> str:
    return ascii(value)[:60]


@pytest.mark.parametrize(
    ("sql_type", "handling", "value", "expected"),
    ACCEPTED,
    ids=[f"{t} takes {shown(v)}{declared(h)}" for t, h, v, _ in ACCEPTED],
)
def test_accepts(sql_type: str, handling: Handling, value: Any, expected: Any) -> None:
    result = of(sql_type, handling)(value)
    assert (result, type(result)) == (expected, type(expected))


@quick
@given(
    number=st.integers(0, 2**64 - 1), decimal=st.sampled_from([None, "precise", "string", "double"])
)
def test_every_unsigned_bigint_is_read_from_base64_and_never_taken_for_digits(
    number: int, decimal: Any
) -> None:
    convert = of("DECIMAL(20,0)", Handling(decimal=decimal, bigint_unsigned="precise"))
    raw = number.to_bytes(number.bit_length() // 8 + 1, "big")
    assert convert(base64.b64encode(raw).decode()) == str(number)
    if decimal in ("string", "double"):
        assert convert(str(number)) == str(number)
        assert convert(str(-number)) == str(-number)


def nearest_single(number: D) -> float:
    """Return the 32-bit float nearest to a number, of two the one whose last bit is 0."""
    guess = struct.unpack("<i", struct.pack("<f", abs(float(number))))[0]
    near = [
        struct.unpack("<f", struct.pack("<i", bits))[0]
        for bits in range(max(guess - 2, 0), guess + 3)
    ]
    exact = Fraction(abs(number))
    best = min(
        near,
        key=lambda each: (
            abs(Fraction(each) - exact),
            struct.unpack("<i", struct.pack("<f", each))[0] & 1,
        ),
    )
    return math.copysign(best, number)


@quick
@given(st.integers(0, 0x7F7FFFF0), st.integers(-2, 2), st.integers(1, 60), st.booleans())
def test_a_float_is_the_nearest_to_the_digits_of_the_message(
    bits: int, off: int, digits: int, negative: bool
) -> None:
    low, high = (D(struct.unpack("<f", struct.pack("<i", each))[0]) for each in (bits, bits + 1))
    with localcontext() as context:
        context.prec = 400
        # Around the middle of two 32-bit floats, as near as 60 digits can say.
        number = ((low + high) / 2 + off * (high - low).scaleb(-digits)) * (-1 if negative else 1)
        text = f"{number:f}"
        for value in (text, D(text)):
            assert of("FLOAT")(value) == nearest_single(number)


# --------------------------------------------------------------------------------------------------
# properties

precisions = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
numbers = st.decimals(allow_nan=False, allow_infinity=False) | st.builds(
    lambda digits, exponent: D(digits).scaleb(exponent),
    st.integers(-(10**40), 10**40),
    st.integers(-45, 10),
)


def reference(value: Decimal, precision: int, scale: int) -> Decimal | None:
    """Return the number that SQL stores, None when it does not fit, by exact arithmetic."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 2000, 999_999, -999_999
        if value.adjusted() > 1000:
            return None if value else D(0)
        rounded = (
            value.quantize(D(1).scaleb(-scale), ROUND_HALF_UP) if value.adjusted() > -1000 else D(0)
        )
        return None if abs(rounded) >= D(10) ** (precision - scale) else rounded


@quick
@given(value=numbers, sized=precisions)
def test_decimal_text_equals_decimal_arithmetic(value: Decimal, sized: tuple[int, int]) -> None:
    precision, scale = sized
    expected = reference(value, precision, scale)
    if expected is None:
        with pytest.raises(ConversionError):
            decimal_text(value, precision, scale, "half_up")
        return
    text = decimal_text(value, precision, scale, "half_up")
    if expected == value:
        assert decimal_text(value, precision, scale) == text
    else:
        with pytest.raises(ConversionError, match="more digits after the point"):
            decimal_text(value, precision, scale)
    assert text == (f"{expected:.{scale}f}" if expected else f"{0:.{scale}f}")


@quick
@given(value=numbers, sized=precisions, precise=st.booleans())
def test_every_spelling_of_a_decimal_converts_to_one_text(
    value: Decimal, sized: tuple[int, int], precise: bool
) -> None:
    precision, scale = sized
    stored = reference(value, precision, scale)
    if stored is None:
        return
    expected, sql_type = (
        f"{stored:.{scale}f}" if stored else f"{0:.{scale}f}",
        f"DECIMAL({precision},{scale})",
    )
    unscaled = int(stored.scaleb(scale))
    raw = base64.b64encode(
        unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    ).decode()
    for handling, spelled in (
        (DEFAULT, f"{stored:f}"),
        (DEFAULT, read_json(f"{stored:f}".encode())),
        (DEFAULT, f"{stored:E}"),
        (DEFAULT, {"scale": scale, "value": raw}),
        (STRING, expected),
        (PRECISE, raw),
    ):
        assert of(sql_type, handling)(spelled) == expected


@quick
@given(
    text=st.from_regex(r"\A[-+ ]?[0-9_.]{0,9}\.?[0-9eE]{0,5}\Z"),
    sized=st.sampled_from([(5, 2), (4, 4), (9, 0), (10, 3)]),
)
def test_the_fast_path_for_digits_agrees_with_the_general_one(
    text: str, sized: tuple[int, int]
) -> None:
    precision, scale = sized

    def of_text(padding: str) -> str | None:
        try:
            return of(f"DECIMAL({precision},{scale})")(text + padding)
        except ConversionError:
            return None

    assert of_text("") == of_text(" ")  # a blank keeps a text off the fast path


instants = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30))


def micros(stamp: datetime) -> int:
    return (stamp - datetime(1970, 1, 1)) // timedelta(microseconds=1)


@quick
@given(
    stamp=instants,
    minutes=st.integers(-18 * 60, 18 * 60),
    digits=st.integers(0, 9),
    between=st.sampled_from(" T"),
)
def test_timestamps_agree_with_datetime(
    stamp: datetime, minutes: int, digits: int, between: str
) -> None:
    fraction = f"{stamp.microsecond:06d}000"[:digits]
    text = f"{stamp:%H:%M:%S}" + (f".{fraction}" if fraction else "")
    text = f"{stamp.date().isoformat()}{between}{text}"
    cut = stamp.replace(microsecond=int(fraction[:6].ljust(6, "0")))
    assert of("TIMESTAMP_NTZ")(text) == micros(cut)
    assert of("TIMESTAMP")(text + "Z") == micros(cut)
    sign, (hours, rest) = "-" if minutes < 0 else "+", divmod(abs(minutes), 60)
    zoned = micros(cut - timedelta(minutes=minutes))
    assert of("TIMESTAMP")(f"{text}{sign}{hours:02d}:{rest:02d}") == zoned
    assert of("TIMESTAMP_NTZ", US)(micros(stamp)) == micros(stamp)
    assert of("TIMESTAMP", NS)(micros(stamp) * 1000 + 999) == micros(stamp)


@quick
@given(
    stamp=st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2100, 1, 1)),
    zone=st.sampled_from(["Europe/Berlin", "Asia/Kolkata", "UTC"]),
)
def test_text_without_a_zone_is_read_in_the_declared_one(stamp: datetime, zone: str) -> None:
    expected = stamp.replace(tzinfo=ZoneInfo(zone)).astimezone(timezone.utc).replace(tzinfo=None)
    assert of("TIMESTAMP", Handling(time_zone=zone))(stamp.isoformat(" ")) == micros(expected)


@quick
@given(day=st.dates())
def test_dates_agree_with_date(day: date) -> None:
    days = (day - date(1970, 1, 1)).days
    assert (
        of("DATE")(day.isoformat())
        == of("DATE", ADAPTIVE)(days)
        == of("DATE", ISO)(f"{day.isoformat()}Z")
        == days
    )


@quick
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_are_read_to_the_bit(value: float) -> None:
    assert of("DOUBLE")(repr(value)) == of("DOUBLE")(read_json(repr(value).encode())) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.14, "3.14"),
        (0.1, "0.1"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (123456.789, "123456.79"),
        (16777216.0, "16777216.0"),
        (0.1 + 0.2, "0.3"),
        (1e10, "10000000000.0"),
        (3.4028235e38, "3.4028235e+38"),
        (1.1754944e-38, "1.1754944e-38"),
        (1.4e-45, "1.4e-45"),
        (1e-40, "1e-40"),
    ],
)
def test_floats_of_32_bits_have_the_fewest_digits(value: float, text: str) -> None:
    assert repr(shortest(struct.unpack("<f", struct.pack("<f", value))[0])) == text


@quick
@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_fewest_digits_are_the_same_float_and_one_digit_fewer_is_another(value: float) -> None:
    number = shortest(value)
    assert struct.pack("<f", number) == struct.pack("<f", value)
    digits = len(Decimal(repr(number)).normalize().as_tuple().digits)
    if digits > 2:
        assert struct.pack("<f", float(f"{value:.{digits - 2}e}")) != struct.pack("<f", value)


# --------------------------------------------------------------------------------------------------
# placeholder


@pytest.mark.parametrize(
    ("sql_type", "handling", "value"),
    [
        pytest.param("STRING", PLACE, TEXT, id="text"),
        pytest.param("CHAR(3)", PLACE, TEXT, id="char"),
        pytest.param(
            "STRING", PLACE, base64.b64encode(TEXT.encode()).decode(), id="bytes in base64 as text"
        ),
        pytest.param(
            "STRING",
            Handling(placeholder=TEXT, binary="hex"),
            TEXT.encode().hex(),
            id="bytes in hex as text",
        ),
        pytest.param(
            "BINARY", PLACE, base64.b64encode(TEXT.encode()).decode(), id="bytes in base64"
        ),
        pytest.param(
            "BINARY",
            Handling(placeholder="ÿ??", binary="base64-url-safe"),
            "w78_Pw==",
            id="bytes in URL-safe base64",
        ),
        pytest.param(
            "BINARY",
            Handling(placeholder=TEXT, binary="hex"),
            TEXT.encode().hex(),
            id="bytes in hex",
        ),
        pytest.param("ARRAY<STRING>", PLACE, [TEXT], id="an array of text"),
        pytest.param(
            "ARRAY<STRING>",
            PLACE,
            [base64.b64encode(TEXT.encode()).decode()],
            id="an array of bytes as text",
        ),
        pytest.param("ARRAY<BIGINT>", PLACE, list(TEXT.encode()), id="an array of numbers"),
        pytest.param(
            "ARRAY<BINARY>",
            PLACE,
            [base64.b64encode(TEXT.encode()).decode()],
            id="an array of bytes",
        ),
        pytest.param("MAP<STRING, STRING>", PLACE, {TEXT: TEXT}, id="a map"),
        pytest.param("STRUCT<a: STRING>", PLACE, {TEXT: TEXT}, id="a map as a struct"),
    ],
)
def test_a_placeholder_is_absent_by_the_type_of_its_column(
    sql_type: str, handling: Handling, value: Any
) -> None:
    assert of(sql_type, handling)(value) is ABSENT


# --------------------------------------------------------------------------------------------------
# the units


@pytest.mark.parametrize(
    "mode",
    [
        "adaptive",
        "adaptive_time_microseconds",
        "connect",
        "isostring",
        "microseconds",
        "nanoseconds",
        "structured",
        "text",
        None,
    ],
)
@pytest.mark.parametrize(
    "sql_type", ["TIME", "TIME(3)", "TIMESTAMP(6)", "TIMESTAMP_NTZ(9)", "INTERVAL DAY TO SECOND"]
)
def test_a_column_is_undeclared_exactly_when_its_numbers_have_no_unit(
    sql_type: str, mode: str | None
) -> None:
    table = columns(f"c {sql_type}")
    handling = Handling(time=mode)
    unit, reason = epoch_unit(table[0].type, handling)
    assert (unit == "") is (reason != "")
    expected = bool(reason) and mode not in ("text", "isostring", "structured", None)
    assert bool(undeclared(table, handling)) is expected


# --------------------------------------------------------------------------------------------------
# rows


# --------------------------------------------------------------------------------------------------
# Which type has more values
TYPES_OF_LATTICE = (
    "BOOLEAN",
    "TINYINT",
    "SMALLINT",
    "INT",
    "BIGINT",
    "DECIMAL(5,2)",
    "DECIMAL(20,0)",
    "FLOAT",
    "DOUBLE",
    "STRING",
    "VARCHAR(3)",
    "BINARY",
    "DATE",
    "TIME(3)",
    "TIMESTAMP(3)",
    "TIMESTAMP(6)",
    "TIMESTAMP_NTZ",
    "ARRAY<INT>",
    "MAP<STRING, INT>",
    "VARIANT",
)


def parsed(text: str) -> SqlType:
    return columns(f"x {text}")[0].type


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("INT", "FLOAT", "DOUBLE"),
        ("BIGINT", "DOUBLE", "None"),
        ("DECIMAL(10,2)", "INT", "DECIMAL(12,2)"),
        ("DECIMAL(38,2)", "DECIMAL(38,10)", "None"),
        ("DECIMAL(10,2)", "DOUBLE", "None"),
        ("TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ(6)"),
        ("DATE", "TIMESTAMP", "None"),
        ("VARCHAR(3)", "CHAR(5)", "STRING"),
        ("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<BIGINT>"),
        ("ARRAY<INT>", "ARRAY<DATE>", "None"),
        ("INT", "DATE", "None"),
        ("INT", "STRING", "None"),
    ],
)
def test_the_type_that_has_every_value_of_both(first: str, second: str, expected: str) -> None:
    assert (
        str(wider(parsed(first), parsed(second)))
        == expected
        == str(wider(parsed(second), parsed(first)))
    )


def test_the_three_questions_agree() -> None:
    for wide, narrow in product(map(parsed, TYPES_OF_LATTICE), repeat=2):
        both = wider(wide, narrow)
        if holds(wide, narrow) and "VARCHAR" not in str(wide):
            assert (holds(both, wide), holds(wide, both)) == (True, True), (wide, narrow)
        if both is not None:
            assert not cuts(both, wide), (both, wide)
            assert wider(both, narrow) == both, (both, narrow)


@given(st.tuples(*[st.sampled_from(TYPES_OF_LATTICE)] * 3))
def test_the_order_of_types_makes_no_difference(names: tuple[str, str, str]) -> None:
    text = SqlType("STRING")
    first, second, third = map(parsed, names)
    one = wider(wider(first, second, text) or text, third, text)
    other = wider(first, wider(second, third, text) or text, text)
    # A DECIMAL, or a BIGINT, and a DOUBLE have no common type, so that the order of the numbers may
    # give text earlier.
    assert one == other or text in (one, other)


@given(st.data())
def test_every_number_of_two_exact_types_fits_the_wider_one(data: st.DataObject) -> None:
    first, second = (parsed(data.draw(st.sampled_from(TYPES_OF_LATTICE[1:7]))) for _ in range(2))
    both = wider(first, second)
    for each in (first, second):
        bits = INTEGER_BITS.get(each.name)
        most = (
            Decimal(2**bits)
            if bits
            else Decimal(10 ** (each.precision or 0) - 1).scaleb(-(each.scale or 0))
        )
        if both.name == "DECIMAL":
            assert most < Decimal(10) ** ((both.precision or 0) - (both.scale or 0))
            assert most == most.quantize(Decimal(1).scaleb(-(both.scale or 0)))
        else:
            assert most <= 2 ** INTEGER_BITS[both.name]


# --------------------------------------------------------------------------------------------------
# DDL text to columns and back
@pytest.mark.parametrize(
    ("ddl", "written"),
    [
        pytest.param("id bigint not null", "id BIGINT NOT NULL", id="small letters"),
        pytest.param(
            "id: INT, name: STRING", "id INT, name STRING", id="colons between name and type"
        ),
        pytest.param("`a b` INT, `c``d` INT", "`a b` INT, `c``d` INT", id="names in backquotes"),
        pytest.param(
            "größe INT, 名前 STRING", "`größe` INT, `名前` STRING", id="names that are not English"
        ),
        pytest.param(
            "a DECIMAL, b DEC(5), c NUMERIC(38,38)",
            "a DECIMAL(10,0), b DECIMAL(5,0), c DECIMAL(38,38)",
            id="decimals",
        ),
        pytest.param(
            "a BYTE, b SHORT, c INTEGER, d LONG, e REAL, f BYTES",
            "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f BINARY",
            id="synonyms",
        ),
        pytest.param(
            "a CHAR(3), b VARCHAR(7), c CHAR", "a CHAR(3), b VARCHAR(7), c CHAR", id="sized text"
        ),
        pytest.param(
            "a TIME(3), b TIMESTAMP(6), c TIMESTAMP_NTZ, d TIMESTAMP_LTZ",
            "a TIME(3), b TIMESTAMP(6), c TIMESTAMP_NTZ, d TIMESTAMP",
            id="times",
        ),
        pytest.param(
            "a INTERVAL DAY TO SECOND NOT NULL",
            "a INTERVAL DAY TO SECOND NOT NULL",
            id="an interval",
        ),
        pytest.param(
            "a INT NOT NULL COMMENT 'a, b', b INT",
            "a INT NOT NULL, b INT",
            id="a comment with a comma",
        ),
        pytest.param(
            r"a INT COMMENT 'it\'s', b INT", "a INT, b INT", id="a comment with an escaped quote"
        ),
        pytest.param(
            "a ARRAY<MAP<STRING,ARRAY<INT>>>", "a ARRAY<MAP<STRING, ARRAY<INT>>>", id="nested types"
        ),
        pytest.param(
            "s STRUCT<a: INT NOT NULL, `b c`: STRUCT<d DATE>>",
            "s STRUCT<a: INT NOT NULL, `b c`: STRUCT<d: DATE>>",
            id="structs",
        ),
        pytest.param("s STRUCT<>", "s STRUCT<>", id="an empty struct"),
        pytest.param("  id\n\tINT ,\n name STRING  ", "id INT, name STRING", id="blanks and lines"),
        pytest.param(
            "`` INT, s STRUCT<``: INT>",
            "`` INT, s STRUCT<``: INT>",
            id="empty names, as JSON has them",
        ),
        pytest.param(
            "a string collate UTF8_BINARY NOT NULL, b ARRAY<VARCHAR(3) COLLATE utf8_binary>",
            "a STRING NOT NULL, b ARRAY<VARCHAR(3)>",
            id="a collation",
        ),
        pytest.param("a$b INT, 1st INT", "`a$b` INT, `1st` INT", id="names that require quoting"),
    ],
)
def test_ddl_is_read_and_written(ddl: str, written: str) -> None:
    assert to_ddl(columns(ddl)) == written
    assert columns(to_ddl(columns(ddl))) == columns(ddl)


names = st.text(st.characters() | st.sampled_from("`.-<>:,;'"), max_size=6)
plain = st.sampled_from(
    [name for name in TYPE_NAMES if name not in ("DECIMAL", "ARRAY", "MAP", "STRUCT", "VARIANT")]
).map(SqlType)
sized = st.builds(
    lambda name, size: SqlType(name, size),
    st.sampled_from(["CHAR", "VARCHAR", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ"]),
    st.integers(1, 6),
)
decimals = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: SqlType("DECIMAL", p, s))
)


def nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    arrays = inner.map(lambda element: SqlType("ARRAY", fields=(Column("element", element),)))
    maps = st.builds(
        lambda k, v: SqlType("MAP", fields=(Column("key", k, nullable=False), Column("value", v))),
        inner,
        inner,
    )
    fields = st.lists(st.builds(Column, names, inner, st.booleans()), max_size=3)
    return arrays | maps | fields.map(lambda members: SqlType("STRUCT", fields=tuple(members)))


types = st.recursive(plain | sized | decimals, nested, max_leaves=6) | st.just(SqlType("VARIANT"))
tables = st.lists(
    st.builds(Column, names, types, st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda column: column.name,
)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(table=tables)
def test_columns_are_written_as_ddl_that_reads_back(table: list[Column]) -> None:
    assert columns(to_ddl(table)) == tuple(table)


@given(parts=st.lists(names, min_size=1, max_size=3))
def test_a_qualified_name_has_its_parts(parts: list[str]) -> None:
    assert name_parts(".".join(map(backquoted, parts))) == tuple(parts)


# Base64 of 1 and of 2**64 - 1; digits, which are base64 of a negative number too; two's complement;
# a small number.
UNSIGNED_VALUES = ("AQ==", "AP//////////", "1234", -1, 5)


def outcomes(sql_type: str, handling: Handling, *values: Any) -> str:
    """Return the converted values, or their errors with and without the value."""
    lines = []
    for value in values:
        try:
            lines.append(repr(of(sql_type, handling)(value)))
        except ConversionError as error:
            lines.append(f"{error}\n    {error.bare}")
    return "\n".join(lines)


INVALID_DDL = {
    "a comment that ends twice": "a INT COMMENT 'it''s', b INT",
    "nothing": "",
    "blanks": "  ",
    "a name alone": "id",
    "no comma": "id INT name STRING",
    "a comma at the end": "id INT,",
    "a name twice": "id INT, id STRING",
    "an unknown type": "id GEOMETRY",
    "a type of databases": "id uuid",
    "a collation": "id STRING COLLATE UNICODE_CI",
    "a nested collation": "a STRUCT<b: CHAR(2) COLLATE UTF8_LCASE>",
    "a collation of a number": "id INT COLLATE UTF8_BINARY",
    "too much precision": "id DECIMAL(39,0)",
    "a scale beyond the precision": "id DECIMAL(5,6)",
    "an open parenthesis": "id DECIMAL(5",
    "a digit that is not ASCII": "id DECIMAL(٣)",
    "too fine a time": "id TIME(7)",
    "no length": "id VARCHAR(0)",
    "an array without an element type": "id ARRAY",
    "an open array": "id ARRAY<INT",
    "a map without values": "id MAP<INT>",
    "a comma at the end of a struct": "id STRUCT<a INT, >",
    "another interval": "id INTERVAL YEAR TO MONTH",
    "a comment without text": "id INT COMMENT",
    "a comment without quotes": "id INT COMMENT x",
    "a character that DDL does not have": "id INT; DROP",
    "a punctuation mark instead of a name": "<id INT",
    "quoted text instead of a name": "'id' INT",
    "a type in backquotes": "id `INT`",
}
PAIR = (Column("a", SqlType("INT")), Column("b", SqlType("STRING"), nullable=False))
test_texts = text_test(
    __file__,
    {
        **{
            f"a time of a day or more as {sql_type}, {handling.time}": partial(
                outcomes, sql_type, handling, *values
            )
            for handling, values in (
                (DEFAULT, ("25:00:00", "-00:00:01", "838:59:59")),
                (US, (-1, DAY)),
            )
            for sql_type in ("TIME(6)", "INTERVAL DAY TO SECOND", "STRING")
        },
        "a decimal with too many digits": partial(
            outcomes, "DECIMAL(10,2)", DEFAULT, "9.999", D("9.999"), "1e-3"
        ),
        **{
            f"unsigned BIGINTs, decimal={decimal}, bigint_unsigned={unsigned}": partial(
                outcomes,
                "DECIMAL(20,0)",
                Handling(decimal=decimal, bigint_unsigned=unsigned),
                *UNSIGNED_VALUES,
            )
            for decimal in (None, "precise", "string", "double")
            for unsigned in (None, "long", "precise")
        },
        "a number that is none": partial(outcomes, "DOUBLE", DEFAULT, "NaN"),
        "a number of 32 bits that is none": partial(outcomes, "FLOAT", DEFAULT, "NaN"),
        "a long text instead of a number": partial(outcomes, "INT", DEFAULT, "x" * 1_000_000),
        "undeclared decimals and times": lambda: undeclared(
            columns("a DECIMAL(10,2), b DECIMAL(20,0), c INT, d TIMESTAMP_NTZ"),
            Handling(decimal=None, time="adaptive"),
        ),
        "names that JSON writes with escapes": lambda: RowConverter(
            columns('`a"b\\c` INT, `d\ne` STRING'), DEFAULT
        ).row({'a"b\\c': 1, "d\ne": "x"}, "$"),
        "handlings that differ by column": lambda: RowConverter(
            columns("a DECIMAL(3,1), b DECIMAL(3,1)"), [PRECISE, STRING]
        ).row({"a": "AQ==", "b": "0.1"}, "$"),
        **{
            f"the type of {first} and {second} where text is asked for": partial(
                wider, parsed(first), parsed(second), SqlType("STRING")
            )
            for first, second in (("INT", "DATE"), ("ARRAY<INT>", "ARRAY<DATE>"))
        },
        "times with and without a time zone": lambda: [
            (str(column), column.type.is_spark_time)
            for column in columns("a TIME(3), b time(3) without time zone")
        ],
        "a tuple of columns": partial(columns, PAIR),
        "a list of columns": partial(columns, [*PAIR]),
        **{
            f"the parts of the name {name!r}": partial(name_parts, name)
            for name in ("first-name.a b; DROP", "a..b", "", "a`b", "`a", "a.`b`c")
        },
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"refuses with the expected type, {number}": partial(of(sql_type, handling), value)
            for number, (sql_type, handling, value) in enumerate(REFUSED, 1)
        },
        "base64 of more than 64 bits is not an unsigned bigint": partial(
            of("DECIMAL(20,0)", Handling(decimal="string", bigint_unsigned="precise")),
            base64.b64encode((2**64).to_bytes(9, "big")).decode(),
        ),
        "a refusal shows no more than the beginning of a value, 1": partial(of("INT"), 10**5000),
        "a refusal shows no more than the beginning of a value, 2": partial(of("STRING"), 10**5000),
        "handlings can differ by column": lambda: RowConverter(columns("a INT, b INT"), [PRECISE]),
        "a time is text in spark unless it is declared without time zone": lambda: columns(
            "a ARRAY<TIME WITHOUT TIME ZONE>"
        ),
        "undeclared keys and metadata are refused, 1": lambda: get_format("maxwell-json").decoder(
            "id INT, name STRING", unique_key=["nr"]
        ),
        "undeclared keys and metadata are refused, 2": lambda: get_format("maxwell-json").decoder(
            "id INT", metadata=["tabel"]
        ),
        "undeclared keys and metadata are refused, 3": lambda: get_format("changelog-json").decoder(
            "id INT", metadata=["table"]
        ),
        **{
            f"an unknown time zone, {zone!r}": lambda zone=zone: get_format(
                "maxwell-json", time_zone=zone
            ).decoder("at TIMESTAMP")
            for zone in ("Mars/Olympus", "", "../etc", "Europe")
        },
        "a column that is passed twice": partial(columns, [PAIR[0], PAIR[0]]),
        **{f"DDL with {name}": partial(columns, ddl) for name, ddl in INVALID_DDL.items()},
    },
)
