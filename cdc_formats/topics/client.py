"""A client of Kafka: its errors, the brokers' descriptions of topics, and the reader of records."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from difflib import get_close_matches
from types import TracebackType
from typing import Any, NamedTuple

from cdc_formats.errors import (
    ArgumentError,
    KafkaUnavailableError,
    LoginRefusedError,
    MissingDependencyError,
    SampleError,
    TlsError,
    UnknownTopicError,
)

from .sampler import SampledRecord

UNAVAILABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")
"""Names of Kafka's errors when no broker answers."""
UNKNOWN_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION")
INSTALL = "pip install 'pyspark-kafka-changelog[kafka]'"
REMEDY = "check bootstrap.servers, and how the client connects to them"

_REASONS = {
    "Connection refused": "the connection was refused",
    "Failed to resolve": "the host name is unknown",
    "SSL handshake failed": "the TLS handshake failed, as with a listener without TLS",
    "ApiVersion": "the broker ended the connection, as with a wrong security.protocol",
}
"""Parts of librdkafka's texts, and what they mean. The texts themselves are omitted: they may
contain a broker's answer."""


class BrokerErrors:
    """The errors of its brokers that a client reports, by callback.

    Parameters
    ----------
    listener : callable or None
        Receives each error, too.
    """

    def __init__(self, listener: Callable[[Any], None] | None = None) -> None:
        self.listener = listener
        self.names: set[str] = set()
        self.reasons: dict[str, None] = {}

    def hear(self, error: Any) -> None:
        """Receive an error; the client's ``error_cb``."""
        self.names.add(error.name())
        self.reasons |= {reason: None for part, reason in _REASONS.items() if part in error.str()}
        if self.listener is not None:
            self.listener(error)

    @property
    def all_down(self) -> bool:
        """Whether no broker could be reached at some time."""
        return "_ALL_BROKERS_DOWN" in self.names

    def refusal(self) -> SampleError | None:
        """Return the error of a refused login or certificate; None if there is none.

        The client would retry such a login or certificate forever.
        """
        if "_AUTHENTICATION" in self.names:
            return LoginRefusedError(
                "Kafka refused the login (_AUTHENTICATION): check security.protocol and sasl.*"
            )
        if "_SSL" in self.names:
            return TlsError(
                "Kafka refuses the connection (_SSL): check security.protocol and ssl.*"
            )
        return None


def refused_property(error: Exception, config: Mapping[str, Any]) -> ArgumentError:
    """Return the error for a client that cannot be created, with the property but not its value."""
    named = [name for name in (*config, "bootstrap.servers") if f'"{name}"' in str(error)]
    return ArgumentError(
        f"the Kafka client refuses a property: {', '.join(named) or type(error).__name__}"
    )


def typed_error(
    error: Any, topic: str, *, remedy: str = REMEDY, brokers: BrokerErrors | None = None
) -> SampleError:
    """Return a Kafka error as a `SampleError` with the error's name.

    The error's text is omitted, since it may contain a broker's answer.

    Parameters
    ----------
    error : KafkaError
    topic : str
    remedy : str
        What to do if no broker answers.
    brokers : BrokerErrors or None
        What the client reported about its brokers.
    """
    name = error.name()
    if name in UNKNOWN_TOPIC:
        return UnknownTopicError(
            f"topic {topic!r} does not exist, or this user may not see it ({name})"
        )
    if name in UNAVAILABLE:
        reasons = "".join(f"; {reason}" for reason in (brokers.reasons if brokers else ()))
        return KafkaUnavailableError(f"no Kafka broker answered ({name}{reasons}): {remedy}")
    return SampleError(f"Kafka does not allow reading {topic}: {name}")


class TopicDescription(NamedTuple):
    """A topic as the brokers describe it.

    Attributes
    ----------
    topic_id : str
        Changes when a topic is deleted and created again; empty on brokers before Kafka 2.8.
    partitions : int
        The number of partitions.
    """

    topic_id: str
    partitions: int


# --------------------------------------------------------------------------------------------------
# Values of environment variables, which keep secrets out of files and command lines.


def from_environment(name: str, value: str) -> str:
    """Return a value; of ``env:NAME``, the environment variable's.

    Parameters
    ----------
    name : str
        The option whose value it is, for the error.
    value : str

    Raises
    ------
    ArgumentError
        When the environment variable is not set.
    """
    variable = re.fullmatch(r"env:([A-Za-z_]\w*)", value, re.ASCII)
    if variable is None:
        return value
    if variable[1] not in os.environ:
        raise ArgumentError(
            f"{name} refers to the environment variable {variable[1]}, which is not set"
        )
    return os.environ[variable[1]]


# --------------------------------------------------------------------------------------------------
# Reading of topics by assignment: it joins no consumer group, and stores or commits no offset.
#
# Reading therefore has no side effects.
#
# The client's configuration has a ``group.id`` because librdkafka requires one.

READ_ONLY = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
"""Options of a consumer that has no side effects and reports the end of a partition."""
_MOST_RECORDS = 1000
_POLL_SECONDS = 0.2  # the longest delay of Ctrl-C, and of a single record
_TRY_SECONDS = 0.5  # Ctrl-C has no effect inside the client
_DOWN_SECONDS = 3.0  # a broker that restarts may be back by then


def topic_settings(client: Any, topic: str, seconds: float) -> Any:
    """Ask for the settings of a topic, and return the future of them by name.

    Parameters
    ----------
    client : confluent_kafka.admin.AdminClient
    topic : str
    seconds : float
        The timeout of the request.
    """
    from confluent_kafka.admin import ConfigResource, ResourceType

    resources = [ConfigResource(ResourceType.TOPIC, topic)]
    return next(iter(client.describe_configs(resources, request_timeout=seconds).values()))


class KafkaReader(AbstractContextManager["KafkaReader"]):
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
            "group.id": "cdc",
            "isolation.level": "read_committed",  # as the queries
            # Another read would wait for the end of one at the topic's end.
            "fetch.wait.max.ms": 20,
            # The errors here contain what librdkafka logs; its log would repeat the servers' names.
            "log_level": 0,
            **config,
            "bootstrap.servers": servers,
            **READ_ONLY,
            "error_cb": self.brokers.hear,
        }
        self._connection = {**config, "bootstrap.servers": servers, "log_level": 0}
        try:
            self._consumer = confluent_kafka.Consumer(options)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise refused_property(error, config) from None

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

    def is_compacted(self, topic: str, seconds: float) -> bool | None:
        """Return whether Kafka keeps only the last record of each key of a topic in the long run.

        None if this user may not read the topic's settings.

        Raises
        ------
        KafkaUnavailableError
        """
        from confluent_kafka.admin import AdminClient

        client = AdminClient(self._connection)  # a name, since its requests end with it
        try:
            settings = topic_settings(client, topic, seconds).result(seconds)
        except self._kafka.KafkaException as error:
            if error.args[0].name() == "TOPIC_AUTHORIZATION_FAILED":
                return None
            raise self._typed(error.args[0], topic) from None
        except TimeoutError:
            raise KafkaUnavailableError(f"Kafka does not describe topic {topic!r}") from None
        return "compact" in str(settings["cleanup.policy"].value)

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
        answers = self._asked(topic, self._consumer.offsets_for_times, times, timeout=seconds)
        return {each.partition: each.offset for each in answers if each.offset >= 0}

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
        starts = [
            self._kafka.TopicPartition(topic, partition, begin) for partition, begin in at.items()
        ]
        if starts:
            self._consumer.assign(starts)
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
        for message in _interruptible(self._consumer.consume, most, timeout=_POLL_SECONDS):
            error = message.error()
            if error is None:
                records.append(
                    SampledRecord(
                        message.topic(),
                        message.partition(),
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple((name, value) for name, value in message.headers() or ()),
                    )
                )
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
