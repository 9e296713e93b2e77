"""Messages of something else that look like a format's: errors that name it, alone and together."""

import json
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, InferenceError, SchemaError
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import TypedRows
from tests.support.both_decoders import differences, source_of
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

pytestmark = pytest.mark.usefixtures("no_other_formats")

METADATA: tuple[dict[str, str], ...] = ({}, {"all": "source.properties"})


def cell(value: object) -> dict[str, object]:
    return {"value": value, "deletion_ts": None, "set": True}


def of_cells(connector: str | None, **after: object) -> bytes:
    return json.dumps(
        {"op": "u", "after": after, "source": {"connector": connector, "table": "customers"}}
    ).encode()


def error_of(
    identifier: str,
    value: bytes,
    schema: str = "id INT, name STRING",
    key: bytes | None = None,
    **options: Any,
) -> str:
    with pytest.raises(DecodeError) as refused:
        get_format(identifier, **options).decoder(schema, unique_key=["id"]).upserts(key, value)
    return str(refused.value)


@pytest.mark.parametrize("connector", ["cassandra", "scylla", "YugabyteDB"])
def test_a_connector_that_writes_cells_is_named(connector: str) -> None:
    value = of_cells(connector, id=cell("1"), name=None)
    error = error_of("debezium-json", value, "id STRING, name STRING")
    assert (
        f"the connector {connector} writes cells, not rows, and a null cell means unchanged"
        in error
    )
    block = b'{"schema":{"type":"struct","fields":[]},"payload":%b}' % value
    for text in (value, block):
        for metadata in METADATA:
            source = source_of(
                get_format("debezium-json"), "id STRING, name STRING", ["id"], metadata
            )
            assert not differences(source, [(None, text)])
            assert not differences(source, [(None, text)], TypedRows)


@pytest.mark.parametrize("connector", ["cassandra", None])
def test_cells_are_no_columns(connector: str | None) -> None:
    value = of_cells(connector, id=cell(1), email=None, name=cell("Anne"))
    with pytest.raises(InferenceError, match="a null cell means unchanged"):
        infer_schema([(None, value)], format="debezium-json")
    with pytest.raises(InferenceError, match="a null cell means unchanged"):
        infer_schema(
            [(b'{"id":1}', json.dumps(json.loads(value)["after"]).encode())],
            format="debezium-flat-json",
        )


def test_a_column_with_a_struct_like_a_cell_is_read() -> None:
    value = of_cells("postgresql", id=1, setting={"value": "on", "set": True})
    assert (
        infer_schema([(None, value)], format="debezium-json").ddl
        == "id BIGINT, setting STRUCT<value: STRING, set: BOOLEAN>"
    )


def batch(*events: bytes) -> bytes:
    """Return events in a batch of TiCDC's open protocol."""
    return b"".join(len(event).to_bytes(8, "big") + event for event in events)


CLOUD_EVENT = {
    "id": "name:shop;lsn:29274832;txId:565",
    "source": "/debezium/postgresql/shop",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2026-01-13T13:55:39.738Z",
    "datacontenttype": "application/json",
    "iodebeziumop": "c",
    "data": {"before": None, "after": {"id": 1, "name": "Bob"}},
}
MAXWELL = {
    "database": "shop",
    "table": "parts",
    "type": "insert",
    "ts": 1477053217,
    "xid": 23396,
    "commit": True,
}
ENCRYPTED = {"encrypted": {"iv": "aXY=", "bytes": "Ynl0ZXM="}}
GOLDENGATE = {
    "table": "SHOP.PARTS",
    "op_ts": "2026-05-13 15:40:06.000000",
    "current_ts": "2026-05-13T15:40:07.000000",
    "pos": "00000000143",
}
ROW = {"id": "1", "name": "Bob"}
PROTOBUF = b"\x08\x01\x12\x04bike\x1a\x02\x08\x05"
"""A number, text and a message."""
FOREIGN_MESSAGES = [
    ("debezium-json", CLOUD_EVENT, "a CloudEvent around Debezium's"),
    ("maxwell-json", CLOUD_EVENT, "a CloudEvent around Debezium's"),
    ("maxwell-json", {**MAXWELL, **ENCRYPTED}, "Maxwell encrypted the message"),
    ("maxwell-json", ENCRYPTED, "Maxwell encrypted the message"),
    ("ogg-json", {**GOLDENGATE, "op_type": "I", **ROW}, "GoldenGate wrote the message in row mode"),
    ("ogg-json", {**GOLDENGATE, "op_type": "D", **ROW}, "GoldenGate wrote the message in row mode"),
    (
        "ogg-json",
        {**GOLDENGATE, "op_type": "K", "before": ROW, "after": {**ROW, "id": "2"}},
        "this update of a primary key as op_type K",
    ),
    (
        "canal-json",
        batch(b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'),
        "a batch of TiCDC's open protocol",
    ),
    (
        "ticdc-canal-json",
        batch(b'{"u":{"id":{"t":3,"v":1}}}', b'{"d":{"id":{"t":3,"v":1}}}'),
        "a batch of TiCDC's open protocol",
    ),
    ("maxwell-json", {"data": ROW, "type": "INSERT"}, "SeaTunnel's maxwell_json"),
    ("canal-json", {"data": ROW, "type": "DELETE"}, "SeaTunnel's maxwell_json"),
    (
        "ogg-json",
        {"before": None, "after": ROW, "op_type": "D", "table": "shop.parts", "op_ts": None},
        "SeaTunnel's ogg_json",
    ),
    ("debezium-json", PROTOBUF, "the message looks like Protobuf. Protobuf is not read"),
    (
        "maxwell-json",
        b"\0\0\0\0\7\0" + PROTOBUF,
        "the message looks like Protobuf. Protobuf is not read",
    ),
    (
        "upsert-kafka",
        b"\0\0\0\0\7\4\2\0" + PROTOBUF,
        "the message looks like Protobuf. Protobuf is not read",
    ),
]


def bytes_of(message: dict[str, Any] | bytes) -> bytes:
    return message if isinstance(message, bytes) else json.dumps(message).encode()


@pytest.mark.parametrize(("identifier", "message", "sentence"), FOREIGN_MESSAGES)
def test_no_schema_is_inferred_from_another_message(
    identifier: str, message: dict[str, Any] | bytes, sentence: str
) -> None:
    for each in (identifier, "upsert-kafka", "debezium-flat-json"):
        with pytest.raises(InferenceError, match=sentence):
            infer_schema([(b'{"id":1}', bytes_of(message))], format=each)
    profile = profile_records(sample(*[(b'{"id":1}', bytes_of(message))] * 3))
    assert (profile.format, profile.tables) == (None, ())
    assert sentence in profile.reason


def test_a_truncate_of_goldengate_is_none_of_them() -> None:
    value = json.dumps({**GOLDENGATE, "op_type": "T"}).encode()
    with pytest.raises(InferenceError, match="ignored: 1 TRUNCATE"):
        infer_schema([(None, value)], format="ogg-json")


@pytest.mark.parametrize(
    "message",
    [
        {"id": 1, "encrypted": True},
        {"id": 1, "type": "io", "specversion": "1.0"},
        {"data": {}, "type": "x"},
        {"id": 1, "after": {}},
    ],
)
def test_a_row_that_resembles_another_message_is_a_row(message: dict[str, Any]) -> None:
    assert (
        infer_schema([(b'{"id":1}', json.dumps(message).encode())], format="upsert-kafka").rows == 1
    )


def _detected(*values: dict[str, Any] | bytes) -> tuple[str | None, str]:
    records = [
        SampledRecord(
            "t", 0, offset, 0, None, value if isinstance(value, bytes) else json_bytes(value), ()
        )
        for offset, value in enumerate(values)
    ]
    profile = profile_records(records)
    return profile.format, profile.reason


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (
            {"op": "d", "after": None, "key": [1], "source": {"connector": "cockroachdb"}},
            "CockroachDB wrote the delete without its row",
        ),
        (
            {
                "op": "i",
                "after": {"id": {"value": 1, "deletion_ts": None, "set": True}},
                "source": {"connector": "cassandra"},
            },
            "the message is of Debezium's connector for Cassandra",
        ),
        (
            {"op": "d", "before": None, "after": None, "source": {"origin": "cockroachdb"}},
            "CockroachDB wrote the delete without its row",
        ),
        (
            b"\x01" + bytes(range(16)) + b"\x00" + bytes([8, 1, 18, 4]) + b"bike",
            "the message looks like Protobuf",
        ),
    ],
)
def test_messages_that_no_format_reads_are_named_and_no_other_format_is_detected(
    value: dict[str, Any] | bytes, sentence: str
) -> None:
    format, reason = _detected(*[value] * 3)
    assert format is None
    assert sentence in reason
    with pytest.raises(DecodeError, match=sentence):
        get_format("maxwell-json").decoder("id INT").decode(
            None, value if isinstance(value, bytes) else json_bytes(value)
        )


def test_a_key_column_that_differs_by_case_is_named() -> None:
    with pytest.raises(
        SchemaError, match=r"k1 is not declared; the columns are K1: did you mean K1\?"
    ):
        get_format("debezium-json").decoder("K1 INT", unique_key=["k1"])
