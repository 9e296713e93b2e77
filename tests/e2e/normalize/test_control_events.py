"""Control events as rows, and headers for formats, on a real broker and real Spark."""

import json
from datetime import datetime
from typing import Any

import pytest

from cdc_formats import ControlEvent, Event, Format, Ignored
from cdc_formats.errors import MissingFieldError
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.local_kafka import ProducerRecord
from tests.support.streams import debezium, new_topic, run_stream, servers, spell

TABLE = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}
WRITTEN = 1_600_000_000_000
SOURCE = {"db": "shop", "schema": "public", "table": "orders"}
DDL = {
    "source": SOURCE,
    "databaseName": "shop",
    "schemaName": "public",
    "ddl": "ALTER TABLE orders ADD é INT",
    "tableChanges": [],
}
MESSAGES = [
    (b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1})),
    (None, json.dumps(DDL).encode()),
    (b"t", json.dumps({"op": "t", "source": SOURCE}).encode()),
    (b"h", b'{"ts_ms": 1600000000000}'),
    (b"tx", b'{"status": "BEGIN", "id": "571:53195832", "ts_ms": 1}'),
    (b"1", None),
    (b"2", debezium("c", None, {"id": 2, "name": "b", "qty": 1})),
    (b"3", b"no json"),
]
TOPIC = [
    ProducerRecord(key, value, 0, WRITTEN + offset) for offset, (key, value) in enumerate(MESSAGES)
]
ABOUT = {
    1: ("DDL", "shop", "public", "orders", "ALTER TABLE orders ADD é INT"),
    2: ("TRUNCATE", "shop", "public", "orders", None),
    3: ("HEARTBEAT", None, None, None, None),
    4: ("TRANSACTION", None, None, None, "BEGIN 571:53195832"),
}


@pytest.fixture(scope="module")
def topic(kafka):
    return new_topic(kafka, TOPIC)


def events(rows: list[Any]) -> dict[int, tuple[Any, ...]]:
    """The details of control events, by offset."""
    details = [row._control_event for row in rows if row._control_event is not None]
    return {event.offset: tuple(event)[:5] for event in details}


@pytest.mark.parametrize(
    ("bounded", "normalize"),
    [(False, None), (True, False)],
    ids=["stream, stage", "bounded, no stage"],
)
def test_control_events_are_rows_with_their_details_and_record(
    spark, kafka, topic, tmp_path, bounded, normalize
):
    df = from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka), control_events="all", mode="PERMISSIVE", metadata=["offset"],
        bounded=bounded, normalize=normalize,
    )  # fmt: skip
    assert df.columns == [
        "row_kind",
        "id",
        "name",
        "qty",
        "offset",
        "_corrupt_record",
        "_control_event",
    ]
    if bounded:
        rows = df.collect()
    else:
        run = run_stream(df, tmp_path / "c")
        rows = run.rows
        counted = {
            name: run.metric("changelog_decode", name)
            for name in ("DDL", "TRUNCATE", "HEARTBEAT", "TRANSACTION", "TOMBSTONE")
        }
        assert set(counted.values()) == {1}
    assert sorted((row.row_kind, row.id, row.offset) for row in rows if row.row_kind) == [
        ("+I", 1, 0),
        ("+I", 2, 6),
    ]
    assert events(rows) == ABOUT
    for event in (row._control_event for row in rows if row._control_event is not None):
        key, value = MESSAGES[event.offset]
        assert tuple(event)[5:7] == (topic, 0)
        assert event.timestamp == datetime.fromtimestamp((WRITTEN + event.offset) / 1000)
        assert (event.key, bytes(event.value)) == (key, value)
    side_outputs = [row for row in rows if row.row_kind is None]
    assert {tuple(row)[:5] for row in side_outputs} == {(None,) * 5}
    (corrupt,) = (row for row in side_outputs if row._corrupt_record is not None)
    assert corrupt._control_event is None
    record = corrupt._corrupt_record
    assert (record.topic, record.partition, record.offset) == (topic, 0, 7)
    assert (bytes(record.key), bytes(record.value)) == MESSAGES[7]
    assert record.error.startswith("[MALFORMED_MESSAGE] not JSON")


def test_only_requested_control_events_are_delivered(spark, kafka):
    topic = new_topic(kafka, TOPIC[:2] + TOPIC[3:7])
    df = from_kafka_changelog(
        spark,
        topic,
        **TABLE,
        options=servers(kafka),
        control_events=["TOMBSTONE", "DDL"],
        bounded=True,
    )
    rows = df.collect()
    assert events(rows) == {1: ABOUT[1], 4: ("TOMBSTONE", None, None, None, None)}
    assert sorted(spell(row) for row in rows if row.row_kind) == [
        "+I(1,a,1,None)",
        "+I(2,b,1,None)",
    ]


def test_changelog_normalize_passes_control_events_unchanged(spark, kafka, topic):
    df = from_kafka_changelog(
        spark,
        topic,
        **TABLE,
        options=servers(kafka),
        control_events="all",
        mode="PERMISSIVE",
        bounded=True,
        normalize=False,
    )
    normalized = df.transform(ChangelogNormalize(primary_key="id"))
    assert normalized.schema == df.schema
    rows = normalized.collect()
    assert sorted(row.id for row in rows if row.row_kind == "+I") == [1, 2]
    passed = [row for row in rows if row.row_kind is None]
    assert events(passed) == ABOUT
    assert [row._corrupt_record.offset for row in passed if row._corrupt_record is not None] == [7]
    assert sorted(map(str, passed)) == sorted(
        str(row) for row in df.collect() if row.row_kind is None
    )


def test_a_control_event_that_its_format_cannot_read_is_a_bad_record(spark, kafka):
    class Marks(Format):
        identifier = "marks"

        def read(self, key: bytes | None, value: bytes | None) -> Ignored:
            return Ignored.MESSAGE

        def control_event(
            self, key: bytes | None, value: bytes | None, reason: Ignored, headers: object = ()
        ) -> ControlEvent:
            if value == b"none":
                raise MissingFieldError("no statement", "$.statement")
            # Half a surrogate pair has no bytes in UTF-8.
            return ControlEvent(
                reason, statement={b"bug": lambda: 1 / 0}.get(value, lambda: "\ud800")()
            )

    topic = new_topic(kafka, [(None, b"none"), (None, b"bug"), (None, b"half")])
    table = {"schema": "id INT", "normalize": False, "control_events": "MESSAGE", "bounded": True}
    rows = from_kafka_changelog(
        spark, topic, format=Marks(), **table, options=servers(kafka), mode="PERMISSIVE"
    ).collect()
    errors = {
        row._corrupt_record.offset: row._corrupt_record.error
        for row in rows
        if row._corrupt_record is not None
    }
    assert errors[0].startswith("[MISSING_FIELD] no statement - at `$.statement`")
    assert errors[1].startswith(
        "[FORMAT_BUG] marks failed with ZeroDivisionError: division by zero"
    )
    assert events(rows) == {2: ("MESSAGE", None, None, None, "\\ud800")}


# --------------------------------------------------------------------------------------------------
# headers for formats


def test_a_format_reads_headers(spark, kafka, tmp_path):
    class ByHeader(Format):
        """A format whose operation is in a header."""

        identifier = "by-header"
        reads_headers = True

        def read(self, key: bytes | None, value: bytes | None, headers: Any) -> list[Event]:
            names = dict(headers)
            row = {"id": int(value), "said": repr(list(headers))}
            return [Event.delete(row) if names.get("op") == b"d" else Event.insert(row)]

    all_headers = [
        (("op", b"c"), ("op", None), ("é", b"\x00\xff")),
        (),
        (("op", b""),),
        (("op", b"d"),),
    ]
    records = [
        ProducerRecord(None, b"%d" % number, 0, WRITTEN, headers)
        for number, headers in enumerate(all_headers)
    ]
    table = {"format": ByHeader(), "schema": "id INT, said STRING", "normalize": False}
    df = from_kafka_changelog(spark, new_topic(kafka, records), **table, options=servers(kafka))
    assert [tuple(row) for row in run_stream(df, tmp_path / "c").rows] == [
        ("-D" if number == 3 else "+I", number, repr(list(headers)))
        for number, headers in enumerate(all_headers)
    ]
