"""Measures the whole query, from Kafka to a consumer of all row kinds, and Apache Flink on the same topic.

Compares messages per second of a running stream. For this library, the first micro-batch of a run is excluded, because Spark starts the
query in it. For Flink, the time until all tasks are running is excluded. Both include the checkpoint at the end.

Warm-up runs are not measured. Flink starts a new process for each format and state store, while Spark uses one process for all. More
warm-up runs (``--warm-up``) therefore help Flink.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from statistics import median
from typing import Any, NamedTuple

from normalize import ChangelogNormalize, from_kafka_changelog

from .cpu import BROKER, FLINK_JVM, PYTHON_WORKERS, SPARK_JVM, cpu_seconds, microseconds, spent
from .history import SCHEMA, Expected
from .report import report
from .spark import run_stream, start_session, use_state
from .topics import broker, producer_of

Counted = tuple[dict[str, int], dict[str, int]]


class Run(NamedTuple):
    """A run of this library.

    Attributes
    ----------
    rows : list of int
        Messages of each micro-batch.
    seconds : list of float
        The duration of each micro-batch.
    counted : (dict, dict)
        Rows, and the sum of their ids, by row kind.
    cpu : dict
        CPU seconds by process, including the start of the query.
    """

    rows: list[int]
    seconds: list[float]
    counted: Counted
    cpu: dict[str, float]

    @property
    def running_seconds(self) -> float:
        """The seconds for all messages at the rate of the micro-batches after the first (of the first, if it is the only one)."""
        first = 1 if len(self.rows) > 1 else 0
        return sum(self.seconds[first:]) / sum(self.rows[first:]) * sum(self.rows)


class Side(NamedTuple):
    """The runs of one side: their seconds, and the CPU µs per message by process."""

    seconds: list[float]
    cpu: dict[str, float]


class Comparison(NamedTuple):
    """A line of the table."""

    format: str
    state: str
    messages: int
    ours: Side
    flink: Side | None


def whole(options: argparse.Namespace) -> None:
    """Measure each format with each state store, and print the table."""
    spark = start_session()
    lines = []
    with broker(options) as (servers, topic_of):
        for format in options.format:
            topic, expected = topic_of(format)
            for state in ("heap", "rocksdb") if options.state == "both" else (options.state,):
                lines.append(_compared(spark, options, format, state, servers, topic, expected))
    spark.stop()
    print("\n".join(table(lines)))


def _compared(
    spark: Any, options: argparse.Namespace, format: str, state: str, servers: str, topic: str, expected: Expected | None
) -> Comparison:
    use_state(spark, state)
    runs = [run_ours(spark, options, format, servers, topic) for _ in range(options.warm_up + options.runs)]
    counted = (dict(expected.rows), dict(expected.ids)) if expected is not None else runs[0].counted
    messages = sum(runs[0].rows)
    for run in runs:
        require_counts("this library's", run.counted, counted)
    counting = runs[options.warm_up :]
    note = f", 2 cores, {state} state, {len(runs[0].rows)} micro-batches, {options.key_groups} key groups"
    report(f"whole {format}", messages, [sum(run.seconds) for run in counting], note)
    report(f"whole {format}, after first batch", messages, [run.running_seconds for run in counting], note)
    ours = Side([run.running_seconds for run in counting], microseconds([run.cpu for run in counting], messages))
    flink = _flink(options, format, state, servers, topic, messages, counted) if options.flink else None
    print("rows by kind:", dict(sorted(counted[0].items())), "as expected" if expected is not None else "", flush=True)
    return Comparison(format, state, messages, ours, flink)


def _flink(options: argparse.Namespace, format: str, state: str, servers: str, topic: str, messages: int, counted: Counted) -> Side:
    from .flink import FLINK_VERSION, run_flink

    runs = []
    for run in run_flink(format, state, servers, topic, options.runs, options.warm_up):
        require_counts("Flink's", (run.rows, run.ids), counted)
        runs.append(run)
    seconds = [run.run_ms / 1000 for run in runs]
    report(f"Flink {FLINK_VERSION} {format}", messages, seconds, f", parallelism 2, {state} state, checkpoints {runs[-1].checkpoints}")
    return Side(seconds, microseconds([run.cpu for run in runs], messages))


def require_counts(whose: str, counted: Counted, expected: Counted) -> None:
    """Exit if a run did not count the expected rows."""
    if counted != expected:
        raise SystemExit(f"{whose} rows by kind and their sums of ids are {counted}, expected {expected}: the run is not valid")


def run_ours(spark: Any, options: argparse.Namespace, format: str, servers: str, topic: str) -> Run:
    """Run the whole query with checkpoints into a consumer that counts rows and sums ids by row kind."""
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
        format=format,
        format_options=producer_of(format).options,
        schema=SCHEMA,
        primary_key=["id"],
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": options.batch},
        normalize=ChangelogNormalize(key_groups=options.key_groups),
    )
    before = cpu_seconds()
    progress = run_stream(changes.writeStream.foreachBatch(count))
    cpu = spent(before, cpu_seconds())
    took = [batch["durationMs"]["triggerExecution"] / 1000 for batch in progress]
    return Run([batch["numInputRows"] for batch in progress], took, (rows, ids), cpu)


def table(lines: list[Comparison]) -> Iterator[str]:
    """Yield the lines of the result: the rates of both sides, then the CPU time if it is known."""
    runs, messages = len(lines[0].ours.seconds), lines[0].messages
    yield ""
    yield f"messages/s, median of {runs} runs of {messages:,} messages without warm-up; ours without each run's"
    yield "first micro-batch (unless it is the only one), Flink without the time until all tasks are running"
    yield f"{'format':<16}{'state':<9}{'ours':>10}{'Flink':>10}{'ratio':>7}  runs: ours | Flink"
    for line in lines:
        ours, flink = ([messages / seconds for seconds in side.seconds] if side else [] for side in (line.ours, line.flink))
        yield f"{line.format:<16}{line.state:<9}{median(ours):>10,.0f}" + (
            f"{median(flink):>10,.0f}{median(ours) / median(flink):>7.2f}  {_rates(ours)} | {_rates(flink)}"
            if flink
            else f"{'-':>10}{'-':>7}  {_rates(ours)}"
        )
    if not lines[0].ours.cpu:
        return
    yield ""
    yield "CPU µs per message, including the start of each run's query or job"
    parts = (SPARK_JVM, PYTHON_WORKERS, BROKER, "ours")
    yield f"{'format':<16}{'state':<9}" + "".join(f"{part:>16}" for part in (*parts, FLINK_JVM, BROKER, "Flink's"))
    for line in lines:
        theirs = _cpu(line.flink, (FLINK_JVM, BROKER)) if line.flink else ""
        yield f"{line.format:<16}{line.state:<9}{_cpu(line.ours, parts[:-1])}{theirs}"


def _rates(rates: list[float]) -> str:
    return " ".join(f"{rate:,.0f}" for rate in rates)


def _cpu(side: Side, parts: tuple[str, ...]) -> str:
    """Return the CPU of the parts and their sum; that of an existing broker is unknown."""
    shown = [f"{side.cpu[part]:>16.1f}" if part in side.cpu else f"{'-':>16}" for part in parts]
    return "".join(shown) + f"{sum(side.cpu.get(part, 0.0) for part in parts):>16.1f}"
