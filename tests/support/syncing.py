"""`sync_database` in tests: a query over new topics, or a function of bounded micro-batches.

Both write into tables of any kind.
"""

import json
import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ChangelogError
from normalize import LocalKafka, sync_database, sync_table
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from normalize.tables.database_target import table_name
from normalize.tables.job import TableJob
from normalize.tables.resync import Resyncs
from tests.support.databases import Message, Tables, maxwell
from tests.support.sinking import fails_after_repeating, forget_last_commit

ORDER = {"id": 1, "name": "a"}
MINIMAL = {"format_options": {"binlog_row_image": "MINIMAL"}}
"""A column that a message does not have did not change."""
_KAFKA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
_KAFKA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of Spark's Kafka source."""


@contextmanager
def micro_batch(spark: SparkSession, query: str, number: int) -> Iterator[None]:
    """Let the block be in a micro-batch of a new run of a query, by the properties that Spark sets."""
    properties = {
        "sql.streaming.queryId": query,
        "streaming.sql.batchId": str(number),
        "spark.jobGroup.id": str(uuid4()),
    }
    for name, value in properties.items():
        spark.sparkContext.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name in properties:
            spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def idle_query(spark: SparkSession, folder: Path) -> Any:
    """A running query without records, whose checkpoint is in a folder."""
    (folder / "no_records").mkdir(parents=True)
    records = spark.readStream.schema("id INT").json(str(folder / "no_records"))
    writer = records.writeStream.format("noop").trigger(processingTime="1 hour")
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    query.processAllAvailable()  # whoever replaces the folder finds a whole checkpoint
    return query


class SyncedTables:
    """The targets and files of a query."""

    def __init__(self, spark: SparkSession, tables: Tables, folder: Path) -> None:
        self.spark, self.tables, self.folder = spark, tables, folder

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a target without NULLs."""
        return self.tables.rows(table)

    def rows_of(self, table: str) -> list[dict[str, Any]]:
        """The rows without NULLs of a table of the database ``shop``, named by the template."""
        return self.rows(table_name(self.tables.database.table, f"shop.{table}"))

    def file(self, table: str) -> dict[str, Any]:
        """The file of a table."""
        content: dict[str, Any] = json.loads(self.path(table).read_text("utf-8"))
        return content

    def path(self, table: str) -> Path:
        """The path of a table's file."""
        return self.folder / "schemas" / f"{table}.json"

    def files(self) -> list[Path]:
        """The files of all tables and of the query."""
        return sorted((self.folder / "schemas").rglob("*.json"))

    def edit(self, table: str, before: str, after: str) -> None:
        """Replace text in the file of a table."""
        text = self.path(table).read_text("utf-8")
        assert before in text
        self.path(table).write_text(text.replace(before, after), "utf-8")


class Sync(SyncedTables):
    """A query over new topics, which each call of `run` starts from the checkpoint."""

    def __init__(
        self, spark: SparkSession, kafka: LocalKafka, tables: Tables, folder: Path
    ) -> None:
        super().__init__(spark, tables, folder)
        self.kafka = kafka
        self.prefix = f"sync.{uuid4().hex[:8]}"
        self.topics: set[str] = set()

    def produce(
        self, topic: str, messages: Sequence[Message | ProducerRecord], *, partitions: int = 1
    ) -> str:
        """Write messages to a topic, which is created first, and return its name."""
        name = f"{self.prefix}.{topic}"
        if name not in self.topics:
            self.kafka.create_topic(name, partitions=partitions)
            self.topics.add(name)
        self.kafka.produce(name, messages)
        return name

    def writer(self, **options: Any) -> Any:
        """Return the query's writer."""
        arguments = {
            "format": "maxwell-json",
            "target": self.tables.database,
            "schema_location": str(self.folder / "schemas"),
            "options": {"kafka.bootstrap.servers": self.kafka.bootstrap_servers},
            **options,
        }
        writer = sync_database(
            self.spark, re.compile(f"{re.escape(self.prefix)}[.].*"), **arguments
        )
        return writer.option("checkpointLocation", str(self.folder / "checkpoint"))

    def run(self, **options: Any) -> None:
        """Run the query until it has read all records."""
        query = self.writer(**options).trigger(availableNow=True).start()
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

    def forget_last_commit(self) -> None:
        """Make the query repeat its last micro-batch.

        The effect is that of a kill between the tables' commits and Spark's commit.
        """
        forget_last_commit(self.folder / "checkpoint")


class BoundedSync(SyncedTables):
    """The function of a query, called with bounded micro-batches of records that no broker has.

    As in a query, a micro-batch is of another session, and a failed one is repeated before the
    next.
    """

    def __init__(self, spark: SparkSession, tables: Tables, folder: Path) -> None:
        super().__init__(spark, tables, folder)
        self.number, self.session, self.query = 0, spark.newSession(), str(uuid4())
        self.offsets: dict[tuple[str, int], int] = {}
        self.stamp = int(time.time() * 1000)
        self.written: list[dict[str, Any]] = []
        self.planned: list[dict[str, Any]] = []
        self.last: list[dict[str, Any]] = []

    def produce(
        self, topic: str, messages: Sequence[Message | ProducerRecord], *, partitions: int = 1
    ) -> str:
        """Write messages to a topic, a millisecond apart, and return the topic's name."""
        for number, message in enumerate(messages):
            record = message if isinstance(message, ProducerRecord) else ProducerRecord(*message)
            by_key = number if record.key is None else zlib.crc32(bytes(record.key))  # type: ignore[arg-type]
            place = topic, by_key % partitions if record.partition is None else record.partition
            self.offsets[place] = self.offsets.get(place, -1) + 1
            self.stamp += 1
            placed = {
                "topic": topic,
                "partition": place[1],
                "offset": self.offsets[place],
                "timestamp": self.stamp * 1000,
            }
            self.written.append({**placed, "key": record.key, "value": record.value})
        return topic

    def job(self, **options: Any) -> Resyncs:
        """Return the function of a query with these options."""
        return self._function(sync_database, self.tables.database, options)

    def table_job(self, **options: Any) -> TableJob:
        """Return the function of a `sync_table` into ``orders`` with these options."""
        return self._function(sync_table, self.tables.database.target("orders"), options)

    def _function(
        self, start: Callable[..., Any], target: object, options: Mapping[str, Any]
    ) -> Any:
        """Return a query's function, which Spark's writer would keep to itself."""
        arguments = {
            "format": "maxwell-json",
            "target": target,
            "schema_location": str(self.folder / "schemas"),
            "options": {"kafka.bootstrap.servers": "localhost:1"},
            "check": False,
            **options,
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "pyspark.sql.streaming.DataStreamWriter.foreachBatch", lambda _, function: function
            )
            return start(self.spark, "any", **arguments)

    def run(self, *, by_spark: bool = False, **options: Any) -> None:
        """Start a query, and apply all records: first those of a micro-batch that failed."""
        job = self.job(**options)
        if self.planned:
            self.apply(job, by_spark=by_spark)
        if self.written:
            self.apply(job, by_spark=by_spark)

    def apply(self, job: Resyncs | TableJob, *, by_spark: bool = False) -> None:
        """Apply a micro-batch; decoded by Spark, as a large one."""
        if not self.planned:
            self.planned, self.written = self.written, []
        with pytest.MonkeyPatch.context() as patch:
            if by_spark:
                patch.setattr("normalize.tables.query._FEW_RECORDS", 0)
            with micro_batch(self.spark, self.query, self.number):
                job(self._frame(), self.number)
        self.last, self.planned, self.number = self.planned, [], self.number + 1

    def error(self, **options: Any) -> str:
        """Apply all records until it fails, and return the sentence of the error."""
        with pytest.raises((ChangelogError, PySparkException)) as failed:
            self.run(**options)
        return explain_error(failed.value)

    def forget_last_commit(self) -> None:
        """Make the next `run` repeat the last micro-batch.

        The effect is that of a kill between the tables' commits and Spark's commit.
        """
        self.planned, self.number = self.last, self.number - 1

    def _frame(self) -> DataFrame:
        """Return the planned micro-batch, with a task for each number of a Kafka partition."""
        of_tasks: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(self.planned, key=lambda row: row["topic"]):
            of_tasks.setdefault(row["partition"], []).append(row)
        frames = [
            self.session.createDataFrame(pa.Table.from_pylist(rows, _KAFKA), _KAFKA_DDL).coalesce(1)
            for rows in of_tasks.values()
        ]
        return reduce(lambda left, right: left.union(right), map(self._with_a_task, frames))

    def _with_a_task(self, rows: DataFrame) -> DataFrame:
        """Return rows of one partition that have a task of their own in a union.

        Since 4.2, a union of DataFrames with one partition each has one partition, too.
        """
        from pyspark.sql.classic.dataframe import DataFrame

        java: Any = rows
        session: Any = self.session
        computed = java._jdf.queryExecution().toRdd()
        return DataFrame(
            session._jsparkSession.internalCreateDataFrame(computed, java._jdf.schema(), False),
            self.session,
        )


NewSync = Callable[[str], Sync]
"""From a kind of target (`tests.support.databases.new_tables`) to a query."""
NewBoundedSync = Callable[[str], BoundedSync]
"""From a kind of target to the function of a query."""
Change = tuple[Any, ...]
"""The arguments of `maxwell` after the table; a database may be the fourth."""


def write(sync: Sync | BoundedSync, changes: Mapping[str, Sequence[Change]]) -> None:
    """Write changes of tables, each to a topic of its own."""
    for table, each in changes.items():
        sync.produce(table, [maxwell(table, *change) for change in each])


def rows_of(sync: SyncedTables, tables: Iterable[str]) -> dict[str, list[dict[str, Any]]]:
    """The rows of tables without NULLs."""
    return {table: sync.rows_of(table) for table in tables}


class Story:
    """Random changes of rows in two tables, in messages with keys, and their expected history."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.rows: dict[tuple[str, int], str] = {}
        self.versions: dict[tuple[str, int], list[tuple[str, bool]]] = {}

    def messages(self, number: int) -> list[Message]:
        """Return new messages; each update changes the row, so each version has another name."""
        messages_read = []
        for _ in range(number):
            place = table, key = self.random.choice(["orders", "items"]), self.random.randrange(20)
            before, versions = self.rows.pop(place, None), self.versions.setdefault(place, [])
            if before is not None:
                versions[-1] = (before, True)
            if before is not None and self.random.random() < 0.3:
                messages_read.append(maxwell(table, "delete", {"id": key, "name": before}))
                continue
            name = self.rows[place] = f"{len(versions)}{self.random.choice('abc')}"
            versions.append((name, False))
            messages_read.append(
                maxwell(
                    table,
                    "insert" if before is None else "update",
                    {"id": key, "name": name},
                    before and {"name": before},
                )
            )
        return messages_read

    def messages_of(self, table: str, number: int) -> list[Message]:
        """Return those of new messages that are of one table."""
        return [
            message
            for message in self.messages(2 * number)
            if f'"table": "{table}"'.encode() in (message[1] or b"")
        ]

    def names(self, table: str) -> dict[int, str]:
        """Return the names in the rows of a table."""
        return {key: name for (of, key), name in self.rows.items() if of == table}

    def history(self, table: str) -> list[tuple[int, str, bool]]:
        """Return the versions of a table in order: key, name, and whether the version has ended."""
        return [
            (key, *version)
            for (of, key), versions in sorted(self.versions.items())
            if of == table
            for version in versions
        ]


def versions(sync: SyncedTables, table: str) -> list[tuple[int, str, bool]]:
    """Return the versions of a history in the same form."""
    rows = sorted(sync.rows(table), key=lambda row: (row["id"], row["__START_AT"]))
    for row, after in pairwise(rows):
        if row["id"] == after["id"]:
            # A delete may be before the next insert.
            assert row["__START_AT"] < row["__END_AT"] <= after["__START_AT"]
    return [(row["id"], row["name"], "__END_AT" in row) for row in rows]
