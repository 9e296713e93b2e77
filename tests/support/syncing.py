"""Queries of `sync_database` over new topics, into tables of any kind."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.errors import StreamingQueryException

from normalize import LocalKafka, explain_error, sync_database
from normalize.local_kafka import ProducerRecord
from tests.support.databases import Message, Tables
from tests.support.sinking import fails_after_repeating

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDER = {"id": 1, "name": "a"}
MINIMAL = {"format_options": {"binlog_row_image": "MINIMAL"}}
"""A column that a message does not have did not change."""


class Sync:
    """A query over new topics, which each call of `run` starts from the checkpoint."""

    def __init__(self, spark: SparkSession, kafka: LocalKafka, tables: Tables, folder: Path) -> None:
        self.spark, self.kafka, self.tables, self.folder = spark, kafka, tables, folder
        self.prefix = f"sync.{uuid4().hex[:8]}"
        self.known: set[str] = set()

    def produce(self, topic: str, messages: Sequence[Message | ProducerRecord], *, partitions: int = 1) -> str:
        """Write messages to a topic, which is created first, and return its name."""
        name = f"{self.prefix}.{topic}"
        if name not in self.known:
            self.kafka.create_topic(name, partitions=partitions)
            self.known.add(name)
        self.kafka.produce(name, messages)
        return name

    def start(self, **options: Any) -> Any:
        """Start the query over all topics, which ends after their records."""
        return self.writer(**options).trigger(availableNow=True).start()

    def writer(self, **options: Any) -> Any:
        """Return the query's writer."""
        arguments = {
            "format": "maxwell-json",
            "target": self.tables.database,
            "schema_location": str(self.folder / "schemas"),
            "options": {"kafka.bootstrap.servers": self.kafka.bootstrap_servers},
            **options,
        }
        writer = sync_database(self.spark, re.compile(f"{re.escape(self.prefix)}[.].*"), **arguments)
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def run(self, **options: Any) -> None:
        """Run the query until it has read all records."""
        query = self.start(**options)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            if not fails_after_repeating(self.spark, error):
                raise
            self.run(**options)
        finally:
            query.stop()

    def error(self, **options: Any) -> str:
        """Run the query until it fails, and return the sentence of its error."""
        with pytest.raises(StreamingQueryException) as failed:
            self.run(**options)
        return explain_error(failed.value)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a target without NULLs."""
        return self.tables.rows(table)

    def file(self, table: str) -> dict[str, Any]:
        """The file of a table."""
        found: dict[str, Any] = json.loads((self.folder / "schemas" / f"{table}.json").read_text("utf-8"))
        return found


NewSync = Callable[[str], Sync]
"""From a kind of target (`tests.support.databases.new_tables`) to a query."""
