"""Counts facts about a sample's records: sizes, times, partitions, headers, keys, positions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from statistics import median_low

from cdc_formats.errors import DecodeError
from cdc_formats.events import Event, Position
from cdc_formats.format import Format
from cdc_formats.topics.encodings import InspectedRecord, SampledRecord
from cdc_formats.topics.inference.reading import Reading

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Sizes:
    """The sizes of keys or values in bytes; nulls are not counted.

    Parameters
    ----------
    least, median, most : int
    """

    least: int
    median: int
    most: int


@dataclass(frozen=True)
class Partition:
    """A partition of the topic.

    Parameters
    ----------
    number : int
    begin, end : int
        The first offset and the one after the last, from Kafka or else from the sample.
    records : int
        The number of its records in the sample.
    missing : int
        The number of offsets that were read and have no record.
    """

    number: int
    begin: int
    end: int
    records: int
    missing: int


@dataclass(frozen=True)
class Keys:
    """The Kafka keys.

    Parameters
    ----------
    encodings : mapping
        The number of records by encoding of the key.
    distinct : int
    moved : int
        The number of keys seen in more than one partition.
    partitions : int
        The number of partitions with a record in the sample.
    """

    encodings: Mapping[str, int]
    distinct: int
    moved: int
    partitions: int


@dataclass(frozen=True)
class Positions:
    """The positions of the events in their sources' logs.

    Parameters
    ----------
    reason : str
        Why positions are missing; empty when every event has one.
    placed, unplaced : int
        The number of events with and without a log position.
    histories : mapping
        The number of events by history; positions are comparable only within a history.
    backwards : int
        The number of events whose position is before that of the previous event in their partition
        and history.
    redelivered : int
        The number of events at or before their key's last position in the history, whose clock is
        not later than the partition's.
    """

    reason: str
    placed: int
    unplaced: int
    histories: Mapping[str, int]
    backwards: int
    redelivered: int


def sizes(parts: Iterable[bytes | None]) -> Sizes | None:
    """Return the sizes of the parts that are not null, None when all are null."""
    lengths = [len(part) for part in parts if part is not None]
    return Sizes(min(lengths), median_low(lengths), max(lengths)) if lengths else None


def time_range(records: Sequence[SampledRecord]) -> tuple[str, str] | None:
    """Return the first and the last Kafka timestamp as ISO text in UTC, None without timestamps."""
    stamps = [each.timestamp for each in records if each.timestamp >= 0]
    return (_iso(min(stamps)), _iso(max(stamps))) if stamps else None


def _iso(millis: int) -> str:
    try:
        return (
            (_EPOCH + timedelta(milliseconds=millis))
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z")
        )
    except OverflowError:
        return f"{millis} ms after 1970"


def partitions(
    records: Sequence[SampledRecord],
    ranges: Mapping[int, tuple[int, int]],
    counts: Mapping[int, int] | None,
) -> tuple[Partition, ...]:
    """Return the partitions of a sample.

    Parameters
    ----------
    records : sequence of SampledRecord
    ranges : mapping
        The first offset and the one after the last, by partition, where known from Kafka.
    counts : mapping or None
        The number of offsets read, by partition; None if unknown.
    """
    offsets: dict[int, list[int]] = {number: [] for number in ranges}
    for each in records:
        offsets.setdefault(each.partition, []).append(each.offset)
    made = []
    for number, numbers in sorted(offsets.items()):
        begin, end = ranges.get(number) or (min(numbers), max(numbers) + 1)
        missing = 0 if counts is None else counts.get(number, len(numbers)) - len(numbers)
        made.append(Partition(number, begin, end, len(numbers), missing))
    return tuple(made)


def headers(records: Sequence[SampledRecord]) -> dict[str, int]:
    """Return the number of records by header name."""
    return dict(
        Counter(
            name for each in records for name in dict.fromkeys(name for name, _ in each.headers)
        ).most_common()
    )


def keys(records: Sequence[InspectedRecord]) -> Keys:
    """Return facts about the Kafka keys."""
    places: dict[bytes, set[int]] = defaultdict(set)
    for each in records:
        if each.record.key is not None:
            places[each.record.key].add(each.record.partition)
    return Keys(
        encodings=dict(Counter(each.key.encoding for each in records).most_common()),
        distinct=len(places),
        moved=sum(len(numbers) > 1 for numbers in places.values()),
        partitions=len({each.record.partition for each in records}),
    )


def repeated(records: Sequence[SampledRecord]) -> int:
    """Return the number of records that repeat an earlier key and value, without tombstones."""
    seen: set[Hashable] = set()
    count = 0
    for each in records:
        if each.value is not None:
            same = (each.key, each.value)
            count += same in seen
            seen.add(same)
    return count


# --------------------------------------------------------------------------------------------------
# positions


def positions(readings: Sequence[Reading], format: Format) -> Positions:
    """Return facts about the log positions of a sample's events.

    Parameters
    ----------
    readings : sequence of Reading
        Sorted by partition and offset.
    format : Format
    """
    if format.traits.positions:
        return Positions(
            format.traits.positions, 0, sum(len(each.events) for each in readings), {}, 0, 0
        )
    tally = _Tally()
    for reading in readings:
        for event in reading.events:
            tally.add(reading, event, format)
    return tally.result()


class _Tally:
    """Counts positions, event by event."""

    def __init__(self) -> None:
        self.histories: Counter[str] = Counter()
        self.last: dict[tuple[int, str], tuple[int, int]] = {}
        self.clock: dict[tuple[int, str], int] = {}
        self.of_key: dict[tuple[Hashable, str], tuple[int, int]] = {}
        self.reasons: Counter[str] = Counter()
        self.backwards = self.redelivered = self.unplaced = 0

    def add(self, reading: Reading, event: Event, format: Format) -> None:
        try:
            position = format.traits.position(event.message)
        except DecodeError as error:
            self.reasons[error.bare or error.reason] += 1
            position = None
        if position is None or position.high is None:
            self.unplaced += 1
        else:
            self._add(reading, position, (position.high, position.low))

    def _add(self, reading: Reading, position: Position, place: tuple[int, int]) -> None:
        self.histories[position.history] += 1
        record = reading.record
        stream = (record.partition, position.history)
        # Without a Kafka key the value identifies the row: a redelivery has the same bytes.
        key = (reading.table, record.key or record.value), position.history
        clock = self.clock.get(stream)
        self.backwards += stream in self.last and place < self.last[stream]
        seen = key in self.of_key and place <= self.of_key[key]
        self.redelivered += seen and (
            clock is None or position.clock_ms is None or position.clock_ms <= clock
        )
        self.last[stream] = place
        self.of_key[key] = max(place, self.of_key.get(key, place))
        if position.clock_ms is not None:
            self.clock[stream] = max(position.clock_ms, clock or position.clock_ms)

    def result(self) -> Positions:
        placed = self.histories.total()
        reason = next(iter(self.reasons), "")
        if self.unplaced and not reason:
            reason = (
                "the messages do not include a log position"
                if not placed
                else "some events have only a clock"
            )
        return Positions(
            reason,
            placed,
            self.unplaced,
            dict(self.histories.most_common()),
            self.backwards,
            self.redelivered,
        )
