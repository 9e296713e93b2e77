"""Describes encodings that depend on the producer's configuration: schema blocks, decimals, times, nulls, images."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from cdc_formats.format import Format
from cdc_formats.topics.encodings import JSON_BLOCK, NULL
from cdc_formats.topics.inference import InferredSchema
from cdc_formats.topics.inference.observed import unavailable_forms
from cdc_formats.topics.sampler import Sampler, sampler_of
from cdc_formats.values import times

from .read import Reading
from .report import shortened
from .tables import TableProfile

_UNTOLD = ("decimal_handling_mode", "time_precision_mode", "bigint_unsigned_handling_mode", "time_zone")


def handling(readings: Sequence[Reading], profiles: Sequence[TableProfile], format: Format) -> tuple[tuple[str, str], ...]:
    """Return the encodings that depend on the producer's configuration, as pairs of name and evidence."""
    schemas = [each.schema for each in profiles if each.schema]
    made: list[tuple[str, Callable[[], str]]] = [
        ("schema blocks", lambda: _blocks(readings)),
        ("decimals", lambda: _typed(schemas, ("DECIMAL",))),
        ("times", lambda: _typed(schemas, tuple(times.TYPES))),
        ("not in the messages", lambda: _untold(schemas)),
        ("nulls", lambda: _nulls(schemas)),
        ("unavailable values", lambda: _placeholders(readings, sampler_of(format))),
        ("before-images", lambda: _images(profiles)),
    ]
    return tuple((name, text) for name, say in made if (text := say()))


def _blocks(readings: Sequence[Reading]) -> str:
    values = [each.inspected.value.encoding for each in readings if each.inspected.value.encoding != NULL]
    return f"{values.count(JSON_BLOCK)} of {len(values)} values have one" if JSON_BLOCK in values else ""


def _typed(schemas: Sequence[InferredSchema], names: Sequence[str]) -> str:
    """Return the evidence for columns of the named types."""
    counts: Counter[str] = Counter()
    for each in (evidence for schema in schemas for evidence in schema.evidence):
        if each.column.type.name in names:
            counts[f"by {each.certainty}" if each.source_type else "guessed from values"] += 1
    detected = {f"{name}={schema.format_options[name]!r} ({why})" for schema in schemas for name, why in schema.option_reasons.items()}
    mode = "decimal_handling_mode" if "DECIMAL" in names else "time_precision_mode"
    modes = [text for text in sorted(detected) if text.startswith(mode)]
    return "; ".join([*(f"{count} column{'s' * (count != 1)} {how}" for how, count in counts.items()), *modes])


def _untold(schemas: Sequence[InferredSchema]) -> str:
    """Return the options that only someone who knows the producer can set, and the columns that may need them."""
    columns: dict[str, list[str]] = {}
    for each in (evidence for schema in schemas for evidence in schema.evidence):
        for option in (option for option in _UNTOLD if any(option in note for note in each.notes)):
            columns.setdefault(option, []).append(each.column.name)
    return "; ".join(f"{option} (perhaps for {shortened(names)})" for option, names in columns.items())


def _nulls(schemas: Sequence[InferredSchema]) -> str:
    counts = [(each.column.name, each.seen.get("null", 0)) for schema in schemas for each in schema.evidence]
    some = [(name, count) for name, count in counts if count]
    shown = shortened([f"{name} ({count})" for name, count in some])
    return f"in {len(some)} of {len(counts)} columns: {shown}" if some else ""


def _placeholders(readings: Sequence[Reading], sampler: Sampler) -> str:
    placeholder = sampler.format.handling.placeholder
    if placeholder is None:
        return ""
    events = [event for each in readings for event in each.events if sampler.connector(event.message) not in sampler.complete_connectors]
    forms = unavailable_forms(placeholder)
    names = Counter(name for event in events for name in _having(event.after, forms))
    shown = shortened([f"{name} ({count})" for name, count in names.most_common()])
    return f"{names.total()}, written as {placeholder!r}: {shown}" if names else ""


def _having(image: Any, forms: Sequence[Any]) -> Iterator[str]:
    if isinstance(image, Mapping):
        yield from (str(name) for name, value in image.items() if value in forms)


def _images(profiles: Sequence[TableProfile]) -> str:
    updates, with_image = sum(each.before.updates for each in profiles), sum(each.before.updates_with for each in profiles)
    deletes, whole = sum(each.before.deletes for each in profiles), sum(each.before.deletes_whole for each in profiles)
    part = " (the columns that changed)" if any(each.before.changed_only for each in profiles) else ""
    sentences = [f"{with_image} of {updates} updates have one{part}"] if updates else []
    fakes = " (PostgreSQL without REPLICA IDENTITY FULL fills NOT NULL columns there)" if updates and whole and not with_image else ""
    return "; ".join([*sentences, *([f"{whole} of {deletes} deletes have values outside the key{fakes}"] if deletes else [])])
