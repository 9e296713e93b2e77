"""Recorded topics of real producers, decoded and folded without Spark, end in the tables that the databases had."""

from __future__ import annotations

import pytest
from comparing import assert_before_images, assert_truth
from replaying import decoded, normalized, read_recording
from topics import CONTROL, FOLDER, NOT_READ, SIGNALS, TOPICS, Topic, recordings, topics

from cdc_formats import get_format


@pytest.mark.parametrize("topic", topics(), ids=lambda topic: topic.name)
def test_topic_replayed_without_spark_ends_in_the_truth(topic: Topic) -> None:
    records = read_recording(topic.path)
    decoder = get_format(topic.format, **topic.options).decoder(topic.schema, unique_key=topic.primary_key)
    replay = normalized(decoder, records) if topic.primary_key else decoded(decoder, records)
    assert_truth(topic, replay, records)


@pytest.mark.parametrize("topic", [topic for topic in topics() if topic.before_images], ids=lambda topic: topic.name)
def test_before_images_are_the_rows_that_were_there(topic: Topic) -> None:
    records = read_recording(topic.path)
    decoder = get_format(topic.format, **topic.options).decoder(topic.schema)
    assert_before_images(topic, decoded(decoder, records), records)


@pytest.mark.parametrize("recording", sorted(set(CONTROL) & set(recordings())))
def test_control_topic_is_ignored_record_by_record(recording: str) -> None:
    format, reason = CONTROL[recording]
    decoder = get_format(format).decoder("id INT", unique_key=["id"])
    records = read_recording(FOLDER / "records" / f"{recording}.jsonl.gz")
    assert normalized(decoder, records).ignored == {reason: len(records)}


@pytest.mark.parametrize("recording", sorted(set(SIGNALS) & set(recordings())))
def test_signalling_table_is_read_as_any_other(recording: str) -> None:
    format, rows = SIGNALS[recording]
    decoder = get_format(format).decoder("id STRING, type STRING, data STRING", unique_key=["id"])
    replay = normalized(decoder, read_recording(FOLDER / "records" / f"{recording}.jsonl.gz"))
    assert [row.kind for row in replay.changelog] == ["+I"] * rows


def test_every_recording_is_replayed_or_its_reason_is_named() -> None:
    known = {topic.recording for topic in TOPICS} | set(CONTROL) | set(SIGNALS)
    unread = [name for name in recordings() if name not in known]
    assert [name for name in unread if not name.startswith(tuple(NOT_READ))] == []
