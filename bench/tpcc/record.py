"""A recording of TPC-C: Debezium's records in the order of the log, and the tables at the end.

A recording is a folder of files: ``records.arrow``, ``about.json``, and a folder of Parquet files
for each table in ``truth``.
"""

from __future__ import annotations

import argparse
import heapq
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from normalize import JdbcTarget, LocalKafka, local_session
from normalize.local_kafka import KAFKA_VERSION
from normalize.tables.writers.dialects import dialect_of
from normalize.tables.writers.jdbc import JdbcConnection, jdbc_options

from .servers import (
    DEBEZIUM,
    END,
    GO_TPC,
    PREFIX,
    SOURCES,
    Connect,
    Source,
    check_source,
    run_go_tpc,
)
from .tables import SURROGATE, TABLES

_BATCH = 10_000
_SCHEMA = pa.schema(
    [
        ("table", pa.int8()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
    ]
)
_PATIENCE = 600  # seconds without a new record


class Recording(NamedTuple):
    """A recording: its folder, and what ``about.json`` says.

    Attributes
    ----------
    folder : Path
    about : dict
        ``database`` and ``warehouses``; ``snapshot`` and ``changes``, the numbers of records;
        ``versions``.
    """

    folder: Path
    about: dict[str, Any]

    @classmethod
    def of(cls, folder: Path) -> Recording:
        """Return the recording of a folder."""
        file = folder / "about.json"
        if not file.is_file():
            raise SystemExit(f"no recording in {folder}: make one with python -m bench.tpcc record")
        return cls(folder, json.loads(file.read_text()))

    @property
    def snapshot(self) -> int:
        """The number of records of the snapshot, which come first."""
        return int(self.about["snapshot"])

    @property
    def changes(self) -> int:
        """The number of records after the snapshot."""
        return int(self.about["changes"])

    def source_table(self, table: str) -> str:
        """Return the name of a table in Debezium's messages."""
        return source_table(self.about["database"], table)

    def records(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        """Yield the records: the number of the table, key and value."""
        with pa.memory_map(str(self.folder / "records.arrow")) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                batch = reader.get_batch(number)
                yield from zip(
                    *(batch[name].to_pylist() for name in ("table", "key", "value")), strict=True
                )


def source_table(database: str, table: str) -> str:
    """Return the name of a table in Debezium's messages."""
    return f"test.{table}" if database == "mariadb" else f"postgres.public.{table}"


def topic_of(source: type[Source] | Source, table: str) -> str:
    """Return Debezium's topic of a table."""
    return f"{PREFIX}.{source.database}.{table}"


@contextmanager
def sql_session(kind: str) -> Iterator[Any]:
    """Yield a Spark session that reads and writes a kind of database."""
    spark = local_session(packages=[kind], **{"spark.sql.session.timeZone": "UTC"})
    try:
        yield spark
    finally:
        spark.stop()


def execute(spark: Any, source: Source, *statements: str) -> None:
    """Run statements in the source."""
    with JdbcConnection.open(spark, jdbc_table(source, "any")) as connection:
        for statement in statements:
            connection.execute(statement)


def jdbc_table(source: Source, name: str) -> JdbcTarget:
    """Return a table of the source."""
    return JdbcTarget(table=name, **login(source))


def login(server: Source) -> dict[str, str]:
    """Return where a server is, and how to log in."""
    return {"url": server.url, "user": server.user, "password": server.password}


def record(options: argparse.Namespace, folder: Path) -> Recording:
    """Run TPC-C, and write its recording into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = SOURCES[options.database]
    with (
        kind() as source,
        LocalKafka() as kafka,
        sql_session(options.database) as spark,
    ):
        prepare(spark, source, options.warehouses)
        rows = sum(row_count(spark, source, table.name) for table in TABLES)
        with Connect(source, kafka.bootstrap_servers) as connect:
            began = time.monotonic()
            wait_for(kafka.bootstrap_servers, connect, source, rows)
            say(f"snapshot: {rows:,} records in {time.monotonic() - began:.0f} s")
            output = run(source, options)
            say(output)
            began = time.monotonic()
            execute(spark, source, f"INSERT INTO {END} VALUES (1)")
            wait_for(kafka.bootstrap_servers, connect, source, 1, [END])
        say(f"Debezium was {time.monotonic() - began:.0f} s behind the last transaction")
        checked = check_source(source, options.warehouses)
        say(f"go-tpc check of the source: {checked}")
        counts = write_records(kafka.bootstrap_servers, kind, folder / "records.arrow")
        say(f"{sum(counts.values()):,} records in {folder}")
        dump(spark, source, folder / "truth")
    about = {
        "database": options.database,
        "warehouses": options.warehouses,
        "minutes": options.minutes,
        "snapshot": rows,
        "changes": sum(counts.values()) - rows,
        "records": counts,
        "go-tpc": output,
        "check": checked,
        "versions": {
            "go-tpc": GO_TPC,
            "Debezium": DEBEZIUM,
            "Kafka": KAFKA_VERSION,
            "PySpark": version("pyspark"),
        },
    }
    (folder / "about.json").write_text(json.dumps(about, indent=1))
    say(f"{about['changes']:,} changes: {counts}")
    return Recording(folder, about)


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def prepare(spark: Any, source: Source, warehouses: int) -> None:
    """Let go-tpc create and fill the tables, and give HISTORY a key."""
    began = time.monotonic()
    run_go_tpc(source, "prepare", warehouses, "-T", "2", "--no-check")
    end = f"CREATE TABLE {END} (id INT PRIMARY KEY)"
    execute(spark, source, *SURROGATE[source.kind], end)
    say(f"prepared {warehouses} warehouses in {time.monotonic() - began:.0f} s")


def run(source: Source, options: argparse.Namespace) -> str:
    """Let go-tpc write transactions, and return its totals."""
    output = run_go_tpc(
        source,
        "run",
        options.warehouses,
        *("-T", str(options.threads), "--time", f"{options.minutes * 60:.0f}s", "--ignore-error"),
    )
    return "\n".join(line for line in output.splitlines() if line.startswith(("[Summary]", "tpmC")))


def row_count(spark: Any, source: Source, table: str) -> int:
    """Return the number of rows of a table of the source."""
    return int(source_rows(spark, source, f"(SELECT COUNT(*) AS n FROM {table}) AS t").first()["n"])


def source_rows(spark: Any, source: Source, table: str) -> Any:
    """Return the rows of a table of a server."""
    target = jdbc_table(source, table)
    return (
        spark.read.format("jdbc")
        .options(**jdbc_options(target, dialect_of(source.url)))
        .options(dbtable=table, preferTimestampNTZ="true", fetchsize="10000")
        .load()
    )


def dump(spark: Any, source: Source, folder: Path) -> None:
    """Write the source's tables into Parquet files, with the types of `TABLES`."""
    for table in TABLES:
        rows = source_rows(spark, source, table.name)
        rows.selectExpr(
            *(f"CAST({name} AS {kind}) AS {name}" for name, kind in table.columns.items())
        ).write.mode("overwrite").parquet(str(folder / table.name))


def consumer(servers: str) -> Any:
    """Return a consumer that reads from the beginning."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 20_000_000,
        }
    )


def ends(servers: str, topics: list[str]) -> dict[str, int]:
    """Return the number of records of each topic of one partition; 0 if it does not exist."""
    from confluent_kafka import TopicPartition

    client = consumer(servers)
    try:
        present = client.list_topics(timeout=60).topics
        return {
            topic: client.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)[1]
            if topic in present
            else 0
            for topic in topics
        }
    finally:
        client.close()


def wait_for(
    servers: str, connect: Connect, source: Source, records: int, tables: list[str] | None = None
) -> None:
    """Wait until Debezium has written so many records of tables; by default, of all nine."""
    topics = [topic_of(source, name) for name in tables or [table.name for table in TABLES]]
    before, since = -1, time.monotonic()
    while (written := sum(ends(servers, topics).values())) < records:
        if written != before:
            before, since = written, time.monotonic()
        if failure := connect.failure():
            raise SystemExit(f"Debezium failed: {failure}")
        if time.monotonic() > since + _PATIENCE:
            raise SystemExit(
                f"Debezium has written {written:,} of {records:,} records; its log ends:\n"
                f"{connect.log()}"
            )
        time.sleep(0.5)


def write_records(servers: str, source: type[Source], file: Path) -> dict[str, int]:
    """Write the topics into a file in the order of their timestamps, and return their counts.

    The records of a topic keep their order. A recording is larger than memory.
    """
    counts = dict.fromkeys((table.name for table in TABLES), 0)
    topics = (_timed(servers, source, number) for number in range(len(TABLES)))
    records = heapq.merge(*topics, key=itemgetter(1))
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(file), _SCHEMA, options=options) as writer:
        while batch := list(islice(records, _BATCH)):
            for number, *_ in batch:
                counts[TABLES[number].name] += 1
            columns = [
                pa.array(each, kind)
                for each, kind in zip(zip(*batch, strict=True), _SCHEMA.types, strict=True)
            ]
            writer.write_batch(pa.record_batch(columns, schema=_SCHEMA))
    return counts


def _timed(servers: str, source: type[Source], number: int) -> Iterator[tuple[Any, ...]]:
    for message in messages(servers, topic_of(source, TABLES[number].name)):
        yield number, message.timestamp()[1], message.key(), message.value()


def messages(servers: str, topic: str) -> Iterator[Any]:
    """Yield the messages of a topic of one partition up to its current end."""
    from confluent_kafka import TopicPartition

    end = ends(servers, [topic])[topic]
    client = consumer(servers)
    try:
        client.assign([TopicPartition(topic, 0, 0)])
        read = 0
        while read < end:
            for message in client.consume(10_000, timeout=1):
                if message.error():
                    raise SystemExit(f"{topic} cannot be read: {message.error()}")
                if read < end:
                    yield message
                read += 1
    finally:
        client.close()
