"""Unrecorded debezium-json messages of SQL Server, Oracle and PostgreSQL, in shapes from Debezium's
documentation, with and without a schema block."""

import base64
import json
from typing import Any

import pytest

from cdc_formats import Change, RowKind, get_format
from cdc_formats.events import KeyedChange
from cdc_formats.topics.inference import infer_schema
from cdc_formats.values.times import STRUCTURED
from tests.support.both_decoders import differences, odd_places, source_of

NOON = 1_735_819_200  # 2025-01-02 12:00:00 UTC, in seconds
NOON_US = NOON * 1_000_000

SQL_SERVER = {
    "version": "3.4.0.Final", "connector": "sqlserver", "name": "shop", "ts_ms": NOON * 1000, "ts_us": NOON_US, "ts_ns": NOON_US * 1000,
    "snapshot": "false", "db": "shop", "sequence": None, "schema": "dbo", "table": "orders", "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005", "event_serial_no": 2,
}  # fmt: skip
ORACLE = {
    "version": "3.4.0.Final", "connector": "oracle", "name": "shop", "ts_ms": NOON * 1000, "snapshot": "false", "db": "ORCLPDB1",
    "sequence": None, "schema": "SHOP", "table": "ORDERS", "txId": "6.28.807", "scn": "2122185", "commit_scn": "2122186",
    "lcr_position": None, "rs_id": "001234.00012345.0124", "ssn": 1, "redo_thread": 1, "user_name": "SHOP", "redo_sql": None,
    "row_id": "AAAShjAAHAAAAAMAAA",
}  # fmt: skip
POSTGRES = {
    "version": "3.4.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": NOON * 1000, "snapshot": "false", "db": "shop",
    "sequence": '["24023119","24023128"]', "schema": "public", "table": "orders", "txId": 555, "lsn": 24023128, "xmin": None,
}  # fmt: skip


def line(op: str, source: dict[str, Any], before: Any, after: Any, schema: Any = None) -> bytes:
    value = {
        "before": before,
        "after": after,
        "source": source,
        "transaction": None,
        "op": op,
        "ts_ms": NOON * 1000 + 345,
    }
    return json.dumps(value if schema is None else {"schema": schema, "payload": value}).encode()


def envelope(*fields: dict[str, Any]) -> dict[str, Any]:
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": "shop.orders.Value"}
    return {
        "type": "struct",
        "fields": [{**row, "field": "before"}, {**row, "field": "after"}],
        "name": "shop.orders.Envelope",
    }


def unscaled(number: int) -> str:
    return base64.b64encode(
        number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
    ).decode()


def cases(*rows: tuple[Any, ...]) -> list[Any]:
    """Return pytest parameters with ids from the rows.

    A row is (id, declared type, value, canonical value, the field's schema, options for messages
    without a schema block).
    """
    return [pytest.param(*row[1:], id=row[0]) for row in rows]


def named(kind: str, name: str, **parameters: str) -> dict[str, Any]:
    return {
        "type": kind,
        "optional": True,
        "name": name,
        "version": 1,
        **({"parameters": parameters} if parameters else {}),
    }


def array(items: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "optional": True, "items": items}


def check(
    sql_type: str,
    value: Any,
    expected: Any,
    field: dict[str, Any],
    options: dict[str, Any],
    source: dict[str, Any],
) -> None:
    row = {"id": 1, "v": value}
    described = line(
        "c", source, None, row, envelope({"type": "int32", "field": "id"}, {**field, "field": "v"})
    )
    for message, chosen in ((described, {}), (line("c", source, None, row), options)):
        decoder = get_format("debezium-json", **chosen).decoder(
            f"id INT, v {sql_type}", unique_key=["id"]
        )
        assert decoder.decode(None, message) == [Change(RowKind.INSERT, (1, expected))]


def vector(name: str, items: str) -> dict[str, Any]:
    return {**array({"type": items}), "name": f"io.debezium.data.{name}Vector", "version": 1}


def geometry(name: str) -> dict[str, Any]:
    texts = {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}
    fields = [
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
        {**texts, "optional": True, "field": "extensions"},
    ]
    return {**named("struct", f"io.debezium.data.geometry.{name}"), "fields": fields}


TEXT_PARTS = ("specialValue", "zoneId")
DAY = {"year": 2025, "month": 1, "day": 2}
CLOCK = {"hour": 12, "minute": 0, "second": 0, "nanos": 500_000_000}


def structured(name: str) -> dict[str, Any]:
    """Return the schema of a type of ``time.precision.mode=structured``."""
    fields = [
        {"type": "string" if part in TEXT_PARTS else "int32", "optional": True, "field": part}
        for part in STRUCTURED[f"Structured{name}"][1]
    ]
    return {**named("struct", f"io.debezium.time.Structured{name}"), "fields": fields}


def parts_of(name: str, **parts: Any) -> dict[str, Any]:
    """Return a value of the type: JsonConverter writes missing parts as null."""
    return dict.fromkeys(STRUCTURED[f"Structured{name}"][1]) | parts


LASTING = dict.fromkeys(("years", "months", "days", "minutes", "seconds", "nanos"), 0)
STRUCTURED_TIMES = cases(
    ("date", "DATE", parts_of("Date", **DAY), 20090, structured("Date"), {}),
    ("time", "TIME", parts_of("Time", **CLOCK), 43_200_500_000, structured("Time"), {}),
    ("timestamp", "TIMESTAMP_NTZ", parts_of("Timestamp", **DAY, **CLOCK, precision=6), NOON_US + 500_000, structured("Timestamp"), {}),
    ("timestamptz", "TIMESTAMP", parts_of("ZonedTimestamp", **DAY, **CLOCK, offsetSeconds=0, zoneId="Z"), NOON_US + 500_000,
     structured("ZonedTimestamp"), {}),
    ("interval, MySQL's TIME", "INTERVAL DAY TO SECOND", parts_of("Duration", **LASTING, hours=-838), -838 * 3_600_000_000,
     structured("Duration"), {"time_precision_mode": "structured"}),
)  # fmt: skip


@pytest.mark.parametrize(("sql_type", "value", "expected", "field", "options"), STRUCTURED_TIMES)
def test_structured_times(
    sql_type: str, value: Any, expected: Any, field: dict[str, Any], options: dict[str, Any]
) -> None:
    check(sql_type, value, expected, field, options, POSTGRES)
    block = envelope({"type": "int32", "field": "id"}, {**field, "field": "v"})
    for schema in (block, None):
        created = line("c", POSTGRES, None, {"id": 1, "v": value}, schema)
        updated = line("u", POSTGRES, None, {"id": 2, "v": value}, schema)
        inferred = infer_schema([(None, created), (None, updated)], format="debezium-json")
        assert str(inferred.columns[1]) == f"v {sql_type}"
        assert inferred.format_options.get("time_precision_mode") == (
            "structured" if schema else None
        )
        format = get_format("debezium-json")
        for key in ("id", "v"):
            plan = source_of(format, f"id INT, v {sql_type}", [key])
            assert not differences(plan, [(None, created), (None, updated)])
    flat = get_format("debezium-flat-json").decoder(f"v {sql_type}", unique_key=["v"])
    key = json.dumps({"v": value}).encode()
    assert flat.upserts(key, None) == [KeyedChange((expected,), None)]


def test_a_structured_time_with_an_offset_is_text() -> None:
    value = parts_of("ZonedTime", **CLOCK, offsetSeconds=-28_800)
    field = {**structured("ZonedTime"), "field": "v"}
    message = line("c", POSTGRES, None, {"v": value}, envelope(field))
    for schema in (infer_schema([(None, message)], format="debezium-json").ddl, "v STRING"):
        (change,) = get_format("debezium-json").decoder(schema).decode(None, message)
        assert json.loads(change.row[0]) == value


GEOMETRY = "STRUCT<wkb: BINARY, srid: INT, extensions: MAP<STRING, STRING>>"
SPARSE = "STRUCT<dimensions: SMALLINT, vector: MAP<SMALLINT, DOUBLE>>"
_INDEX = {"type": "int16", "optional": False}
_BY_INDEX = {"type": "map", "keys": _INDEX, "values": {"type": "double", "optional": False}}
SPARSE_VECTOR = {
    **named("struct", "io.debezium.data.SparseDoubleVector"),
    "fields": [{**_INDEX, "field": "dimensions"}, {**_BY_INDEX, "field": "vector"}],
}
PRECISE, ADAPTIVE = {"decimal_handling_mode": "precise"}, {"time_precision_mode": "adaptive"}
DECIMAL = "org.apache.kafka.connect.data.Decimal"
TIME = "io.debezium.time."
ZONED = named("string", TIME + "ZonedTimestamp")
DURATION = named("int64", TIME + "MicroDuration")
UUID = "6f9619ff-8b86-d011-b42d-00c04fc964ff"

# --------------------------------------------------------------------------------------------------
# SQL Server


@pytest.mark.parametrize(
    ("sql_type", "value", "expected", "field", "options"),
    cases(
        ("bit", "BOOLEAN", True, True, {"type": "boolean"}, {}),
        ("tinyint", "SMALLINT", 255, 255, {"type": "int16"}, {}),
        ("money", "DECIMAL(19,4)", unscaled(-15006200), "-1500.6200", named("bytes", DECIMAL, scale="4"), PRECISE),
        ("decimal", "DECIMAL(10,2)", unscaled(314), "3.14", named("bytes", DECIMAL, scale="2"), PRECISE),
        ("date", "DATE", 20090, 20090, named("int32", TIME + "Date"), {}),
        ("datetime", "TIMESTAMP_NTZ(3)", NOON * 1000 + 3, NOON_US + 3000, named("int64", TIME + "Timestamp"), ADAPTIVE),
        ("smalldatetime", "TIMESTAMP_NTZ(0)", NOON * 1000, NOON_US, named("int64", TIME + "Timestamp"), ADAPTIVE),
        ("datetime2(6)", "TIMESTAMP_NTZ(6)", NOON_US + 1, NOON_US + 1, named("int64", TIME + "MicroTimestamp"), ADAPTIVE),
        ("datetime2(7)", "TIMESTAMP_NTZ(7)", NOON_US * 1000 + 1100, NOON_US + 1, named("int64", TIME + "NanoTimestamp"), ADAPTIVE),
        ("datetimeoffset", "TIMESTAMP(7)", "2025-01-02T14:00:00.1234567+02:00", NOON_US + 123456, ZONED, {}),
        ("time(3)", "TIME(3)", 43_200_001, 43_200_001_000, named("int32", TIME + "Time"), ADAPTIVE),
        ("uniqueidentifier", "STRING", UUID, UUID, {"type": "string"}, {}),
        ("rowversion", "BINARY", "AAAAAAAAB9E=", b"\0\0\0\0\0\0\x07\xd1", {"type": "bytes"}, {}),
        ("xml", "STRING", "<a/>", "<a/>", named("string", "io.debezium.data.Xml"), {}),
    ),
)  # fmt: skip
def test_sql_servers_types(
    sql_type: str, value: Any, expected: Any, field: dict[str, Any], options: dict[str, Any]
) -> None:
    check(sql_type, value, expected, field, options, SQL_SERVER)


# --------------------------------------------------------------------------------------------------
# Oracle

VARIABLE = named("struct", "io.debezium.data.VariableScaleDecimal")


@pytest.mark.parametrize(
    ("sql_type", "value", "expected", "field", "options"),
    cases(
        ("NUMBER", "DECIMAL(38,4)", {"scale": 4, "value": unscaled(12345678)}, "1234.5678", VARIABLE, PRECISE),
        ("NUMBER that is whole", "DECIMAL(38,0)", {"scale": 0, "value": unscaled(1001)}, "1001", VARIABLE, PRECISE),
        ("NUMBER of a negative scale", "DECIMAL(10,0)", {"scale": -2, "value": unscaled(-15)}, "-1500", VARIABLE, PRECISE),
        ("NUMBER(5,2)", "DECIMAL(5,2)", unscaled(-314), "-3.14", named("bytes", DECIMAL, scale="2"), PRECISE),
        ("NUMBER(38)", "DECIMAL(38,0)", unscaled(10**37), "1" + "0" * 37, named("bytes", DECIMAL, scale="0"), PRECISE),
        ("NUMBER(9)", "INT", 123_456_789, 123_456_789, {"type": "int32"}, {}),
        ("NUMBER(1)", "BOOLEAN", 1, True, {"type": "int8"}, {}),
        ("NUMBER as a string", "DECIMAL(10,2)", "3.14", "3.14", {"type": "string"}, {"decimal_handling_mode": "string"}),
        ("BINARY_DOUBLE", "DOUBLE", 1.5, 1.5, {"type": "double"}, {}),
        ("DATE, which has a time", "TIMESTAMP_NTZ(0)", NOON * 1000, NOON_US, named("int64", TIME + "Timestamp"), ADAPTIVE),
        ("TIMESTAMP(6)", "TIMESTAMP_NTZ(6)", NOON_US, NOON_US, named("int64", TIME + "MicroTimestamp"), ADAPTIVE),
        ("TIMESTAMP(9)", "TIMESTAMP_NTZ(9)", NOON_US * 1000 + 999, NOON_US, named("int64", TIME + "NanoTimestamp"), ADAPTIVE),
        ("TIMESTAMP WITH TIME ZONE", "TIMESTAMP(6)", "2025-01-02T07:00:00.000001-05:00", NOON_US + 1, ZONED, {}),
        ("TIMESTAMP WITH LOCAL TIME ZONE", "TIMESTAMP(6)", "2025-01-02T12:00:00Z", NOON_US, ZONED, {}),
        ("INTERVAL DAY TO SECOND", "INTERVAL DAY TO SECOND", -3_600_000_001, -3_600_000_001, DURATION, ADAPTIVE),
        ("RAW", "BINARY", "AP8=", b"\x00\xff", {"type": "bytes"}, {}),
        ("ROWID", "STRING", "AAAShjAAHAAAAAMAAA", "AAAShjAAHAAAAAMAAA", {"type": "string"}, {}),
    ),
)  # fmt: skip
def test_oracles_types(
    sql_type: str, value: Any, expected: Any, field: dict[str, Any], options: dict[str, Any]
) -> None:
    check(sql_type, value, expected, field, options, ORACLE)


# --------------------------------------------------------------------------------------------------
# PostgreSQL


@pytest.mark.parametrize(
    ("sql_type", "value", "expected", "field", "options"),
    cases(
        ("jsonb", "STRING", '{"a": [1]}', '{"a": [1]}', named("string", "io.debezium.data.Json"), {}),
        ("uuid", "STRING", UUID, UUID, named("string", "io.debezium.data.Uuid"), {}),
        ("numeric", "DECIMAL(20,5)", {"scale": 2, "value": unscaled(314)}, "3.14000", VARIABLE, PRECISE),
        ("numeric(10,2)", "DECIMAL(10,2)", unscaled(314), "3.14", named("bytes", DECIMAL, scale="2"), PRECISE),
        ("money", "DECIMAL(19,2)", unscaled(-100), "-1.00", named("bytes", DECIMAL, scale="2"), PRECISE),
        ("timestamptz", "TIMESTAMP(6)", "2025-01-02T12:00:00.123456Z", NOON_US + 123456, ZONED, {}),
        ("timestamp(3)", "TIMESTAMP_NTZ(3)", NOON * 1000, NOON_US, named("int64", TIME + "Timestamp"), ADAPTIVE),
        ("timestamp", "TIMESTAMP_NTZ(6)", NOON_US, NOON_US, named("int64", TIME + "MicroTimestamp"), ADAPTIVE),
        ("timetz", "TIME(6)", "12:00:00.5Z", 43_200_500_000, named("string", TIME + "ZonedTime"), {"time_precision_mode": "isostring"}),
        ("interval", "INTERVAL DAY TO SECOND", 90_000_000_000, 90_000_000_000, DURATION, ADAPTIVE),
        ("interval as text", "STRING", "P1Y2M3DT4H5M6.78S", "P1Y2M3DT4H5M6.78S", named("string", TIME + "Interval"), {}),
        ("hstore as a map", "MAP<STRING, STRING>", {"b": "2", "a": None}, [["a", None], ["b", "2"]], {"type": "map"}, {}),
        ("hstore as JSON", "STRING", '{"a":"1"}', '{"a":"1"}', named("string", "io.debezium.data.Json"), {}),
        ("bit(1)", "BOOLEAN", True, True, {"type": "boolean"}, {}),
        ("bit(10), little-endian", "BINARY", "AQI=", b"\x01\x02", named("bytes", "io.debezium.data.Bits", length="10"), {}),
        ("int[]", "ARRAY<INT>", [1, None], [1, None], array({"type": "int32"}), {}),
        ("numeric(5,1)[]", "ARRAY<DECIMAL(5,1)>", [unscaled(15)], ["1.5"], array(named("bytes", DECIMAL, scale="1")), PRECISE),
        ("timestamptz[]", "ARRAY<TIMESTAMP>", ["2025-01-02T12:00:00Z"], [NOON_US], array(ZONED), {}),
        ("date[]", "ARRAY<DATE>", [20090, None], [20090, None], array(named("int32", TIME + "Date")), {}),
        ("double that is no number", "DOUBLE", "Infinity", float("inf"), {"type": "double"}, {}),
        ("vector", "ARRAY<DOUBLE>", [1.0, -2.5, 3.4e38], [1.0, -2.5, 3.4e38], vector("Double", "double"), {}),
        ("halfvec", "ARRAY<FLOAT>", [0.5, 65504.0], [0.5, 65504.0], vector("Float", "float"), {}),
        ("sparsevec", SPARSE, {"dimensions": 6, "vector": [[3, -2.0], [1, 1.5]]}, [6, [[1, 1.5], [3, -2.0]]], SPARSE_VECTOR, {}),
        ("sparsevec without elements", SPARSE, {"dimensions": 6, "vector": []}, [6, []], SPARSE_VECTOR, {}),
        ("geometry", GEOMETRY, {"wkb": "AQE=", "srid": 4326}, [b"\1\1", 4326, None], geometry("Geometry"), {}),
        ("geography", GEOMETRY, {"wkb": "AQE=", "srid": None}, [b"\1\1", None, None], geometry("Geography"), {}),
        ("path, of Debezium 3.7", GEOMETRY, {"wkb": "AQI=", "srid": None, "extensions": {"type": "path", "closed": "true"}},
         [b"\1\2", None, [["closed", "true"], ["type", "path"]]], geometry("Geometry"), {}),
        ("point", "STRUCT<x: DOUBLE, y: DOUBLE>", {"x": 1.5, "y": 2.0, "wkb": "AQ=="}, [1.5, 2.0], {"type": "struct"}, {}),
    ),
)  # fmt: skip
def test_postgresqls_types(
    sql_type: str, value: Any, expected: Any, field: dict[str, Any], options: dict[str, Any]
) -> None:
    check(sql_type, value, expected, field, options, POSTGRES)


def test_a_schema_block_declares_vectors_and_geometry() -> None:
    fields = {"v": vector("Float", "float"), "s": SPARSE_VECTOR, "g": geometry("Geometry")}
    row = {"v": [1.5], "s": {"dimensions": 2, "vector": [[1, 1.5]]}, "g": {"wkb": "AQE="}}
    block = envelope(*({**of, "field": name} for name, of in fields.items()))
    inferred = infer_schema([(None, line("c", POSTGRES, None, row, block))], format="debezium-json")
    assert inferred.ddl == (
        "v ARRAY<FLOAT>, s STRUCT<dimensions: SMALLINT NOT NULL, vector: MAP<SMALLINT, DOUBLE>>, "
        "g STRUCT<wkb: BINARY NOT NULL, srid: INT, extensions: MAP<STRING, STRING>>"
    )
    assert "note on v, s: PostgreSQL's log lacks a long vector" in str(inferred)


# --------------------------------------------------------------------------------------------------
# Updates of Spanner's connector: a column that is null in both images is unchanged
SCHEMA = "id INT, name STRING, stock BIGINT"


def update(
    before: Any, after: Any, captured: str | None = "OLD_AND_NEW_VALUES", connector: str = "spanner"
) -> bytes:
    source = {"connector": connector, "db": "shop", "table": "parts", "ts_ms": 1, "ts_ns": 1000000}
    source |= {"sequence": "1", "mod_number": 0, "value_capture_type": captured}
    return json.dumps({"op": "u", "before": before, "after": after, "source": source}).encode()


def row(name: str | None = None, stock: int | None = None) -> dict[str, Any]:
    return {"id": 1, "name": name, "stock": stock}


@pytest.mark.parametrize("metadata", [{}, {"table": "source.table"}, {"all": "source.properties"}])
@pytest.mark.parametrize("positions", [False, True])
def test_updates_of_spanner_are_never_decoded_together(
    metadata: dict[str, str], positions: bool
) -> None:
    message = (None, update(row(stock=6), row(stock=7)))
    source = source_of(get_format("debezium-json"), SCHEMA, ["id"], metadata, positions=positions)
    assert odd_places(source, [message], keyed=True) == [0]
    assert not differences(source, [message])
    other = (None, update(row(stock=6), row(stock=7), None, "db2" if not positions else "vitess"))
    assert odd_places(source, [other], keyed=True) == ([0] if positions else [])


def test_a_sample_has_all_columns() -> None:
    inferred = infer_schema([(None, update(row(stock=6), row("fork", 7)))], format="debezium-json")
    assert inferred.ddl == "id BIGINT, name STRING, stock BIGINT"
