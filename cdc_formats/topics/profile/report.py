"""A profile as sections of text, shared by all renderings. The renderings escape the text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from cdc_formats.events import Ignored

from .detect import Candidate

if TYPE_CHECKING:
    from .profile import TopicProfile

KINDS = ("+I", "-U", "+U", "-D")
_MOST_TEXT = 400
_MOST_CODE = 20_000
_MOST_CANDIDATES = 4
_MOST_ROWS = 40


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Parameters
    ----------
    header : tuple of str
    rows : tuple of tuple of str
    numbers : frozenset of str
        The names of the numeric columns.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numbers: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Section:
    """A part of a report.

    Parameters
    ----------
    title : str
    facts : tuple of (str, str)
        Pairs of name and text.
    grid : Grid or None
    warnings : tuple of str
    code : str
        Python text of several lines.
    """

    title: str
    facts: tuple[tuple[str, str], ...] = ()
    grid: Grid | None = None
    warnings: tuple[str, ...] = ()
    code: str = ""


def headline(profile: TopicProfile) -> str:
    """Return one line with the format and the sample's size."""
    there = sum(each.end - each.begin for each in profile.partitions)
    of = f" of {there:,}" if there > profile.records else ""
    return f"{profile.format or 'no format'}: {_count(profile.records, 'record')}{of} in {_count(len(profile.partitions), 'partition')}"


def sections(profile: TopicProfile) -> list[Section]:
    """Return the sections of a report, without empty ones."""
    made = (_format, _tables, _columns, _keys, _handling, _order, _beside, _partitions, _call)
    return [_clipped(each) for make in made if (each := make(profile)) and (each.facts or each.grid or each.warnings or each.code)]


def _clipped(section: Section) -> Section:
    grid = section.grid
    return replace(
        section,
        facts=tuple((_clip(name), _clip(text)) for name, text in section.facts),
        grid=grid and replace(grid, rows=tuple(tuple(map(_clip, row)) for row in grid.rows)),
        warnings=tuple(map(_clip, section.warnings)),
    )


def _clip(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}... ({len(text):,} characters)"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items())


def _format(profile: TopicProfile) -> Section:
    shown = [each for each in profile.candidates if each.understood or each.requirement][:_MOST_CANDIDATES] or list(profile.candidates[:2])
    rows = tuple(
        (each.identifier, f"{each.read:,}", f"{sum(each.ignored.values()):,}", f"{each.refused:,}", _said(each, profile)) for each in shown
    )
    header = ("format", "rows", "no rows", "errors", "evidence")
    grid = Grid(header, rows, frozenset(header[1:4])) if profile.candidates and profile.candidates[0].values else None
    return Section("Format", (("why", profile.reason),), grid)


def _said(each: Candidate, profile: TopicProfile) -> str:
    return each.requirement or (each.error if each.error and each.identifier != profile.format else each.evidence)


def _tables(profile: TopicProfile) -> Section:
    header = ("table", "records", *KINDS, "operations", "primary key", "is the Kafka key")
    rows = tuple(
        (
            each.name or "-",
            f"{each.records:,}",
            *(f"{each.kinds[kind]:,}" if kind in each.kinds else "-" for kind in KINDS),
            _counts(each.operations) or "-",
            f"({', '.join(each.primary_key)})" if each.primary_key else "none known",
            each.kafka_key,
        )
        for each in profile.tables[:_MOST_ROWS]
    )
    return Section("Tables", grid=Grid(header, rows, frozenset(header[1:6])) if rows else None)


def _columns(profile: TopicProfile) -> Section:
    if len(profile.tables) > 1:
        facts = tuple((each.name or "-", each.ddl or each.reason) for each in profile.tables[:_MOST_ROWS])
        return Section("Columns", facts)
    rows: list[tuple[str, ...]] = []
    for each in (evidence for table in profile.tables if table.schema for evidence in table.schema.evidence):
        known = f"{each.certainty}: {each.source_type}" if each.source_type else "guessed from values"
        null = f"{each.seen.get('null', 0):,}" if each.column.nullable else "NOT NULL"
        rows.append((each.column.name, str(each.column.type), null, known))
    reasons = tuple(("columns", each.reason) for each in profile.tables if each.reason)
    grid = Grid(("column", "type", "nulls", "known by"), tuple(rows), frozenset({"nulls"})) if rows else None
    return Section("Columns", reasons, grid)


def _keys(profile: TopicProfile) -> Section:
    keys = profile.keys
    facts = [("keys", _counts(keys.encodings)), ("values", _counts(profile.values))] if profile.records else []
    if keys.distinct:
        moved = f", {keys.moved:,} of them in more than one partition" if keys.moved else ", each in one partition"
        facts.append(("distinct keys", f"{keys.distinct:,}{moved if keys.partitions > 1 else ''}"))
    for name, sizes in (("key bytes", profile.key_sizes), ("value bytes", profile.value_sizes)):
        if sizes:
            facts.append((name, f"{sizes.least:,} to {sizes.most:,}, median {sizes.median:,}"))
    if profile.headers:
        facts.append(("headers", ", ".join(f"{name} ({number:,})" for name, number in profile.headers.items())))
    if profile.times:
        facts.append(("timestamps", f"{profile.times[0]} to {profile.times[1]}"))
    return Section("Records", tuple(facts))


def _handling(profile: TopicProfile) -> Section:
    return Section("What the producer writes", profile.handling)


def _order(profile: TopicProfile) -> Section:
    found = profile.positions
    facts: list[tuple[str, str]] = []
    if found and not found.placed and found.unplaced:
        facts.append(("positions", f"none: {found.reason}"))
    elif found and found.placed:
        total = found.placed + found.unplaced
        facts.append(("positions", f"{found.placed:,} of {total:,} events" + (f": {found.reason}" if found.reason else "")))
        facts.append(("histories", _some(f"{name or '(unnamed)'} ({number:,})" for name, number in found.histories.items())))
        back = f"no: {_count(found.backwards, 'step')} back" if found.backwards else "yes, in each partition and history"
        facts.append(("in order", back))
        facts.append(("redelivered", _count(found.redelivered, "event") if found.redelivered else "none seen"))
    if profile.repeated:
        facts.append(("repeated", f"{_count(profile.repeated, 'record')} with the key and the value of an earlier one"))
    return Section("Order", tuple(facts))


def _some(texts: Iterable[str], most: int = 6) -> str:
    found = list(texts)
    return ", ".join(found[:most]) + (f" and {len(found) - most} more" if len(found) > most else "")


def _beside(profile: TopicProfile) -> Section:
    facts = [("tombstones", f"{profile.tombstones:,}")] if profile.tombstones else []
    if others := {name: number for name, number in profile.ignored.items() if name != Ignored.TOMBSTONE.value}:
        facts.append(("control events", _counts(others)))
    facts += [("statement", text) for text in profile.control_events]
    return Section("Records without rows", tuple(facts), warnings=tuple(_faults(profile)))


def _faults(profile: TopicProfile) -> Iterator[str]:
    if profile.corrupt:
        yield f"{_count(profile.corrupt, 'record')} cannot be read, the first:"
        yield from (each.error for each in profile.errors)


def _partitions(profile: TopicProfile) -> Section:
    header = ("partition", "first offset", "end offset", "sampled", "offsets without a record")
    parts = profile.partitions[:_MOST_ROWS]
    rows = tuple((str(p.number), f"{p.begin:,}", f"{p.end:,}", f"{p.records:,}", f"{p.missing:,}" if p.missing else "-") for p in parts)
    hints = []
    if any(each.missing for each in profile.partitions):
        hints.append(("holes", "the topic is compacted, or was written in transactions"))
    if any(each.begin > 0 and each.records for each in profile.partitions):
        hints.append(("beginning", "the first offsets are gone (retention): rows that changed before are not in the topic"))
    return Section("Partitions", tuple(hints), Grid(header, rows, frozenset(header)) if rows else None)


def _call(profile: TopicProfile) -> Section:
    if not profile.calls:
        return Section("Read it")
    code = profile.call()
    shown = code if len(code) <= _MOST_CODE else code[:_MOST_CODE] + "\n# ... cut: print(profile.call()) shows all of it"
    others = [name for name in profile.calls][1:]
    facts = (("other tables", f"print(profile.call(name)) for {_some(others)}"),) if others else ()
    return Section("Read it", facts, code=shown)
