"""Helpers for real queries: produce records, run a query until it is idle, collect its rows."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from pyspark.sql import DataFrame

from normalize.api import encode_changelog


def new_topic(
    kafka: Any, records: list[tuple[bytes | None, bytes | None]], partitions: int = 1
) -> str:
    """Create a topic with these records and return its name."""
    topic = f"t-{uuid4().hex[:12]}"
    kafka.create_topic(topic, partitions=partitions)
    kafka.produce(topic, records)
    return topic


def recreate_topic(
    kafka: Any, topic: str, records: list[tuple[bytes | None, bytes | None]]
) -> None:
    """Delete a topic and create it again with other records."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.delete_topics([topic])[topic].result()
    deadline = time.monotonic() + 60
    while topic in client.list_topics(timeout=10).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    kafka.create_topic(topic)
    kafka.produce(topic, records)


def servers(kafka: Any, **more: Any) -> dict[str, Any]:
    """The options of a reader or writer."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **more}


def write_changelog(kafka: Any, df: DataFrame, topic: str, **arguments: Any) -> None:
    """Write a bounded changelog to a topic."""
    encode_changelog(df, topic=topic, **arguments).write.format("kafka").options(
        **servers(kafka), topic=topic
    ).save()


def debezium(op: str, before: dict | None = None, after: dict | None = None) -> bytes:
    """A Debezium message."""
    return json.dumps(
        {"before": before, "after": after, "op": op, "source": {"table": "t", "ts_ms": 1}}
    ).encode()


class Run:
    """The results of a query that has read all records."""

    def __init__(self, batches: dict[int, list[Any]], progress: list[dict[str, Any]]) -> None:
        self.batches = batches
        self.rows = [row for number in sorted(batches) for row in batches[number]]
        self.progress = progress

    @property
    def changelog(self) -> list[str]:
        """The rows as text: ``+I(1,scooter)``."""
        return [spell(row) for row in self.rows]

    def metric(self, name: str, count: str) -> int:
        """The sum of an observed metric over the batches."""
        return sum(
            batch["observedMetrics"][name][count] or 0
            for batch in self.progress
            if name in batch["observedMetrics"]
        )


def spell(row: Any) -> str:
    """A changelog row as text, with only the table's columns."""
    values = [
        value for name, value in row.asDict().items() if name not in ("row_kind", "_corrupt_record")
    ]
    return f"{row['row_kind']}({','.join(map(str, values))})"


def run_stream(df: DataFrame, checkpoint: Path, output_mode: str = "append") -> Run:
    """Run a stream with a checkpoint until it has read all records; collect its rows by batch."""
    batches: dict[int, list[Any]] = {}
    query = (
        df.writeStream.foreachBatch(lambda batch, number: batches.update({number: batch.collect()}))
        .outputMode(output_mode)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return Run(batches, [json.loads(batch.json) for batch in query.recentProgress])


ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


@contextmanager
def settings(spark: Any, conf: dict[str, Any]) -> Iterator[None]:
    """Settings of a session, inside the context."""
    before = {name: spark.conf.get(name, None) for name in conf}
    for name, value in conf.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)


def spelled(df: DataFrame) -> list[str]:
    """All rows of a changelog as text, with every column."""
    return [
        f"{kind}({','.join(map(str, values))})"
        for kind, *values in (tuple(row) for row in df.collect())
    ]


def letters(kafka: Any, topic: str) -> list[Any]:
    """Return the messages of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "letters",
            "enable.auto.commit": False,
        }
    )
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)
    consumer.assign([TopicPartition(topic, 0, 0)])
    messages = [consumer.poll(30) for _ in range(end)]
    consumer.close()
    assert not [message for message in messages if message is None or message.error()]
    return messages
