"""The profile of a topic: what it has, and the report that shows it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from datetime import datetime, timedelta, timezone
from itertools import chain
from statistics import median_low
from typing import Any

import msgspec

from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    DecodeError,
)
from cdc_formats.events import SHORT_STRINGS, ChangelogMode, Event, Ignored, Position, RowKind
from cdc_formats.format import (
    Format,
)
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.infer import AnyColumns, Reading, case_note, infer_readings
from cdc_formats.topics.sampler import (
    InspectedRecord,
    SampledRecord,
    Sampler,
    value_at,
)
from cdc_formats.values.schema import source_id

from .terminal import Grid, Report, Section, clipped, html_text, plain_text, renderable, shortened


@dataclass(frozen=True)
class Candidate:
    """The result of trying a format on a sample.

    Parameters
    ----------
    identifier : str
    evidence : str
        Why the sample may be in this format.
    values : int
        The number of records with a value.
    read : int
        How many of these have rows.
    ignored : mapping
        How many were understood and have no rows, by reason.
    refused : int
        How many are errors.
    error : str
        The first error.
    specific : bool
        Whether the format refuses a JSON object that no CDC tool writes.
    distinctive : int
        How many values have a field that only this format writes.
    requirement : str
        What is required to try the format; empty when it was tried.
    format : Format or None
        The format with the options it was tried with.
    readings : tuple of Reading
        The records with a value, if the format understands enough of them to be chosen.
    """

    identifier: str
    evidence: str = ""
    values: int = 0
    read: int = 0
    ignored: Mapping[str, int] = field(default_factory=dict)
    refused: int = 0
    error: str = ""
    specific: bool = True
    distinctive: int = 0
    requirement: str = ""
    format: Format | None = field(default=None, repr=False, compare=False)
    readings: tuple[Reading, ...] = field(default=(), repr=False, compare=False)

    @property
    def understood(self) -> int:
        """How many values the format understands, with or without rows."""
        return self.read + sum(self.ignored.values())

    @property
    def is_enough(self) -> bool:
        """Whether the format understands enough of the values to be chosen."""
        return 2 * self.understood >= self.values  # at least one of two

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {
            "format": self.identifier,
            **{
                name: value
                for name, value in vars(self).items()
                if name not in ("identifier", "distinctive", "format", "readings")
            },
        }


# --------------------------------------------------------------------------------------------------
# Profiles of a sample's tables: operations, schemas, before-images, and whether the Kafka key is the
# primary key.


@dataclass(frozen=True)
class BeforeImages:
    """The before-images in a table's messages.

    Parameters
    ----------
    updates, updates_with : int
        The number of updates, and of those with a before-image.
    deletes, deletes_whole : int
        The number of deletes, and of those with a value in a column outside the key.
    changed_only : bool
        Whether the before-images of updates have only the changed columns.
    """

    updates: int = 0
    updates_with: int = 0
    deletes: int = 0
    deletes_whole: int = 0
    changed_only: bool = False


@dataclass(frozen=True)
class TableProfile:
    """A table of the topic.

    Parameters
    ----------
    name : str
        The name that `TableOptions` are for (``shop.orders``); empty when the messages name no table.
    records : int
        The number of records with rows of the table.
    kinds : mapping
        The number of changelog rows by kind: ``+I``, ``-U``, ``+U``, ``-D``.
    operations : mapping
        The number of records by the producer's operation.
    before : BeforeImages
    kafka_key : str
        Whether the Kafka key is the primary key, with the evidence.
    key_agrees : bool or None
        Whether the Kafka key is the primary key; None if unknown.
    schema : InferredSchema or None
    reason : str
        Why there is no schema.
    options : mapping
        The format options that read this table, without secrets.
    """

    name: str
    records: int
    kinds: Mapping[str, int]
    operations: Mapping[str, int]
    before: BeforeImages
    kafka_key: str
    key_agrees: bool | None
    schema: InferredSchema | None
    reason: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ddl(self) -> str:
        """The columns as DDL text; empty if unknown."""
        return "" if self.schema is None else self.schema.ddl

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The primary key; empty if unknown."""
        return () if self.schema is None else self.schema.primary_key

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        schema = None if self.schema is None else self.schema.to_dict()
        options = {
            name: value if isinstance(value, (bool, int, str)) else repr(value)
            for name, value in self.options.items()
        }
        values = {
            **vars(self),
            "before_images": self.before,
            "ddl": self.ddl,
            "primary_key": self.primary_key,
        }
        del values["before"]
        return dict(msgspec.to_builtins({**values, "schema": schema, "options": options}))


def profiled_tables(
    readings: Sequence[Reading], reader: AnyColumns
) -> list[tuple[TableProfile, list[Reading]]]:
    """Return the tables of a sample with their records, the largest first.

    Parameters
    ----------
    readings : sequence of Reading
    reader : AnyColumns
        The reader that made the readings.
    """
    groups = _groups(readings, reader.sampler)
    named = [names for names in groups if names]
    made = [
        (_table(names, group, reader, _filters(names, named, reader.format)), group)
        for names, group in groups.items()
    ]
    return sorted(made, key=lambda each: -each[0].records)


def _groups(readings: Sequence[Reading], sampler: Sampler) -> dict[tuple[str, ...], list[Reading]]:
    """Return the records with rows or columns, by table.

    A single named table gets those that name none.
    """
    groups: dict[tuple[str, ...], list[Reading]] = {}
    for each in readings:
        declares = each.table is not None and each.ignored in sampler.declaring
        if each.events or declares or _is_tombstone(each, sampler):
            groups.setdefault(each.table or (), []).append(each)
    if () in groups and len(groups) == 2:
        nameless = groups.pop(())
        (names,) = groups
        groups[names] = sorted(
            groups[names] + nameless, key=lambda each: (each.record.partition, each.record.offset)
        )
    return groups


def _is_tombstone(reading: Reading, sampler: Sampler) -> bool:
    """Whether a record is a tombstone that deletes its key."""
    return sampler.plain_rows and reading.ignored is Ignored.TOMBSTONE


def _filters(
    names: Sequence[str], all_names: Sequence[tuple[str, ...]], format: Format
) -> dict[str, str]:
    """Return the options that filter out the other tables."""
    options = list(format.traits.table_identity.values())
    if len(all_names) < 2 or not names or not options:
        return {}
    filters = {options[-1]: re.escape(names[-1])}
    if len({each[0] for each in all_names if each[-1] == names[-1]}) > 1:
        filters.setdefault(options[0], re.escape(names[0]))
    return {option: pattern for option, pattern in filters.items() if option}


def _table(
    names: Sequence[str],
    readings: Sequence[Reading],
    reader: AnyColumns,
    filters: Mapping[str, str],
) -> TableProfile:
    format = replace(reader.format, **filters)  # type: ignore[arg-type]
    schema, reason = _schema(readings, format, single_key=reader.sampler.plain_rows)
    readings = [each for each in readings if each.ignored not in reader.sampler.declaring]
    key = schema.primary_key if schema else ()
    agrees, kafka_key = _key_agreement(readings, reader, key)
    detected = (
        {name: schema.format_options[name] for name in schema.option_reasons} if schema else {}
    )
    path = reader.sampler.operation_path
    values = [value_at(each.inspected.value.fields, path) for each in readings if path]
    operations = Counter(each for each in values if isinstance(each, str) and each)
    return TableProfile(
        name=source_id(format.traits.table_parts(names)),
        records=len(readings),
        kinds=_kinds(readings, reader.sampler),
        operations=dict(operations.most_common()),
        before=_before(readings, key),
        kafka_key=kafka_key,
        key_agrees=agrees,
        schema=schema,
        reason=reason,
        options={**detected, **set_options(format)},
    )


def set_options(format: Format) -> dict[str, Any]:
    """Return the options of a format that differ from their defaults; ``...`` replaces a secret."""
    return {
        option.name: value if option.repr else "..."
        for option, value in [(option, getattr(format, option.name)) for option in fields(format)]
        if value != option.default and (value or option.default is not MISSING)
    }


def _schema(
    readings: Sequence[Reading], format: Format, *, single_key: bool
) -> tuple[InferredSchema | None, str]:
    """Return the schema inferred from a table's records, or the reason why inference failed."""
    by_age = sorted(readings, key=lambda each: (each.record.timestamp, each.record.offset))
    single = _key_column([each.inspected for each in readings]) if single_key else None
    try:
        schema = infer_readings(
            by_age, AnyColumns(format), primary_key=() if single is None else (single,)
        )
    except ChangelogError as error:
        return None, str(error.args[0])
    return (None, case_note(schema.same_but_for_case)) if schema.same_but_for_case else (schema, "")


# --------------------------------------------------------------------------------------------------
# operations


def _kinds(readings: Sequence[Reading], sampler: Sampler) -> dict[str, int]:
    """Return the number of changelog rows by kind."""
    counts: Counter[RowKind] = Counter()
    for each in readings:
        for event in each.events:
            counts.update(_rows(event, sampler.format.changelog_mode))
        counts[RowKind.DELETE] += _is_tombstone(each, sampler)
    return {SHORT_STRINGS[kind]: counts[kind] for kind in RowKind if counts[kind]}


def _rows(event: Event, mode: ChangelogMode) -> list[RowKind]:
    if event.kind is RowKind.INSERT and not mode.contains(RowKind.INSERT):
        return [RowKind.UPDATE_AFTER]
    if (
        event.kind is RowKind.UPDATE_AFTER
        and mode.contains(RowKind.UPDATE_BEFORE)
        and not event.single
    ):
        return [RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER]
    return [event.kind]


def _before(readings: Sequence[Reading], key: Sequence[str]) -> BeforeImages:
    events = list(chain.from_iterable(each.events for each in readings))
    updates = [event for event in events if event.kind is RowKind.UPDATE_AFTER and not event.single]
    deletes = [event for event in events if event.kind is RowKind.DELETE]
    return BeforeImages(
        updates=len(updates),
        updates_with=sum(event.before is not None for event in updates),
        deletes=len(deletes),
        deletes_whole=sum(
            isinstance(event.before, Mapping)
            and any(value is not None for name, value in event.before.items() if name not in key)
            for event in deletes
        ),
        changed_only=any(event.changed_only for event in updates),
    )


# --------------------------------------------------------------------------------------------------
# keys


def _key_column(records: Sequence[InspectedRecord]) -> str | None:
    """Return the column that equals a single-value key in every record, None if no column does."""
    single = [
        each
        for each in records
        if each.value.fields and not each.key.fields and each.key.value is not None
    ]
    return next(
        (
            name
            for name in (single[0].value.fields if single else {})
            if all(
                (value := each.value.fields.get(name)) is not None
                and str(value) == str(each.key.value)
                for each in single
            )
        ),
        None,
    )


def _key_agreement(
    readings: Sequence[Reading], reader: AnyColumns, primary_key: Sequence[str]
) -> tuple[bool | None, str]:
    """Return whether the Kafka key is the primary key, with the evidence."""
    keyed = [each for each in readings if each.record.key is not None]
    if not keyed:
        return False, "no: the records have no key"
    if not primary_key:
        return None, "unknown: no primary key was found"
    shown = f"({', '.join(primary_key)})"
    parts = [_key_of(each, reader, primary_key) for each in keyed]
    names = Counter(map(tuple, filter(None, parts))).most_common(1)
    if not names:
        return False, f"no: the key is {keyed[0].inspected.key.encoding}, and not {shown}"
    if set(map(str.lower, names[0][0])) != set(map(str.lower, primary_key)):
        return False, f"no: the key has ({', '.join(names[0][0])}), the primary key is {shown}"
    pairs = zip(keyed, parts, strict=True)
    each = (_same(key, event) for reading, key in pairs for event in reading.events)
    compared = [same for same in each if same is not None]
    if not compared:
        return True, f"yes: {shown}; the values do not have these columns"
    if not all(compared):
        return (
            False,
            f"no: {shown} differs from the row in {compared.count(False)} of {len(compared)} events",
        )
    equal = f"{shown}, equal to the row's in {len(compared)} events"
    if len(keyed) < len(readings):
        return False, f"in part: {equal}; {len(readings) - len(keyed)} records have no key"
    return True, f"yes: {equal}"


def _key_of(reading: Reading, reader: AnyColumns, primary_key: Sequence[str]) -> Mapping[str, Any]:
    columns = reader.sampler.key_columns(reading.record.key, reading.record.headers)
    if columns or len(primary_key) > 1 or isinstance(reading.inspected.key.value, (dict, list)):
        return columns
    value = reading.inspected.key.value
    return {} if value is None else {primary_key[0]: value}


def _same(parts: Mapping[str, Any], event: Event) -> bool | None:
    """Whether a key's columns equal the row's, None when the row has none of them."""
    image = event.before if event.after is None else event.after
    if not isinstance(image, Mapping):
        return None
    by_lower = {str(name).lower(): value for name, value in image.items()}
    common = [
        (value, by_lower[name.lower()]) for name, value in parts.items() if name.lower() in by_lower
    ]
    return (
        all(of_key == of_row or str(of_key) == str(of_row) for of_key, of_row in common)
        if common
        else None
    )


# --------------------------------------------------------------------------------------------------
# Statistics of a sample's records: sizes, times, partitions, headers, keys, positions.


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
            (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=millis))
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
    """Return statistics of the Kafka keys."""
    partitions_of: dict[bytes, set[int]] = defaultdict(set)
    for each in records:
        if each.record.key is not None:
            partitions_of[each.record.key].add(each.record.partition)
    return Keys(
        encodings=dict(Counter(each.key.encoding for each in records).most_common()),
        distinct=len(partitions_of),
        moved=sum(len(numbers) > 1 for numbers in partitions_of.values()),
        partitions=len({each.record.partition for each in records}),
    )


def repeated(records: Sequence[SampledRecord]) -> int:
    """Return the number of records that repeat an earlier key and value, without tombstones."""
    pairs = [(each.key, each.value) for each in records if each.value is not None]
    return len(pairs) - len(set(pairs))


# --------------------------------------------------------------------------------------------------
# positions


def positions(readings: Sequence[Reading], format: Format) -> Positions:
    """Return statistics of the log positions of a sample's events.

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
    events = list(_placed_events(readings, format))
    placed = [(reading, position) for reading, position, _ in events if position is not None]
    unplaced, reason = len(events) - len(placed), next((why for *_, why in events if why), "")
    if unplaced and not reason:
        reason = (
            "some events have only a clock"
            if placed
            else "the messages do not include a log position"
        )
    histories = Counter(position.history for _, position in placed)
    return Positions(
        reason, len(placed), unplaced, dict(histories.most_common()), *_out_of_order(placed)
    )


def _placed_events(
    readings: Sequence[Reading], format: Format
) -> Iterator[tuple[Reading, Position | None, str]]:
    """Yield the position of each event, None without one, and the error in its place."""
    for reading in readings:
        for event in reading.events:
            try:
                position = format.traits.position(event.message)
            except DecodeError as error:
                yield reading, None, error.bare or error.reason
            else:
                has_one = position is not None and position.high is not None
                yield reading, position if has_one else None, ""


def _out_of_order(placed: Sequence[tuple[Reading, Position]]) -> tuple[int, int]:
    """Return the number of steps back in a partition and history, and that of redeliveries."""
    last, clocks, of_keys = (dict[Any, Any]() for _ in range(3))
    backwards = redelivered = 0
    for reading, position in placed:
        record, at, clock_ms = reading.record, (position.high, position.low), position.clock_ms
        stream = record.partition, position.history
        # Without a Kafka key the value identifies the row: a redelivery has the same bytes.
        key = (reading.table, record.key or record.value), position.history
        clock = clocks.get(stream)
        backwards += stream in last and at < last[stream]
        seen = key in of_keys and at <= of_keys[key]
        redelivered += seen and (clock is None or clock_ms is None or clock_ms <= clock)
        last[stream], of_keys[key] = at, max(at, of_keys.get(key, at))
        if clock_ms is not None:
            clocks[stream] = max(clock_ms, clock or clock_ms)
    return backwards, redelivered


_MOST_CODE = 20_000
_MOST_ROWS = 40


@dataclass(frozen=True)
class CorruptRecord:
    """A record that the format cannot read.

    Parameters
    ----------
    place : str
        ``topic[partition]@offset``.
    error : str
    """

    place: str
    error: str


@dataclass(frozen=True, kw_only=True)
class TopicProfile:
    """The profile of a topic, made from a sample.

    Print it or show it in a notebook. `to_dict` returns JSON values, `call` the text of the call
    that reads a table.

    Parameters
    ----------
    topic, servers : str
    connection : tuple of str
        The names of the Kafka client's other options; a profile never has their values.
    records : int
        The number of records in the sample.
    format : str or None
        The identifier; None when no format reads most of the sample.
    reason : str
        Why this format was chosen, or none.
    candidates : tuple of Candidate
        The tried formats, the best first.
    values : mapping
        The number of values by encoding.
    keys : Keys
    tables : tuple of TableProfile
        Sorted by number of records, the largest first.
    handling : tuple of (str, str)
        Encodings that depend on the producer's configuration, with the evidence.
    positions : Positions or None
    repeated : int
        The number of records that repeat an earlier key and value.
    tombstones : int
    ignored : mapping
        The number of records that were understood and have no rows, by reason.
    control_events : tuple of str
        Some of the ignored records, with their statements.
    corrupt : int
        The number of unreadable records.
    errors : tuple of CorruptRecord
        The first unreadable records.
    key_sizes, value_sizes : Sizes or None
    times : tuple of (str, str) or None
        The first and the last Kafka timestamp, as ISO text in UTC.
    partitions : tuple of Partition
    headers : mapping
        The number of records by header name.
    notes : tuple of str
        Decisions that a reader of the topic has to make.
    calls : mapping
        The text of the call that reads each table, by the table's name.
    """

    topic: str
    servers: str
    connection: tuple[str, ...]
    records: int
    format: str | None
    reason: str
    candidates: tuple[Candidate, ...]
    values: Mapping[str, int]
    keys: Keys
    tables: tuple[TableProfile, ...] = ()
    handling: tuple[tuple[str, str], ...] = ()
    positions: Positions | None = None
    repeated: int
    tombstones: int
    ignored: Mapping[str, int] = field(default_factory=dict)
    control_events: tuple[str, ...] = ()
    corrupt: int = 0
    errors: tuple[CorruptRecord, ...] = ()
    key_sizes: Sizes | None
    value_sizes: Sizes | None
    times: tuple[str, str] | None
    partitions: tuple[Partition, ...]
    headers: Mapping[str, int]
    notes: tuple[str, ...] = ()
    calls: Mapping[str, str] = field(default_factory=dict)

    def call(self, table: str | None = None) -> str:
        """Return the call of ``from_kafka_changelog`` that reads a table, as Python text.

        Parameters
        ----------
        table : str or None
            A table's full name or its last part; None selects the table with the most records.

        Raises
        ------
        ArgumentError
            When the sample has no such table, or its columns are unknown.
        """
        if not self.calls:
            raise ArgumentError(
                f"the sample of {self.topic!r} has no table with known columns: {self.reason}"
            )
        names = [
            name for name in self.calls if table is None or table in (name, name.rpartition(".")[2])
        ]
        if not names:
            raise ArgumentError(
                f"the sample of {self.topic!r} has no table {table!r} with known columns: choose "
                f"{', '.join(self.calls)}"
            )
        return self.calls[names[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        candidates, tables = (
            [each.to_dict() for each in items] for items in (self.candidates, self.tables)
        )
        values = {
            **vars(self),
            "candidates": candidates,
            "tables": tables,
            "handling": dict(self.handling),
        }
        return dict(msgspec.to_builtins(values))

    def report(self) -> Report:
        """Return the profile as text, without empty sections."""
        made = (
            _format,
            _tables,
            _columns,
            _keys,
            lambda profile: Section("What the producer writes", profile.handling),
            _order,
            _without_rows,
            _partitions,
            _call,
        )
        sections = [
            clipped(each)
            for make in made
            if (each := make(self)) and (each.entries or each.grid or each.warnings or each.code)
        ]
        return Report(self.topic, _headline(self), self.format is not None, tuple(sections))

    def __str__(self) -> str:
        return plain_text(self.report())

    def __rich__(self) -> Any:
        return renderable(self.report())

    def _repr_html_(self) -> str:
        return html_text(self.report())


def _headline(profile: TopicProfile) -> str:
    """Return one line with the format and the sample's size."""
    size = sum(each.end - each.begin for each in profile.partitions)
    of = f" of {size:,}" if size > profile.records else ""
    return (
        f"{profile.format or 'no format'}: {_count(profile.records, 'record')}{of} in "
        f"{_count(len(profile.partitions), 'partition')}"
    )


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _format(profile: TopicProfile) -> Section:
    shown = [each for each in profile.candidates if each.understood or each.requirement][
        :4
    ] or list(profile.candidates[:2])
    rows = tuple(
        (
            each.identifier,
            f"{each.read:,}",
            f"{sum(each.ignored.values()):,}",
            f"{each.refused:,}",
            each.requirement
            or (each.error if each.identifier != profile.format else "")
            or each.evidence,
        )
        for each in shown
    )
    header = ("format", "rows", "no rows", "errors", "evidence")
    grid = (
        Grid(header, rows, frozenset(header[1:4]))
        if profile.candidates and profile.candidates[0].values
        else None
    )
    return Section("Format", (("why", profile.reason),), grid)


def _tables(profile: TopicProfile) -> Section:
    header = ("table", "records", *SHORT_STRINGS, "operations", "primary key", "is the Kafka key")
    rows = tuple(
        (
            each.name or "-",
            f"{each.records:,}",
            *(f"{each.kinds[kind]:,}" if kind in each.kinds else "-" for kind in SHORT_STRINGS),
            _counts(each.operations) or "-",
            f"({', '.join(each.primary_key)})" if each.primary_key else "none known",
            each.kafka_key,
        )
        for each in profile.tables[:_MOST_ROWS]
    )
    return Section("Tables", grid=Grid(header, rows, frozenset(header[1:6])) if rows else None)


def _columns(profile: TopicProfile) -> Section:
    if len(profile.tables) != 1:
        entries = tuple(
            (each.name or "-", each.ddl or each.reason) for each in profile.tables[:_MOST_ROWS]
        )
        return Section("Columns", entries)
    (table,) = profile.tables
    rows = tuple(
        (
            each.column.name,
            str(each.column.type),
            f"{each.seen.get('null', 0):,}" if each.column.nullable else "NOT NULL",
            each.origin,
        )
        for each in (table.schema.evidence if table.schema else ())
    )
    grid = (
        Grid(("column", "type", "nulls", "known by"), rows, frozenset({"nulls"})) if rows else None
    )
    return Section("Columns", (("columns", table.reason),) if table.reason else (), grid)


def _keys(profile: TopicProfile) -> Section:
    keys = profile.keys
    in_partitions = (
        f", {keys.moved:,} of them in more than one partition"
        if keys.moved
        else ", each in one partition"
    )
    sizes = (("key bytes", profile.key_sizes), ("value bytes", profile.value_sizes))
    return _section(
        "Records",
        ("keys", _counts(keys.encodings)),
        ("values", _counts(profile.values)),
        (
            "distinct keys",
            keys.distinct and f"{keys.distinct:,}{in_partitions if keys.partitions > 1 else ''}",
        ),
        *(
            (name, of and f"{of.least:,} to {of.most:,}, median {of.median:,}")
            for name, of in sizes
        ),
        (
            "headers",
            ", ".join(f"{name} ({number:,})" for name, number in profile.headers.items()),
        ),
        ("timestamps", " to ".join(profile.times or ())),
    )


def _section(title: str, *entries: tuple[str, object], **more: Any) -> Section:
    """Return a section with the entries that have a text."""
    return Section(title, tuple((name, str(text)) for name, text in entries if text), **more)


def _order(profile: TopicProfile) -> Section:
    repeated = f"{_count(profile.repeated, 'record')} with the key and the value of an earlier one"
    return _section(
        "Order",
        *(_position_entries(profile.positions) if profile.positions else ()),
        ("repeated", profile.repeated and repeated),
    )


def _position_entries(positions: Positions) -> list[tuple[str, str]]:
    if not positions.placed:
        return [("positions", f"none: {positions.reason}" if positions.unplaced else "")]
    histories = [
        f"{name or '(unnamed)'} ({number:,})" for name, number in positions.histories.items()
    ]
    total = positions.placed + positions.unplaced
    return [
        (
            "positions",
            f"{positions.placed:,} of {total:,} events"
            + (f": {positions.reason}" if positions.reason else ""),
        ),
        ("histories", shortened(histories)),
        (
            "in order",
            f"no: {_count(positions.backwards, 'step')} back"
            if positions.backwards
            else "yes, in each partition and history",
        ),
        (
            "redelivered",
            _count(positions.redelivered, "event") if positions.redelivered else "none seen",
        ),
    ]


def _without_rows(profile: TopicProfile) -> Section:
    reasons = {
        name: number for name, number in profile.ignored.items() if name != Ignored.TOMBSTONE.value
    }
    heading = f"{_count(profile.corrupt, 'record')} cannot be read, the first:"
    errors = [each.error for each in profile.errors]
    return _section(
        "Records without rows",
        ("tombstones", profile.tombstones and f"{profile.tombstones:,}"),
        ("control events", _counts(reasons)),
        *(("statement", text) for text in profile.control_events),
        warnings=(heading, *errors) if profile.corrupt else (),
    )


def _partitions(profile: TopicProfile) -> Section:
    header = ("partition", "first offset", "end offset", "sampled", "offsets without a record")
    rows = tuple(
        (
            str(each.number),
            f"{each.begin:,}",
            f"{each.end:,}",
            f"{each.records:,}",
            f"{each.missing:,}" if each.missing else "-",
        )
        for each in profile.partitions[:_MOST_ROWS]
    )
    with_holes = any(each.missing for each in profile.partitions)
    without_begin = any(each.begin > 0 and each.records for each in profile.partitions)
    return _section(
        "Partitions",
        ("holes", with_holes and "the topic is compacted, or was written in transactions"),
        (
            "beginning",
            without_begin
            and "the first offsets are gone (retention): rows that changed before are not in the "
            "topic",
        ),
        grid=Grid(header, rows, frozenset(header)) if rows else None,
    )


def _call(profile: TopicProfile) -> Section:
    code = profile.call() if profile.calls else ""
    if len(code) > _MOST_CODE:
        code = f"{code[:_MOST_CODE]}\n# ... cut: print(profile.call()) shows all of it"
    tables = shortened([*profile.calls][1:])
    return _section(
        "Read it", ("other tables", tables and f"print(profile.call(name)) for {tables}"), code=code
    )
