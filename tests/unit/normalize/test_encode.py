"""The encoding pass: update pairs across batches, and refused rows."""

import json

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import Change, RowKind, columns, get_format
from cdc_formats.encoding import pair_updates
from normalize.encode import encode_pass
from tests.support.error_texts import error_test

TABLE = columns("id INT, name STRING")
HISTORIES = st.lists(
    st.tuples(st.sampled_from(list(RowKind)), st.tuples(st.integers(0, 2), st.sampled_from("ab"))),
    max_size=10,
)


def batch(rows: list[tuple[str | None, int, str | None]]) -> pa.RecordBatch:
    arrays = [
        pa.array([row[i] for row in rows], of)
        for i, of in enumerate((pa.string(), pa.int32(), pa.string()))
    ]
    return pa.RecordBatch.from_arrays(arrays, ["row_kind", "id", "name"])


def encoded(
    identifier: str, batches: list[pa.RecordBatch], ddl: str = "", key: tuple[str, ...] = ("id",)
) -> list[tuple]:
    table = columns(ddl) if ddl else TABLE
    out = encode_pass(iter(batches), format=get_format(identifier), columns=table, unique_key=key)
    return [tuple(row.values()) for made in out for row in made.to_pylist()]


def test_an_update_on_the_border_of_two_batches_is_one_record():
    batches = [
        batch([("+I", 1, "a"), ("-U", 1, "a")]),
        batch([]),
        batch([("+U", 1, "b"), ("-U", 2, "x")]),
    ]
    records = encoded("debezium-json", batches)
    assert [json.loads(value)["op"] for _, value in records] == ["c", "u", "d"]
    assert [key for key, _ in records] == [b'{"id":1}', b'{"id":1}', b'{"id":2}']


def test_an_update_of_the_key_deletes_the_old_key_in_upsert_kafka():
    batches = [
        batch([("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b"), ("+U", 2, "b")])
    ]
    assert encoded("upsert-kafka", batches) == [
        (b'{"id":1}', b'{"id":1,"name":"a"}'),
        (b'{"id":1}', b'{"id":1,"name":"b"}'),
        (b'{"id":1}', None),
        (b'{"id":2}', b'{"id":2,"name":"b"}'),
    ]


def test_changelog_json_keeps_every_row():
    records = encoded("changelog-json", [batch([("-U", 1, "a"), ("+U", 1, "b")])], key=())
    assert records == [
        (None, b'{"data":{"id":1,"name":"a"},"op":"-U"}'),
        (None, b'{"data":{"id":1,"name":"b"},"op":"+U"}'),
    ]


def test_no_rows_are_no_batches():
    assert (
        list(
            encode_pass(
                iter([batch([])]), format=get_format("ogg-json"), columns=TABLE, unique_key=()
            )
        )
        == []
    )


@pytest.mark.parametrize("identifier", ["debezium-json", "canal-json", "maxwell-json", "ogg-json"])
@given(history=HISTORIES, cut=st.integers(0, 10))
def test_the_split_into_batches_does_not_change_the_records(identifier, history, cut):
    rows = [(kind.short_string, *row) for kind, row in history]
    decode = get_format(identifier).decoder(TABLE).decode
    got = [
        change
        for record in encoded(identifier, [batch(rows[:cut]), batch(rows[cut:])])
        for change in decode(*record)
    ]
    lone = {RowKind.UPDATE_BEFORE: RowKind.DELETE, RowKind.UPDATE_AFTER: RowKind.INSERT}
    expected = []
    for kind, row, before in pair_updates(history, [0]):
        pair = [Change(RowKind.UPDATE_BEFORE, before), Change(RowKind.UPDATE_AFTER, row)]
        expected += [Change(lone.get(kind, kind), row)] if before is None else pair
    assert got == expected


def test_text_in_a_time_column_is_a_time():
    rows = batch([("+I", 1, "12:00:00.5"), ("+I", 2, None)])
    assert [
        json.loads(value)["after"]["at"]
        for _, value in encoded("ogg-json", [rows], "id INT, at TIME(3)")
    ] == ["12:00:00.5", None]


test_error_texts = error_test(
    __file__,
    {
        "a row without a kind is an error with a solution, 1": lambda: encoded(
            "changelog-json", [batch([("+I", 1, "a"), (None, 2, None)])]
        ),
        "a row without a kind is an error with a solution, 2": lambda: encoded(
            "changelog-json", [batch([("I", 1, "a")])]
        ),
        "text in a time column is a time": lambda: encoded(
            "ogg-json", [batch([("+I", 1, "noon")])], "id INT, at TIME(3)"
        ),
    },
)
