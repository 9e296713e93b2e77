"""Profiles the records of a sample: `profile_records` and `TopicProfile`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cdc_formats.errors import ArgumentError, ChangelogError
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.registry import format_class
from cdc_formats.topics.encodings import InspectedRecord, SampledRecord
from cdc_formats.topics.inference.reading import AnyColumns
from cdc_formats.topics.sampler import sampler_class

from .call import call_text, topic_notes
from .detect import Candidate, candidate, candidates, choose
from .facts import (
    Keys,
    Partition,
    Positions,
    Sizes,
    encodings,
    headers,
    keys,
    partitions,
    positions,
    repeated,
    sizes,
    time_range,
    tombstones,
)
from .handling import handling
from .read import Reading, inspect_all, read_all
from .tables import TableProfile, tables

_MOST_ERRORS = 5
_MOST_STATEMENTS = 3


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


@dataclass(frozen=True)
class TopicProfile:
    """The profile of a topic, made from a sample.

    Print it or show it in a notebook. `to_dict` returns JSON values, `call` the text of the call that reads a table.

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
    tables: tuple[TableProfile, ...]
    handling: tuple[tuple[str, str], ...]
    positions: Positions | None
    repeated: int
    tombstones: int
    ignored: Mapping[str, int]
    control_events: tuple[str, ...]
    corrupt: int
    errors: tuple[CorruptRecord, ...]
    key_sizes: Sizes | None
    value_sizes: Sizes | None
    times: tuple[str, str] | None
    partitions: tuple[Partition, ...]
    headers: Mapping[str, int]
    notes: tuple[str, ...]
    calls: Mapping[str, str]

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
            raise ArgumentError(f"the sample of {self.topic!r} has no table with known columns: {self.reason}")
        names = [name for name in self.calls if table is None or table in (name, name.rpartition(".")[2])]
        if not names:
            raise ArgumentError(f"the sample of {self.topic!r} has no table {table!r} with known columns: choose {', '.join(self.calls)}")
        return self.calls[names[0]]

    def to_dict(self) -> dict[str, Any]:
        """Return all fields as JSON values."""
        return {
            "topic": self.topic,
            "servers": self.servers,
            "connection": list(self.connection),
            "records": self.records,
            "format": self.format,
            "reason": self.reason,
            "candidates": [each.to_dict() for each in self.candidates],
            "values": dict(self.values),
            "keys": asdict(self.keys),
            "tables": [_table_dict(each) for each in self.tables],
            "handling": dict(self.handling),
            "positions": None if self.positions is None else asdict(self.positions),
            "repeated": self.repeated,
            "tombstones": self.tombstones,
            "ignored": dict(self.ignored),
            "control_events": list(self.control_events),
            "corrupt": self.corrupt,
            "errors": [asdict(each) for each in self.errors],
            "key_sizes": None if self.key_sizes is None else asdict(self.key_sizes),
            "value_sizes": None if self.value_sizes is None else asdict(self.value_sizes),
            "times": None if self.times is None else list(self.times),
            "partitions": [asdict(each) for each in self.partitions],
            "headers": dict(self.headers),
            "notes": list(self.notes),
            "calls": dict(self.calls),
        }

    def __str__(self) -> str:
        from .terminal import plain_text

        return plain_text(self)

    def __rich__(self) -> Any:
        from .terminal import renderable

        return renderable(self)

    def _repr_html_(self) -> str:
        from .html import html_text

        return html_text(self)


def _table_dict(table: TableProfile) -> dict[str, Any]:
    return {
        "name": table.name,
        "records": table.records,
        "kinds": dict(table.kinds),
        "operations": dict(table.operations),
        "before_images": asdict(table.before),
        "kafka_key": table.kafka_key,
        "key_agrees": table.key_agrees,
        "ddl": table.ddl,
        "primary_key": list(table.primary_key),
        "schema": None if table.schema is None else table.schema.to_dict(),
        "reason": table.reason,
        "options": {name: value if isinstance(value, (bool, int, str)) else repr(value) for name, value in table.options.items()},
    }


def profile_records(
    records: Sequence[SampledRecord],
    *,
    topic: str = "",
    servers: str = "",
    connection: Sequence[str] = (),
    format: str | Format | None = None,
    ranges: Mapping[int, tuple[int, int]] | None = None,
    asked: Mapping[int, int] | None = None,
    **options: Any,
) -> TopicProfile:
    """Return the profile of a sample of a topic.

    Parameters
    ----------
    records : sequence of SampledRecord
        Records of one topic.
    topic, servers : str
        Shown in the profile and used in the call; by default the records' topic and ``localhost:9092``.
    connection : sequence of str
        The names of the Kafka client's other options.
    format : str, Format or None
        None tries every registered format.
    ranges : mapping or None
        The first offset and the one after the last, by partition, where known from Kafka.
    asked : mapping or None
        The number of offsets read, by partition; offsets without a record are reported as missing.
    **options
        Format options. Without `format`, each tried format gets those that it has (``url`` of a schema registry).

    Raises
    ------
    FormatOptionError, UnknownFormatError, ArgumentError
        When the format or an option is invalid.
    SchemaRegistryError
        When the configured schema registry does not answer.

    Examples
    --------
    >>> from cdc_formats.topics.encodings import SampledRecord
    >>> value = b'{"type": "insert", "database": "shop", "table": "parts", "data": {"id": 1, "price": 9.50}}'
    >>> found = profile_records([SampledRecord("parts", 0, 7, 0, b'{"pk.id": 1}', value, ())])
    >>> found.format, found.tables[0].name, found.tables[0].ddl, found.tables[0].kafka_key
    ('maxwell-json', 'shop.parts', 'id BIGINT NOT NULL, price DECIMAL(38,18)', "yes: (id), equal to the row's in 1 events")
    """
    inspected = inspect_all(records)
    tried, chosen, reason = _chosen(inspected, format, options)
    reader = AnyColumns(chosen) if chosen else None
    readings = list(read_all(reader, inspected)) if reader else []
    found = tables(readings, reader) if reader else ()
    placed = positions(readings, chosen) if chosen else None
    ignored = Counter(each.ignored.value for each in readings if each.ignored)
    wrong = [each for each in readings if each.error]
    notes = tuple(topic_notes(ignored, len(wrong), placed)) if placed else ()
    name = topic or next((each.topic for each in records), "")
    known = [each for each in found if each.schema]
    return TopicProfile(
        topic=name,
        servers=servers,
        connection=tuple(connection),
        records=len(records),
        format=chosen.identifier if chosen else None,
        reason=reason,
        candidates=tuple(tried),
        values=encodings(inspected),
        keys=keys(inspected),
        tables=found,
        handling=handling(readings, found, chosen) if chosen else (),
        positions=placed,
        repeated=repeated(records),
        tombstones=tombstones(inspected),
        ignored=dict(ignored),
        control_events=tuple(_statements(readings, chosen)) if chosen else (),
        corrupt=len(wrong),
        errors=tuple(CorruptRecord(each.error.where, str(each.error)) for each in wrong[:_MOST_ERRORS] if each.error),
        key_sizes=sizes(each.key for each in records),
        value_sizes=sizes(each.value for each in records),
        times=time_range(records),
        partitions=partitions(records, ranges or {}, asked),
        headers=headers(records),
        notes=notes,
        calls={each.name: call_text(name, servers, connection, chosen, each, notes) for each in known if chosen},
    )


def _chosen(
    records: Sequence[InspectedRecord], format: str | Format | None, options: Mapping[str, Any]
) -> tuple[list[Candidate], Format | None, str]:
    """Return the tried formats, the chosen one, and the reason."""
    if isinstance(format, Format):
        if options:
            raise ArgumentError(f"options require a format's name: pass them to {type(format).__name__}(...) instead")
        return [candidate(format, records)], format, "as given"
    if format is not None:
        cls = format_class(format)
        chosen = cls.from_options({**sampler_class(cls).detected_options(records, options), **options})
        return [candidate(chosen, records)], chosen, "as given"
    tried = candidates(records, options)
    best, reason = choose(tried, records)
    return tried, best.format if best else None, reason


def _statements(readings: Sequence[Reading], format: Format) -> Iterator[str]:
    """Return descriptions of ignored records: the first distinct ones of each reason."""
    shown: Counter[Ignored] = Counter()
    seen: set[str] = set()
    for each in readings:
        if each.ignored is None or each.ignored in (Ignored.TOMBSTONE, Ignored.HEARTBEAT) or shown[each.ignored] == _MOST_STATEMENTS:
            continue
        record = each.record
        try:
            event = format.control_event(record.key, record.value, each.ignored, record.headers)
        except (ChangelogError, RecursionError):
            continue
        names = ".".join(name for name in (event.database, event.schema, event.table) if name)
        said = " ".join(part for part in (each.ignored.value, names, event.statement) if part)
        if said not in seen:
            seen.add(said)
            shown[each.ignored] += 1
            yield said
