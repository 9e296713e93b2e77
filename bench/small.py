"""What few messages cost: a decode call, a fold, and a micro-batch of a stream.

Each figure is the median of many repetitions in a process that is warm. The decode call gets a plan
that was pickled, as a task does.
"""

from __future__ import annotations

import argparse
import pickle
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

from cdc_formats import columns, get_format
from normalize.core.changes import Block, Shape, decode_block
from normalize.core.output import Output
from normalize.core.records import Records
from normalize.decode.collectors import Blocks
from normalize.decode.decode_pass import decode_pass
from normalize.engines.key_groups import normalize
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_stage

from .cpu import PYTHON_WORKERS, SPARK_JVM
from .first_pass import batches, plan_of
from .history import FORMAT_OPTIONS, SCHEMA, events, message
from .producers import PRODUCERS
from .settings import PLAIN, changes_of
from .spark import start_session, use_state
from .steady import run_steadily
from .topics import broker

_CALLS = (1, 10, 100)
_FOLDED, _OF_A_MICRO_BATCH, _MICRO_BATCHES = 10_000, 100, 60


def small(options: argparse.Namespace) -> None:
    """Print the ms of each."""
    decode_calls(options)
    fold(options)
    micro_batches(options)


def decode_calls(options: argparse.Namespace) -> None:
    """Measure a task's decode pass for few messages, in CPU time."""
    producer = next(each for each in PRODUCERS if each.format == options.format[0])
    plan = plan_of(producer, PLAIN, options.key_groups)
    assert plan is not None
    pickled = pickle.dumps(plan)
    for count in _CALLS:
        records = list(batches(plan, [producer.write(*each) for each in events(count, 100)]))

        def decode(records: Sequence[Any] = records) -> None:
            for _ in decode_pass(
                iter(records),
                plan=pickle.loads(pickled),
                collector=Blocks,
                report=lambda notices: None,
            ):
                pass

        print(f"decode call {options.format[0]}, {count} messages: {_ms(decode, 200):.2f} ms")


def fold(options: argparse.Namespace) -> None:
    """Measure the folding of packed blocks into stored state, in CPU time."""
    table = columns(SCHEMA)
    shape = Shape(table)
    stage = make_stage(
        ChangelogNormalize(key_groups=options.key_groups), shape, ("id",), streaming=True
    )
    history = list(events(2 * options.keys + _FOLDED, options.keys))
    stored = {
        group: normalize([block], None, stage, 0)[1]
        for group, block in _blocks(history[: 2 * options.keys], shape, options.key_groups)
    }
    blocks = _blocks(history[2 * options.keys :], shape, options.key_groups)

    def fold_all() -> None:
        for group, block in blocks:
            normalize([block], stored.get(group), stage, 0)

    print(
        f"fold of {_FOLDED:,} changes into {len(blocks)} key groups of {options.keys:,} keys: "
        f"{_ms(fold_all, 20):.1f} ms"
    )


def _blocks(history: Sequence[Any], shape: Shape, key_groups: int) -> list[tuple[int, Block]]:
    decoder = get_format("debezium-json", **FORMAT_OPTIONS).decoder(
        shape.columns, unique_key=["id"]
    )
    target, offsets = Blocks(Output(shape.columns), key_groups, shape), np.arange(len(history))
    decoded = [decoder.upserts(*message(*event)) for event in history]
    target.take(Records("t", 0, offsets, offsets, [], []), decoded)
    return [
        (row["key_group"], decode_block(row["block"]))
        for batch in target.flush()
        for row in batch.to_pylist()
    ]


def micro_batches(options: argparse.Namespace) -> None:
    """Measure the last three quarters of a stream's micro-batches, each with few records."""
    spark = start_session()
    use_state(spark, options.state)
    with broker(options) as topic_of:
        topic = topic_of(options.format[0], _OF_A_MICRO_BATCH * _MICRO_BATCHES, options.keys)
        options.batch = _OF_A_MICRO_BATCH
        changes = changes_of(spark, options, options.format[0], topic, PLAIN)
        run = run_steadily(changes.writeStream.format("noop"))
    spark.stop()
    seconds = [each.end - each.begin for each in run.measured]
    of_each = {name: 1000 * spent / len(seconds) for name, spent in run.cpu.items()}
    cpu = ", ".join(f"{name} {of_each.get(name, 0):.0f}" for name in (SPARK_JVM, PYTHON_WORKERS))
    print(
        f"micro-batch of {_OF_A_MICRO_BATCH} records: {median(seconds):.3f} s (median of "
        f"{len(seconds)}); ms of CPU: {cpu}"
    )


def _ms(work: Callable[[], None], times: int) -> float:
    """Return the median CPU time of a call, in ms."""
    for _ in range(times // 10):
        work()
    spent = []
    for _ in range(times):
        begin = time.process_time()
        work()
        spent.append(time.process_time() - begin)
    return median(spent) * 1000
