"""What few messages cost: a decode call, a fold, and a live micro-batch.

Each figure is the median of many repetitions in a process that is warm. The decode call gets a plan
that was pickled, as a task does. The messages of a live micro-batch are sent one after another, and
its seconds are those until they are committed.
"""

from __future__ import annotations

import argparse
import pickle
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, product
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from cdc_formats import columns, get_format
from normalize import LocalKafka, from_kafka_changelog
from normalize.core.changes import Block, Shape, decode_block
from normalize.core.output import Output
from normalize.core.records import Records
from normalize.decode.collectors import Blocks
from normalize.decode.decode_pass import decode_pass
from normalize.engines.key_groups import normalize
from normalize.kafka.reader_options import READER_DEFAULTS
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_stage

from .by_hand import FORMAT, by_delta_rs, delta, merged, require_table, synced_into
from .first_pass import batches, plan_of
from .history import FORMAT_OPTIONS, SCHEMA, Expected, events, message
from .live import KAFKAS_WAIT, WAIT, Live, Message, Sender, in_turn, print_durations, print_seconds
from .producers import PRODUCERS
from .settings import PLAIN
from .spark import start_session, use_state
from .steady import Counts, require_counts
from .topics import producer_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_CALLS = (1, 10, 100)
_FOLDED, _OF_A_MICRO_BATCH, _BEFORE = 10_000, 100, 2_000
_PARTITIONS, _ROUNDS = (1, 4, 50), 4


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
    """Measure live micro-batches: from sending few records until each way has committed them.

    The topics have 1, 4 and 50 partitions. Each way reads with this library's default of
    ``kafka.fetch.max.wait.ms``, and with Kafka's.
    """
    spark = start_session(delta=True)
    use_state(spark, options.state)
    with LocalKafka() as kafka, tempfile.TemporaryDirectory(prefix="bench-small-") as folder:
        for number, (partitions, (name, way)) in enumerate(product(_PARTITIONS, _WAYS.items())):
            title = f"{_OF_A_MICRO_BATCH} records in {partitions} partitions, {name}"
            _live(spark, kafka, Path(folder, f"live{number}"), title, partitions, way, options.keys)
    spark.stop()


def _live(
    spark: SparkSession,
    kafka: LocalKafka,
    folder: Path,
    title: str,
    partitions: int,
    way: Callable[..., DataStreamWriter],
    keys: int,
) -> None:
    """Print the seconds of one way with both values of the option, in turn."""
    queries, topics = [], {}
    for name, wait in (("default", {WAIT: READER_DEFAULTS[WAIT]}), ("500", KAFKAS_WAIT)):
        topic = topics[name] = _Topic(f"{folder.name}-{name}", partitions, keys)
        kafka.create_topic(topic.name, partitions=partitions)
        send = Sender(kafka.bootstrap_servers)
        send(topic.messages(_BEFORE))
        of_kafka = {"kafka.bootstrap.servers": kafka.bootstrap_servers, **wait}
        writer = way(spark, topic, of_kafka, folder / name)
        query = writer.option("checkpointLocation", str(folder / name / "checkpoint")).start()
        queries.append(Live(name, query, send, _BEFORE))
        queries[-1].committed()
    of_round = {name: partial(topic.messages, _OF_A_MICRO_BATCH) for name, topic in topics.items()}
    print_seconds(title, in_turn(queries, _ROUNDS, of_round))
    for each in queries:
        print_durations(each.name, each.batches_since(_BEFORE)[2:])
        each.query.stop()
        topics[each.name].check(spark, folder / each.name / "lake")


def _stage(
    spark: SparkSession, topic: _Topic, of_kafka: dict[str, str], folder: Path
) -> DataStreamWriter:
    changes = from_kafka_changelog(
        spark,
        topic.name,
        format=FORMAT,
        format_options=producer_of(FORMAT).options,
        schema=SCHEMA,
        primary_key="id",
        options=of_kafka,
    )
    return changes.writeStream.foreachBatch(topic.counter)


def _by_hand(
    spark: SparkSession, topic: _Topic, of_kafka: dict[str, str], folder: Path
) -> DataStreamWriter:
    reader = spark.readStream.format("kafka").options(
        subscribe=topic.name, startingOffsets="earliest", **of_kafka
    )
    return merged(spark, reader.load(), delta(f"{folder}/lake"))


_WAYS: dict[str, Callable[..., DataStreamWriter]] = {
    "the stage": _stage,
    "sync_table by delta-rs": lambda spark, topic, of_kafka, folder: synced_into(
        spark, topic.name, of_kafka, by_delta_rs(f"{folder}/lake"), str(folder)
    ),
    "sync_table by Spark": lambda spark, topic, of_kafka, folder: synced_into(
        spark, topic.name, of_kafka, delta(f"{folder}/lake"), str(folder)
    ),
    "MERGE by hand": _by_hand,
}


@dataclass
class _Topic:
    """A topic of one table's history, and what a way must have made of it."""

    name: str
    partitions: int
    keys: int
    expected: Expected = field(default_factory=Expected)
    counter: RowCounter = field(default_factory=lambda: RowCounter())

    def __post_init__(self) -> None:
        self._events = events(1_000_000, self.keys)

    def messages(self, count: int) -> list[Message]:
        """Return the next messages of the history."""
        write, messages = producer_of(FORMAT).write, []
        for number, before, after in islice(self._events, count):
            key = (after or before or ())[0]
            self.expected.take(number, key, after)
            messages.append(
                Message(self.name, *write(number, before, after), partition=key % self.partitions)
            )
        return messages

    def check(self, spark: SparkSession, lake: Path) -> None:
        """Exit if the way's table, or its changelog, does not have the expected rows."""
        if self.counter.rows:
            require_counts("the stage's", self.counter.counts, self.expected.counts)
        else:
            require_table("the table's", spark, f"delta.`{lake}/table`", self.expected)


@dataclass
class RowCounter:
    """A consumer that collects few rows, and counts them and sums their ids by row kind."""

    rows: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> Counts:
        """The rows, and the sum of their ids, by row kind."""
        return dict(self.rows), dict(self.ids)

    def __call__(self, batch: Any, number: int) -> None:
        """Count a micro-batch."""
        for row in batch.select("row_kind", "id").toArrow().to_pylist():
            self.rows[row["row_kind"]] += 1
            self.ids[row["row_kind"]] += row["id"]


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
