"""Replay of a recorded topic, and a comparison with the truth.

The replay decodes the topic to a changelog without Spark and applies it to a table.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from cdc_formats import ABSENT, Decoder, Ignored, to_python
from cdc_formats.errors import DecodeError
from cdc_formats.fold import FoldOptions, fold
from cdc_formats.values.schema import complete
from tests.support.samples import recording

Place = tuple[int, int]
"""The Kafka partition of a record, and its offset there when the recording is replayed."""


class Recorded(NamedTuple):
    """A record of a recorded topic."""

    place: Place
    timestamp: int
    key: bytes | None
    value: bytes | None


class Row(NamedTuple):
    """A changelog row: its kind, Python values in column order, and the record that caused it."""

    kind: str
    values: tuple[Any, ...]
    place: Place


@dataclass
class Replay:
    """The result of a topic: its changelog, ignored records by reason, and undecodable records."""

    changelog: list[Row] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    corrupt: dict[Place, str] = field(default_factory=dict)


@lru_cache(maxsize=4)
def read_recording(path: Path) -> tuple[Recorded, ...]:
    """Read a recording in the order of a stream: by partition, merged by Kafka's timestamps."""
    partitions: dict[int, list[Recorded]] = {}
    for record in recording(path):
        records = partitions.setdefault(record.partition, [])
        records.append(
            Recorded((record.partition, len(records)), record.timestamp, record.key, record.value)
        )
    stamped = [
        (stamp, record)
        for _, records in sorted(partitions.items())
        for stamp, record in zip(
            accumulate((record.timestamp for record in records), max), records, strict=True
        )
    ]
    return tuple(record for _, record in sorted(stamped, key=lambda pair: pair[0]))


# --------------------------------------------------------------------------------------------------
# without Spark


def normalized(decoder: Decoder, records: Iterable[Recorded]) -> Replay:
    """Decode records and fold them by key, like ChangelogNormalize."""
    replay, stored = Replay(), {}
    for record in records:
        try:
            changes = decoder.upserts(record.key, record.value)
            if isinstance(changes, Ignored):
                replay.ignored[changes.value] += 1
                continue
            for change in changes:
                _fold(_hashable(change.key), change.row, record.place, stored, replay, decoder)
        except DecodeError as error:
            replay.corrupt[record.place] = str(error)
    return replay


def _hashable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(map(repr, key))


def _fold(
    key: tuple[Any, ...],
    row: tuple[Any, ...] | None,
    place: Place,
    stored: dict[tuple[Any, ...], tuple[Any, ...]],
    replay: Replay,
    decoder: Decoder,
) -> None:
    before = stored.get(key)
    if row is not None and ABSENT in row:
        if before is None:
            replay.corrupt[place] = "the row lacks columns"
            return
        row = complete(row, before)
    output, after = fold(before, row, FoldOptions())
    if after is None:
        stored.pop(key, None)
    else:
        stored[key] = after
    replay.changelog += [
        Row(kind.short_string, to_python(decoder.columns, values), place) for kind, values in output
    ]


def decoded(decoder: Decoder, records: Iterable[Recorded]) -> Replay:
    """Decode records without folding: the changelog of a table without a primary key."""
    replay = Replay()
    for record in records:
        changes = decoder.decode(record.key, record.value)
        if isinstance(changes, Ignored):
            replay.ignored[changes.value] += 1
            continue
        for change in changes:
            values = to_python(decoder.columns, change.row)
            replay.changelog.append(Row(change.kind.short_string, values, record.place))
    return replay


# -------------------------------------------------------------------------------------------------
# changelogs and tables


class Final(NamedTuple):
    """A row in the truth's encoding, and its last record."""

    row: Mapping[str, Any]
    place: Place


def spelled(
    rows: Iterable[Row], back: Mapping[str, Callable[[Any], Any]]
) -> Iterator[tuple[str, Final]]:
    """Return changelog rows in the truth's encoding.

    Parameters
    ----------
    rows : iterable of Row
    back : mapping
        For each column, in order, the function to the truth's encoding.
    """
    for kind, values, place in rows:
        row = zip(back.items(), values, strict=True)
        yield (
            kind,
            Final(
                {name: None if value is None else write(value) for (name, write), value in row},
                place,
            ),
        )


def table_of(changelog: Iterable[tuple[str, Final]], key: Sequence[str]) -> dict[Any, Final]:
    """Apply a changelog to an empty table.

    Raises
    ------
    AssertionError
        When the changelog does not fit the table: ``-U`` and ``-D`` must have the full previous
        row, and ``+I`` a new key.
    """
    rows: dict[Any, Final] = {}
    for kind, final in changelog:
        at = tuple(final.row[name] for name in key)
        if kind in ("-U", "-D"):
            assert rows.pop(at).row == final.row, (
                f"{kind} of another row than the table's at {final.place}"
            )
        else:
            assert at not in rows, f"{kind} of a key that is there at {final.place}"
            rows[at] = final
    return rows


def bag_of(changelog: Iterable[tuple[str, Final]]) -> list[Final]:
    """Apply the changelog of a table without a primary key, retracting the oldest equal row first.

    Raises
    ------
    AssertionError
        When a retracted row does not exist.
    """
    bag: dict[str, list[Final]] = {}
    for kind, final in changelog:
        rows = bag.setdefault(as_text(final.row), [])
        if kind in ("+I", "+U"):
            rows.append(final)
        else:
            assert rows, f"{kind} of a row that is not there at {final.place}"
            rows.pop(0)
    return [final for rows in bag.values() for final in rows]


def as_text(row: Mapping[str, Any]) -> str:
    """Return a row as text, the same for the same rows."""
    return json.dumps(row, sort_keys=True, ensure_ascii=False)
