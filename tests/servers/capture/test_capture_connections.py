"""Refused, killed and encrypted connections."""

import time
from collections.abc import Iterator

import pytest

from capture.chunk import Selector
from capture.errors import ConnectionLostError, ServerUnavailableError
from capture.options import read_options
from capture.server import Server, connect, run_query
from capture.tables import read_tables
from tests.support.servers.local_source import SMALL, EncryptedSource, LocalSource, Stream


@pytest.mark.parametrize("kind", ["Chunks", "Log"])
def test_reading_continues_after_its_connections_are_killed(source: LocalSource, kind: str) -> None:
    name, rows = f"killed_{kind.lower()}", 15 if kind == "Chunks" else 12_000
    fill = f"INSERT INTO {name} SELECT seq, REPEAT('x', 2000) FROM seq_1_to_{rows}"
    # The size of chunks follows from the server's estimate of the number of rows, which it updates
    # some time after an INSERT.
    analyze = f"ANALYZE TABLE {name}"
    source.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, v TEXT)",
        *([fill, analyze] if kind == "Chunks" else []),
    )
    stream = Stream(
        source.options(name, **SMALL, **{"scan.snapshot.parallelism": "1", "server-id": "901-902"})
    )
    if kind == "Log":
        assert stream.batch() == []
        source.run(fill)
    (partition,) = stream.reader.partitions(stream.start, stream.latest())
    assert type(partition).__name__ == kind
    stream.reader.stop()  # so that only the task's connections are killed
    reading = stream.reader.read(partition)
    ids = next(reading).column("id").to_pylist()
    assert len(ids) < rows
    assert ("Sleep" if kind == "Chunks" else "Binlog Dump") in source.kill_others()
    for batch in reading:
        ids += batch.column("id").to_pylist()
    assert sorted(ids) == list(range(1, rows + 1))


def test_query_is_retried_after_its_connection_is_killed(source: LocalSource) -> None:
    source.run("CREATE TABLE IF NOT EXISTS asked (id INT PRIMARY KEY)")
    killed = []

    def question(server: Server) -> int:
        number = int(server.value("SELECT CONNECTION_ID()"))
        if len(killed) < 2:
            killed.append(number)
            source.run(f"KILL {number}")
        return int(server.value("SELECT CONNECTION_ID()"))

    assert run_query(read_options(source.options("asked")), question) not in killed
    killed.clear()
    with pytest.raises(ConnectionLostError):
        run_query(read_options(source.options("asked", **{"connect.max-retries": "1"})), question)


def test_idle_stream_keeps_its_connection_and_replaces_a_lost_one(source: LocalSource) -> None:
    source.run("CREATE TABLE kept (id INT PRIMARY KEY)")
    stream = Stream(source.options("kept", **{"connect.max-retries": "0"}))

    def opened() -> int:
        with connect(stream.options) as server:
            return int(dict(server.rows("SHOW GLOBAL STATUS LIKE 'Connections'"))["Connections"])

    assert stream.batch() == []
    before = opened()
    for _ in range(5):
        assert stream.batch() == []
    assert opened() == before + 1, "only the connection of opened()"
    assert source.kill_others() == {"Sleep"}
    source.run("INSERT INTO kept VALUES (1)")
    assert [row["id"] for row in stream.batch()] == [1]
    stream.reader.stop()
    # The server notices a closed connection a moment later, also that of `other_connections`
    # itself.
    deadline, connections = time.monotonic() + 10, source.other_connections()
    while connections and time.monotonic() < deadline:
        time.sleep(0.1)
        connections = source.other_connections()
    assert connections == []


def test_refused_connection_is_retried(source: LocalSource) -> None:
    began = time.monotonic()
    with pytest.raises(ServerUnavailableError, match=r"127\.0\.0\.1:1,"):
        Stream(source.options("refused") | {"port": "1", "connect.max-retries": "2"})
    assert time.monotonic() - began > 0.5


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EncryptedSource]:
    with EncryptedSource(tmp_path_factory.mktemp("certificates")) as server:
        yield server


def test_given_ca_verifies_the_server(encrypted: EncryptedSource) -> None:
    encrypted.run("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    encrypted.run_as_root(
        "CREATE USER sealed@localhost IDENTIFIED BY 's' REQUIRE SSL",
        "GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO sealed@localhost",
    )
    options = encrypted.options("t", **SMALL) | {"username": "sealed", "password": "s"}
    stream = Stream(options | {"ssl.ca": str(encrypted.trusted)})
    assert [row["id"] for row in stream.batch()] == [1]
    encrypted.run("INSERT INTO t VALUES (2)")
    assert [row["id"] for row in stream.batch()] == [2]
    for some_options in (options, options | {"ssl.ca": str(encrypted.trusted)}):
        with connect(read_options(some_options)) as server:
            selector = Selector(
                server, read_options(some_options), *read_tables(server, read_options(some_options))
            )
            assert selector.select("TRUE").to_pylist() == [{"id": "1"}, {"id": "2"}]
            assert (selector.by_arrow, selector.encrypted) == (True, True)
    with pytest.raises(ServerUnavailableError, match="certificate verify failed"):
        Stream(options | {"ssl.ca": str(encrypted.other)})
    wrong_name = options | {"ssl.ca": str(encrypted.trusted), "hostname": "localhost"}
    with pytest.raises(ServerUnavailableError, match="certificate is not valid for 'localhost'"):
        Stream(wrong_name)
