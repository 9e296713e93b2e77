"""Dead letters: records that cannot be decoded, written to a Kafka topic by the workers.

They are written and confirmed before the rows of the same batch are returned: a restarted query may write a dead letter again, but loses
none. A dead letter can be replayed, since its value is the record's:

=============================================  =======================================================================
key                                            ``topic[partition]@offset`` of the record: equal keys are one record
value                                          the record's value, also null
headers                                        the record's headers, followed by
``__connect.errors.topic``                     the record's place; numbers are decimal text
``__connect.errors.partition``
``__connect.errors.offset``
``__connect.errors.exception.class.name``      the error's class
``__connect.errors.exception.message``         the error's text
``__changelog.errors.condition``               the error's condition: ``TYPE_CONVERSION``, ...
``__changelog.errors.format``                  the format's identifier
``__changelog.errors.timestamp``               the record's timestamp, in ms since 1970-01-01 UTC
``__changelog.errors.key``                     the record's key, or null
=============================================  =======================================================================

The names that begin with ``__connect`` are those of Kafka Connect's dead letter queue (KIP-298). Kafka's timestamp of a dead letter is the
time of writing. (Connect uses the record's timestamp, with which retention may delete the dead letter of an old record at once.)
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
    # Only the broker limits the size of a record.
    "message.max.bytes": 100_000_000,
    # The default of Java's delivery.timeout.ms.
    "message.timeout.ms": 120_000,
    # The partitioner of Java's producers, so that all clients write a key to the same partition.
    "partitioner": "murmur2_random",
}
_HINTS = {
    "MSG_SIZE_TOO_LARGE": ". Raise the topic's max.message.bytes above that of the topic read: a dead letter has additional headers",
    "UNKNOWN_TOPIC_OR_PART": ". Create the topic",
    "_UNKNOWN_TOPIC": ". Create the topic",
}


class Letter(NamedTuple):
    """A record that cannot be decoded, and its error."""

    error: DecodeError
    record: KafkaRecord


@dataclass(frozen=True)
class DeadLetters:
    """The destination of dead letters; built on the driver, sent to the workers.

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
    config: tuple[tuple[str, Any], ...] = field(repr=False)  # may contain a password

    @classmethod
    def check(cls, topic: str, format: str, options: Mapping[str, str], given: Mapping[str, Any]) -> DeadLetters:
        """Return the destination of dead letters, for checked arguments.

        Parameters
        ----------
        topic, format : str
        options : mapping
            Options of Spark's Kafka source, whose connection is the default.
        given : mapping
            Options of the producer. If they set servers, no connection option is taken from `options`; if they set any ``security``,
            ``sasl`` or ``ssl`` option, only the servers are.

        Raises
        ------
        ArgumentError
            When the topic name is invalid, or the producer rejects the options.
        MissingDependencyError
            When confluent-kafka is not installed.
        """
        if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
            raise ArgumentError(f"dead_letter is {topic!r}: it must be the name of a Kafka topic")
        if any(str(given.get(name, "all")) not in ("all", "-1") for name in _ACKS):
            raise ArgumentError("dead_letter_options: acks must be 'all', or a dead letter could be lost")
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
        raise MissingDependencyError('dead letters require confluent-kafka: pip install "pyspark-kafka-changelog[kafka]"') from None
    # Without servers nothing connects and nothing is logged; names, values and certificates are checked.
    offline = {name: value for name, value in config.items() if name not in _CONNECTION[:2]}
    try:
        Producer({**offline, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ArgumentError(f"dead_letter_options are rejected: {reason}. Use librdkafka's names and values") from None


class _Writer:
    """A producer, and its last error about its brokers."""

    def __init__(self, config: tuple[tuple[str, Any], ...]) -> None:
        from confluent_kafka import Producer

        self.said = ""
        self.producer: Producer = Producer({**dict(config), "error_cb": self._hear})

    def _hear(self, error: KafkaError) -> None:
        self.said = error.str()


_writer = lru_cache(maxsize=1)(_Writer)
"""The worker's writer: created for its first bad record, and kept for later tasks."""


def send(dead_letters: DeadLetters, letters: Sequence[Letter]) -> None:
    """Write dead letters, and return when the brokers have confirmed them.

    Parameters
    ----------
    dead_letters : DeadLetters
    letters : sequence of Letter

    Raises
    ------
    DeadLetterError
        When one was not delivered; the text names its record.
    """
    if not letters:
        return
    writer, failures = _writer(dead_letters.config), list[tuple[str, str]]()
    for letter in letters:
        _produce(writer.producer, dead_letters, letter, failures)
    writer.producer.flush()
    if failures:
        # A producer that failed may not recover: a repeated task creates another one.
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
    """Return the headers of a dead letter that follow the record's own."""
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
