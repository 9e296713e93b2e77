"""Change feeds: every change once, with Delta's names, and converted back to a changelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from normalize import LocalKafka, apply_batch, encode_changelog, from_change_feed, from_kafka_changelog
from normalize.sinks.change_feed import CHANGE_TYPES
from tests.support.sinking import STORY, Sink, apply_stream, changelog, forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewSink = Callable[[str], Sink]

FEED = sorted((id, name, CHANGE_TYPES[kind]) for kind, id, name in STORY)


def streamed(spark: SparkSession, kafka: LocalKafka, **options: Any) -> DataFrame:
    """The products scenario as a stream from Kafka, with offsets."""
    topic = f"history-{uuid4().hex[:8]}"
    kafka.create_topic(topic)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    encode_changelog(changelog(spark, "id INT, name STRING", STORY)).write.format("kafka").options(**servers, topic=topic).save()
    return from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING",
        normalize=False,
        metadata=["offset"],
        options={**servers, **options},
    )


@pytest.mark.cross_section
@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_a_change_feed_has_every_change_once(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, tmp_path: Path) -> None:
    sink, changes = new_sink(kind), streamed(spark, kafka, maxOffsetsPerTrigger=5)
    apply_stream(changes, sink.table, tmp_path, change_feed=True)
    assert sink.rows("id", "name", "_change_type") == FEED
    assert {row[0] for row in sink.rows("_commit_version")} == {0, 1}
    assert forget_last_commit(tmp_path) == 1
    apply_stream(changes, sink.table, tmp_path, change_feed=True)
    assert (tmp_path / "commits" / "1").exists()
    assert sink.rows("id", "name", "_change_type") == FEED


def test_a_change_feed_rebuilds_the_table(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path) -> None:
    history, table = new_sink("postgresql"), new_sink("postgresql")
    apply_stream(streamed(spark, kafka), history.table, tmp_path, change_feed=True)
    past = from_change_feed(history.read()).orderBy("name")
    apply_batch(past, table.table, keys="id", sequence_by=["_commit_version", "offset"], column_list=["id", "name"])
    assert table.rows() == [(1, "c"), (2, "e")]


@pytest.mark.postgres
def test_deltas_change_feed_is_a_changelog(spark: SparkSession, new_sink: NewSink) -> None:
    source, copy = new_sink("delta"), new_sink("postgresql")
    properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    source.execute(f"CREATE TABLE {source.sql_name} (id INT, name STRING) USING delta {properties}")
    for rows in (STORY[:2], STORY[2:5]):
        apply_batch(changelog(spark, "id INT, name STRING", rows), source.table, keys="id")
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).table(source.sql_name)
    changes = from_change_feed(feed)
    assert sorted((row.row_kind, row.id, row.name) for row in changes.collect()) == sorted(STORY[:5])
    apply_batch(changes, copy.table, keys="id", sequence_by="_commit_version", column_list=["id", "name"])
    assert copy.rows() == source.rows() == [(1, "c")]
