"""Messages in a schema registry's frame: JSON is read behind it, and Protobuf is named."""

import json
import zlib
from functools import partial
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, InferenceError, WriterSchemaError
from cdc_formats.events import KeyValue
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import text_test
from tests.support.rules import results_of
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
    format = get_format(identifier, **vector.options)
    plain, records = list(vector.records), framed(list(vector.records), frame)
    mixed = [*plain[:3], *records[3:], *plain[:3]]
    of_plain, of_framed, of_mixed = (
        results_of(format, each, vector.schema, vector.primary_key)
        for each in (plain, records, mixed)
    )
    assert of_framed == of_plain
    assert of_mixed.rows == [*of_plain.rows, *of_plain.rows[:3]]


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
VALUES = b'{"id":1,"name":null,"price":"AfQ=","at":1700000000000000,"ratio":null,"tags":["a"]}'


OTHER_ROW = {
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
OTHER_VALUE = b'{"id":1,"price":1.50,"at":"2025-01-02T03:04:05Z","address":null,"any":"x"}'
ITEM = 'syntax = "proto3"; message Item { int64 id = 1; string name = 2; }'
KEY = NUMBER + b'{"id":1}'


def profiled(*records: KeyValue, **options: Any) -> str:
    """Return what a profile says about the messages."""
    profile = profile_records(sample(*records), **options)
    tables = [(table.ddl, table.primary_key, table.options) for table in profile.tables]
    return f"{profile.format}, {profile.values}: {profile.reason}\n{tables}\n{profile.calls}"


def by_registry(
    format: str, value: bytes, schema: str, *, kind: str = "JSON", number: int = 7
) -> str:
    """Return what is inferred with a registry's schema, and what a profile says."""
    login = {"basic_auth_user_info": "ada:lovelace"}
    with RegistryFront(schemas={number: schema}, schema_type=kind, basic="ada:lovelace") as front:
        options = {
            "avro_confluent_url": front.url,
            "avro_confluent_basic_auth_user_info": login["basic_auth_user_info"],
        }
        of_format = options if format == "upsert-kafka" else {"url": front.url, **login}
        inferred = infer_schema([(KEY, value)] * 2, format=format, **of_format)
        chosen = inferred.options_besides([*of_format])
        profile = profiled((KEY, value), (KEY, value), url=front.url, **login)
        row = get_format(format, **chosen).decoder(inferred.columns, unique_key=["id"])
        text = f"{inferred}\n{chosen}\n{profile}\n{row.upserts(KEY, value)}"
        return text.replace(front.url, "URL")


DEBEZIUM = b'{"before":null,"after":%s,"op":"c","source":{"connector":"postgresql"}}'
test_texts = text_test(
    __file__,
    {
        **{
            f"events behind {name}": partial(
                profiled,
                *framed(
                    [(b'{"id":1}', DEBEZIUM % (b'{"id":%d,"name":"a"}' % n)) for n in range(3)],
                    frame,
                ),
            )
            for name, frame in FRAMES.items()
        },
        **{
            f"rows behind {name}": partial(
                profiled, *framed([(b'{"id":1}', b'{"id":1,"name":"a"}')], frame)
            )
            for name, frame in FRAMES.items()
        },
        **{
            f"Protobuf behind {frame!r}": partial(profiled, *[(b"1", frame + PROTOBUF)] * 3)
            for frame in (NUMBER + b"\0", FRAMES["the last id"] + b"\0", b"")
        },
        **{
            f"not clearly Protobuf: {value!r}": partial(profiled, (b"1", value))
            for value in (
                *(
                    b"\x08\1\x10\2",
                    b"\x08\1\x12\4bikes",
                    b"\x12\4bike\x08\1",
                    b"(\1bike",
                    b"1,bike",
                ),
                *(b'{"id": 1}', b"\0\0\0\0\7\2\2\x08bike", b"\xff\xfe", b"", b"\x0a"),
            )
        },
        "columns of the registry's JSON Schema of an envelope": partial(
            by_registry, "debezium-json", NUMBER + DEBEZIUM % VALUES, json.dumps(ENVELOPE)
        ),
        "columns of the registry's JSON Schema of a row": partial(
            *(by_registry, "debezium-flat-json", NUMBER + b'{"__op":"c",%s' % VALUES[1:]),
            json.dumps(ROW),
        ),
        "columns of another JSON Schema": partial(
            by_registry, "upsert-kafka", NUMBER + OTHER_VALUE, json.dumps(OTHER_ROW)
        ),
        **{
            f"columns without a JSON Schema, {kind} {number} {schema}": partial(
                *(by_registry, "debezium-json", NUMBER + DEBEZIUM % b'{"id":1}', schema),
                kind=kind,
                number=number,
            )
            for number, schema, kind in (
                (7, "[", "JSON"),
                (8, "{}", "JSON"),
                (7, '"string"', "AVRO"),
            )
        },
        "columns without a frame": partial(
            by_registry, "debezium-json", DEBEZIUM % b'{"id":1}', json.dumps(ENVELOPE)
        ),
    },
)


@pytest.mark.parametrize(
    "schema",
    ["5", '{"type": "object"}', '{"$ref": "#"}', '{"$ref": "other.json"}', '{"type": "string"}'],
)
def test_a_json_schema_without_columns_is_an_error_that_names_it(schema: str) -> None:
    with pytest.raises(InferenceError, match="schema 7: the JSON Schema"):
        by_registry("debezium-json", NUMBER + DEBEZIUM % b'{"id":1}', schema)


@pytest.mark.parametrize("value", [NUMBER + b"\0\x08\1", NUMBER + b"\0" + PROTOBUF])
def test_a_registry_says_that_a_value_is_protobuf(value: bytes) -> None:
    with RegistryFront(schemas={7: ITEM}, schema_type="PROTOBUF") as front:
        profile = profile_records(sample(*[(b"1", value)] * 3), url=front.url)
        assert profile.format is None
        assert (
            "they are Protobuf, as the schema registry says. Protobuf is not read" in profile.reason
        )
        format = get_format("debezium-avro-confluent", url=front.url)
        with pytest.raises(InferenceError, match=r"it is a PROTOBUF schema[.] Protobuf is not"):
            infer_schema([(None, value)], format=format)
        with pytest.raises(WriterSchemaError, match=r"schema 7: it is a PROTOBUF schema[.] Proto"):
            format.decoder("id INT").decode(None, value)
