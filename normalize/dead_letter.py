"""Dead letters: records that cannot be decoded, written to a Kafka topic by the workers.

They are written, and their delivery is confirmed, before the rows that were decoded with them are handed on: a query that is started
again may write a dead letter again, but loses none. A dead letter can be replayed, since its value is the record's:

=============================================  =======================================================================
key                                            ``topic[partition]@offset`` of the record: equal keys are one record
value                                          the record's, null too
headers                                        the record's own, and then
``__connect.errors.topic``                     where the record stands; numbers are decimal text
``__connect.errors.partition``
``__connect.errors.offset``
``__connect.errors.exception.class.name``      the error's class
``__connect.errors.exception.message``         its text
``__changelog.errors.condition``               its condition: ``TYPE_CONVERSION``, ...
``__changelog.errors.format``                  the format's identifier
``__changelog.errors.timestamp``               the record's timestamp, in ms since 1970-01-01 UTC
``__changelog.errors.key``                     the record's key, null where it has none
=============================================  =======================================================================

The names that begin with ``__connect`` are those of Kafka Connect's dead letter queue (KIP-298). Kafka's own timestamp of a dead
letter is the time of writing (Connect: the record's), since a retention by time would delete that of an old record at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import ArgumentError, DeadLetterError, DecodeError, MissingDependencyError

from .client_options import librdkafka_options
from .records import KafkaRecord

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_CONNECTION = ("bootstrap.servers", "metadata.broker.list", "security.", "sasl.", "ssl.", "oauth_cb")
_ACKS = ("acks", "request.required.acks")
_DEFAULTS = {
    "acks": "all",
    "enable.idempotence": True,
    # The broker alone decides what is too large: a record that it took once it may take again, headers and all.
    "message.max.bytes": 100_000_000,
    # As Java's delivery.timeout.ms.
    "message.timeout.ms": 120_000,
    # As Java's producers: tools in any language find a key in one partition.
    "partitioner": "murmur2_random",
}
_HINTS = {
    "MSG_SIZE_TOO_LARGE": ". Raise the topic's max.message.bytes above that of the topic read: a dead letter has headers besides",
    "UNKNOWN_TOPIC_OR_PART": ". Create the topic",
    "_UNKNOWN_TOPIC": ". Create the topic",
}


class Letter(NamedTuple):
    """A record that cannot be decoded, and why."""

    error: DecodeError
    record: KafkaRecord


@dataclass(frozen=True)
class DeadLetters:
    """Where dead letters go; made on the driver, sent to the workers.

    Parameters
    ----------
    topic : str
    format : str
        The identifier of the format that cannot decode them.
    config : tuple of (str, value)
        The producer's configuration, with librdkafka's names.
    """

    topic: str
    format: str
    config: tuple[tuple[str, Any], ...] = field(repr=False)  # a password may be among them

    @classmethod
    def check(cls, topic: str, format: str, options: Mapping[str, str], given: Mapping[str, Any]) -> DeadLetters:
        """Return where dead letters go, when the arguments can be used.

        Parameters
        ----------
        topic, format : str
        options : mapping
            Of Spark's Kafka source, whose connection is taken.
        given : mapping
            The producer's own options. Where they name servers they say all of the connection; where they name anything of
            ``security``, ``sasl`` or ``ssl``, all but the servers.

        Raises
        ------
        ArgumentError
            When the topic is none, or the producer cannot be made of the options.
        MissingDependencyError
            When confluent-kafka is not installed.
        """
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ArgumentError(f"dead_letter is {topic!r}; it is the name of a Kafka topic")
        if any(str(given.get(name, "all")) not in ("all", "-1") for name in _ACKS):
            raise ArgumentError("dead_letter_options: acks is 'all', or a dead letter could be lost")
        config = {**_DEFAULTS, **_connection(options, given), **given}
        _check_producer(config)
        return cls(topic, format, tuple(config.items()))


def _connection(options: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, str]:
    named = [name for name in given if name.startswith(_CONNECTION)]
    if not named:
        return librdkafka_options(options)
    servers = {"bootstrap.servers": options["kafka.bootstrap.servers"]}
    return {} if any(name in _CONNECTION[:2] for name in named) else servers


def _check_producer(config: Mapping[str, Any]) -> None:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError:
        raise MissingDependencyError('dead letters need confluent-kafka: pip install "pyspark-kafka-changelog[kafka]"') from None
    # Without servers nothing connects and nothing is logged; names, values and certificates are looked at.
    offline = {name: value for name, value in config.items() if name not in _CONNECTION[:2]}
    try:
        Producer({**offline, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ArgumentError(f"the producer of dead letters cannot be made: {reason}. dead_letter_options are librdkafka's") from None


class _Writer:
    """A producer, and what it last said of its brokers."""

    def __init__(self, config: tuple[tuple[str, Any], ...]) -> None:
        from confluent_kafka import Producer

        self.said = ""
        self.producer: Producer = Producer({**dict(config), "error_cb": self._hear})

    def _hear(self, error: KafkaError) -> None:
        self.said = error.str()


_writer = lru_cache(maxsize=1)(_Writer)
"""The worker's writer: made when its first bad record comes, kept for those of later tasks."""


def send(dead_letters: DeadLetters, letters: Sequence[Letter]) -> None:
    """Write dead letters, and return when the brokers have them.

    Parameters
    ----------
    dead_letters : DeadLetters
    letters : sequence of Letter

    Raises
    ------
    DeadLetterError
        When one was not delivered; its record is named.
    """
    if not letters:
        return
    writer, failures = _writer(dead_letters.config), list[tuple[str, str]]()
    for letter in letters:
        _produce(writer.producer, dead_letters, letter, failures)
    writer.producer.flush()
    if failures:
        # A producer that failed may have failed for good: a task that is tried again gets another one.
        _writer.cache_clear()
        where, reason = failures[0]
        said = f" (brokers: {writer.said})" if writer.said else ""
        raise DeadLetterError(
            f"{len(failures)} of {len(letters)} records that cannot be decoded were not written to {dead_letters.topic!r} - the first is "
            f"{where}: {reason}{said}"
        )


def _produce(producer: Producer, dead_letters: DeadLetters, letter: Letter, failures: list[tuple[str, str]]) -> None:
    from confluent_kafka import KafkaException

    record = letter.record
    message: dict[str, Any] = {
        "key": record.where.encode(),
        "value": record.value,
        "headers": [*record.headers, *headers_of(letter, dead_letters.format)],
        "on_delivery": partial(_delivered, failures, record.where),
    }
    try:
        try:
            producer.produce(dead_letters.topic, **message)
        except BufferError:
            producer.flush()
            producer.produce(dead_letters.topic, **message)
    except KafkaException as exception:
        _delivered(failures, record.where, exception.args[0], None)


def _delivered(failures: list[tuple[str, str]], where: str, error: KafkaError | None, message: Message | None) -> None:
    if error is not None:
        failures.append((where, error.str() + _HINTS.get(error.name(), "")))


def headers_of(letter: Letter, format: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter that come after the record's own."""
    error, record = letter
    kind = type(error)
    return [
        ("__connect.errors.topic", record.topic.encode()),
        ("__connect.errors.partition", str(record.partition).encode()),
        ("__connect.errors.offset", str(record.offset).encode()),
        ("__connect.errors.exception.class.name", f"{kind.__module__}.{kind.__qualname__}".encode()),
        ("__connect.errors.exception.message", str(error).encode(errors="backslashreplace")),
        ("__changelog.errors.condition", error.condition.encode()),
        ("__changelog.errors.format", format.encode()),
        ("__changelog.errors.timestamp", str(record.timestamp).encode()),
        ("__changelog.errors.key", record.key),
    ]
