"""Avro and columns: every writer type in every column type, and round trips of rows."""

import json
import struct
from contextlib import suppress
from datetime import date, datetime, time, timezone
from decimal import Decimal
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import columns
from cdc_formats.avro.records import (
    AvroSchema,
    avro_bytes,
    avro_writer,
    column_converter,
    plain,
    record_schema,
    row_converter,
    without_logical_types,
)
from cdc_formats.encoding import RowWriter
from cdc_formats.errors import (
    DecodeError,
    WriterSchemaError,
)
from cdc_formats.values.schema import TYPE_NAMES, Handling, SqlType, null_or
from tests.support.avro import schemas, written
from tests.support.error_texts import error_test, text_test
from tests.support.examples import examples

CONNECT = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "connect.name": name, **more}


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def read(avro: Any, value: Any, sql_type: str, handling: Handling | None = None) -> Any:
    """Return the canonical value of a column, decoded from the bytes that fastavro writes."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "x", "type": avro}]}
    out = BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(without_logical_types(schema)), {"x": value}
    )
    parsed = AvroSchema(schema)
    rows = row_converter(
        parsed,
        parsed.fields(parsed.top),
        columns(f"x {sql_type}"),
        handling or Handling(binary="bytes"),
    )
    return rows.row(parsed.read(out.getvalue()), "$.after")[0]


DECIMAL = logical("bytes", "decimal", precision=10, scale=2)
FIXED = {
    "type": "fixed",
    "name": "F",
    "size": 8,
    "logicalType": "decimal",
    "precision": 18,
    "scale": 3,
}
VARIABLE = {
    "type": "record",
    "name": "VariableScaleDecimal",
    "connect.name": "io.debezium.data.VariableScaleDecimal",
    "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
}
DURATION = {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}
UUID = {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}
POINT = {
    "type": "record",
    "name": "P",
    "fields": [
        {"name": "y", "type": "double"},
        {"name": "z", "type": "int"},
        {"name": "x", "type": "double"},
    ],
}
ENTRIES = {
    "type": "array",
    "items": {
        "type": "record",
        "name": "MapEntry",
        "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": DECIMAL}],
    },
}
MICROS = 1_529_507_596_945_104


@pytest.mark.parametrize(
    ("avro", "value", "sql_type", "expected"),
    [
        ("boolean", True, "BOOLEAN", True),
        ("boolean", False, "STRING", "false"),
        ("int", 7, "INT", 7),
        ("int", -7, "BIGINT", -7),
        ("int", 127, "TINYINT", 127),
        ("int", 7, "DECIMAL(5,2)", "7.00"),
        ("int", 7, "DOUBLE", 7.0),
        ("int", 1, "BOOLEAN", True),
        ("int", 7, "STRING", "7"),
        ("int", 18321, "DATE", 18321),
        ("long", -(2**63), "BIGINT", -(2**63)),
        ("long", 7, "INT", 7),
        ("long", 7, "DECIMAL(20,0)", "7"),
        ("float", 0.5, "FLOAT", 0.5),
        ("float", 0.5, "DOUBLE", 0.5),
        ("float", 3.14, "DOUBLE", 3.140000104904175),
        ("float", 3.14, "STRING", "3.14"),
        ("float", 3.14, "DECIMAL(20,15)", "3.140000000000000"),
        ("double", 3.140000104904175, "DECIMAL(20,15)", "3.140000104904175"),
        ({"type": "array", "items": "float"}, [3.14], "STRING", "[3.14]"),
        ("double", 0.1, "FLOAT", struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("double", 0.1, "DECIMAL(5,2)", "0.10"),
        ("double", float("inf"), "DOUBLE", float("inf")),
        ("string", "é", "STRING", "é"),
        ("string", "12.5", "DECIMAL(5,2)", "12.50"),
        ("string", "7", "INT", 7),
        (named("string", TIME + "ZonedTimestamp"), "2018-06-20T15:13:16.945104Z", "TIMESTAMP(6)", MICROS),
        (named("string", TIME + "IsoDate"), "2020-02-29Z", "DATE", 18321),
        ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, "b", "STRING", "b"),
        ("bytes", b"\0\xff", "BINARY", b"\0\xff"),
        ({"type": "fixed", "name": "F", "size": 2}, b"\0\xff", "BINARY", b"\0\xff"),
        (named("bytes", "io.debezium.data.Bits"), b"\x05", "BINARY", b"\x05"),
        (DECIMAL, b"\x00\xfa", "DECIMAL(10,2)", "2.50"),
        (DECIMAL, b"\xff\x06", "DECIMAL(10,2)", "-2.50"),
        (DECIMAL, b"\x00", "DECIMAL(10,2)", "0.00"),
        (DECIMAL, b"\xff", "DECIMAL(10,2)", "-0.01"),
        (DECIMAL, b"\x00\xfa", "DECIMAL(10,4)", "2.5000"),
        (DECIMAL, b"\x00\xfa", "DECIMAL(10,1)", "2.5"),
        (DECIMAL, (10**36 + 1).to_bytes(16, "big"), "DECIMAL(38,3)", f"{10**34}.010"),
        (VARIABLE, {"scale": 2, "value": (10**36 + 1).to_bytes(16, "big")}, "STRING", f"{10**34}.01"),
        ("float", struct.unpack("<f", struct.pack("<f", 3.14))[0], "DECIMAL(5,2)", "3.14"),
        ("float", 16777216.0, "DECIMAL(10,2)", "16777216.00"),
        (DECIMAL, b"\x00\xfa", "STRING", "2.50"),
        (DECIMAL, b"\x00\xfa", "DOUBLE", 2.5),
        (DECIMAL, b"\x01\x2c", "INT", 3),
        (DECIMAL, b"\x00\xfa", "BINARY", b"\x00\xfa"),
        (FIXED, (1500).to_bytes(8, "big"), "DECIMAL(18,3)", "1.500"),
        (logical("bytes", "decimal", precision=3), b"\x07", "DECIMAL(3,0)", "7"),
        (named("bytes", CONNECT + "Decimal", **{"connect.parameters": {"scale": "-2"}}), b"\x07", "DECIMAL(5,0)", "700"),
        (VARIABLE, {"scale": 2, "value": b"\x00\xfa"}, "DECIMAL(10,3)", "2.500"),
        (VARIABLE, {"scale": -3, "value": b"\x07"}, "STRING", "7000"),
        (VARIABLE, {"scale": 2, "value": b"\x07"}, "STRUCT<value: BINARY, scale: INT>", [b"\x07", 2]),
        (logical("int", "date"), -1, "DATE", -1),
        (named("int", TIME + "Date"), -719162, "DATE", -719162),
        (named("int", CONNECT + "Date"), 1, "DATE", 1),
        (logical("int", "time-millis"), 1500, "TIME(3)", 1_500_000),
        (logical("long", "time-micros"), 1500, "TIME(6)", 1500),
        (logical("long", "timestamp-millis"), 1500, "TIMESTAMP(3)", 1_500_000),
        (logical("long", "timestamp-micros"), MICROS, "TIMESTAMP", MICROS),
        (logical("long", "timestamp-nanos"), MICROS * 1000 + 999, "TIMESTAMP(9)", MICROS),
        (logical("long", "local-timestamp-millis"), -1500, "TIMESTAMP_NTZ(3)", -1_500_000),
        (logical("long", "local-timestamp-micros"), MICROS, "TIMESTAMP_NTZ(6)", MICROS),
        (logical("long", "local-timestamp-nanos"), MICROS * 1000, "TIMESTAMP_NTZ", MICROS),
        (logical("long", "timestamp-millis"), 1500, "TIMESTAMP_NTZ(3)", 1_500_000),
        (logical("long", "timestamp-millis"), 1500, "BIGINT", 1500),
        (named("int", TIME + "Time"), 1500, "TIME(3)", 1_500_000),
        (named("long", TIME + "MicroTime"), 1500, "TIME(6)", 1500),
        (named("long", TIME + "MicroTime"), -1_000_000, "INTERVAL DAY TO SECOND", -1_000_000),
        (named("long", TIME + "NanoTime"), 1500, "TIME(6)", 1),
        (named("long", TIME + "Timestamp"), 1500, "TIMESTAMP_NTZ(3)", 1_500_000),
        (named("long", TIME + "MicroTimestamp"), MICROS, "TIMESTAMP_NTZ(6)", MICROS),
        (named("long", TIME + "NanoTimestamp"), MICROS * 1000, "TIMESTAMP_NTZ(9)", MICROS),
        (named("long", TIME + "MicroDuration"), 25 * 3_600_000_000, "INTERVAL DAY TO SECOND", 25 * 3_600_000_000),
        (named("long", CONNECT + "Timestamp", logicalType="timestamp-millis"), 1500, "TIMESTAMP(3)", 1_500_000),
        (named("int", CONNECT + "Time", logicalType="time-millis"), 1500, "TIME(3)", 1_500_000),
        (named("int", TIME + "Year"), 2024, "INT", 2024),
        (DURATION, struct.pack("<III", 0, 1, 1500), "INTERVAL DAY TO SECOND", 86_401_500_000),
        (UUID, bytes(range(16)), "STRING", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (logical("string", "uuid"), "00010203-0405-0607-0809-0a0b0c0d0e0f", "STRING", "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        ({"type": "array", "items": ["null", DECIMAL]}, [b"\x07", None], "ARRAY<DECIMAL(5,2)>", ["0.07", None]),
        ({"type": "map", "values": logical("int", "date")}, {"b": 1, "a": 2}, "MAP<STRING, DATE>", [["a", 2], ["b", 1]]),
        ({"type": "map", "values": "long"}, {"2": 1, "10": 2}, "MAP<INT, BIGINT>", [[2, 1], [10, 2]]),
        (ENTRIES, [{"key": 2, "value": b"\x07"}, {"key": 1, "value": b"\x08"}], "MAP<INT, DECIMAL(5,2)>", [[1, "0.08"], [2, "0.07"]]),
        (POINT, {"x": 1.5, "y": 2.5, "z": 3}, "STRUCT<x: DOUBLE, w: STRING, y: DOUBLE>", [1.5, None, 2.5]),
        (POINT, {"x": 1.5, "y": 2.5, "z": 3}, "STRING", '{"y":2.5,"z":3,"x":1.5}'),
        ({"type": "array", "items": DECIMAL}, [b"\x07"], "STRING", "[0.07]"),
        (["null", "string"], None, "STRING", None),
        (["string", "null"], "a", "STRING", "a"),
        (["null", "int", "string"], "7", "BIGINT", 7),
        (["null", "int", "string"], 8, "BIGINT", 8),
        (["int", {"type": "enum", "name": "E", "symbols": ["x"]}], "x", "STRING", "x"),
        ("null", None, "INT", None),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_a_value_in_a_column(avro: Any, value: Any, sql_type: str, expected: Any) -> None:
    result = read(avro, value, sql_type)
    assert (result, type(result)) == (expected, type(expected))
    assert (
        read(
            ["null", avro] if not isinstance(avro, list) and avro != "null" else avro,
            value,
            sql_type,
        )
        == expected
    )


# --------------------------------------------------------------------------------------------------
# writing

ALL = (
    "a BOOLEAN, b TINYINT, c SMALLINT, d INT NOT NULL, e BIGINT, f FLOAT, g DOUBLE, h DECIMAL(10,"
    "3), i STRING, j CHAR(3), k VARCHAR(3), l BINARY, m DATE, n TIME(3), o TIME, p TIMESTAMP(3), q "
    "TIMESTAMP, r TIMESTAMP_NTZ(3), s TIMESTAMP_NTZ(6), t TIMESTAMP_NTZ(9), u INTERVAL DAY TO "
    "SECOND, v ARRAY<INT>, w MAP<STRING, DECIMAL(5,1)>, x STRUCT<y: DATE, z: ARRAY<STRUCT<y: "
    "STRING>>>"
)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "BOOLEAN": st.booleans(),
    "TINYINT": st.integers(-128, 127),
    "SMALLINT": st.integers(-(2**15), 2**15 - 1),
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "FLOAT": st.floats(width=32, allow_nan=False),
    "DOUBLE": st.floats(allow_nan=False),
    "DECIMAL(38,18)": st.decimals(-(10**19), 10**19, places=18).map(
        lambda value: f"{value or Decimal(0):.18f}"
    ),
    "DECIMAL(3,0)": st.integers(-999, 999).map(str),
    "STRING": st.text(),
    "VARIANT": st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers()).map(
        json.dumps
    ),
    "BINARY": st.binary(),
    "DATE": st.integers(-719_162, 2_932_896),
    "TIME": st.integers(0, 86_399_999_999),
    "TIME(3)": st.integers(0, 86_399_999).map(lambda millis: millis * 1000),
    "TIMESTAMP": st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999),
    "TIMESTAMP_NTZ(3)": st.integers(-62_135_596_800_000, 253_402_300_799_999).map(
        lambda millis: millis * 1000
    ),
    "TIMESTAMP_NTZ(9)": st.integers(-(2**63) // 1000 + 1, (2**63 - 1) // 1000),
    "INTERVAL DAY TO SECOND": st.integers(-(2**63), 2**63 - 1),
}
VALUES |= {
    f"ARRAY<{name}>": st.lists(st.none() | VALUES[name], max_size=4)
    for name in ("INT", "DECIMAL(38,18)", "TIMESTAMP_NTZ(3)", "STRING")
}
VALUES |= {
    "MAP<STRING, DATE>": st.dictionaries(st.text(), st.none() | VALUES["DATE"], max_size=4).map(
        lambda m: sorted(map(list, m.items()))
    )
}
VALUES |= {
    "STRUCT<a: INT, b: TIME(3)>": st.tuples(
        st.none() | VALUES["INT"], st.none() | VALUES["TIME(3)"]
    ).map(list)
}


@settings(deadline=None, max_examples=examples(100))
@given(row=st.tuples(*[st.none() | values for values in VALUES.values()]))
def test_written_values_are_read_back_unchanged(row: tuple[Any, ...]) -> None:
    assert {name.partition("(")[0].partition("<")[0] for name in VALUES} >= set(TYPE_NAMES) - {
        "CHAR",
        "VARCHAR",
    }
    declared = columns(", ".join(f"c{number} {name}" for number, name in enumerate(VALUES)))
    schema = record_schema(declared)
    avro = avro_bytes(without_logical_types(schema))(
        RowWriter(declared, Handling(), write=avro_writer).image(row)
    )
    parsed = AvroSchema(schema)
    assert (
        row_converter(parsed, parsed.fields(parsed.top), declared, Handling()).row(
            parsed.read(avro), "$"
        )
        == row
    )


def test_other_readers_read_written_values_by_their_logical_types() -> None:
    declared = columns("a DECIMAL(10,3), b DATE, c TIME(3), d TIMESTAMP(3), e TIMESTAMP_NTZ(6)")
    schema = record_schema(declared)
    avro = avro_bytes(without_logical_types(schema))(
        RowWriter(declared, Handling(), write=avro_writer).image(
            ("-2.500", 18321, 1_500_000, 1_500_000, 1)
        )
    )
    assert fastavro.schemaless_reader(BytesIO(avro), fastavro.parse_schema(schema), None) == {
        "a": Decimal("-2.500"),
        "b": date(2020, 2, 29),
        "c": time(0, 0, 1, 500_000),
        "d": datetime(1970, 1, 1, 0, 0, 1, 500_000, timezone.utc),
        "e": datetime(1970, 1, 1, 0, 0, 0, 1),
    }


# --------------------------------------------------------------------------------------------------
# Avro bytes: fastavro's output is read, damage is a bad record, and unsafe schemas are refused
def reader(schema: Any) -> Any:
    parsed = AvroSchema(schema)
    to_plain = null_or(plain(parsed, parsed.top))
    return lambda data: to_plain(parsed.read(data))


readable = settings(
    deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck)
)


@readable
@given(data=st.data(), pair=schemas())
def test_fastavros_bytes_are_read_as_fastavro_reads_them(data: Any, pair: tuple[Any, Any]) -> None:
    schema, values = pair
    read, avro = reader(schema), written(schema, data.draw(values))
    expected = fastavro.schemaless_reader(BytesIO(avro), fastavro.parse_schema(schema), None)
    assert repr(read(avro)) == repr(expected)


@readable
@given(
    data=st.data(),
    pair=schemas(),
    damage=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_damaged_bytes_raise_only_decode_errors(
    data: Any, pair: tuple[Any, Any], damage: list, cut: int
) -> None:
    schema, values = pair
    read, avro = reader(schema), bytearray(written(schema, data.draw(values)))
    for at, byte in damage:
        avro[at % (len(avro) + 1) : at % (len(avro) + 1) + 1] = bytes([byte])
    with suppress(DecodeError):
        read(bytes(avro[: len(avro) - cut]))


def of(avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": avro}]}


MOST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
"""A number of 62 bits, used as a hostile length or count."""
ENUM = {"type": "enum", "name": "E", "symbols": ["x", "y"]}


def named_twice(levels: int, leaf: Any) -> Any:
    """Return a small record type that uses each lower level twice: values have 2**levels leaves."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for level in range(levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level}"}]
        schema = {"type": "record", "name": f"R{level + 1}", "fields": fields}
    return schema


class CountedSchema(AvroSchema):
    """A schema that counts how many types are read."""

    looks = 0

    def resolve(self, schema: Any) -> Any:
        self.looks += 1
        assert self.looks < 1000, "each of its few types is looked at again and again"
        return super().resolve(schema)


def test_checking_and_compiling_a_schema_is_linear_in_its_size() -> None:
    parsed = CountedSchema(named_twice(25, "int"))
    plain(parsed, parsed.top)
    with pytest.raises(WriterSchemaError, match=r"contains itself \(R7\)"):
        CountedSchema(named_twice(25, ["null", "R7"]))
    with pytest.raises(
        WriterSchemaError, match=r"a record \(R12\) with more than 10000 zero-byte values"
    ):
        CountedSchema(named_twice(25, "null"))


def decoded(avro: Any, data: bytes) -> Any:
    return reader(of(avro))(data)


def image(columns_: str, *row: Any, **handling: Any) -> Any:
    """Return what is written of a row."""
    writer = RowWriter(columns(columns_), Handling(**handling), excerpt=False, write=avro_writer)
    return writer.image(row, "$.after")


LONG_DIGITS: list[tuple[Any, Any]] = [
    (DECIMAL, b"\x00\xff"),
    (VARIABLE, {"scale": 2, "value": b"\x00\xff"}),
    ("double", 0.30000000000000004),
    ("float", 0.25),
    ("string", "2.55"),
]
UNSIGNED: list[tuple[Any, Any]] = [
    (
        named("bytes", CONNECT + "Decimal", **{"connect.parameters": {"scale": "0"}}),
        b"\0" + b"\xff" * 8,
    ),
    ("string", "1234"),
]
TWICE = AvroSchema(named_twice(2, "int"))
EMPTY = AvroSchema(named_twice(11, "null"))
AMBIGUOUS = AvroSchema(of(["null", "int", logical("long", "timestamp-millis")]))
test_texts = text_test(
    __file__,
    {
        **{
            f"{value!r} rounded": partial(
                read, avro, value, "DECIMAL(10,1)", Handling(rounding="half_up")
            )
            for avro, value in LONG_DIGITS
        },
        **{
            f"an unsigned BIGINT of {value!r}, {mode}": partial(
                read, avro, value, "DECIMAL(20,0)", Handling(bigint_unsigned=mode)
            )
            for avro, value in UNSIGNED
            for mode in (None, "long", "precise")
        },
        **{
            f"an unsigned BIGINT of -1, {mode}": partial(
                read, "long", -1, "DECIMAL(20,0)", Handling(bigint_unsigned=mode)
            )
            for mode in ("long", "precise")
        },
        "bytes in hexadecimal text": partial(
            read, "string", "00ff", "BINARY", Handling(binary="hex")
        ),
        "text in a time zone": partial(
            *(read, "string", "2018-06-20 15:13:16", "TIMESTAMP(3)"), Handling(time_zone="UTC")
        ),
        "Flink's schema of columns": lambda: json.dumps(record_schema(columns(ALL))),
        "an index in a longer encoding": partial(decoded, ["null", "string"], b"\x82\x00\x02a"),
        "an index in a still longer encoding": partial(
            decoded, ["null", "string"], b"\x82\x80\x00\x02a"
        ),
        "an array in blocks with their sizes": partial(
            decoded, {"type": "array", "items": "int"}, b"\x03\x04\x02\x04\x02\x06\0"
        ),
        "a record type that is used twice": lambda: plain(TWICE, TWICE.top)(
            TWICE.read(b"\x02\x04\x06\x08")
        ),
        "an empty record type that is used twice": lambda: (
            EMPTY.read(b"")["b"]["b"]["a"]["a"] == EMPTY.read(b"")["a"]["a"]["b"]["b"]
        ),
    },
)
REFUSED: list[tuple[Any, Any, str]] = [
    ("long", 1500, "TIMESTAMP(3)"),
    ("int", 1500, "TIME(3)"),
    ("long", 1500, "INTERVAL DAY TO SECOND"),
    (named("long", "com.acme.Instant"), 1500, "TIMESTAMP_NTZ(3)"),
    (logical("long", "timestamp-millis"), 1500, "DATE"),
    (logical("long", "timestamp-millis"), 2**60, "TIMESTAMP(3)"),
    (named("long", TIME + "MicroTime"), 86400000000, "TIME(6)"),
    ("int", 128, "TINYINT"),
    ("long", 2**31, "INT"),
    ("long", -1, "DECIMAL(20,0)"),
    ("double", 1e300, "FLOAT"),
    ("double", float("nan"), "DECIMAL(5,2)"),
    ("double", 1.5, "INT"),
    ("string", "x", "INT"),
    ("string", "2020-01-01", "TIMESTAMP(3)"),
    ("string", "AAE=", "BINARY"),
    ("bytes", b"x", "STRING"),
    ("bytes", b"x", "DECIMAL(5,2)"),
    (DECIMAL, b"", "DECIMAL(10,2)"),
    (DECIMAL, b"\x01" * 65, "DECIMAL(10,2)"),
    (DECIMAL, b"\x7f\xff\xff\xff\xff", "DECIMAL(10,2)"),
    (DECIMAL, b"\x00\xfa", "INT"),
    (VARIABLE, {"scale": 2**30, "value": b"\x01"}, "DECIMAL(10,2)"),
    (DURATION, struct.pack("<III", 1, 0, 0), "INTERVAL DAY TO SECOND"),
    ({"type": "array", "items": "int"}, [1], "INT"),
    ({"type": "map", "values": "int"}, {"a": 1}, "ARRAY<INT>"),
    (POINT, {"x": 1.5, "y": 2.5, "z": 3}, "MAP<STRING, INT>"),
    ({"type": "array", "items": "string"}, ["x"], "ARRAY<INT>"),
    ({"type": "array", "items": "int"}, [1], "MAP<INT, INT>"),
    (named("long", TIME + "NanoTimestamp"), 2**63 - 1, "TIMESTAMP_NTZ(9)"),
    *((avro, value, "DECIMAL(10,1)") for avro, value in LONG_DIGITS),
    ("string", "AQ==", "DECIMAL(20,0)"),
    (
        {"type": "record", "name": "S", "fields": [{"name": "since", "type": "int"}]},
        {"since": 9_999_999},
        "STRUCT<since: DATE>",
    ),
]
MALFORMED: dict[str, tuple[Any, bytes]] = {
    "a string is cut": ("string", b" abc"),
    "a string of 4 EB": ("string", MOST + b"abc"),
    "a string of -3 bytes": ("string", b"\x05abc"),
    "bytes are cut": ("bytes", b" abc"),
    "a string is not UTF-8": ("string", b"\x04\xff\xfe"),
    "bytes are left over": ("string", b"\x02ab"),
    "no boolean": ("boolean", b""),
    "a long without end": ("long", b"\xff" * 100000),
    "a long is cut": ("long", b"\xff"),
    "a float is cut": ("float", b"\x00\x00\x00"),
    "a double is cut": ("double", b"\x00" * 7),
    "a fixed is cut": ({"type": "fixed", "name": "F", "size": 4}, b"abc"),
    "an enum's third symbol of two": (ENUM, b"\x04"),
    "a union's third branch of two": (["null", "string"], b"\x04"),
    "an array of 4 E items": ({"type": "array", "items": "long"}, MOST),
    "an array without an end": ({"type": "array", "items": "long"}, b"\x02\x00"),
    "a map of 4 E entries": ({"type": "map", "values": "null"}, MOST),
}
SCHEMAS: list[Any] = [
    {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
    {"type": "map", "values": {"type": "array", "items": "null"}},
    of({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
    of({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
    {"type": "strange"},
    "nope",
    5,
    None,
    of({"type": "array", "items": named_twice(3, "null")}),
]
test_error_texts = error_test(
    __file__,
    {
        **{
            f"a value that the column cannot hold, {number}: {sql_type}": partial(
                read, avro, value, sql_type
            )
            for number, (avro, value, sql_type) in enumerate(REFUSED, 1)
        },
        **{
            f"text of base64 for an unsigned BIGINT, {mode}": partial(
                read, "string", "AQ==", "DECIMAL(20,0)", Handling(bigint_unsigned=mode)
            )
            for mode in ("long", "precise")
        },
        "a negative number for an unsigned BIGINT": partial(
            read, "long", -1, "DECIMAL(20,0)", Handling(decimal="string")
        ),
        **{f"malformed: {name}": partial(decoded, *each) for name, each in MALFORMED.items()},
        **{
            f"a schema that cannot be read, {number}": partial(AvroSchema, schema)
            for number, schema in enumerate(SCHEMAS, 1)
        },
        **{
            f"types without an Avro type, {ddl}": lambda ddl=ddl: record_schema(columns(ddl))
            for ddl in ("`unit price` INT", "m MAP<INT, INT>")
        },
        **{
            f"a value that would be read back differently, {sql_type}": partial(
                image, f"x {sql_type}", value
            )
            for sql_type, value in [
                ("TIME(3)", 1_500_001),
                ("TIMESTAMP(0)", 1),
                ("TIMESTAMP_NTZ(9)", 2**62),
            ]
        },
        **{
            f"the placeholder is never written, {row}": partial(
                image, "x STRING, y BINARY", *row, placeholder="gone"
            )
            for row in (("gone", b""), ("", b"gone"))
        },
        "ambiguous union branches whose values differ": lambda: column_converter(
            AMBIGUOUS, AMBIGUOUS.fields(AMBIGUOUS.top)["a"], SqlType("TIMESTAMP"), Handling()
        ),
    },
)
