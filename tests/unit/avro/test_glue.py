"""AWS Glue's schema registry: Avro and JSON in its frame, and what a refusal says."""

import json
import sys
import zlib
from collections.abc import Iterator
from itertools import count
from typing import Any
from uuid import UUID

import pytest

from cdc_formats import Change, RowKind, get_format
from cdc_formats.avro.schema_registry import Registry
from cdc_formats.avro.writer import avro_bytes
from cdc_formats.errors import (
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
)
from cdc_formats.events import KeyValue
from cdc_formats.topics.inference import infer_schema, infer_subject
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.frames import GlueVersion
from tests.support.both_decoders import differences, odd_places, source_of
from tests.support.samples import sample
from tests.support.servers.local_glue import REGION, LocalGlue, environment
from tests.support.servers.registry_front import RegistryFront

URL = f"glue://{REGION}"
AVRO = "debezium-avro-confluent"
ROW = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
}
UNKNOWN = UUID("89791762-2336-4186-9674-299b90a802e2")
SCHEMA = "id INT NOT NULL, name STRING"
_numbers = count(1)


@pytest.fixture(scope="module")
def glue() -> Iterator[LocalGlue]:
    with LocalGlue() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        yield server


@pytest.fixture(scope="module")
def envelope(glue: LocalGlue) -> UUID:
    return glue.register("orders-value", "AVRO", json.dumps(ENVELOPE))


def plain(version: UUID, content: bytes) -> bytes:
    return b"\3\0" + version.bytes + content


def compressed(version: UUID, content: bytes) -> bytes:
    return b"\3\5" + version.bytes + zlib.compress(content)


def inserts(version: UUID, frame: Any = plain, rows: int = 20) -> list[KeyValue]:
    write = avro_bytes(ENVELOPE)
    return [
        (
            None,
            frame(
                version, write({"before": None, "after": {"id": key, "name": "bolt"}, "op": "c"})
            ),
        )
        for key in range(rows)
    ]


# --------------------------------------------------------------------------------------------------
# messages


@pytest.mark.parametrize("frame", [plain, compressed])
def test_avro_is_read_with_the_schema_of_its_version(envelope: UUID, frame: Any) -> None:
    format = get_format(AVRO, url=URL)
    records = inserts(envelope, frame)
    assert [format.decoder(SCHEMA).decode(*record) for record in records] == [
        [Change(RowKind.INSERT, (key, "bolt"))] for key in range(20)
    ]
    source = source_of(format, SCHEMA, ["id"])
    assert not differences(source, records)
    # Plain messages are decoded together, and compressed ones one by one.
    assert len(odd_places(source, records)) == (0 if frame is plain else 20)


def test_damaged_and_other_frames_among_others_are_bad_records(envelope: UUID) -> None:
    records = inserts(envelope)
    records[3:3] = [
        (None, compressed(envelope, b"x")[:-1]),
        (None, b"\0\0\0\0\7x"),
        (None, plain(UNKNOWN, b"x")),
        (None, plain(envelope, b"")),
        (None, b"\3\0"),
        (None, None),
        *inserts(envelope, compressed, rows=2),
    ]
    assert not differences(source_of(get_format(AVRO, url=URL), SCHEMA, ["id"]), records)


def test_rows_by_key_are_read_with_the_schemas_of_their_key_and_value(glue: LocalGlue) -> None:
    key = glue.register("rows-key", "AVRO", '"int"')
    value = glue.register("rows-value", "AVRO", json.dumps(ROW))
    format = get_format(
        "upsert-kafka",
        key_format="avro-confluent",
        value_format="avro-confluent",
        avro_confluent_url=URL,
    )
    record = (plain(key, b"\x0e"), compressed(value, avro_bytes(ROW)({"id": 7, "name": "nut"})))
    assert format.decoder(SCHEMA, unique_key=["id"]).decode(*record) == [
        Change(RowKind.UPDATE_AFTER, (7, "nut"))
    ]


def test_columns_are_those_of_the_schemas(glue: LocalGlue, envelope: UUID) -> None:
    assert infer_schema(inserts(envelope), format=AVRO, url=URL).ddl == SCHEMA
    assert profile_records(sample(*inserts(envelope)), url=URL).format == AVRO
    assert "url='glue://eu-central-1'" in str(profile_records(sample(*inserts(envelope))))
    version = glue.register("json-value", "JSON", json.dumps(JSON_SCHEMA))
    value = plain(version, b'{"id":1,"at":"2025-01-02T03:04:05Z"}')
    inferred = infer_schema([(b'{"id":1}', value)], format="upsert-kafka", avro_confluent_url=URL)
    assert inferred.ddl == "id BIGINT NOT NULL, at TIMESTAMP"


# --------------------------------------------------------------------------------------------------
# refusals


def client() -> Any:
    """Return a client that no other test has: the environment is read once."""
    return Registry(url=URL, retry_seconds=1 + next(_numbers) / 1000).client


def test_a_version_that_does_not_exist_is_a_record_error(glue: LocalGlue) -> None:
    with pytest.raises(WriterSchemaError, match=f"at {URL} has no schema {UNKNOWN}"):
        client().schema(GlueVersion(UNKNOWN))


def test_a_schema_of_another_type_is_a_record_error(glue: LocalGlue) -> None:
    protobuf = 'syntax = "proto3"; message Item { int64 id = 1; }'
    version = GlueVersion(glue.register("protobuf-value", "PROTOBUF", protobuf))
    with pytest.raises(WriterSchemaError, match=r"it is a PROTOBUF schema\. Protobuf is not read"):
        client().schema(version)


def test_the_frame_says_which_registry_has_the_schema(glue: LocalGlue) -> None:
    with pytest.raises(WriterSchemaError, match="schema 7 is not in AWS Glue, by the message's"):
        client().schema(7)
    with pytest.raises(
        WriterSchemaError, match=r"is in AWS Glue, .*: set the registry's url to glue"
    ):
        Registry(url="mock://confluent").client.schema(GlueVersion(UNKNOWN))


def refusal(name: str, status: int = 400) -> tuple[int, bytes]:
    return status, json.dumps({"__type": name, "Message": "not you"}).encode()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            refusal("AccessDeniedException"),
            "refuses schema .*: AccessDeniedException, not you. boto3 takes the login from the "
            "environment, a profile or a role, which must have the permission glue:GetSchemaVersion",
        ),
        (refusal("ExpiredTokenException"), "refuses schema .*: ExpiredTokenException"),
        (refusal("InvalidInputException"), "answers InvalidInputException to schema .*: not you"),
        ((200, b"<html>"), "is not AWS Glue .*: check AWS_ENDPOINT_URL_GLUE"),
        ((200, b"{}"), "is not AWS Glue .*: check AWS_ENDPOINT_URL_GLUE"),
    ],
)
def test_a_refused_request_is_not_a_record_error(
    monkeypatch: pytest.MonkeyPatch, answer: tuple[int, bytes], text: str
) -> None:
    with RegistryFront(answers=(answer,)) as front:
        for name, value in environment(front.url).items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SchemaRegistryError, match=text) as caught:
            client().schema(GlueVersion(UNKNOWN))
        assert front.requests == 1
    assert "tests" not in str(caught.value)


def test_a_busy_registry_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "SchemaVersionId": str(UNKNOWN),
        "DataFormat": "AVRO",
        "SchemaDefinition": json.dumps(ROW),
    }
    answers = (
        refusal("ThrottlingException"),
        refusal("InternalServiceException", 500),
        (200, json.dumps(schema).encode()),
    )
    with RegistryFront(answers=answers) as front:
        for name, value in environment(front.url).items():
            monkeypatch.setenv(name, value)
        assert client().schema(GlueVersion(UNKNOWN)).top["name"] == "Value"
        assert front.requests == 3


def test_without_a_login_or_a_region_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SchemaRegistryError, match=r"does not answer .* after 1 s of retries"):
        client().schema(GlueVersion(UNKNOWN))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(SchemaRegistryError, match="no login for the schema registry at glue://"):
        client().schema(GlueVersion(UNKNOWN))
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(FormatOptionError, match="url 'glue://' has no region"):
        _ = Registry(url="glue://").client


def test_without_boto3_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(
        MissingDependencyError, match=r"pip install 'pyspark-kafka-changelog\[glue\]'"
    ):
        client()


def test_nothing_is_written_with_its_schemas(glue: LocalGlue) -> None:
    for format in (
        get_format(AVRO, url=URL, subject="orders-value"),
        get_format(
            "upsert-kafka",
            value_format="avro-confluent",
            value_avro_confluent_subject="orders-value",
            avro_confluent_url=URL,
        ),
    ):
        with pytest.raises(FormatOptionError, match="AWS Glue's registry is only read"):
            format.encoder(SCHEMA, unique_key=["id"])
    with pytest.raises(FormatOptionError, match="AWS Glue has no subject 'orders-value'"):
        infer_subject("orders-value", format=AVRO, url=URL)
