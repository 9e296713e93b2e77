"""``python -m bench.tables``: one live `sync_database` query for a database of many tables.

python -m bench.tables                # 50 tables of 1,000 rows; 20 updates a second
python -m bench.tables --tables 20 --rate 5 --parallel 2
# bursts with an update of each table and of one table, by each way in turn:
python -m bench.tables --tables 20 --ways sync_database sync_database-500
python -m bench.tables --ways sync_database by-hand by-hand-500
python -m bench.tables --tables 1 --burst 100 --ways sync_database by-hand

The topics are those of Debezium: one a table. They have the rows of each table. First, updates of
random rows of random tables follow, at a steady rate. The figures are the time from the start of
the query until every table has its rows; the updates and the seconds of each micro-batch; the time
from sending an update until its micro-batch is committed; and the peak memory. Then come bursts of
updates. The seconds of a burst are those from sending its first message until all are committed. In
the end, each table is compared with the expected rows.

Each way has topics and tables of its own. While one is measured, the others are idle. The ways are:

- ``sync_database``: this library, as it reads Kafka by default
- ``by-hand``: ``from_json``, ``row_number()`` and a MERGE for each table, with this library's
  ``kafka.fetch.max.wait.ms``
- the name of either with ``-500``: with Kafka's default of this option (docs/speed.md)
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING

from normalize import DeltaDatabase, LocalKafka, sync_database
from normalize.kafka.reader_options import READER_DEFAULTS

from .cpu import is_known, resident_bytes
from .live import (
    KAFKAS_WAIT,
    WAIT,
    Live,
    Message,
    Sender,
    in_turn,
    print_durations,
    print_seconds,
)
from .spark import micro_batch, offsets_of, start_session
from .tpcc.copies import merged_by_hand
from .tpcc.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SYNC, BY_HAND = "sync_database", "by-hand"
WAYS = (SYNC, f"{SYNC}-500", BY_HAND, f"{BY_HAND}-500")
_MILLIS = 1_700_000_000_000
_COLUMNS = {"id": "BIGINT", "name": "STRING", "version": "BIGINT", "amount": "STRING"}


class Source:
    """A database whose changes are Debezium's messages, in a topic for each table.

    Parameters
    ----------
    name : str
        The name of the database: the names of the topics begin with it.
    tables, rows : int
        The number of tables, and the rows of each.

    Attributes
    ----------
    versions : dict
        The number of updates of each row, by its table and its id.
    sent : dict
        When each message of a topic was sent, in seconds since 1970-01-01 UTC.
    """

    def __init__(self, name: str, tables: int, rows: int) -> None:
        self.tables = [Table(f"t{number}", _COLUMNS, ("id",)) for number in range(tables)]
        self.topics = {f"{name}.{table.name}": table for table in self.tables}
        self.versions = {(topic, row): 0 for topic in self.topics for row in range(rows)}
        self.sent: dict[str, list[float]] = {topic: [] for topic in self.topics}
        self._random = Random(7)

    @property
    def messages(self) -> int:
        """The number of all messages."""
        return sum(map(len, self.sent.values()))

    def inserts(self) -> Iterator[Message]:
        """Yield the first row of each key."""
        for topic, row in self.versions:
            yield self._message("c", topic, row)

    def update(self, topic: str = "") -> Message:
        """Return an update of a random row, of a topic or of a random one."""
        topic = topic or self._random.choice(list(self.topics))
        row = self._random.randrange(len(self.versions) // len(self.topics))
        self.versions[topic, row] += 1
        return self._message("u", topic, row)

    def burst(self, updates: int) -> list[Message]:
        """Return updates of random rows, the same number of each table."""
        return [self.update(topic) for topic in self.topics for _ in range(updates)]

    def _message(self, op: str, topic: str, row: int) -> Message:
        before, after = (
            {"id": row, "name": f"row {row}", "version": version, "amount": f"{version}.50"}
            for version in (self.versions[topic, row] - 1, self.versions[topic, row])
        )
        source = {
            "version": "3.4.0.Final",
            "connector": "mysql",
            "name": "bench",
            "ts_ms": _MILLIS,
            "db": topic.partition(".")[0],
            "table": topic.partition(".")[2],
            "pos": len(self.sent[topic]),
        }
        message = {
            "before": before if op == "u" else None,
            "after": after,
            "source": source,
            "op": op,
        }
        self.sent[topic].append(time.time())
        return Message(topic, json.dumps({"id": row}).encode(), json.dumps(message).encode())


def main() -> None:
    """Copy and update the tables, and print the figures; exit with an error if a table is wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tables",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tables", type=int, default=50, help="the number of tables")
    parser.add_argument("--rows", type=int, default=1000, help="the rows of each table")
    parser.add_argument("--rate", type=float, default=20, help="updates in a second")
    parser.add_argument("--seconds", type=float, default=60, help="how long rows are updated")
    parser.add_argument("--parallel", type=int, default=4, help="as of sync_database")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=[SYNC], help="see above")
    parser.add_argument("--rounds", type=int, default=5, help="bursts of each kind")
    parser.add_argument("--burst", type=int, default=1, help="updates of a table in a burst")
    options = parser.parse_args()
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
        spark = start_session(delta=True)
        # 50, the default, are for tables of many files.
        spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
        sources = {
            way: Source(f"shop{number}", options.tables, options.rows)
            for number, way in enumerate(options.ways)
        }
        queries = [
            _started(spark, way, source, kafka, Path(folder, way), options.parallel)
            for way, source in sources.items()
        ]
        _update_steadily(queries[0], sources[queries[0].name], options)
        every = {way: lambda of=of: of.burst(options.burst) for way, of in sources.items()}
        one = {way: lambda of=of: [of.update()] for way, of in sources.items()}
        tables, each_query = options.tables, {query.name: query.messages for query in queries}
        print_seconds(
            f"{options.burst} updates of each of {tables} tables",
            in_turn(queries, options.rounds, every),
        )
        for query in queries:
            print_durations(query.name, query.batches_since(each_query[query.name]))
        print_seconds(f"an update of one of {tables} tables", in_turn(queries, options.rounds, one))
        if is_known():
            java, python = (size >> 20 for size in resident_bytes(os.getpid()))
            print(f"peak memory: JVM {java:,} MB, Python workers {python:,} MB")
        for query in queries:
            query.query.stop()
            _check(spark, sources[query.name], Path(folder, query.name, "lake"))
        print("every table has the expected rows")
        spark.stop()


def _started(
    spark: SparkSession, way: str, source: Source, kafka: LocalKafka, folder: Path, parallel: int
) -> Live:
    """Return the running query of a way, once all tables have their rows."""
    for topic in source.topics:
        kafka.create_topic(topic)
    send = Sender(kafka.bootstrap_servers)
    send(source.inserts())
    begin = time.time()
    of_kafka = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    of_kafka |= KAFKAS_WAIT if way.endswith("-500") else {WAIT: READER_DEFAULTS[WAIT]}
    writer = _writer(spark, way.removesuffix("-500"), source, of_kafka, folder, parallel)
    query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
    live = Live(way, query, send, source.messages)
    tables, rows = len(source.topics), len(source.versions)
    print(
        f"{way}: {tables} tables x {rows // tables:,} rows: all written after "
        f"{live.committed() - begin:.1f} s",
        flush=True,
    )
    return live


def _writer(
    spark: SparkSession,
    way: str,
    source: Source,
    of_kafka: dict[str, str],
    folder: Path,
    parallel: int,
) -> DataStreamWriter:
    if way == BY_HAND:
        return merged_by_hand(spark, source.topics, folder / "lake", of_kafka)
    return sync_database(
        spark,
        list(source.topics),
        format="debezium-json",
        # Nothing else writes these tables.
        target=DeltaDatabase(str(folder / "lake"), only_writer=True),
        schema_location=str(folder / "schemas"),
        options=of_kafka,
        parallel=parallel,
    )


def _update_steadily(query: Live, source: Source, options: argparse.Namespace) -> None:
    """Send updates at a steady rate, and print their micro-batches and lags."""
    first, begin = query.messages, time.time()
    count = int(options.rate * options.seconds)
    for number in range(count):
        time.sleep(max(0.0, begin + number / options.rate - time.time()))
        query.send([source.update()])
    query.messages += count
    if not count:
        return
    query.committed()
    batches = query.batches_since(first)
    seconds = [batch.end - batch.begin for batch in map(micro_batch, batches)]
    messages = [batch.messages for batch in map(micro_batch, batches)]
    lags = []
    for progress in batches:
        end, start = micro_batch(progress).end, offsets_of(progress, "startOffset")
        for topic, ends in offsets_of(progress, "endOffset").items():
            read = source.sent[topic][start[topic]["0"] : ends["0"]]
            lags += [end - when for when in read]
    print(
        f"{query.name}: {count:,} updates in {len(batches)} micro-batches: "
        f"{median(messages):.0f} updates and {median(seconds):.2f} s each (medians)"
    )
    print(
        f"{query.name}: from sending an update until it is written: {median(lags):.2f} s (median), "
        f"{quantiles(lags, n=20)[-1]:.2f} s (95 of 100)"
    )
    print_durations(query.name, batches)


def _check(spark: SparkSession, source: Source, lake: Path) -> None:
    for topic, table in source.topics.items():
        expected = {row: version for (of, row), version in source.versions.items() if of == topic}
        rows = spark.sql(f"SELECT id, version FROM delta.`{lake}/{table.name}`").collect()
        if len(rows) != len(expected) or dict(map(tuple, rows)) != expected:
            raise SystemExit(
                f"the rows of {table.name} in {lake} are not the expected ones: the run is not valid"
            )


if __name__ == "__main__":
    main()
