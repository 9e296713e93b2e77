"""Client options without side effects and error messages, shared by all readers of topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from cdc_formats.errors import KafkaUnavailableError, LoginRefusedError, SampleError, TlsError, UnknownTopicError

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


_DOWN = "_ALL_BROKERS_DOWN"
_REASONS = {
    "Connection refused": "the connection was refused",
    "Failed to resolve": "the host name is unknown",
    "SSL handshake failed": "the TLS handshake failed, as with a listener without TLS",
    "ApiVersion": "the broker ended the connection, as with a wrong security.protocol",
}
"""Parts of librdkafka's texts, and what they mean. The texts themselves are omitted: they may contain a broker's answer."""


class BrokerErrors:
    """The errors of its brokers that a client reports, by callback."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.reasons: dict[str, None] = {}

    def hear(self, error: Any) -> None:
        """Receive an error; the client's ``error_cb``."""
        self.names.add(error.name())
        text = error.str()
        self.reasons.update(dict.fromkeys(reason for part, reason in _REASONS.items() if part in text))

    @property
    def all_down(self) -> bool:
        """Whether no broker could be reached at some time."""
        return _DOWN in self.names

    def refusal(self) -> SampleError | None:
        """Return the error of a refused login or certificate, which the client would retry forever; None if there is none."""
        if "_AUTHENTICATION" in self.names:
            return LoginRefusedError("Kafka refused the login (_AUTHENTICATION): check security.protocol and sasl.*")
        if "_SSL" in self.names:
            return TlsError("Kafka refuses the connection (_SSL): check security.protocol and ssl.*")
        return None


def option_in(error: Exception, config: Mapping[str, Any]) -> str:
    """Return the name of the option that an error of creating a client concerns, without its value."""
    text = str(error)
    named = [name for name in (*config, "bootstrap.servers") if f'"{name}"' in text]
    return ", ".join(named) or type(error).__name__


_REMEDY = "check bootstrap.servers, and how the client connects to them"


def typed_error(error: Any, topic: str, *, remedy: str = _REMEDY, heard: BrokerErrors | None = None) -> SampleError:
    """Return a Kafka error as a `SampleError` with the error's name; its text is omitted, since it may contain a broker's answer.

    Parameters
    ----------
    error : KafkaError
    topic : str
    remedy : str
        What to do if no broker answers.
    heard : BrokerErrors or None
        What the client reported about its brokers.
    """
    name = error.name()
    if name in UNKNOWN_TOPIC:
        return UnknownTopicError(f"topic {topic!r} does not exist, or this user may not see it ({name})")
    if name in UNAVAILABLE:
        reasons = "".join(f"; {reason}" for reason in (heard.reasons if heard else ()))
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
