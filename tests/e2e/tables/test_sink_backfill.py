"""Columns declared later: the recipes as written in docs/sinks.md#a-column-that-was-ignored."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from normalize import LocalKafka, from_kafka_changelog
from normalize.monitoring.explain_error import explain_error
from tests.support.databases import Message, debezium
from tests.support.sinking import NewSink, Sink, apply_stream

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
