"""``python -m bench.growth``: the stage's cost by keys, key groups, batch events, Kafka partitions.

python -m bench.growth                # 10,000 to 1,000,000 keys, both state stores
python -m bench.growth --keys 1000000 --store rocksdb                     # one size, one store
python -m bench.growth --keys 10000000 --key-groups 4096 --store rocksdb
python -m bench.growth --keys 1000000 --engine key_groups --engine native --flink

Each line is a new checkpoint, which a real query from Kafka creates: one insert for each key, in
micro-batches of ``--batch``. Then another process continues from it with small micro-batches of
updates with before-images; the keys are random. Each process runs Spark on 2 cores. The values for
micro-batches are medians, without the first micro-batch of a process.

With ``--flink``, Apache Flink reads a topic of the same inserts and then of random updates, with
its RocksDB state backend (`flink`). Its line has the updates per second from the moment when its
sink has the row of each insert.

==============  ===================================================================================
seed/s          messages per second while creating the checkpoint, without the first micro-batch; -
                if that is the only one
state           bytes per key: the uncompressed values in the state store, as Spark's state data
                source reads them; - for the native engine, whose values have many columns
disk            bytes per key: the state of the new checkpoint, compressed, with all retained
                versions
memory          bytes per key: the memory that the state store reports (``memoryUsedBytes``)
restart         seconds from start() to the end of the first micro-batch, in a new process
ms, KB          for a micro-batch of 100 updates: its duration, and the bytes that its commit wrote
                to the state files
JVM, Python     MB: peak resident memory (VmHWM) of Spark's JVM, and of all Python workers (shared
                pages count in each): while creating the checkpoint, and while continuing
==============  ===================================================================================
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from normalize import ChangelogNormalize, LocalKafka, from_kafka_changelog
from normalize.stage_options import NativeEngine

from .cpu import is_known, resident_bytes
from .flink import run_flink
from .history import FORMAT_OPTIONS, SCHEMA, Row, message
from .spark import start_session, use_state
from .topics import PARTITIONS, produce

CHANGES = 100
KEY_GROUPS, NATIVE = "key_groups", "native"
_EVENTS = (1, 10, 100)
_FLINK_CHANGES = 1_000_000
_CITIES = ("Amsterdam", "Berlin", "Copenhagen", "Dublin", "Helsinki", "Lisbon", "Madrid", "Oslo")
_OF_A_BATCH = (
    ".delta",
    ".changelog",
)  # a commit waits for these files; snapshots are written in the background


class Setting(NamedTuple):
    """The settings of a checkpoint."""

    keys: int
    engine: str
    store: str
    key_groups: int
    partitions: int = PARTITIONS


class Batches(NamedTuple):
    """Micro-batches of one size: events, ms, bytes written of each; seconds to the first's end."""

    events: float
    ms: float
    written: float
    restart: float


class Checkpoint(NamedTuple):
    """The results for a checkpoint.

    `small` has the micro-batches of `CHANGES`; `resident` has the bytes of the JVM and of Python,
    of both processes.
    """

    rate: float | None
    state: float | None
    disk: float
    memory: float
    resident: list[int]
    small: Batches
    by_events: list[Batches]


def main() -> None:
    """Measure each setting, and print the tables."""
    options = parse()
    if options.child:
        print(json.dumps(child(options, *options.child)))
        return
    if not is_known():
        raise SystemExit("memory is read from /proc: run the benchmark on Linux")
    print("python -m bench.growth", *sys.argv[1:], flush=True)
    settings = [
        Setting(keys, engine, store, groups)
        for keys in options.keys
        for engine in options.engine
        for store in options.store
        for groups in (options.key_groups if engine != NATIVE else options.key_groups[:1])
    ]
    middle = options.keys[len(options.keys) // 2]
    by_partitions = [
        settings[0]._replace(keys=middle, partitions=partitions)
        for partitions in options.partitions
    ]
    with LocalKafka() as kafka:
        for keys, partitions in sorted(
            {(setting.keys, setting.partitions) for setting in [*settings, *by_partitions]}
        ):
            kafka.create_topic(topic_of(keys, partitions), partitions)
            write(kafka.bootstrap_servers, topic_of(keys, partitions), inserts(keys), partitions)
        print(
            "\n"
            + heads(
                "seed/s",
                "state",
                "disk",
                "memory",
                "restart",
                "ms",
                "KB",
                "JVM",
                "Python",
                "JVM",
                "Python",
            ),
            flush=True,
        )
        measured = {}
        for setting in settings:
            by_events = setting.key_groups == options.key_groups[0]
            sizes = options.changes or tuple(each * setting.key_groups for each in _EVENTS)
            measured[setting] = measure(kafka, options, setting, sizes if by_events else ())
            print(line(setting, *of_setting(measured[setting])), flush=True)
        print(
            (
                "\nby events in a "
                f"micro-batch{'' if options.changes else f', {_EVENTS} for each key group'}\n"
            )
            + heads("events", "ms", "µs/event", "B/event"),
            flush=True,
        )
        for setting, checkpoint in measured.items():
            for batches in checkpoint.by_events:
                print(line(setting, *of_events(batches)))
        for keys in options.keys if options.flink else ():
            print(
                f"\nFlink, RocksDB, {keys:,} keys: {flink_rate(kafka, keys):,.0f} updates/s",
                flush=True,
            )
        if by_partitions:
            print("\nby Kafka partitions\n" + heads("parts", "seed/s", "ms"), flush=True)
        for setting in by_partitions:
            checkpoint = measure(kafka, options, setting, ())
            print(
                line(
                    setting,
                    f"{setting.partitions}",
                    rate_of(checkpoint),
                    f"{checkpoint.small.ms:,.0f}",
                ),
                flush=True,
            )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--keys", type=numbers, default=(10_000, 100_000, 1_000_000), help="comma-separated"
    )
    parser.add_argument(
        "--key-groups", type=numbers, default=(64, 512, 4096), help="comma-separated"
    )
    parser.add_argument(
        "--partitions",
        type=numbers,
        default=(1, 4, 16),
        help="comma-separated; empty: do not vary them",
    )
    parser.add_argument(
        "--store", choices=("heap", "rocksdb"), action="append", help="default: both"
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=250_000,
        help="messages in a micro-batch while the checkpoint is created",
    )
    parser.add_argument(
        "--shuffle-partitions", type=int, default=2, help="spark.sql.shuffle.partitions"
    )
    parser.add_argument(
        "--batches", type=int, default=10, help="how many small micro-batches to measure"
    )
    parser.add_argument(
        "--engine",
        choices=(KEY_GROUPS, NATIVE, "none"),
        action="append",
        help="default: key_groups; none: only Flink",
    )
    parser.add_argument(
        "--changes",
        type=numbers,
        default=(),
        help="sizes of micro-batches, comma-separated; default: by key groups",
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark"
    )
    parser.add_argument("--flink", action="store_true", help="also measure Apache Flink")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    options.engine = [engine for engine in options.engine or [KEY_GROUPS] if engine != "none"]
    options.store = options.store or ["heap", "rocksdb"]
    return options


def numbers(text: str) -> tuple[int, ...]:
    """Return the numbers in a comma-separated text."""
    return tuple(int(number) for number in text.split(",") if number)


# --------------------------------------------------------------------------------------------------
# the tables


def heads(*names: str) -> str:
    """Return the header of a table."""
    return f"{'keys':>10} {'engine':<12}{'store':<8}{'groups':>7}" + "".join(
        f"{name:>10}" for name in names
    )


def line(setting: Setting, *values: str) -> str:
    """Return a line of a table."""
    return (
        f"{setting.keys:>10,} {setting.engine:<12}{setting.store:<8}{setting.key_groups:>7}"
        + "".join(f"{value:>10}" for value in values)
    )


def of_setting(checkpoint: Checkpoint) -> Iterator[str]:
    """Yield the values of the first table for a checkpoint."""
    small = checkpoint.small
    yield rate_of(checkpoint)
    yield from (
        f"{size:,.1f}" if size is not None else "-"
        for size in (checkpoint.state, checkpoint.disk, checkpoint.memory)
    )
    yield from (f"{small.restart:,.1f}", f"{small.ms:,.0f}", f"{small.written / 1000:,.0f}")
    yield from (f"{resident / 1e6:,.0f}" for resident in checkpoint.resident)


def rate_of(checkpoint: Checkpoint) -> str:
    """Return the rate at which a checkpoint was created, as text."""
    return f"{checkpoint.rate:,.0f}" if checkpoint.rate else "-"


def of_events(batches: Batches) -> Iterator[str]:
    """Yield the values of the second table for micro-batches of one size."""
    yield from (f"{batches.events:,.0f}", f"{batches.ms:,.0f}")
    yield from (
        f"{batches.ms * 1000 / batches.events:,.0f}",
        f"{batches.written / batches.events:,.0f}",
    )


# --------------------------------------------------------------------------------------------------
# the topics


def topic_of(keys: int, partitions: int) -> str:
    """Return the name of the topic of inserts."""
    return f"inserts-{keys}-{partitions}"


def row_of(key: int, version: int) -> Row:
    """Return a key's row after `version` updates."""
    stamp = f"2023-11-{14 + version % 10:02d} {key % 24:02d}:{key % 60:02d}:00.123"
    name, email = f"Customer {key:08d}", f"customer.{key:08d}@example.com"
    return (
        key,
        name,
        email,
        _CITIES[key % len(_CITIES)],
        f"{key % 1_000_000}.{version % 100:02d}",
        version,
        stamp,
        key % 2 == 0,
    )


def inserts(keys: int) -> Iterator[tuple[bytes, bytes, int]]:
    """Return an iterator over the messages that insert each key."""
    return ((*message(key, None, row_of(key, 0)), key) for key in range(1, keys + 1))


def updates(
    keys: int, versions: dict[int, int], count: int, source: random.Random
) -> Iterator[tuple[bytes, bytes, int]]:
    """Yield messages that update random keys; `versions` counts the updates of each key."""
    for number in range(count):
        key = source.randrange(keys) + 1
        before = versions.get(key, 0)
        versions[key] = before + 1
        yield *message(number, row_of(key, before), row_of(key, before + 1)), key


def write(
    servers: str, topic: str, messages: Iterable[tuple[bytes, bytes, int]], partitions: int
) -> None:
    """Write messages; those of a key go to one partition."""
    produce(servers, topic, ((key, value, number % partitions) for key, value, number in messages))


def flink_rate(kafka: LocalKafka, keys: int) -> float:
    """Return the random updates that Flink processes in a second after the inserts of all keys."""
    topic = f"flink-{keys}"
    kafka.create_topic(topic, PARTITIONS)
    for messages in (inserts(keys), updates(keys, {}, _FLINK_CHANGES, random.Random(7))):
        write(kafka.bootstrap_servers, topic, messages, PARTITIONS)
    (run,) = run_flink(
        "debezium-json", "rocksdb", kafka.bootstrap_servers, topic, left_out=keys, runs=1, warm_up=0
    )
    return _FLINK_CHANGES / run.seconds


# --------------------------------------------------------------------------------------------------
# a checkpoint


def measure(
    kafka: LocalKafka, options: argparse.Namespace, setting: Setting, events: Sequence[int]
) -> Checkpoint:
    """Create a checkpoint in one process, continue from it in another, and return their results."""
    folder = tempfile.mkdtemp(prefix="growth-")
    changes = Path(folder).name
    kafka.create_topic(changes, setting.partitions)
    try:
        place = [
            json.dumps(setting),
            kafka.bootstrap_servers,
            f"{topic_of(setting.keys, setting.partitions)},{changes}",
            folder,
        ]
        seeded = run_child(options, "seed", *place)
        continued = run_child(options, "go-on", *place, *map(str, events))
        small, *by_events = (Batches(*batches) for batches in continued["batches"])
        resident = [*seeded.pop("resident"), *continued["resident"]]
        return Checkpoint(**seeded, resident=resident, small=small, by_events=by_events)
    finally:
        shutil.rmtree(folder)


def run_child(options: argparse.Namespace, *arguments: str) -> dict[str, Any]:
    """Run a part in a new process, and return its results."""
    passed_on = {
        "batch": options.batch,
        "batches": options.batches,
        "shuffle-partitions": options.shuffle_partitions,
    }
    settings = [f"--{name}={value}" for name, value in passed_on.items()] + [
        f"--conf={setting}" for setting in options.conf
    ]
    command = [sys.executable, "-m", "bench.growth", *settings, "--child", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode:
        raise SystemExit(
            f"{' '.join(arguments)} exited with code {ran.returncode}:\n{ran.stderr[-20_000:]}"
        )
    measured: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return measured


def child(
    options: argparse.Namespace,
    what: str,
    setting: str,
    servers: str,
    topics: str,
    folder: str,
    *sizes: str,
) -> dict[str, Any]:
    """Run a part in this process, and return its results."""
    query = Query(options, Setting(*json.loads(setting)), servers, topics, Path(folder))
    return query.seed() if what == "seed" else query.go_on([CHANGES, *map(int, sizes)])


class Query:
    """Runs a query on a checkpoint in this process."""

    def __init__(
        self, options: argparse.Namespace, setting: Setting, servers: str, topics: str, folder: Path
    ) -> None:
        self.options, self.setting, self.servers, self.topics, self.folder = (
            options,
            setting,
            servers,
            topics,
            folder,
        )
        self.spark = start_session()
        use_state(self.spark, setting.store)
        self.spark.conf.set("spark.sql.shuffle.partitions", options.shuffle_partitions)
        for setting in options.conf:
            name, _, value = setting.partition("=")
            self.spark.conf.set(name, value)

    def seed(self) -> dict[str, Any]:
        """Create the checkpoint, and return the results."""
        progress, _ = self.run(self.options.batch)
        later = progress[1:]
        rate = (
            sum(batch["numInputRows"] for batch in later) / sum(map(seconds, later))
            if later
            else None
        )
        keys, resident = self.setting.keys, resident_bytes(os.getpid())
        disk = sum(files_of(self.folder).values()) / keys
        memory = (
            sum(operator["memoryUsedBytes"] for operator in progress[-1]["stateOperators"]) / keys
        )
        stored = None if self.setting.engine == NATIVE else self.stored() / keys
        return {"rate": rate, "state": stored, "disk": disk, "memory": memory, "resident": resident}

    def stored(self) -> int:
        """Return the bytes of all values in the state store."""
        values = self.spark.read.format("statestore").load(str(self.folder / "checkpoint"))
        return int(values.selectExpr("sum(length(value.groupState.state))").first()[0])

    def go_on(self, sizes: Sequence[int]) -> dict[str, Any]:
        """Run micro-batches of each size, and return the results."""
        source, versions = random.Random(7), dict[int, int]()
        measured = []
        for size in sizes:
            messages = updates(
                self.setting.keys, versions, size * (1 + self.options.batches), source
            )
            write(self.servers, self.topics.split(",")[1], messages, self.setting.partitions)
            before = files_of(self.folder)
            progress, restart = self.run(size)
            new = {
                file: length
                for file, length in files_of(self.folder).items()
                if file not in before and file.suffix in _OF_A_BATCH
            }
            events = median(batch["numInputRows"] for batch in progress[1:])
            measured.append(
                Batches(
                    events,
                    median(map(seconds, progress[1:])) * 1000,
                    sum(new.values()) / len(progress),
                    restart,
                )
            )
        return {"batches": measured, "resident": resident_bytes(os.getpid())}

    def stage(self) -> ChangelogNormalize:
        """Return the options of the stage."""
        if self.setting.engine == NATIVE:
            # The two topics are read one after the other, so that a key never comes from two tasks
            # of a micro-batch.
            return ChangelogNormalize(engine=NativeEngine(repartition=False))
        return ChangelogNormalize(key_groups=self.setting.key_groups)

    def run(self, batch: int) -> tuple[list[dict[str, Any]], float]:
        """Read all available records; return the progress of micro-batches with rows.

        The second result is the number of seconds to the end of the first micro-batch.
        """
        changes = from_kafka_changelog(
            self.spark,
            self.topics.split(","),
            format="debezium-json",
            format_options=FORMAT_OPTIONS,
            schema=SCHEMA,
            primary_key=["id"],
            options={"kafka.bootstrap.servers": self.servers, "maxOffsetsPerTrigger": batch},
            normalize=self.stage(),
        )
        mode = "update" if self.setting.engine == NATIVE else "append"
        writer = (
            changes.writeStream.format("noop")
            .outputMode(mode)
            .option("checkpointLocation", str(self.folder / "checkpoint"))
        )
        begin = time.time()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        progress = [each for each in query.recentProgress if each["numInputRows"]]
        started = datetime.fromisoformat(
            progress[0]["timestamp"].replace("Z", "+00:00")
        ).timestamp()
        return progress, started - begin + seconds(progress[0])


def seconds(batch: dict[str, Any]) -> float:
    """Return the seconds that a micro-batch took."""
    return float(batch["durationMs"]["triggerExecution"] / 1000)


def files_of(folder: Path) -> dict[Path, int]:
    """Return the sizes of the state files."""
    sizes = {}
    for file in (folder / "checkpoint" / "state").rglob("*"):
        with suppress(FileNotFoundError):  # its version was removed meanwhile
            if file.is_file():
                sizes[file] = file.stat().st_size
    return sizes


if __name__ == "__main__":
    main()
