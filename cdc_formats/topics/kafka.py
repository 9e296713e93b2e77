"""Samples of a topic's records, and schemas and profiles from them.

`KafkaReader` reads them, without side effects.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from cdc_formats.errors import ArgumentError, SampleError, printable
from cdc_formats.format import Format
from cdc_formats.topics.profile.terminal import tracked

from .client import READ_ONLY, KafkaReader
from .inference import InferredSchema, infer_schema
from .profile import TopicProfile, profile_records
from .profile.doctor import Fault, diagnose
from .sampler import SampledRecord

SAMPLE = 1000
"""The default number of records in a sample."""
TIMEOUT_SECONDS = 30.0
"""The default timeout of sampling."""

_MOST_TOPICS, _MOST_PARTITIONS = 5, 8  # of which `sample_ends` reads


def sample_topic(
    servers: str,
    topic: str,
    *,
    sample: int = SAMPLE,
    config: Mapping[str, Any] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> list[SampledRecord]:
    """Return some records of a topic: equally many from each partition's beginning and end.

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
    return _sampled(servers, topic, sample, config or {}, timeout_seconds, progress=False)[0]


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
    """Return a few records of the beginning and the end of topics, quickly.

    If there are many topics or partitions, only some of them are read.

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
    UnknownTopicError, LoginRefusedError, TlsError, KafkaUnavailableError, SampleError,
    MissingDependencyError, ArgumentError
        As `sample_topic`.
    """
    deadline = time.monotonic() + timeout_seconds
    oldest: list[SampledRecord] = []
    newest: list[SampledRecord] = []
    with _reader(servers, config) as reader:
        names = (
            reader.topics(topics, timeout_seconds)
            if isinstance(topics, re.Pattern)
            else sorted(topics)
        )
        share = -(-sample // min(max(len(names), 1), _MOST_TOPICS))
        for topic in names[:_MOST_TOPICS]:
            ranges = _not_empty(_ranges(reader, topic, deadline, _MOST_PARTITIONS))
            first, last = (
                _old_and_new(ranges, share, (starts or {}).get(topic, {})) if sample else ([], [])
            )
            oldest += _read(reader, topic, first, deadline)
            newest += _read(reader, topic, last, deadline)
    return TopicEnds(tuple(names), oldest, newest)


def _old_and_new(
    ranges: Mapping[int, tuple[int, int]], sample: int, starts: Mapping[int, int]
) -> tuple[list[_Part], list[_Part]]:
    """Return the offsets to read at each partition's start and end; a short one has only an end."""
    share = max(2, -(-sample // max(len(ranges), 1)))
    oldest, newest = [], []
    for partition, (low, high) in ranges.items():
        *first, last = _ends(partition, max(low, starts.get(partition, low)), high, share)
        oldest += first
        newest += [last] if last.begin < last.end else []
    return oldest, newest


def _sampled(
    servers: str,
    topic: str,
    sample: int,
    config: Mapping[str, Any],
    timeout_seconds: float,
    *,
    progress: bool | None,
) -> tuple[list[SampledRecord], dict[int, tuple[int, int]], Mapping[int, int] | None]:
    """Return a sample's records, the offsets in the partitions, and how many were read.

    The last is None if not all were read in time.
    """
    if sample < 1:
        raise ArgumentError(f"sample is {sample}; it must be at least 1")
    deadline = time.monotonic() + timeout_seconds
    with _reader(servers, config) as reader:
        ranges = _ranges(reader, topic, deadline)
        filled = _not_empty(ranges)
        share = -(-sample // max(len(filled), 1))
        parts = [
            part
            for partition, (low, high) in filled.items()
            for part in _ends(partition, low, high, share)
        ]
        counts: Counter[int] = Counter()
        for part in parts:
            counts[part.partition] += part.end - part.begin
        read = tracked(
            _read(reader, topic, parts, deadline),
            counts.total(),
            printable(topic),
            progress=progress,
        )
        records = {(record.partition, record.offset): record for record in read}
    if parts and not records and time.monotonic() >= deadline:
        raise SampleError(
            f"no record of {topic} arrived in {timeout_seconds:g} s, but it has records: increase "
            "the timeout"
        )
    in_order = sorted(records.values(), key=lambda record: (record.partition, record.offset))
    # After the deadline, unread offsets may have records.
    return in_order, ranges, counts if time.monotonic() < deadline else None


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
    return infer_schema(
        key_values(sample_topic(servers, topic, sample=sample, config=config)),
        format=format,
        examples=examples,
        **options,
    )


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
    """Return a profile of a topic (`sample_topic` and `profile_records`).

    It joins no group, and commits nothing.

    Parameters
    ----------
    servers, topic, sample, config, timeout_seconds
        Same as `sample_topic`.
    format : str, Format or None
        None tries every registered format.
    progress : bool or None
        Whether to show a progress bar; None: if rich is installed, and stderr is a terminal or this
        is a notebook.
    **options
        Options of the format. Without `format`, each tried format gets the ones that it has (such
        as a schema registry's ``url``).

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
    records, ranges, counts = _sampled(
        servers, topic, sample, config or {}, timeout_seconds, progress=progress
    )
    connection = tuple(
        name for name in config or () if not name.endswith("_cb")
    )  # a callback cannot be pasted as an option
    return profile_records(
        records,
        topic=topic,
        servers=servers,
        connection=connection,
        format=format,
        ranges=ranges,
        asked=counts,
        **options,
    )


def diagnose_topic(
    servers: str,
    topic: str,
    *,
    sample: int = SAMPLE,
    config: Mapping[str, Any] | None = None,
    format: str | Format | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    progress: bool | None = None,
    **options: Any,
) -> list[Fault]:
    """Return the faults of a topic's producer that a sample of its records shows.

    Parameters
    ----------
    servers, topic, sample, config, format, timeout_seconds, progress, **options
        Same as `profile_topic`.

    Raises
    ------
    UnknownTopicError, KafkaUnavailableError, SampleError, MissingDependencyError, ArgumentError
        As `sample_topic`; `ArgumentError` also when no format reads the sample.
    """
    settings, aborted = config or {}, list[SampledRecord]()
    records, _, counts = _sampled(
        servers, topic, sample, settings, timeout_seconds, progress=progress
    )
    with _reader(servers, settings) as reader:
        compacted = bool(reader.is_compacted(topic, timeout_seconds))
    if counts is not None and sum(counts.values()) > len(records):
        # Offsets without a record: transaction markers, compacted or aborted records.
        committed = {(each.partition, each.offset) for each in records}
        ends = {each.partition: each.offset for each in records}
        uncommitted = {**settings, "isolation.level": "read_uncommitted"}
        every = _sampled(servers, topic, sample, uncommitted, timeout_seconds, progress=False)[0]
        aborted = [
            each
            for each in every
            if (each.partition, each.offset) not in committed
            and each.offset < ends.get(each.partition, 0)
        ]
    return diagnose(records, format=format, compacted=compacted, aborted=aborted, **options)


def key_values(
    records: list[SampledRecord],
) -> Iterator[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]]:
    """Return the parts of records that `infer_schema` reads, ordered by time across partitions."""
    for record in sorted(records, key=lambda each: each.timestamp):
        yield record.key, record.value, record.headers


# --------------------------------------------------------------------------------------------------
# the sample


def _reader(servers: str, config: Mapping[str, Any]) -> KafkaReader:
    own = [name for name in config if name in READ_ONLY or name == "bootstrap.servers"]
    if own:
        raise ArgumentError(
            f"config has {', '.join(sorted(own))}, which sampling sets itself: remove it"
        )
    # Per partition: a sample needs only its share.
    return KafkaReader(servers, {"queued.max.messages.kbytes": 16384, **config})


def _ranges(
    reader: KafkaReader, topic: str, deadline: float, most: int | None = None
) -> dict[int, tuple[int, int]]:
    """Return the offset range of each partition, or of `most` partitions.

    A range is the first offset and the one after the last.
    """
    partitions = reader.partitions(topic, _left(deadline))
    chosen = partitions[:: -(-len(partitions) // most) if most else 1]
    return {partition: reader.offsets(topic, partition, _left(deadline)) for partition in chosen}


def _not_empty(ranges: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    return {partition: (low, high) for partition, (low, high) in ranges.items() if high > low}


def _left(deadline: float) -> float:
    return max(deadline - time.monotonic(), 0.1)


class _Part(NamedTuple):
    """Offsets of one partition to read: from `begin` until before `end`."""

    partition: int
    begin: int
    end: int


def _ends(partition: int, low: int, high: int, share: int) -> list[_Part]:
    """Return a partition's ranges to read: beginning and end, or all of it if not longer than both.

    Examples
    --------
    >>> _ends(0, 100, 200, 10)
    [_Part(partition=0, begin=100, end=105), _Part(partition=0, begin=195, end=200)]
    """
    if high - low <= share:
        return [_Part(partition, low, high)]
    last = share // 2
    return [
        part
        for part in (_Part(partition, low, low + share - last), _Part(partition, high - last, high))
        if part.begin < part.end
    ]


def _read(
    reader: KafkaReader, topic: str, parts: list[_Part], deadline: float
) -> Iterator[SampledRecord]:
    """Read all parts, those of different partitions concurrently."""
    first: dict[int, _Part] = {}
    rest: list[_Part] = []
    for each in parts:
        rest.append(each) if each.partition in first else first.setdefault(each.partition, each)
    begins = {number: part.begin for number, part in first.items()}
    ends = {number: part.end for number, part in first.items()}
    for records in reader.batches(topic, begins, ends):
        yield from records
        if time.monotonic() >= deadline:
            return
    if rest:
        yield from _read(reader, topic, rest, deadline)
