"""The whole query, Kafka to a consumer of all row kinds, compared with Flink on the same topic.

Compares messages per second of a running stream in its steady state: the first quarter of the
messages of each run is left out (`bench.steady`). Both sides include the checkpoint at the end.

Warm-up runs are not measured. Flink starts a new process for each format and state store, while
Spark uses one process for all. More warm-up runs (``--warm-up``) therefore help Flink.

``--settings`` also measures this library with the settings of a production job (`bench.settings`);
``--by-hand`` adds what a user of PySpark would write without this library (`bench.by_hand`).
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

from normalize.spark_versions import has_package

from .by_hand import Recipe, by_hand
from .cpu import BROKER, FLINK_JVM, PYTHON_WORKERS, SPARK_JVM
from .report import report
from .settings import MINI_BATCH, NATIVE, PLAIN, changes_of, settings_of
from .spark import start_session, use_state
from .steady import KindCounter, Run, Side, require_counts, run_steadily, side, side_of
from .topics import Topic, broker


class Comparison(NamedTuple):
    """A line of the table."""

    format: str
    state: str
    settings: str
    messages: int
    ours: Side
    flink: Side | None


def whole(options: argparse.Namespace) -> None:
    """Measure each format with each state store and each of the settings, and print the tables."""
    with tempfile.TemporaryDirectory(prefix="bench-lake-") as folder:
        iceberg = folder if options.by_hand and has_package("iceberg") else ""
        _whole(start_session(delta=options.by_hand, iceberg=iceberg), options)


def _whole(spark: Any, options: argparse.Namespace) -> None:
    states = ("heap", "rocksdb") if options.state == "both" else (options.state,)
    lines: list[Comparison] = []
    recipes: list[Recipe] = []
    with broker(options) as topic_of:
        for format in options.format:
            topic = topic_of(format, options.messages, options.keys)
            for state in states:
                use_state(spark, state)
                lines += _compared(spark, options, format, state, topic)
            if options.by_hand and format == "debezium-json":
                use_state(spark, states[0])
                recipes = by_hand(spark, options, topic, topic_of)
    spark.stop()
    print("\n".join(table(lines)))
    print("\n".join(recipe_table(recipes)))


def _compared(
    spark: Any, options: argparse.Namespace, format: str, state: str, topic: Topic
) -> Iterator[Comparison]:
    for settings in options.settings:
        runs, counters = [], []
        for _ in range(options.warm_up + options.runs):
            counters.append(KindCounter())
            changes = changes_of(spark, options, format, topic, settings)
            writer = changes.writeStream.foreachBatch(counters[-1])
            runs.append(
                run_steadily(writer.outputMode("update" if NATIVE in settings else "append"))
            )
        # The rows of last changes depend on the micro-batches.
        every_change = NATIVE not in settings and MINI_BATCH not in settings
        expected = topic.expected.get(settings_of(settings, format).order) if every_change else None
        counts = expected.counts if expected else counters[0].counts
        for counter in counters:
            require_counts("this library's", counter.counts, counts)
        note = f"; 2 cores, {state} state, {options.key_groups} key groups, {settings}"
        ours = side_of(f"whole {format}", runs[options.warm_up :], note)
        compare = options.flink and settings == PLAIN
        flink = _flink(options, format, state, topic, runs[-1], counters[-1]) if compare else None
        print(
            "rows by kind:",
            dict(sorted(counts[0].items())),
            "as expected" if expected else "",
            flush=True,
        )
        yield Comparison(format, state, settings, runs[0].messages, ours, flink)


def _flink(
    options: argparse.Namespace,
    format: str,
    state: str,
    topic: Topic,
    ours: Run,
    counter: KindCounter,
) -> Side:
    """Measure Flink from the row at which the measured part of this library's run begins."""
    from .flink import FLINK_VERSION, run_flink

    left_out = counter.rows_before(ours)
    runs = []
    for run in run_flink(
        format,
        state,
        topic.servers,
        topic.name,
        left_out=left_out,
        runs=options.runs,
        warm_up=options.warm_up,
    ):
        require_counts("Flink's", (run.rows, run.ids), counter.counts)
        runs.append(run)
    messages = sum(batch.messages for batch in ours.measured)
    result = side(messages, [run.seconds for run in runs], [run.cpu for run in runs])
    note = f"; parallelism 2, {state} state, {runs[-1].checkpoints} checkpoints"
    report(f"Flink {FLINK_VERSION} {format}", messages, result.seconds, note)
    started = [(run.end_ms - run.running_ms) / 1000 for run in runs]
    report(f"Flink {FLINK_VERSION} {format}, with its first quarter", ours.messages, started, note)
    return result


def table(lines: list[Comparison]) -> Iterator[str]:
    """Yield the lines of the result: the rates of both sides, then the CPU time if it is known."""
    first, width = lines[0], max(len(line.settings) for line in lines) + 2

    def names(format: str, state: str, settings: str) -> str:
        return f"{format:<16}{state:<9}{settings:<{max(width, 10)}}"

    head = names("format", "state", "settings")
    yield ""
    yield (
        f"messages/s, median of {len(first.ours.seconds)} runs of {first.messages:,} messages "
        "without warm-up runs,"
    )
    yield f"in the last {first.ours.messages:,} messages of each run"
    yield f"{head}{'ours':>10}{'Flink':>10}{'ratio':>7}  runs: ours | Flink"
    for line in lines:
        ours, flink = line.ours, line.flink
        yield f"{names(*line[:3])}{ours.rate:>10,.0f}" + (
            f"{flink.rate:>10,.0f}{ours.rate / flink.rate:>7.2f}  {_rates(ours)} | {_rates(flink)}"
            if flink
            else f"{'-':>10}{'-':>7}  {_rates(ours)}"
        )
    if not first.ours.cpu:
        return
    yield ""
    yield "CPU µs per message, in the same part of the runs"
    parts = (SPARK_JVM, PYTHON_WORKERS, BROKER, "ours")
    yield head + "".join(f"{part:>16}" for part in (*parts, FLINK_JVM, BROKER, "Flink's"))
    for line in lines:
        yield f"{names(*line[:3])}{_cpu(line.ours, parts[:-1])}" + (
            _cpu(line.flink, (FLINK_JVM, BROKER)) if line.flink else ""
        )


def recipe_table(recipes: list[Recipe]) -> Iterator[str]:
    """Yield the lines of the recipes' result."""
    if not recipes:
        return
    parts = (SPARK_JVM, PYTHON_WORKERS, BROKER, "all")
    yield ""
    yield (
        "written by hand, and this library into the same table; messages/s and CPU µs per message "
        "as above"
    )
    yield (
        f"{'recipe':<52}{'messages':>10}{'rate':>10}"
        + "".join(f"{part:>16}" for part in parts)
        + "  runs"
    )
    for recipe in recipes:
        of = recipe.side
        yield (
            f"{recipe.name:<52}{recipe.messages:>10,}{of.rate:>10,.0f}{_cpu(of, parts[:-1])}  "
            f"{_rates(of)}"
        )


def _rates(side: Side) -> str:
    return " ".join(f"{rate:,.0f}" for rate in side.rates)


def _cpu(side: Side, parts: tuple[str, ...]) -> str:
    """Return the CPU of the parts and their sum; that of an existing broker is unknown."""
    shown = [f"{side.cpu[part]:>16.1f}" if part in side.cpu else f"{'-':>16}" for part in parts]
    return "".join(shown) + f"{sum(side.cpu.get(part, 0.0) for part in parts):>16.1f}"
