"""Schema ids in records, the options of a registry, and its answers over real HTTP."""

import json
import pickle
import re
import socket
import sys
import zlib
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference

from cdc_formats import Change, Decoder, RowKind, get_format
from cdc_formats.avro.confluent_client import MOST_ANSWER_BYTES, configuration
from cdc_formats.avro.records import avro_bytes
from cdc_formats.avro.schema_registry import Registry, framed, unframed
from cdc_formats.errors import (
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
)
from cdc_formats.events import KeyValue
from cdc_formats.topics.inference import infer_schema, infer_subject
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.frames import MOST_CONTENT_BYTES, GlueVersion
from tests.support.both_decoders import differences, odd_places, source_of
from tests.support.error_texts import error_test, text_test
from tests.support.samples import sample
from tests.support.servers.authorities import authority, signed
from tests.support.servers.local_glue import REGION, LocalGlue, environment
from tests.support.servers.registry_front import RegistryFront

SECRET = "s3cret"
ROW = '{"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}'
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


# --------------------------------------------------------------------------------------------------
# framing


@pytest.mark.parametrize(
    ("data", "headers", "expected"),
    [
        pytest.param(b"\0\0\0\1\2avro", (), (258, b"avro"), id="before the value"),
        pytest.param(framed(2**31 - 1, b"x"), (), (2**31 - 1, b"x"), id="as written"),
        pytest.param(
            b"\1" + GUID.bytes + b"avro", (), (GUID, b"avro"), id="a GUID before the value"
        ),
        pytest.param(
            b"\3\0" + GUID.bytes + b"avro", (), (GlueVersion(GUID), b"avro"), id="in AWS Glue"
        ),
        pytest.param(
            b"\3\5" + GUID.bytes + zlib.compress(b"avro"),
            (),
            (GlueVersion(GUID), b"avro"),
            id="in AWS Glue, compressed",
        ),
        pytest.param(
            b"avro", [("__value_schema_id", b"\1" + GUID.bytes)], (GUID, b"avro"), id="in a header"
        ),
        pytest.param(
            b"avro",
            [("__value_schema_id", b"\0\0\0\1\2")],
            (258, b"avro"),
            id="a number in a header",
        ),
        pytest.param(
            b"\0\0\0\0\1",
            [("__value_schema_id", b"\0\0\0\0\2")],
            (2, b"\0\0\0\0\1"),
            id="an id in a header takes precedence over one before the value",
        ),
        pytest.param(
            b"\0\0\0\0\1",
            [("__key_schema_id", b"\0\0\0\0\2"), ("a", b"b")],
            (1, b""),
            id="another header",
        ),
        pytest.param(
            b"\0\0\0\0\1", [("__value_schema_id", None)], (1, b""), id="a header without a value"
        ),
        pytest.param(
            b"",
            [("__value_schema_id", b"\0\0\0\0\3"), ("__value_schema_id", b"\0\0\0\0\4")],
            (3, b""),
            id="the first of two headers",
        ),
    ],
)
def test_schema_ids_are_read_from_headers_and_values(
    data: bytes, headers: list, expected: tuple
) -> None:
    assert unframed("value", data, headers) == expected


COMPRESSED = zlib.compress(b"avro")


# --------------------------------------------------------------------------------------------------
# options


def test_a_user_in_the_url_and_as_an_option_are_one() -> None:
    first, second = (
        get_format("debezium-avro-confluent", **options)
        for options in (
            {"url": "http://u%40x:p%3Aw@registry/a, http://b"},
            {"url": "http://registry/a,http://b", "basic-auth.user-info": "u@x:p:w"},
        )
    )
    assert first == second == pickle.loads(pickle.dumps(first))
    assert first.url == "http://registry/a,http://b"
    assert configuration(first)["basic.auth.user.info"] == "u@x:p:w"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"properties": {"no.such.property": 1}}, "Unrecognized properties: no.such.property"),
        ({"ssl_ca_location": "/no/such/file.pem"}, "No such file"),
        ({"ssl_key_location": "client.key"}, "ssl.certificate.location required"),
    ],
)
def test_an_option_that_the_client_refuses_is_an_option_error(options: dict, text: str) -> None:
    with pytest.raises(FormatOptionError, match=re.escape(text)):
        _ = Registry(url="https://registry", **options).client


def test_a_client_is_made_once_for_a_registry() -> None:
    first, same, other = (
        Registry(url="mock://once"),
        Registry(url="mock://once"),
        Registry(url="mock://twice"),
    )
    assert first.client is same.client is not other.client


# --------------------------------------------------------------------------------------------------
# the registry


def decoder(schema: str = "k INT, id INT", **options: object) -> Decoder:
    """The decoder of rows whose key is raw and whose other columns are Avro."""
    avro = {f"avro_confluent_{name}": value for name, value in options.items()}
    format = get_format(
        "upsert-kafka",
        key_format="raw",
        value_format="avro-confluent",
        value_fields_include="EXCEPT_KEY",
        **avro,
    )
    return format.decoder(schema, unique_key=["k"])


def asked(*calls: dict[str, Any], **front: Any) -> str:
    """Return what each call of a registry gives, and how many requests it received.

    A call has the options of the format, and `number` if it asks for another schema than 1.
    """
    with RegistryFront(**{"schemas": {1: ROW}, **front}) as registry:
        lines = []
        for call in calls or ({},):
            options = {"url": registry.url, **call}
            message = framed(options.pop("number", 1), b"\x54")
            try:
                lines.append(f"{decoder(**options).decode(KEY, message)}")
            except (SchemaRegistryError, WriterSchemaError) as error:
                lines.append(f"{type(error).__name__}: {error}")
        text = "\n".join([*lines, f"requests: {registry.requests}"])
    assert SECRET not in text
    return text.replace(registry.url, "URL")


KEY = b"\0\0\0\7"
CHANGES = [Change(RowKind.UPDATE_AFTER, (7, 42))]


def test_the_second_url_is_used_when_the_first_does_not_answer() -> None:
    with socket.socket() as probe, RegistryFront(schemas={1: ROW}) as front:
        probe.bind(("127.0.0.1", 0))
        client = Registry(
            url=f"http://127.0.0.1:{probe.getsockname()[1]},{front.url}", retry_seconds=0
        ).client
        assert client.schema(1).top["name"] == "Row"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    trusted = authority("authority")
    client = signed(trusted, "client")
    signed(trusted, "server").write_pem(folder / "server.pem")
    (folder / "authority.pem").write_text(trusted.certificate_pem())
    (folder / "client.pem").write_text(client.certificate_pem())
    (folder / "client.key").write_text(client.key_pem(SECRET))
    return folder


def test_tls_with_a_private_authority_and_a_certificate_of_the_client(certificates: Path) -> None:
    own = {
        "ssl_certificate_location": str(certificates / "client.pem"),
        "ssl_key_location": str(certificates / "client.key"),
    }
    trusting = {"ssl_ca_location": str(certificates / "authority.pem"), "retry_seconds": 0}
    with RegistryFront(
        schemas={1: ROW}, certificate=certificates, client_certificate=True
    ) as front:
        read = partial(decoder, url=front.url)
        message = framed(1, b"\x54")
        whole = read(**own, **trusting, ssl_key_password=SECRET)
        assert whole.decode(KEY, message) == CHANGES
        with pytest.raises(SchemaRegistryError):
            read(**trusting).decode(KEY, message)
        with pytest.raises(
            SchemaRegistryError, match=r"no TLS with the schema registry.*See ssl_ca_location"
        ):
            read().decode(KEY, message)


def test_schemas_that_refer_to_others() -> None:
    registry = Registry(url="mock://references")
    confluent = registry.client.confluent
    town = {
        "type": "record",
        "name": "Town",
        "namespace": "geo",
        "fields": [{"name": "name", "type": "string"}],
    }
    street = {
        "type": "record",
        "name": "Street",
        "namespace": "geo",
        "fields": [{"name": "town", "type": "geo.Town"}],
    }
    house = {
        "type": "record",
        "name": "House",
        "fields": [{"name": "street", "type": "geo.Street"}, {"name": "town", "type": "geo.Town"}],
    }
    confluent.register_schema("town", Schema(json.dumps(town), "AVRO"))
    to_town = SchemaReference("geo.Town", "town", 1)
    confluent.register_schema("street", Schema(json.dumps(street), "AVRO", [to_town]))
    number = confluent.register_schema(
        "house",
        Schema(json.dumps(house), "AVRO", [SchemaReference("geo.Street", "street", 1), to_town]),
    )
    nested = decoder(
        "k INT, street STRUCT<town: STRUCT<name: STRING>>, town STRUCT<name: STRING>",
        url="mock://references",
    )
    assert nested.decode(KEY, framed(number, b"\4Ur\4Or"))[0].row == (7, [["Ur"]], ["Or"])


def test_a_schema_by_its_guid_in_a_header() -> None:
    registry = Registry(url="mock://guids")
    guid = registry.client.confluent.register_schema_full_response("rows", Schema(ROW, "AVRO")).guid
    by_guid = decoder(url="mock://guids")
    headers = [("other", b"x"), ("__value_schema_id", b"\1" + UUID(guid).bytes)]
    assert (
        by_guid.decode(KEY, b"\x54", headers) == by_guid.decode(KEY, framed(1, b"\x54")) == CHANGES
    )
    with pytest.raises(WriterSchemaError, match=f"has no schema {GUID}"):
        by_guid.decode(KEY, b"\x54", [("__value_schema_id", b"\1" + GUID.bytes)])


BUSY = (503, b'{"error_code": 50302, "message": "starting"}')
LARGE = json.dumps({"schema": ROW}).encode().ljust(MOST_ANSWER_BYTES)
LOGINS: list[dict[str, Any]] = [{"basic": "user:pass:word"}, {"bearer": "token"}]
OPTIONS_OF_LOGINS = {"basic": "basic_auth_user_info", "bearer": "bearer_auth_token"}
test_texts = text_test(
    __file__,
    {
        "a schema is requested once": partial(asked, {}, {}),
        **{
            f"a login, {name}": partial(
                *(asked, {OPTIONS_OF_LOGINS[name]: value}, {}),
                {"basic_auth_user_info": f"user:{SECRET}"},
                **{name: value},
            )
            for login in LOGINS
            for name, value in login.items()
        },
        "a login that may not read": partial(
            asked, answers=[(403, b'{"error_code": 40301, "message": "no"}')]
        ),
        "an unknown id": partial(asked, {"number": 99}),
        # Otherwise a wrong URL would make every record corrupt.
        **{
            f"an answer of another server, {status} {body!r}": partial(
                asked, {"retry_seconds": 0}, answers=[(status, body)]
            )
            for status, bodies in {
                404: (b"<html>not here</html>", b'{"message": "no such path"}', b"[]"),
                200: (b"<html>", b"[]", b"5", b'"x"', b"\xff"),
            }.items()
            for body in bodies
        },
        **{
            f"a schema that cannot be read, {str(schema)[:60]}": partial(
                asked, answers=[(200, json.dumps(schema).encode())]
            )
            for schema in (
                {"schema": "{", "schemaType": "AVRO"},
                {"schema": "{}", "schemaType": "JSON"},
                {"schema": '"nope"'},
                {"schema": '{"type": "record"}'},
                {"schema": '{"type": "array"}'},
            )
        },
        **{
            f"a busy registry is asked again after {status}": partial(
                asked, {"retry_seconds": 4}, answers=[(status, body)]
            )
            for status, body in (BUSY, (429, b""), (500, b"x"))
        },
        "a registry that stays busy": partial(asked, {"retry_seconds": 1}, answers=[BUSY] * 9),
        "an answer that takes too long": partial(
            asked, {"retry_seconds": 0, "properties": {"timeout": 1}}, pause=0.05
        ),
        "the largest answer": partial(asked, answers=[(200, LARGE)]),
        "an answer that is too large": partial(asked, answers=[(200, LARGE + b" ")]),
    },
)


def test_a_schema_that_is_nested_too_deeply_is_a_record_error() -> None:
    nested = json.dumps({"schema": "[" * 5000 + "]" * 5000}).encode()
    assert asked(answers=[(200, nested)]).startswith("WriterSchemaError: ")


INVALID: list[dict[str, Any]] = [
    {"url": f"user:{SECRET}@registry:8081"},
    {"url": f"ftp://user:{SECRET}@registry"},
    {"url": f"http://a:{SECRET}@r,http://b:{SECRET}@s"},
    {"url": "http://r", "basic_auth_user_info": SECRET},
    {"url": f"http://a:{SECRET}@r", "bearer_auth_token": SECRET},
    {"url": "http://r", "properties": SECRET},
    {"url": "http://r", "properties": {"x": [SECRET]}},
    {"url": "http://r", "retry_seconds": "soon"},
    {"url": "http://r", "retry_seconds": -1},
    {"url": "http://r", "no_such_option": SECRET},
    {"ssl.truststore.location": "x.jks"},
    {"basic-auth.credentials-source": "USER_INFO"},
    {"url": f"glue://a:{SECRET}@eu-central-1"},
    {"url": "glue://eu-central-1", "bearer_auth_token": SECRET, "ssl_ca_location": "a.pem"},
    {"url": "glue://", "properties": {"aws_secret_access_key": SECRET}},
    {"url": "glue://eu-central-1,http://r"},
    {"url": "glue://eu-central-1/shop"},
]
test_error_texts = error_test(
    __file__,
    {
        **{
            f"options that cannot be, {number}": partial(
                get_format, "debezium-avro-confluent", **options
            )
            for number, options in enumerate(INVALID, 1)
        },
        **{
            f"bytes without a schema id are malformed, {number}": lambda data=data: unframed(
                "value", data
            )
            for number, data in enumerate(
                [
                    b"",
                    b"\0",
                    b"\0\0\0\1",
                    b"\1" + GUID.bytes[:15],
                    b"\2\0\0\0\1avro",
                    b"\3\0" + GUID.bytes[:15],
                    b"\3\1" + GUID.bytes + b"avro",
                    b'{"op": "c"}',
                ],
                1,
            )
        },
        **{
            f"a header without a schema id is malformed, {number}": lambda value=value: unframed(
                "key", b"\0\0\0\0\1", [("__key_schema_id", value)]
            )
            for number, value in enumerate(
                [b"", b"\0\0\0\1", b"\0\0\0\0\1x", b"\1" + GUID.bytes + b"x", b"8"], 1
            )
        },
        **{
            f"content that cannot be decompressed is malformed, {number}": lambda content=content: (
                unframed("value", b"\3\5" + GUID.bytes + content)
            )
            for number, content in enumerate(
                [
                    b"",
                    b"avro",
                    COMPRESSED[:-1],
                    COMPRESSED[:-1] + b"\0",
                    COMPRESSED + b"avro",
                    zlib.compress(bytes(MOST_CONTENT_BYTES + 1), 1),
                ],
                1,
            )
        },
        "without a url nothing is read, 1": lambda: get_format("debezium-avro-confluent").decoder(
            "id INT"
        ),
        "without a url nothing is read, 2": lambda: get_format(
            "upsert-kafka", key_format="avro-confluent"
        ).decoder("id INT, n INT", unique_key=["id"]),
    },
)


# --------------------------------------------------------------------------------------------------
# AWS Glue's schema registry: Avro and JSON in its frame, and what a refusal says
URL = f"glue://{REGION}"
AVRO = "debezium-avro-confluent"
ROW_OF_GLUE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "int"}, {"name": "name", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "fields": [
        {"name": "before", "type": ["null", ROW_OF_GLUE]},
        {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "at": {"type": "string", "format": "date-time"}},
}
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
        (None, plain(GUID, b"x")),
        (None, plain(envelope, b"")),
        (None, b"\3\0"),
        (None, None),
        *inserts(envelope, compressed, rows=2),
    ]
    assert not differences(source_of(get_format(AVRO, url=URL), SCHEMA, ["id"]), records)


def test_rows_by_key_are_read_with_the_schemas_of_their_key_and_value(glue: LocalGlue) -> None:
    key = glue.register("rows-key", "AVRO", '"int"')
    value = glue.register("rows-value", "AVRO", json.dumps(ROW_OF_GLUE))
    format = get_format(
        "upsert-kafka",
        key_format="avro-confluent",
        value_format="avro-confluent",
        avro_confluent_url=URL,
    )
    record = (
        plain(key, b"\x0e"),
        compressed(value, avro_bytes(ROW_OF_GLUE)({"id": 7, "name": "nut"})),
    )
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
    with pytest.raises(WriterSchemaError, match=f"at {URL} has no schema {GUID}"):
        client().schema(GlueVersion(GUID))


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
        Registry(url="mock://confluent").client.schema(GlueVersion(GUID))


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
            client().schema(GlueVersion(GUID))
        assert front.requests == 1
    assert "tests" not in str(caught.value)


def test_a_busy_registry_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = {
        "SchemaVersionId": str(GUID),
        "DataFormat": "AVRO",
        "SchemaDefinition": json.dumps(ROW_OF_GLUE),
    }
    answers = (
        refusal("ThrottlingException"),
        refusal("InternalServiceException", 500),
        (200, json.dumps(schema).encode()),
    )
    with RegistryFront(answers=answers) as front:
        for name, value in environment(front.url).items():
            monkeypatch.setenv(name, value)
        assert client().schema(GlueVersion(GUID)).top["name"] == "Value"
        assert front.requests == 3


def test_without_a_login_or_a_region_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment("http://127.0.0.1:9").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SchemaRegistryError, match=r"does not answer .* after 1 s of retries"):
        client().schema(GlueVersion(GUID))
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(SchemaRegistryError, match="no login for the schema registry at glue://"):
        client().schema(GlueVersion(GUID))
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
