"""Corrupt records on a real broker and Spark: every mode, exact copies in the dead-letter topic."""

import json
import time
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation

from cdc_formats import Event, Format, MetadataColumn
from cdc_formats.errors import DecodeError
from normalize import DeadLetter, decode_changelog, from_kafka_changelog
from normalize.local_kafka import ProducerRecord
from tests.support.frames import BAD, frame
from tests.support.streams import Run, debezium, letters, new_topic, run_stream, servers, spell

TABLE = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}
WRITTEN = 1_600_000_000_000
HEADERS = (("trace", b"\x00\xff"), ("trace", None), ("empty", b""))
POISON = [
    ProducerRecord(b"1", debezium("c", None, {"id": 1, "name": "a", "qty": 1}), 0, WRITTEN),
    ProducerRecord(b"\x00key", b'{"op": "c", "after": {"id": "x"}}', 0, WRITTEN + 1, HEADERS),
    ProducerRecord(None, b"\xff\x00no json", 0, WRITTEN + 2),
    ProducerRecord(b"", b'{"op": "?"}', 0, WRITTEN + 3),
    ProducerRecord(b"6", debezium("c", None, {"id": 6, "name": "b", "qty": 1}), 0, WRITTEN + 4),
]
CONDITIONS = {1: "TYPE_CONVERSION", 2: "MALFORMED_MESSAGE", 3: "UNKNOWN_OPERATION"}
CLASSES = {1: "TypeConversionError", 2: "MalformedMessageError", 3: "UnknownOperationError"}


@pytest.mark.cross_section
@pytest.mark.parametrize(
    ("bounded", "table"),
    [(False, TABLE), (True, {**TABLE, "normalize": False})],
    ids=["stream, stage", "bounded, no stage"],
)
def test_a_dead_letter_is_the_exact_record_with_its_offset_and_error(
    spark, kafka, tmp_path, bounded, table
):
    topic, dead = new_topic(kafka, POISON), new_topic(kafka, [])
    before = time.time() * 1000
    df = from_kafka_changelog(
        spark, topic, **table, options=servers(kafka), mode=DeadLetter(dead), bounded=bounded
    )
    assert df.columns == ["row_kind", "id", "name", "qty"]
    run = Run({0: df.collect()}, []) if bounded else run_stream(df, tmp_path / "c")
    assert sorted(run.changelog) == ["+I(1,a,1)", "+I(6,b,1)"]
    if not bounded:
        # Counted by condition and together.
        names = ("RECORDS", *CONDITIONS.values(), "DEAD_LETTERS")
        assert [run.metric("changelog_decode", name) for name in names] == [5, 1, 1, 1, 3]
    written = letters(kafka, dead)
    assert [letter.key() for letter in written] == [
        f"{topic}[0]@{offset}".encode() for offset in (1, 2, 3)
    ]
    for offset, letter in enumerate(written, 1):
        record = POISON[offset]
        assert letter.value() == record.value
        assert letter.timestamp()[1] >= before
        headers = letter.headers()
        assert tuple(headers[: len(record.headers)]) == record.headers
        error_headers = dict(headers[len(record.headers) :])
        text = error_headers.pop("__connect.errors.exception.message").decode()
        assert text.startswith(f"[{CONDITIONS[offset]}] ")
        assert f" in {topic}[0]@{offset}; it begins b'" in text
        assert error_headers == {
            "__connect.errors.topic": topic.encode(),
            "__connect.errors.partition": b"0",
            "__connect.errors.offset": str(offset).encode(),
            "__connect.errors.exception.class.name": f"cdc_formats.errors.{CLASSES[offset]}".encode(),
            "__changelog.errors.condition": CONDITIONS[offset].encode(),
            "__changelog.errors.format": b"debezium-json",
            "__changelog.errors.timestamp": str(record.timestamp).encode(),
            "__changelog.errors.key": record.key,
        }


def test_null_values_empty_values_and_large_records_are_unchanged(spark, kafka):
    # In upsert-kafka a null value is a delete, so that the null key is the error. The last record
    # exceeds a producer's default size.
    large = b'{"id": "' + b"x" * 3_000_000 + b'"}'
    topic, dead = (
        new_topic(kafka, [(None, None), (b'{"id":1}', b""), (b'{"id":2}', large)]),
        new_topic(kafka, []),
    )
    table = {**TABLE, "format": "upsert-kafka"}
    assert (
        from_kafka_changelog(
            spark, topic, **table, options=servers(kafka), mode=DeadLetter(dead), bounded=True
        ).collect()
        == []
    )
    written = letters(kafka, dead)
    assert [letter.value() for letter in written] == [None, b"", large]
    keys = [dict(letter.headers())["__changelog.errors.key"] for letter in written]
    assert keys == [None, b'{"id":1}', b'{"id":2}']


# --------------------------------------------------------------------------------------------- what
# the stage cannot complete


def toast(key: int) -> ProducerRecord:
    """An update that omits a column as unchanged."""
    return ProducerRecord(
        b"%d" % key,
        debezium("u", None, {"id": key, "name": "__debezium_unavailable_value", "qty": 2}),
        0,
        WRITTEN,
        (("of", b"%d" % key),),
    )


@pytest.mark.parametrize("bounded", [False, True], ids=["stream", "bounded"])
def test_rows_that_the_stage_cannot_complete_are_dead_letters_too(spark, kafka, tmp_path, bounded):
    topic, dead = new_topic(kafka, [POISON[0], toast(1), toast(7)]), new_topic(kafka, [])
    counts = Observation("counts") if bounded else None
    df = from_kafka_changelog(
        spark,
        topic,
        **TABLE,
        options=servers(kafka),
        mode=DeadLetter(dead),
        bounded=bounded,
        observation=counts,
    )
    expected = ["+I(1,a,1)", "-U(1,a,1)", "+U(1,a,2)"]
    if bounded:
        assert [spell(row) for row in df.collect()] == expected
        counted = {
            name: counts.get[name]
            for name in ("RECORDS", "CHANGES", "PARTIAL_IMAGE", "DEAD_LETTERS")
        }
    else:
        stream = run_stream(df, tmp_path / "c")
        assert stream.changelog == expected
        counted = {
            name: stream.metric("changelog_normalize", name)
            for name in ("CHANGES", "PARTIAL_IMAGE", "DEAD_LETTERS")
        }
        counted["RECORDS"] = stream.metric("changelog_decode", "RECORDS")
    assert counted == {"RECORDS": 3, "CHANGES": 3, "PARTIAL_IMAGE": 1, "DEAD_LETTERS": 1}
    (letter,) = letters(kafka, dead)
    assert (letter.key(), letter.value()) == (f"{topic}[0]@2".encode(), toast(7).value)
    headers = dict(letter.headers())
    expected = {
        "of": b"7",
        "__changelog.errors.condition": b"PARTIAL_IMAGE",
        "__changelog.errors.key": b"7",
        "__changelog.errors.timestamp": str(WRITTEN).encode(),
    }
    assert {name: headers[name] for name in expected} == expected


# --------------------------------------------------------------------------------------------------
# delivery


def test_a_query_that_failed_and_starts_again_loses_no_row_and_no_dead_letter_and_repeats_them_with_equal_keys(
    spark, kafka, tmp_path
):
    good = [
        ProducerRecord(b"1", debezium("c", None, {"id": 1, "name": name, "qty": 1}), 0, WRITTEN)
        for name in "abc"
    ]
    bad = [ProducerRecord(b"k", b"poison %d" % number, 0, WRITTEN) for number in range(3)]
    topic, dead = (
        new_topic(kafka, [record for pair in zip(bad, good, strict=True) for record in pair]),
        new_topic(kafka, []),
    )
    df = from_kafka_changelog(
        spark,
        topic,
        **TABLE,
        options=servers(kafka, maxOffsetsPerTrigger=2),
        mode=DeadLetter(dead),
        check=False,
    )
    first: list[str] = []

    def fail_in_the_second(batch: Any, number: int) -> None:
        rows = batch.collect()
        if number == 1:
            raise RuntimeError("the sink is gone")
        first.extend(map(spell, rows))

    writer = df.writeStream.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    )
    with pytest.raises(StreamingQueryException, match="the sink is gone"):
        writer.foreachBatch(fail_in_the_second).start().awaitTermination()
    second = run_stream(df, tmp_path / "c").changelog
    assert [*first, *second] == ["+I(1,a,1)", "-U(1,a,1)", "+U(1,b,1)", "-U(1,b,1)", "+U(1,c,1)"]
    written = [(letter.key().decode(), letter.value()) for letter in letters(kafka, dead)]
    assert dict(written) == {
        f"{topic}[0]@{2 * number}": b"poison %d" % number for number in range(3)
    }
    assert sorted(key for key, _ in written) == sorted(
        f"{topic}[0]@{number}" for number in (0, 2, 2, 4)
    )


def test_a_dead_letter_that_cannot_be_written_fails_the_query_and_names_the_record(spark, kafka):
    kafka.create_topic("dead-and-small", config={"max.message.bytes": "1000"})
    short = {"topic.metadata.propagation.max.ms": 100, "message.timeout.ms": 3000}
    for records, mode, text in (
        (
            [POISON[0], (None, b"x" * 5000)],
            DeadLetter("dead-and-small"),
            r"1 of 1 .*the first is {topic}\[0\]@1: .*too large.*max\.message\.bytes",
        ),
        (
            POISON,
            DeadLetter("not-there", short),
            r"3 of 3 .*'not-there' - the first is {topic}\[0\]@1: .*Create the topic",
        ),
    ):
        topic = new_topic(kafka, records)
        df = from_kafka_changelog(
            spark, topic, **TABLE, options=servers(kafka), mode=mode, bounded=True
        )
        text = text.replace("{topic}", topic)
        with pytest.raises(Exception, match=rf"\[DEAD_LETTER\] {text}"):
            df.collect()


def test_dead_letters_of_a_frame_without_offsets_are_identified_by_their_content(spark, kafka):
    dead = new_topic(kafka, [])
    mode = DeadLetter(dead, {"bootstrap.servers": kafka.bootstrap_servers})
    df = frame(spark, [*BAD, b"no json"], "value, timestamp")
    assert [spell(row) for row in decode_changelog(df, **TABLE, mode=mode).collect()] == [
        "+I(1,a,0)"
    ]
    first, second = letters(kafka, dead)
    assert first.value() == second.value() == b"no json"
    assert first.key() == second.key()
    assert len(first.key()) == 64
    headers = dict(first.headers())
    assert headers["__connect.errors.offset"] is None
    assert b"in DataFrame[0]@1" in headers["__connect.errors.exception.message"]


# -------------------------------------------------------------------------------------------------
# formats that have bugs


def buggy() -> Format:
    """Return a custom format whose reader, metadata and values fail.

    It is defined in a function, so that workers receive it by value.
    """

    class MineError(DecodeError):
        condition = "MINE"

    class Buggy(Format):
        identifier = "buggy"
        reads_key = True
        metadata = {"user": MetadataColumn("STRING", lambda message: message["user"])}  # noqa: RUF012

        def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
            message = json.loads(value)
            if "registry" in message:
                raise ConnectionError("the registry does not answer")
            if "mine" in message:
                raise MineError("I have conditions of my own", "$.mine")
            if "key" in message:
                key.decode("ascii")
            return [Event.insert(message["row"], message)]

    return Buggy()


BUGS = [
    (b"k", b'{"row": {"id": 1}, "user": "me"}'),
    (b"k", b"no json"),
    (b"k", b'{"row": {"id": 2}}'),
    (b"\xff", b'{"key": 1}'),
    (b"k", b'{"row": {"id": 3, "name": "\\ud800"}, "user": "me"}'),
    (b"k", b'{"row": [], "user": "me"}'),
    (b"k", b'{"mine": 1}'),
    (b"k", b'{"row": {"id": 4}, "user": ["me"]}'),
    (b"k", b'{"row": {"id": 5}, "user": "\\udfff"}'),
]
BUGGY = {
    "schema": "id INT, name STRING",
    "primary_key": ["id"],
    "metadata": ["user"],
    "bounded": True,
}
ERROR_PREFIXES = {
    1: "[FORMAT_BUG] buggy failed with JSONDecodeError: ",
    2: "[FORMAT_BUG] buggy failed with KeyError: 'user'",
    3: "[FORMAT_BUG] buggy failed with UnicodeDecodeError: ",
    4: "[TYPE_CONVERSION] expected `STRING`, got `str` '\\ud800'",
    5: "[FORMAT_BUG] buggy failed with ",
    6: "[MINE] I have conditions of my own - at `$.mine`",
    7: "[FORMAT_BUG] buggy failed with ValidationError: Expected `str | null`, got `array`",
    8: "[FORMAT_BUG] buggy failed with UnicodeEncodeError: ",
}


def test_a_format_bug_is_a_bad_record_in_lenient_modes(spark, kafka):
    topic, dead, counts = new_topic(kafka, BUGS), new_topic(kafka, []), Observation("counts")
    table = {**BUGGY, "format": buggy(), "options": servers(kafka), "check": False}
    kept = from_kafka_changelog(
        spark, topic, **table, mode="PERMISSIVE", observation=counts
    ).collect()
    assert [tuple(row)[:4] for row in kept if row.row_kind] == [("+I", 1, None, "me")]
    errors = {
        row._corrupt_record.offset: row._corrupt_record.error
        for row in kept
        if row.row_kind is None
    }
    assert {
        offset: text[: len(ERROR_PREFIXES[offset])] for offset, text in errors.items()
    } == ERROR_PREFIXES
    assert "please report this bug of the format - at the value in " in errors[2]
    assert [counts.get[name] for name in ("FORMAT_BUG", "TYPE_CONVERSION", "DECODE")] == [6, 1, 1]
    assert (
        from_kafka_changelog(spark, topic, **table, normalize=False, mode=DeadLetter(dead)).count()
        == 1
    )
    assert [dict(letter.headers())["__changelog.errors.condition"] for letter in letters(kafka, dead)] == [
        b"FORMAT_BUG", b"FORMAT_BUG", b"FORMAT_BUG", b"TYPE_CONVERSION", b"FORMAT_BUG", b"MINE", b"FORMAT_BUG", b"FORMAT_BUG",
    ]  # fmt: skip
