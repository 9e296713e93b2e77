"""Failover to a server with the same transactions in another log: GTIDs identify the position."""

import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from capture.binlog import LogReader
from capture.errors import BinlogPurgedError, ServerChangedError, ServerUnavailableError
from capture.options import read_options
from capture.server import connect
from capture.tables import read_tables
from cdc_formats.formats.debezium.position import position_of
from tests.support.servers.local_source import (
    SMALL,
    LocalSource,
    Replica,
    Stream,
    everything,
    purge,
)


def current(source: LocalSource) -> str:
    """Return the GTIDs of a server's transactions."""
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@gtid_current_pos")
        return str((cursor.fetchone() or ("",))[0])


class Follower(LocalSource):
    """A replica whose own log contains the replicated transactions."""

    more = (
        "--skip-ssl",
        "--server-id=8",
        "--log-bin=other",
        "--log-slave-updates",
        "--skip-slave-start",
    )

    def follow(self, source: LocalSource) -> None:
        """Replicate all further transactions."""
        password = source.password.replace("'", "''")
        self.run(
            "RESET MASTER",
            f"SET GLOBAL gtid_slave_pos = '{current(source)}'",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {source.port}, master_user "
            f"= '{source.user}', master_password = '{password}', master_use_gtid = slave_pos, "
            "master_ssl = 0, master_ssl_verify_server_cert = 0",
            "START SLAVE",
        )

    def catch_up(self, source: LocalSource) -> None:
        """Wait until all transactions of the source are replicated."""
        position = current(source)
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT MASTER_GTID_WAIT(%s, 60)", [position])
            waited = cursor.fetchone()
            cursor.execute("SHOW SLAVE STATUS")
            assert waited == (0,), cursor.fetchone()


@pytest.fixture(scope="module")
def follower(source: LocalSource) -> Iterator[Follower]:
    with Follower() as server:
        server.follow(source)
        yield server


def write(server: LocalSource, table: str, dice: random.Random, count: int = 12) -> None:
    """Change rows in transactions of one or two statements."""
    with server.connect(autocommit=False) as connection, connection.cursor() as cursor:
        for _ in range(count):
            key = dice.randint(1, 60)
            cursor.execute(f"UPDATE {table} SET v = v + 1 WHERE id BETWEEN {key} AND {key + 2}")
            cursor.execute(
                dice.choice(
                    (
                        f"DELETE FROM {table} WHERE id = {key}",
                        f"REPLACE INTO {table} VALUES ({key}, 0)",
                    )
                )
            )
            connection.commit()


def made(source: LocalSource, table: str) -> Stream:
    source.table(table)
    return Stream(source.options(table, **SMALL))


def on(server: LocalSource, stream: Stream) -> Stream:
    """Return a stream that continues on a server, like a restarted query."""
    options = server.options(stream.options.table, **SMALL, **{"connect.timeout": "1s"})
    return Stream(options, stream.start)


def redirect(stream: Stream, server: LocalSource) -> None:
    """Let a running stream connect to another server from now on."""
    stream.reader.stop()  # close the connection to the previous server
    stream.reader.options = stream.reader.connections.options = replace(
        stream.reader.options, port=server.port
    )


def log_of(rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return changes with the fields of their position that every log shares."""
    return [
        (
            row["row_kind"],
            row["id"],
            row["v"],
            row["position"]["server_id"],
            row["position"]["gtid"],
        )
        for row in rows
        if not row["position"]["snapshot"]
    ]


def places_of(rows: Sequence[dict[str, Any]]) -> list[tuple[str, int | None]]:
    """Return the positions of changes as a reader of a topic compares them."""
    places = [
        position_of({"connector": "mysql"} | row["position"])
        for row in rows
        if not row["position"]["snapshot"]
    ]
    return [(place.history, place.high) for place in places if place is not None]


@pytest.mark.parametrize(
    "batches", [1, 2, 5], ids=["in the snapshot", "later in the snapshot", "in the log"]
)
def test_capture_continues_on_a_server_that_takes_over(
    source: LocalSource, follower: Follower, batches: int
) -> None:
    table, dice = f"taken_{batches}", random.Random(batches)
    stream, replica = made(source, table), Replica("id")
    for _ in range(batches):
        write(source, table, dice)
        replica.apply(stream.batch())
    # Only the replica has these transactions: its log must be read from there, without those that
    # were read before.
    follower.run(
        "SET SESSION gtid_domain_id = 9", f"CREATE TABLE own_{batches} (id INT PRIMARY KEY)"
    )
    write(source, table, dice)
    rows = stream.batch()
    replica.apply(rows)
    follower.catch_up(source)
    follower.run("FLUSH BINARY LOGS")
    write(follower, table, dice)
    stream = on(follower, stream)
    replica.places.clear()
    while rows := stream.batch():
        replica.apply(rows)
        if len(replica.rows) % 2:
            write(follower, table, dice, 1)
            stream = on(follower, stream)
    assert replica.contents() == set(follower.rows(table)) != set(source.rows(table))
    follower.run(f"DROP TABLE {table}")
    source.run(f"CREATE OR REPLACE TABLE {table} (id INT)")


def test_failover_between_planning_and_reading_keeps_the_batch(
    source: LocalSource, follower: Follower
) -> None:
    stream, replica = made(source, "running"), Replica("id")
    replica.apply(stream.batch())
    follower.catch_up(source)
    # Only the replica has this transaction, in its log before those of the batch.
    follower.run("SET SESSION gtid_domain_id = 9", "UPDATE running SET v = 7 WHERE id = 1")
    source.run(
        "UPDATE running SET v = 5 WHERE id BETWEEN 2 AND 9", "INSERT INTO running VALUES (60, 0)"
    )
    end = stream.latest()
    partitions, stream.start = stream.reader.partitions(stream.start, end), end
    assert {type(partition).__name__ for partition in partitions} == {"Chunks", "Log"}
    follower.catch_up(source)
    follower.run("DELETE FROM running WHERE id > 30")
    redirect(stream, follower)
    for partition in partitions:
        replica.apply(row for batch in stream.reader.read(partition) for row in batch.to_pylist())
    assert (1, 0) in replica.contents()
    replica.places.clear()
    replica.apply(everything(stream))
    assert replica.contents() == set(follower.rows("running"))
    assert (1, 7) in replica.contents()
    assert len(replica.rows) == 30
    follower.run("DROP TABLE running")


def test_run_with_available_now_ends_at_its_target_on_another_server(
    source: LocalSource, follower: Follower
) -> None:
    follower.run(
        "STOP SLAVE"
    )  # the numbers of its own transactions must not exceed those of the source
    follower.follow(source)
    stream, replica = made(source, "ending"), Replica("id")
    replica.apply(stream.batch())
    source.run("UPDATE ending SET v = 5 WHERE id < 20")
    at_target = set(source.rows("ending"))
    stream.reader.prepareForTriggerAvailableNow()
    source.run("UPDATE ending SET v = 6 WHERE id > 10")
    follower.catch_up(source)
    follower.run("DELETE FROM ending WHERE id > 35", "FLUSH BINARY LOGS")
    redirect(stream, follower)
    batches = list(stream.run())
    for rows in batches:
        replica.apply(rows)
    assert replica.contents() == at_target
    assert len(batches) > 1
    stream = on(follower, stream)
    replica.apply(everything(stream))
    assert replica.contents() == set(follower.rows("ending"))
    follower.run("DROP TABLE ending")


def test_failover_after_the_first_rows_of_a_task_raises_an_error(
    source: LocalSource, follower: Follower
) -> None:
    stream = made(source, "midway")
    follower.catch_up(source)
    stream.reader.options = replace(stream.reader.options, parallelism=1)
    (partition,) = stream.reader.partitions(stream.start, stream.latest())
    reading = stream.reader.read(partition)
    assert len(next(reading)) == 5
    stream.reader.options = replace(stream.reader.options, port=follower.port)
    source.kill_others()
    with pytest.raises(ServerChangedError, match="different servers"):
        list(reading)


def test_batch_replayed_on_another_server_is_the_same(
    source: LocalSource, follower: Follower
) -> None:
    stream, dice = made(source, "replayed"), random.Random(0)
    batches = []
    for _ in range(5):
        before = stream.start
        write(source, "replayed", dice)
        rows = stream.batch()
        batches.append((before, stream.start, rows))
    write(source, "replayed", dice)
    follower.catch_up(source)
    there = on(follower, stream)
    for start, end, rows in batches:
        again = list(there.between(start, end))
        assert [str(row["op_ts"]) for row in again] == [str(row["op_ts"]) for row in rows]
        assert log_of(again) == log_of(rows)
        assert sorted((row["id"], row["v"]) for row in again) == sorted(
            (row["id"], row["v"]) for row in rows
        )
        assert places_of(again) == places_of(rows)


def test_lagging_server_raises_an_error_after_the_timeout(
    source: LocalSource, follower: Follower
) -> None:
    stream = made(source, "behind")
    assert len(stream.batch()) == 15
    follower.catch_up(source)
    follower.run("STOP SLAVE")
    source.run("UPDATE behind SET v = 7 WHERE id < 4")
    rows = stream.batch()
    assert log_of(rows) != []
    there = on(follower, stream)
    with pytest.raises(
        ServerChangedError, match=r"not all of .*: restart the query when the server has them"
    ):
        there.batch()
    later = threading.Timer(0.5, lambda: follower.run("START SLAVE"))
    later.start()
    assert {row["row_kind"] for row in there.batch()} == {"+I"}
    later.join()


def test_connections_to_several_servers_raise_an_error(
    source: LocalSource, follower: Follower
) -> None:
    stream = made(source, "several")
    follower.catch_up(source)
    with connect(stream.options) as server:
        start, tables = server.settled(), read_tables(server, stream.options)
        source.run("DELETE FROM several WHERE id = 1")
        server.options = replace(stream.options, port=follower.port)
        with pytest.raises(ServerChangedError, match="different servers"):
            list(LogReader(server, tables, 91).read(start, server.written()))


def test_capture_starts_at_a_gtid_set(source: LocalSource, follower: Follower) -> None:
    made(source, "from_gtids")
    with connect(read_options(source.options("from_gtids"))) as server:
        begin = str(server.value("SELECT @@gtid_binlog_pos"))
    source.run("INSERT INTO from_gtids VALUES (41, 0)")
    follower.catch_up(source)
    mode = {"scan.startup.mode": "specific-offset", "connect.timeout": "1s"}
    for server in (source, follower):
        stream = Stream(
            server.options("from_gtids", **mode, **{"scan.startup.specific-offset.gtid-set": begin})
        )
        assert [(row["row_kind"], row["id"]) for row in stream.batch()] == [("+I", 41)]
    domain, _, number = begin.split("-")[-3:]
    with pytest.raises(ServerChangedError, match="not all of"):
        Stream(
            source.options(
                "from_gtids",
                **mode,
                **{"scan.startup.specific-offset.gtid-set": f"{domain}-7-{int(number) + 1000}"},
            )
        )
    with pytest.raises(
        (ServerUnavailableError, ValueError, RuntimeError),
        match="'some' is not a list of MariaDB GTIDs",
    ):
        Stream(
            source.options(
                "from_gtids", **mode, **{"scan.startup.specific-offset.gtid-set": "some"}
            )
        )


# The last two tests, because the replica is unusable afterwards.
def test_log_purged_on_the_new_server_raises_an_error(
    source: LocalSource, follower: Follower
) -> None:
    stream = made(source, "gone")
    stream.batch()
    follower.catch_up(source)
    follower.run(
        "CREATE TABLE IF NOT EXISTS own_gone (id INT PRIMARY KEY)",
        "INSERT INTO gone VALUES (100, 0)",
        "FLUSH BINARY LOGS",
    )
    there = on(follower, stream)
    purge(there.options)
    with pytest.raises(BinlogPurgedError, match="begins after transactions"):
        there.batch()


def test_log_without_replicated_transactions_raises_an_error(
    source: LocalSource, follower: Follower
) -> None:
    stream = made(source, "unlogged")
    follower.catch_up(source)
    follower.run(
        "STOP SLAVE", "SET GLOBAL gtid_slave_pos = '0-7-1000000'"
    )  # as for a replica that did not log replicated transactions
    with pytest.raises(ServerChangedError, match="--log-slave-updates"):
        on(follower, stream).batch()
