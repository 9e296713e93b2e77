"""The benchmark's topic: a table's history by one producer, on a local or an existing broker."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from normalize import LocalKafka
from normalize.local_kafka import ProducerRecord

from .history import Expected, events
from .producers import PRODUCERS, Producer

PARTITIONS = 4
FORMATS = ("debezium-json", "upsert-kafka", "canal-json", "maxwell-json")
"""The formats of the whole-query benchmark, which Flink also reads."""


class Topic(NamedTuple):
    """A topic: broker, name, expected counts by `ChangelogNormalize.order` (none if it existed)."""

    servers: str
    name: str
    expected: dict[str, Expected]

    def reader_options(self, batch: int) -> dict[str, Any]:
        """Return the options of Spark's Kafka source for micro-batches of so many messages."""
        # Spark rounds the share of each partition down. Without the addition, the last micro-batch
        # would have only a few messages.
        return {
            "kafka.bootstrap.servers": self.servers,
            "maxOffsetsPerTrigger": str(batch + PARTITIONS),
        }


@contextmanager
def broker(options: argparse.Namespace) -> Iterator[Callable[..., Topic]]:
    """Provide a function that returns a format's topic: an existing one, or a new one.

    A new topic has a number of messages and keys.
    """
    if options.topic:
        yield lambda *_: Topic(options.servers, options.topic, {})
        return
    with LocalKafka() as kafka:
        yield partial(_written, kafka)


def producer_of(format: str) -> Producer:
    """Return the producer of a format's messages."""
    return next(producer for producer in PRODUCERS if producer.format == format)


def _written(kafka: LocalKafka, format: str, messages: int, keys: int) -> Topic:
    name, expected = (
        f"bench-{format}-{messages}",
        {order: Expected(order) for order in ("arrival", "source")},
    )
    print(f"writing {messages:,} messages of {format} ...", file=sys.stderr)
    kafka.create_topic(name, partitions=PARTITIONS)
    kafka.produce(name, records(producer_of(format), messages, keys, *expected.values()))
    return Topic(kafka.bootstrap_servers, name, expected)


def produce(
    servers: str,
    topic: str,
    messages: Iterable[tuple[bytes, bytes, int]],
    options: Mapping[str, str] | None = None,
) -> None:
    """Write keys and values to partitions of a topic of an existing broker."""
    import confluent_kafka

    failures: list[str] = []
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "max.in.flight": 1,
            "linger.ms": 50,
            **(options or {}),
        }
    )
    for key, value, partition in messages:
        while True:
            with suppress(BufferError):
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=lambda error, _: failures.append(str(error)) if error else None,
                )
                break
            producer.poll(0.1)
        producer.poll(0)
    producer.flush()
    if failures:
        raise SystemExit(f"{len(failures)} messages could not be written to {topic}: {failures[0]}")


def records(
    producer: Producer, messages: int, keys: int, *expected: Expected
) -> Iterator[ProducerRecord]:
    """Yield the history's records, and count the expected rows."""
    for number, before, after in events(messages, keys):
        key = (after or before or ())[0]
        for each in expected:
            each.take(number, key, after)
        # Some producers write no Kafka key, but all can keep a row's events in one partition.
        yield ProducerRecord(*producer.write(number, before, after), partition=key % PARTITIONS)
