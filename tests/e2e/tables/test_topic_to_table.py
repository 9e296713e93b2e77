"""`sync_table` as a query over a topic: restarts, and topics that change."""

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql import SparkSession

from normalize import (
    LocalKafka,
    from_kafka_changelog,
    sync_table,
)
from normalize.local_kafka import ProducerRecord
from tests.support.databases import maxwell
from tests.support.sinking import apply_stream
from tests.support.syncing import Story, Sync

TABLE: dict[str, Any] = {"schema": "id INT, name STRING", "primary_key": "id"}


class TableSync(Sync):
    """A query from a topic to the table ``orders``."""

    def writer(self, **options: Any) -> Any:
        arguments = {
            "format": "maxwell-json",
            "target": self.tables.database.target("orders"),
            "schema_location": str(self.folder / "schemas"),
            "options": {"kafka.bootstrap.servers": self.kafka.bootstrap_servers},
            **TABLE,
            **options,
        }
        writer = sync_table(self.spark, re.compile(f"{re.escape(self.prefix)}[.].*"), **arguments)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))


def record(name: str, partition: int, timestamp: int) -> ProducerRecord:
    """An update of the row 1."""
    return ProducerRecord(
        *maxwell("orders", "update", {"id": 1, "name": name}, {"name": "a"}),
        partition=partition,
        timestamp=timestamp,
    )


@pytest.fixture
def sync(spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path) -> TableSync:
    """A query into a Delta table."""
    return TableSync(spark, kafka, tables_of("delta-rs"), tmp_path)


def test_table_equals_its_source_after_each_run_and_repetition(sync: TableSync) -> None:
    # The writers differ in their MERGE alone, which `test_merge_vectors` proves.
    story, servers = Story(Random(5)), {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers}
    for _ in range(2):
        sync.produce("t", story.messages_of("orders", 50), partitions=2)
        sync.run(options={**servers, "maxOffsetsPerTrigger": 25})
        rows = {row["id"]: row["name"] for row in sync.rows("orders")}
        assert rows == story.names("orders")
        # A kill between the table's commit and Spark's.
        sync.forget_last_commit()


def test_added_partition_is_read_again_in_a_repeated_micro_batch_and_refuses_older_records(
    sync: TableSync,
) -> None:
    topic = sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    sync.run()
    client = AdminClient({"bootstrap.servers": sync.kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, 2)])[topic].result()
    sync.produce("t", [record("old", 0, 1_600_000_000_000), record("new", 1, 1_700_000_000_000)])
    sync.run()
    sync.forget_last_commit()
    sync.run()
    assert sync.rows("orders") == [{"id": 1, "name": "new"}]
    # Read after the record of the added partition, and older.
    sync.produce("t", [record("older", 0, 1_650_000_000_000)])
    assert sync.error().startswith("[PARTITIONS_ADDED]")
    assert sync.rows("orders") == [{"id": 1, "name": "new"}]


def test_table_of_apply_changes_goes_on_with_sync_table(
    sync: TableSync, spark: SparkSession
) -> None:
    topic = sync.produce(
        "t", [maxwell("orders", "insert", {"id": key, "name": "a"}) for key in range(3)]
    )
    servers = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers}
    changes = from_kafka_changelog(spark, topic, format="maxwell-json", options=servers, **TABLE)
    apply_stream(changes, sync.tables.database.target("orders"), sync.folder / "old", keys="id")
    sync.produce(
        "t",
        [
            maxwell("orders", "delete", {"id": 0, "name": "a"}),
            maxwell("orders", "update", {"id": 1, "name": "b"}, {"name": "a"}),
        ],
    )
    sync.run()
    assert sync.rows("orders") == [{"id": 1, "name": "b"}, {"id": 2, "name": "a"}]
