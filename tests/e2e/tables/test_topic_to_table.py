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
from tests.support.databases import Tables, maxwell
from tests.support.positions import WITH, Log, assert_no_row_is_set_back, live_rows
from tests.support.sinking import apply_stream, forget_last_commit
from tests.support.streams import recreate_topic
from tests.support.syncing import NewBoundedSync, Sync

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


def add_partition(kafka: LocalKafka, topic: str) -> None:
    """Give a topic a second partition."""
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, 2)])[topic].result()


@pytest.fixture
def sync(spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path) -> TableSync:
    """A query into a Delta table."""
    return TableSync(spark, kafka, tables_of("delta-rs"), tmp_path)


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql"])
def test_table_equals_its_source_after_each_run_and_repetition(
    spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path, kind: str
) -> None:
    tables: Tables = tables_of(kind)
    sync, random, rows = TableSync(spark, kafka, tables, tmp_path), Random(5), dict[int, str]()
    for run in range(2):
        messages = []
        for number in range(50):
            key = random.randrange(12)
            if key in rows and random.random() < 0.4:
                messages.append(maxwell("orders", "delete", {"id": key, "name": rows.pop(key)}))
                continue
            old = {"name": rows[key]} if key in rows else None
            rows[key] = f"{run}.{number}"
            messages.append(
                maxwell(
                    "orders", "update" if old else "insert", {"id": key, "name": rows[key]}, old
                )
            )
        sync.produce("t", messages, partitions=2)
        sync.run(
            options={"kafka.bootstrap.servers": kafka.bootstrap_servers, "maxOffsetsPerTrigger": 25}
        )
        target = sync.tables.rows("orders")
        assert target == sorted(({"id": key, "name": name} for key, name in rows.items()), key=repr)
        # A kill between the table's commit and Spark's.
        forget_last_commit(tmp_path / "checkpoint")


def test_records_of_a_second_table_and_a_topic_that_was_created_again_are_errors(
    sync: TableSync,
) -> None:
    topic = sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    sync.run()
    sync.produce("t", [maxwell("items", "insert", {"id": 1, "name": "b"})])
    assert sync.error(check=False).startswith(
        "[SEVERAL_TABLES] the records belong to two tables, shop.orders ("
    )
    recreate_topic(
        sync.kafka,
        topic,
        [maxwell("orders", "insert", {"id": key, "name": "b"}) for key in range(3)],
    )
    assert sync.error().startswith("[TOPIC_REPLACED]")
    assert sync.rows("orders") == [{"id": 1, "name": "a"}]


def test_added_partition_is_read_again_in_a_repeated_micro_batch_and_refuses_older_records(
    sync: TableSync,
) -> None:
    topic = sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    sync.run()
    add_partition(sync.kafka, topic)
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


# --------------------------------------------------------------------------------------------------
# `position_column` in a query over a topic with a restart, and in tables of databases
LOG = Log(50)


class PositionSync(Sync):
    """A query from a topic to a table."""

    def writer(self, **options: Any) -> Any:
        writer = sync_table(
            self.spark,
            re.compile(f"{re.escape(self.prefix)}[.].*"),
            format="debezium-json",
            schema="id INT, name STRING",
            primary_key="id",
            target=self.tables.database.target("orders"),
            schema_location=str(self.folder / "schemas"),
            options={
                "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
                "maxOffsetsPerTrigger": 25,
            },
            table=WITH,
        )
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))


def test_old_slice_of_the_topic_leaves_the_table_equal_to_the_source(
    spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path
) -> None:
    sync = PositionSync(spark, kafka, tables_of("delta-rs"), tmp_path)
    sync.produce("t", LOG.events[:40], partitions=2)
    sync.run()
    assert live_rows(sync.rows("orders")) == LOG.rows(40)
    # A kill between the table's commit and Spark's.
    sync.forget_last_commit()
    sync.produce("t", [*LOG.events[10:25], *LOG.events[40:50]])
    sync.run()
    assert live_rows(sync.rows("orders")) == LOG.rows(50)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_old_slice_leaves_the_table_of_a_database_equal_to_the_source(
    new_bounded_sync: NewBoundedSync, kind: str
) -> None:
    assert_no_row_is_set_back(new_bounded_sync(kind))
