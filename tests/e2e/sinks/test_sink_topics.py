"""Recorded topics of real producers, applied to real tables, give the source databases' tables."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from normalize import ChangelogNormalize, LocalKafka, from_kafka_changelog
from normalize.core.arrow import spark_type
from normalize.dataframe import table_columns
from normalize.tables.apply import apply_batch
from tests.support.replay.comparing import assert_truth
from tests.support.replay.replaying import Replay, Row, read_recording
from tests.support.replay.topics import SMALL, TOPICS, Topic
from tests.support.sinking import NewSink, Sink, apply_stream, forget_last_commit

NULLED = ("name", "email")
"""Text columns with U+0000, which PostgreSQL cannot store."""


def topic_of(recording: str, table: str, format: str) -> Topic:
    """A recorded topic of the repository."""
    return next(
        topic
        for topic in TOPICS
        if (topic.recording, topic.table, topic.format) == (recording, table, format)
    )


def without_null(text: str | None) -> str | None:
    """Text that PostgreSQL can store."""
    return text and text.replace("\0", "")


def read(
    spark: SparkSession, kafka: LocalKafka, topic: Topic, *, bounded: bool, **more: Any
) -> DataFrame:
    """A topic, read with the options of its entry."""
    name = f"sinks.{topic.recording}.{topic.table}.{bounded}"
    kafka.load_recording(SMALL / "records" / f"{topic.recording}.jsonl.gz", topic=name)
    return from_kafka_changelog(
        spark,
        name,
        format=topic.format,
        schema=topic.schema,
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers, **more},
        format_options=topic.options,
        primary_key=topic.primary_key,
        metadata=["partition", "offset"],
        on_truncate="ignore",
        bounded=bounded,
        normalize=ChangelogNormalize(key_groups=2),
    )


def assert_table_is_the_truth(sink: Sink, topic: Topic) -> None:
    """Require that the table's rows, each with the position of its last record, equal the truth."""
    typed = {column.name: spark_type(column.type) for column in table_columns(topic.schema)}
    rows = sink.read().selectExpr(
        *(f"CAST(`{name}` AS {kind}) AS `{name}`" for name, kind in typed.items()),
        "partition",
        "offset",
    )
    values = [list(row.values()) for row in rows.toArrow().to_pylist(maps_as_pydicts="strict")]
    replay = Replay(changelog=[Row("+I", tuple(row[:-2]), (row[-2], row[-1])) for row in values])
    assert_truth(topic, replay, read_recording(SMALL / "records" / f"{topic.recording}.jsonl.gz"))


@pytest.mark.parametrize(
    ("kind", "topic"),
    [
        ("delta", topic_of("dbz34-mariadb-json.inventory.customers", "customers", "debezium-json")),
        ("iceberg", topic_of("maxwell-mariadb", "customers", "maxwell-json")),
        (
            "postgresql",
            replace(
                topic_of("canal-mariadb-flat", "customers", "canal-json"),
                written=dict.fromkeys(NULLED, without_null),
            ),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.format,
)
def test_topic_as_a_stream_with_a_repeated_batch(
    spark: SparkSession,
    kafka: LocalKafka,
    new_sink: NewSink,
    kind: str,
    topic: Topic,
    tmp_path: Path,
) -> None:
    sink = new_sink(kind)
    half = len(read_recording(SMALL / "records" / f"{topic.recording}.jsonl.gz")) // 2 + 1
    changes = read(spark, kafka, topic, bounded=False, maxOffsetsPerTrigger=half)
    if topic.written:
        changes = changes.withColumns(
            {name: F.replace(name, F.lit("\0"), F.lit("")) for name in topic.written}
        )
    apply_stream(changes, sink.table, tmp_path / "checkpoint", keys=topic.primary_key)
    assert_table_is_the_truth(sink, topic)
    # As after a kill between the table's commit and Spark's commit.
    assert forget_last_commit(tmp_path / "checkpoint") == 1
    repeated = apply_stream(
        changes, sink.table, tmp_path / "checkpoint", keys=topic.primary_key
    ).lastProgress
    assert (tmp_path / "checkpoint" / "commits" / "1").exists()
    if repeated:  # Spark 4.1 fails before it reports
        # Computed once, so that it is counted once.
        assert (
            repeated["observedMetrics"]["changelog_decode"]["RECORDS"]
            == repeated["numInputRows"]
            > 0
        )
    assert_table_is_the_truth(sink, topic)


@pytest.mark.parametrize(
    ("kind", "topic"),
    [
        ("mariadb", topic_of("flink-upsert.tags", "tags", "upsert-kafka")),
        (
            "mariadb",
            topic_of("dbz34-mariadb-json.inventory.order_lines", "order_lines", "debezium-json"),
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else value.table,
)
def test_topic_in_one_batch(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, topic: Topic
) -> None:
    sink = new_sink(kind)
    apply_batch(read(spark, kafka, topic, bounded=True), sink.table, keys=topic.primary_key)
    assert_table_is_the_truth(sink, topic)
