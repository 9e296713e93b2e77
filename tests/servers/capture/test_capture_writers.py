"""Captured changelogs equal a table with concurrent writers: no repeated, lost or invented rows."""

import random
from typing import Any

import pymysql
import pytest

from capture.options import read_options
from capture.source import ChangelogReader
from tests.support.servers.local_source import (
    SMALL,
    LocalSource,
    Replica,
    Stream,
    everything,
    inferred,
    repeating,
)

TABLES = {  # name or regular expression, column definitions and key columns
    "numbers": ("id BIGINT UNSIGNED PRIMARY KEY", ("id",)),
    "unicode": (
        "id VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci PRIMARY KEY",
        ("id",),
    ),
    "pairs": (
        (
            "tenant INT, id VARCHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci, PRIMARY "
            "KEY (tenant, id)"
        ),
        ("tenant", "id"),
    ),
    "shards_[1-3]": ("id BIGINT PRIMARY KEY", ("id",)),
}
MORE = 1  # batches with concurrent writers after the snapshot


def names_of(table: str) -> list[str]:
    return [f"shards_{number}" for number in (1, 2, 3)] if table == "shards_[1-3]" else [table]


def key_of(table: str, dice: random.Random) -> tuple[object, ...]:
    text = "".join(dice.choice("aAbBzZäÄé_ 1") for _ in range(dice.randint(1, 2)))
    if TABLES[table][0].startswith("id BIGINT"):
        return (dice.randint(1, 120 // len(names_of(table))),)
    return (1, text) if table == "pairs" else (text,)


class Writer:
    """A client that changes a table in multi-statement transactions and rolls some of them back."""

    def __init__(self, source: LocalSource, table: str, seed: int) -> None:
        self.dice = random.Random(seed)
        self.table = table
        self.connection = source.connect(autocommit=False)
        self.columns = TABLES[table][1]

    def transaction(self) -> None:
        with self.connection.cursor() as cursor:
            try:
                for _ in range(self.dice.randint(1, 4)):
                    self._statement(cursor)
            except (
                pymysql.err.IntegrityError,
                pymysql.err.OperationalError,
            ):  # a duplicate key, a deadlock
                self.connection.rollback()
                return
        if self.dice.random() < 0.15:
            self.connection.rollback()
        else:
            self.connection.commit()

    def _statement(self, cursor: pymysql.cursors.Cursor) -> None:
        key, other = key_of(self.table, self.dice), key_of(self.table, self.dice)
        name = self.dice.choice(names_of(self.table))
        where = " AND ".join(f"{column} = %s" for column in self.columns)
        kind = self.dice.choice(("insert", "insert", "update", "update", "delete", "move", "range"))
        if kind == "insert":
            cursor.execute(
                f"INSERT INTO {name} VALUES ({', '.join(['%s'] * len(key))}, %s)",
                (*key, self.dice.randint(0, 9)),
            )
        elif kind == "update":
            cursor.execute(f"UPDATE {name} SET v = v + 1 WHERE {where}", key)
        elif kind == "delete":
            cursor.execute(f"DELETE FROM {name} WHERE {where}", key)
        elif kind == "move":
            cursor.execute(
                (
                    f"UPDATE {name} SET {', '.join(f'{column} = %s' for column in self.columns)} "
                    f"WHERE {where}"
                ),
                (*other, *key),
            )
        else:
            cursor.execute(
                f"UPDATE {name} SET v = v + 10 WHERE {self.columns[-1]} >= %s LIMIT 5", key[-1:]
            )


def fill(source: LocalSource, table: str) -> None:
    source.run(
        *(f"CREATE OR REPLACE TABLE {name} ({TABLES[table][0]}, v INT)" for name in names_of(table))
    )
    dice = random.Random(0)
    with source.connect() as connection, connection.cursor() as cursor:
        for _ in range(80):
            key = key_of(table, dice)
            name = dice.choice(names_of(table))
            cursor.execute(
                f"INSERT IGNORE INTO {name} VALUES ({', '.join(['%s'] * len(key))}, 0)", key
            )


@pytest.mark.parametrize("table", TABLES)
def test_changelog_under_concurrent_writers_equals_the_table(
    source: LocalSource, table: str
) -> None:
    fill(source, table)
    replicas = {name: Replica(*TABLES[table][1]) for name in names_of(table)}

    def apply(rows: list[dict[str, Any]]) -> None:
        for name, replica in replicas.items():
            replica.apply(row for row in rows if row["table"] == name)

    options = source.options(table, **SMALL) | {"scan.newly-added-table.enabled": "true"}
    stream = Stream(
        options | {"table-name": table.replace("[1-3]", "[12]")}
    )  # the restarted stream adds the third table
    batches = []
    writers = [Writer(source, table, seed) for seed in (1, 2)]
    # Without a pause the log grows faster than it is read, and so do the batches.
    with repeating(*(writer.transaction for writer in writers), pause=0.02):
        more = MORE
        while more:
            more -= not stream.start["snapshot"]
            before = stream.start
            rows = stream.batch()
            batches.append((before, stream.start, rows))
            apply(rows)
            if len(batches) % 2 == 0:
                stream = Stream(options, stream.start)  # restarted from its checkpoint
    apply(everything(stream))
    for name, replica in replicas.items():
        assert replica.contents() == set(source.rows(name))
        assert len(replica.rows) > 5
    assert len(batches) > 2
    for start, end, rows in batches[::2]:
        again = list(stream.between(start, end))
        assert sorted(map(str, again)) == sorted(map(str, rows)), (
            f"batch {start} to {end}, read again"
        )


def test_update_that_moves_a_row_across_the_frontier_is_split(source: LocalSource) -> None:
    source.table("moving")
    replica = Replica("id")
    stream = Stream(source.options("moving", **SMALL))
    replica.apply(stream.batch())
    frontier = max(key[0] for key in replica.rows)
    assert frontier < 40
    source.run("UPDATE moving SET id = 100 WHERE id = 1", "UPDATE moving SET id = 1 WHERE id = 40")
    rows = stream.batch()
    assert {
        (row["row_kind"], row["id"])
        for row in rows
        if row["id"] in (1, 100) or row["row_kind"] != "+I"
    } >= {("-D", 1), ("+I", 1)}
    replica.apply(rows)
    replica.apply(everything(stream))
    assert replica.contents() == set(source.rows("moving"))


@pytest.mark.parametrize("mode", ["initial", "latest-offset", "earliest-offset"])
def test_replayed_first_batch_loses_nothing_after_a_crash(source: LocalSource, mode: str) -> None:
    name = "first_" + mode.partition("-")[0]
    source.run(f"CREATE TABLE {name} (id INT PRIMARY KEY)", f"INSERT INTO {name} VALUES (1), (2)")
    options = source.options(name, **{"scan.startup.mode": mode})
    dying = ChangelogReader(read_options(options), inferred(read_options(options)))
    end, start = dying.latestOffset(), dying.initialOffset()
    rows = [
        row
        for part in dying.partitions(start, end)
        for batch in dying.read(part)
        for row in batch.to_pylist()
    ]
    source.run(f"INSERT INTO {name} VALUES (3)")
    stream = Stream(options, end)
    again = list(stream.between(stream.reader.initialOffset(), end))
    assert again == rows
    replica = Replica("id")
    for batch_rows in (rows, stream.batch()):
        replica.apply(batch_rows)
    assert replica.contents() == ({(3,)} if mode == "latest-offset" else {(1,), (2,), (3,)})
