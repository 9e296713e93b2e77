"""A process that writes a recording into Kafka at a set rate."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from normalize import LocalKafka

from .record import Recording
from .servers import PREFIX
from .tables import TABLES

TOPICS = [f"{PREFIX}.{table.name}" for table in TABLES]
"""The topics of the replay, one of one partition for each table."""


class Player:
    """Writes the records of a recording in their order.

    Parameters
    ----------
    recording : Recording
    kafka : LocalKafka
    rounds : int, optional
        How many times the changes are written, as by a connector that starts again from an older
        position. The last message of each key is the same in each round, and so are the rows.

    Attributes
    ----------
    sent : int
        The number of records that are written.
    records : list of int
        The same by table.
    """

    def __init__(self, recording: Recording, kafka: LocalKafka, rounds: int = 1) -> None:
        for topic in TOPICS:
            kafka.create_topic(topic)
        self.sent, self.records = 0, [0] * len(TABLES)
        self._all = recording.snapshot + recording.changes * rounds
        # Not forked: the Kafka client has threads. Another process, so that Python's lock is free.
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_play,
            args=(recording.folder, rounds, kafka.bootstrap_servers, theirs),
            daemon=True,
        )
        self._process.start()

    @property
    def left(self) -> int:
        """The number of records that are not written yet."""
        return self._all - self.sent

    def begin(self, records: int, rate: float | None = None) -> None:
        """Begin to write so many records, at a rate in a second; by default, all at once."""
        self._pipe.send((records, rate))

    def end(self) -> dict[int, Sequence[float]]:
        """Wait until they are written, and return when each was sent, by table."""
        times: dict[int, Sequence[float]] = self._pipe.recv()
        for table, each in times.items():
            self.records[table] += len(each)
            self.sent += len(each)
        return times

    def send(self, records: int, rate: float | None = None) -> dict[int, Sequence[float]]:
        """Write so many records, and return when each was sent, by table."""
        self.begin(records, rate)
        return self.end()

    def close(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join()


def _play(folder: Path, rounds: int, servers: str, pipe: Connection) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {"bootstrap.servers": servers, "acks": "all", "max.in.flight": 1, "linger.ms": 5}
    )
    for topic in TOPICS:
        producer.list_topics(topic, timeout=60)
    recording = Recording.of(folder)
    again = (islice(recording.records(), recording.snapshot, None) for _ in range(1, rounds))
    records = chain(recording.records(), *again)
    with suppress(EOFError):
        while True:
            count, rate = pipe.recv()
            times: dict[int, Any] = {}
            for table, key, value in _paced(islice(records, count), rate, producer):
                times.setdefault(table, array("d")).append(time.time())
                _produce(producer, TOPICS[table], key, value)
            if producer.flush(60):
                raise SystemExit("records could not be written to Kafka")
            pipe.send(times)


def _paced(records: Iterator[Any], rate: float | None, producer: Any) -> Iterator[Any]:
    begin = time.time()
    for number, record in enumerate(records):
        if rate:
            while (early := begin + number / rate - time.time()) > 0:
                producer.poll(0)
                time.sleep(min(early, 0.05))
        yield record


def _produce(producer: Any, topic: str, key: bytes | None, value: bytes | None) -> None:
    while True:
        with suppress(BufferError):
            producer.produce(topic, value, key, 0)
            break
        producer.poll(0.1)
