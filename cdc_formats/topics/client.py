"""Errors of Kafka clients, and the brokers' descriptions of topics."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import wait
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

UNAVAILABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")
"""Names of Kafka's errors when no broker answers."""
UNKNOWN_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION")
INSTALL = "pip install 'pyspark-kafka-changelog[kafka]'"
REMEDY = "check bootstrap.servers, and how the client connects to them"

_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_DESCRIBE_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 10.0
_DOWN = "_ALL_BROKERS_DOWN"
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
        text = error.str()
        self.reasons.update(
            dict.fromkeys(reason for part, reason in _REASONS.items() if part in text)
        )
        if self.listener is not None:
            self.listener(error)

    @property
    def all_down(self) -> bool:
        """Whether no broker could be reached at some time."""
        return _DOWN in self.names

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


class TopicDescriber:
    """Returns the id and the number of partitions of each topic that exists, and their offsets.

    Its connection to the brokers stays open: the first call connects, and a later one is a request
    of a few milliseconds.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    topics : collection of str or re.Pattern
        Names, or a pattern that a whole name must match.
    config : mapping
        The connection options, with librdkafka's names.

    Raises
    ------
    MissingDependencyError, ArgumentError
    """

    def __init__(
        self,
        servers: str,
        topics: Collection[str] | re.Pattern[str],
        config: Mapping[str, Any],
    ) -> None:
        self._topics, self._brokers, self._answered = topics, BrokerErrors(), False
        self._client = _admin_client(servers, config, self._brokers)

    def __call__(self) -> dict[str, TopicDescription]:
        """Return the descriptions.

        Raises
        ------
        SampleError
        """
        from confluent_kafka import KafkaException, TopicCollection

        client, brokers, topics = self._client, self._brokers, self._topics
        if self._answered:
            # Errors since then are of the past: a broker closed an idle connection.
            client.poll(0)
            brokers.names.clear()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        subject = topics.pattern if isinstance(topics, re.Pattern) else ", ".join(topics)
        try:
            if isinstance(topics, re.Pattern):
                existing = client.list_topics(timeout=_TIMEOUT_SECONDS).topics
                topics = list(filter(topics.fullmatch, existing))
            pending = client.describe_topics(TopicCollection(list(topics))) if topics else {}
            described = {
                name: _described(client, name, future, brokers, deadline)
                for name, future in pending.items()
            }
        except KafkaException as error:
            raise typed_error(error.args[0], subject) from None
        self._answered = True
        return {name: each for name, each in described.items() if each is not None}

    def offsets(self, topics: Collection[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the first offset of each partition, and the one after the last.

        Parameters
        ----------
        topics : collection of str

        Raises
        ------
        SampleError
        """
        from confluent_kafka import TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec: Any = OffsetSpec
        listed = self._client.list_topics(timeout=_TIMEOUT_SECONDS).topics
        partitions = [
            TopicPartition(name, partition)
            for name in topics
            if name in listed
            for partition in listed[name].partitions
        ]
        offsets: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in topics}
        if not partitions:
            return offsets
        bounds = [
            self._client.list_offsets(
                dict.fromkeys(partitions, of), request_timeout=_TIMEOUT_SECONDS
            )
            for of in (spec.earliest(), spec.latest())
        ]
        for each in partitions:
            first, end = (self._answer(each.topic, bound[each]).offset for bound in bounds)
            offsets[each.topic][each.partition] = first, end
        return offsets

    def is_compacted(self, topic: str) -> bool:
        """Return whether Kafka keeps the last record of each key of a topic for ever.

        Raises
        ------
        SampleError
            Also when this user may not read the topic's settings.
        """
        from confluent_kafka.admin import ConfigResource, ResourceType

        resource = ConfigResource(ResourceType.TOPIC, topic)
        (answer,) = self._client.describe_configs(
            [resource], request_timeout=_TIMEOUT_SECONDS
        ).values()
        return str(self._answer(topic, answer)["cleanup.policy"].value) == "compact"

    def _answer(self, topic: str, future: Any) -> Any:
        """Return the answer of a request."""
        from confluent_kafka import KafkaException

        try:
            return future.result(_TIMEOUT_SECONDS)
        except KafkaException as error:
            raise typed_error(error.args[0], topic, brokers=self._brokers) from None
        except TimeoutError:
            raise KafkaUnavailableError(f"Kafka does not describe topic {topic!r}") from None


def _admin_client(servers: str, config: Mapping[str, Any], brokers: BrokerErrors) -> Any:
    try:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MissingDependencyError(
            f"describing topics requires confluent-kafka: {INSTALL}"
        ) from error
    options: dict[str, Any] = {
        "log_level": 0,
        **config,
        "bootstrap.servers": servers,
        "error_cb": brokers.hear,
    }
    try:
        return AdminClient(options)
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_property(error, config) from None


def _described(
    client: Any, topic: str, future: Any, brokers: BrokerErrors, deadline: float
) -> TopicDescription | None:
    """Return the description of a topic, None if it does not exist."""
    from confluent_kafka import KafkaException

    while not wait([future], _DESCRIBE_POLL_SECONDS).done:
        client.poll(0)  # receives errors of the connection
        if time.monotonic() >= deadline or brokers.refusal() or brokers.all_down:
            errors = ", ".join(sorted(brokers.names)) or "no answer"
            raise brokers.refusal() or KafkaUnavailableError(
                f"Kafka does not describe topic {topic!r}: {errors}"
            )
    try:
        described = future.result()
    except KafkaException as error:
        if error.args[0].name() in UNKNOWN_TOPIC:
            return None
        raise
    topic_id = str(described.topic_id)
    return TopicDescription("" if topic_id == _NO_ID else topic_id, len(described.partitions))
