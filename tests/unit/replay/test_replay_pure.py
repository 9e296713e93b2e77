"""Recorded topics of real producers, decoded and folded without Spark, give the source tables."""

import json
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from cdc_formats import Ignored, get_format
from cdc_formats.errors import DecodeError
from tests.support.message_shapes import of_each_shape
from tests.support.paths import REPOSITORY
from tests.support.replay import differences
from tests.support.replay.comparing import assert_before_images, assert_truth
from tests.support.replay.replaying import decoded, normalized, read_recording
from tests.support.replay.topics import (
    CONTROL,
    FOLDER,
    KEYLESS,
    SIGNALS,
    TOPICS,
    Topic,
    recordings,
    registry_options,
    topics,
)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.name)
def test_topic_replayed_without_spark_ends_in_the_truth(
    topic: Topic, recorded_registry: str
) -> None:
    records = read_recording(topic.path)
    decoder = get_format(topic.format, **topic.options_at(recorded_registry)).decoder(
        topic.schema, unique_key=topic.primary_key
    )
    replay = normalized(decoder, records) if topic.primary_key else decoded(decoder, records)
    assert_truth(topic, replay, records)


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.name)
def test_columns_differ_only_after_an_alter_table(topic: Topic, recorded_registry: str) -> None:
    decoder = get_format(topic.format, **topic.options_at(recorded_registry)).decoder(
        topic.schema, unique_key=topic.primary_key
    )
    absent, unknown = set(), set()
    for record in read_recording(topic.path):
        with suppress(DecodeError):
            if names := decoder.compare_names(record.key, record.value):
                absent |= set(names.absent)
                # A flattened topic that is read as plain rows has Debezium's fields among the
                # columns.
                unknown |= {
                    name
                    for name in names.unknown
                    if not (topic.format == "upsert-kafka" and name.startswith("__"))
                }
    assert absent <= {"c_added", "new_name", "old_name", "extra"}
    assert unknown <= {"gone"}
    assert not absent or topic.name.endswith(("evolving", "all_types"))
    assert absent or "evolving" not in topic.name


@pytest.mark.parametrize(
    "topic", [topic for topic in topics() if topic.before_images], ids=lambda topic: topic.name
)
def test_before_images_equal_the_previous_rows(topic: Topic, recorded_registry: str) -> None:
    records = read_recording(topic.path)
    decoder = get_format(topic.format, **topic.options_at(recorded_registry)).decoder(topic.schema)
    assert_before_images(topic, decoded(decoder, records), records)


@pytest.mark.parametrize("recording", sorted(set(CONTROL) & set(recordings())))
def test_control_topic_is_ignored_record_by_record(recording: str, recorded_registry: str) -> None:
    format, reason = CONTROL[recording]
    decoder = get_format(format, **registry_options(format, recorded_registry)).decoder(
        "id INT", unique_key=["id"]
    )
    records = read_recording(FOLDER / "records" / f"{recording}.jsonl.gz")
    assert normalized(decoder, records).ignored == {reason: len(records)}


@pytest.mark.parametrize("recording", sorted(set(SIGNALS) & set(recordings())))
def test_signalling_table_is_read_like_any_other(recording: str, recorded_registry: str) -> None:
    format, rows = SIGNALS[recording]
    decoder = get_format(format, **registry_options(format, recorded_registry)).decoder(
        "id STRING, type STRING, data STRING", unique_key=["id"]
    )
    replay = normalized(decoder, read_recording(FOLDER / "records" / f"{recording}.jsonl.gz"))
    assert [row.kind for row in replay.changelog] == ["+I"] * rows


@pytest.mark.parametrize("recording", sorted(set(KEYLESS) & set(recordings())))
def test_flattened_table_without_a_key_is_read_except_its_updates(recording: str) -> None:
    decoder = get_format("debezium-flat-json", keyless=True).decoder("a INT, b STRING, c DOUBLE")
    counts: Counter[str] = Counter()
    for record in read_recording(FOLDER / "records" / f"{recording}.jsonl.gz"):
        try:
            result = decoder.decode(record.key, record.value)
            counts.update(
                [result.value]
                if isinstance(result, Ignored)
                else [change.kind.short_string for change in result]
            )
        except DecodeError as error:
            counts[error.condition] += 1
    assert counts == KEYLESS[recording]


def test_every_recording_is_replayed() -> None:
    replayed = {topic.recording for topic in TOPICS} | set(CONTROL) | set(SIGNALS) | set(KEYLESS)
    assert [name for name in recordings() if name not in replayed] == []


def test_every_difference_is_in_the_docs() -> None:
    page = (REPOSITORY / "docs" / "producers.md").read_text("utf-8")
    functions = {
        name
        for name, of in vars(differences).items()
        if "Difference" in str(getattr(of, "__annotations__", {}).get("return"))
    }
    constants = {
        name for name, of in vars(differences).items() if isinstance(of, differences.Difference)
    }
    named = (functions | constants) - {"written_as"}
    assert len(named) > 25
    assert sorted(name for name in named if f"`{name}`" not in page) == []


# --------------------------------------------------------------------------------------------------
# A sample of a recording has every form of message
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
