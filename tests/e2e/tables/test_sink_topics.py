"""Recorded topics of real producers, applied to real tables, give the source databases' tables."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession, functions as F

from normalize import ChangelogNormalize, LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.core.arrow import spark_type
from normalize.dataframe import table_columns
from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from tests.support.databases import Message, debezium
from tests.support.replay.comparing import assert_truth
from tests.support.replay.replaying import Replay, Row, read_recording
from tests.support.replay.topics import SMALL, TOPICS, Topic
from tests.support.sinking import (
    STORY,
    NewSink,
    Sink,
    apply_stream,
    changelog,
    for_each_batch,
    forget_last_commit,
)

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


# --------------------------------------------------------------------------------------------------
# `apply_batch` in a user's ``foreachBatch``: the query's plan sets the order of a key's rows
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


class Query:
    """A query of one topic into a Delta table, which each call of `run` starts again."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, sink: Sink, folder: Path) -> None:
        self.spark, self.kafka, self.sink, self.folder = spark, kafka, sink, folder
        self.topic = f"backfill-{sink.sql_name.strip('`')[-10:]}"
        kafka.create_topic(self.topic)

    def changes(self, schema: str, most: int = 100, **more: Any) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
            "maxOffsetsPerTrigger": most,
        }
        return from_kafka_changelog(
            self.spark,
            self.topic,
            format="debezium-json",
            schema=schema,
            primary_key="id",
            options=options,
            **more,
        )

    def run(
        self,
        schema: str,
        messages: Sequence[Message] = (),
        checkpoint: str = "checkpoint",
        **more: Any,
    ) -> list[tuple[Any, ...]]:
        """Write the messages, run the query until it has read them, and return the table."""
        self.kafka.produce(self.topic, messages)
        apply_stream(
            self.changes(schema, **more),
            self.sink.table,
            self.folder / checkpoint,
            keys="id",
            on_new_column="add",
        )
        return self.sink.rows()

    def commits(self) -> int:
        """The number of the table's commits."""
        return self.spark.sql(f"DESCRIBE HISTORY {self.sink.sql_name}").count()


@pytest.fixture
def query(spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, tmp_path: Path) -> Query:
    return Query(spark, kafka, new_sink("delta"), tmp_path)


def test_a_topic_that_has_every_row_is_read_again_with_a_new_checkpoint(query: Query) -> None:
    assert query.run(WITHOUT, BEFORE) == IGNORED
    before = query.commits()
    assert query.run(WITH, AFTER, "second-checkpoint") == [
        (2, "car", None),
        (4, "plane", None),
        (5, "ship", 9),
    ]
    # One commit adds the column, and one changes the rows: no reader sees an older row.
    assert query.commits() == before + 2


def test_a_topic_that_lost_rows_gets_a_new_snapshot(query: Query) -> None:
    assert query.run(WITHOUT, BEFORE) == IGNORED
    # A row of the old state is deleted, and inserted again with the column. Then the snapshot reads
    # the source's rows: now 1, 2, 4 and 5.
    messages = [*AFTER, debezium("products", "c", None, row(1, "bike", 3))]
    snapshot = [
        debezium("products", "r", None, each)
        for each in (row(1, "bike", 3), row(2, "car", 2), row(4, "plane", None), row(5, "ship", 9))
    ]
    assert query.run(WITH, [*messages, *snapshot]) == [
        (1, "bike", 3),
        (2, "car", 2),
        (4, "plane", None),
        (5, "ship", 9),
    ]


def test_an_undeclared_column_stops_the_query_before_a_value_of_it_is_lost(query: Query) -> None:
    fail: dict[str, Any] = {"format_options": {"unknown_columns": "fail"}, "check": False}
    # A column without a value loses nothing; the value is in the second micro-batch.
    good = [
        debezium("products", "c", None, {"id": 1, "name": "bike"}),
        debezium("products", "c", None, row(2, "car", None)),
    ]
    bad = debezium("products", "u", row(2, "car", None), row(2, "car", 6))
    with pytest.raises(StreamingQueryException) as failed:
        query.run(WITHOUT, [*good, bad], most=len(good), **fail)
    assert "[UNKNOWN_COLUMN] column `weight` has a value and is not declared" in explain_error(
        failed.value
    )
    assert "$.after.weight" in explain_error(failed.value)
    assert query.sink.rows() == [(1, "bike"), (2, "car")]
    # The same checkpoint, with the column in the schema.
    assert query.run(WITH, **fail) == [(1, "bike", None), (2, "car", 6)]
