"""`position_column` in a query over a topic with a restart, and in tables of databases."""

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka, sync_table
from tests.support.positions import WITH, Log, assert_no_row_is_set_back, live_rows
from tests.support.syncing import NewBoundedSync, Sync

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
