"""Debezium's messages of a table, and the rows that they make.

The events of the table have places in the log of a database.
"""

import json
from collections.abc import Sequence
from random import Random
from typing import Any

from normalize.tables.table_options import TableOptions
from tests.support.databases import Message

UNAVAILABLE = "__debezium_unavailable_value"
WITH = TableOptions(deletes="soft", position_column="position")
WITHOUT = TableOptions(deletes="soft")
"""The options of a table with positions, and of one without."""


def event(
    op: str, key: int, name: str | None, number: int, *, server: int = 1, clock: int | None = None
) -> Message:
    """The event of MySQL's table ``orders`` with a number in the log of a server.

    It is ``c``, ``u`` or ``d``.
    """
    place = {"server_id": server, "file": "binlog.000001", "pos": number, "row": 0}
    return _message(
        op, {"id": key, "name": name}, {**place, "connector": "mysql", "ts_ms": clock or number}
    )


def postgresql_event(
    op: str, key: int, name: str | None, number: int, note: str | None = None
) -> Message:
    """The event of PostgreSQL's table ``orders`` with a number in its log.

    An update without `note` did not change it.
    """
    row = {"id": key, "name": name, "note": note or UNAVAILABLE}
    return _message(
        op,
        row,
        {
            "connector": "postgresql",
            "name": "db",
            "schema": "public",
            "lsn": number,
            "ts_ms": number,
        },
    )


def _message(op: str, row: dict[str, Any], source: dict[str, Any]) -> Message:
    images = {"before": row if op == "d" else None, "after": None if op == "d" else row}
    value = {**images, "source": {**source, "db": "shop", "table": "orders"}, "op": op}
    return json.dumps({"id": row["id"]}).encode(), json.dumps(value).encode()


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

    @staticmethod
    def names(events: Sequence[Message]) -> dict[int, str]:
        """The rows of a table that applies events in the order of their delivery."""
        rows = dict[int, str]()
        for _, value in events:
            message = json.loads(value or b"{}")
            if message["op"] == "d":
                rows.pop(message["before"]["id"], None)
            else:
                rows[message["after"]["id"]] = message["after"]["name"]
        return rows

    def rows(self, events: int) -> dict[int, str]:
        """The rows of the source after this many events."""
        return self._rows[events]


def live_rows(rows: Sequence[dict[str, Any]]) -> dict[int, str]:
    """The names of rows that are not deleted."""
    return {row["id"]: row["name"] for row in rows if "deleted_at" not in row}
