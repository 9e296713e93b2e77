"""Profiles the records of a sample, after it has detected their format: `profile_records`.

A profile has the ``from_kafka_changelog`` call for each table; what is unknown becomes a comment, never
a guess. It also names the encodings that the producer's configuration sets: schema blocks, decimals,
times, nulls, images.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import chain
from operator import attrgetter
from textwrap import wrap
from typing import Any

from cdc_formats.decoder import in_record
from cdc_formats.decoding.other_messages import OF_REGISTRY as PROTOBUF, SENTENCE, other_message
from cdc_formats.errors import (
    ChangelogError,
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    printable,
)
from cdc_formats.events import ChangelogMode, Ignored, RowKind
from cdc_formats.format import (
    BUILT_IN,
    Format,
    format_class,
    get_format,
    list_formats,
    nearest_options,
    option_name,
)
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.infer import AnyColumns, ColumnEvidence, Reading, named_format
from cdc_formats.topics.inference.observed import unavailable_forms
from cdc_formats.topics.profile.terminal import shortened
from cdc_formats.topics.profile.topic_profile import (
    Candidate,
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
    FRAMED,
    GLUE,
    JSON_BLOCK,
    NULL,
    Encoded,
    Evidence,
    InspectedRecord,
    SampledRecord,
    Sampler,
    inspect_all,
    sampler_class,
    sampler_of,
)
from cdc_formats.values import times

# --------------------------------------------------------------------------------------------------
# Detection of a topic's format: every registered format reads the sample, and the best is chosen.
#
# A format is *specific* when it refuses a JSON object that no CDC tool writes; the others read any
# JSON object as a row. Formats are ranked by:
#
# 1. specific formats first
# 2. the number of values that the format understands
# 3. the number of values with a field that only this format writes (``_tidb``, ``__op``)
#
# A *fallback* describes the messages of many producers by its options (op-json). It is tried only
# if no specific format reads the sample. The reason lists formats that rank equal to the chosen
# one. Formats of other packages are tried like the built-in ones.


_NEEDED_SHARE = 2  # at least one of two values must be understood


def candidates(records: Sequence[InspectedRecord], options: Mapping[str, Any]) -> list[Candidate]:
    """Try every registered format on a sample.

    Parameters
    ----------
    records : sequence of InspectedRecord
    options : mapping
        Format options by name; each format gets those that it has.

    Returns
    -------
    list of Candidate
        The best first.

    Raises
    ------
    FormatOptionError
        When no format has an option.
    SchemaRegistryError
        When the configured schema registry does not answer.
    """
    values = {option_name(name): value for name, value in options.items()}
    formats = {name: _format_or_error(name) for name in list_formats()}
    declared = {
        option.name
        for format in formats.values()
        if isinstance(format, Format)
        for option in fields(format)
    }
    if unknown := sorted({*values} - declared):
        raise FormatOptionError(
            f"no format has an option {', '.join(unknown)}"
            f"{nearest_options(unknown, sorted(declared))}"
        )
    present = [each for each in records if each.record.value]
    fallbacks = {
        name
        for name, format in formats.items()
        if isinstance(format, Format) and sampler_class(type(format)).fallback
    }
    tried = [
        _tried(name, format, present, values)
        for name, format in formats.items()
        if name not in fallbacks
    ]
    if not any(map(_is_specific, tried)):
        tried += [_tried(name, formats[name], present, values) for name in sorted(fallbacks)]
    return sorted(tried, key=_rank)


def candidate(format: Format, records: Sequence[InspectedRecord]) -> Candidate:
    """Try one format on a sample.

    Raises
    ------
    SchemaRegistryError
        When the configured schema registry does not answer.
    InferenceError
        When the format has no column names.
    """
    return _read(format, [each for each in records if each.record.value])


def _read(format: Format, records: Sequence[InspectedRecord]) -> Candidate:
    """Read the records with a value."""
    reader = AnyColumns(format)
    decoy = InspectedRecord(
        SampledRecord("", 0, 0, -1, b'{"id": 1}', b'{"a field that no format has": 1}', ())
    )
    specific = not reader.sampler.plain_rows and not reader.read(decoy).events
    return _counted(reader.sampler, list(map(reader.read, records)), specific)


def choose(
    tried: Sequence[Candidate], records: Sequence[InspectedRecord]
) -> tuple[Candidate | None, str]:
    """Return the format of a sample, None when no format reads it, and the reason.

    Parameters
    ----------
    tried : sequence of Candidate
        The best first.
    records : sequence of InspectedRecord
        The sample.
    """
    best = tried[0]
    if not best.values:
        return None, "no record has a value to detect the format from"
    if not best.is_enough:
        return None, _not_understood(tried, records)
    merits = (best.specific, best.understood, best.distinctive)
    equal = [
        each.identifier
        for each in tried[1:]
        if (each.specific, each.understood, each.distinctive) == merits
    ]
    return best, best.evidence + (
        f"; {' and '.join(equal)} would read as many values: check which one it is" if equal else ""
    )


def _not_understood(tried: Sequence[Candidate], records: Sequence[InspectedRecord]) -> str:
    """Return why no format was chosen for a sample that has values."""
    count = tried[0].values
    if any(PROTOBUF in each.error for each in tried):  # the schema registry says so
        return (
            f"no format reads most of the {count} values: they are Protobuf, as the schema "
            f"registry says. {SENTENCE}"
        )
    other = next(
        (sentence for each in records if (sentence := other_message(each.record.value))), ""
    )
    if waiting := next((each.requirement for each in tried if each.requirement), ""):
        return f"the format cannot be detected yet: {waiting}{f'; {other}' if other else ''}"
    if other:
        return f"no format reads most of the {count} values: {other}"
    nearest = max(tried, key=lambda each: (each.understood, each.evidence != ""))
    return (
        f"no format reads most of the {nearest.values} values; the nearest is "
        f"{nearest.identifier}, with {nearest.understood}"
    )


def _is_specific(each: Candidate) -> bool:
    """Whether a format refuses what no CDC tool writes, and reads a share of the sample."""
    # Several formats read a null payload as a tombstone, so that it does not count as evidence.
    telling = each.understood - each.ignored.get(Ignored.TOMBSTONE.value, 0)
    # One of ten is enough to prefer a specific format.
    return each.specific and 10 * telling >= each.values > 0


def _rank(each: Candidate) -> tuple[Any, ...]:
    built_in = each.identifier in BUILT_IN
    plain_rows = each.format is not None and sampler_class(type(each.format)).plain_rows
    order = (not plain_rows, not built_in, each.identifier if built_in else "")
    return not _is_specific(each), -each.understood, -each.distinctive, order


def _format_or_error(identifier: str) -> Format | Exception:
    """Return a format with its defaults, or the error with which it failed to load.

    A format of another package may raise anything.
    """
    try:
        format = get_format(identifier)
        sampler_of(format)
        return format
    except Exception as error:
        return error


def _tried(
    identifier: str,
    default: Format | Exception,
    records: Sequence[InspectedRecord],
    values: Mapping[str, Any],
) -> Candidate:
    """Try a format on the records that have a value, or say why it failed to load.

    `values` has the options of all formats.
    """
    if isinstance(default, Exception):
        # The built-in formats in Avro have requirements: they are listed if the bytes may be Avro.
        is_avro = identifier in BUILT_IN and isinstance(default, MissingDependencyError)
        may_be_its = not is_avro or any(each.value.encoding in FRAMED for each in records)
        return Candidate(
            identifier,
            values=len(records),
            requirement=f"it cannot be tried: {default}" if may_be_its else "",
        )
    own = {each.name: values[each.name] for each in fields(default) if each.name in values}
    try:
        format = type(default).from_options(
            {**sampler_class(type(default)).detected_options(records, values), **own}
        )
        if requirement := _requirement(format, records):
            return Candidate(
                identifier, values=len(records), requirement=requirement, format=default
            )
        return _read(format, records)
    except SchemaRegistryError:
        raise
    except Exception as error:
        return Candidate(
            identifier,
            values=len(records),
            requirement=f"it cannot be tried: {error}",
            format=default,
        )


def _requirement(format: Format, records: Sequence[InspectedRecord]) -> str:
    """Return what is required to read values with schemas in a registry; empty for others."""
    ids = _schema_ids(each.value for each in records)
    if not ids or _NEEDED_SHARE * len(ids) < len(records):
        return ""
    registry = sampler_of(format).registry
    if registry is None or registry.url:
        return ""
    is_glue = any(each.value.encoding == GLUE for each in records)
    url = "glue://eu-central-1" if is_glue else "https://..."
    return (
        f"{len(ids)} of {len(records)} values name a schema of a registry (id {shortened(sorted(set(ids)))}): pass "
        f"url={url!r}, or -o url={url} to cdc"
    )


def _counted(sampler: Sampler, readings: Sequence[Reading], specific: bool) -> Candidate:
    evidence = [sampler.evidence(each.inspected) for each in readings]
    refusals = [
        in_record(reading.error, reading.record, excerpt=sampler.format.error_excerpt)
        if reading.error
        else each.refusal
        for reading, each in zip(readings, evidence, strict=True)
    ]
    rows = sum(
        bool(each.events) and refusal is None
        for each, refusal in zip(readings, refusals, strict=True)
    )
    errors = list(filter(None, refusals))
    ignored = Counter(
        each.ignored.value
        for each, refusal in zip(readings, refusals, strict=True)
        if each.ignored and refusal is None
    )
    made = Candidate(
        sampler.format.identifier,
        evidence=_sentence(sampler.marks, readings, evidence, rows, specific),
        values=len(readings),
        read=rows,
        ignored=dict(ignored),
        refused=len(errors),
        error=str(errors[0]) if errors else "",
        specific=specific,
        distinctive=sum(each.distinctive for each in evidence),
        format=sampler.format,
    )
    return replace(made, readings=tuple(readings)) if made.is_enough else made


def _sentence(
    fields: Sequence[str],
    readings: Sequence[Reading],
    evidence: Sequence[Evidence],
    rows: int,
    specific: bool,
) -> str:
    if not readings:
        return ""
    values, total = [each.inspected.value for each in readings], len(readings)
    counts = Counter(name for value in values for name in fields if name in value.fields)
    # The fields that most values have.
    marks = [name for name in fields if _NEEDED_SHARE * counts[name] >= total]
    marked = sum(all(name in value.fields for name in marks) for value in values)
    ids = _schema_ids(values)
    if rows and ids:
        return f"{rows} of {total} values are Avro with a registry schema: id {shortened(sorted(set(ids)))}"
    remarks = Counter(chain.from_iterable(each.remarks for each in evidence))
    sentences = [
        *([f"{marked} of {total} values have {listed(marks)}"] if marks else ()),
        *(remark.format(count, total) for remark, count in remarks.items()),
    ]
    any_object = f"reads any JSON object as a row: {rows} of {total} values"
    return ", ".join(sentences) or (
        f"{rows} of {total} values are messages of this format" if specific else any_object
    )


def _schema_ids(values: Iterable[Encoded]) -> list[str]:
    """Return the ids of values in Avro with a schema of a registry."""
    return [value.schema_id for value in values if value.encoding in FRAMED]


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    Examples
    --------
    >>> listed(["before", "after", "op"])
    'before, after and op'
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


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
    >>> from cdc_formats.topics.sampler import SampledRecord
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
    with_nulls = f"in {len(nulls)} of {len(evidence)} columns: {_with_counts(nulls)}"
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


def _with_counts(counts: Sequence[tuple[str, int]]) -> str:
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
        f"{names.total()}, written as {placeholder!r}: {_with_counts(names.most_common())}"
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
