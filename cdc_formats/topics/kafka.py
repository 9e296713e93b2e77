"""Samples of a topic's records, and schemas and profiles from them: the part of this package that reads Kafka, with ``confluent-kafka``.

Partitions are assigned manually. No consumer group is joined, and no offset is stored or committed, so that reading a sample has no side
effects. The client's configuration has a ``group.id`` because librdkafka requires one.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import ArgumentError, KafkaUnavailableError, MissingDependencyError, SampleError, UnknownTopicError
from cdc_formats.format import Format
from cdc_formats.printable import printable
from cdc_formats.topics.profile.progress import tracked

from .client import READ_ONLY, UNAVAILABLE, UNKNOWN_TOPIC, BrokerErrors, TopicDescription, option_in, typed_error
from .encodings import SampledRecord
from .inference import InferredSchema, infer_schema
from .profile import TopicProfile, profile_records

if TYPE_CHECKING:
    from confluent_kafka import Consumer

SAMPLE = 1000
"""The default number of records in a sample."""
TIMEOUT_SECONDS = 30.0
"""The default timeout of sampling."""

_GROUP = "cdc-formats-sample"
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_DESCRIBE_POLL_SECONDS = 0.05
_POLL_SECONDS = 1.0
_MOST_TOPICS, _MOST_PARTITIONS = 5, 8  # of which `sample_ends` reads
_TRY_SECONDS = 1.0
_DOWN_SECONDS = 3.0  # a broker that restarts may be back by then
_DEFAULTS = {
    "isolation.level": "read_uncommitted",  # as Spark's source
    "fetch.wait.max.ms": 20,  # another read would wait for the end of one at the topic's end
    "queued.max.messages.kbytes": 16384,  # per partition: a sample needs only its share
    # The errors here contain what librdkafka logs; its log would repeat the servers' names.
    "log_level": 0,
}


def sample_topic(
    servers: str,
    topic: str,
    *,
    sample: int = SAMPLE,
    config: Mapping[str, Any] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[SampledRecord]:
    """Return some records of a topic: equally many from the beginning and the end of each partition.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    topic : str
    sample : int
        The maximum number of records; a few more if it is not a multiple of the partitions.
    config : mapping or None
        Further options of librdkafka (``security.protocol``, ...).
    timeout_seconds : float
        The time limit; the records read until then are returned.

    Returns
    -------
    list of SampledRecord
        Ordered by partition and offset; empty for an empty topic.

    Raises
    ------
    UnknownTopicError
        When the topic does not exist, or the user may not see it.
    KafkaUnavailableError
        When no broker answers in time; after 3 seconds if none can be reached.
    LoginRefusedError, TlsError
        When the broker refuses the login, or one side refuses the other's certificate.
    SampleError
        When the topic has records but none arrives in time, or Kafka rejects the request.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    ArgumentError
        When an option of the client cannot be used. Errors never contain an option's value.
    """
    return _sampled(servers, topic, sample, config or {}, timeout_seconds, progress=False).records


class TopicEnds(NamedTuple):
    """Records from both ends of some topics.

    Attributes
    ----------
    topics : tuple of str
        The topics' names, also of those that are empty or were not sampled.
    oldest, newest : list of SampledRecord
        Without common records.
    """

    topics: tuple[str, ...]
    oldest: list[SampledRecord]
    newest: list[SampledRecord]


def sample_ends(
    servers: str,
    topics: Collection[str] | re.Pattern[str],
    *,
    sample: int,
    config: Mapping[str, Any],
    starts: Mapping[str, Mapping[int, int]] | None = None,
    timeout_seconds: float = 10.0,
) -> TopicEnds:
    """Return a few records of the beginning and of the end of topics, quickly: of some topics and partitions if there are many.

    Parameters
    ----------
    servers : str
    topics : collection of str or re.Pattern
        Names, or a pattern that a whole name must match.
    sample : int
        The approximate number of records; 0 only looks the topics up.
    config : mapping
        Further options of librdkafka.
    starts : mapping or None
        The first offset to read, by topic and partition. Others are read from the beginning.
    timeout_seconds : float
        The time limit; the records read until then are returned.

    Raises
    ------
    UnknownTopicError, LoginRefusedError, TlsError, KafkaUnavailableError, SampleError, MissingDependencyError, ArgumentError
        As `sample_topic`.
    """
    deadline = time.monotonic() + timeout_seconds
    heard = BrokerErrors()
    consumer = _consumer(servers, config, heard)
    oldest: list[SampledRecord] = []
    newest: list[SampledRecord] = []
    try:
        names = _names(consumer, topics, deadline, heard)
        share = -(-sample // min(max(len(names), 1), _MOST_TOPICS))
        for topic in names[:_MOST_TOPICS]:
            ranges = _ranges(consumer, topic, deadline, heard, _MOST_PARTITIONS)
            first, last = _old_and_new(ranges, share, (starts or {}).get(topic, {})) if sample else ([], [])
            oldest += _read(consumer, topic, first, deadline)
            newest += _read(consumer, topic, last, deadline)
    finally:
        consumer.close()
    return TopicEnds(tuple(names), oldest, newest)


def _names(consumer: Consumer, topics: Collection[str] | re.Pattern[str], deadline: float, heard: BrokerErrors) -> list[str]:
    from confluent_kafka import KafkaException

    if not isinstance(topics, re.Pattern):
        return sorted(topics)
    try:
        return sorted(name for name in _metadata(consumer, None, deadline, heard) if topics.fullmatch(name))
    except KafkaException as error:
        raise typed_error(error.args[0], topics.pattern, heard=heard) from None


def _old_and_new(ranges: Mapping[int, tuple[int, int]], sample: int, starts: Mapping[int, int]) -> tuple[list[_Part], list[_Part]]:
    """Return the offsets to read at the beginning and at the end of each partition; a short partition has an end only."""
    share = max(2, -(-sample // max(len(ranges), 1)))
    oldest, newest = [], []
    for partition, (low, high) in ranges.items():
        *first, last = _ends(partition, max(low, starts.get(partition, low)), high, share)
        oldest += first
        newest += [last] if last.begin < last.end else []
    return oldest, newest


class _Sample(NamedTuple):
    """The records of a sample, the number of offsets in the partitions, and how many were read; None: not all in time."""

    records: list[SampledRecord]
    ranges: dict[int, tuple[int, int]]
    asked: Mapping[int, int] | None


def _sampled(servers: str, topic: str, sample: int, config: Mapping[str, Any], timeout_seconds: float, *, progress: bool | None) -> _Sample:
    if sample < 1:
        raise ArgumentError(f"sample is {sample}; it must be at least 1")
    deadline = time.monotonic() + timeout_seconds
    heard = BrokerErrors()
    consumer = _consumer(servers, config, heard)
    try:
        ranges = _ranges(consumer, topic, deadline, heard)
        share = -(-sample // max(len(ranges), 1))
        wanted = [part for partition, (low, high) in ranges.items() for part in _ends(partition, low, high, share)]
        read = tracked(
            _read(consumer, topic, wanted, deadline), sum(part.end - part.begin for part in wanted), printable(topic), progress=progress
        )
        records = {(record.partition, record.offset): record for record in read}
    finally:
        consumer.close()
    if wanted and not records and time.monotonic() >= deadline:
        raise SampleError(f"no record of {topic} arrived in {timeout_seconds:g} s, but it has records: increase the timeout")
    asked: Counter[int] = Counter()
    for part in wanted:
        asked[part.partition] += part.end - part.begin
    # After the deadline, unread offsets may have records.
    return _Sample([record for _, record in sorted(records.items())], ranges, asked if time.monotonic() < deadline else None)


def infer_topic(
    servers: str,
    topic: str,
    *,
    format: str | Format,
    sample: int = SAMPLE,
    config: Mapping[str, Any] | None = None,
    examples: int = 0,
    **options: Any,
) -> InferredSchema:
    """Infer the schema of a topic from a sample of its records: `sample_topic` and `infer_schema`.

    Raises
    ------
    InferenceError
        When the sample has too little information.
    UnknownTopicError, KafkaUnavailableError, SampleError, MissingDependencyError, ArgumentError
        As `sample_topic`.
    """
    records = sample_topic(servers, topic, sample=sample, config=config)
    return infer_schema(key_values(records), format=format, examples=examples, **options)


def profile_topic(
    servers: str,
    topic: str,
    *,
    sample: int = SAMPLE,
    config: Mapping[str, Any] | None = None,
    format: str | Format | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: bool | None = None,
    **options: Any,
) -> TopicProfile:
    """Return a profile of a topic (`sample_topic` and `profile_records`); no group is joined, nothing is committed.

    Parameters
    ----------
    servers, topic, sample, config, timeout_seconds
        As of `sample_topic`.
    format : str, Format or None
        None tries every registered format.
    progress : bool or None
        Whether to show a progress bar; None: if rich is installed, and stderr is a terminal or this is a notebook.
    **options
        Options of the format. Without `format`, each tried format gets the ones that it has (such as a schema registry's ``url``).

    Returns
    -------
    TopicProfile
        Print it, or show it in a notebook; `TopicProfile.to_dict` is for programs.

    Raises
    ------
    UnknownTopicError, KafkaUnavailableError, SampleError, MissingDependencyError, ArgumentError
        As `sample_topic`.
    FormatOptionError, UnknownFormatError, SchemaRegistryError
        As `profile_records`.
    """
    records, ranges, asked = _sampled(servers, topic, sample, config or {}, timeout_seconds, progress=progress)
    connection = tuple(name for name in config or () if not name.endswith("_cb"))  # a callback cannot be pasted as an option
    return profile_records(
        records, topic=topic, servers=servers, connection=connection, format=format, ranges=ranges, asked=asked, **options
    )


def key_values(records: list[SampledRecord]) -> Iterator[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Return the parts of records that `infer_schema` reads, ordered by time across partitions."""
    for record in sorted(records, key=lambda each: each.timestamp):
        yield record.key, record.value, record.headers


def describe_topics(
    servers: str, topics: Collection[str] | re.Pattern[str], config: Mapping[str, Any], *, timeout_seconds: float = 10.0
) -> dict[str, TopicDescription]:
    """Return the id and the number of partitions of each topic that exists.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    topics : collection of str or re.Pattern
        Names, or a pattern that a whole name must match.
    config : mapping
        The connection options, with librdkafka's names.
    timeout_seconds : float

    Raises
    ------
    MissingDependencyError, ArgumentError, SampleError
    """
    try:
        from confluent_kafka import KafkaException, TopicCollection
        from confluent_kafka.admin import AdminClient
    except ImportError as error:
        raise MissingDependencyError("describing topics requires confluent-kafka: pip install 'pyspark-kafka-changelog[kafka]'") from error
    heard = BrokerErrors()
    try:
        listener: dict[str, Any] = {"error_cb": heard.hear}
        client = AdminClient({"log_level": 0, **config, "bootstrap.servers": servers, **listener})
    except (KafkaException, TypeError, ValueError) as error:
        raise ArgumentError(f"the Kafka client refuses an option: {option_in(error, config)}") from None
    deadline = time.monotonic() + timeout_seconds
    try:
        if isinstance(topics, re.Pattern):
            topics = [name for name in client.list_topics(timeout=timeout_seconds).topics if topics.fullmatch(name)]
        found = {}
        for name, described in client.describe_topics(TopicCollection(list(topics))).items() if topics else ():
            while not described.done() and time.monotonic() < deadline and heard.refusal() is None and not heard.all_down:
                client.poll(_DESCRIBE_POLL_SECONDS)
            if not described.done():
                said = ", ".join(sorted(heard.names)) or "no answer"
                raise heard.refusal() or KafkaUnavailableError(f"Kafka does not describe topic {name!r}: {said}")
            found[name] = _description(described)
    except KafkaException as error:
        raise typed_error(error.args[0], ", ".join(topics) if not isinstance(topics, re.Pattern) else topics.pattern) from None
    return {name: description for name, description in found.items() if description is not None}


def _description(described: Any) -> TopicDescription | None:
    from confluent_kafka import KafkaException

    try:
        topic = described.result()
    except KafkaException as error:
        if error.args[0].name() in UNKNOWN_TOPIC:
            return None
        raise
    topic_id = str(topic.topic_id)
    return TopicDescription("" if topic_id == _NO_ID else topic_id, len(topic.partitions))


# ------------------------------------------------------------------------------------------------------------ the client


def _consumer(servers: str, config: Mapping[str, Any], heard: BrokerErrors) -> Consumer:
    """Return a consumer; `heard` receives its asynchronous errors (such as a rejected login)."""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise MissingDependencyError("sampling a topic requires confluent-kafka: pip install 'pyspark-kafka-changelog[kafka]'") from error
    kept = [name for name in config if name in READ_ONLY or name == "bootstrap.servers"]
    if kept:
        raise ArgumentError(f"config has {', '.join(sorted(kept))}, which sampling sets itself: remove it")
    listener = config.get("error_cb")

    def hear(error: Any) -> None:
        heard.hear(error)
        if listener is not None:
            listener(error)

    try:
        return Consumer({"group.id": _GROUP, **_DEFAULTS, **config, "bootstrap.servers": servers, **READ_ONLY, "error_cb": hear})
    except (KafkaException, TypeError, ValueError) as error:
        raise ArgumentError(f"the Kafka client refuses an option: {option_in(error, config)}") from None


def _metadata(consumer: Consumer, topic: str | None, deadline: float, heard: BrokerErrors) -> dict[str, Any]:
    """Return the brokers' descriptions of one topic or all. The client would repeat a rejected login forever; this function raises."""
    from confluent_kafka import KafkaException

    begin = time.monotonic()
    while True:
        try:
            topics: dict[str, Any] = consumer.list_topics(topic, timeout=min(_left(deadline), _TRY_SECONDS)).topics
            return topics
        except KafkaException as error:
            consumer.poll(0)  # lets the client report its errors
            if refusal := heard.refusal():
                raise refusal from None
            down = heard.all_down and time.monotonic() >= begin + _DOWN_SECONDS
            if error.args[0].name() not in UNAVAILABLE or down or time.monotonic() >= deadline:
                raise


def _ranges(consumer: Consumer, topic: str, deadline: float, heard: BrokerErrors, most: int | None = None) -> dict[int, tuple[int, int]]:
    """Return the first offset and the one after the last of each non-empty partition, or of `most` partitions."""
    from confluent_kafka import KafkaException, TopicPartition

    try:
        found = _metadata(consumer, topic, deadline, heard)[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        partitions = sorted(found.partitions)
        ranges = {}
        for partition in partitions[:: -(-len(partitions) // most) if most else 1]:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=_left(deadline))
            if high > low:
                ranges[partition] = (low, high)
        return ranges
    except KafkaException as error:
        if error.args[0].name() in UNKNOWN_TOPIC:
            raise _unknown_topic(consumer, topic, error.args[0].name(), deadline, heard) from None
        raise typed_error(error.args[0], topic, heard=heard) from None


def _unknown_topic(consumer: Consumer, topic: str, name: str, deadline: float, heard: BrokerErrors) -> UnknownTopicError:
    """Return the error for a topic that does not exist, with similar names."""
    from confluent_kafka import KafkaException

    try:
        similar = get_close_matches(topic, _metadata(consumer, None, deadline, heard), n=3)
    except KafkaException:
        similar = []
    hint = f". Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
    return UnknownTopicError(f"topic {topic!r} does not exist, or this user may not see it ({name}){hint}")


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)


# ------------------------------------------------------------------------------------------------------------ the sample


class _Part(NamedTuple):
    """Offsets of one partition to read: from `begin` until before `end`."""

    partition: int
    begin: int
    end: int


def _ends(partition: int, low: int, high: int, share: int) -> list[_Part]:
    """Return the ranges to read of a partition: its beginning and its end, or all of it if it is not longer than both.

    Examples
    --------
    >>> _ends(0, 100, 200, 10)
    [_Part(partition=0, begin=100, end=105), _Part(partition=0, begin=195, end=200)]
    """
    if high - low <= share:
        return [_Part(partition, low, high)]
    last = share // 2
    return [part for part in (_Part(partition, low, low + share - last), _Part(partition, high - last, high)) if part.begin < part.end]


def _read(consumer: Consumer, topic: str, wanted: list[_Part], deadline: float) -> Iterator[SampledRecord]:
    """Read all parts, those of different partitions concurrently."""
    from confluent_kafka import TopicPartition

    first: dict[int, _Part] = {}
    rest: list[_Part] = []
    for each in wanted:
        rest.append(each) if each.partition in first else first.setdefault(each.partition, each)
    if not first:
        return
    starts = [TopicPartition(topic, part.partition, part.begin) for part in first.values()]
    consumer.assign(starts)
    consumer.resume(starts)  # a paused partition stays paused when it is assigned again
    while first and time.monotonic() < deadline:
        message: Any = consumer.poll(min(_POLL_SECONDS, _left(deadline)))
        part = None if message is None else first.get(message.partition())
        if part is None:
            continue
        ended = _ended(message, topic)
        if not ended and message.offset() < part.end:
            yield _record(message)
        if ended or message.offset() >= part.end - 1:
            consumer.pause([TopicPartition(topic, part.partition)])
            del first[part.partition]
    if rest:
        yield from _read(consumer, topic, rest, deadline)


def _ended(message: Any, topic: str) -> bool:
    """Whether a message marks the end of its partition (a compacted topic's last offsets may have no record)."""
    error = message.error()
    if error is None:
        return False
    if error.name() == "_PARTITION_EOF":
        return True
    raise typed_error(error, topic)


def _record(message: Any) -> SampledRecord:
    headers = tuple((name, value) for name, value in message.headers() or ())
    _, timestamp = message.timestamp()
    return SampledRecord(message.topic(), message.partition(), message.offset(), timestamp, message.key(), message.value(), headers)
