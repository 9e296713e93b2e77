"""`apply_changes` to topics, restarted and repeated, and `apply_batch` in a query of your own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from normalize import LocalKafka, from_kafka_changelog
from normalize.dataframe import ChangeOrderError
from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from tests.support.databases import Message, debezium
from tests.support.sinking import (
    STORY,
    NewSink,
    Sink,
    apply_stream,
    changelog,
    for_each_batch,
    forget_last_commit,
)
from tests.support.streams import new_topic, servers, write_changelog


def stream(spark: SparkSession, kafka: LocalKafka, most: int = 100, **options: Any) -> DataFrame:
    """The story as a stream from Kafka."""
    topic = new_topic(kafka, [])
    write_changelog(kafka, changelog(spark, "id INT, name STRING", STORY), topic)
    table = {"format": "changelog-json", "schema": "id INT, name STRING", "primary_key": "id"}
    read = servers(kafka, maxOffsetsPerTrigger=most)
    return from_kafka_changelog(spark, topic, **table, options=read, **options)


def test_a_topic_as_a_stream_with_a_repeated_micro_batch(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path
) -> None:
    # `test_sync_recordings` and `test_replay_spark` have the topics of real producers.
    sink, changes = new_sink("delta"), stream(spark, kafka, most=5)
    apply_stream(changes, sink.table, tmp_path, keys="id")
    # As after a kill between the table's commit and Spark's commit.
    assert forget_last_commit(tmp_path) == 1
    repeated = apply_stream(changes, sink.table, tmp_path, keys="id").lastProgress
    assert (tmp_path / "commits" / "1").exists()
    if repeated:  # Spark 4.1 fails before it reports
        # Computed once, so that it is counted once.
        counts = repeated["observedMetrics"]["changelog_decode"]
        assert counts["RECORDS"] == repeated["numInputRows"] > 0
    assert sink.rows() == [(1, "c"), (2, "e")]


# --------------------------------------------------------------------------------------------------
# `apply_batch` in a user's ``foreachBatch``: the query's plan sets the order of a key's rows
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


# --------------------------------------------------------------------------------------------------
# A history, with a change that is late
@pytest.mark.cross_section
def test_a_history_from_kafka(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path
) -> None:
    topic, sink = new_topic(kafka, []), new_sink("delta")
    story = [
        ("+I", 1, "a", 10),
        ("+I", 2, "b", 11),
        ("+U", 1, "c", 14),
        ("-D", 2, "b", 15),
        ("+U", 1, "late", 12),
        ("+I", 2, "d", 16),
    ]
    write_changelog(kafka, changelog(spark, "id INT, name STRING, lsn BIGINT", story), topic)
    changes = from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING, lsn BIGINT",
        normalize=False,
        options=servers(kafka, maxOffsetsPerTrigger=4),
    )
    options: dict[str, Any] = {"scd_type": 2, "sequence_by": "lsn", "column_list": ["id", "name"]}
    history = [
        (1, "a", 10, 12),
        (1, "c", 14, None),
        (1, "late", 12, 14),
        (2, "b", 11, 15),
        (2, "d", 16, None),
    ]
    for _ in range(2):
        apply_stream(changes, sink.table, tmp_path, keys="id", **options)
        assert sink.rows() == history
        assert forget_last_commit(tmp_path) == 1  # the next run repeats the micro-batch


# --------------------------------------------------------------------------------------------------
# Columns declared later: the recipes as written in docs/sinks.md#a-column-that-was-ignored
WITHOUT, WITH = "id INT, name STRING", "id INT, name STRING, weight INT"


def row(key: int, name: str, weight: int | None) -> dict[str, Any]:
    return {"id": key, "name": name, "weight": weight}


BEFORE: list[Message] = [
    debezium("products", "c", None, row(1, "bike", 5)),
    debezium("products", "c", None, row(2, "car", 6)),
    debezium("products", "c", None, row(3, "boat", 7)),
    debezium("products", "c", None, row(4, "plane", 8)),
    debezium("products", "c", None, row(7, "tram", 5)),
    # The table without the column has the same row before and after.
    debezium("products", "u", row(2, "car", 6), row(2, "car", None)),
    debezium("products", "d", row(3, "boat", 7), None),
]
IGNORED = [(1, "bike"), (2, "car"), (4, "plane"), (7, "tram")]
AFTER: list[Message] = [
    debezium("products", "u", row(4, "plane", 8), row(4, "plane", None)),
    debezium("products", "c", None, row(5, "ship", 9)),
    debezium("products", "d", row(1, "bike", 5), None),
    debezium("products", "d", row(7, "tram", 5), None),
]


Run = Callable[..., list[tuple[Any, ...]]]
"""From a schema and messages to the rows of the table."""


@pytest.fixture
def sink(new_sink: NewSink) -> Sink:
    return new_sink("delta")


@pytest.fixture
def run(spark: SparkSession, kafka: LocalKafka, sink: Sink, tmp_path: Path) -> Run:
    """A function that starts a query of one topic into the table again, and returns its rows."""
    topic = new_topic(kafka, [])

    def run(
        schema: str,
        messages: Sequence[Message] = (),
        checkpoint: str = "checkpoint",
        most: int = 100,
        **more: Any,
    ) -> list[tuple[Any, ...]]:
        kafka.produce(topic, messages)
        changes = from_kafka_changelog(
            spark,
            topic,
            format="debezium-json",
            schema=schema,
            primary_key="id",
            options=servers(kafka, maxOffsetsPerTrigger=most),
            **more,
        )
        apply_stream(changes, sink.table, tmp_path / checkpoint, keys="id", on_new_column="add")
        return sink.rows()

    return run


def test_a_topic_that_has_every_row_is_read_again_with_a_new_checkpoint(
    run: Run, sink: Sink
) -> None:
    history = f"DESCRIBE HISTORY {sink.sql_name}"
    assert run(WITHOUT, BEFORE) == IGNORED
    before = sink.spark.sql(history).count()
    assert run(WITH, AFTER, "second-checkpoint") == [
        (2, "car", None),
        (4, "plane", None),
        (5, "ship", 9),
    ]
    # One commit adds the column, and one changes the rows: no reader sees an older row.
    assert sink.spark.sql(history).count() == before + 2


def test_an_undeclared_column_stops_the_query_before_a_value_of_it_is_lost(
    run: Run, sink: Sink
) -> None:
    fail: dict[str, Any] = {"format_options": {"unknown_columns": "fail"}, "check": False}
    # A column without a value loses nothing; the value is in the second micro-batch.
    good = [
        debezium("products", "c", None, {"id": 1, "name": "bike"}),
        debezium("products", "c", None, row(2, "car", None)),
    ]
    bad = debezium("products", "u", row(2, "car", None), row(2, "car", 6))
    with pytest.raises(StreamingQueryException) as failed:
        run(WITHOUT, [*good, bad], most=len(good), **fail)
    text = explain_error(failed.value)
    assert "[UNKNOWN_COLUMN] column `weight` has a value and is not declared" in text
    assert "$.after.weight" in text
    assert sink.rows() == [(1, "bike"), (2, "car")]
    # The same checkpoint, with the column in the schema.
    assert run(WITH, **fail) == [(1, "bike", None), (2, "car", 6)]
