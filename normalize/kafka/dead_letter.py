"""Dead letters: records that cannot be decoded, written to a Kafka topic by the workers.

They are written and confirmed before the rows of the same batch are returned: a restarted query may
write a dead letter again, but loses none. A dead letter can be replayed, since its value is the
record's:

=============================================  ====================================================
key                                            ``topic[partition]@offset`` of the record, or a hash
                                               of its key and value if it has no offset: equal keys
                                               are one record
value                                          the record's value, also null
headers                                        the record's headers, followed by
``__connect.errors.topic``                     the record's origin; numbers are decimal text, and
                                               unknown parts are null
``__connect.errors.partition``
``__connect.errors.offset``
``__connect.errors.exception.class.name``      the error's class
``__connect.errors.exception.message``         the error's text
``__changelog.errors.condition``               the error's condition: ``TYPE_CONVERSION``, ...
``__changelog.errors.format``                  the format's identifier
``__changelog.errors.timestamp``               the record's timestamp, in ms since 1970-01-01 UTC
``__changelog.errors.key``                     the record's key, or null
=============================================  ====================================================

If the format masks columns, the record's value, key and headers are left out: a dead letter only says
where the record is.

The names that begin with ``__connect`` are those of Kafka Connect's dead letter queue (KIP-298).
Kafka's timestamp of a dead letter is the time of writing. (Connect uses the record's timestamp,
with which retention may delete the dead letter of an old record at once.)
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError, DeadLetterError, MissingDependencyError
from normalize.core.arrow import encode
from normalize.core.output import Destination, Letter
from normalize.core.records import KafkaRecord

from .client_options import librdkafka_options

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message, Producer

_log = logging.getLogger("normalize")
_PATIENCE = 5.0  # seconds without an answer, after which a warning is logged
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_SERVERS = ("bootstrap.servers", "metadata.broker.list")
_CONNECTION = (*_SERVERS, "security.", "sasl.", "ssl.", "oauth_cb")
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
    # Errors only: librdkafka also prints each attempt that it repeats, and a broker that has just
    # started lets it repeat some.
    "log_level": 3,
}
_HINTS = {
    "MSG_SIZE_TOO_LARGE": (
        ". Raise the topic's max.message.bytes above that of the topic read: a dead letter has "
        "additional headers"
    ),
    "UNKNOWN_TOPIC_OR_PART": ". Create the topic",
    "_UNKNOWN_TOPIC": ". Create the topic",
}


@dataclass(frozen=True)
class DeadLetter:
    """Writes records that cannot be decoded to a Kafka topic: ``mode=DeadLetter("orders.dead")``.

    The workers write the records before they return the rows of the batch. A restarted query may
    write some again, with equal keys. The module `normalize.kafka.dead_letter` describes key and
    headers.

    Parameters
    ----------
    topic : str
        An existing topic. It must accept records as large as those that are read.
    options : mapping
        Options of the producer, with librdkafka's names. By default `from_kafka_changelog` uses the
        connection of its own `options`. If you set ``bootstrap.servers``, it uses none of these; if
        you set any ``security``, ``sasl`` or ``ssl`` option, it uses only the servers.
        `decode_changelog` has no connection: there ``bootstrap.servers`` is required.
    """

    topic: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)  # may contain a password


def destination_of(dead_letter: DeadLetter, format: str, options: Mapping[str, str]) -> Destination:
    """Return the destination of dead letters, for checked arguments.

    Parameters
    ----------
    dead_letter : DeadLetter
    format : str
    options : mapping
        Options of Spark's Kafka source, whose connection is the default; empty if the records do
        not come from Kafka.

    Raises
    ------
    ArgumentError
        When the topic name is invalid, no servers are known, or the producer rejects the options.
    MissingDependencyError
        When confluent-kafka is not installed.
    """
    topic, producer_options = dead_letter.topic, dead_letter.options
    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        raise ArgumentError(
            f"DeadLetter has the topic {topic!r}: it must be the name of a Kafka topic"
        )
    if any(str(producer_options.get(name, "all")) not in ("all", "-1") for name in _ACKS):
        raise ArgumentError(
            "the options of DeadLetter have other acks than 'all': remove acks, or a dead letter "
            "could be lost"
        )
    config = {**_DEFAULTS, **_connection(options, producer_options), **producer_options}
    _check_producer(config)
    return Destination(topic, format, tuple(config.items()))


def _connection(options: Mapping[str, str], producer_options: Mapping[str, Any]) -> dict[str, str]:
    named = [name for name in producer_options if name.startswith(_CONNECTION)]
    if any(name in _SERVERS for name in named):
        return {}
    if not options:
        raise ArgumentError(
            "decode_changelog has no connection to Kafka: pass DeadLetter(..., "
            "options={'bootstrap.servers': ...}), with librdkafka's names"
        )
    if named:
        return {"bootstrap.servers": options["kafka.bootstrap.servers"]}
    try:
        return librdkafka_options(options)
    except ArgumentError as error:
        raise ArgumentError(
            f"{error.args[0]}, which writes the dead letters: pass its connection options, for "
            "example DeadLetter(..., options={'security.protocol': 'SASL_SSL', "
            "'ssl.ca.location': ..., 'sasl.mechanism': ..., ...})"
        ) from None


def _check_producer(config: Mapping[str, Any]) -> None:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError:
        raise MissingDependencyError(
            'dead letters require confluent-kafka: pip install "pyspark-kafka-changelog[kafka]"'
        ) from None
    # Without servers nothing connects and nothing is logged; names, values and certificates are
    # checked.
    offline = {name: value for name, value in config.items() if name not in _SERVERS}
    try:
        Producer({**offline, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else str(error)
        raise ArgumentError(
            f"the options of DeadLetter are rejected: {reason}. Use librdkafka's names and values"
        ) from None


class _Writer:
    """A producer, and its last error about its brokers."""

    def __init__(self, config: tuple[tuple[str, Any], ...]) -> None:
        from confluent_kafka import Producer

        self._last_error = ""
        self.producer: Producer = Producer({**dict(config), "error_cb": self._hear})

    def _hear(self, error: KafkaError) -> None:
        self._last_error = error.str()

    def complaint(self) -> str:
        """Return the last error about the brokers, in parentheses; empty without one."""
        return f" (brokers: {self._last_error})" if self._last_error else ""


_writer = lru_cache(maxsize=1)(_Writer)
"""The worker's writer: created for its first bad record, and kept for later tasks."""


def send(dead_letters: Destination, letters: Sequence[Letter], patience: float = _PATIENCE) -> None:
    """Write dead letters, and return when the brokers have confirmed them.

    Parameters
    ----------
    dead_letters : Destination
    letters : sequence of Letter
    patience : float
        Seconds without a confirmation, after which a warning is logged.

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
    if waiting := writer.producer.flush(patience):
        limit = dict(dead_letters.config)["message.timeout.ms"]
        _log.warning(
            (
                "%s dead letters wait for the brokers of %r%s: this task fails unless they are "
                "confirmed within %s ms (message.timeout.ms)"
            ),
            *(waiting, dead_letters.topic, writer.complaint(), limit),
        )
        writer.producer.flush()
    if failures:
        # A producer that failed may not recover: a repeated task creates another one.
        _writer.cache_clear()
        where, reason = failures[0]
        raise DeadLetterError(
            f"{len(failures)} of {len(letters)} records that cannot be decoded were not written to "
            f"{dead_letters.topic!r} - the first is {where}: {reason}{writer.complaint()}"
        )


def _produce(
    producer: Producer, dead_letters: Destination, letter: Letter, failures: list[tuple[str, str]]
) -> None:
    from confluent_kafka import KafkaException

    record = letter.record
    message: dict[str, Any] = {
        "key": letter_key(record),
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


def _delivered(
    failures: list[tuple[str, str]], where: str, error: KafkaError | None, message: Message | None
) -> None:
    if error is not None:
        failures.append((where, error.str() + _HINTS.get(error.name(), "")))


def letter_key(record: KafkaRecord) -> bytes:
    """Return a dead letter's key: the record's offset, or a hash of its content without one."""
    if record.placed:
        return record.where.encode()
    return sha256(encode((record.key, record.value))).hexdigest().encode()


def headers_of(letter: Letter, format: str) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter that follow the record's own."""
    error, record = letter
    kind = type(error)
    names = ("topic", "partition", "offset")
    return [
        *(
            (f"__connect.errors.{name}", None if part is None else str(part).encode())
            for name, part in zip(names, record.origin, strict=True)
        ),
        (
            "__connect.errors.exception.class.name",
            f"{kind.__module__}.{kind.__qualname__}".encode(),
        ),
        ("__connect.errors.exception.message", str(error).encode(errors="backslashreplace")),
        ("__changelog.errors.condition", error.condition.encode()),
        ("__changelog.errors.format", format.encode()),
        (
            "__changelog.errors.timestamp",
            None if record.timestamp is None else str(record.timestamp).encode(),
        ),
        ("__changelog.errors.key", record.key),
    ]
