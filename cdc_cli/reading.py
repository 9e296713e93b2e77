"""Reading a topic by assignment, from any place, to its end or on and on: no consumer group is joined, nothing is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import typer

from cdc_formats import kafka_client
from cdc_formats.errors import ArgumentError, KafkaUnavailableError, MissingDependencyError, SampleError
from cdc_formats.kafka_client import READ_ONLY, UNAVAILABLE, option_in

from .connection import Connection
from .records import Record
from .terminal import tell

if TYPE_CHECKING:
    from confluent_kafka import Consumer

_BATCH = 1000
_POLL_SECONDS = 0.2  # Ctrl-C waits for it, and so does a row that comes alone
_TRY_SECONDS = 0.5  # inside the client Ctrl-C is not heard
_DEFAULTS = {
    "group.id": "cdc",  # librdkafka makes no consumer without one
    "isolation.level": "read_uncommitted",  # as Spark's source
    "log_level": 0,
}
_OURS = {**READ_ONLY, "auto.offset.reset": "error"}


@dataclass(frozen=True)
class Start:
    """Where reading begins, in each partition.

    Parameters
    ----------
    offset : int
        From 0 on an offset; below 0 counted from the end, so that -10 are the last ten.
    timestamp_ms : int or None
        The first record of this time or later, in milliseconds since 1970-01-01 UTC; None: `offset` says it.
    end : bool
        Whether only what is still to come is read.
    """

    offset: int = 0
    timestamp_ms: int | None = None
    end: bool = False

    @classmethod
    def parse(cls, text: str) -> Start:
        """Read ``beginning``, ``end``, an offset, ``-N`` for the last N, or a time in ISO 8601 with its zone.

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
            moment = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" if text.endswith("Z") else text)
        except ValueError:
            raise typer.BadParameter(f"{text!r} is none of: beginning, end, an offset, -N, a time such as 2026-11-21T10:00:00Z") from None
        if moment.tzinfo is None:
            raise typer.BadParameter(f"{text!r} has no zone: end it in Z for UTC, or in an offset such as +01:00")
        return cls(timestamp_ms=round(moment.timestamp() * 1000))

    def among(self, low: int, high: int) -> int:
        """Return the offset to begin with in a partition that has those from `low` until before `high`."""
        if self.end:
            return high
        return min(max(self.offset if self.offset >= 0 else high + self.offset, low), high)


class Topic:
    """A topic that is open for reading.

    Parameters
    ----------
    connection : Connection
    name : str
    partitions : sequence of int
        Those to read; none: all.

    Raises
    ------
    UnknownTopicError
        When there is no such topic, or the user may not see it.
    KafkaUnavailableError
        When no broker answers in time.
    SampleError
        When Kafka does not let it be read.
    ArgumentError
        When it has not got a partition, or a property of the client cannot be used.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    """

    def __init__(self, connection: Connection, name: str, partitions: Sequence[int] = ()) -> None:
        self.connection, self.name = connection, name
        self._lost = False
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
                if time.monotonic() >= deadline or error.args[0].name() not in UNAVAILABLE:
                    raise typed_error(error.args[0], self.name) from None
            finally:
                _heard(self._consumer.poll, 0)  # what brokers said comes out here

    def _range(self, partition: int) -> tuple[int, int]:
        from confluent_kafka import KafkaException, TopicPartition

        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.name, partition), timeout=self.connection.timeout_seconds)
        except KafkaException as error:
            raise typed_error(error.args[0], self.name) from None
        return low, high

    def batches(self, start: Start, *, follow: bool) -> Iterator[list[Record]]:
        """Read, and give what came in some tenths of a second; nothing, where nothing came.

        Parameters
        ----------
        start : Start
        follow : bool
            Whether to go on when what was there at the beginning is read.

        Raises
        ------
        KafkaUnavailableError
            When nothing comes in time of what is there.
        UnknownTopicError, SampleError
        """
        begins = self._begins(start)
        if self.connection.verbose:
            tell("reading " + ", ".join(f"{self.name}[{partition}]@{offset}" for partition, offset in begins.items()))
        ends = {partition: high for partition, (_, high) in self.ranges.items() if follow or begins[partition] < high}
        self._assign({partition: begins[partition] for partition in ends})
        waited_since = time.monotonic()
        while ends:
            records, ended = self._consume()
            if follow and self._lost:
                tell("no Kafka broker answers: waiting for one", "yellow")
                self._lost = False
            if not follow:
                records = [record for record in records if record.offset < ends.get(record.partition, 0)]
                ended += [record.partition for record in records if record.offset == ends[record.partition] - 1]
                self._leave(ended, ends)
                if records or ended:
                    waited_since = time.monotonic()
                elif time.monotonic() - waited_since > self.connection.timeout_seconds:
                    raise KafkaUnavailableError(
                        f"no record of {self.name} came for {self.connection.timeout_seconds:g} s, and there are more"
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
        # Below 0: there is none of this time or later.
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
        """Return records, and the partitions that are at their end (the last offsets of a compacted topic may hold none)."""
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
    """Return what a call of the client returns. A Ctrl-C that falls into a callback is lost in the client, and leaves a SystemError."""
    try:
        return call(*args, **more)
    except SystemError as error:
        raise KeyboardInterrupt from error


def reach(connection: Connection, topic: str) -> None:
    """See that a topic is there and can be read, in a way that Ctrl-C ends at once.

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
        raise MissingDependencyError("Kafka is read by confluent-kafka: pip install 'pyspark-kafka-changelog[cli]'") from error
    try:
        return Consumer({**_DEFAULTS, **connection.client_config(hear), "bootstrap.servers": connection.servers, **_OURS})
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_property(error, connection) from None


def refused_property(error: Exception, connection: Connection) -> ArgumentError:
    """Return the error of a client that cannot be made: with the property's name, without its value."""
    return ArgumentError(f"the Kafka client refuses a property: {option_in(error, connection.config)}")


def typed_error(error: Any, topic: str) -> SampleError:
    """Return a Kafka error as one of ours, with the command line's remedy."""
    return kafka_client.typed_error(error, topic, remedy="check -b, and how the client connects; -v says more")
