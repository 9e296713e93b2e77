"""Runs with ``availableNow``: a target fixed at the start, and reached in several micro-batches."""

import random
from collections.abc import Iterable
from itertools import islice
from typing import Any

import pytest

from capture.source import ReadAllAvailable
from tests.support.servers.local_source import (
    LATEST,
    SMALL,
    LocalSource,
    Replica,
    Stream,
    repeating,
)

JOINING = SMALL | {"scan.newly-added-table.enabled": "true"}


def made(source: LocalSource, name: str, rows: int = 60) -> dict[str, str]:
    source.table(name, rows=rows)
    return source.options(name, **SMALL)


def started(options: dict[str, str], start: dict[str, Any] | None = None) -> Stream:
    return Stream(options, start, available_now=True)


def test_a_run_gives_the_table_as_it_was_at_the_start(source: LocalSource) -> None:
    stream, replica = started(made(source, "as_it_was")), Replica("id")
    before = set(source.rows("as_it_was"))
    rows = [stream.batch()]
    source.run(
        "UPDATE as_it_was SET v = 9 WHERE id % 5 = 0",
        "DELETE FROM as_it_was WHERE id % 7 = 0",
        "INSERT INTO as_it_was VALUES (0, 5), (700, 5)",
        "ALTER TABLE as_it_was ADD COLUMN w INT DEFAULT 5",
    )
    rows += stream.run()
    assert len(rows) > 3
    for batch in rows:
        replica.apply(batch)
    assert replica.contents() == before
    ends = {(row["position"]["file"], row["position"]["pos"]) for batch in rows for row in batch}
    assert len(ends) == 1, "all chunks are as of one position"

    again = started(source.options("as_it_was", **SMALL), stream.start)
    for batch in again.run():
        replica.apply(
            [{name: value for name, value in row.items() if name != "w"} for row in batch]
        )
    assert replica.contents() == {row[:2] for row in source.rows("as_it_was")}


def test_runs_end_while_a_writer_is_active_and_neither_lose_nor_repeat_a_row(
    source: LocalSource,
) -> None:
    options, replica, batches = made(source, "busy"), Replica("id"), 0
    start, dice = None, random.Random(1)

    def write() -> None:
        key = dice.randint(1, 70)
        source.run(
            f"UPDATE busy SET v = v + 1 WHERE id BETWEEN {key} AND {key + 5}",
            f"DELETE FROM busy WHERE id = {key}",
            f"INSERT IGNORE INTO busy VALUES ({dice.randint(1, 70)}, 0)",
        )

    with repeating(write, pause=0.01):
        for stops in (2, 1, 50, 50, 50):
            stream = started(options, start)
            for batch in islice(
                stream.run(), stops
            ):  # the first runs are stopped within the snapshot
                replica.apply(batch)
                batches += 1
            start = stream.start
            stream.reader.stop()
    for batch in started(options, start).run():
        replica.apply(batch)
    assert batches >= 6
    assert replica.contents() == set(source.rows("busy"))


def test_the_log_up_to_the_target_is_several_batches(source: LocalSource) -> None:
    options = made(source, "logged", 2) | LATEST | {"scan.binlog.max-bytes-per-batch": "1"}
    stream = started(options)
    source.run(*(f"UPDATE logged SET v = {number} WHERE id = 1" for number in range(1, 4)))
    assert list(stream.run()) == [], "the target is the start"
    again = started(options, stream.start)
    source.run("UPDATE logged SET v = 4 WHERE id = 1")
    assert [[row["v"] for row in batch] for batch in again.run()] == [[0, 1], [1, 2], [2, 3]]
    assert [[row["v"] for row in batch] for batch in started(options, again.start).run()] == [
        [3, 4]
    ]


def test_a_run_moves_to_its_target_if_only_other_tables_changed(source: LocalSource) -> None:
    options = made(source, "unchanged_run", 2) | LATEST
    first = started(options)
    source.run(
        "CREATE TABLE changed_run (id INT PRIMARY KEY)", "INSERT INTO changed_run VALUES (1)"
    )
    stream = started(options, first.start)
    assert list(stream.run()) == [[]]
    assert stream.start["pos"] > first.start["pos"]
    assert list(started(options, stream.start).run()) == []


def test_a_table_joins_the_run_if_it_existed_at_the_start(source: LocalSource) -> None:
    made(source, "joining_1", 2)
    options = source.options("joining_[0-9]", **JOINING)
    start = started(options)
    assert list(start.run())
    made(source, "joining_2", 2)
    made(source, "joining_3", 2)
    stream = started(options, start.start)
    source.run("ALTER TABLE joining_3 ADD INDEX (v), ADD CHECK (v < 100)")
    source.run(
        "ALTER TABLE joining_3 DROP COLUMN v", "ALTER TABLE joining_3 ADD COLUMN v INT FIRST"
    )
    made(source, "joining_4", 2)
    source.run("INSERT INTO joining_2 VALUES (3, 0)")
    assert tables(stream.run()) == [("joining_2", 1), ("joining_2", 2)]
    source.run("DROP TABLE joining_3")
    again = started(options, stream.start)
    assert tables(again.run()) == [("joining_2", 3), ("joining_4", 1), ("joining_4", 2)]


def tables(batches: Iterable[list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
    return sorted((row["table"], row["id"]) for batch in batches for row in batch)


def test_all_available_ignores_the_limits(source: LocalSource) -> None:
    options = made(source, "all_at_once") | {"scan.binlog.max-bytes-per-batch": "1"}
    stream = Stream(options)
    end = stream.latest(limit=ReadAllAvailable())
    assert len(list(stream.between(stream.start, end))) == 60
    stream.start = end
    source.run(*(f"UPDATE all_at_once SET v = {number} WHERE id = 1" for number in range(1, 4)))
    end = stream.latest(limit=ReadAllAvailable())
    assert len(list(stream.between(stream.start, end))) == 6


@pytest.mark.parametrize("version", [3, 4])
def test_an_offset_without_new_rows_keeps_its_text(source: LocalSource, version: int) -> None:
    options = made(source, f"kept_{version}", 2)
    stream = started(options)
    assert list(stream.run())
    old = dict(reversed(stream.start.items())) | {"version": version}
    again = started(options, old)
    assert list(again.reader.latestOffset(old).items()) == list(old.items())
