"""Live micro-batches: records that are sent one after another, until a query has committed them.

A query that follows its topics reaches their end in every micro-batch. There a task waits for
Kafka, which a query that catches up does only in its last micro-batch (docs/speed.md).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, NamedTuple

from .spark import micro_batch, offsets_of

WAIT = "kafka.fetch.max.wait.ms"
KAFKAS_WAIT = {WAIT: "500"}
"""Kafka's default, which Spark's source uses unless a query sets another value."""
_PATIENCE = 900  # seconds
_LEFT_OUT = 1  # a round in which Java compiles


class Message(NamedTuple):
    """A record to send: its topic, key, value and partition."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int = 0


class Sender:
    """Sends records to many topics by one client.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    """

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": "all"})

    def __call__(self, messages: Iterable[Message]) -> None:
        """Send records one after another, and return when Kafka has them all."""
        failures: list[str] = []
        for each in messages:
            self._producer.produce(
                each.topic,
                each.value,
                each.key,
                each.partition,
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
            self._producer.poll(0)
        self._producer.flush()
        if failures:
            raise SystemExit(f"{len(failures)} messages could not be written: {failures[0]}")


@dataclass
class Live:
    """A running query, and the number of messages in its topics.

    Parameters
    ----------
    name : str
    query : StreamingQuery
    send : Sender
    messages : int
        Those that the topics have already.
    """

    name: str
    query: Any
    send: Sender
    messages: int

    def commit(self, messages: Sequence[Message]) -> float:
        """Return the seconds from sending the first message until all are committed."""
        begin = time.time()
        self.send(messages)
        self.messages += len(messages)
        return self.committed() - begin

    def committed(self) -> float:
        """Return when the micro-batch that has the last message ended."""
        deadline = time.time() + _PATIENCE
        while time.time() < deadline:
            if self.query.exception() is not None:
                raise self.query.exception()
            last = self.query.lastProgress
            if last is not None and _messages_until(last) >= self.messages:
                return next(
                    micro_batch(each).end
                    for each in self.query.recentProgress
                    if each["numInputRows"] and _messages_until(each) >= self.messages
                )
            time.sleep(0.02)
        raise SystemExit(
            f"{self.name} has not read {self.messages:,} messages in {_PATIENCE} s: the run is not "
            "valid"
        )

    def batches_since(self, messages: int) -> list[Any]:
        """Return the progress of the micro-batches that begin after this number of messages."""
        return [
            each
            for each in self.query.recentProgress
            if each["numInputRows"]
            and sum(sum(of.values()) for of in offsets_of(each, "startOffset").values()) >= messages
        ]


def _messages_until(progress: Any) -> int:
    return sum(sum(of.values()) for of in offsets_of(progress, "endOffset").values())


def in_turn(
    queries: Sequence[Live], rounds: int, messages_of: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Return the seconds of each query in each round, without the first one.

    Parameters
    ----------
    queries : sequence of Live
    rounds : int
    messages_of : mapping
        By the name of a query, a function that returns the messages of the next round.
    """
    seconds: dict[str, list[float]] = {each.name: [] for each in queries}
    for _ in range(_LEFT_OUT + rounds):
        for each in queries:
            seconds[each.name].append(each.commit(messages_of[each.name]()))
            time.sleep(0.2)
    return {name: of[_LEFT_OUT:] for name, of in seconds.items()}


def print_seconds(what: str, seconds: Mapping[str, Sequence[float]]) -> None:
    """Print the median of each query, and how many times as long as the first one it took."""
    first = median(next(iter(seconds.values())))
    for name, of in seconds.items():
        shown = " ".join(f"{each:.2f}" for each in of)
        times = f", {median(of) / first:.1f} times the first" if median(of) != first else ""
        print(f"{what}, {name}: {median(of):.2f} s{times} ({shown})", flush=True)


def print_durations(name: str, batches: Sequence[Any]) -> None:
    """Print where Spark spends the time of micro-batches: the median of each part, in ms."""
    parts: dict[str, list[int]] = {}
    for each in batches:
        for part, spent in each["durationMs"].items():
            parts.setdefault(part, []).append(spent)
    shown = ", ".join(f"{part} {median(spent):.0f}" for part, spent in parts.items())
    print(f"ms of a micro-batch, {name}: {shown}", flush=True)
