"""``python -m bench``: rows per second of decode, of the stage, and of the whole, from Kafka to a consumer of all row kinds.

python -m bench                                          # its own broker and topic: 1,000,000 messages over 100,000 keys
python -m bench --messages 200000 --state rocksdb
python -m bench --servers localhost:9092 --topic orders  # a topic that is there, of the same columns
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from itertools import islice
from statistics import median
from typing import Any

from cdc_formats import columns, get_format
from normalize import SPARK_PACKAGES, LocalKafka, from_kafka_changelog
from normalize.changelog_normalize import KEY_GROUPS, make_stage
from normalize.stage import normalize
from normalize.targets import Blocks, Records
from normalize.typed import Output

from .history import FORMAT_OPTIONS, SCHEMA, Expected, events, message
from .producers import PRODUCERS

ROCKSDB = {
    "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def main() -> None:
    """Run what was asked for, and print it."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--key-groups", type=int, default=KEY_GROUPS)
    parser.add_argument("--batch", type=int, default=250_000, help="messages in a micro-batch")
    parser.add_argument("--runs", type=int, default=3, help="of the whole, after one that is not counted")
    parser.add_argument("--state", choices=("heap", "rocksdb"), default="heap", help="Spark's state store")
    parser.add_argument("--servers", help="a broker that is there; default: a local one of its own")
    parser.add_argument("--topic", help="a topic that is there, with the benchmark's columns; its counts are not checked")
    parser.add_argument("--only", choices=("decode", "stage", "whole"), action="append")
    options = parser.parse_args()
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; Python {platform.python_version()}; "
          + ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "msgspec", "pandas")))  # fmt: skip
    parts = options.only or ["decode", "stage", "whole"]
    if "decode" in parts:
        decode(options)
    if "stage" in parts:
        stage(options)
    if "whole" in parts:
        with broker(options) as (servers, topic, expected):
            whole(options, servers, topic, expected)


def report(what: str, count: int, seconds: Iterable[float], note: str = "") -> None:
    """Print messages per second: the median of the runs, and the best."""
    runs = sorted(seconds)
    print(
        f"{what:<44} {count / median(runs):>9,.0f}/s median, {count / runs[0]:>9,.0f}/s best of {len(runs)} (N={count:,}){note}", flush=True
    )


def timed(work: Any, runs: int = 5) -> list[float]:
    """Return the seconds that each run of `work` takes."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


def decode(options: argparse.Namespace) -> None:
    """Decode in pure Python, on one core, each format's own messages: as a changelog, and as what the stage reads."""
    count = min(options.messages, 100_000)
    history = list(events(count, options.keys))
    for name, settings, write, schema, key in PRODUCERS:
        messages = [write(*event) for event in history]
        decoder = get_format(name, **settings).decoder(schema, unique_key=[key])
        label = f"{name} {settings.get('value_format', '')}".strip()
        for what, run in (("changelog", decoder.decode), ("stage", decoder.upserts)):
            report(
                f"decode {label}, {what}",
                count,
                timed(lambda run=run, messages=messages: [None for each in messages if run(*each) is None]),
            )


def stage(options: argparse.Namespace) -> None:
    """Fold packed blocks into state in pure Python, on one core: what the stage's worker does to a micro-batch."""
    count = min(options.messages, options.batch)
    table = columns(SCHEMA)
    decoder = get_format("debezium-json", **FORMAT_OPTIONS).decoder(table, unique_key=["id"])
    target = Blocks(Output(table), options.key_groups)
    records = Records("t", 0, range(count), range(count), [], [])
    for index, event in enumerate(islice(events(count, options.keys), count)):
        target.add(records, index, decoder.upserts(*message(*event)))
    blocks = [tuple(row.values()) for batch in target.flush() for row in batch.to_pylist()]
    made = make_stage(
        table, ("id",), generate_update_before=True, key_groups=options.key_groups, state_ttl=None, mini_batch=False, streaming=True
    )

    def fold() -> dict[int, bytes | None]:
        return {group: normalize([(source, first, changes)], None, made, 0)[1] for group, source, first, changes, _ in blocks}

    report("stage, packed to packed", count, timed(fold), f", one core, {options.key_groups} key groups")


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[tuple[str, str, Expected | None]]:
    """Give a broker with the benchmark's topic, and what is expected of it."""
    if options.topic:
        yield options.servers, options.topic, None
        return
    with LocalKafka() as kafka:
        expected = Expected()
        print(f"writing {options.messages:,} messages ...", file=sys.stderr)
        kafka.create_topic("bench", partitions=4)
        kafka.produce("bench", _messages(options, expected))
        yield kafka.bootstrap_servers, "bench", expected


def _messages(options: argparse.Namespace, expected: Expected) -> Iterator[tuple[bytes, bytes]]:
    for number, before, after in events(options.messages, options.keys):
        expected.take((after or before or ())[0], after)
        yield message(number, before, after)


def session(options: argparse.Namespace) -> Any:
    """Start Spark, with the state store asked for."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", SPARK_PACKAGES)
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.memory": "4g",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in {**settings, **(ROCKSDB if options.state == "rocksdb" else {})}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def whole(options: argparse.Namespace, servers: str, topic: str, expected: Expected | None) -> None:
    """Run the whole query, checkpoints and all, into a consumer that counts rows and sums ids by row kind."""
    spark = session(options)
    seconds, later = [], []
    for run in range(options.runs + 1):
        progress, counted = _run(spark, options, servers, topic)
        if expected is not None:
            assert counted == (dict(expected.rows), dict(expected.ids)), f"{counted} is not {expected.rows}, {expected.ids}"
        took = [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress]
        rows = [batch["numInputRows"] for batch in progress]
        if run:
            seconds.append(sum(took))
            later.append(sum(took[1:]) / sum(rows[1:]) * sum(rows) if len(rows) > 1 else sum(took))
    note = f", 2 cores, {options.state} state, {len(rows)} micro-batches, {options.key_groups} key groups"
    report("whole", sum(rows), seconds, note)
    report("whole, after first batch", sum(rows), later, note)
    print("rows by kind:", dict(sorted(counted[0].items())), "as expected" if expected is not None else "")
    spark.stop()


def _run(spark: Any, options: argparse.Namespace, servers: str, topic: str) -> tuple[list[Any], tuple[dict[str, int], dict[str, int]]]:
    from pyspark.sql import functions as F

    rows: dict[str, int] = {}
    ids: dict[str, int] = {}

    def count(batch: Any, _: int) -> None:
        for kind, number, total in batch.groupBy("row_kind").agg(F.count("*"), F.sum("id")).collect():
            rows[kind] = rows.get(kind, 0) + number
            ids[kind] = ids.get(kind, 0) + total

    changes = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        format_options=FORMAT_OPTIONS,
        schema=SCHEMA,
        primary_key=["id"],
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": options.batch},
        key_groups=options.key_groups,
    )
    folder = tempfile.mkdtemp()
    try:
        query = changes.writeStream.foreachBatch(count).option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        return [batch for batch in query.recentProgress if batch["numInputRows"]], (rows, ids)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
