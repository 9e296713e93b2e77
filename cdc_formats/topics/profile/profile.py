"""Profiles the records of a sample: `profile_records`.

The ``from_kafka_changelog`` call for a table; what is unknown becomes a comment, never a guess.

Encodings set by the producer's configuration: schema blocks, decimals, times, nulls, images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from operator import attrgetter
from textwrap import wrap
from typing import Any

from cdc_formats.decoder import in_record
from cdc_formats.errors import ChangelogError, printable
from cdc_formats.events import ChangelogMode, Ignored, RowKind
from cdc_formats.format import Format, format_class
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.infer import AnyColumns, ColumnEvidence, Reading, named_format
from cdc_formats.topics.inference.observed import unavailable_forms
from cdc_formats.topics.profile.detect import Candidate, candidate, candidates, choose
from cdc_formats.topics.profile.terminal import shortened
from cdc_formats.topics.profile.topic_profile import (
    CorruptRecord,
    Positions,
    TableProfile,
    TopicProfile,
    headers,
    keys,
    partitions,
    positions,
    profiled_tables,
    repeated,
    sizes,
    time_range,
)
from cdc_formats.topics.sampler import (
    JSON_BLOCK,
    NULL,
    InspectedRecord,
    SampledRecord,
    Sampler,
    inspect_all,
    sampler_class,
    sampler_of,
)
from cdc_formats.values import times


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
    tried, chosen, reason = chosen_format(inspected, format, options)
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
    readings = all_readings(records, detected, reader)
    profiles = tuple(table for table, _ in profiled_tables(readings, reader))
    in_log = positions(readings, format)
    ignored = Counter(each.ignored.value for each in readings if each.ignored)
    errors = [
        CorruptRecord(
            each.record.where, str(in_record(each.error, each.record, excerpt=format.error_excerpt))
        )
        for each in readings
        if each.error
    ]
    notes = tuple(topic_notes(ignored, len(errors), in_log))
    return {
        "tables": profiles,
        "handling": handling(readings, profiles, format),
        "positions": in_log,
        "ignored": dict(ignored),
        "control_events": tuple(_statements(readings, format)),
        "corrupt": len(errors),
        "errors": tuple(errors[:5]),
        "notes": notes,
        "calls": {
            each.name: call_text(topic, servers, connection, format, each, notes)
            for each in profiles
            if each.schema
        },
    }


def all_readings(
    records: Sequence[InspectedRecord], detected: Sequence[Reading], reader: AnyColumns
) -> list[Reading]:
    """Return what a format reads of all records, some of which it read when it was detected."""
    by_record = {id(each.inspected): each for each in detected}
    return [by_record.get(id(each)) or reader.read(each) for each in records]


def chosen_format(
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
            or shown[each.ignored] == 3
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


# --------------------------------------------------------------------------------------------------
# The ``from_kafka_changelog`` call for a table; what is unknown becomes a comment


def call_text(
    topic: str,
    servers: str,
    connection: Sequence[str],
    format: Format,
    table: TableProfile,
    notes: Sequence[str] = (),
) -> str:
    """Return the call that reads a table, as Python text that expects a session named ``spark``.

    Parameters
    ----------
    topic, servers : str
    connection : sequence of str
        The names of the Kafka client's options; their values are not shown.
    format : Format
    table : TableProfile
        A table with a schema.
    notes : sequence of str
        Notes on the topic; those on the table are added.
    """
    comments = [*notes, *_table_notes(format, table)]
    if connection:
        comments.append(
            "options: add Spark's kafka.* options that match the sample's client: "
            f"{', '.join(sorted(connection))}"
        )
    if "..." in table.options.values():
        comments.append('format_options: replace "..." with the secret')
    return "\n".join(
        [
            "from normalize import from_kafka_changelog",
            "",
            *(
                f"# {line}"
                for note in comments
                for line in wrap(printable(note), 74, break_on_hyphens=False)
            ),
            "changes = from_kafka_changelog(",
            *(
                f"    {line}"
                for line in _arguments(topic, servers or "localhost:9092", format.identifier, table)
            ),
            ")",
        ]
    )


def _arguments(topic: str, servers: str, identifier: str, table: TableProfile) -> Iterator[str]:
    yield "spark,"
    yield f"{literal(topic)},"
    yield f"format={literal(identifier)},"
    if table.options:
        yield f"format_options={_mapping(table.options)},"
    columns = [str(column) for column in table.schema.columns] if table.schema else []
    yield "schema=("
    for number, column in enumerate(columns, 1):
        yield f"    {literal(column + (', ' if number < len(columns) else ''))}"
    yield "),"
    if table.primary_key:
        yield f"primary_key=[{', '.join(map(literal, table.primary_key))}],"
    else:
        yield "normalize=False,"
    yield f"options={_mapping({'kafka.bootstrap.servers': servers})},"


def literal(value: Any) -> str:
    """Return a value as Python text: one line, control characters escaped.

    Examples
    --------
    >>> print(literal("a 'b'"), literal('say "hi"'), literal(True))
    "a 'b'" 'say "hi"' True
    """
    if not isinstance(value, str):
        return printable(repr(value))
    text = repr(value)
    return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text and "\\'" not in text else text


def _mapping(values: Mapping[str, Any]) -> str:
    return (
        "{"
        + ", ".join(f"{literal(name)}: {literal(value)}" for name, value in values.items())
        + "}"
    )


def _table_notes(format: Format, table: TableProfile) -> Iterator[str]:
    if not table.primary_key:
        yield (
            "no primary key is known: rows pass unchanged. Pass primary_key=[...] to remove "
            "duplicates"
            if format.changelog_mode == ChangelogMode.all()
            else f"no primary key is known, and {format.identifier} needs one: pass "
            "primary_key=[...]"
        )
        has_updates = format.traits.reads_key and format.changelog_mode.contains(
            RowKind.UPDATE_BEFORE
        )
        if has_updates and table.before.updates > table.before.updates_with:
            yield (
                "an update of a table without a key does not identify the replaced row and is an "
                "error: see mode"
            )
    if table.schema is None:
        return
    yield from (f"{', '.join(names)}: {note}" for note, names in table.schema.noted_columns.items())
    guessed = [each.column.name for each in table.schema.evidence if not each.source_type]
    if guessed:
        yield (
            "types guessed from the sample's values; other values may not fit: "
            f"{', '.join(guessed)}"
        )
    yield from table.schema.notes


def topic_notes(ignored: Mapping[str, int], corrupt: int, positions: Positions) -> Iterator[str]:
    """Return notes on decisions that a reader of the topic has to make.

    Parameters
    ----------
    ignored : mapping
        The number of records without rows, by reason.
    corrupt : int
        The number of unreadable records.
    positions : Positions
    """
    if corrupt:
        yield (
            f"{corrupt} records of the sample cannot be read and would fail the query: see "
            "mode='PERMISSIVE' and mode=DeadLetter(...)"
        )
    if truncated := ignored.get(Ignored.TRUNCATE.value):
        yield (
            f"{truncated} records of the sample truncate the table, which fails the query: see "
            "on_truncate and control_events"
        )
    if positions.placed and not positions.unplaced and positions.redelivered:
        drops = "normalize=ChangelogNormalize(order='source') drops them (it requires primary_key)"
        yield f"{positions.redelivered} events of the sample are redeliveries: {drops}"


# --------------------------------------------------------------------------------------------------
# Encodings set by the producer's configuration: schema blocks, decimals, times, nulls, imag

_NOT_IN_MESSAGES = (
    "decimal_handling_mode",
    "time_precision_mode",
    "bigint_unsigned_handling_mode",
    "time_zone",
)


def handling(
    readings: Sequence[Reading], profiles: Sequence[TableProfile], format: Format
) -> tuple[tuple[str, str], ...]:
    """Return the encodings set by the producer's configuration, as pairs of name and evidence."""
    schemas = [each.schema for each in profiles if each.schema]
    evidence = [each for schema in schemas for each in schema.evidence]
    encodings = [each.inspected.value.encoding for each in readings]
    values, blocks = sum(each != NULL for each in encodings), encodings.count(JSON_BLOCK)
    nulls = [(each.column.name, each.seen["null"]) for each in evidence if each.seen.get("null")]
    with_nulls = f"in {len(nulls)} of {len(evidence)} columns: {_counted(nulls)}"
    made = (
        ("schema blocks", f"{blocks} of {values} values have one" if blocks else ""),
        ("decimals", _typed(evidence, schemas, ("DECIMAL",))),
        ("times", _typed(evidence, schemas, tuple(times.TYPES))),
        ("not in the messages", _not_in_messages(evidence)),
        ("nulls", with_nulls if nulls else ""),
        ("unavailable values", _placeholders(readings, sampler_of(format))),
        ("before-images", _images(profiles)),
    )
    return tuple((name, text) for name, text in made if text)


def _typed(
    evidence: Sequence[ColumnEvidence], schemas: Sequence[InferredSchema], names: Sequence[str]
) -> str:
    """Return the evidence for columns of the named types."""
    counts: Counter[str] = Counter()
    for each in evidence:
        if each.column.type.name in names:
            counts[f"by {each.certainty}" if each.source_type else "guessed from values"] += 1
    detected = {
        f"{name}={schema.format_options[name]!r} ({why})"
        for schema in schemas
        for name, why in schema.option_reasons.items()
    }
    mode = "decimal_handling_mode" if "DECIMAL" in names else "time_precision_mode"
    modes = [text for text in sorted(detected) if text.startswith(mode)]
    return "; ".join(
        [*(f"{count} column{'s' * (count != 1)} {how}" for how, count in counts.items()), *modes]
    )


def _not_in_messages(evidence: Sequence[ColumnEvidence]) -> str:
    """Return the options that require knowledge of the producer, and columns that may need them."""
    columns: dict[str, list[str]] = {}
    for each in evidence:
        for option in (
            option for option in _NOT_IN_MESSAGES if any(option in note for note in each.notes)
        ):
            columns.setdefault(option, []).append(each.column.name)
    return "; ".join(
        f"{option} (perhaps for {shortened(names)})" for option, names in columns.items()
    )


def _counted(counts: Sequence[tuple[str, int]]) -> str:
    return shortened([f"{name} ({count})" for name, count in counts])


def _placeholders(readings: Sequence[Reading], sampler: Sampler) -> str:
    placeholder = sampler.format.handling.placeholder
    if placeholder is None:
        return ""
    forms = unavailable_forms(placeholder)
    events = [
        event
        for each in readings
        for event in each.events
        if not sampler.is_complete(event.message)
    ]
    images = [event.after for event in events if isinstance(event.after, Mapping)]
    names = Counter(
        str(name)
        for name, value in chain.from_iterable(map(Mapping.items, images))
        if value in forms
    )
    return (
        f"{names.total()}, written as {placeholder!r}: {_counted(names.most_common())}"
        if names
        else ""
    )


def _images(profiles: Sequence[TableProfile]) -> str:
    images = [each.before for each in profiles]
    updates, with_image, deletes, whole = (
        sum(map(attrgetter(name), images))
        for name in ("updates", "updates_with", "deletes", "deletes_whole")
    )
    sentences = []
    if updates:
        part = " (the columns that changed)" if any(each.changed_only for each in images) else ""
        sentences.append(f"{with_image} of {updates} updates have one{part}")
    if deletes:
        fakes = (
            " (PostgreSQL without REPLICA IDENTITY FULL fills NOT NULL columns there)"
            if updates and whole and not with_image
            else ""
        )
        sentences.append(f"{whole} of {deletes} deletes have values outside the key{fakes}")
    return "; ".join(sentences)
