"""`position_column` in queries over a topic, with restarts, into each kind of table."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from normalize import LocalKafka, sync_table
from normalize.sync.table_options import TableOptions
from tests.support.positions import Log, live_rows
from tests.support.sinking import forget_last_commit, table_name
from tests.support.syncing import Sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = Log(50)


class PositionSync(Sync):
    """A query from a topic to a table."""

    position_column: str | None = "position"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.table = table_name()

    def writer(self, **options: Any) -> Any:
        writer = sync_table(
            self.spark,
            re.compile(f"{re.escape(self.prefix)}[.].*"),
            format="debezium-json",
            schema="id INT, name STRING",
            primary_key="id",
            target=self.tables.database.target(self.table),
            schema_location=str(self.folder / "schemas"),
            options={
                "kafka.bootstrap.servers": self.kafka.bootstrap_servers,
                "maxOffsetsPerTrigger": 10,
            },
            table=TableOptions(deletes="soft", position_column=self.position_column),
        )
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def rows_after(self, first: int, last: int, *, partitions: int) -> dict[int, str]:
        """Deliver events, and start the query until it has read them.

        Return the rows that are not deleted.
        """
        self.produce("t", LOG.events[first:last], partitions=partitions)
        self.run()
        return live_rows(self.tables.rows(self.table))


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_old_slice_of_the_topic_leaves_the_table_equal_to_the_source(
    spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path, kind: str
) -> None:
    sync = PositionSync(spark, kafka, tables_of(kind), tmp_path)
    assert sync.rows_after(0, 40, partitions=2) == LOG.rows(40)
    assert sync.rows_after(10, 25, partitions=2) == LOG.rows(40)
    # A kill between the table's commit and Spark's.
    forget_last_commit(tmp_path / "checkpoint")
    assert sync.rows_after(20, 50, partitions=2) == LOG.rows(50)
    assert sync.rows_after(0, 45, partitions=2) == LOG.rows(50)


def test_without_the_option_the_old_slice_sets_rows_back(
    spark: SparkSession, kafka: LocalKafka, tables_of: Any, tmp_path: Path
) -> None:
    sync = PositionSync(spark, kafka, tables_of("delta"), tmp_path)
    sync.position_column = None
    assert sync.rows_after(0, 40, partitions=2) == LOG.rows(40)
    assert sync.rows_after(10, 25, partitions=2) != LOG.rows(40)
