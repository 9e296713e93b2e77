"""Client options without side effects and error messages, shared by all readers of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import KafkaUnavailableError, SampleError, UnknownTopicError

UNAVAILABLE = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")
"""Names of Kafka's errors when no broker answers."""
UNKNOWN_TOPIC = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "TOPIC_EXCEPTION")
READ_ONLY = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
}
"""Options of a consumer that has no side effects and reports the end of a partition."""


def option_in(error: Exception, config: Mapping[str, Any]) -> str:
    """Return the name of the option that an error of creating a client concerns, without its value."""
    text = str(error)
    named = [name for name in (*config, "bootstrap.servers") if f'"{name}"' in text]
    return ", ".join(named) or type(error).__name__


def typed_error(error: Any, topic: str, *, remedy: str = "check bootstrap.servers, and how the client connects to them") -> SampleError:
    """Return a Kafka error as a `SampleError` with the error's name; its text is omitted, since it may contain a broker's answer.

    Parameters
    ----------
    error : KafkaError
    topic : str
    remedy : str
        What to do if no broker answers.
    """
    name = error.name()
    if name in UNKNOWN_TOPIC:
        return UnknownTopicError(f"topic {topic!r} does not exist, or this user may not see it ({name})")
    if name in UNAVAILABLE:
        return KafkaUnavailableError(f"no Kafka broker answered ({name}): {remedy}")
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
