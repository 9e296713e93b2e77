"""Profiles the records of a sample: `profile_records`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc_formats.decoding.one_record import in_record
from cdc_formats.errors import ChangelogError
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.registry import format_class
from cdc_formats.topics.encodings import NULL, InspectedRecord, SampledRecord, inspect_all
from cdc_formats.topics.inference.reading import AnyColumns, Reading, named_format
from cdc_formats.topics.sampler import sampler_class

from .call import call_text, topic_notes
from .detect import Candidate, candidate, candidates, choose
from .facts import headers, keys, partitions, positions, repeated, sizes, time_range
from .handling import handling
from .tables import tables
from .topic_profile import CorruptRecord, TopicProfile

_MOST_ERRORS = 5
_MOST_STATEMENTS = 3


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
        Shown in the profile and used in the call; by default the records' topic and
        ``localhost:9092``.
    connection : sequence of str
        The names of the Kafka client's other options.
    format : str, Format or None
        None tries every registered format.
    ranges : mapping or None
        The first offset and the one after the last, by partition, where known from Kafka.
    asked : mapping or None
        The number of offsets read, by partition; offsets without a record are reported as missing.
    **options
        Format options. Without `format`, each tried format gets those that it has (``url`` of a
        schema registry).

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
    >>> profile = profile_records([SampledRecord("parts", 0, 7, 0, b'{"pk.id": 1}', value, ())])
    >>> profile.format, profile.tables[0].name, profile.tables[0].ddl, profile.tables[0].kafka_key
    ('maxwell-json', 'shop.parts', 'id BIGINT NOT NULL, price DECIMAL(38,18)', "yes: (id), equal to the row's in 1 events")
    """
    inspected = inspect_all(records)
    encodings = Counter(each.value.encoding for each in inspected)
    tried, chosen, reason = _chosen(inspected, format, options)
    readings = tried[0].readings
    name = topic or next((each.topic for each in records), "")
    return TopicProfile(
        topic=name,
        servers=servers,
        connection=tuple(connection),
        records=len(records),
        format=chosen.identifier if chosen else None,
        reason=reason,
        candidates=tuple(replace(each, readings=()) for each in tried),
        values=dict(encodings.most_common()),
        keys=keys(inspected),
        repeated=repeated(records),
        tombstones=encodings[NULL],
        key_sizes=sizes(each.key for each in records),
        value_sizes=sizes(each.value for each in records),
        times=time_range(records),
        partitions=partitions(records, ranges or {}, asked),
        headers=headers(records),
        **(_content(inspected, readings, chosen, name, servers, connection) if chosen else {}),
    )


def _content(
    records: Sequence[InspectedRecord],
    detected: Sequence[Reading],
    format: Format,
    topic: str,
    servers: str,
    connection: Sequence[str],
) -> dict[str, Any]:
    """Return the fields of a profile that come from reading the records in a format."""
    reader = AnyColumns(format)
    known = {id(each.inspected): each for each in detected}
    readings = [known.get(id(each)) or reader.read(each) for each in records]
    profiles, places = tables(readings, reader), positions(readings, format)
    ignored = Counter(each.ignored.value for each in readings if each.ignored)
    errors = [
        CorruptRecord(
            each.record.where, str(in_record(each.error, each.record, excerpt=format.error_excerpt))
        )
        for each in readings
        if each.error
    ]
    notes = tuple(topic_notes(ignored, len(errors), places))
    return {
        "tables": profiles,
        "handling": handling(readings, profiles, format),
        "positions": places,
        "ignored": dict(ignored),
        "control_events": tuple(_statements(readings, format)),
        "corrupt": len(errors),
        "errors": tuple(errors[:_MOST_ERRORS]),
        "notes": notes,
        "calls": {
            each.name: call_text(topic, servers, connection, format, each, notes)
            for each in profiles
            if each.schema
        },
    }


def _chosen(
    records: Sequence[InspectedRecord], format: str | Format | None, options: Mapping[str, Any]
) -> tuple[list[Candidate], Format | None, str]:
    """Return the tried formats, the chosen one, and the reason."""
    if isinstance(format, Format):
        return [candidate(named_format(format, options), records)], format, "as given"
    if format is not None:
        cls = format_class(format)
        chosen = cls.from_options(
            {**sampler_class(cls).detected_options(records, options), **options}
        )
        return [candidate(chosen, records)], chosen, "as given"
    tried = candidates(records, options)
    best, reason = choose(tried, records)
    return tried, best.format if best else None, reason


def _statements(readings: Sequence[Reading], format: Format) -> Iterator[str]:
    """Return descriptions of ignored records: the first distinct ones of each reason."""
    shown: Counter[Ignored] = Counter()
    seen: set[str] = set()
    for each in readings:
        if (
            each.ignored is None
            or each.ignored in (Ignored.TOMBSTONE, Ignored.HEARTBEAT)
            or shown[each.ignored] == _MOST_STATEMENTS
        ):
            continue
        record = each.record
        try:
            event = format.control_event(record.key, record.value, each.ignored, record.headers)
        except (ChangelogError, RecursionError):
            continue
        names = ".".join(filter(None, (event.database, event.schema, event.table)))
        text = " ".join(filter(None, (each.ignored.value, names, event.statement)))
        if text not in seen:
            seen.add(text)
            shown[each.ignored] += 1
            yield text
