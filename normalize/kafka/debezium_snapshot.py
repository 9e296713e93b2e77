"""Asks a Debezium connector for an incremental snapshot of a table, and waits for its end.

The request is a record of the connector's signal topic, and the answers are records of its
notification topic.

Source: Debezium's pages "Sending signals to a Debezium connector" (Kafka channel, execute-snapshot)
and "Receiving Debezium notifications" (sink channel: a notification has the id of its signal).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import msgspec

from cdc_formats.errors import ArgumentError, KafkaUnavailableError, SampleError
from cdc_formats.topics.client import KafkaReader

from .client_options import librdkafka_options

_PATIENCE = 60.0
"""Seconds until the connector's first answer."""
_TIMEOUT_SECONDS = 30.0
_SETTLE_SECONDS = 10.0
_MOST_SECONDS = 600.0
"""Until the topic has the rows that the connector has read."""


@dataclass(frozen=True)
class IncrementalSnapshot:
    """A table of a Debezium connector, and the topics by which the connector is asked.

    The topics are in the same Kafka as the table's.

    Parameters
    ----------
    signal_topic : str
        The connector's ``signal.kafka.topic``, with ``kafka`` in ``signal.enabled.channels``.
    notification_topic : str
        Its ``notification.sink.topic.name``, with ``sink`` in ``notification.enabled.channels``.
    topic_prefix : str
        Its ``topic.prefix``, the key of its signals.
    table : str
        The table as in its ``table.include.list``: ``shop.orders``, or ``public.orders`` of
        PostgreSQL.
    """

    signal_topic: str
    notification_topic: str
    topic_prefix: str
    table: str


class _Notification(msgspec.Struct):
    id: str
    type: str
    additional_data: dict[str, str | None] = {}


def take_snapshot(
    snapshot: IncrementalSnapshot,
    options: Mapping[str, str],
    written: Callable[[], int],
    report: Callable[[str], None],
) -> None:
    """Let the connector read all rows of the table again, and return once their events are written.

    Kafka Connect may write the last notification before the last events (in a snapshot of 2,990
    rows, 200 were missing). A row is an event, or is left out for a change of it in the same
    seconds. The function therefore waits until the topic has as many new records as rows were read,
    and some seconds more. An event that comes even later is a change as any other.

    Parameters
    ----------
    snapshot : IncrementalSnapshot
    options : mapping
        Options of Spark's Kafka source.
    written : callable
        Returns how many records the table's topics have got since the call.
    report : callable
        Gets a line for each notification.

    Raises
    ------
    ArgumentError
        When the connector does not answer, cannot read the table, or writes it elsewhere.
    SampleError
        When Kafka does not answer, or has no such topic.
    """
    rows = _read_rows(snapshot, librdkafka_options(options), report)
    deadline = time.monotonic() + _MOST_SECONDS
    while (records := written()) < rows:
        if time.monotonic() > deadline:
            raise ArgumentError(
                f"Debezium read {rows:,} rows of {snapshot.table}, and the table's topic got {records:,} "
                "records: check that the connector writes this table to it"
            )
        time.sleep(1)
    time.sleep(_SETTLE_SECONDS)


def _read_rows(
    snapshot: IncrementalSnapshot, connection: Mapping[str, str], report: Callable[[str], None]
) -> int:
    """Let the connector read the table, and return the number of rows."""
    signal, rows = str(uuid4()), 0
    with KafkaReader(connection["bootstrap.servers"], connection) as reader:
        partitions = reader.partitions(snapshot.notification_topic, _TIMEOUT_SECONDS)
        begins = {
            each: reader.offsets(snapshot.notification_topic, each, _TIMEOUT_SECONDS)[1]
            for each in partitions
        }
        _send(snapshot, connection, signal)
        report(f"asked Debezium for an incremental snapshot of {snapshot.table} (signal {signal})")
        for notification in _answers(reader, snapshot, begins, signal):
            scanned = notification.additional_data
            if (status := scanned.get("status")) not in (None, "SUCCEEDED", "EMPTY"):
                raise ArgumentError(
                    f"Debezium did not read {snapshot.table} ({status}): check that the table has a "
                    "primary key, and that the connector captures it"
                )
            rows = int(scanned.get("total_rows_scanned") or rows)
            report(f"snapshot: {notification.type}" + (f", {rows:,} rows" if status else ""))
            if notification.type == "ABORTED":
                raise ArgumentError(
                    f"the snapshot of {snapshot.table} was stopped: request it again"
                )
            if notification.type == "COMPLETED":
                break
    return rows


def _answers(
    reader: KafkaReader, snapshot: IncrementalSnapshot, begins: Mapping[int, int], signal: str
) -> Iterator[_Notification]:
    """Return the notifications of a signal.

    Raises
    ------
    ArgumentError
        When the first one does not come in time.
    """
    deadline, is_answered = time.monotonic() + _PATIENCE, False
    for records in reader.batches(snapshot.notification_topic, begins, None):
        for record in records:
            notification = _notification(record.value)
            if notification is not None and notification.id == signal:
                is_answered = True
                yield notification
        if not is_answered and time.monotonic() > deadline:
            raise ArgumentError(
                f"Debezium did not answer in {_PATIENCE:.0f} s: check that the connector runs, that "
                f"its topic.prefix is {snapshot.topic_prefix!r}, its signal.kafka.topic "
                f"{snapshot.signal_topic!r} with kafka in signal.enabled.channels, and its "
                f"notification.sink.topic.name {snapshot.notification_topic!r} with sink in "
                "notification.enabled.channels"
            )


def _notification(value: bytes | None) -> _Notification | None:
    """Return the notification in a record; None if it has none.

    Examples
    --------
    >>> _notification(b'{"id": "1", "type": "STARTED", "aggregate_type": "Incremental Snapshot"}').type
    'STARTED'
    >>> _notification(b'{"schema": {}, "payload": {"id": "1", "type": "COMPLETED"}}').type
    'COMPLETED'
    >>> _notification(b'{"id": 7}')
    """
    try:
        message = msgspec.json.decode(value or b"", type=dict[str, Any])
        # With ``schemas.enable``, Kafka Connect's JSON converter writes it as the payload.
        return msgspec.convert(message.get("payload", message), _Notification)
    except msgspec.DecodeError:
        return None


def _send(snapshot: IncrementalSnapshot, connection: Mapping[str, str], signal: str) -> None:
    """Write the signal to its topic."""
    from confluent_kafka import KafkaException, Producer

    action: dict[str, Any] = {
        "id": signal,
        "type": "execute-snapshot",
        "data": {"data-collections": [snapshot.table], "type": "INCREMENTAL"},
    }
    failures = list[str]()

    def delivered(error: Any, _: Any) -> None:
        if error is not None:
            failures.append(error.name())

    producer = Producer({**connection, "log_level": 0, "message.timeout.ms": "30000"})
    try:
        producer.produce(
            snapshot.signal_topic,
            msgspec.json.encode(action),
            snapshot.topic_prefix,
            on_delivery=delivered,
        )
        producer.flush(_TIMEOUT_SECONDS)
    except KafkaException as error:
        failures.append(error.args[0].name())
    if failures:
        raise SampleError(
            f"the signal was not written to {snapshot.signal_topic!r} ({failures[0]}): check that "
            "the topic exists, and that this user may write to it"
        )
    if len(producer):
        raise KafkaUnavailableError(f"no Kafka broker took the signal in {_TIMEOUT_SECONDS:.0f} s")
