"""Bad records in the first pass: every mode, for the target of each kind of plan."""

import logging
import socket
import time
from collections import Counter
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import Change, Event, Format, RowKind, columns, get_format
from cdc_formats.encoding import pair_updates
from cdc_formats.errors import (
    DeadLetterError,
    MalformedMessageError,
    SchemaRegistryError,
)
from normalize import DeadLetter
from normalize.core.output import Letter
from normalize.core.records import DECODE_COUNTS, KafkaRecord
from normalize.decode.collectors import Blocks, CollectorMaker, TypedRows
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from normalize.encode import encode_pass
from normalize.kafka.dead_letter import destination_of, send
from normalize.monitoring.watch import COLUMN
from tests.support.both_decoders import batch_of
from tests.support.error_texts import error_test, text_test

TARGETS = (Blocks, TypedRows)
MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
RECORDS = [
    (b"1", b'{"op": "c", "after": {"id": 1}}'),
    (b"2", b'{"op": "c", "after": {"id": "x"}}'),
    (b"3", b"no json"),
    (b"4", b'{"op": "m"}'),
    (b"5", None),
    (b"6", b'{"op": "c", "after": {"id": 6}}'),
]
COUNTS = {"RECORDS": 6, "TYPE_CONVERSION": 1, "MALFORMED_MESSAGE": 1, "MESSAGE": 1, "TOMBSTONE": 1}


def decoded(
    format: Format, target: CollectorMaker, records: Any = RECORDS, **options: Any
) -> tuple[list[dict[str, Any]], Counter[str]]:
    """Return the batches' rows, and the counts."""
    source = DecodePlan(format, columns("id INT"), unique_key=("id",), topic="t", **options)
    rows, counts = [], Counter[str]()
    for batch in decode_pass(iter([batch_of(records)]), plan=source, collector=target):
        for row in batch.to_pylist():
            of_row = row.pop(COLUMN)
            counts.update(dict(zip(DECODE_COUNTS, of_row or (), strict=False)))
            rows += [] if of_row else [row]
    return rows, counts


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", MODES[1:])
def test_lenient_modes_count_by_condition(target, mode):
    _, counts = decoded(get_format("debezium-json"), target, mode=mode)
    assert {
        name: count for name, count in counts.items() if count and not name.endswith("_COLUMNS")
    } == COUNTS


def test_bad_records_are_dropped_or_kept_beside_the_rows():
    rows, _ = decoded(get_format("debezium-json"), TypedRows, mode="DROPMALFORMED")
    assert rows == [{"row_kind": "+I", "id": 1}, {"row_kind": "+I", "id": 6}]
    rows, _ = decoded(get_format("debezium-json"), TypedRows, mode="PERMISSIVE")
    assert [row["id"] for row in rows if row["row_kind"] == "+I"] == [1, 6]
    kept = [
        (row["row_kind"], row["id"], row["_corrupt_record"])
        for row in rows
        if row["_corrupt_record"]
    ]
    assert [
        (kind, id, record["offset"], record["key"], record["value"]) for kind, id, record in kept
    ] == [
        (None, None, 1, *RECORDS[1]),
        (None, None, 2, *RECORDS[2]),
    ]
    assert kept[1][2]["error"].startswith("[MALFORMED_MESSAGE] not JSON")


class Registered(Format):
    """A format that asks a server."""

    identifier = "registered"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        raise ConnectionError("the registry does not answer")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("mode", MODES)
def test_errors_that_no_record_causes_fail_in_every_mode(target, mode):
    with pytest.raises(ConnectionError, match="the registry does not answer"):
        decoded(Registered(), target, mode=mode)
    avro = get_format("debezium-avro-confluent", url="http://127.0.0.1:9", retry_seconds=0)
    with pytest.raises(
        SchemaRegistryError, match=r"the schema registry at http://127.0.0.1:9 does not answer"
    ):
        decoded(avro, target, [(None, b"\0\0\0\0\1\0")], mode=mode)


# --------------------------------------------------------------------------------------------------
# Dead letters whose brokers do not answer: a warning soon, and an error in time
def test_brokers_that_are_down_are_a_warning_soon_and_then_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with socket.socket() as probe:  # bound, and not listening
        probe.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{probe.getsockname()[1]}"
        options = {"bootstrap.servers": servers, "message.timeout.ms": 1500, "log_level": 0}
        destination = destination_of(DeadLetter("orders.dead", options), "canal-json", {})
        record = KafkaRecord("orders", 3, 7, None, None, b"{")
        letters = [Letter(MalformedMessageError("no JSON"), record)]
        begun = time.monotonic()
        with (
            caplog.at_level(logging.WARNING, "normalize"),
            pytest.raises(DeadLetterError) as failed,
        ):
            send(destination, letters, patience=0.5)
    assert 1.5 <= time.monotonic() - begun < 10
    (warning,) = caplog.messages
    assert warning.startswith("1 dead letters wait for the brokers of 'orders.dead' (brokers: ")
    assert warning.endswith(
        "): this task fails unless they are confirmed within 1500 ms (message.timeout.ms)"
    )
    assert "the first is orders[3]@7: Local: Message timed out (brokers: " in str(failed.value)


# --------------------------------------------------------------------------------------------------
# The encoding pass: update pairs across batches, and refused rows
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


test_error_texts = error_test(
    __file__,
    {
        **{
            f"failfast raises the error with the record, {number}": lambda target=target: decoded(
                get_format("debezium-json"), target
            )
            for number, target in enumerate(TARGETS, 1)
        },
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


KEY_CHANGE = [("+I", 1, "a"), ("-U", 1, "a"), ("+U", 1, "b"), ("-U", 1, "b"), ("+U", 2, "b")]
test_texts = text_test(
    __file__,
    {
        "an update on the border of two batches is one record": partial(
            encoded,
            "debezium-json",
            [
                batch([("+I", 1, "a"), ("-U", 1, "a")]),
                batch([]),
                batch([("+U", 1, "b"), ("-U", 2, "x")]),
            ],
        ),
        "an update of the key deletes the old key in upsert-kafka": partial(
            encoded, "upsert-kafka", [batch(KEY_CHANGE)]
        ),
        "changelog-json keeps every row": partial(
            encoded, "changelog-json", [batch([("-U", 1, "a"), ("+U", 1, "b")])], key=()
        ),
        "no rows are no records": partial(encoded, "ogg-json", [batch([])], key=()),
        "text in a TIME column is a time": partial(
            encoded,
            "ogg-json",
            [batch([("+I", 1, "12:00:00.5"), ("+I", 2, None)])],
            "id INT, at TIME(3)",
        ),
    },
)
