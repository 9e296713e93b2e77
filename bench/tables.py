"""``python -m bench.tables``: the cost of one `sync_database` query for a database of many tables.

python -m bench.tables                # 50 tables of 1,000 rows; 20 updates a second
python -m bench.tables --tables 10 --rate 5 --parallel 2
# also bursts with an update of each table, by this library and by a MERGE for each table, in turn:
python -m bench.tables --by-hand
python -m bench.tables --by-hand --tables 1 --burst 100

One topic has Maxwell's messages of all tables: first the rows of each table, then updates of random
rows of random tables, at a steady rate. The figures are the time from the start of the query until
every table has its rows; the updates and the seconds of each micro-batch; the time from sending an
update until its micro-batch is committed; and the peak memory. In the end, each table is compared
with the expected rows.

With ``--by-hand``, ``from_json``, ``row_number()`` and a MERGE for each table write another lake
from a topic of its own, with the same messages. Both queries run, and one of them is idle.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from normalize import DeltaDatabase, LocalKafka, sync_database

from .cpu import is_known, resident_bytes
from .spark import micro_batch, offsets_of, start_session
from .tpcc.copies import merge_newest
from .tpcc.tables import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TOPIC, BY_HAND = "shop", "shop-by-hand"
_MILLIS = 1_700_000_000_000
_PATIENCE = 900  # seconds
_BURSTS = 5
_COLUMNS = {"id": "BIGINT", "name": "STRING", "version": "BIGINT", "amount": "STRING"}


class Source:
    """A database whose changes are Maxwell's messages.

    Parameters
    ----------
    tables, rows : int
        The number of tables, and the rows of each.

    Attributes
    ----------
    versions : dict
        The number of updates of each row, by its table and its id.
    sent : list of float
        When each message was sent, in seconds since 1970-01-01 UTC.
    """

    def __init__(self, tables: int, rows: int) -> None:
        self.versions = {(table, row): 0 for table in range(tables) for row in range(rows)}
        self.sent: list[float] = []

    def inserts(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield the first row of each key."""
        for table, row in self.versions:
            yield self._message("insert", table, row)

    def updates(self, count: int, rate: float) -> Iterator[tuple[bytes, bytes]]:
        """Yield updates of random rows, so many in a second."""
        random, begin, keys = Random(7), time.time(), list(self.versions)
        for number in range(count):
            time.sleep(max(0.0, begin + number / rate - time.time()))
            table, row = random.choice(keys)
            self.versions[table, row] += 1
            yield self._message("update", table, row)

    def burst(self, updates: int) -> list[tuple[bytes, bytes]]:
        """Return updates of random rows, so many of each table."""
        random, rows = Random(len(self.sent)), dict[int, list[int]]()
        for table, row in self.versions:
            rows.setdefault(table, []).append(row)
        chosen = [(table, random.choice(of)) for table, of in rows.items() for _ in range(updates)]
        messages = []
        for table, row in chosen:
            self.versions[table, row] += 1
            messages.append(self._message("update", table, row))
        return messages

    def _message(self, what: str, table: int, row: int) -> tuple[bytes, bytes]:
        version = self.versions[table, row]
        data = {"id": row, "name": f"row {row}", "version": version, "amount": f"{version}.50"}
        about = {
            "database": "shop",
            "table": f"t{table}",
            "ts": _MILLIS // 1000,
            "xid": len(self.sent),
        }
        old = (
            {"old": {"version": version - 1, "amount": f"{version - 1}.50"}}
            if what == "update"
            else {}
        )
        key = {"database": "shop", "table": f"t{table}", "pk.id": row}
        self.sent.append(time.time())
        return json.dumps(key).encode(), json.dumps(
            {**about, "type": what, "data": data, **old}
        ).encode()


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
    parser.add_argument("--by-hand", action="store_true", help="also MERGEs written by hand")
    parser.add_argument("--burst", type=int, default=1, help="updates of a table in a burst")
    options = parser.parse_args()
    source = Source(options.tables, options.rows)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
        kafka.create_topic(TOPIC)
        kafka.produce(TOPIC, source.inserts())
        spark = start_session(delta=True)
        # 50, the default, are for tables of many files.
        spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
        # Nothing else writes these tables.
        database = DeltaDatabase(f"{folder}/lake", only_writer=True, on_question="guess")
        writer = sync_database(
            spark,
            TOPIC,
            format="maxwell-json",
            target=database,
            schema_location=f"{folder}/schemas",
            options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
            parallel=options.parallel,
        )
        began = time.time()
        query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
        inserts = len(source.versions)
        print(
            (
                f"{options.tables} tables x {options.rows:,} rows: all written after "
                f"{_wait(query, inserts) - began:.1f} s"
            ),
            flush=True,
        )
        kafka.produce(TOPIC, source.updates(int(options.rate * options.seconds), options.rate))
        _wait(query, len(source.sent))
        batches = [
            each
            for each in query.recentProgress
            if each["numInputRows"] and _offset(each, "startOffset") >= inserts
        ]
        if options.by_hand:
            _in_turn(spark, kafka, query, source, folder, options.burst)
        query.stop()
        _print(batches, source)
        if is_known():
            java, python = (size >> 20 for size in resident_bytes(os.getpid()))
            print(f"peak memory: JVM {java:,} MB, Python workers {python:,} MB")
        _check(spark, source, f"{folder}/lake")
        spark.stop()


def _offset(progress: Any, which: str) -> int:
    (offsets,) = offsets_of(progress, which).values() or ({},)
    return offsets.get("0", 0)


def _wait(query: Any, messages: int) -> float:
    """Return when the micro-batch with the last of so many messages ended."""
    deadline = time.time() + _PATIENCE
    while time.time() < deadline:
        if query.exception() is not None:
            raise query.exception()
        done = [
            each
            for each in query.recentProgress
            if each["numInputRows"] and _offset(each, "endOffset") >= messages
        ]
        if done:
            return micro_batch(done[0]).end
        time.sleep(0.2)
    raise SystemExit(
        f"the query has not read {messages:,} messages in {_PATIENCE} s: the run is not valid"
    )


def _print(batches: list[Any], source: Source) -> None:
    done = list(map(micro_batch, batches))
    seconds, counts = (
        [batch.end - batch.begin for batch in done],
        [batch.messages for batch in done],
    )
    lags = []
    for progress, batch in zip(batches, done, strict=True):
        sent = source.sent[_offset(progress, "startOffset") : _offset(progress, "endOffset")]
        lags += [batch.end - when for when in sent]
    each = (
        f"{median(counts):.0f} updates and {median(seconds):.1f} s each (medians), "
        f"{sum(seconds) / sum(counts):.2f} s for each update"
    )
    print(f"{sum(counts):,} updates in {len(batches)} micro-batches: {each}")
    print(
        f"from sending an update until it is written: {median(lags):.1f} s (median), "
        f"{quantiles(lags, n=20)[-1]:.1f} s (95 of 100)"
    )


def _in_turn(
    spark: SparkSession, kafka: LocalKafka, query: Any, source: Source, folder: str, updates: int
) -> None:
    """Print the seconds in which both ways write bursts of updates of all tables, in turn."""
    written, rows = len(source.sent), len(source.versions)
    kafka.create_topic(BY_HAND)
    kafka.produce(BY_HAND, source.inserts())
    tables = [
        Table(f"t{table}", _COLUMNS, ("id",)) for table in sorted({of for of, _ in source.versions})
    ]
    writer = _merged_by_hand(spark, kafka.bootstrap_servers, tables, Path(folder, "by-hand"))
    hand = writer.option("checkpointLocation", f"{folder}/checkpoint-by-hand").start()
    _wait(hand, rows)
    seconds: dict[str, list[float]] = {TOPIC: [], BY_HAND: []}
    for number in range(1, _BURSTS + 1):
        messages, more = source.burst(updates), len(tables) * updates * number
        for topic, of, before in ((TOPIC, query, written), (BY_HAND, hand, rows)):
            kafka.produce(topic, messages)
            end = _wait(of, before + more)
            of_burst = [
                each
                for each in of.recentProgress
                if each["numInputRows"]
                and _offset(each, "endOffset") > before + more - len(messages)
            ]
            seconds[topic].append(end - micro_batch(of_burst[0]).begin)
    hand.stop()
    _check(spark, source, f"{folder}/by-hand")
    ours, by_hand = (median(each) for each in seconds.values())
    shown = (" ".join(f"{each:.2f}" for each in of) for of in seconds.values())
    print(
        f"{updates} updates of each of {len(tables)} tables: sync_database {ours:.2f} s, MERGEs "
        f"by hand {by_hand:.2f} s, {ours / by_hand:.2f} of it (medians of {' | '.join(shown)})"
    )


def _merged_by_hand(
    spark: SparkSession, servers: str, tables: Sequence[Table], lake: Path
) -> DataStreamWriter:
    """Return the writer of a query of ``from_json``, ``row_number()`` and a MERGE for each table."""
    from pyspark.sql import functions as F

    for table in tables:
        spark.sql(f"CREATE TABLE delta.`{lake}/{table.name}` ({table.ddl}) USING delta")
    of_message = f"table STRING, type STRING, data STRUCT<{tables[0].ddl}>"
    message = F.from_json(F.col("value").cast("string"), of_message).alias("message")

    def write(batch: DataFrame, _: int) -> None:
        changes = batch.select("offset", message).select("offset", "message.*").persist()
        present = {row["table"] for row in changes.select("table").distinct().collect()}
        for table in tables:
            if table.name in present:
                op = F.when(F.col("type") == "delete", "d").otherwise("u").alias("op")
                of_table = changes.where(F.col("table") == table.name)
                merge_newest(of_table.select("offset", op, "data.*"), table, lake)
        changes.unpersist()

    records = (
        spark.readStream.format("kafka")
        .options(subscribe=BY_HAND, startingOffsets="earliest")
        .option("kafka.bootstrap.servers", servers)
        .load()
    )
    return records.writeStream.foreachBatch(write)


def _check(spark: SparkSession, source: Source, lake: str) -> None:
    for table in sorted({table for table, _ in source.versions}):
        expected = {row: version for (of, row), version in source.versions.items() if of == table}
        rows = spark.sql(f"SELECT id, version FROM delta.`{lake}/t{table}`").collect()
        if len(rows) != len(expected) or dict(map(tuple, rows)) != expected:
            raise SystemExit(
                f"the rows of t{table} in {lake} are not the expected ones: the run is not valid"
            )
    print("every table has the expected rows")


if __name__ == "__main__":
    main()
