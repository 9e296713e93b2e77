"""The benchmark's topic: one table's history in one producer's messages, on a local or an existing broker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from normalize import LocalKafka
from normalize.local_kafka import ProducerRecord

from .history import Expected, events
from .producers import PRODUCERS, Producer

PARTITIONS = 4
FORMATS = ("debezium-json", "upsert-kafka", "canal-json", "maxwell-json")
"""The formats of the whole-query benchmark, which Flink also reads."""

Topic = tuple[str, "Expected | None"]


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[str], Topic]]]:
    """Provide a broker's servers, and a function that returns a format's topic with the expected counts."""
    if options.topic:
        yield options.servers, lambda _: (options.topic, None)
        return
    with LocalKafka() as kafka:
        yield kafka.bootstrap_servers, lambda format: _written(kafka, format, options)


def producer_of(format: str) -> Producer:
    """Return the producer of a format's messages."""
    return next(producer for producer in PRODUCERS if producer.format == format)


def _written(kafka: LocalKafka, format: str, options: argparse.Namespace) -> Topic:
    topic, expected = f"bench-{format}", Expected()
    print(f"writing {options.messages:,} messages of {format} ...", file=sys.stderr)
    kafka.create_topic(topic, partitions=PARTITIONS)
    kafka.produce(topic, records(producer_of(format), options.messages, options.keys, expected))
    return topic, expected


def records(producer: Producer, messages: int, keys: int, expected: Expected) -> Iterator[ProducerRecord]:
    """Yield the history's records, and count the expected rows."""
    for number, before, after in events(messages, keys):
        key = (after or before or ())[0]
        expected.take(key, after)
        # Some producers write no Kafka key, but all can keep a row's events in one partition.
        yield ProducerRecord(*producer.write(number, before, after), partition=key % PARTITIONS)
