"""The start position of a capture: ``scan.startup.mode``."""

import re
import time

import pytest

from capture.errors import (
    BinlogPurgedError,
    SchemaChangedError,
    ServerChangedError,
    ServerNotReadyError,
)
from capture.server import run_query
from tests.support.servers.local_source import SMALL, LocalSource, Stream, everything, purge


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


# --------------------------------------------------------------------------------------------------
# Errors of a capture: each has the reason and the SQL that fixes it
@pytest.mark.parametrize(
    ("statement", "undo", "reason"),
    [
        (
            "SET GLOBAL binlog_format = 'MIXED'",
            "SET GLOBAL binlog_format = 'ROW'",
            "binlog_format is 'MIXED' and must be 'ROW'",
        ),
        (
            "SET GLOBAL binlog_row_image = 'MINIMAL'",
            "SET GLOBAL binlog_row_image = 'FULL'",
            "SET GLOBAL binlog_row_image = 'FULL'",
        ),
        (
            "ALTER TABLE ready ENGINE = MyISAM",
            "ALTER TABLE ready ENGINE = InnoDB",
            "ENGINE = InnoDB",
        ),
        (
            "ALTER TABLE ready DROP PRIMARY KEY",
            "ALTER TABLE ready ADD PRIMARY KEY (id)",
            "has no primary key",
        ),
        (
            "ALTER TABLE ready ADD COLUMN g POINT",
            "ALTER TABLE ready DROP COLUMN g",
            "column `g` has the type point",
        ),
        (
            (
                "ALTER TABLE ready ADD CONSTRAINT f FOREIGN KEY (parent) REFERENCES parents (id) "
                "ON DELETE CASCADE"
            ),
            "ALTER TABLE ready DROP FOREIGN KEY f",
            "DROP FOREIGN KEY `f`",
        ),
    ],
    ids=["format", "image", "engine", "key", "type", "cascade"],
)
def test_server_that_is_not_ready_raises_an_error_with_the_fix(
    source: LocalSource, statement: str, undo: str, reason: str
) -> None:
    source.run(
        "CREATE TABLE IF NOT EXISTS parents (id INT PRIMARY KEY)",
        "CREATE TABLE IF NOT EXISTS ready (id INT NOT NULL, parent INT, PRIMARY KEY (id))",
        statement,
    )
    try:
        with pytest.raises(ServerNotReadyError) as caught:
            Stream(source.options("ready"))
        assert reason in str(caught.value)
    finally:
        source.run(undo)
    Stream(source.options("ready"))


def test_chosen_unique_key_replaces_a_primary_key(source: LocalSource) -> None:
    source.run(
        "CREATE TABLE keyless (a INT NOT NULL, b INT NOT NULL, c INT, d VARCHAR(9) NOT NULL)",
        "ALTER TABLE keyless ADD UNIQUE (b, a), ADD UNIQUE (a, c), ADD UNIQUE (d(3), a)",
        "INSERT INTO keyless VALUES (1, 1, 1, 'd')",
    )
    for chosen in ("a", "a,c", "a,d"):
        with pytest.raises(
            ServerNotReadyError,
            match=r"no primary key.*chunk\.key-column to the columns of another unique key",
        ):
            Stream(
                source.options("keyless", **{"scan.incremental.snapshot.chunk.key-column": chosen})
            )
    stream = Stream(
        source.options("keyless", **{"scan.incremental.snapshot.chunk.key-column": "a,b"})
    )
    source.run("UPDATE keyless SET c = 2", "UPDATE keyless SET a = 2")
    rows = [*stream.batch(), *stream.batch()]
    assert [(row["row_kind"], row["a"], row["c"]) for row in rows][-2:] in (
        [("-D", 1, 2), ("+I", 2, 2)],
        [("+I", 2, 2)],
    )
    source.run("UPDATE keyless SET c = 3", "UPDATE keyless SET a = 3")
    assert [(row["row_kind"], row["a"], row["c"]) for row in stream.batch()] == [
        ("-U", 2, 2),
        ("+U", 2, 3),
        ("-D", 2, 3),
        ("+I", 3, 3),
    ]


def test_error_for_a_user_without_privileges_has_the_grants(source: LocalSource) -> None:
    source.run("CREATE TABLE granted (id INT PRIMARY KEY)", "INSERT INTO granted VALUES (1)")
    source.run_as_root(
        "CREATE USER reader@localhost IDENTIFIED BY 'r'", "GRANT USAGE ON *.* TO reader@localhost"
    )
    reader = source.options("granted") | {"username": "reader", "password": "r"}
    for grant in ("SELECT ON `test`.*", "REPLICATION SLAVE, BINLOG MONITOR ON *.*"):
        with pytest.raises(ServerNotReadyError) as caught:
            Stream(reader)
        statement = str(caught.value).partition(": ")[2]
        assert statement == f"GRANT {grant} TO 'reader'@'localhost'"
        source.run_as_root(statement)
    assert [row["id"] for row in Stream(reader).batch()] == [1]


def test_missing_table_raises_an_error(source: LocalSource) -> None:
    with pytest.raises(ServerNotReadyError, match=r"no table matches test\.nothing"):
        Stream(source.options("nothing"))


def test_purged_log_raises_an_error(source: LocalSource) -> None:
    source.run("CREATE TABLE purged (id INT PRIMARY KEY)")
    stream = Stream(source.options("purged", **{"scan.startup.mode": "latest-offset"}))
    source.run("INSERT INTO purged VALUES (1)", "FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    purge(stream.options)
    with pytest.raises(BinlogPurgedError, match="start with a new checkpoint"):
        stream.batch()


def test_offset_of_another_server_without_gtids_raises_an_error(source: LocalSource) -> None:
    source.run("CREATE TABLE served (id INT PRIMARY KEY)")
    stream = Stream(source.options("served"))
    with pytest.raises(ServerChangedError):
        Stream(
            source.options("served"), stream.start | {"server": "another", "gtids": None}
        ).batch()


def test_xa_transaction_raises_an_error(source: LocalSource) -> None:
    source.run("CREATE TABLE xa (id INT PRIMARY KEY)")
    stream = Stream(source.options("xa", **{"scan.startup.mode": "latest-offset"}))
    with source.connect() as connection, connection.cursor() as cursor:
        for statement in (
            "XA START 'x'",
            "INSERT INTO xa VALUES (1)",
            "XA END 'x'",
            "XA PREPARE 'x'",
        ):
            cursor.execute(statement)
        with pytest.raises(Exception, match="XA"):
            stream.batch()
        cursor.execute("XA ROLLBACK 'x'")
