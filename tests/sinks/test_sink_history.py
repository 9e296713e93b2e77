"""Histories and change feeds: every change once, with Delta's names, and converted back to a changelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from sinking import Sink, apply_stream, changelog, forget_last_commit

from cdc_formats.errors import ArgumentError
from normalize import LocalKafka, apply_changes, from_change_feed, from_kafka_changelog, to_change_feed, to_kafka_changelog
from normalize.sinks.change_feed import CHANGE_TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

NewSink = Callable[[str], Sink]

STORY = [("+I", 1, "a"), ("+I", 2, "b"), ("-U", 1, "a"), ("+U", 1, "c"), ("-D", 2, "b"), ("+I", 2, "d"), ("-U", 2, "d"), ("+U", 2, "e")]
FEED = sorted((id, name, CHANGE_TYPES[kind]) for kind, id, name in STORY)


def test_a_changelog_is_a_change_feed_and_back(spark: SparkSession) -> None:
    changes = changelog(spark, "id INT, name STRING", STORY)
    feed = to_change_feed(changes)
    assert feed.columns == ["id", "name", "_change_type"]
    assert [row._change_type for row in feed.take(4)] == ["insert", "insert", "update_preimage", "update_postimage"]
    assert from_change_feed(feed).collect() == changes.collect()


def test_invalid_change_feeds(spark: SparkSession) -> None:
    changes = changelog(spark, "id INT", [("+I", 1)])
    with pytest.raises(ArgumentError, match="no column _change_type"):
        from_change_feed(changes)
    with pytest.raises(ArgumentError, match="already has a column _change_type"):
        to_change_feed(changes.withColumn("_change_type", changes.row_kind))
    for odd, convert in ((changelog(spark, "id INT", [(None, 1)]), to_change_feed), (_feed(spark, "truncate"), from_change_feed)):
        with pytest.raises(Exception, match=r"is (NULL|truncate), not one of"):
            convert(odd).collect()


def _feed(spark: SparkSession, kind: str) -> DataFrame:
    return spark.createDataFrame([(1, kind)], "id INT, _change_type STRING")


def streamed(spark: SparkSession, kafka: LocalKafka, **options: Any) -> DataFrame:
    """The products scenario as a stream from Kafka, with offsets."""
    topic = f"history-{uuid4().hex[:8]}"
    kafka.create_topic(topic)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    to_kafka_changelog(changelog(spark, "id INT, name STRING", STORY), topic, options=servers)
    return from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING",
        source_duplicates=False,
        metadata=["offset"],
        options={**servers, **options},
    )


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_a_history_has_every_change_once(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, tmp_path: Path) -> None:
    sink, changes = new_sink(kind), streamed(spark, kafka, maxOffsetsPerTrigger=5)
    apply_stream(changes, sink.table, tmp_path, history=True)
    assert sink.rows("id", "name", "_change_type") == FEED
    assert {row[0] for row in sink.rows("_commit_version")} == {0, 1}
    assert forget_last_commit(tmp_path) == 1
    assert apply_stream(changes, sink.table, tmp_path, history=True).lastProgress["batchId"] == 1
    assert sink.rows("id", "name", "_change_type") == FEED


@pytest.mark.kafka
def test_a_history_rebuilds_the_table(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path) -> None:
    history, table = new_sink("postgresql"), new_sink("postgresql")
    apply_stream(streamed(spark, kafka), history.table, tmp_path, history=True)
    past = from_change_feed(history.read()).orderBy("name")
    apply_changes(past, table.table, primary_key="id", order_by=["_commit_version", "offset"], columns=["id", "name"])
    assert table.rows() == [(1, "c"), (2, "e")]


def test_deltas_change_feed_is_a_changelog(spark: SparkSession, new_sink: NewSink) -> None:
    source, copy = new_sink("delta"), new_sink("postgresql")
    properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    source.execute(f"CREATE TABLE {source.sql_name} (id INT, name STRING) USING delta {properties}")
    for rows in (STORY[:2], STORY[2:5]):
        apply_changes(changelog(spark, "id INT, name STRING", rows), source.table, primary_key="id")
    feed = spark.read.option("readChangeFeed", "true").option("startingVersion", 0).table(source.sql_name)
    changes = from_change_feed(feed)
    assert sorted((row.row_kind, row.id, row.name) for row in changes.collect()) == sorted(STORY[:5])
    apply_changes(changes, copy.table, primary_key="id", order_by="_commit_version", columns=["id", "name"])
    assert copy.rows() == source.rows() == [(1, "c")]
