"""The start position of a capture: ``scan.startup.mode``."""

import re
import time

import pytest

from capture.errors import BinlogPurgedError, SchemaChangedError
from capture.server import run_query
from tests.support.servers.local_source import SMALL, LocalSource, Stream, everything


def begun(source: LocalSource, mode: str, **more: str) -> list[int]:
    """Return the keys that a capture of ``startup`` inserts.

    They include the key of a row that is inserted and deleted after the start of the capture.
    """
    stream, ids = (
        Stream(source.options("startup", **SMALL, **{"scan.startup.mode": mode}, **more)),
        [],
    )
    source.run("INSERT INTO startup VALUES (9)", "DELETE FROM startup WHERE id = 9")
    while rows := stream.batch():
        ids += [row["id"] for row in rows if row["row_kind"] == "+I"]
    return ids


def test_each_mode_starts_at_its_position(source: LocalSource) -> None:
    # The log continues in a file that is shorter than the previous one.
    source.run(
        "CREATE TABLE large SELECT REPEAT('x', 100000) AS v",
        "CREATE TABLE startup (id INT PRIMARY KEY)",
        "INSERT INTO startup VALUES (1)",
        "FLUSH BINARY LOGS",
    )
    source.run("INSERT INTO startup VALUES (2)")
    options = Stream(source.options("startup")).options
    at = run_query(options, lambda server: server.written())
    time.sleep(1.1)  # timestamps in the log are whole seconds
    now = run_query(options, lambda server: str(server.value("SELECT UNIX_TIMESTAMP() * 1000")))
    source.run("INSERT INTO startup VALUES (3)")
    offset = {
        "scan.startup.specific-offset.file": at.file,
        "scan.startup.specific-offset.pos": str(at.pos),
    }
    assert begun(source, "initial") == [1, 2, 3]  # row 9 is deleted before the snapshot is planned
    assert begun(source, "latest-offset") == [9]
    assert begun(source, "specific-offset", **offset)[:1] == [3]
    assert begun(source, "timestamp", **{"scan.startup.timestamp-millis": now})[:1] == [3]
    assert begun(source, "earliest-offset")[:3] == [1, 2, 3]
    assert begun(source, "snapshot") == [1, 2, 3]


def test_offset_in_a_missing_file_raises_an_error(source: LocalSource) -> None:
    source.run("CREATE TABLE IF NOT EXISTS startup (id INT PRIMARY KEY)")
    offset = {
        "scan.startup.specific-offset.file": "binlog.009999",
        "scan.startup.specific-offset.pos": "4",
    }
    stream = Stream(source.options("startup", **{"scan.startup.mode": "specific-offset"}, **offset))
    with pytest.raises(
        BinlogPurgedError, match=r"ends at binlog.*, before the start position binlog\.009999:4"
    ):
        stream.batch()


def test_start_before_a_change_of_columns_raises_an_error(source: LocalSource) -> None:
    source.run("CREATE TABLE shifted (id INT PRIMARY KEY, k INT, v INT)")
    options = Stream(source.options("shifted")).options
    at = run_query(options, lambda server: server.written())
    source.run(
        "INSERT INTO shifted (id, k, v) VALUES (1, 10, 20)",
        "ALTER TABLE shifted MODIFY v INT AFTER id",
        "INSERT INTO shifted (id, k, v) VALUES (2, 10, 20)",
    )
    place = {"scan.startup.mode": "specific-offset", "scan.startup.specific-offset.file": at.file}
    with pytest.raises(
        SchemaChangedError,
        match=r"`test`\.`shifted` may have had other columns before .*Start there or later",
    ) as caught:
        Stream(
            source.options("shifted", **place, **{"scan.startup.specific-offset.pos": str(at.pos)})
        )
    (named,) = re.findall(r"specific-offset\.pos = ([0-9]+)", str(caught.value))
    rows = everything(
        Stream(source.options("shifted", **place, **{"scan.startup.specific-offset.pos": named}))
    )
    assert [(row["row_kind"], row["id"], row["k"], row["v"]) for row in rows] == [("+I", 2, 10, 20)]
