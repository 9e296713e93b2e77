"""Encodings set by the producer's configuration: schema blocks, decimals, times, nulls, images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from operator import attrgetter

from cdc_formats.format import Format
from cdc_formats.topics.encodings import JSON_BLOCK, NULL
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.observed import unavailable_forms
from cdc_formats.topics.inference.reading import Reading
from cdc_formats.topics.inference.sample import ColumnEvidence
from cdc_formats.topics.sampler import Sampler, sampler_of
from cdc_formats.values import times

from .report import shortened
from .tables import TableProfile

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
    made: list[tuple[str, Callable[[], str]]] = [
        ("schema blocks", lambda: _blocks(readings)),
        ("decimals", lambda: _typed(evidence, schemas, ("DECIMAL",))),
        ("times", lambda: _typed(evidence, schemas, tuple(times.TYPES))),
        ("not in the messages", lambda: _not_in_messages(evidence)),
        ("nulls", lambda: _nulls(evidence)),
        ("unavailable values", lambda: _placeholders(readings, sampler_of(format))),
        ("before-images", lambda: _images(profiles)),
    ]
    return tuple((name, text) for name, describe in made if (text := describe()))


def _blocks(readings: Sequence[Reading]) -> str:
    values = [
        each.inspected.value.encoding for each in readings if each.inspected.value.encoding != NULL
    ]
    return (
        f"{values.count(JSON_BLOCK)} of {len(values)} values have one"
        if JSON_BLOCK in values
        else ""
    )


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


def _nulls(evidence: Sequence[ColumnEvidence]) -> str:
    some = [(each.column.name, each.seen["null"]) for each in evidence if each.seen.get("null")]
    return f"in {len(some)} of {len(evidence)} columns: {_counted(some)}" if some else ""


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
