"""`apply_batch` in a user's ``foreachBatch``: the query's plan sets the order of a key's rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize import LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from tests.support.sinking import STORY, Sink, changelog, for_each_batch


def stream(spark: SparkSession, kafka: LocalKafka, **options: Any) -> DataFrame:
    """The story as a stream from Kafka."""
    topic, servers = (
        f"foreach-{uuid4().hex[:8]}",
        {"kafka.bootstrap.servers": kafka.bootstrap_servers},
    )
    kafka.create_topic(topic)
    encode_changelog(changelog(spark, "id INT, name STRING", STORY)).write.format("kafka").options(
        **servers, topic=topic
    ).save()
    return from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING",
        primary_key="id",
        options=servers,
        **options,
    )


def test_rows_of_the_keyed_stage_are_in_order(
    spark: SparkSession, kafka: LocalKafka, new_sink: Callable[[str], Sink], tmp_path: Path
) -> None:
    table = new_sink("delta")

    def apply(batch: DataFrame, number: int) -> None:
        rows = batch.where("id > 0").persist()
        apply_batch(rows, table.table, keys="id")
        rows.unpersist()

    for_each_batch(stream(spark, kafka), tmp_path, apply)
    assert table.rows() == [(1, "c"), (2, "e")]


def test_rows_that_the_query_shuffled_need_an_order(
    spark: SparkSession, kafka: LocalKafka, new_sink: Callable[[str], Sink], tmp_path: Path
) -> None:
    sink, errors = new_sink("delta"), []
    names = spark.createDataFrame([(1, "x"), (2, "y")], "id INT, other STRING")
    changes = stream(spark, kafka, normalize=False, metadata=["offset"]).join(names, "id")

    def apply(batch: DataFrame, number: int) -> None:
        with pytest.raises(ChangeOrderError, match="the plan contains Join") as caught:
            apply_batch(batch, sink.table, keys="id")
        errors.append(caught.value)
        apply_batch(
            batch, sink.table, keys="id", order_by="offset", column_list=["id", "name", "other"]
        )

    for_each_batch(changes, tmp_path, apply)
    assert len(errors) == 1
    assert sink.rows() == [(1, "c", "x"), (2, "e", "y")]
