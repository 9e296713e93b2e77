"""Deletes that keep rows: soft deletes in each kind of table, and version histories from Kafka."""

from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from normalize import LocalKafka, from_kafka_changelog
from normalize.api import encode_changelog
from normalize.tables.apply import apply_batch
from tests.support.sinking import NewSink, Sink, apply_stream, changelog, forget_last_commit

SCHEMA = "id INT, name STRING, at TIMESTAMP, no INT"


def soft(spark: SparkSession, sink: Sink, *rows: Any, **more: Any) -> dict[int, tuple[Any, ...]]:
    """Apply changes with soft deletes, and return the rows by key."""
    columns: dict[str, Any] = {"keys": "id", "column_list": ["id", "name"], "deletes": "soft"}
    apply_batch(changelog(spark, SCHEMA, rows), sink.table, **columns, **more)
    read = sink.read().selectExpr(
        "id", "name", "unix_seconds(CAST(deleted_at AS TIMESTAMP)) AS deleted_at"
    )
    return {row.id: (row.name, row.deleted_at) for row in read.collect()}


@pytest.mark.parametrize(
    ("kind", "statement"),
    [
        ("postgresql", 'ALTER TABLE "{0}" ADD COLUMN "deleted_at" TIMESTAMP(6) WITH TIME ZONE'),
        ("mariadb", "ALTER TABLE `{0}` ADD COLUMN `deleted_at` TIMESTAMP(6) NULL"),
    ],
)
def test_a_soft_delete_without_a_time_has_that_of_the_micro_batch(
    spark: SparkSession, new_sink: NewSink, kind: str, statement: str
) -> None:
    """The table gets the column by the statement of the error."""
    sink = new_sink(kind)
    rows = [("+I", 1, "a", None, 1), ("-D", 1, "a", None, 2), ("+I", 2, "b", None, 3)]
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT PRIMARY KEY, name VARCHAR(9))")
    with pytest.raises(SchemaError) as missing:
        soft(spark, sink, *rows)
    alter = statement.format(sink.sql_name)
    assert str(missing.value).endswith(
        f"has no column deleted_at, which deletes='soft' requires: run {alter}"
    )
    sink.execute(alter)
    before = datetime.now(timezone.utc).timestamp()
    assert soft(spark, sink, *rows) == {2: ("b", None)}
    name, deleted = soft(spark, sink, ("-D", 2, "b", None, 4))[2]
    assert name == "b"
    assert int(before) <= deleted <= datetime.now(timezone.utc).timestamp()


@pytest.mark.parametrize(
    "kind", [pytest.param("delta", marks=pytest.mark.cross_section), "iceberg"]
)
def test_a_history_from_kafka(
    spark: SparkSession, kafka: LocalKafka, new_sink: NewSink, kind: str, tmp_path: Path
) -> None:
    topic, sink = f"versions-{uuid4().hex[:8]}", new_sink(kind)
    kafka.create_topic(topic)
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    story = [
        ("+I", 1, "a", 10),
        ("+I", 2, "b", 11),
        ("+U", 1, "c", 14),
        ("-D", 2, "b", 15),
        ("+U", 1, "late", 12),
        ("+I", 2, "d", 16),
    ]
    messages = encode_changelog(changelog(spark, "id INT, name STRING, lsn BIGINT", story))
    messages.write.format("kafka").options(**servers, topic=topic).save()
    changes = from_kafka_changelog(
        spark,
        topic,
        format="changelog-json",
        schema="id INT, name STRING, lsn BIGINT",
        normalize=False,
        options={**servers, "maxOffsetsPerTrigger": 4},
    )
    options: dict[str, Any] = {
        "keys": "id",
        "sequence_by": "lsn",
        "scd_type": 2,
        "column_list": ["id", "name"],
    }
    apply_stream(changes, sink.table, tmp_path, **options)
    history = [
        (1, "a", 10, 12),
        (1, "c", 14, None),
        (1, "late", 12, 14),
        (2, "b", 11, 15),
        (2, "d", 16, None),
    ]
    assert sink.rows() == history
    assert forget_last_commit(tmp_path) == 1
    apply_stream(changes, sink.table, tmp_path, **options)
    assert (tmp_path / "commits" / "1").exists()
    assert sink.rows() == history
