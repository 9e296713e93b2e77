"""Recorded topics of real producers reproduce the source tables through real Kafka and Spark."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from demo.recordings import RECORDINGS
from normalize import ChangelogNormalize, LocalKafka, from_kafka_changelog
from tests.support.replay.comparing import assert_truth
from tests.support.replay.replaying import Replay, Row, read_recording
from tests.support.replay.topics import FOLDER, MOVED, SMALL, Topic, topics
from tests.support.streams import servers

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    *([pytest.mark.slow] if FOLDER != SMALL else []),
]

MICRO_BATCHES = 2
"""The second reads rows of the first from the state."""


def loaded(kafka: LocalKafka, topic: Topic) -> str:
    """Load a recording, and return the topic's name."""
    name = f"{topic.recording}-{uuid4().hex[:8]}"
    kafka.load_recording(topic.path, topic=name)
    return name


def read(
    spark: SparkSession,
    topic: Topic,
    name: str,
    options: dict[str, Any],
    registry: str,
    *,
    bounded: bool,
    **stage: Any,
) -> DataFrame:
    """Read a topic with the options of its entry."""
    return from_kafka_changelog(
        spark,
        name,
        format=topic.format,
        schema=topic.schema,
        options=options,
        format_options=topic.options_at(registry),
        primary_key=topic.primary_key,
        normalize=ChangelogNormalize(**stage) if topic.primary_key else False,
        mode=topic.mode,
        metadata=["partition", "offset"],
        on_truncate="ignore",
        bounded=bounded,
    )


def replay_of(table: pa.Table, topic: Topic) -> Replay:
    """Return the rows of a changelog DataFrame, and its corrupt records."""
    replay = Replay()
    for row in table.to_pylist(maps_as_pydicts="strict"):
        corrupt = row.get("_corrupt_record")
        if corrupt is not None:
            replay.corrupt[corrupt["partition"], corrupt["offset"]] = corrupt["error"]
        else:
            values = tuple(row[name] for name in topic.columns)
            replay.changelog.append(Row(row["row_kind"], values, (row["partition"], row["offset"])))
    return replay


IN_THE_DEMO = {(each.file, each.truth) for each in RECORDINGS}
"""The recordings that `tests/e2e/demo` reads as streams."""


def ways() -> Iterator[Any]:
    """Return each topic with both ways to read it, one of them only for `make soak`."""
    for topic in topics():
        once = (topic.recording, f"{topic.database}.{topic.table}") in IN_THE_DEMO
        yield pytest.param(topic, once, id=topic.name)
        yield pytest.param(
            topic,
            not once,
            id=f"{topic.name}-also-{'stream' if once else 'bounded'}",
            marks=pytest.mark.soak,
        )


@pytest.mark.parametrize(("topic", "bounded"), list(ways()))
def test_topic_ends_in_the_truth(
    spark: SparkSession,
    kafka: LocalKafka,
    recorded_registry: str,
    topic: Topic,
    bounded: bool,
    tmp_path: Path,
) -> None:
    options = servers(kafka)
    records = read_recording(topic.path)
    if not bounded and len({record.place[0] for record in records}) == 1:
        # Where a key moves between partitions, only one batch can put its records in order.
        options["maxOffsetsPerTrigger"] = len(records) // MICRO_BATCHES + 1
    changelog = read(
        spark, topic, loaded(kafka, topic), options, recorded_registry, bounded=bounded
    )
    if not bounded:
        sink = (
            changelog.writeStream.format("memory")
            .queryName("replayed")
            .option("checkpointLocation", str(tmp_path))
        )
        sink.trigger(availableNow=True).start().awaitTermination()
        changelog = spark.table("replayed")
    assert_truth(topic, replay_of(changelog.toArrow(), topic), records)


def moved_topics() -> list[Topic]:
    """Return the topics in which keys move between partitions within one millisecond."""
    return [topic for topic in topics() if set(MOVED.get(topic.table, ())) & set(topic.differences)]


@pytest.mark.parametrize("topic", moved_topics(), ids=lambda topic: topic.name)
def test_topic_whose_keys_move_between_partitions_ends_in_the_truth_by_position(
    spark: SparkSession, kafka: LocalKafka, recorded_registry: str, topic: Topic
) -> None:
    changelog = read(
        spark,
        topic,
        loaded(kafka, topic),
        servers(kafka),
        recorded_registry,
        bounded=True,
        order="source",
    )
    ordered = replace(
        topic,
        differences=tuple(
            difference for difference in topic.differences if difference not in MOVED[topic.table]
        ),
    )
    assert_truth(ordered, replay_of(changelog.toArrow(), ordered), read_recording(topic.path))
