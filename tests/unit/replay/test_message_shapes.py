"""A sample of a recording has every form of message."""

import json
from typing import Any

import pytest

from tests.support.message_shapes import of_each_shape

MESSAGE = {
    "op": "u",
    "before": None,
    "after": {"id": 1, "name": "bolt", "price": "1.50", "at": "2026-11-21"},
}


def value(**columns: Any) -> bytes:
    return json.dumps({**MESSAGE, "after": {**MESSAGE["after"], **columns}}).encode()


@pytest.mark.parametrize(
    "other",
    [
        value(name=None),
        value(name=""),
        value(name="é"),
        value(name="__debezium_unavailable_value"),
        value(id=-1),
        value(id=1.0),
        value(price="-1.50"),
        value(at="2026-11-21 14:00"),
        value(added=1),
        json.dumps({**MESSAGE, "op": "c"}).encode(),
        json.dumps({**MESSAGE, "before": {"id": 1}}).encode(),
        b"{",
        b"",
        None,
    ],
)
def test_a_message_of_another_shape_is_kept(other: bytes | None) -> None:
    records = [(b"1", value()), (b"1", other)]
    assert of_each_shape(records, 1) == records


def test_messages_that_differ_in_words_and_numbers_are_of_one_shape() -> None:
    records = [
        (b"1", value()),
        (b"27", value(id=2)),
        (b"3", value(name="nut", price="22.75", at="2025-01-02")),
    ]
    assert of_each_shape(records, 1) == records[:1]
    assert of_each_shape(records, 2) == records[:2]


def test_messages_in_avro_are_of_the_shape_of_their_schema_and_size() -> None:
    records = [(None, b"\0\0\0\0\1" + b"\xff" * size) for size in (4, 5, 40)] + [
        (None, b"\0\0\0\0\2\xff")
    ]
    assert of_each_shape(records, 1) == [records[0], records[2], records[3]]
