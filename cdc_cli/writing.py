"""Writes to a topic and checks each delivery: a lost record is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError, MissingDependencyError
from cdc_formats.topics.client import refused_property

from .connection import Connection
from .errors import DeliveryError
from .terminal import delay_interrupt

if TYPE_CHECKING:
    from confluent_kafka import Producer

_DEFAULTS = {
    "acks": "all",
    # Retries neither reorder nor duplicate records.
    "enable.idempotence": True,
    "linger.ms": 20,
    # As in Java's producers, so that all of them write a key to the same partition.
    "partitioner": "murmur2_random",
    "message.timeout.ms": 120_000,
    # Only the broker limits the size.
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
        Returns the partition to write to, from a record's key and source partition. None: the partitioner decides by key.

    Raises
    ------
    ArgumentError
        When a property is not valid, or would allow lost or duplicate records.
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
        """Wait until all records are delivered; an earlier error takes precedence over failed deliveries."""
        left = 1
        while left:
            with delay_interrupt():  # Ctrl-C takes effect between deliveries, not during one
                left = self._producer.flush(_TRY_SECONDS)
        if error is None:
            self._check()

    def write(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        """Write a record that was converted from a record of `partition`.

        Raises
        ------
        DeliveryError
            When Kafka rejected an earlier record, or rejects this one.
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
        """Process delivery reports without waiting."""
        self._producer.poll(0)
        self._check()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.written += 1
        else:
            self.failures.append(f"{error.name()}{_HINTS.get(error.name(), '')}")

    def _check(self) -> None:
        if self.failures:
            raise DeliveryError(f"{self.topic} did not accept a record: {self.failures[0]}; {self.written:,} other records were written")

    def __str__(self) -> str:
        return self.topic


def _producer(connection: Connection) -> Producer:
    try:
        from confluent_kafka import KafkaException, Producer
    except ImportError as error:
        raise MissingDependencyError("writing to Kafka requires confluent-kafka: pip install 'pyspark-kafka-changelog[cli]'") from error
    properties = {name: value for name, value in connection.client_config().items() if not name.startswith("group.")}
    for name, kept in _KEPT.items():
        if str(properties.get(name, kept[0])).lower() not in kept:
            raise ArgumentError(f"{name} must be {kept[0]!r}, otherwise records could be lost or duplicated: remove the property")
    try:
        return Producer({**_DEFAULTS, **properties, "bootstrap.servers": connection.servers})
    except (KafkaException, TypeError, ValueError) as error:
        raise refused_property(error, connection.config) from None
