"""CPU time per message by step: ever longer queries of one topic, for each of the settings.

The queries write into Spark's noop sink.

A step's cost is the CPU time of its query minus that of the previous query, in the JVM and in the
Python workers. All queries are streams with the same micro-batches and checkpoints, so the fixed
cost of a micro-batch appears only in the first step. The last query is `from_kafka_changelog`
itself with the consumer of `whole`. The whole runs are measured, from the start of the query.

If a step replaces the previous one, its cost is the difference. For example, the stage reuses the
shuffle of the step before, and adds the sort and the transfer to Python. ``fold`` is the stage
without the rows of earlier micro-batches; ``state`` is the cost of those rows. A difference may be
negative: it contains the noise of both queries, and a step changes the pace of the steps before it.
Read such neighbouring steps as a sum.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats import columns, get_format
from normalize.core.records import DECODE_COUNTS
from normalize.decode.collectors import Blocks
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan, needed_columns
from normalize.engines.key_groups import DDL, STATE_DDL, normalize_group, normalize_stream
from normalize.kafka.reader_options import READER_DEFAULTS
from normalize.monitoring.watch import COUNTS_DDL, observe_counts
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_stage
from normalize.worker import prepare, worker

from .cpu import PYTHON_WORKERS, SPARK_JVM, cpu_seconds, is_known, microseconds, spent
from .history import SCHEMA
from .settings import PLAIN, changes_of, settings_of
from .spark import run_stream, start_session, use_state
from .steady import KindCounter
from .topics import Topic, broker

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


class Cost(NamedTuple):
    """CPU µs per message."""

    jvm: float
    python: float


def costs(options: argparse.Namespace) -> None:
    """Measure the first format with one state store, and print the table."""
    if not is_known():
        raise SystemExit("costs are read from /proc: run the benchmark on Linux")
    state = "heap" if options.state == "both" else options.state
    spark = start_session()
    use_state(spark, state)
    measured = {}
    with broker(options) as topic_of:
        format = options.format[0]
        topic = topic_of(format, options.messages, options.keys)
        for settings in options.settings:
            runs = {
                step: partial(_into_noop, df)
                for step, df in queries(spark, options, format, topic, settings).items()
            }
            changes = changes_of(spark, options, format, topic, settings)
            runs["consumer: rows and ids by kind"] = partial(_into_counter, changes)
            measured[settings] = measure(runs, options.runs, options.warm_up)
    spark.stop()
    for settings, steps in measured.items():
        print(
            f"\nCPU µs a message: {format}, {settings}, {state} state; median of {options.runs} "
            f"runs, warm-up {options.warm_up}"
        )
        print("\n".join(table(steps)))


def queries(
    spark: Any, options: argparse.Namespace, format: str, topic: Topic, settings: str = PLAIN
) -> dict[str, DataFrame]:
    """Return the queries by the step that each adds, built as in `from_kafka_changelog`."""
    from pyspark.sql import functions as F

    chosen = settings_of(settings, format)
    source = DecodePlan(
        format=get_format(format, **chosen.format_options),
        columns=columns(SCHEMA),
        unique_key=("id",),
        metadata=chosen.metadata,
        topic=topic.name,
        key_groups=options.key_groups,
        positions=chosen.order == "source",
    )
    normalize = ChangelogNormalize(key_groups=options.key_groups, order=chosen.order)
    stage = make_stage(normalize, source.shape, source.unique_key, streaming=True)
    reader = {**READER_DEFAULTS, "subscribe": topic.name, **topic.reader_options(options.batch)}
    records = spark.readStream.format("kafka").options(**reader).load()
    records = records.select(
        *(
            F.unix_millis("timestamp").alias(name) if name == "stamp" else name
            for name in needed_columns(source)
        )
    )
    decode, ddl = (
        partial(decode_pass, plan=source, collector=Blocks),
        f"{Blocks.ddl(source.output)}, {COUNTS_DDL}",
    )
    decoded = records.mapInArrow(decode, ddl)
    blocks = observe_counts(decoded, DECODE_COUNTS, "decode")
    return {
        "Kafka read, micro-batches": records,
        "records into Python": records.mapInArrow(_read, ddl),
        "decode": records.mapInArrow(partial(_discard, of=decode), ddl),
        "blocks out of Python": decoded,
        "shuffle": blocks.repartition("key_group"),
        "blocks into the stage": _grouped(blocks, _read_group),
        "fold": _grouped(blocks, partial(_fold_group, stage=stage)),
        "state": _grouped(blocks, partial(_keep_group, stage=stage)),
        "rows out of the stage": _grouped(blocks, partial(normalize_group, stage=stage)),
        "typing": normalize_stream(blocks, stage, source.output, "normalize"),
    }


def _grouped(blocks: DataFrame, function: Callable[..., Iterator[Any]]) -> DataFrame:
    from pyspark.sql.streaming.state import GroupStateTimeout

    return blocks.groupBy("key_group").applyInPandasWithState(
        function, DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout
    )


def _read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Read a task's records and return no rows."""
    with worker():
        yield from _discard(batches, iter)


def _discard(
    batches: Iterator[pa.RecordBatch],
    of: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> Iterator[Any]:
    """Run a pass and return no rows."""
    for _ in of(batches):
        pass
    yield from ()


def _read_group(key: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
    prepare()
    for _ in frames:
        pass
    yield from ()


def _keep_group(key: Any, frames: Iterator[Any], state: Any, *, stage: Any) -> Iterator[Any]:
    """Run the stage and return no rows."""
    for _ in normalize_group(key, frames, state, stage=stage):
        pass
    yield from ()


def _fold_group(key: Any, frames: Iterator[Any], state: Any, *, stage: Any) -> Iterator[Any]:
    """Run the stage on each micro-batch without earlier state and return no rows."""
    yield from _keep_group(key, frames, _Forgetting(state), stage=stage)


class _Forgetting:
    """A group's state that is always empty."""

    exists = False

    def __init__(self, state: Any) -> None:
        self._state = state

    def getCurrentProcessingTimeMs(self) -> int:  # noqa: N802
        return int(self._state.getCurrentProcessingTimeMs())

    def update(self, value: Any) -> None:
        pass


def _into_noop(df: DataFrame) -> int:
    return sum(batch.messages for batch in run_stream(df.writeStream.format("noop")))


def _into_counter(changes: DataFrame) -> int:
    return sum(
        batch.messages for batch in run_stream(changes.writeStream.foreachBatch(KindCounter()))
    )


def measure(queries: dict[str, Callable[[], int]], runs: int, warm_up: int) -> dict[str, Cost]:
    """Return each query's cost, the median of its runs; a query returns how many messages it read.

    The queries take turns, so that changes over time (compilation in Java, other load on the
    machine) affect all of them. The first turns are not measured.
    """
    messages = dict.fromkeys(queries, 0)
    seconds: dict[str, list[dict[str, float]]] = {step: [] for step in queries}
    for _ in range(warm_up + runs):
        for step, query in queries.items():
            before = cpu_seconds()
            messages[step] = query()
            seconds[step].append(spent(before, cpu_seconds()))
    of_message = {
        step: microseconds(spans[warm_up:], messages[step]) for step, spans in seconds.items()
    }
    return {
        step: Cost(cpu.get(SPARK_JVM, 0.0), cpu.get(PYTHON_WORKERS, 0.0))
        for step, cpu in of_message.items()
    }


def table(measured: dict[str, Cost]) -> Iterator[str]:
    """Yield the lines of the table: the cost that each step adds to the previous query."""
    yield f"{'step':<32}{'JVM':>8}{'Python':>8}{'both':>8}"
    before = Cost(0.0, 0.0)
    for step, cost in measured.items():
        yield _line(step, cost.jvm - before.jvm, cost.python - before.python)
        before = cost
    yield _line("all", *before)


def _line(step: str, jvm: float, python: float) -> str:
    return f"{step:<32}{jvm:>8.1f}{python:>8.1f}{jvm + python:>8.1f}"
