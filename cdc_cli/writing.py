"""Writing to a topic: each record's delivery is checked, and none is lost or written twice without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError, MissingDependencyError

from .connection import Connection
from .errors import DeliveryError
from .reading import refused_property
from .terminal import unbroken

if TYPE_CHECKING:
    from confluent_kafka import Producer

_DEFAULTS = {
    "acks": "all",
    # No retry reorders records or writes one twice.
    "enable.idempotence": True,
    "linger.ms": 20,
    # As Java's producers: tools in any language find a key in one partition.
    "partitioner": "murmur2_random",
    "message.timeout.ms": 120_000,
    # The broker alone decides what is too large.
    "message.max.bytes": 100_000_000,
    "log_level": 0,
}
_TRY_SECONDS = 0.5
_KEPT = {"acks": ("all", "-1"), "request.required.acks": ("all", "-1"), "enable.idempotence": ("true",)}
_HINTS = {"MSG_SIZE_TOO_LARGE": ": raise max.message.bytes of the topic"}


class TopicSink:
    """Writes records to a topic.

    Parameters
    ----------
    connection : Connection
    topic : str
    partition_of : callable
        From a record's key and the partition that it was read from to the partition to write, None for the key's own.

    Raises
    ------
    ArgumentError
        When a property cannot be used, or gives up that each record is delivered once.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    """

    def __init__(self, connection: Connection, topic: str, partition_of: Callable[[bytes | None, int], int | None]) -> None:
        self.topic, self.partition_of = topic, partition_of
        self.written = 0
        self.failures: list[str] = []
        self._producer = _producer(connection)

    def __enter__(self) -> TopicSink:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        """Wait until what was written is delivered; after another error its own is the one that counts."""
        left = 1
        while left:
            with unbroken():  # Ctrl-C is heard in between, not in a delivery
                left = self._producer.flush(_TRY_SECONDS)
        if error is None:
            self._check()

    def write(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        """Write a record that comes from what was read of a partition.

        Raises
        ------
        DeliveryError
            When Kafka did not take a record that was written before, or cannot take this one.
        """
        from confluent_kafka import KafkaException

        to = self.partition_of(key, partition)
        chosen: dict[str, Any] = {} if to is None else {"partition": to}
        while True:
            try:
                self._producer.produce(self.topic, value, key, on_delivery=self._delivered, **chosen)
                break
            except BufferError:
                self._producer.poll(0.1)
                self._check()
            except KafkaException as error:
                self._delivered(error.args[0], None)
                break
        self._producer.poll(0)
        self._check()

    def flush(self) -> None:
        """Let deliveries be told; nothing waits."""
        self._producer.poll(0)
        self._check()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(f"{error.name()}{_HINTS.get(error.name(), '')}")

    def _check(self) -> None:
        if self.failures:
            raise DeliveryError(
                f"{self.topic} did not take a record: {self.failures[0]}; {self.written:,} were written before, or beside it"
            )

    def __str__(self) -> str:
        return self.topic


def _producer(connection: Connection) -> Producer:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise MissingDependencyError("Kafka is written by confluent-kafka: pip install 'pyspark-kafka-changelog[cli]'") from error
    given = {name: value for name, value in connection.client_config().items() if not name.startswith("group.")}
    for name, kept in _KEPT.items():
        if str(given.get(name, kept[0])).lower() not in kept:
            raise ArgumentError(f"{name} is {kept[0]!r} here, or a record could be lost, or be there twice")
    try:
        return Producer({**_DEFAULTS, **given, "bootstrap.servers": connection.servers})
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_property(error, connection) from None
