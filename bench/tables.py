"""``python -m bench.tables``: the cost of one `sync_database` query for a database of many tables.

python -m bench.tables                # 50 tables of 1,000 rows; 20 updates a second
python -m bench.tables --tables 10 --rate 5 --parallel 2

One topic has Maxwell's messages of all tables: first the rows of each table, then updates of random
rows of random tables, at a steady rate. The figures are the time from the start of the query until
every table has its rows; the updates and the seconds of each micro-batch; the time from sending an
update until its micro-batch is committed; and the peak memory. In the end, each table is compared
with the expected rows.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Iterator
from random import Random
from statistics import median, quantiles
from typing import Any

from normalize import DeltaDatabase, LocalKafka, sync_database
from normalize.tables.database_target import table_name

from .cpu import is_known, resident_bytes
from .spark import micro_batch, offsets_of, start_session

TOPIC = "shop"
_MILLIS = 1_700_000_000_000
_PATIENCE = 900  # seconds


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
    options = parser.parse_args()
    source = Source(options.tables, options.rows)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="bench-tables-") as folder:
        kafka.create_topic(TOPIC)
        kafka.produce(TOPIC, source.inserts())
        spark = start_session(delta=True)
        # 50, the default, are for tables of many files.
        spark.conf.set("spark.databricks.delta.snapshotPartitions", "2")
        database = DeltaDatabase(f"{folder}/lake")
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
        query.stop()
        _print(batches, source)
        if is_known():
            java, python = (size >> 20 for size in resident_bytes(os.getpid()))
            print(f"peak memory: JVM {java:,} MB, Python workers {python:,} MB")
        _check(spark, source, database)
        spark.stop()


def _offset(progress: Any, which: str) -> int:
    return offsets_of(progress, which).get(TOPIC, {}).get("0", 0)


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


def _check(spark: Any, source: Source, database: DeltaDatabase) -> None:
    for table in sorted({table for table, _ in source.versions}):
        expected = {row: version for (of, row), version in source.versions.items() if of == table}
        target: Any = database.target(table_name(database.table, f"shop.t{table}"))
        rows = spark.sql(f"SELECT id, version FROM {target.sql_name}").collect()
        if len(rows) != len(expected) or dict(map(tuple, rows)) != expected:
            raise SystemExit(
                f"the rows of t{table} are not the expected ones: the run is not valid"
            )
    print("every table has the expected rows")


if __name__ == "__main__":
    main()
