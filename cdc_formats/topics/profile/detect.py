"""Detection of a topic's format: every registered format reads the sample, and the best is chosen.

A format is *specific* when it refuses a JSON object that no CDC tool writes; the others read any
JSON object as a row. Formats are ranked by:

1. specific formats first
2. the number of values that the format understands
3. the number of values with a field that only this format writes (``_tidb``, ``__op``)

A *fallback* describes the messages of many producers by its options (op-json). It is tried only if
no specific format reads the sample. The reason lists formats that rank equal to the chosen one.
Formats of other packages are tried like the built-in ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import Any

from cdc_formats.decoder import in_record
from cdc_formats.decoding.other_messages import OF_REGISTRY as PROTOBUF, SENTENCE, other_message
from cdc_formats.errors import FormatOptionError, MissingDependencyError, SchemaRegistryError
from cdc_formats.events import Ignored
from cdc_formats.format import (
    BUILT_IN,
    Format,
    get_format,
    list_formats,
    nearest_options,
    option_name,
)
from cdc_formats.topics.inference.infer import AnyColumns, Reading
from cdc_formats.topics.sampler import (
    FRAMED,
    GLUE,
    Encoded,
    Evidence,
    InspectedRecord,
    SampledRecord,
    Sampler,
    sampler_class,
    sampler_of,
)

_DECOY = b'{"a field that no format has": 1}'
_MOST_SHOWN = 5
_NEEDED_SHARE = 2  # at least one of two values must be understood


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
        return _NEEDED_SHARE * self.understood >= self.values

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
    present = _with_value(records)
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
    return _read(format, _with_value(records))


def _with_value(records: Sequence[InspectedRecord]) -> list[InspectedRecord]:
    return [each for each in records if each.record.value]


def _read(format: Format, records: Sequence[InspectedRecord]) -> Candidate:
    """Read the records with a value."""
    reader = AnyColumns(format)
    decoy = InspectedRecord(SampledRecord("", 0, 0, -1, b'{"id": 1}', _DECOY, ()))
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
        # Of the built-in formats, those in Avro have requirements: they are listed if the bytes may
        # be Avro.
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
        f"{len(ids)} of {len(records)} values name a schema of a registry (id {_first(ids)}): pass "
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
        return f"{rows} of {total} values are Avro with a registry schema: id {_first(ids)}"
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


def _first(names: Sequence[str]) -> str:
    distinct = sorted(set(names))
    return ", ".join(distinct[:_MOST_SHOWN]) + (", ..." if len(distinct) > _MOST_SHOWN else "")


def listed(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    Examples
    --------
    >>> listed(["before", "after", "op"])
    'before, after and op'
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)
