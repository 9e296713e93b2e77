"""Columns from Avro and Connect schemas, and from registry schemas that a sample's records name."""

import json
from io import BytesIO
from typing import Any

import fastavro
import pytest
from confluent_kafka.schema_registry import Schema

from cdc_formats import get_format
from cdc_formats.avro.reader import AvroSchema
from cdc_formats.avro.schema_registry import Registry
from cdc_formats.errors import ArgumentError, FormatOptionError, InferenceError, SchemaError
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.inference import infer_schema, infer_subject
from cdc_formats.topics.inference.source_types import (
    avro_columns,
    canal_type,
    connect_columns,
    jdbc_type,
)
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.connect_schema import CONNECT
from tests.support.scenarios import SCENARIOS

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


def test_a_connect_doc_is_the_comment_of_its_column() -> None:
    name = {"type": "string", "connect.doc": "the part's name"}
    number = record(
        {"name": "scale", "type": "int"},
        name="VariableScaleDecimal",
        **{"connect.name": "io.debezium.data.VariableScaleDecimal", "connect.doc": "of the type"},
    )
    fields = [("name", ["null", name]), ("n", number), ("id", "int")]
    schema = AvroSchema(record(*({"name": each, "type": kind} for each, kind in fields)))
    assert [each.comment for each in avro_columns(schema)] == ["the part's name", "", ""]


def test_mysql_times_of_an_envelope_are_intervals_by_the_namespace_of_its_source() -> None:
    time = {"name": "t", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTime"}}
    source = record(
        {"name": "db", "type": "string"}, name="Source", namespace="io.debezium.connector.mysql"
    )
    before, op = (
        {"name": "before", "type": ["null", record(time)]},
        {"name": "op", "type": "string"},
    )
    envelope = record(
        before,
        {"name": "after", "type": ["null", "Value"]},
        {"name": "source", "type": source},
        op,
        name="Envelope",
        namespace="a.b",
    )
    assert [str(each.column) for each in avro_columns(AvroSchema(envelope))] == [
        "t INTERVAL DAY TO SECOND NOT NULL"
    ]


def test_a_type_may_be_defined_by_another_schema() -> None:
    price = {"type": "fixed", "size": 9, "name": "a.Price", "logicalType": "decimal"}
    price |= {"precision": 5, "scale": 1}
    schema = record({"name": "x", "type": "Price"}, namespace="a")
    (declared,) = avro_columns(AvroSchema(schema, [price]))
    assert str(declared.column) == "x DECIMAL(5,1) NOT NULL"


@pytest.mark.parametrize(
    ("avro", "reason"),
    [
        (["int", "string"], "an Avro union of 2 types has no column type"),
        ([record({"name": "a", "type": "int"}, name="A"), "string"], "an Avro union of 2 types"),
    ],
)
def test_an_avro_type_without_a_column_type_is_refused(avro: Any, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        column(avro)
    with pytest.raises(SchemaError, match="expected a Connect schema of a struct"):
        avro_columns(AvroSchema("int"))


@pytest.mark.parametrize(
    "field", [{"type": "array"}, {"type": "map", "keys": {"type": "string"}}, {"type": "int128"}]
)
def test_an_invalid_connect_schema_is_refused(field: dict) -> None:
    with pytest.raises(SchemaError, match=r"has no '|unsupported Connect type 'int128' of 'x'"):
        connect_columns({"type": "struct", "fields": [{**field, "field": "x"}]})


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


def test_unknown_jdbc_types() -> None:
    assert jdbc_type(2004) is None
    assert str(jdbc_type(91)) == "DATE"


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


@pytest.mark.parametrize("key_format", ["avro-confluent", "json"])
def test_columns_and_key_of_upserts_come_from_the_records_schemas(key_format: str) -> None:
    key = b'{"id":1}' if key_format == "json" else avro_bytes("upsert-key", KEY, {"id": 1})
    records = [
        (key, avro_bytes("upsert-value", ROW, {"id": 1, "at": at})) for at in (None, 1735787045123)
    ]
    options = {
        "key_format": key_format,
        "value_format": "avro-confluent",
        "avro_confluent_url": URL,
    }
    inferred = infer_schema([*records, (key, None)], format="upsert-kafka", **options)
    assert (inferred.ddl, inferred.primary_key) == ("id INT NOT NULL, at TIMESTAMP(3)", ("id",))
    assert (inferred.rows, inferred.ignored, inferred.notes) == (2, {"TOMBSTONE": 1}, ())
    assert {each.certainty for each in inferred.evidence} == {"schema registry"}


@pytest.mark.parametrize(
    "options", [{}, {"value_fields_include": "EXCEPT_KEY", "key_fields_prefix": "k_"}]
)
def test_columns_of_an_avro_key_that_the_value_lacks(options: dict[str, str]) -> None:
    row = record({"name": "name", "type": ["null", "string"]})
    key = avro_bytes("apart-key", KEY, {"id": 1})
    records = [(key, avro_bytes("apart-value", row, {"name": "bolt"}), ()), (key, None, ())]
    registry = {
        "key_format": "avro-confluent",
        "value_format": "avro-confluent",
        "avro_confluent_url": URL,
    }
    inferred = infer_schema(records, format="upsert-kafka", **registry, **options)
    name = options.get("key_fields_prefix", "") + "id"
    assert (inferred.ddl, inferred.primary_key, inferred.notes) == (
        f"{name} INT NOT NULL, name STRING",
        (name,),
        (),
    )
    assert {each.certainty for each in inferred.evidence} == {"schema registry"}
    decoder = get_format("upsert-kafka", **registry, **options).decoder(
        inferred.columns, unique_key=inferred.primary_key
    )
    assert [decoder.upserts(*each)[0].row for each in records] == [(1, "bolt"), None]
    sampled = [SampledRecord("apart", 0, offset, 0, *each) for offset, each in enumerate(records)]
    (table,) = profile_records(sampled, url=URL, **options).tables
    assert (table.schema.ddl, table.primary_key) == (inferred.ddl, inferred.primary_key)


def test_columns_of_a_json_key_that_the_value_lacks() -> None:
    inferred = infer_schema(
        [(b'{"id":1,"shop":"a"}', b'{"shop":"a","name":"bolt"}')], format="upsert-kafka"
    )
    assert (inferred.ddl, inferred.primary_key) == (
        "id BIGINT NOT NULL, shop STRING NOT NULL, name STRING",
        ("id", "shop"),
    )
    assert inferred.notes == ()


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


def test_envelopes_of_a_schema_that_changes_and_of_several_tables() -> None:
    wider = record({"name": "id", "type": "long"}, {"name": "more", "type": "string"})
    narrow = record({"name": "id", "type": "int"})
    records = [event("a", narrow, {"id": 1}), event("a", wider, {"id": 2, "more": "x"})]
    inferred = infer_schema(records, format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key, inferred.tables) == (
        "id BIGINT NOT NULL, more STRING",
        ("id",),
        ("d.a",),
    )
    assert inferred.notes == ()
    records.append(event("b", narrow, {"id": 1}))
    with pytest.raises(
        InferenceError,
        match=r"several tables: d\.a \(2 changes\), d\.b \(1 changes\); choose one with table_include",
    ):
        infer_schema(records, format="debezium-avro-confluent", url=URL)
    one = infer_schema(records, format="debezium-avro-confluent", url=URL, table_include="b")
    assert (one.ddl, one.ignored) == ("id INT NOT NULL", {"OTHER_TABLE": 2})


def test_vectors_give_the_schema_they_were_written_with() -> None:
    (scenario,) = (scenario for scenario in SCENARIOS if scenario.name == "product")
    vector = scenario.vector("debezium-avro-confluent")
    inferred = infer_schema(vector.records, format="debezium-avro-confluent", **vector.options)
    assert inferred.ddl == "id INT NOT NULL, name STRING, description STRING, weight DECIMAL(10,3)"
    assert inferred.notes == ()


def test_avro_without_a_registry_has_no_column_names() -> None:
    with pytest.raises(InferenceError, match="value_format 'avro' has no column names"):
        infer_schema([], format="upsert-kafka", key_format="raw", value_format="avro")


# --------------------------------------------------------------------------------------------------
# by subject


OP = {"name": "op", "type": "string"}


def register(subject: str, schema: Any) -> None:
    Registry(url=URL).client.confluent.register_schema(subject, Schema(json.dumps(schema), "AVRO"))


def test_a_subject_gives_the_columns_and_the_primary_key() -> None:
    row = record({"name": "id", "type": "long"}, {"name": "price", "type": ["null", "double"]})
    old = record(
        {"name": "before", "type": ["null", row]},
        {"name": "after", "type": ["null", "Value"]},
        OP,
        name="Envelope",
    )
    wider = record(
        *row["fields"], {"name": "since", "type": ["null", {"type": "int", "logicalType": "date"}]}
    )
    new = record(
        {"name": "before", "type": ["null", wider]},
        {"name": "after", "type": ["null", "Value"]},
        OP,
        name="Envelope",
    )
    register("shop.parts-value", old)
    inferred = infer_subject("shop.parts-value", format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key) == ("id BIGINT NOT NULL, price DOUBLE", ())
    register("shop.parts-value", new)
    register("shop.parts-key", record({"name": "id", "type": "long"}, name="Key"))
    inferred = infer_subject("shop.parts-value", format="debezium-avro-confluent", url=URL)
    assert (inferred.ddl, inferred.primary_key) == (
        "id BIGINT NOT NULL, price DOUBLE, since DATE",
        ("id",),
    )
    assert "id BIGINT NOT NULL: schema registry" in str(inferred)


def test_a_subject_that_describes_no_table_is_an_error() -> None:
    register("text-value", "string")
    for subject, text in {
        "nowhere-value": "has no subject 'nowhere-value'",
        "text-value": "does not describe a table",
    }.items():
        with pytest.raises(InferenceError, match=text):
            infer_subject(subject, format="debezium-avro-confluent", url=URL)
    with pytest.raises(ArgumentError, match="debezium-json does not use a schema registry"):
        infer_subject("text-value", format="debezium-json")
    with pytest.raises(FormatOptionError, match="url is not set"):
        infer_subject("text-value", format="debezium-avro-confluent")
