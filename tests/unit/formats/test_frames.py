"""Messages in a schema registry's frame: JSON is read behind it, and Protobuf is named."""

import json
import zlib
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, InferenceError, WriterSchemaError
from cdc_formats.events import KeyValue
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import Blocks, TypedRows
from tests.support.both_decoders import differences, odd_places, outcome, source_of, together
from tests.support.samples import sample
from tests.support.scenarios import CASES, FORMATS, Scenario
from tests.support.servers.registry_front import RegistryFront

pytestmark = pytest.mark.usefixtures("no_other_formats")

IN_JSON = [
    (scenario, name)
    for scenario, name in CASES
    if scenario.name == "product" and "avro" not in name
]
NUMBER = b"\0\0\0\0\7"
GLUE, GLUE_COMPRESSED = b"\3\0" + bytes(range(16)), b"\3\5" + bytes(range(16))
FRAMES = {
    "an id": NUMBER,
    "the last id": b"\0\xff\xff\xff\xff",
    "a GUID": b"\1" + bytes(range(16)),
    "AWS Glue": GLUE,
    "AWS Glue, compressed": GLUE_COMPRESSED,
}
PROTOBUF = b"\x08\x01\x12\x04bike\x1a\x02\x08\x05"
"""A number, text and a message."""


def framed(records: list[KeyValue], frame: bytes) -> list[KeyValue]:
    return [tuple(part and behind(frame, part) for part in record) for record in records]  # type: ignore[misc]


def behind(frame: bytes, part: bytes) -> bytes:
    return frame + (zlib.compress(part) if frame == GLUE_COMPRESSED else part)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize(("scenario", "identifier"), IN_JSON, ids=[name for _, name in IN_JSON])
def test_json_in_a_frame_is_read_as_without_it(
    scenario: Scenario, identifier: str, frame: bytes
) -> None:
    vector = scenario.vector(identifier)
    decoder = get_format(identifier, **vector.options).decoder(
        vector.schema, unique_key=vector.primary_key
    )
    source = source_of(decoder.format, vector.schema, vector.primary_key)
    plain, records = list(vector.records), framed(list(vector.records), frame)
    assert [decoder.decode(*record) for record in records] == [
        decoder.decode(*record) for record in plain
    ]
    assert [decoder.upserts(*record) for record in records] == [
        decoder.upserts(*record) for record in plain
    ]
    assert (
        outcome(source, records, columnar=together).changes
        == outcome(source, plain, columnar=together).changes
    )
    for target in (Blocks, TypedRows):
        assert not differences(source, records, target)
        assert not differences(source, [*plain[:3], *records[3:], *plain[:3]], target)
    # Some formats are decoded row by row.
    if together(source, keyed=True) is not None:
        assert odd_places(source, records) == odd_places(source, plain)


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_a_profile_reads_json_in_frames(frame: bytes) -> None:
    values = [
        b'{"before":null,"after":{"id":%d,"name":"a"},"op":"c","source":{}}' % number
        for number in range(3)
    ]
    records = sample(*framed([(b'{"id":1}', value) for value in values], frame))
    profile = profile_records(records)
    assert (profile.format, profile.values) == (
        "debezium-json",
        {f"{'AWS Glue' if frame[0] == 3 else 'Confluent'} framing, then JSON": 3},
    )
    assert (profile.tables[0].ddl, profile.tables[0].primary_key) == (
        "id BIGINT NOT NULL, name STRING",
        ("id",),
    )
    rows = profile_records(sample(*framed([(b'{"id":1}', b'{"id":1,"name":"a"}')], frame)))
    assert (rows.format, rows.tables[0].options) == ("upsert-kafka", {})


@pytest.mark.parametrize(
    "value",
    [
        b"\0",
        b"\0\0\0\0",
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\0\0\0\0\7{}",
        b"\1" * 17,
        b"\0\0\0\0\7{",
        b"\0\0\0\0\7\xef\xbb\xbf[]",
        GLUE[:-1],
        GLUE,
        GLUE + b"{",
        GLUE + GLUE + b"{}",
        b"\3\1" + GLUE[2:] + b"{}",
        GLUE_COMPRESSED,
        GLUE_COMPRESSED + b"{}",
        GLUE_COMPRESSED + zlib.compress(b"{}")[:-1],
        GLUE_COMPRESSED + zlib.compress(b"{}") + b"{}",
    ],
)
@pytest.mark.parametrize(
    "identifier", ["changelog-json", "debezium-json", "debezium-flat-json", "upsert-kafka"]
)
def test_a_frame_around_other_data_is_an_error(identifier: str, value: bytes) -> None:
    decoder = FORMATS[identifier].decoder("id INT", unique_key=["id"])
    with pytest.raises(DecodeError):
        decoder.upserts(b'{"id":1}', value)
    assert not differences(
        source_of(FORMATS[identifier], "id INT", ["id"]), [(b'{"id":1}', value)] * 2
    )


# --------------------------------------------------------------------------------------------------
# Protobuf


@pytest.mark.parametrize("frame", [NUMBER, FRAMES["the last id"], b""])
def test_a_profile_names_protobuf(frame: bytes) -> None:
    value = frame + (b"\0" if frame else b"") + PROTOBUF
    profile = profile_records(sample(*[(b"1", value)] * 3))
    assert (profile.format, profile.tables) == (None, ())
    assert "looks like Protobuf. Protobuf is not read: write Avro or JSON instead" in profile.reason
    assert ("pass url=" in profile.reason) is bool(frame)


@pytest.mark.parametrize("value", [b"\0\0\0\0\7\0\x08\1", b"\0\0\0\0\7\0" + PROTOBUF])
def test_a_registry_says_that_a_value_is_protobuf(value: bytes) -> None:
    with RegistryFront(
        schemas={7: 'syntax = "proto3"; message Item { int64 id = 1; string name = 2; }'},
        schema_type="PROTOBUF",
    ) as front:
        profile = profile_records(sample(*[(b"1", value)] * 3), url=front.url)
        assert profile.format is None
        assert (
            "they are Protobuf, as the schema registry says. Protobuf is not read: write Avro or "
            "JSON"
        ) in profile.reason
        options: dict[str, Any] = {"format": "debezium-avro-confluent", "url": front.url}
        with pytest.raises(
            InferenceError, match=r"it is a PROTOBUF schema[.] Protobuf is not read"
        ):
            infer_schema([(None, value)], **options)
        with pytest.raises(
            WriterSchemaError, match=r"schema 7: it is a PROTOBUF schema[.] Protobuf is not read"
        ):
            get_format("debezium-avro-confluent", url=front.url).decoder("id INT").decode(
                None, value
            )


@pytest.mark.parametrize(
    "value",
    [
        b"\x08\1\x10\2",
        b"\x08\1\x12\4bikes",
        b"\x12\4bike\x08\1",
        b"(\1bike",
        b"1,bike",
        b'{"id": 1}',
        b"\0\0\0\0\7\2\2\x08bike",
        b"\xff\xfe",
        b"",
        b"\x0a",
    ],
)
def test_bytes_that_are_not_clearly_protobuf_are_not_called_so(value: bytes) -> None:
    assert "Protobuf" not in profile_records(sample((b"1", value))).reason


# ------------------------------------------------------------------------------------------- JSON
# Schemas of a registry


def field(
    index: int, kind: str, connect: str, *, optional: bool = True, **more: Any
) -> dict[str, Any]:
    """Return a field as Kafka Connect's JsonSchemaConverter writes it."""
    schema = {"type": kind, "connect.type": connect, **more}
    return {
        "connect.index": index,
        **({"oneOf": [{"type": "null"}, schema]} if optional else schema),
    }


ROW = {
    "type": "object",
    "title": "shop.products.Value",
    "properties": {
        "price": field(
            2,
            "number",
            "bytes",
            title="org.apache.kafka.connect.data.Decimal",
            **{"connect.parameters": {"scale": "2"}},
        ),
        "id": field(0, "integer", "int32", optional=False),
        "name": field(1, "string", "string"),
        "at": field(
            3, "integer", "int64", title="io.debezium.time.MicroTimestamp", **{"connect.version": 1}
        ),
        "ratio": field(4, "number", "float64"),
        "tags": {
            "connect.index": 5,
            "oneOf": [
                {"type": "null"},
                {"type": "array", "items": {"type": "string", "connect.type": "string"}},
            ],
        },
    },
}
ENVELOPE = {
    "type": "object",
    "title": "shop.products.Envelope",
    "properties": {
        "before": {
            "connect.index": 0,
            "oneOf": [{"type": "null"}, {"$ref": "#/definitions/Value"}],
        },
        "after": {"connect.index": 1, "oneOf": [{"type": "null"}, {"$ref": "#/definitions/Value"}]},
        "op": field(3, "string", "string", optional=False),
        "source": {
            "connect.index": 2,
            "type": "object",
            "properties": {"connector": field(0, "string", "string")},
        },
    },
    "definitions": {"Value": ROW},
}
DECLARED = (
    "id INT NOT NULL, name STRING, price DECIMAL(38,2), at TIMESTAMP_NTZ(6), ratio DOUBLE, tags "
    "ARRAY<STRING>"
)
VALUES = b'{"id":1,"name":null,"price":"AfQ=","at":1700000000000000,"ratio":null,"tags":["a"]}'


@pytest.mark.parametrize(
    ("format", "schema", "value"),
    [
        (
            "debezium-json",
            ENVELOPE,
            b'{"before":null,"after":%s,"op":"c","source":{"connector":"postgresql"}}' % VALUES,
        ),
        ("debezium-flat-json", ROW, b'{"__op":"c",%s' % VALUES[1:]),
    ],
)
def test_a_schema_is_inferred_from_the_registrys_json_schema(
    format: str, schema: dict[str, Any], value: bytes
) -> None:
    record = (b'\0\0\0\0\7{"id":1}', b"\0\0\0\0\7" + value)
    with RegistryFront(
        schemas={7: json.dumps(schema)}, schema_type="JSON", basic="ada:lovelace"
    ) as front:
        inferred = infer_schema(
            [record] * 2, format=format, url=front.url, basic_auth_user_info="ada:lovelace"
        )
        assert (inferred.ddl, inferred.primary_key) == (DECLARED, ("id",))
        assert {each.certainty for each in inferred.evidence} == {"schema registry"}
        assert inferred.options_besides(["url", "basic_auth_user_info"]) == {
            "decimal_handling_mode": "precise",
            "time_precision_mode": "adaptive_time_microseconds",
        }
        assert not inferred.notes
        profile = profile_records(
            sample(record, record), url=front.url, basic_auth_user_info="ada:lovelace"
        )
        assert (profile.format, profile.tables[0].ddl) == (format, DECLARED)
        assert "lovelace" not in profile.call()
    options = {name: option for name, option in inferred.format_options.items() if "mode" in name}
    changes = (
        get_format(format, **options).decoder(inferred.ddl, unique_key=["id"]).upserts(*record)
    )
    assert isinstance(changes, list)
    assert changes[0].row == (1, None, "5.00", 1700000000000000, None, ["a"])


def test_rows_by_key_have_the_columns_of_another_json_schema() -> None:
    schema = {
        "type": "object",
        "required": ["id", "at"],
        "properties": {
            "id": {"type": "integer"},
            "price": {"type": ["number", "null"]},
            "at": {"type": "string", "format": "date-time"},
            "address": {"type": "object", "properties": {"zip": {"type": "string"}}},
            "any": {"oneOf": [{"type": "string"}, {"type": "integer"}]},
        },
    }
    value = b'{"id":1,"price":1.50,"at":"2025-01-02T03:04:05Z","address":null,"any":"x"}'
    with RegistryFront(schemas={7: json.dumps(schema)}, schema_type="JSON") as front:
        profile = profile_records(sample((b'{"id":1}', b"\0\0\0\0\7" + value)), url=front.url)
        assert profile.format == "upsert-kafka"
        expected = (
            "id BIGINT NOT NULL, price DECIMAL(38,18), at TIMESTAMP, address STRUCT<zip: STRING>, "
            "any STRING"
        )
        assert profile.tables[0].ddl.replace(" NOT NULL", "") == expected.replace(" NOT NULL", "")
        assert profile.tables[0].options["avro_confluent_url"] == front.url


UNTYPED = b'\0\0\0\0\7{"before":null,"after":{"id":1},"op":"c","source":{}}'


@pytest.mark.parametrize(
    "schema",
    ["5", '{"type": "object"}', '{"$ref": "#"}', '{"$ref": "other.json"}', '{"type": "string"}'],
)
def test_a_json_schema_without_columns_is_an_error_that_names_it(schema: str) -> None:
    with (
        RegistryFront(schemas={7: schema}, schema_type="JSON") as front,
        pytest.raises(InferenceError, match="schema 7: the JSON Schema"),
    ):
        infer_schema([(None, UNTYPED)], format="debezium-json", url=front.url)


@pytest.mark.parametrize(
    ("number", "schema", "kind"), [(7, "[", "JSON"), (8, "{}", "JSON"), (7, '"string"', "AVRO")]
)
def test_without_a_json_schema_columns_are_inferred_from_values(
    number: int, schema: str, kind: str
) -> None:
    with RegistryFront(schemas={number: schema}, schema_type=kind) as front:
        assert (
            infer_schema([(None, UNTYPED)], format="debezium-json", url=front.url).ddl
            == "id BIGINT"
        )
        assert (
            infer_schema([(None, UNTYPED[5:])], format="debezium-json", url=front.url).ddl
            == "id BIGINT"
        )
    assert infer_schema([(None, UNTYPED)], format="debezium-json").ddl == "id BIGINT"
