"""The options of Spark's Kafka source for a call of `from_kafka_changelog`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from cdc_formats.errors import ArgumentError
from normalize.arguments import check_mapping

from .option_names import check_option_names
from .option_values import check_option_values
from .topics import subscribed_topics

READER_DEFAULTS = {
    # Spark's default is "latest": a changelog that begins in the middle has updates of rows that
    # were never inserted.
    "startingOffsets": "earliest",
    # Kafka's consumer fetches 500 records at a time by default; these values nearly double the
    # speed of reading alone.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "4194304",
}
"""Defaults for options of Spark's Kafka source; `options` of a call override them."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_SPLITS = ("minPartitions", "maxRecordsPerPartition")


def require_servers(options: Mapping[str, Any]) -> None:
    """Raise an error for options without Kafka's servers.

    Raises
    ------
    ArgumentError
    """
    if "kafka.bootstrap.servers" not in options:
        raise ArgumentError(
            "options lack 'kafka.bootstrap.servers': add, for example, {'kafka.bootstrap.servers': "
            "'localhost:9092'}"
        )


def reader_options(
    topic: str | Sequence[str] | re.Pattern[str] | None, options: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the options of Spark's Kafka source, with the topics and `READER_DEFAULTS`.

    Raises
    ------
    ArgumentError
        When the servers are missing, an option has an invalid value, or the topics are missing or
        passed twice.
    """
    check_mapping("options", options)
    options = options or {}
    check_option_names(options)
    check_option_values(options)
    require_servers(options)
    reader = {name: str(value) for name, value in options.items()}
    if topic is not None:
        option, value = _subscription(topic)
        if option in reader:
            raise ArgumentError(
                f"topic and the option {option} cannot be combined: remove one of them"
            )
        reader[option] = value
    named = [name for name in _SUBSCRIPTIONS if reader.get(name)]
    if len(named) != 1:
        got = f"got {' and '.join(named)}" if named else "got none"
        raise ArgumentError(
            f"pass exactly one of topic and the options {', '.join(_SUBSCRIPTIONS)}; {got}"
        )
    return {**READER_DEFAULTS, **reader}


def _subscription(topic: str | Sequence[str] | re.Pattern[str]) -> tuple[str, str]:
    """Return Spark's option for topics, and its value."""
    if not isinstance(topic, re.Pattern):
        if not isinstance(topic, (str, Sequence)) or not all(isinstance(t, str) for t in topic):
            raise ArgumentError(
                f"topic is {topic!r}: pass a name, a list of names, or a compiled pattern"
            )
        return "subscribe", topic if isinstance(topic, str) else ",".join(topic)
    if not isinstance(topic.pattern, str):
        raise ArgumentError("topic is a pattern of bytes: compile a str, re.compile('shop[.].*')")
    if topic.flags != re.compile(topic.pattern).flags:
        raise ArgumentError(
            "topic has flags that Kafka would not see: write them into the pattern, as in "
            f"re.compile('(?i){topic.pattern}')"
        )
    return "subscribePattern", topic.pattern


def only_topic(options: Mapping[str, str]) -> str | None:
    """Return the topic that the query reads, or None if it may read several."""
    topics = subscribed_topics(options)
    return topics[0] if len(topics) == 1 else None


def splits_partitions(options: Mapping[str, str]) -> bool:
    """Return whether several tasks may read one Kafka partition."""
    return any(name in options for name in _SPLITS)


def reads_topic(topic: str, options: Mapping[str, str]) -> bool:
    """Return whether the query reads a topic; invalid options are left to Spark, which raises."""
    if topic in subscribed_topics(options):
        return True
    with suppress(re.error):
        if re.fullmatch(options.get("subscribePattern") or "(?!)", topic):
            return True
    with suppress(msgspec.DecodeError):
        return topic in msgspec.json.decode(options.get("assign") or "{}", type=dict[str, Any])
    return False
