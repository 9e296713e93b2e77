"""`decode_changelog` together with Kafka: the same rows, and dead letters."""

from __future__ import annotations

from typing import Any

from normalize import DeadLetter, decode_changelog, from_kafka_changelog
from tests.support.frames import BAD, frame, messages
from tests.support.histories import random_history
from tests.support.streams import letters, new_topic, servers, spell

TABLE: dict[str, Any] = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}


def test_the_rows_are_those_of_kafka(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(str(key).encode(), value) for key, value in messages(random_history(2, changes=400))], partitions=2)
    metadata = {"at": "timestamp", "place": "offset", "partition": "partition", "topic": "topic", "table": "source.table"}
    direct = from_kafka_changelog(spark, topic, **TABLE, options=servers(kafka), metadata=metadata, bounded=True)
    raw = spark.read.format("kafka").options(**servers(kafka, subscribe=topic)).load()
    raw.repartition(4).write.format("delta").save(str(tmp_path / "bronze"))
    bronze = decode_changelog(spark.read.format("delta").load(str(tmp_path / "bronze")), **TABLE, metadata=metadata)
    assert direct.schema == bronze.schema
    assert direct.columns == ["row_kind", "id", "name", "qty", *metadata]
    assert sorted(map(str, bronze.collect())) == sorted(map(str, direct.collect()))


def test_dead_letters_of_a_frame_without_offsets_are_identified_by_their_content(spark, kafka):
    dead = new_topic(kafka, [])
    mode = DeadLetter(dead, {"bootstrap.servers": kafka.bootstrap_servers})
    df = frame(spark, [*BAD, b"no json"], "value, timestamp")
    assert [spell(row) for row in decode_changelog(df, **TABLE, mode=mode).collect()] == ["+I(1,a,0)"]
    first, second = letters(kafka, dead)
    assert first.value() == second.value() == b"no json"
    assert first.key() == second.key()
    assert len(first.key()) == 64
    headers = dict(first.headers())
    assert headers["__connect.errors.offset"] is None
    assert b"in DataFrame[0]@1" in headers["__connect.errors.exception.message"]
