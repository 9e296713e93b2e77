"""Reads a topic by assignment, from any position, to its end or continuously. No consumer group, no commits."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from cdc_formats.errors import ArgumentError, KafkaUnavailableError, MissingDependencyError, SampleError
from cdc_formats.topics import client as kafka_client
from cdc_formats.topics.client import READ_ONLY, UNAVAILABLE, BrokerErrors, option_in

from .connection import Connection
from .records import Record
from .terminal import print_message

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_BATCH = 1000
_POLL_SECONDS = 0.2  # the longest delay of Ctrl-C, and of a single row
_TRY_SECONDS = 0.5  # Ctrl-C has no effect inside the client
_DEFAULTS = {
    "group.id": "cdc",  # librdkafka requires one for every consumer
    "isolation.level": "read_uncommitted",  # as Spark's Kafka source
    "log_level": 0,
}
_OURS = {**READ_ONLY, "auto.offset.reset": "error"}


@dataclass(frozen=True)
class Start:
    """Where reading starts in each partition.

    Parameters
    ----------
    offset : int
        An offset; if negative, counted from the end: -10 is the last ten records.
    timestamp_ms : int or None
        Start at the first record of this time or later, in milliseconds since 1970-01-01 UTC. None: start at `offset`.
    end : bool
        Whether to read new records only.
    """

    offset: int = 0
    timestamp_ms: int | None = None
    end: bool = False

    @classmethod
    def parse(cls, text: str) -> Start:
        """Parse ``beginning``, ``end``, an offset, ``-N`` for the last N, or an ISO 8601 time with a time zone.

        Raises
        ------
        typer.BadParameter

        Examples
        --------
        >>> Start.parse("-10"), Start.parse("2026-11-21T10:00:00Z").timestamp_ms
        (Start(offset=-10, timestamp_ms=None, end=False), 1795255200000)
        """
        if text in ("beginning", "end"):
            return cls(end=text == "end")
        if text.removeprefix("-").isdecimal():
            return cls(int(text))
        try:
            # Python 3.10 reads neither Z nor a fraction of another length.
            spelled = re.sub(r"\.(\d{1,6})(?!\d)", lambda found: f".{found[1]:0<6}", re.sub(r"Z$", "+00:00", text))
            moment = datetime.fromisoformat(spelled)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a position: use beginning, end, an offset, -N, or a time such as 2026-11-21T10:00:00Z"
            ) from None
        if moment.tzinfo is None:
            raise typer.BadParameter(f"{text!r} has no time zone: append Z for UTC, or an offset such as +01:00")
        return cls(timestamp_ms=round(moment.timestamp() * 1000))

    def among(self, low: int, high: int) -> int:
        """Return the offset to start at in a partition with the offsets from `low` (included) to `high` (excluded)."""
        if self.end:
            return high
        return min(max(self.offset if self.offset >= 0 else high + self.offset, low), high)


class Topic:
    """A topic, open for reading.

    Parameters
    ----------
    connection : Connection
    name : str
    partitions : sequence of int
        The partitions to read; empty: all.

    Raises
    ------
    UnknownTopicError
        When the topic does not exist, or the user may not see it.
    LoginRefusedError, TlsError
        When Kafka refuses the login or the certificate.
    KafkaUnavailableError
        When no broker answers in time.
    SampleError
        When Kafka refuses access to the topic.
    ArgumentError
        When the topic does not have a partition, or a client property is not valid.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    """

    def __init__(self, connection: Connection, name: str, partitions: Sequence[int] = ()) -> None:
        self.connection, self.name = connection, name
        self._lost, self._errors = False, BrokerErrors()
        self._consumer = _consumer(connection, self._hear)
        try:
            known = self._partitions()
            missing = sorted(set(partitions) - set(known))
            if missing:
                raise ArgumentError(f"{name} has no partition {', '.join(map(str, missing))}; it has {', '.join(map(str, known))}")
            self.ranges = {partition: self._range(partition) for partition in sorted(partitions or known)}
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._consumer.close()

    def _hear(self, error: Any) -> None:
        self._lost = self._lost or error.name() == "_ALL_BROKERS_DOWN"
        self._errors.hear(error)

    def _partitions(self) -> list[int]:
        found = self._metadata()
        if found.error is not None:
            raise typed_error(found.error, self.name)
        return sorted(found.partitions)

    def _metadata(self) -> Any:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self.connection.timeout_seconds
        while True:
            try:
                return self._consumer.list_topics(self.name, timeout=_TRY_SECONDS).topics[self.name]
            except KafkaException as error:
                _heard(self._consumer.poll, 0)  # calls the callbacks with the brokers' errors
                if refusal := self._errors.refusal():
                    raise refusal from None
                if time.monotonic() >= deadline or error.args[0].name() not in UNAVAILABLE:
                    raise typed_error(error.args[0], self.name, self._errors) from None

    def _range(self, partition: int) -> tuple[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=self.connection.timeout_seconds)
        except KafkaException as error:
            raise typed_error(error.args[0], self.name) from None
        return low, high

    def batches(self, start: Start, *, follow: bool) -> Iterator[list[Record]]:
        """Return the records in batches, one every few tenths of a second; a batch may be empty.

        Parameters
        ----------
        start : Start
        follow : bool
            Whether to continue after the end that the topic had at the start.

        Raises
        ------
        KafkaUnavailableError
            When no record arrives in time although there are more.
        UnknownTopicError, SampleError
        """
        begins = self._begins(start)
        if self.connection.verbose:
            print_message("reading " + ", ".join(f"{self.name}[{partition}]@{offset}" for partition, offset in begins.items()))
        ends = {partition: high for partition, (_, high) in self.ranges.items() if follow or begins[partition] < high}
        self._assign({partition: begins[partition] for partition in ends})
        waited_since = time.monotonic()
        while ends:
            records, ended = self._consume()
            if follow and self._lost:
                print_message("no Kafka broker answers: waiting for one", "yellow")
                self._lost = False
            if not follow:
                records = [record for record in records if record.offset < ends.get(record.partition, 0)]
                ended += [record.partition for record in records if record.offset == ends[record.partition] - 1]
                self._leave(ended, ends)
                if records or ended:
                    waited_since = time.monotonic()
                elif time.monotonic() - waited_since > self.connection.timeout_seconds:
                    raise KafkaUnavailableError(
                        f"no record of {self.name} arrived for {self.connection.timeout_seconds:g} s, although there are more: check the "
                        "brokers, or raise --timeout"
                    )
            yield records

    def _begins(self, start: Start) -> dict[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        if start.timestamp_ms is None:
            return {partition: start.among(low, high) for partition, (low, high) in self.ranges.items()}
        asked = [TopicPartition(self.name, partition, start.timestamp_ms) for partition in self.ranges]
        try:
            found = self._consumer.offsets_for_times(asked, timeout=self.connection.timeout_seconds)
        except KafkaException as error:
            raise typed_error(error.args[0], self.name) from None
        # Negative: the partition has no record of this time or later.
        return {each.partition: each.offset if each.offset >= 0 else self.ranges[each.partition][1] for each in found}

    def _assign(self, begins: Mapping[int, int]) -> None:
        from confluent_kafka import TopicPartition

        if begins:
            self._consumer.assign([TopicPartition(self.name, partition, offset) for partition, offset in begins.items()])

    def _leave(self, ended: Sequence[int], ends: dict[int, int]) -> None:
        from confluent_kafka import TopicPartition

        left = [partition for partition in dict.fromkeys(ended) if ends.pop(partition, None) is not None]
        self._consumer.pause([TopicPartition(self.name, partition) for partition in left])

    def _consume(self) -> tuple[list[Record], list[int]]:
        """Return records, and the partitions read to the end (the last offsets of a compacted topic may have no record)."""
        records: list[Record] = []
        ended: list[int] = []
        messages: list[Any] = _heard(self._consumer.consume, _BATCH, timeout=_POLL_SECONDS)
        for message in messages:
            error = message.error()
            if error is None:
                headers = message.headers() or ()
                records.append(Record(self.name, message.partition(), message.offset(), message.key(), message.value(), headers))
            elif error.name() == "_PARTITION_EOF":
                ended.append(message.partition())
            else:
                raise typed_error(error, self.name)
        return records, ended


def _heard(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call the client. During a callback, the client turns a Ctrl-C into a SystemError: raise KeyboardInterrupt instead."""
    try:
        return call(*args, **more)
    except SystemError as error:
        raise KeyboardInterrupt from error


def check_topic(connection: Connection, topic: str) -> None:
    """Check that a topic exists and can be read; Ctrl-C ends the check at once.

    Raises
    ------
    UnknownTopicError, KafkaUnavailableError, SampleError, ArgumentError, MissingDependencyError
        As `Topic`.
    """
    with Topic(connection, topic):
        pass


def _consumer(connection: Connection, hear: Callable[[Any], None]) -> Consumer:
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingDependencyError("reading Kafka requires confluent-kafka: pip install 'pyspark-kafka-changelog[cli]'") from error
    try:
        return Consumer({**_DEFAULTS, **connection.client_config(hear), "bootstrap.servers": connection.servers, **_OURS})
    except (KafkaException, TypeError, ValueError) as error:
        # The property's name, without its value.
        raise ArgumentError(f"the Kafka client refuses a property: {option_in(error, connection.config)}") from None


def typed_error(error: Any, topic: str, heard: BrokerErrors | None = None) -> SampleError:
    """Return a Kafka error as an error of this package, with advice for the command line."""
    return kafka_client.typed_error(error, topic, remedy="check -b and the connection properties; -v prints details", heard=heard)
