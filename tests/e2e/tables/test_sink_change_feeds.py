"""Change feeds: every change once, with Delta's names, and converted back to a changelog."""

from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession

from normalize import DeltaTarget, LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.change_feed import CHANGE_TYPES, from_change_feed, to_change_feed
from normalize.tables.apply import apply_batch
from tests.support.sinking import STORY, NewSink, changelog, forget_last_commit

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


def test_a_change_feed_has_every_change_once(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path
) -> None:
    """Spark's own sink writes a feed once, also when the last micro-batch is repeated."""
    feed, rebuilt = new_sink("delta"), new_sink("postgresql")
    assert isinstance(feed.table, DeltaTarget)
    changes = streamed(spark, kafka, maxOffsetsPerTrigger=5)
    stamped = to_change_feed(changes.withColumnRenamed("offset", "_commit_version"))
    for _ in range(2):
        writer = stamped.writeStream.option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(availableNow=True).format("delta").start(feed.table.name)
        query.awaitTermination()
        assert feed.rows("id", "name", "_change_type") == FEED
        assert forget_last_commit(tmp_path / "c") == 1
    # The feed is a changelog again, in the order of its offsets.
    past = from_change_feed(feed.read()).orderBy("name")
    apply_batch(
        past, rebuilt.table, keys="id", order_by="_commit_version", column_list=["id", "name"]
    )
    assert rebuilt.rows() == LAST
