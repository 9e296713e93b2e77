"""cockroachdb-json: wrapped messages, the key in an array, column families, clocks as positions."""

from __future__ import annotations

import pytest

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import (
    DecodeError,
    MalformedMessageError,
    MissingFieldError,
    PartialImageError,
    SchemaError,
    TypeConversionError,
)
from cdc_formats.events import Position
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.samples import sample

COLUMNS = "id INT, name STRING"


def decoder(columns: str = COLUMNS, *key: str, **more: object):
    return get_format("cockroachdb-json").decoder(columns, unique_key=key or ("id",), **more)


def test_a_row_and_a_delete_by_its_key() -> None:
    row = b'{"after":{"id":1,"name":"a"},"updated":"1532377312562986715.0000000000"}'
    assert decoder().decode(b"[1]", row) == [Change(RowKind.UPDATE_AFTER, (1, "a"))]
    assert decoder().upserts(b"[1]", b'{"after":null}') == [KeyedChange((1,), None)]
    assert decoder().decode(b"[1]", b'{"after":null}') == [Change(RowKind.DELETE, (1, None))]


def test_a_resolved_timestamp_is_a_heartbeat_and_a_null_value_a_tombstone() -> None:
    resolved = b'{"resolved":"1753805445318192128.0000000000"}'
    assert decoder().decode(None, resolved) is Ignored.HEARTBEAT
    assert decoder().upserts(b"[1]", None) is Ignored.TOMBSTONE


def test_the_optional_fields_are_read_and_others_refused() -> None:
    value = (
        b'{"after":{"id":1,"name":"a"},"before":{"id":1,"name":"z"},"key":[1],"topic":"t",'
        b'"updated":"1.0000000002","mvcc_timestamp":"1.0000000001"}'
    )
    read = decoder(metadata=("updated", "mvcc-timestamp", "topic")).upserts(b"[1]", value)
    assert [change.metadata for change in read] == [("1.0000000002", "1.0000000001", "t")]
    with pytest.raises(MalformedMessageError, match="unknown field `op`"):
        decoder().upserts(b"[1]", b'{"op":"u","after":{"id":1,"name":"a"}}')
    with pytest.raises(MissingFieldError, match="`after` is missing: not a message of a change"):
        decoder().upserts(b"[1]", b'{"updated":"1.0000000000"}')


def test_a_family_has_the_key_of_the_kafka_key_and_leaves_other_columns() -> None:
    read = decoder("id INT, name STRING, n INT").upserts(b"[1]", b'{"after":{"n":2}}')
    assert read == [KeyedChange((1,), (1, ABSENT, 2), partial=True)]
    with pytest.raises(PartialImageError, match="left out name"):
        decoder("id INT, name STRING, n INT").decode(b"[1]", b'{"after":{"n":2}}')


def test_a_key_of_several_columns_has_the_order_of_the_table() -> None:
    row = b'{"after":{"shop":7,"id":1,"n":2}}'
    right, wrong = (
        decoder("shop INT, id INT, n INT", *key) for key in (("shop", "id"), ("id", "shop"))
    )
    assert right.upserts(b"[7, 1]", row) == [KeyedChange((7, 1), (7, 1, 2))]
    assert right.upserts(b"[7, 1]", b'{"after":null}') == [KeyedChange((7, 1), None)]
    with pytest.raises(MalformedMessageError, match="in the order of the table's primary key"):
        wrong.upserts(b"[7, 1]", row)


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (None, MissingFieldError),
        (b"[1,2]", MalformedMessageError),
        (b"[]", MalformedMessageError),
        (b'{"id":1}', MalformedMessageError),
        (b'["x"]', TypeConversionError),
        (b"[null]", DecodeError),
    ],
)
def test_a_key_that_is_not_the_primary_key_is_refused(
    key: bytes | None, error: type[DecodeError]
) -> None:
    for value in (b'{"after":null}', b'{"after":{"id":1,"name":"a"}}'):
        with pytest.raises(error):
            decoder().upserts(key, value)


def test_types() -> None:
    columns = "id INT, b BINARY, d DECIMAL(10,2), j VARIANT, t TIMESTAMP, a ARRAY<INT>"
    value = (
        rb'{"after":{"id":1,"b":"\\x48656c6c6f","d":9.50,"j":"x","t":"2020-01-02T03:04:05.5Z",'
        rb'"a":[1,null]}}'
    )
    row = decoder(columns).upserts(b"[1]", value)[0].row
    assert row[1:4] == (b"Hello", "9.50", '"x"')
    assert row[5] == [1, None]
    with pytest.raises(TypeConversionError, match="not bytea"):
        decoder(columns).upserts(b"[1]", value.replace(rb"\\x48", b"48"))


def test_the_clock_is_the_position() -> None:
    def position(value: bytes) -> Position | None:
        return decoder(positions=True).upserts(b"[1]", value)[0].position

    of = b'{"after":{"id":1,"name":"a"},"updated":"1532377312562986715.%010d"}'
    assert position(of % 1) == Position("", 1532377312562986715, 1, 1532377312562)
    assert position(of.replace(b'{"id":1,"name":"a"}', b"null") % 2).low == 2
    with pytest.raises(MissingFieldError, match="create the changefeed with the option updated"):
        position(b'{"after":null}')
    for text in (b'"1532377312562986715"', b'"1.5"', b"1.0000000001", b'"x.0000000001"'):
        with pytest.raises(TypeConversionError, match="expected"):
            position(b'{"after":null,"updated":%s}' % text)


def test_a_primary_key_is_needed() -> None:
    with pytest.raises(SchemaError, match="needs a primary_key"):
        get_format("cockroachdb-json").decoder(COLUMNS)


RECORDS = [
    (b"[1]", b'{"after":{"id":1,"name":"a","n":1},"updated":"1532377312562986715.0000000000"}'),
    (b"[2]", b'{"after":{"id":2,"name":"b","n":1},"updated":"1532377312562986716.0000000000"}'),
    (b"[2]", b'{"after":null,"updated":"1532377312562986717.0000000000"}'),
    (None, b'{"resolved":"1532377312562986717.0000000000"}'),
]


def test_a_sample_is_detected_and_its_schema_inferred() -> None:
    assert profile_records(sample(*RECORDS)).format == "cockroachdb-json"
    inferred = infer_schema(RECORDS, format="cockroachdb-json")
    assert inferred.primary_key == ("id",)
    assert "name STRING" in inferred.ddl
