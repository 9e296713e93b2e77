"""Encoders: in every format and handling, written rows read back equal; other rows are errors."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import (
    Change,
    ChangelogMode,
    Column,
    Encoder,
    Event,
    Format,
    RowKind,
    SqlType,
    columns,
    get_format,
    read_object,
)
from cdc_formats.encoding import pair_updates
from cdc_formats.errors import EncodeError, SchemaError
from cdc_formats.formats.canal import CanalJson
from cdc_formats.formats.changelog import ChangelogJson
from cdc_formats.formats.debezium.envelope import UNAVAILABLE_VALUE_PLACEHOLDER
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.formats.maxwell import MaxwellJson
from cdc_formats.formats.ogg import OggJson
from cdc_formats.testing import Vector, check_encoder
from cdc_formats.values.handling import BINARY_MODES, DECIMAL_MODES, TIME_MODES
from cdc_formats.values.numbers import decimal_text
from tests.support.error_texts import error_test
from tests.support.examples import examples

INS, B, A, D = RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
PLACEHOLDER = UNAVAILABLE_VALUE_PLACEHOLDER

# --------------------------------------------------------------------------------------------------
# the messages

ORDERS = "id INT, item STRING, price DECIMAL(10,2)"
OLD, NEW = (7, "bike", "100.00"), (7, "bike", "99.50")
MESSAGES: list[tuple[str, dict[str, Any], list[str], tuple, bytes | None, str]] = [
    ("debezium-json", {}, ["id"], (INS, OLD), b'{"id":7}', '{"before":null,"after":{"id":7,"item":"bike","price":100.00},"op":"c"}'),
    ("debezium-json", {}, [], (A, NEW, OLD), None,
     (
         '{"before":{"id":7,"item":"bike","price":100.00},"after":{"id":7,"item":"bike",'
         '"price":99.50},"op":"u"}'
     )),
    ("debezium-json", {"decimal_handling_mode": "precise"}, [], (D, NEW), None,
     '{"before":{"id":7,"item":"bike","price":"Jt4="},"after":null,"op":"d"}'),
    ("canal-json", {}, ["id"], (INS, OLD), b'{"id":"7"}',
     (
         '{"data":[{"id":"7","item":"bike","price":"100.00"}],"type":"INSERT",'
         '"isDdl":false,"pkNames":["id"]}'
     )),
    ("canal-json", {}, [], (A, NEW, OLD), None,
     (
         '{"old":[{"price":"100.00"}],"data":[{"id":"7","item":"bike","price":"99.50"}],'
         '"type":"UPDATE","isDdl":false}'
     )),
    ("canal-json", {}, [], (A, NEW, NEW), None,
     (
         '{"old":[{}],"data":[{"id":"7","item":"bike","price":"99.50"}],"type":"UPDATE",'
         '"isDdl":false}'
     )),
    ("maxwell-json", {}, ["id"], (D, OLD), b'{"id":7}',
     '{"data":{"id":7,"item":"bike","price":100.00},"type":"delete","primary_key_columns":["id"]}'),
    ("maxwell-json", {}, [], (A, NEW, OLD), None, '{"old":{"price":100.00},"data":{"id":7,"item":"bike","price":99.50},"type":"update"}'),
    ("maxwell-json", {}, [], (A, NEW, NEW), None, '{"old":{},"data":{"id":7,"item":"bike","price":99.50},"type":"update"}'),
    ("ogg-json", {}, ["id", "item"], (A, NEW, OLD), b'{"id":7,"item":"bike"}',
     '{"before":{"id":7,"item":"bike","price":100.00},"after":{"id":7,"item":"bike","price":99.50},'
     '"op_type":"U","primary_keys":["id","item"]}'),
    ("ogg-json", {}, [], (INS, OLD), None, '{"before":null,"after":{"id":7,"item":"bike","price":100.00},"op_type":"I"}'),
    ("changelog-json", {}, ["id"], (B, OLD), b'{"id":7}', '{"data":{"id":7,"item":"bike","price":100.00},"op":"-U"}'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("identifier", "options", "key", "change", "key_text", "text"),
    MESSAGES,
    ids=[f"{m[0]} {m[3][0].short_string}" for m in MESSAGES],
)
def test_messages_equal_those_of_their_producers(
    identifier: str, options: dict, key: list[str], change: tuple, key_text: bytes | None, text: str
) -> None:
    got_key, value = (
        get_format(identifier, **options).encoder(ORDERS, unique_key=key).encode(*change)
    )
    assert (got_key, value.decode()) == (key_text, text)


@pytest.mark.parametrize("identifier", ["debezium-json", "canal-json", "maxwell-json", "ogg-json"])
def test_half_an_update_is_written_as_flink_writes_it(identifier: str) -> None:
    encoder = get_format(identifier).encoder(ORDERS)
    assert encoder.encode(B, OLD) == encoder.encode(D, OLD)
    assert encoder.encode(A, NEW) == encoder.encode(INS, NEW)


NULLS = ("a INT, b STRING", (1, None), (1, ""))


@pytest.mark.parametrize("identifier", ["canal-json", "maxwell-json"])
@pytest.mark.parametrize("turned", [False, True])
def test_old_has_only_changed_columns_including_nulls(identifier: str, turned: bool) -> None:
    ddl, before, row = NULLS if not turned else (NULLS[0], NULLS[2], NULLS[1])
    format = get_format(identifier)
    _, value = format.encoder(ddl).encode(A, row, before)
    old = read_object(value)["old"]
    assert old == ([{"b": before[1]}] if identifier == "canal-json" else {"b": before[1]})
    assert format.decoder(ddl).decode(None, value) == [Change(B, before), Change(A, row)]


@pytest.mark.parametrize("identifier", ["canal-json", "maxwell-json"])
def test_the_sign_of_zero_is_a_change(identifier: str) -> None:
    format, ddl = get_format(identifier), "a INT, b DOUBLE, c ARRAY<FLOAT>"
    _, value = format.encoder(ddl).encode(A, (1, 0.0, [0.0]), (1, -0.0, [-0.0]))
    assert (
        repr([change.row for change in format.decoder(ddl).decode(None, value)])
        == "[(1, -0.0, [-0.0]), (1, 0.0, [0.0])]"
    )


SPELLED: list[tuple[str, dict[str, Any], Any, str]] = [
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long"}, "18446744073709551615", "-1"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long"}, "5", "5"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "long", "decimal_handling_mode": "precise"}, "-1", '"/w=="'),
    ("DECIMAL(20,0)", {"decimal_handling_mode": "double"}, "-1", "-1.0"),
    ("DECIMAL(20,0)", {"bigint_unsigned_handling_mode": "precise"}, "-1", "-1.0"),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "string"}, "100.00", '"100.00"'),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "precise"}, "-1.28", '"gA=="'),
    ("DECIMAL(10,2)", {"decimal_handling_mode": "precise"}, "1.28", '"AIA="'),
    ("DECIMAL(38,0)", {"decimal_handling_mode": "double"}, "9" * 38, "9" * 38),
    ("BINARY", {"binary_handling_mode": "hex"}, b"\xfb\xff", '"fbff"'),
    ("BINARY", {"binary_handling_mode": "base64-url-safe"}, b"\xfb\xff", '"-_8="'),
    ("BINARY", {}, b"\xfb\xff", '"+/8="'),
    ("DATE", {"time_precision_mode": "connect"}, -1, "-1"),
    ("DATE", {"time_precision_mode": "isostring"}, 0, '"1970-01-01Z"'),
    ("DATE", {}, 0, '"1970-01-01"'),
    ("TIME(3)", {"time_precision_mode": "adaptive"}, 7000, "7"),
    ("TIME", {"time_precision_mode": "adaptive_time_microseconds"}, 7, "7"),
    ("TIME", {"time_precision_mode": "nanoseconds"}, 7, "7000"),
    ("TIME", {"time_precision_mode": "isostring"}, 7000, '"00:00:00.007Z"'),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "connect"}, -1000, "-1"),
    ("TIMESTAMP_NTZ(6)", {"time_precision_mode": "adaptive"}, -1, "-1"),
    ("TIMESTAMP_NTZ(9)", {"time_precision_mode": "adaptive"}, 1, "1000"),
    ("TIMESTAMP_NTZ", {}, 0, '"1970-01-01 00:00:00"'),
    ("TIMESTAMP_NTZ", {"time_precision_mode": "isostring"}, 0, '"1970-01-01T00:00:00Z"'),
    ("TIMESTAMP", {}, 1, '"1970-01-01 00:00:00.000001Z"'),
    ("TIMESTAMP", {"time_precision_mode": "microseconds"}, 1, '"1970-01-01T00:00:00.000001Z"'),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "microseconds"}, -5, "-5"),
    ("INTERVAL DAY TO SECOND", {"time_precision_mode": "isostring"}, -3_600_000_000, '"-01:00:00"'),
]  # fmt: skip


@pytest.mark.parametrize(
    ("ddl", "options", "value", "text"),
    SPELLED,
    ids=[f"{s[0]} {s[1]} {s[2]!r}"[:80] for s in SPELLED],
)
def test_debezium_values_are_spelled_as_declared(
    ddl: str, options: dict, value: Any, text: str
) -> None:
    format = DebeziumJson(**options)
    _, message = format.encoder(f"c {ddl}").encode(INS, (value,))
    assert message.decode() == f'{{"before":null,"after":{{"c":{text}}},"op":"c"}}'
    assert format.decoder(f"c {ddl}").decode(None, message) == [Change(INS, (value,))]


def test_canal_writes_every_value_as_text() -> None:
    ddl = (
        "a BOOLEAN, b BIGINT, c DOUBLE, d DECIMAL(5,1), e BINARY, f TIMESTAMP_NTZ, g ARRAY<INT>, h "
        "FLOAT"
    )
    _, value = (
        CanalJson()
        .encoder(ddl)
        .encode(INS, (True, -5, 1e16, "0.5", b"\x00\xff", 1_000_000, [1, None], float("nan")))
    )
    assert read_object(value)["data"] == [
        {
            "a": "true",
            "b": "-5",
            "c": "1e+16",
            "d": "0.5",
            "e": "\x00ÿ",
            "f": "1970-01-01 00:00:01",
            "g": ["1", None],
            "h": "NaN",
        }
    ]


def test_ticdcs_encoder_is_canals() -> None:
    ddl, update = "id INT, name STRING", (A, (1, "bike"), (1, "scooter"))
    ticdc = get_format("ticdc-canal-json")
    record = ticdc.encoder(ddl).encode(*update)
    assert record == CanalJson().encoder(ddl).encode(*update)
    assert ticdc.decoder(ddl).decode(*record) == [Change(B, update[2]), Change(A, update[1])]


STAMPS = "id INT, a TIMESTAMP_NTZ(3), b TIMESTAMP, c ARRAY<TIMESTAMP_NTZ>"


@pytest.mark.parametrize("standard", ["SQL", "ISO-8601"])
@pytest.mark.parametrize(
    "identifier",
    [
        "canal-json",
        "changelog-json",
        "debezium-flat-json",
        "debezium-json",
        "maxwell-json",
        "ogg-json",
        "ticdc-canal-json",
    ],
)
def test_timestamps_are_written_in_the_configured_format(identifier: str, standard: str) -> None:
    # Flink's readers accept one of the two, chosen by their option timestamp-format.standard.
    format, between = (
        get_format(identifier, **{"timestamp-format.standard": standard}),
        "T" if standard == "ISO-8601" else " ",
    )
    row, before = (1, 5_000, 1_000_000, [None, 0]), (1, 6_000, 2_000_000, [1])
    encoder, decoder = (
        format.encoder(STAMPS, unique_key=["id"]),
        format.decoder(STAMPS, unique_key=["id"]),
    )
    key, value = encoder.encode(A, row, before)
    written = re.findall("1970-01-01(.)", value.decode())
    assert set(written) == {between}
    assert len(written) == (3 if identifier in ("changelog-json", "debezium-flat-json") else 6)
    assert decoder.decode(key, value)[-1] == Change(A, row)


FLOAT_3_14 = 3.140000104904175


@pytest.mark.parametrize(
    ("identifier", "options", "written"),
    [
        ("debezium-json", {}, b'"f":3.14,"d":3.140000104904175'),
        ("debezium-json", {"schema_include": True}, b'"f":3.14,"d":3.140000104904175'),
        ("debezium-flat-json", {}, b'"f":3.14,"d":3.140000104904175'),
        ("canal-json", {}, b'"f":"3.14","d":"3.140000104904175"'),
        ("maxwell-json", {}, b'"f":3.14,"d":3.140000104904175'),
        ("ogg-json", {}, b'"f":3.14,"d":3.140000104904175'),
        ("changelog-json", {}, b'"f":3.14,"d":3.140000104904175'),
        ("upsert-kafka", {}, b'"f":3.14,"d":3.140000104904175'),
        ("upsert-kafka", {"value_format": "csv"}, b"1,3.14,3.140000104904175"),
    ],
)
def test_a_float_is_written_with_its_own_digits(
    identifier: str, options: dict, written: bytes
) -> None:
    ddl, row = "id INT, f FLOAT, d DOUBLE", (1, FLOAT_3_14, FLOAT_3_14)
    format = get_format(identifier, **options)
    key, value = format.encoder(ddl, unique_key=["id"]).encode(INS, row)
    assert written in value
    (change,) = format.decoder(ddl, unique_key=["id"]).decode(key, value)
    assert change.row == row


def test_an_update_writes_the_digits_of_a_changed_float() -> None:
    _, value = MaxwellJson().encoder("f FLOAT").encode(A, (1.5,), (FLOAT_3_14,))
    assert value == b'{"old":{"f":3.14},"data":{"f":1.5},"type":"update"}'


# --------------------------------------------------------------------------------------------------
# the schema block


def test_debezium_writes_the_schema_block_as_connect_does() -> None:
    ddl = (
        "id BIGINT NOT NULL, price DECIMAL(10,2), at TIMESTAMP, day DATE, t TIME(3), tags "
        "ARRAY<DECIMAL(5,1)>, m MAP<STRING, DECIMAL(3,1)>"
    )
    format = DebeziumJson(schema_include=True)
    key, value = format.encoder(ddl, unique_key=["id"]).encode(
        INS, (1, "100.00", 0, 1, 5000, ["0.1"], [["a", "1.0"]])
    )
    message = read_object(value)
    assert message["payload"]["after"] == {
        "id": 1, "price": "JxA=", "at": "1970-01-01T00:00:00Z", "day": 1, "t": 5000, "tags": ["AQ=="], "m": {"a": "1.0"},
    }  # fmt: skip
    schema = message["schema"]
    assert (schema["type"], schema["name"], [field["field"] for field in schema["fields"]]) == (
        "struct",
        "changelog.Envelope",
        ["before", "after", "op"],
    )
    by_name = {field["field"]: field for field in schema["fields"][1]["fields"]}
    assert by_name["id"] == {"type": "int64", "optional": False, "field": "id"}
    assert by_name["price"] == {
        "type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
        "parameters": {"scale": "2", "connect.decimal.precision": "10"}, "field": "price",
    }  # fmt: skip
    named = {name: (field["type"], field.get("name")) for name, field in by_name.items()}
    assert named["at"] == ("string", "io.debezium.time.ZonedTimestamp")
    assert named["day"] == ("int32", "io.debezium.time.Date")
    assert named["t"] == ("int64", "io.debezium.time.MicroTime")
    assert by_name["tags"]["items"]["parameters"]["scale"] == "1"
    assert by_name["m"]["values"] == {"type": "string", "optional": True}
    assert read_object(key) == {
        "schema": {
            "type": "struct",
            "fields": [by_name["id"]],
            "optional": False,
            "name": "changelog.Key",
        },
        "payload": {"id": 1},
    }


NAMES = [
    ("connect", "TIME", "int32", "org.apache.kafka.connect.data.Time"),
    ("connect", "TIMESTAMP_NTZ", "int64", "org.apache.kafka.connect.data.Timestamp"),
    ("connect", "DATE", "int32", "org.apache.kafka.connect.data.Date"),
    ("adaptive", "TIME(3)", "int32", "io.debezium.time.Time"),
    ("adaptive", "TIMESTAMP_NTZ(3)", "int64", "io.debezium.time.Timestamp"),
    ("adaptive", "TIMESTAMP_NTZ(6)", "int64", "io.debezium.time.MicroTimestamp"),
    ("nanoseconds", "TIME", "int64", "io.debezium.time.NanoTime"),
    ("isostring", "TIMESTAMP_NTZ", "string", "io.debezium.time.IsoTimestamp"),
    ("isostring", "DATE", "string", "io.debezium.time.IsoDate"),
    ("microseconds", "INTERVAL DAY TO SECOND", "int64", "io.debezium.time.MicroDuration"),
    ("isostring", "INTERVAL DAY TO SECOND", "string", None),
]


@pytest.mark.parametrize(("mode", "ddl", "kind", "name"), NAMES)
def test_times_have_their_names_in_the_schema_block(
    mode: str, ddl: str, kind: str, name: str | None
) -> None:
    format = DebeziumJson(schema_include=True, time_precision_mode=mode)
    _, value = format.encoder(f"c {ddl}").encode(INS, (0,))
    (field,) = read_object(value)["schema"]["fields"][1]["fields"]
    assert (field["type"], field.get("name")) == (kind, name)
    assert DebeziumJson().decoder(f"c {ddl}").decode(None, value) == [Change(INS, (0,))]


@pytest.mark.parametrize(
    "format",
    [CanalJson(validate=True), DebeziumJson(validate=True), DebeziumJson(validate=True, schema_include=True), MaxwellJson(validate=True),
     OggJson(validate=True), ChangelogJson(validate=True)],
    ids=lambda format: f"{format.identifier} {getattr(format, 'schema_include', '')}",
)  # fmt: skip
def test_encoded_messages_match_the_formats_json_schema(format: Format) -> None:
    decode, encode = format.decoder(ORDERS).decode, format.encoder(ORDERS, unique_key=["id"]).encode
    for change in ((INS, OLD), (A, NEW, OLD), (D, NEW), (B, OLD), (A, NEW)):
        assert decode(*encode(*change))


# ----------------------------------------------------------------------------------------------
# what cannot be represented

REFUSED: list[tuple[Format, str, Any, str]] = [
    (DebeziumJson(), "STRING", PLACEHOLDER, "placeholder for unavailable values"),
    (DebeziumJson(schema_include=True), "VARCHAR(99)", PLACEHOLDER, "placeholder"),
    (DebeziumJson(binary_handling_mode="hex"), "BINARY", PLACEHOLDER.encode(), "placeholder"),
    (DebeziumJson(), "ARRAY<INT>", list(PLACEHOLDER.encode()), "placeholder"),
    (DebeziumJson(), "ARRAY<STRING>", [PLACEHOLDER], "placeholder"),
    (DebeziumJson(), "MAP<STRING, STRING>", [[PLACEHOLDER, PLACEHOLDER]], "placeholder"),
    (DebeziumJson(time_precision_mode="connect"), "TIME", 1, "it has microseconds, but milliseconds are declared"),
    (DebeziumJson(time_precision_mode="adaptive"), "TIMESTAMP_NTZ(3)", -1, "it has microseconds"),
    (DebeziumJson(time_precision_mode="nanoseconds"), "TIMESTAMP_NTZ", 253_402_300_799_999_999, r"out of the range of 64 bits \(in ns\)"),
    (MaxwellJson(), "DATE", 2_932_897, "out of its range"),
    (MaxwellJson(), "TIME", 86_400_000_000, "out of its range"),
    (MaxwellJson(), "TIMESTAMP", 2**60, "out of its range"),
    (OggJson(), "INTERVAL DAY TO SECOND", -(2**62), "out of its range"),
    (CanalJson(), "MAP<STRING, INT>", [[None, 1]], "a key is NULL"),
    (ChangelogJson(), "MAP<STRING, INT>", [["a", 1], ["a", 2]], "a key is NULL or occurs twice"),
]  # fmt: skip


def test_the_default_placeholder_is_plain_text_under_another_placeholder() -> None:
    format = DebeziumJson(unavailable_value_placeholder="\x00")
    record = format.encoder("c STRING").encode(INS, (PLACEHOLDER,))
    assert format.decoder("c STRING").decode(*record) == [Change(INS, (PLACEHOLDER,))]


# -------------------------------------------------------------------------------------------------
# any rows of any tables

WRITTEN_TIMES = [None, *(mode for mode in TIME_MODES if mode != "structured")]
MODES = {
    "decimal_handling_mode": [None, *DECIMAL_MODES],
    "time_precision_mode": WRITTEN_TIMES,
    "binary_handling_mode": list(BINARY_MODES),
    "bigint_unsigned_handling_mode": [None, "long", "precise"],
    "schema_include": ["auto", True, False],
    "timestamp_format_standard": ["SQL", "ISO-8601"],
    "time_zone": [None, "UTC", "Europe/Berlin"],
}
zones = st.sampled_from([None, "UTC", "Europe/Berlin"])
standards = st.sampled_from(["SQL", "ISO-8601"])
FORMATS: dict[str, st.SearchStrategy[Format]] = {
    "canal-json": st.builds(
        CanalJson,
        binary_handling_mode=st.sampled_from(["latin1", "base64"]),
        time_zone=zones,
        timestamp_format_standard=standards,
    ),
    "changelog-json": st.builds(
        ChangelogJson, timestamp_format_standard=standards, time_zone=zones
    ),
    "debezium-json": st.builds(
        DebeziumJson, **{name: st.sampled_from(values) for name, values in MODES.items()}
    ),
    "maxwell-json": st.builds(MaxwellJson, time_zone=zones, timestamp_format_standard=standards),
    "ogg-json": st.builds(OggJson, time_zone=zones, timestamp_format_standard=standards),
}
text = st.text(st.characters(codec="utf-8"), max_size=5) | st.sampled_from(
    [PLACEHOLDER, "NULL", '"', "\\", "\x00", "0", "true", "{}"]
)
DAY = 86_400_000_000
LEAST, MOST = -62_135_596_800_000_000, 253_402_300_799_999_999

precisions = st.sampled_from([None, 0, 3, 6])
plain_types = st.sampled_from(
    [SqlType(name) for name in ("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE")]
    + [SqlType("VARCHAR", 9), SqlType("CHAR", 3), SqlType("INTERVAL DAY TO SECOND"), SqlType("DECIMAL", 20, 0), SqlType("DECIMAL", 38, 18)]
) | st.builds(SqlType, st.sampled_from(["TIME", "TIMESTAMP", "TIMESTAMP_NTZ"]), precisions) | st.integers(1, 38).flatmap(
    lambda precision: st.builds(SqlType, st.just("DECIMAL"), st.just(precision), st.integers(0, precision))
)  # fmt: skip

# Arrow would cut a name at a NUL; `columns` refuses such a name.
names = text.filter(lambda name: name and "\0" not in name)


def _nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    array = inner.map(lambda of: SqlType("ARRAY", fields=(Column("element", of),)))
    entries = inner.map(
        lambda of: SqlType(
            "MAP", fields=(Column("key", SqlType("STRING"), False), Column("value", of))
        )
    )
    fields = st.lists(
        st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0]
    )
    return (
        array
        | entries
        | fields.map(
            lambda members: SqlType(
                "STRUCT", fields=tuple(Column(name, of) for name, of in members)
            )
        )
    )


types = st.recursive(plain_types, _nested, max_leaves=4)
tables = st.lists(
    st.tuples(names, types), min_size=1, max_size=4, unique_by=lambda column: column[0]
).map(lambda pairs: tuple(Column(name, of) for name, of in pairs))


def values_of(sql_type: SqlType) -> st.SearchStrategy[Any]:
    """Canonical values of a type, including NULL and values that some formats cannot write."""
    inner = [values_of(field.type) for field in sql_type.fields]
    precision, scale = sql_type.precision or 10, sql_type.scale or 0
    bits = {
        "TINYINT": 7,
        "SMALLINT": 15,
        "INT": 31,
        "BIGINT": 63,
        "INTERVAL DAY TO SECOND": 63,
    }.get(sql_type.name, 0)
    unscaled = st.integers(-(10**precision) + 1, 10**precision - 1)
    plain: dict[str, Any] = {
        "BOOLEAN": st.booleans,
        "FLOAT": lambda: st.floats(width=32),
        "DOUBLE": st.floats,
        "DECIMAL": lambda: unscaled.map(lambda number: decimal_text(_scaled(number, scale), precision, scale)),
        "BINARY": lambda: st.binary(max_size=5) | st.just(PLACEHOLDER.encode()),
        "DATE": lambda: st.integers(-719_162, 2_932_896),
        "TIME": lambda: st.integers(0, DAY - 1) | st.integers(0, 86_399_999).map(lambda millis: millis * 1000),
        "TIMESTAMP": lambda: st.integers(LEAST, MOST),
        "TIMESTAMP_NTZ": lambda: st.integers(LEAST, MOST) | st.integers(-(10**12), 10**12).map(lambda millis: millis * 1000),
        "ARRAY": lambda: st.lists(inner[0], max_size=3) | st.just([PLACEHOLDER]) if sql_type.fields[0].type.name == "STRING"
        else st.lists(inner[0], max_size=3),
        "MAP": lambda: st.dictionaries(text, inner[1], max_size=3).map(lambda pairs: sorted([key, value] for key, value in pairs.items())),
        "STRUCT": lambda: st.tuples(*inner).map(list),
    }  # fmt: skip
    chosen = (
        st.integers(-(2**bits), 2**bits - 1) if bits else plain.get(sql_type.name, lambda: text)()
    )
    return st.none() | chosen


def _scaled(number: int, scale: int) -> Decimal:
    return Decimal(number).scaleb(-scale, Context(prec=80))


quick = settings(
    max_examples=examples(50),
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("identifier", sorted(FORMATS))
@quick
@given(data=st.data())
def test_any_row_of_any_table_is_read_back_or_is_an_error(
    identifier: str, data: st.DataObject
) -> None:
    format, table = data.draw(FORMATS[identifier]), data.draw(tables)
    key = [column.name for column in table if data.draw(st.booleans())]
    encoder = made(lambda: format.encoder(table, unique_key=key), SchemaError)
    if isinstance(encoder, SchemaError):
        assert re.search("declare|decimal_handling_mode", str(encoder))
        assert isinstance(format, DebeziumJson)
        return
    decoder = format.decoder(table, unique_key=key)
    row, before = (
        data.draw(st.tuples(*[values_of(column.type) for column in table])) for _ in range(2)
    )
    lone = (
        {INS: INS, B: D, A: INS, D: D}
        if encoder.pairs_updates
        else {kind: kind for kind in RowKind}
    )
    cases = [(kind, None, [(read_kind, row)]) for kind, read_kind in lone.items()]
    cases += [(A, before, [(B, before), (A, row)])] if encoder.pairs_updates else []
    for kind, old, expected in cases:
        record = made(lambda kind=kind, old=old: encoder.encode(kind, row, old), EncodeError)
        if isinstance(record, EncodeError):
            assert refusable(format, (row, old)), f"{record} of {row}"
        else:
            assert repr([(change.kind, change.row) for change in decoder.decode(*record)]) == repr(
                expected
            )
            assert [json.loads(part) for part in record if part is not None]
            assert (record[0] is None) == (not key)


def made(make: Callable[[], Any], error: type[Exception]) -> Any:
    """Return the result, or the error that was raised."""
    try:
        return make()
    except error as refused:
        return refused


def refusable(format: Format, rows: Any) -> bool:
    """Whether a value is among the rows that not every handling can write."""
    units = isinstance(format, DebeziumJson) and format.time_precision_mode not in (
        None,
        "isostring",
    )
    return (
        units
        or PLACEHOLDER in repr(rows)
        or PLACEHOLDER.encode() in repr(rows).encode()
        or _has_long_interval(rows)
    )


def _has_long_interval(value: Any) -> bool:
    return (
        any(map(_has_long_interval, value))
        if isinstance(value, (tuple, list))
        else type(value) is int and abs(value) >= 36 * 10**17
    )


def values_with(sql_type: SqlType, format: DebeziumJson) -> st.SearchStrategy[Any]:
    """Values of a time column that its unit can hold."""
    by = 1000 if format.time_precision_mode == "connect" or sql_type.precision in (0, 3) else 1
    least, most = (0, DAY - 1) if sql_type.name == "TIME" else (-(10**15), 10**15)
    return st.integers(least // by, most // by).map(lambda number: number * by)


@pytest.mark.parametrize("mode", WRITTEN_TIMES)
@pytest.mark.parametrize("schema_include", ["auto", True])
@pytest.mark.parametrize(
    "ddl", ["TIME(3)", "TIME(6)", "TIMESTAMP_NTZ(3)", "TIMESTAMP_NTZ(6)", "TIMESTAMP_NTZ(0)"]
)
@settings(quick, max_examples=examples(10))
@given(data=st.data())
def test_times_that_their_unit_holds_are_always_written(
    mode: str | None, schema_include: Any, ddl: str, data: st.DataObject
) -> None:
    format, (column,) = (
        DebeziumJson(time_precision_mode=mode, schema_include=schema_include),
        columns(f"c {ddl}"),
    )
    value = data.draw(values_with(column.type, format))
    record = format.encoder([column]).encode(INS, (value,))
    assert format.decoder([column]).decode(*record) == [Change(INS, (value,))]


# --------------------------------------------------------------------------------------------------
# pairing

kinds = st.sampled_from(list(RowKind))
histories = st.lists(st.tuples(kinds, st.tuples(st.integers(0, 2), st.integers(0, 1))), max_size=12)


@quick
@given(history=histories, key=st.sampled_from([(), (0,), (0, 1)]))
def test_pairing_loses_nothing_and_keeps_the_order(history: list, key: tuple[int, ...]) -> None:
    paired = list(pair_updates(history, key))
    again = [
        pair
        for kind, row, before in paired
        for pair in ([(B, before)] if before is not None else []) + [(kind, row)]
    ]
    assert again == history
    for kind, row, before in paired:
        assert before is None or (kind is A and [row[i] for i in key] == [before[i] for i in key])
    for (kind, row, _), (next_kind, next_row, before) in pairwise(paired):
        if kind is B and next_kind is A and before is None:
            assert [row[i] for i in key] != [next_row[i] for i in key]


def test_a_pair_across_batches_is_one_update_and_held_rows_come_last() -> None:
    batches = [
        [(INS, (1, "a")), (B, (1, "a"))],
        [],
        [(A, (1, "b")), (B, (1, "b")), (B, (2, "x")), (A, (1, "c")), (B, (3, "y"))],
    ]
    assert list(pair_updates((row for batch in batches for row in batch), [0])) == [
        (INS, (1, "a"), None),
        (A, (1, "b"), (1, "a")),
        (B, (1, "b"), None),
        (B, (2, "x"), None),
        (A, (1, "c"), None),
        (B, (3, "y"), None),
    ]


# --------------------------------------------------------------------------------------------------
# the contract's check

STORY = Vector(
    schema="id INT, v STRING",
    primary_key=["id"],
    expected=None,
    records=[
        (None, b'{"type":"insert","data":{"id":1,"v":"a"}}'),
        (None, b'{"type":"update","data":{"id":1,"v":"b"},"old":{"v":"a"}}'),
        (None, b'{"type":"delete","data":{"id":1,"v":"b"}}'),
    ],
)


def write(kind: str, row: tuple, **more: Any) -> tuple[None, bytes]:
    return None, json.dumps({"type": kind, "data": {"id": row[0], "v": row[1]}, **more}).encode()


def broken(encode: Any, **members: Any) -> Format:
    """Return Maxwell's format with another encoder."""
    made = type(
        "Made",
        (Encoder,),
        {"encode": lambda self, kind, row, before=None: encode(kind, row, before)},
    )
    return type(
        "Broken",
        (MaxwellJson,),
        {"encoder": lambda self, columns_, *, unique_key=(): made(), **members},
    )()


def well(kind: RowKind, row: tuple, before: tuple | None) -> Any:
    if before is not None:
        return write("update", row, old={"v": before[1]})
    return write("insert" if kind in (INS, A) else "delete", row)


def test_an_encoder_that_keeps_the_contract_passes() -> None:
    check_encoder(broken(well), STORY)
    check_encoder(MaxwellJson(), STORY)
    check_encoder(MaxwellJson(table_include="t"), Vector(**{**vars(STORY), "records": ()}))


@pytest.mark.parametrize(
    ("encode", "sentence"),
    [
        pytest.param(
            lambda k, r, b: well(k, r, None),
            r"\+U\(1, 'b'\) with \(1, 'a'\) before it",
            id="updates are degraded",
        ),
        pytest.param(
            lambda k, r, b: well(k, r, b and (1, "z")),
            r"which decodes to \['-U\(1,z\)'",
            id="another row before",
        ),
        pytest.param(
            lambda k, r, b: None if k is B else well(k, r, b),
            "encoded to no record, which decodes to",
            id="a lone -U is lost",
        ),
        pytest.param(
            lambda k, r, b: well(A, r, r) if k is A and not b else well(k, r, b),
            "which decodes to .* instead of .*I",
            id="a lone +U updates",
        ),
        pytest.param(
            lambda k, r, b: well(INS, r, b),
            "which decodes to .* instead of .*-D",
            id="deletes are lost",
        ),
    ],
)
def test_an_encoder_that_breaks_the_contract_is_reported(encode: Any, sentence: str) -> None:
    with pytest.raises(AssertionError, match=sentence):
        check_encoder(broken(encode), STORY)


@dataclass(frozen=True, kw_only=True)
class Upserts(Format):
    """A row is written as an upsert, a missing row as a delete."""

    identifier = "upserts-json"
    changelog_mode = ChangelogMode(frozenset({A, D}), key_only_deletes=True)
    reads_tombstones = True
    strict: bool = True

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        if value is None:
            return [Event.delete(read_object(key), path="$")]
        return [Event.update(None, read_object(value), paths=("", "$"))]

    def encoder(self, columns_: Any, *, unique_key: Any = ()) -> Encoder:
        made = columns(columns_)
        strict = self.strict

        class Upserting(Encoder):
            def encode(self, kind: RowKind, row: tuple, before: tuple | None = None) -> Any:
                if kind is B and strict:
                    return None
                image = json.dumps(
                    {column.name: value for column, value in zip(made, row, strict=True)}
                ).encode()
                return json.dumps({"id": row[0]}).encode(), image if kind in (INS, A) else None

        return Upserting()


def test_upsert_formats_write_no_update_before() -> None:
    records = [(b'{"id": 1}', b'{"id": 1, "v": "a"}'), (b'{"id": 1}', None)]
    vector = Vector(schema="id INT, v STRING", primary_key=["id"], records=records, expected=None)
    check_encoder(Upserts(), vector)
    check_encoder(Upserts(), Vector(**{**vars(vector), "keyed": True}))
    with pytest.raises(
        AssertionError, match=r"-U\(1, 'a'\) with None before it.* is encoded to the record"
    ):
        check_encoder(Upserts(strict=False), vector)


def test_bytes_written_as_text_are_strings_in_a_schema_block() -> None:
    for mode, kind in (("bytes", "bytes"), ("hex", "string")):
        format = DebeziumJson(schema_include=True, binary_handling_mode=mode)
        record = format.encoder("c BINARY").encode(INS, (b"\xff",))
        assert read_object(record[1])["schema"]["fields"][1]["fields"] == [
            {"type": kind, "optional": True, "field": "c"}
        ]
        assert format.decoder("c BINARY").decode(*record) == [Change(INS, (b"\xff",))]


test_error_texts = error_test(
    __file__,
    {
        "a number beyond a float is not written": lambda: (
            MaxwellJson().encoder("f FLOAT").encode(INS, (1e39,))
        ),
        "an unknown unit cannot be in a schema block": lambda: DebeziumJson(
            schema_include=True, time_precision_mode="adaptive"
        ).encoder("c TIME"),
        **{
            f"a value that would be read back differently is refused (1), {number}": lambda format=format, ddl=ddl, value=value: (
                format.encoder(f"a INT, c {ddl}", unique_key=["a"]).encode(INS, (1, value))
            )
            for number, (format, ddl, value, _) in enumerate(REFUSED, 1)
        },
        **{
            f"a value that would be read back differently is refused (2), {number}": lambda format=format, ddl=ddl, value=value: (
                format.encoder(f"c {ddl}", unique_key=["c"]).encode(D, (value,))
            )
            for number, (format, ddl, value, _) in enumerate(REFUSED, 1)
        },
        "an error names the column and hides the value when configured": lambda: (
            DebeziumJson(error_excerpt=False)
            .encoder("a INT, c STRING")
            .encode(A, (1, "x"), (1, PLACEHOLDER))
        ),
        **{
            f"types without a json encoding are refused, {number}": lambda ddl=ddl: (
                MaxwellJson().encoder(ddl)
            )
            for number, ddl in enumerate(
                ["a MAP<INT, INT>", "a ARRAY<MAP<DATE, INT>>", "a STRUCT<x: INT, x: INT>"], 1
            )
        },
        "the encoder refuses what the decoder refuses, 1": lambda: DebeziumJson(
            schema_include=False
        ).encoder("a DECIMAL(10,2)"),
        "the encoder refuses what the decoder refuses, 2": lambda: CanalJson().encoder(
            "a INT", unique_key=["b"]
        ),
        **{
            f"a format that filters cannot be written, {number}": lambda format=format: (
                format.encoder("a INT")
            )
            for number, format in enumerate(
                [
                    CanalJson(table_include="t"),
                    MaxwellJson(database_include="d"),
                    OggJson(table_include="t"),
                    DebeziumJson(table_include="t"),
                ],
                1,
            )
        },
        **{
            f"structured times are only read, {number}": lambda identifier=identifier: get_format(
                identifier, time_precision_mode="structured"
            ).encoder("a INT", unique_key=["a"])
            for number, identifier in enumerate(["debezium-json", "debezium-flat-json"], 1)
        },
        **{
            f"a row before that cannot be written is an error, {number}": lambda format=format: (
                format.encoder("a INT, d DATE").encode(A, (1, 0), (1, 10**9))
            )
            for number, format in enumerate([CanalJson(), MaxwellJson()], 1)
        },
    },
)
