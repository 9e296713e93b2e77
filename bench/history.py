"""The benchmark's history of one table as Debezium messages; a seed gives each run the same topic.

It has 60 % updates, 30 % inserts (of a new or an existing key) and 10 % deletes; 5 % of the events
are redelivered within the next 20 events. `Expected` counts the rows of the normalized changelog.

An event's number is also its position in the source's log.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from cdc_formats.values.json_reader import json_bytes

SCHEMA = (
    "id BIGINT, name STRING, email STRING, city STRING, amount DECIMAL(12,2), qty INT, updated_at "
    "TIMESTAMP_NTZ(3), flag BOOLEAN"
)
FORMAT_OPTIONS = {"decimal_handling_mode": "string"}

NAMES = ("id", "name", "email", "city", "amount", "qty", "updated_at", "flag")
_CITIES = (
    "Amsterdam",
    "Berlin",
    "Copenhagen",
    "Dublin",
    "Helsinki",
    "Lisbon",
    "Madrid",
    "Oslo",
    "Paris",
    "Prague",
    "Vienna",
    "Warsaw",
)
_SYLLABLES = (
    "ka",
    "ro",
    "mi",
    "te",
    "lo",
    "ven",
    "dar",
    "sho",
    "qui",
    "ber",
    "an",
    "el",
    "os",
    "ur",
    "ix",
    "pra",
)

Row = tuple[Any, ...]


@dataclass
class Expected:
    """Counts the rows and sums the ids by row kind that ChangelogNormalize must return.

    Parameters
    ----------
    order : {"arrival", "source"}
        The order of `ChangelogNormalize`: ``source`` drops redeliveries.
    """

    order: str = "arrival"
    newest: dict[int, int] = field(default_factory=dict)
    table: dict[int, Row] = field(default_factory=dict)
    rows: Counter[str] = field(default_factory=Counter)
    ids: Counter[str] = field(default_factory=Counter)

    @property
    def counts(self) -> tuple[dict[str, int], dict[str, int]]:
        """The rows, and the sum of their ids, by row kind."""
        return dict(self.rows), dict(self.ids)

    def take(self, number: int, key: int, after: Row | None) -> None:
        """Add one event."""
        if self.order == "source" and number <= self.newest.get(key, 0):
            return
        self.newest[key] = number
        stored = self.table.pop(key, None)
        if after is not None:
            self.table[key] = after
            kinds = ["+I"] if stored is None else [] if stored == after else ["-U", "+U"]
        else:
            kinds = [] if stored is None else ["-D"]
        for kind in kinds:
            self.rows[kind] += 1
            self.ids[kind] += key


def events(count: int, keys: int, seed: int = 42) -> Iterator[tuple[int, Row | None, Row | None]]:
    """Yield `count` events (number, before, after), including redeliveries."""
    source = random.Random(seed)
    table: dict[int, Row] = {}
    alive: list[int] = []
    again: list[tuple[int, tuple[int, Row | None, Row | None]]] = []
    emitted = number = 0
    while emitted < count:
        if again and again[0][0] <= emitted:
            yield again.pop(0)[1]
        else:
            number += 1
            event = _event(source, number, table, alive, keys)
            yield event
            if source.random() < 0.05:
                again = sorted(
                    [*again, (emitted + 1 + source.randrange(20), event)], key=lambda due: due[0]
                )
        emitted += 1


def _event(
    source: random.Random, number: int, table: dict[int, Row], alive: list[int], keys: int
) -> tuple[int, Row | None, Row | None]:
    what = source.random()
    if what < 0.3 or not alive:
        key = source.randrange(keys) + 1
        if key not in table:
            alive.append(key)
        table[key] = _fresh(source, key, number)
        return number, None, table[key]
    place = source.randrange(len(alive))
    key = alive[place]
    before = table[key]
    if what < 0.9:
        table[key] = (
            *before[:4],
            _amount(source),
            source.randrange(1000),
            _stamp(number),
            before[7],
        )
        return number, before, table[key]
    alive[place] = alive[-1]
    alive.pop()
    return number, table.pop(key), None


def _fresh(source: random.Random, key: int, number: int) -> Row:
    first, last = ("".join(source.choices(_SYLLABLES, k=size)) for size in (4, 6))
    email = f"{first}.{last}{key}@example.com"
    return (
        key,
        f"{first.title()} {last.title()}",
        email,
        source.choice(_CITIES),
        _amount(source),
        source.randrange(1000),
        _stamp(number),
        source.random() < 0.5,
    )


def _amount(source: random.Random) -> str:
    return f"{source.randrange(1_000_000)}.{source.randrange(100):02d}"


def _stamp(number: int) -> str:
    seconds, millis = divmod(number, 1000)
    minutes, seconds = divmod(seconds, 60)
    return (
        f"2023-11-{14 + minutes // 1440:02d} "
        f"{minutes // 60 % 24:02d}:{minutes % 60:02d}:{seconds:02d}.{millis:03d}"
    )


def message(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return the key and the value of an event in Debezium's format."""
    key = (after or before or ())[0]
    op = "d" if after is None else "c" if before is None else "u"
    at = {
        "file": "mysql-bin.000003",
        "pos": 1000 + number * 37,
        "row": 0,
        "ts_ms": 1_700_000_000_000 + number,
        "snapshot": "false",
    }
    source = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "shop",
        "db": "shop",
        "table": "customers",
        "server_id": 223344,
        **at,
    }
    images = [row and dict(zip(NAMES, row, strict=True)) for row in (before, after)]
    value = {
        "before": images[0],
        "after": images[1],
        "source": source,
        "op": op,
        "ts_ms": source["ts_ms"],
    }
    return b'{"id":%d}' % key, json_bytes(value)
