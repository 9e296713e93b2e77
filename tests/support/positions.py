"""Debezium's messages of a table whose events have places in the log of MySQL, and the rows that they make."""

from __future__ import annotations

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from tests.support.databases import Message

UNAVAILABLE = "__debezium_unavailable_value"


def event(op: str, key: int, name: str | None, number: int, *, server: int = 1, clock: int | None = None, **columns: Any) -> Message:
    """The event of the table ``orders`` with a number in the log of a server: ``c``, ``u`` or ``d``."""
    source = {"connector": "mysql", "server_id": server, "file": "binlog.000001", "pos": number, "row": 0, "db": "shop", "table": "orders"}
    row = {"id": key, "name": name, **columns}
    images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    return json.dumps({"id": key}).encode(), json.dumps({**images, "source": {**source, "ts_ms": clock or number}, "op": op}).encode()


class Log:
    """Random events of a few rows."""

    def __init__(self, events: int, *, keys: int = 6, seed: int = 7) -> None:
        random, rows = Random(seed), dict[int, str]()
        self.events, self._rows = list[Message](), [dict[int, str]()]
        for number in range(1, events + 1):
            key = random.randrange(keys)
            if key in rows and random.random() < 0.4:
                self.events.append(event("d", key, rows.pop(key), number))
            else:
                op, rows[key] = "u" if key in rows else "c", f"version {number}"
                self.events.append(event(op, key, rows[key], number))
            self._rows.append(dict(rows))

    def rows(self, events: int) -> dict[int, str]:
        """The rows of the source after so many events."""
        return self._rows[events]


def live_rows(rows: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The names of rows that are not deleted."""
    return {row["id"]: row["name"] for row in rows if "deleted_at" not in row}
