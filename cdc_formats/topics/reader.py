"""Reading of topics by assignment: it joins no consumer group, and stores or commits no offset.

Reading therefore has no side effects.

The client's configuration has a ``group.id`` because librdkafka requires one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from difflib import get_close_matches
from types import TracebackType
from typing import Any

from cdc_formats.errors import MissingDependencyError, SampleError, UnknownTopicError

from .client import (
    INSTALL,
    REMEDY,
    UNAVAILABLE,
    UNKNOWN_TOPIC,
    BrokerErrors,
    refused_property,
    typed_error,
)
from .encodings import SampledRecord

READ_ONLY = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
"""Options of a consumer that has no side effects and reports the end of a partition."""
_DEFAULTS = {
    "group.id": "cdc",
    "isolation.level": "read_uncommitted",  # as Spark's source
    "fetch.wait.max.ms": 20,  # another read would wait for the end of one at the topic's end
    # The errors here contain what librdkafka logs; its log would repeat the servers' names.
    "log_level": 0,
}
_MOST_RECORDS = 1000
_POLL_SECONDS = 0.2  # the longest delay of Ctrl-C, and of a single record
_TRY_SECONDS = 0.5  # Ctrl-C has no effect inside the client
_DOWN_SECONDS = 3.0  # a broker that restarts may be back by then


class KafkaReader:
    """A Kafka client that reads topics; close it, or use it in a ``with`` statement.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    config : mapping
        Further options of librdkafka.
    remedy : str
        What to do if no broker answers, for errors.

    Raises
    ------
    ArgumentError
        When the client refuses an option. Errors never contain an option's value.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    """

    def __init__(self, servers: str, config: Mapping[str, Any], *, remedy: str = REMEDY) -> None:
        try:
            import confluent_kafka
        except ImportError as error:
            raise MissingDependencyError(
                f"reading Kafka requires confluent-kafka: {INSTALL}"
            ) from error
        self._kafka: Any = confluent_kafka
        self.brokers, self.remedy = BrokerErrors(config.get("error_cb")), remedy
        options = {
            **_DEFAULTS,
            **config,
            "bootstrap.servers": servers,
            **READ_ONLY,
            "error_cb": self.brokers.hear,
        }
        try:
            self._consumer = confluent_kafka.Consumer(options)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise refused_property(error, config) from None

    def __enter__(self) -> KafkaReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the client."""
        self._consumer.close()

    def topics(self, pattern: re.Pattern[str], seconds: float) -> list[str]:
        """Return the topics whose whole names match a pattern, sorted.

        Raises
        ------
        KafkaUnavailableError, LoginRefusedError, TlsError, SampleError
        """
        return sorted(
            name
            for name in self._metadata(None, pattern.pattern, seconds)
            if pattern.fullmatch(name)
        )

    def partitions(self, topic: str, seconds: float) -> list[int]:
        """Return the partitions of a topic, sorted.

        Raises
        ------
        UnknownTopicError
            When the topic does not exist, or the user may not see it; the text has similar names.
        KafkaUnavailableError, LoginRefusedError, TlsError, SampleError
        """
        described = self._metadata(topic, topic, seconds)[topic]
        if described.error is None:
            return sorted(described.partitions)
        if described.error.name() not in UNKNOWN_TOPIC:
            raise self._typed(described.error, topic)
        similar = get_close_matches(topic, self._metadata(None, topic, seconds), n=3)
        hint = f". Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
        raise UnknownTopicError(
            f"topic {topic!r} does not exist, or this user may not see it "
            f"({described.error.name()}){hint}"
        )

    def offsets(self, topic: str, partition: int, seconds: float) -> tuple[int, int]:
        """Return the first offset of a partition, and the one after the last.

        Raises
        ------
        KafkaUnavailableError, SampleError
        """
        low, high = self._asked(
            topic,
            self._consumer.get_watermark_offsets,
            self._kafka.TopicPartition(topic, partition),
            timeout=seconds,
        )
        return low, high

    def offsets_at(
        self, topic: str, partitions: Collection[int], timestamp_ms: int, seconds: float
    ) -> dict[int, int]:
        """Return each partition's first offset at a time or later, without those that have none.

        Raises
        ------
        KafkaUnavailableError, SampleError
        """
        times = [
            self._kafka.TopicPartition(topic, partition, timestamp_ms) for partition in partitions
        ]
        places = self._asked(topic, self._consumer.offsets_for_times, times, timeout=seconds)
        return {place.partition: place.offset for place in places if place.offset >= 0}

    def batches(
        self, topic: str, begins: Mapping[int, int], ends: Mapping[int, int] | None
    ) -> Iterator[list[SampledRecord]]:
        """Return the records in batches, one every few tenths of a second; a batch may be empty.

        Parameters
        ----------
        topic : str
        begins : mapping
            The first offset to read, by partition.
        ends : mapping or None
            The offset to stop before, by partition. None: continue after the topic's end.

        Raises
        ------
        UnknownTopicError, SampleError
        """
        at = {
            partition: begin
            for partition, begin in begins.items()
            if ends is None or begin < ends[partition]
        }
        places = [
            self._kafka.TopicPartition(topic, partition, begin) for partition, begin in at.items()
        ]
        if places:
            self._consumer.assign(places)
        while at:
            if ends is None:
                yield self._consume(topic, _MOST_RECORDS)[0]
            else:
                yield self._consume_until(topic, at, ends)

    def _consume_until(
        self, topic: str, at: dict[int, int], ends: Mapping[int, int]
    ) -> list[SampledRecord]:
        """Return records before the ends; `at` has the next offset of each unfinished partition."""
        records, ended = self._consume(
            topic,
            min(_MOST_RECORDS, sum(ends[partition] - offset for partition, offset in at.items())),
        )
        records = [record for record in records if record.partition in at]
        # The last offsets of a compacted topic may have no record.
        ended |= {
            record.partition for record in records if record.offset >= ends[record.partition] - 1
        }
        records = [record for record in records if record.offset < ends[record.partition]]
        at |= {record.partition: record.offset + 1 for record in records}
        for partition in ended & at.keys():
            # After `pause`, a partition that is assigned again may stay paused: librdkafka#5591.
            self._consumer.incremental_unassign([self._kafka.TopicPartition(topic, partition)])
            del at[partition]
        return records

    def _consume(self, topic: str, most: int) -> tuple[list[SampledRecord], set[int]]:
        """Return records, and the partitions that were read to their end."""
        records: list[SampledRecord] = []
        ended: set[int] = set()
        messages: list[Any] = _interruptible(self._consumer.consume, most, timeout=_POLL_SECONDS)
        for message in messages:
            error = message.error()
            if error is None:
                records.append(_record(message))
            elif error.name() == "_PARTITION_EOF":
                ended.add(message.partition())
            else:
                raise self._typed(error, topic)
        return records, ended

    def _metadata(self, topic: str | None, subject: str, seconds: float) -> dict[str, Any]:
        """Return the brokers' descriptions of one topic or all.

        The client would repeat a rejected login forever; this function raises.
        """
        begin = time.monotonic()
        while True:
            try:
                topics: dict[str, Any] = self._consumer.list_topics(
                    topic, timeout=min(seconds, _TRY_SECONDS)
                ).topics
                return topics
            except self._kafka.KafkaException as error:
                _interruptible(self._consumer.poll, 0)  # lets the client report its errors
                if refusal := self.brokers.refusal():
                    raise refusal from None
                waited = time.monotonic() - begin
                down = self.brokers.all_down and waited >= _DOWN_SECONDS
                if error.args[0].name() not in UNAVAILABLE or down or waited >= seconds:
                    raise self._typed(error.args[0], subject) from None

    def _asked(self, topic: str, call: Callable[..., Any], *args: Any, **more: Any) -> Any:
        try:
            return call(*args, **more)
        except self._kafka.KafkaException as error:
            raise self._typed(error.args[0], topic) from None

    def _typed(self, error: Any, topic: str) -> SampleError:
        return typed_error(error, topic, remedy=self.remedy, brokers=self.brokers)


def _interruptible(call: Callable[..., Any], *args: Any, **more: Any) -> Any:
    """Call the client, and raise KeyboardInterrupt for a Ctrl-C during a callback.

    The client turns such a Ctrl-C into a SystemError.
    """
    try:
        return call(*args, **more)
    except SystemError as error:
        raise KeyboardInterrupt from error


def _record(message: Any) -> SampledRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    _, timestamp = message.timestamp()
    return SampledRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        timestamp,
        message.key(),
        message.value(),
        headers,
    )
