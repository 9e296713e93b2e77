"""Replays a recording to a copy: the sustained rate, the lag, the cost, and whether it is right."""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.cpu import (
    FLINK_JVM,
    PYTHON_WORKERS,
    SPARK_JVM,
    CpuWatch,
    peak_bytes,
    resident_bytes,
)
from bench.soak import Sample, peaks_of_quarters, require_flat
from normalize import LocalKafka

from .conditions import violations
from .copies import by_hand, delta, iceberg, in_server
from .flink_copy import flink
from .record import Recording, say
from .replay import Player
from .results import (
    Differences,
    Result,
    Trial,
    grows,
    lags_of,
    next_rate,
    percentiles,
    quarters_of,
    report,
    require_flat_lag,
    slope,
    sustained_rate,
    verdict,
)
from .tables import TABLES
from .targets import Copy, Target

_MEMORY = (SPARK_JVM, PYTHON_WORKERS, FLINK_JVM)
WAYS = {
    "delta": ("sync_database into Delta", delta),
    "iceberg": ("sync_database into Iceberg", iceberg),
    "postgresql": ("sync_database into PostgreSQL", partial(in_server, "postgresql")),
    "mariadb": ("sync_database into MariaDB", partial(in_server, "mariadb")),
    # The JDBC connector of Flink 2 has no release for MySQL.
    "flink": ("Flink SQL's JDBC sink into PostgreSQL", flink),
    "hand": ("from_json, row_number, MERGE into Delta", by_hand),
}


def compare(options: argparse.Namespace, recording: Recording) -> list[Result]:
    """Measure each way in a process of its own, and print the report."""
    results = []
    for way in options.ways:
        # Its Spark ends with the process.
        with ProcessPoolExecutor(1, get_context("spawn"), _end_with, (os.getpid(),)) as process:
            results.append(process.submit(measured, way, options, recording).result())
    say("\n" + "\n".join(report(results)))
    return results


def _end_with(parent: int) -> None:
    """End this process when its parent is killed; its servers end with it."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def measured(way: str, options: argparse.Namespace, recording: Recording) -> Result:
    """Replay a recording to a copy, and return what was measured."""
    name, target_of = WAYS[way]
    say(f"\n{name}")
    with (
        tempfile.TemporaryDirectory(prefix="tpcc-") as folder,
        LocalKafka() as kafka,
        target_of(recording, Path(folder), options.trigger) as target,
    ):
        player = Player(recording, kafka, options.rounds)
        began = time.time()
        player.send(recording.snapshot)
        copy = target.start(kafka.bootstrap_servers, Path(folder))
        try:
            return _measured(name, options, recording, target, copy, player, began)
        finally:
            copy.stop()
            player.close()


def _measured(
    name: str,
    options: argparse.Namespace,
    recording: Recording,
    target: Target,
    copy: Copy,
    player: Player,
    began: float,
) -> Result:
    snapshot = copy.wait(player.records) - began
    say(f"snapshot: {recording.snapshot:,} records readable after {snapshot:.0f} s")
    replay = Replay(copy, player)
    # Java compiles, and the first files are written.
    first = options.at or options.rate
    replay.trial(min(player.left, round(first * options.warm_up)), first)
    trials, exhausted = ([], False) if options.at else replay.search(options)
    seconds = 60 * options.replay_minutes or options.seconds
    rate = options.at or sustained_rate(trials) / 2 or options.rate / 2
    if rate * seconds > player.left:
        rate = player.left / seconds
        say(f"{player.left:,} changes are left: measured at {rate:,.0f} changes/s")
    before = target.written()
    count = max(1, round(rate * seconds))
    with Watch() as watch:
        lags = replay.trial(count, rate)
    cpu, after = watch.spent_since(watch.begin), target.written()
    memory_of = peak_bytes()
    say(f"{rate:,.0f} changes/s for {seconds:.0f} s: {percentiles(lag for _, lag in lags)}")
    if options.replay_minutes:
        quarters = quarters_of(lags)
        say(f"lag by quarter: {'; '.join(map(str, quarters))}")
    copy.wait(replay.send_rest())
    differences, violated = check(target, recording)
    say(verdict(differences, violated))
    if options.replay_minutes:
        require_flat(peaks_of_quarters(watch.memory, seconds))
        require_flat_lag(quarters)
    return Result(
        name=name,
        snapshot_seconds=snapshot,
        trials=trials,
        exhausted=exhausted,
        rate=rate,
        lag=percentiles(lag for _, lag in lags),
        cpu={label: seconds * 1e6 / count for label, seconds in sorted(cpu.items())},
        memory={name: memory_of[name] for name in sorted(memory_of) if name in _MEMORY},
        files=None if after[0] is None or before[0] is None else after[0] - before[0],
        written=after[1] - before[1],
        changes=count,
        differences=differences,
        violations=violated,
    )


class Watch(CpuWatch):
    """A sampler of the memory and the CPU seconds below this process, within its context."""

    def __init__(self) -> None:
        super().__init__()
        self.memory: list[Sample] = []
        self.begin = time.time()

    def _sample(self) -> None:
        super()._sample()
        now = time.time() - self.begin
        self.memory.append(Sample(now, *resident_bytes(os.getpid(), now=True)))


class Replay:
    """The changes of a recording, of which each trial takes the next ones."""

    def __init__(self, copy: Copy, player: Player) -> None:
        self.copy, self.player = copy, player

    def search(self, options: argparse.Namespace) -> tuple[list[Trial], bool]:
        """Return the trials of the search, and whether the changes ended before it."""
        trials: list[Trial] = []
        reserve = options.seconds * options.rate / 4
        while (rate := next_rate(trials, options.rate)) is not None:
            count = round(rate * options.seconds)
            if count + reserve > self.player.left:
                return trials, True
            lags = self.trial(count, rate)
            trials.append(Trial(rate, not grows(lags)))
            third = [lag for lag in lags if lag[0] > lags[0][0] + options.seconds / 3]
            say(
                f"{rate:,.0f} changes/s: {percentiles(lag for _, lag in lags)}, grows by "
                f"{slope(third):.2f} s in a second"
            )
        return trials, False

    def trial(self, count: int, rate: float) -> list[tuple[float, float]]:
        """Send changes at a rate, wait until they are readable, and return times and lags."""
        first = dict(enumerate(self.player.records))
        sent = self.player.send(count, rate)
        self.copy.wait(self.player.records)
        return sorted(lags_of(sent, first, self.copy.readable()))

    def send_rest(self) -> list[int]:
        """Send all changes that are left, and return the numbers of records by table."""
        self.player.send(self.player.left)
        return self.player.records


def check(target: Target, recording: Recording) -> tuple[dict[str, Differences], dict[str, int]]:
    """Compare a copy with the source's tables, and return what differs and what is violated."""
    spark: Any = target.spark
    differences = {}
    for table in TABLES:
        truth = spark.read.parquet(str(recording.folder / "truth" / table.name))
        copied = target.table(table.name).selectExpr(
            *(f"CAST({name} AS {kind}) AS {name}" for name, kind in table.columns.items())
        )
        copied.createOrReplaceTempView(table.name)
        differences[table.name] = Differences(
            truth.count(), truth.exceptAll(copied).count(), copied.exceptAll(truth).count()
        )
    return differences, violations(lambda query: spark.sql(query).collect())
