"""Messages of something else that look like a format's: profiles and inference name it."""

from functools import partial
from typing import Any

import pytest

from cdc_formats.errors import InferenceError
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.error_texts import error_test, text_test
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

pytestmark = pytest.mark.usefixtures("no_other_formats")


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


CELLS = {
    "id": {"value": 1, "deletion_ts": None, "set": True},
    "email": None,
    "name": {"value": "Anne", "deletion_ts": None, "set": True},
}
NO_FORMATS = [
    (
        {"op": "d", "after": None, "key": [1], "source": {"connector": "cockroachdb"}},
        "CockroachDB wrote the delete without its row",
    ),
    (
        {"op": "d", "before": None, "after": None, "source": {"origin": "cockroachdb"}},
        "CockroachDB wrote the delete without its row",
    ),
    (
        {"op": "i", "after": CELLS, "source": {"connector": "cassandra"}},
        "the message is of Debezium's connector for Cassandra",
    ),
    (
        b"\x01" + bytes(range(16)) + b"\x00" + bytes([8, 1, 18, 4]) + b"bike",
        "the message looks like Protobuf",
    ),
]


@pytest.mark.parametrize(
    ("message", "sentence", "identifiers"),
    [
        *(
            (message, sentence, (identifier, "upsert-kafka", "debezium-flat-json"))
            for identifier, message, sentence in FOREIGN_MESSAGES
        ),
        *((message, sentence, ()) for message, sentence in NO_FORMATS),
    ],
)
def test_another_message_is_named_and_no_schema_is_inferred_from_it(
    message: dict[str, Any] | bytes, sentence: str, identifiers: tuple[str, ...]
) -> None:
    value = message if isinstance(message, bytes) else json_bytes(message)
    for each in identifiers:
        with pytest.raises(InferenceError, match=sentence):
            infer_schema([(b'{"id":1}', value)], format=each)
    profile = profile_records(sample(*[(b'{"id":1}', value)] * 3))
    assert (profile.format, profile.tables) == (None, ())
    assert sentence in profile.reason


def inferred(identifier: str, message: dict[str, Any]) -> object:
    return infer_schema([(b'{"id":1}', json_bytes(message))], format=identifier)


test_texts = text_test(
    __file__,
    {
        "a column with a struct like a cell": partial(
            inferred,
            "debezium-json",
            {
                "op": "u",
                "after": {"id": 1, "setting": {"value": "on", "set": True}},
                "source": {"connector": "postgresql", "table": "customers"},
            },
        ),
        **{
            f"a row that resembles another message: {message}": partial(
                inferred, "upsert-kafka", message
            )
            for message in (
                {"id": 1, "encrypted": True},
                {"id": 1, "type": "io", "specversion": "1.0"},
                {"data": {}, "type": "x"},
                {"id": 1, "after": {}},
            )
        },
    },
)
test_error_texts = error_test(
    __file__,
    {
        "a truncate of GoldenGate is none of them": partial(
            inferred, "ogg-json", {**GOLDENGATE, "op_type": "T"}
        ),
        **{
            f"cells of {connector} are no columns": partial(
                inferred,
                "debezium-json",
                {
                    "op": "u",
                    "after": CELLS,
                    "source": {"connector": connector, "table": "customers"},
                },
            )
            for connector in ("cassandra", None)
        },
        "cells in a flat row are no columns": partial(inferred, "debezium-flat-json", CELLS),
    },
)
