"""Change feeds: every change once, with Delta's names, and converted back to a changelog."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from normalize import LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.sinks.apply import apply_batch
from normalize.sinks.change_feed import CHANGE_TYPES, from_change_feed
from normalize.spark_versions import has_package
from tests.support.sinking import STORY, Sink, changelog, for_each_batch, forget_last_commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NewSink = Callable[[str], Sink]

FEED = sorted((id, name, CHANGE_TYPES[kind]) for kind, id, name in STORY)
LAST = [(1, "c"), (2, "e")]
"""The rows after the story."""


def streamed(spark: SparkSession, kafka: LocalKafka, **options: Any) -> DataFrame:
    """The story as a stream from Kafka, with offsets."""
    topic = f"history-{uuid4().hex[:8]}"
    kafka.create_topic(topic)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    encode_changelog(changelog(spark, "id INT, name STRING", STORY)).write.format("kafka").options(
        **servers, topic=topic
    ).save()
    return from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING",
        normalize=False,
        metadata=["offset"],
        options={**servers, **options},
    )


@pytest.mark.mariadb
@pytest.mark.postgres
def test_a_change_feed_has_every_change_once(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path
) -> None:
    """Write a feed of each kind and a table by one query, then repeat its last micro-batch."""
    kinds = [
        kind
        for kind in ("delta", "iceberg", "postgresql", "mariadb")
        if kind != "iceberg" or has_package(kind)
    ]
    feeds, table = {kind: new_sink(kind) for kind in kinds}, new_sink("delta")

    def apply(batch: DataFrame, number: int) -> None:
        # A narrow operation and a cache of the user's keep the query's order.
        rows = batch.where("id > 0").persist()
        apply_batch(rows, table.table, keys="id", column_list=["id", "name"])
        for feed in feeds.values():
            apply_batch(rows, feed.table, change_feed=True)
        rows.unpersist()

    changes = streamed(spark, kafka, maxOffsetsPerTrigger=5)
    for _ in range(2):
        for_each_batch(changes, tmp_path, apply)
        assert (tmp_path / "commits" / "1").exists()
        assert table.rows() == LAST
        for kind, feed in feeds.items():
            assert feed.rows("id", "name", "_change_type") == FEED, kind
            assert {row[0] for row in feed.rows("_commit_version")} == {0, 1}, kind
        assert forget_last_commit(tmp_path) == 1
    # The feed is a changelog again, in the order of its micro-batches and offsets.
    past, rebuilt = (
        from_change_feed(feeds["postgresql"].read()).orderBy("name"),
        new_sink("postgresql"),
    )
    order = ["_commit_version", "offset"]
    apply_batch(past, rebuilt.table, keys="id", order_by=order, column_list=["id", "name"])
    assert rebuilt.rows() == LAST
