"""Schema inference from declarations and values, and on recorded topics against source tables."""

import json
import random
from functools import partial
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema

from cdc_formats import Event, Format, columns, read_object
from cdc_formats.avro.records import AvroSchema
from cdc_formats.avro.schema_registry import Registry
from cdc_formats.errors import (
    DecodeError,
    InferenceError,
)
from cdc_formats.format import get_format
from cdc_formats.testing import damaged
from cdc_formats.topics.inference import InferredSchema, infer_schema, infer_subject
from cdc_formats.topics.inference.source_types import (
    avro_columns,
    canal_type,
    connect_columns,
    jdbc_type,
)
from cdc_formats.topics.profile import profile_records
from cdc_formats.topics.sampler import SampledRecord
from cdc_formats.values.connect_schema import CONNECT
from tests.support.error_texts import error_test, text_test
from tests.support.paths import TOPICS
from tests.support.replay import producers, truth
from tests.support.samples import recorded, sample
from tests.support.scenarios import FORMATS, SCENARIOS


def infer(
    messages: list[dict],
    format: str = "changelog-json",
    keys: list[bytes | None] | None = None,
    **options,
) -> InferredSchema:
    values = [json.dumps(message).encode() for message in messages]
    return infer_schema(
        list(zip(keys or [None] * len(values), values, strict=True)), format=format, **options
    )


def of_values(*values: object, format: str = "changelog-json") -> InferredSchema:
    """Infer the schema of a table with one column that has these values."""
    if format == "debezium-json":
        return infer([{"op": "c", "after": {"id": True, "x": value}} for value in values], format)
    return infer([{"op": "+I", "data": {"id": True, "x": value}} for value in values], format)


def type_of(*values: object, format: str = "changelog-json") -> str:
    return str(of_values(*values, format=format).columns[1].type)


def raw(text: str) -> str:
    """Return the type of a column whose values are JSON text."""
    values = [b'{"op":"+I","data":{"x":%s}}' % part.encode() for part in text.split()]
    return str(
        infer_schema([(None, value) for value in values], format="changelog-json").columns[0].type
    )


# --------------------------------------------------------------------------------------------------
# values


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true false null", "BOOLEAN"),
        ("1 -5 null", "BIGINT"),
        ("-9223372036854775808 9223372036854775807", "BIGINT"),
        ("1 9223372036854775808", "DECIMAL(20,0)"),
        ("-1 9223372036854775808", "DECIMAL(38,0)"),
        ("1.5", "DECIMAL(38,18)"),
        ("1.50 7", "DECIMAL(38,18)"),
        ("12345678901234567890.50", "DECIMAL(38,18)"),
        ("123456789012345678901.50", "DECIMAL(38,9)"),
        ("12345678901234567890123456789012345678.0", "DOUBLE"),
        ("1234567890123456789012345678901234567.5", "DECIMAL(38,1)"),
        ("1.5 2.25", "DECIMAL(38,18)"),
        ("0E-18 1.000000000000000001", "DECIMAL(38,18)"),
        ("0.0000000000000000001 1.5", "DECIMAL(38,28)"),
        ("123456789012345678901234567890.123456789", "DOUBLE"),
        ("1.5E10 2.5", "DOUBLE"),
        ("1e400", "DOUBLE"),
        ('1.5 "NaN" "-Infinity"', "DOUBLE"),
        ('"NaN"', "DOUBLE"),
        ('1 "x"', "STRING"),
        ("true 1", "STRING"),
        ("null null", "STRING"),
        ('{"a":1} [1]', "STRING"),
        ("[1,2] [] [null]", "ARRAY<BIGINT>"),
        ("[]", "ARRAY<STRING>"),
        ("[[1.5]]", "ARRAY<ARRAY<DECIMAL(38,18)>>"),
        ('[1,"a"]', "ARRAY<STRING>"),
        ('{"a":1,"b":"x"} {"a":2}', "STRUCT<a: BIGINT, b: STRING>"),
        ('{"a":1} {"b":2}', "MAP<STRING, BIGINT>"),
        ('{"a":1} {"b":"x"}', "STRUCT<a: BIGINT, b: STRING>"),
        ('{"a":1} {"b":[1]} {"b":"x"}', "STRUCT<a: BIGINT, b: STRING>"),
        ("{}", "MAP<STRING, STRING>"),
        ('{"":1}', "STRING"),
        ('{"a`b":1}', "STRUCT<`a``b`: BIGINT>"),
    ],
)
def test_type_of_values(text: str, expected: str) -> None:
    assert raw(text) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2025-01-02", None, "1969-12-31"], "DATE"),
        (["2025-01-02", "2025-02-30"], "STRING"),
        (["0000-00-00"], "STRING"),
        (["20250102"], "STRING"),
        (["2025-01-02 03:04:05", "2025-01-02T03:04:05.123456"], "TIMESTAMP_NTZ"),
        (["2025-01-02T03:04:05Z", "2025-01-02 03:04:05.5+01:00"], "TIMESTAMP"),
        (["2025-01-02T03:04:05Z", "2025-01-02T03:04:05"], "STRING"),
        (["2025-01-02", "2025-01-02 03:04:05"], "STRING"),
        (["03:04:05"], "STRING"),
        (["2025-01-02", ""], "STRING"),
        (["1.50"], "STRING"),
        ([""], "STRING"),
    ],
)
def test_text_is_a_time_only_if_every_value_is_iso_text(values: list, expected: str) -> None:
    assert type_of(*values) == expected


# --------------------------------------------------------------------------------------------------
# declarations


def block(
    *fields: dict, op: str = "c", key: str = "id", connector: str = "postgresql", **row
) -> tuple[bytes, bytes]:
    image = {"type": "struct", "fields": list(fields), "optional": True}
    schema = {
        "type": "struct",
        "fields": [
            {**image, "field": "before"},
            {**image, "field": "after"},
            {"type": "string", "field": "op"},
        ],
    }
    payload = {
        "before": row if op == "d" else None,
        "after": None if op == "d" else row,
        "op": op,
        "source": {"db": "d", "table": "t", "connector": connector},
    }
    key_schema = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": key}]}
    return (
        json.dumps({"schema": key_schema, "payload": {key: 1}}).encode(),
        json.dumps({"schema": schema, "payload": payload}).encode(),
    )


ID = {"type": "int32", "optional": False, "field": "id"}


def canal(mysql: dict | None, row: dict, **more) -> dict:
    return {
        "type": "INSERT",
        "database": "d",
        "table": "t",
        "data": [row],
        "mysqlType": mysql,
        "pkNames": ["id"],
        **more,
    }


# --------------------------------------------------------------------------------------------------
# the sample


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_every_scenario_decodes_with_the_schema_that_is_inferred_from_it(scenario) -> None:
    # For Avro the registry has the columns.
    for identifier in (name for name in scenario.identifiers if name != "debezium-avro-confluent"):
        records, options = scenario.records(identifier), scenario.vector(identifier).options
        try:
            inferred = infer_schema(records, format=identifier, **options)
        except InferenceError:
            assert scenario.name in ("tombstones", "truncate", "ddl-and-heartbeats"), (
                f"{identifier} has rows"
            )
            continue
        assert [note for note in inferred.notes if "do not decode" in note] == []
        assert columns(inferred.ddl) == inferred.columns


# --------------------------------------------------------------------------------------------------
# recorded topics


def pairs(name: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in recorded(name, most=None)]


RECORDED = [
    (
        "canal-mariadb-flat",
        "canal-json",
        "mariadb2.customers",
        {"table_include": "customers", "time_zone": "UTC"},
    ),
    ("canal-mariadb-flat", "canal-json", "mariadb2.truncated", {"table_include": "truncated"}),
    ("maxwell-mariadb", "maxwell-json", "mariadb2.customers", {"table_include": "customers"}),
    ("dbz34-mariadb-json.inventory.customers", "debezium-json", "mariadb.customers", {}),
    ("dbz34-mariadb-json.inventory.order_lines", "debezium-json", "mariadb.order_lines", {}),
    ("dbz19-postgres-json.inventory.all_types", "debezium-json", "postgres19.all_types", {}),
]


@pytest.mark.parametrize(
    ("name", "identifier", "table", "options"), RECORDED, ids=[f"{r[0]}, {r[2]}" for r in RECORDED]
)
def test_a_recorded_topic_gives_the_columns_and_the_key_of_its_table(
    name: str, identifier: str, table: str, options: dict
) -> None:
    records = pairs(name)
    source = truth.load(TOPICS, *table.split("."))
    inferred = infer_schema([*records[:1000], *records[-1000:]], format=identifier, **options)
    assert sorted(column.name for column in inferred.columns) == sorted(
        column.name for column in source.columns
    )
    assert set(inferred.primary_key) == set(source.primary_key)
    assert {c.name for c in inferred.columns if not c.nullable} <= {
        c.name for c in source.columns if not c.nullable
    }
    decoder = get_format(identifier, **inferred.format_options).decoder(
        inferred.columns, unique_key=inferred.primary_key
    )
    refused = []
    for key, value in records:
        try:
            decoder.upserts(key, value)
        except DecodeError as error:
            refused.append(str(error))
    assert refused == []


def test_types_from_canal_equal_the_tables_types() -> None:
    source = truth.load(TOPICS, "mariadb2", "customers")
    inferred = infer_schema(
        pairs("canal-mariadb-flat"), format="canal-json", table_include="customers", time_zone="UTC"
    )
    assert [str(column.type) for column in inferred.columns] == [
        producers.canal(column).type for column in source.columns
    ]


@pytest.mark.parametrize("identifier", [name for name in FORMATS if not name.endswith("confluent")])
def test_any_sample_gives_a_schema_or_an_inference_error(identifier: str) -> None:
    draw = random.Random(5)
    records = [
        record
        for scenario in SCENARIOS
        if identifier in scenario.identifiers
        for record in scenario.records(identifier)
    ]
    for _ in range(60):
        some = [
            tuple(damaged(part or b"", draw) for part in draw.choice(records)) for _ in range(4)
        ]
        try:
            inferred = infer_schema(some, format=identifier, examples=1)
        except InferenceError:
            continue
        assert columns(inferred.ddl) == inferred.columns
        assert json.dumps(inferred.to_dict())
        assert str(inferred)


# --------------------------------------------------------------------------------------------------
# Columns from Avro and Connect schemas, and from registry schemas that a sample's records name
URL = "mock://infer"


def record(*fields: dict, name: str = "Value", **more: Any) -> dict:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def column(avro: Any, connector: str = "") -> str:
    """Return the column of an Avro type."""
    (declared,) = avro_columns(AvroSchema(record({"name": "x", "type": avro})), connector)
    return str(declared.column)


ENTRY = record(
    {"name": "key", "type": "int"},
    {"name": "value", "type": "string"},
    name="io.confluent.connect.avro.MapEntry",
)


@pytest.mark.parametrize(
    ("avro", "expected"),
    [
        ("int", "x INT NOT NULL"),
        (["null", "long"], "x BIGINT"),
        (["string", "null"], "x STRING"),
        ({"type": "int", "connect.type": "int16"}, "x SMALLINT NOT NULL"),
        ({"type": "int", "connect.type": "int8"}, "x TINYINT NOT NULL"),
        ("float", "x FLOAT NOT NULL"),
        ("double", "x DOUBLE NOT NULL"),
        ("boolean", "x BOOLEAN NOT NULL"),
        ("bytes", "x BINARY NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4}, "x BINARY NOT NULL"),
        ({"type": "enum", "name": "E", "symbols": ["a"]}, "x STRING NOT NULL"),
        ({"type": "string", "logicalType": "uuid"}, "x STRING NOT NULL"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}, "x DECIMAL(10,2) NOT NULL"),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9}, "x DECIMAL(9,0) NOT NULL"),
        ({"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.parameters": {"scale": "3"}}, "x DECIMAL(38,3) NOT NULL"),
        ({"type": "bytes", "connect.name": CONNECT + "Decimal", "connect.parameters": {"scale": "-2"}}, "x DECIMAL(38,0) NOT NULL"),
        ({"type": "int", "logicalType": "date"}, "x DATE NOT NULL"),
        ({"type": "int", "logicalType": "time-millis"}, "x TIME(3) NOT NULL"),
        ({"type": "long", "logicalType": "time-micros"}, "x TIME(6) NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-millis"}, "x TIMESTAMP(3) NOT NULL"),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "x TIMESTAMP_NTZ(6) NOT NULL"),
        ({"type": "long", "logicalType": "timestamp-millis", "connect.name": CONNECT + "Timestamp"}, "x TIMESTAMP_NTZ(3) NOT NULL"),
        ({"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}, "x TIMESTAMP_NTZ(6) NOT NULL"),
        ({"type": "long", "connect.name": "io.debezium.time.NanoTime"}, "x TIME(6) NOT NULL"),
        ({"type": "string", "connect.name": "io.debezium.time.ZonedTimestamp"}, "x TIMESTAMP NOT NULL"),
        ({"type": "string", "connect.name": "io.debezium.data.Json"}, "x STRING NOT NULL"),
        ({"type": "long", "logicalType": "of-the-future"}, "x BIGINT NOT NULL"),
        ({"type": "array", "items": ["null", "int"]}, "x ARRAY<INT> NOT NULL"),
        ({"type": "map", "values": "long"}, "x MAP<STRING, BIGINT> NOT NULL"),
        ([record({"name": "a", "type": ["null", "int"]}, name="R"), "null"], "x STRUCT<a: INT>"),
        (
            {"type": "array", "items": ENTRY},
            "x MAP<INT, STRING> NOT NULL",
        ),
    ],
)  # fmt: skip
def test_column_of_an_avro_type(avro: Any, expected: str) -> None:
    assert column(avro) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("TINYINT(1)", "TINYINT"),
        ("tinyint(3) unsigned", "SMALLINT"),
        ("smallint unsigned zerofill", "INT"),
        ("bigint unsigned", "DECIMAL(20,0)"),
        ("double precision", "DOUBLE"),
        ("decimal(10, 2) unsigned", "DECIMAL(10,2)"),
        ("numeric(5)", "DECIMAL(5,0)"),
        ("datetime", "TIMESTAMP_NTZ(0)"),
        ("TIME(6)", "INTERVAL DAY TO SECOND"),
        ("enum('a(b','c\nd')", "INT"),
        ("varchar(20) charset utf8mb4", "None"),
        ("mediumtext", "STRING"),
        ("longblob", "BINARY"),
        ("bit(20)", "DECIMAL(20,0)"),
        ("bit(1)", "BOOLEAN"),
        ("bit", "DECIMAL(20,0)"),
        ("INTEGER(9) unsigned", "BIGINT"),
        ("bool", "TINYINT"),
        ("serial", "DECIMAL(20,0)"),
        ("geometry", "BINARY"),
        ("hyperloglog", "None"),
        ("", "None"),
    ],
)
def test_canal_type(text: str, expected: str) -> None:
    assert str(canal_type(text, zoned=False)[0]) == expected


# --------------------------------------------------------------------------------------------------
# from a registry


def avro_bytes(subject: str, schema: dict, value: dict) -> bytes:
    number = Registry(url=URL).client.confluent.register_schema(
        subject, Schema(json.dumps(schema), "AVRO")
    )
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + stream.getvalue()


KEY = record({"name": "id", "type": "int"}, name="Key")
ROW = record(
    {"name": "id", "type": "int"},
    {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
)


def envelope(row: dict) -> dict:
    source = record(
        {"name": "db", "type": "string"},
        {"name": "table", "type": "string"},
        name="Source",
        namespace="io.debezium.connector.mysql",
    )
    images = [
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
    ]
    return record(
        *images,
        {"name": "op", "type": "string"},
        {"name": "source", "type": source},
        name="Envelope",
    )


def event(table: str, row: dict, after: dict) -> tuple[bytes, bytes]:
    value = {"before": None, "after": after, "op": "c", "source": {"db": "d", "table": table}}
    return avro_bytes(f"{table}-key", KEY, {"id": 1}), avro_bytes(
        f"{table}-value", envelope(row), value
    )


# --------------------------------------------------------------------------------------------------
# by subject


def register(subject: str, schema: Any) -> None:
    Registry(url=URL).client.confluent.register_schema(subject, Schema(json.dumps(schema), "AVRO"))


# --------------------------------------------------------------------------------------------------
# what a sample gives


class Plain(Format):
    """A format of another package."""

    identifier = "plain-of-test"

    def read(self, key, value):
        return [Event.insert(read_object(value))]


def vector_of(name: str, identifier: str, records: list | None = None) -> InferredSchema:
    """Infer the schema of a scenario's records."""
    vector = next(each for each in SCENARIOS if each.name == name).vector(identifier)
    return infer_schema(vector.records, format=identifier, **vector.options)


def debezium(*records: tuple, **options: Any) -> InferredSchema:
    return infer_schema(records, format="debezium-json", **options)


def rows_of_tables(**options: Any) -> InferredSchema:
    """Infer the schema of a topic with the tables a, b and a again."""
    rows = [("a", 1), ("b", 2), ("a", 3)]
    return infer(
        [
            {"type": "insert", "database": "d", "table": table, "data": {"id": n}}
            for table, n in rows
        ],
        "maxwell-json",
        **options,
    )


def avro_events(*tables: str, **options: Any) -> InferredSchema:
    """Infer the schema of Avro events, whose tables alternate between two schemas."""
    narrow = record({"name": "id", "type": "int"})
    wider = record({"name": "id", "type": "long"}, {"name": "more", "type": "string"})
    rows = [(narrow, {"id": 1}), (wider, {"id": 2, "more": "x"}), (narrow, {"id": 3})]
    events = [event(table, *row) for table, row in zip(tables, rows, strict=False)]
    return infer_schema(events, format="debezium-avro-confluent", url=URL, **options)


def avro_upserts(row: dict, value: dict, key_format: str, **options: Any) -> InferredSchema:
    """Infer the schema of an upsert of a row in Avro, and of its delete."""
    key = b'{"id":1}' if key_format == "json" else avro_bytes("apart-key", KEY, {"id": 1})
    return infer_schema(
        [(key, avro_bytes("apart-value", row, value)), (key, None)],
        format="upsert-kafka",
        key_format=key_format,
        value_format="avro-confluent",
        avro_confluent_url=URL,
        **options,
    )


def with_numbers(format: str, connector: str, **more: Any) -> InferredSchema:
    """Infer the schema of a negative number and of base64 that may be an unsigned BIGINT."""
    row = {"n": -1, "p": "AP//////////", **more}
    event = {"op": "c", "after": row, "source": {"connector": connector}}
    flat = {**row, "__op": "c", "__connector": connector}
    return infer([event if format == "debezium-json" else flat], format, [b'{"n": -1}'])


def keyed_by_maxwell(key: bytes | None, **more: Any) -> InferredSchema:
    row = {"type": "insert", "database": "d", "table": "t", "data": {"Id": 1, "part": "x"}}
    return infer([{**row, **more}], "maxwell-json", [key])


def of_avro(schema: Any, *others: Any) -> list[tuple[str, str]]:
    """Return the columns of a schema, with their comments."""
    declared = avro_columns(AvroSchema(schema, others))
    return [(str(each.column), each.comment) for each in declared]


def of_subject(*versions: dict) -> InferredSchema:
    """Infer the columns of a subject whose rows have these versions of their schema."""
    subject = f"shop.parts{len(versions)}"
    for version in versions:
        register(f"{subject}-value", envelope(version))
    if len(versions) > 1:
        register(f"{subject}-key", record({"name": "id", "type": "long"}, name="Key"))
    return infer_subject(f"{subject}-value", format="debezium-avro-confluent", url=URL)


def key_apart(**options: str) -> str:
    """Return what is inferred and read of rows in Avro whose key the value lacks."""
    row = record({"name": "name", "type": ["null", "string"]})
    key = avro_bytes("apart-key", KEY, {"id": 1})
    records = [(key, avro_bytes("apart-value", row, {"name": "bolt"}), ()), (key, None, ())]
    both = {"key_format": "avro-confluent", "value_format": "avro-confluent"}
    format = get_format("upsert-kafka", **both, avro_confluent_url=URL, **options)
    inferred = infer_schema(records, format=format)
    decoder = format.decoder(inferred.columns, unique_key=inferred.primary_key)
    rows = [decoder.upserts(*each)[0].row for each in records]
    sampled = [SampledRecord("apart", 0, offset, 0, *each) for offset, each in enumerate(records)]
    (table,) = profile_records(sampled, url=URL, **options).tables
    return f"{inferred}\n{rows}\n{table.schema.ddl} {table.primary_key}"


DIFFERENT_CASE = [canal(None, {"id": "1", "K1": "x"}), canal(None, {"id": "2", "k1": "y"})]
NAMED_TEXTS = [{"op": "+I", "data": {"x": text}} for text in ("a", None, "a", "b" * 100, "c")]
COMMENTED = {"type": "string", "connect.doc": "the part's name"}
VARIABLE = {"connect.name": "io.debezium.data.VariableScaleDecimal", "connect.doc": "of the type"}
SCALE = record({"name": "scale", "type": "int"}, name="VariableScaleDecimal", **VARIABLE)
MICRO_TIME = {"type": "long", "connect.name": "io.debezium.time.MicroTime"}
PRICE = {"type": "fixed", "size": 9, "name": "a.Price", "logicalType": "decimal"}
PART = record({"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]})
SINCE = {"name": "since", "type": ["null", {"type": "int", "logicalType": "date"}]}
AFTER_DMS = {"id": 2, "name": "bike", "weight": 9.5}


def of_dms(*rows: dict, operation: str = "update", **options: Any) -> InferredSchema:
    metadata = {"record-type": "data", "schema-name": "shop", "table-name": "products"}
    messages = [{"data": row, "metadata": {**metadata, "operation": operation}} for row in rows]
    return infer(messages, "dms-json", **options)


BARE_OF_COCKROACHDB = [
    (b"[1]", b'{"id":1,"name":"a","__crdb__":{"updated":"1532377312562986715.0000000000"}}'),
    (b"[2]", b'{"id":2,"name":"b","__crdb__":{"updated":"1532377312562986716.0000000000"}}'),
    (None, b'{"__crdb__":{"resolved":"1532377312562986717.0000000000"}}'),
]
MARK = "__debezium_unavailable_value"
NUMBER = {"type": "int64", "optional": False, "field": "id"}
TIME = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTime", "field": "t"}
NAME = {"field": "name", "type": "string", "optional": True}
IMAGES = {
    "type": "struct",
    "fields": [
        {"type": "struct", "fields": [ID, NAME], "field": name} for name in ("before", "after")
    ],
}
FLAT_ROW = {"id": 1, "__op": "c", "__deleted": "false", "__table": "t", "__db": "d"}
DELETE = {**canal({"id": "int", "name": "text"}, {"id": "1", "name": "a"}), "type": "DELETE"}
MYSQL = {
    "id": "int(10) unsigned",
    "label": "ENUM('a','b')",
    "named": "enum('a','b')",
    "at": "timestamp(3)",
    "bare": "decimal",
    "odd": "polygonish",
}
MYSQL_ROW = {
    "id": "1",
    "label": "2",
    "named": "b",
    "at": "2025-01-02 03:04:05.123",
    "bare": "1.5",
    "odd": "x",
}
UPSERT = {"value_fields_include": "EXCEPT_KEY", "key_fields_prefix": "k_"}
UNIT = 1735787045123
DOCUMENT = {
    "_id": {"$oid": "596e275826f08b2730779e1f"},
    "price": {"$numberDecimal": "1.50"},
    "round": {"$numberDecimal": "1E+1"},
    "odd": {"$numberDecimal": "NaN"},
    "ratio": 0.5,
    "count": {"$numberLong": "5"},
    "at": {"$date": {"$numberLong": "1589362330904"}},
    "photo": {"$binary": "AA==", "$type": "00"},
    "parts": [{"n": 1, "of": {"$undefined": True}}],
}
test_texts = text_test(
    __file__,
    {
        **{
            f"a number and base64 of {connector} in {format}": partial(
                with_numbers, format, connector
            )
            for connector in ("mysql", "mariadb", "postgresql", "sqlserver")
            for format in ("debezium-flat-json", "debezium-json")
        },
        "base64 of more than 64 bits": partial(
            with_numbers, "debezium-json", "mysql", p="AP//////////AP//////////"
        ),
        "columns that differ by case alone": lambda: infer(DIFFERENT_CASE, "canal-json"),
        "columns that differ by case alone in a profile": lambda: [
            (each.schema, each.reason)
            for each in profile_records(
                sample(*((None, json.dumps(each).encode()) for each in DIFFERENT_CASE))
            ).tables
        ],
        "a column of one case": lambda: infer(DIFFERENT_CASE[:1], "canal-json").notes,
        "as JSON": lambda: json.dumps(
            infer(
                [canal({"id": "int"}, {"id": "1", "name": "ab"})], "canal-json", examples=1
            ).to_dict()
        ),
        "types and values of two records": lambda: infer(
            [canal({"id": "int"}, {"id": "1", "name": "ab"}), {"type": "TRUNCATE"}], "canal-json"
        ),
        "examples": lambda: infer(NAMED_TEXTS, examples=2).evidence[0].examples,
        "no examples": lambda: of_values("secret").evidence[1].examples,
        "text without examples": lambda: of_values("secret"),
        **{
            f"values that are nested deeply, {part}": partial(
                raw, part * 300 + "1" + ("]" if part == "[" else "}") * 300
            )
            for part in ("[", '{"a":')
        },
        "comments of columns": partial(
            of_avro,
            record(
                {"name": "name", "type": ["null", COMMENTED]},
                {"name": "n", "type": SCALE},
                {"name": "id", "type": "int"},
            ),
        ),
        "times of MySQL by the namespace of an envelope's source": lambda: of_avro(
            envelope(record({"name": "t", "type": MICRO_TIME}))
        ),
        "a type that another schema defines": partial(
            of_avro,
            record({"name": "x", "type": "Price"}, namespace="a"),
            {**PRICE, "precision": 5, "scale": 1},
        ),
        "a subject without a key": partial(of_subject, PART),
        "a subject with a key, whose schema is wider": lambda: of_subject(
            PART, record(*PART["fields"], SINCE)
        ),
        "a key in Avro that the value lacks": key_apart,
        "a key in Avro with a prefix": lambda: key_apart(**UPSERT),
        **{
            f"the key of Maxwell, {key!r} {more}": partial(keyed_by_maxwell, key, **more)
            for key, more in [
                (b'{"database":"d","table":"t","pk.id":1,"pk.part":"x"}', {}),
                (b'["d","t",[{"Id":1},{"part":"x"}]]', {}),
                (b'{"database":"d","table":"t","_uuid":"x"}', {}),
                (b"any text", {}),
                (None, {"primary_key_columns": ["Id"]}),
                (None, {"primary_key_columns": []}),
            ]
        },
        **{
            f"a column of MySQL's {kind}": lambda kind=kind: infer(
                [canal({"x": kind}, {"x": "1"})], "canal-json"
            )
            for kind in (
                *("point", "LINESTRING", "polygon", "multipoint", "multilinestring"),
                *("multipolygon", "geometrycollection", "geomcollection", "geometry"),
                *("SERIAL", "INT8 unsigned", "int2(4)", "float8"),
            )
        },
        "an unknown type of JDBC": partial(jdbc_type, 2004),
        "a known type of JDBC": partial(jdbc_type, 91),
        # The new note is NULL, which is left out.
        "a before-image among the columns of DMS": lambda: of_dms(
            AFTER_DMS, {**AFTER_DMS, "BI_id": 1, "BI_note": "old"}
        ).to_dict(),
        "a before-image of DMS in a profile": lambda: [
            (each.ddl, each.options, each.before.updates, each.before.updates_with)
            for each in profile_records(
                sample(
                    (
                        None,
                        json.dumps(
                            {
                                "data": {**AFTER_DMS, "BI_id": 1, "BI_note": "old"},
                                "metadata": {"record-type": "data", "operation": "update"},
                            }
                        ).encode(),
                    )
                )
            ).tables
        ],
        "a column of DMS with the prefix of before-images": lambda: of_dms(
            {"id": 1, "BI_note": "x"}
        ),
        "a column of DMS with the prefix next to a before-image": lambda: of_dms(
            {**AFTER_DMS, "BI_id": 1}, before_image_field="before-image"
        ),
        "a field of GoldenGate's that marks a missing column": lambda: infer(
            [
                {
                    "op_type": "I",
                    "before": None,
                    "after": {"id": 1, "id_isMissing": False, "n": None, "n_isMissing": missing},
                }
                for missing in (True, False)
            ],
            "ogg-json",
        ),
        **{
            f"the schema of the scenario {name} in {format}": partial(vector_of, name, format)
            for name, format in [
                ("mongodb", "mongodb-json"),
                ("mongodb", "debezium-mongodb-json"),
                ("product", "cockroachdb-json"),
            ]
        },
        "bare messages of CockroachDB": partial(
            infer_schema, BARE_OF_COCKROACHDB, format="cockroachdb-json"
        ),
        "the format of bare messages of CockroachDB": lambda: (
            profile_records(sample(*BARE_OF_COCKROACHDB)).format
        ),
        "a unit is not guessed": lambda: of_values(UNIT, UNIT + 1, format="debezium-json"),
        "a number without a unit": lambda: of_values(UNIT),
        "base64 may be a decimal": lambda: of_values("DEQ=", "ai8=", format="debezium-json"),
        "text may be a decimal": lambda: of_values("9.50", "-1", format="debezium-json"),
        "only nulls": lambda: of_values(None, format="debezium-json"),
        "values of several kinds": lambda: of_values(1, "x", format="debezium-json"),
        "text that could be base64 by chance": lambda: of_values(
            "bike", "scooters", format="debezium-json"
        ),
        "the placeholder is not counted as a value": lambda: of_values(
            [1, 2], [MARK], {MARK: MARK}, MARK.encode().hex(), None, format="debezium-json"
        ),
        "columns have the order of the fullest row, and those that are missing are nullable": lambda: (
            infer(
                [
                    {"type": "insert", "data": row, "primary_key_columns": ["id"]}
                    for row in (
                        {"id": 1, "old": 1},
                        {"id": 2, "new": "x", "more": 1, "old": 2},
                        {"more": 3, "id": 3},
                    )
                ],
                "maxwell-json",
            )
        ),
        "documents of MongoDB": lambda: infer(
            [{"op": "c", "after": json.dumps(DOCUMENT)}], "debezium-mongodb-json"
        ),
        "a schema block is exact": lambda: vector_of("schema-block", "debezium-json"),
        "a guessed decimal has room": lambda: of_values(1.5),
        "guessed decimals in an array": lambda: of_values([1.5]),
        "guessed decimals in an object": lambda: of_values({"a": 1.5}),
        "a number beyond a BIGINT": lambda: of_values(1, 2**70),
        "a fraction of Debezium's is a double": lambda: of_values(
            1.5, 2.25, format="debezium-json"
        ),
        "a fraction of Debezium's with more digits": lambda: debezium(
            *(
                (None, b'{"op":"c","after":{"x":%s}}' % text)
                for text in (b"1.5", b"12345678901234.5678")
            )
        ),
        **{
            f"a negative key of {connector or 'an unknown source'}": lambda connector=connector: (
                debezium(block(NUMBER, id=-1, connector=connector))
            )
            for connector in ("mysql", "mariadb", "")
        },
        "a negative key of PostgreSQL": lambda: debezium(block(NUMBER, id=-1)),
        "a positive key of MySQL": lambda: debezium(block(NUMBER, id=1, connector="mysql")),
        "a decimal without a precision may be an unsigned BIGINT": lambda: debezium(
            block(
                ID,
                {
                    "type": "bytes",
                    "name": CONNECT + "Decimal",
                    "parameters": {"scale": "0"},
                    "field": "n",
                },
                id=1,
                n="AP//////////",
                connector="mysql",
            )
        ),
        "times of MySQL are intervals, and the type of the source is known": lambda: debezium(
            block(
                ID,
                TIME,
                {
                    "type": "int64",
                    "optional": True,
                    "parameters": {"__debezium.source.column.type": "BIGINT UNSIGNED"},
                    "field": "n",
                },
                connector="mysql",
                id=1,
                t=-1,
                n=-1,
            )
        ),
        "a schema that changes is widened, and a new column is nullable": lambda: debezium(
            block(ID, {**ID, "field": "n"}, id=1, n=1),
            block(ID, {**NUMBER, "field": "n"}, {**NAME, "optional": False}, id=2, n=2, name="x"),
        ),
        "some messages have no schema block": lambda: debezium(
            block(ID, id=1), (b'{"id": 1}', b'{"op": "c", "after": {"id": 1}}')
        ),
        "a schema block of only the images": lambda: infer(
            [
                {
                    "schema": IMAGES,
                    "payload": {
                        "before": None,
                        "after": {"id": 1, "name": "bolt"},
                        "op": "c",
                        "source": {"db": "shop", "table": "parts"},
                    },
                }
            ],
            "debezium-json",
        ),
        "a schema block of a row with a column after": lambda: infer(
            [
                {
                    "schema": {**IMAGES, "fields": [{"field": "after", "type": "string"}]},
                    "payload": {"after": "noon"},
                }
            ],
            "debezium-flat-json",
            [b'{"after": "noon"}'],
        ),
        "a flattened row without a key, whose added fields are no columns": lambda: infer(
            [FLAT_ROW], "debezium-flat-json"
        ),
        "a flattened row with a key": lambda: infer(
            [FLAT_ROW], "debezium-flat-json", [b'{"id": 1}']
        ),
        "a delete with a schema block": lambda: debezium(block(ID, NAME, op="d", id=1, name="")),
        "a delete with types of MySQL": lambda: infer([DELETE], "canal-json"),
        "types of MySQL": lambda: infer([canal(MYSQL, MYSQL_ROW)], "canal-json"),
        "types of MySQL in a time zone": lambda: infer(
            [canal(MYSQL, MYSQL_ROW)], "canal-json", time_zone="UTC"
        ),
        "types of JDBC": lambda: infer(
            [
                canal(
                    None,
                    {"id": "1", "at": "2025-01-02 03:04:05", "price": "1.5"},
                    sqlType={"id": 4, "at": 93, "price": 3},
                )
            ],
            "canal-json",
        ),
        "a key of Debezium": lambda: infer(
            [{"op": "c", "after": {"id": 1}}], "debezium-json", [b'{"id": 1}']
        ),
        "a key of GoldenGate": lambda: infer(
            [{"op_type": "I", "after": {"ID": 1}, "primary_keys": ["ID"]}], "ogg-json"
        ),
        "a key of upserts": lambda: infer([{"v": 1}], "upsert-kafka", [b'{"id": 1}'], **UPSERT),
        **{
            f"an ambiguous key, {keys}": lambda keys=keys: infer(
                [{"op": "c", "after": {"id": 1, "n": 1}}] * 2, "debezium-json", keys
            )
            for keys in (
                (None, None),
                (b'{"id": 1}', b'{"n": 1}'),
                (b'{"other": 1}', None),
                (b"7", b"no key"),
            )
        },
        "a delete is no evidence, because its row may have fillers": lambda: infer(
            [
                {"op": "c", "after": {"id": 1, "t": "2025-01-02"}},
                {"op": "d", "before": {"id": 1, "t": ""}},
            ],
            "debezium-json",
        ),
        "one of several tables": lambda: rows_of_tables(table_include="a"),
        "several tables that are selected": lambda: rows_of_tables(table_include="a|b"),
        "a record that cannot be read is noted without its data": lambda: infer(
            [{"op": "+I", "data": {"id": 1}}, {"op": "secret"}]
        ),
        "a record that fails with the inferred schema is noted": lambda: debezium(
            block(ID, TIME, id=1, t=86_400_000_000)
        ),
        "a null of JSON in a topic of upserts": lambda: infer_schema(
            [(b'{"id": 1}', b'{"id": 1}'), (b'{"id": 1}', b"null")], format="upsert-kafka"
        ),
        "a null of JSON that is a delete": lambda: infer_schema(
            [(b'{"id": 1}', b'{"id": 1}'), (b'{"id": 1}', b"null")],
            format="upsert-kafka",
            json_null="delete",
        ),
        "a format of another package": lambda: infer_schema(
            [(None, b'{"id": 1, "at": "2025-01-02"}')], format=Plain()
        ),
        "a key in JSON that the value lacks": lambda: infer_schema(
            [(b'{"id":1,"shop":"a"}', b'{"shop":"a","name":"bolt"}')], format="upsert-kafka"
        ),
        "Avro of a schema that changes": lambda: avro_events("a", "a"),
        "Avro of several tables": lambda: avro_events("a", "a", "b", table_include="b"),
        "the schema of a vector in Avro": lambda: vector_of("product", "debezium-avro-confluent"),
        **{
            f"upserts in Avro with a key in {key_format}": lambda key_format=key_format: (
                avro_upserts(ROW, {"id": 1, "at": UNIT}, key_format)
            )
            for key_format in ("avro-confluent", "json")
        },
    },
)


register("text-value", "string")
test_error_texts = error_test(
    __file__,
    {
        "a sample without rows is an error that describes it, 1": lambda: infer_schema(
            [
                (None, json.dumps({"type": "CREATE", "isDdl": True}).encode()),
                (None, None),
                (None, b"{secret"),
            ],
            format="canal-json",
        ),
        "a sample without rows is an error that describes it, 2": lambda: infer_schema(
            [], format="canal-json"
        ),
        "csv has no column names to infer from": lambda: infer_schema(
            [(b"1", b"1,2")], format="upsert-kafka", value_format="csv", key_format="csv"
        ),
        "options require a format name, 1": lambda: infer_schema(
            [], format=get_format("canal-json"), table_include="t"
        ),
        "options require a format name, 2": lambda: infer_subject(
            "t-value", format=get_format("canal-json"), table_include="t"
        ),
        **{
            f"an avro type without a column type is refused (1), {number}": lambda avro=avro: (
                column(avro)
            )
            for number, avro in enumerate(
                [
                    ["int", "string"],
                    [record({"name": "a", "type": "int"}, name="A"), "string"],
                ],
                1,
            )
        },
        "avro columns of a schema that is no record": lambda: avro_columns(AvroSchema("int")),
        **{
            f"an invalid connect schema is refused, {number}": lambda field=field: connect_columns(
                {"type": "struct", "fields": [{**field, "field": "x"}]}
            )
            for number, field in enumerate(
                [
                    {"type": "array"},
                    {"type": "map", "keys": {"type": "string"}},
                    {"type": "int128"},
                ],
                1,
            )
        },
        "several tables": rows_of_tables,
        "several tables in Avro": lambda: avro_events("a", "a", "b"),
        "a delete without types has no row": lambda: infer(
            [{**DELETE, "mysqlType": None}], "canal-json"
        ),
        "a delete and a row of several tables": lambda: infer(
            [DELETE, {**canal({"id": "int"}, {"id": "1"}), "table": "u"}], "canal-json"
        ),
        **{
            f"a subject that describes no table, {number}": lambda arguments=arguments: (
                infer_subject(**arguments)
            )
            for number, arguments in enumerate(
                [
                    {"subject": "nowhere-value", "format": "debezium-avro-confluent", "url": URL},
                    {"subject": "text-value", "format": "debezium-avro-confluent", "url": URL},
                    {"subject": "text-value", "format": "debezium-json"},
                    {"subject": "text-value", "format": "debezium-avro-confluent"},
                ],
                1,
            )
        },
        "avro without a registry has no column names": lambda: infer_schema(
            [], format="upsert-kafka", key_format="raw", value_format="avro"
        ),
    },
)
