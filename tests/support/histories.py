"""Random histories of a table: as Debezium records, and as rows."""

import json
import random

from tests.support.streams import debezium

TABLE = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}


def random_history(seed: int, changes: int = 1500, keys: int = 40) -> list:
    """Draw a history with updates to equal rows, deletes of unknown keys and redeliveries."""
    source, history = random.Random(seed), []
    for _ in range(changes):
        key = source.randrange(keys)
        row = (key, source.choice(["a", "b", None]), source.randrange(3))
        history.append((key, None if source.random() < 0.2 else row))
        if source.random() < 0.05:
            history += history[-source.randint(1, 20) :]
    return history


def records_of(history: list) -> list[tuple[bytes, bytes]]:
    """Write a history like Debezium, keyed by the primary key."""
    names = ("id", "name", "qty")
    return [
        (
            json.dumps({"id": key}).encode(),
            debezium("d", {"id": key, "name": None, "qty": 0})
            if row is None
            else debezium("c", None, dict(zip(names, row, strict=True))),
        )
        for key, row in history
    ]


def rows_by_key(rows) -> dict:
    grouped: dict = {}
    for kind, *row in rows:
        grouped.setdefault(row[0], []).append((kind, tuple(row)))
    return grouped
