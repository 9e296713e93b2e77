"""Messages and keys in a schemaless wrapper, ``{"payload": ...}``, read as the payload alone."""

import json
from itertools import product
from typing import Any

import pytest

from cdc_formats import Ignored, get_format
from cdc_formats.errors import MalformedMessageError
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import TypedRows
from tests.support.both_decoders import differences, odd_share, source_of
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

pytestmark = pytest.mark.usefixtures("no_other_formats")

SOURCE = {"connector": "TiCDC", "db": "shop", "table": "parts", "commit_ts": 447984084414103554}
INSERT = {
    "source": SOURCE,
    "ts_ms": 1707103832957,
    "transaction": None,
    "op": "c",
    "before": None,
    "after": {"id": 1, "name": "bolt"},
}
DELETE = {**INSERT, "op": "d", "before": {"id": 1, "name": "bolt"}, "after": None}


def wrapped(payload: object, **more: object) -> bytes:
    return json.dumps({"payload": payload, **more}).encode()


@pytest.mark.parametrize("schema_include", ["auto", True, False])
def test_an_envelope_in_a_payload_is_read(schema_include: Any) -> None:
    format = get_format("debezium-json", schema_include=schema_include)
    columns, metadata = "id INT, name STRING", ["schema", "source.table"]
    decoder = format.decoder(columns, unique_key=["id"], metadata=metadata)
    bare = get_format("debezium-json").decoder(columns, unique_key=["id"], metadata=metadata)
    for message in (INSERT, DELETE):
        assert decoder.upserts(None, wrapped(message)) == bare.upserts(None, json_bytes(message))
        assert decoder.decode(None, wrapped(message)) == bare.decode(None, json_bytes(message))
    assert decoder.upserts(None, wrapped(None)) is Ignored.TOMBSTONE
    assert decoder.upserts(None, wrapped({"ts_ms": 1})) is Ignored.HEARTBEAT
    ddl = {"source": SOURCE, "ddl": "CREATE TABLE t (a INT)", "databaseName": "shop"}
    assert format.control_event(None, wrapped(ddl), Ignored.DDL).statement == ddl["ddl"]


def test_a_bare_message_and_a_schema_block_are_refused_as_the_option_says() -> None:
    with pytest.raises(
        MalformedMessageError,
        match="no schema block, and schema_include is True: set it to False or 'auto'",
    ):
        get_format("debezium-json", schema_include=True).decoder("id INT").decode(
            None, json_bytes(INSERT)
        )
    with pytest.raises(
        MalformedMessageError, match="has a schema block, and schema_include is False"
    ):
        get_format("debezium-json", schema_include=False).decoder("id INT").decode(
            None, wrapped(INSERT, schema=None)
        )


@pytest.mark.parametrize(("schema_include", "most_odd"), [("auto", 2), (False, 2), (True, 2)])
def test_envelopes_in_payloads_are_decoded_together(schema_include: Any, most_odd: int) -> None:
    records = [
        (None, wrapped(message))
        for message in (INSERT, DELETE, {**INSERT, "after": {"id": "x"}}, 3)
    ]
    metadata = {"schema": "schema", "table": "source.table"}
    source = source_of(
        get_format("debezium-json", schema_include=schema_include),
        "id INT, name STRING",
        ["id"],
        metadata,
    )
    assert odd_share(source, records)[0] == most_odd
    assert not differences(source, records)
    assert not differences(
        source,
        [*records, (None, json_bytes(INSERT)), (None, wrapped(INSERT, schema=None))],
        TypedRows,
    )


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (wrapped({"id": 1}), wrapped({"id": 1, "name": "bolt", "__op": "u"})),
        (wrapped({"id": 1}), wrapped(None)),
        (wrapped({"id": 1}), None),
        (wrapped({"id": 1}), json_bytes({"id": 1, "name": "bolt"})),
    ],
)
def test_a_row_in_a_payload_is_read(key: bytes, value: bytes | None) -> None:
    plain = (
        None if value is None else json_bytes(json.loads(value).get("payload", json.loads(value)))
    )
    for schema_include in ("auto", False):
        format = get_format("debezium-flat-json", schema_include=schema_include)
        decoder = format.decoder("id INT, name STRING", unique_key=["id"])
        assert decoder.upserts(key, value) == decoder.upserts(b'{"id":1}', plain)
        assert not differences(source_of(format, "id INT, name STRING", ["id"]), [(key, value)])


def test_a_column_with_the_name_payload_is_a_column() -> None:
    format = get_format("debezium-flat-json")
    decoder = format.decoder("payload STRUCT<id: INT>", unique_key=["payload"])
    assert decoder.upserts(wrapped({"id": 1}), wrapped({"id": 1}))[0].row == ([1],)
    assert decoder.upserts(wrapped({"id": 1}), None)[0].key == ([1],)
    # A payload without a schema is read with each value of the option.
    for schema_include in ("auto", True, False):
        plain = get_format("debezium-flat-json", schema_include=schema_include)
        decoder = plain.decoder("id INT", unique_key=["id"])
        assert decoder.upserts(None, wrapped({"id": 1}))[0].row == (1,)


def test_a_document_in_a_payload_is_read() -> None:
    key, message = (
        {"id": '{"$oid":"507f1f77bcf86cd799439011"}'},
        {"op": "d", "before": None, "after": None, "source": {}},
    )
    bare = get_format("debezium-mongodb-json").decoder("_id STRING", unique_key=["_id"])
    for schema_include in ("auto", True, False):
        decoder = get_format("debezium-mongodb-json", schema_include=schema_include).decoder(
            "_id STRING", unique_key=["_id"]
        )
        assert decoder.upserts(wrapped(key), wrapped(message)) == bare.upserts(
            json_bytes(key), json_bytes(message)
        )


@pytest.mark.parametrize(
    ("format", "value"),
    [("debezium-json", INSERT), ("debezium-flat-json", {"id": 1, "name": "bolt"})],
)
def test_a_topic_of_payloads_is_recognized(format: str, value: dict[str, Any]) -> None:
    records = list(product([wrapped({"id": 1})], [wrapped(value)] * 3))
    inferred = infer_schema(records, format=format)
    assert (inferred.ddl, inferred.primary_key) == ("id BIGINT NOT NULL, name STRING", ("id",))
    profile = profile_records(sample(*records))
    assert profile.format == format
    assert profile.tables[0].primary_key == ("id",)


@pytest.mark.parametrize(
    "more", [{}, {"schema": None}, {"schema": {"type": "struct", "fields": []}}]
)
@pytest.mark.parametrize("value", [b'{"id":1,"name":"bolt"}', b'{"name":"bolt"}', None])
def test_a_key_of_upsert_kafka_in_a_payload_is_read(
    value: bytes | None, more: dict[str, Any]
) -> None:
    key, other = wrapped({"id": 1}, **more), wrapped({"nr": 1}, **more)
    source = source_of(get_format("upsert-kafka"), "id INT, name STRING", ["id"])
    decoder = get_format("upsert-kafka").decoder("id INT, name STRING", unique_key=["id"])
    assert decoder.upserts(key, value) == decoder.upserts(b'{"id":1}', value)
    assert decoder.compare_names(key, value) == decoder.compare_names(b'{"id":1}', value)
    for records in ([(key, value)], [(other, value)], [(wrapped({"id": "x"}, **more), value)]):
        assert not differences(source, records)
        assert not differences(source, records, TypedRows)
    of_payload = get_format("upsert-kafka").decoder("payload STRING", unique_key=["payload"])
    assert of_payload.upserts(key, None)[0].key == ('{"id":1}',)
