"""A real MariaDB with a binary log, a stream without Spark, a replica that checks changelogs."""

from __future__ import annotations

import getpass
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pymysql

from capture.options import CaptureOptions, read_options
from capture.rows import BatchWriter
from capture.server import Server, connect, run_query
from capture.source import HAS_READ_LIMITS, ChangelogReader
from capture.tables import read_tables, require_alike
from tests.support.servers.authorities import authority, signed
from tests.support.servers.local_databases import LocalMariaDb

LOG = (
    "--log-bin=binlog",
    "--server-id=7",
    "--binlog-format=ROW",
    "--performance-schema=OFF",
    "--slave-connections-needed-for-purge=0",
)


class LocalSource(LocalMariaDb):
    """An empty MariaDB with a binary log without optional metadata."""

    more: Sequence[str] = (
        "--skip-ssl",
    )  # creating the server's own 4096-bit certificate takes longer than the tests

    def _start(self, command: list[str]) -> None:
        super()._start([*command, *LOG, *self.more])

    def connect(self, **settings: Any) -> pymysql.Connection[Any]:
        settings = {
            "user": self.user,
            "password": self.password,
            "database": "test",
            "autocommit": True,
            "ssl_disabled": True,
        } | settings
        return pymysql.connect(host="127.0.0.1", port=self.port, charset="utf8mb4", **settings)

    def run(self, *statements: str) -> None:
        with self.connect() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def table(
        self, name: str, columns: str = "id INT PRIMARY KEY, v INT", *, rows: int = 40, v: str = "0"
    ) -> None:
        """Create a table with rows, whose ids count from 1 and whose `v` is an expression."""
        self.run(
            f"CREATE TABLE {name} ({columns})",
            f"INSERT INTO {name} (id, v) SELECT seq, {v} FROM seq_1_to_{rows}",
        )

    def other_connections(self) -> list[tuple[int, str]]:
        """Return the ids and commands of the user's other connections."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(
                (
                    "SELECT id, command FROM information_schema.processlist WHERE user = %s AND id "
                    "<> CONNECTION_ID()"
                ),
                [self.user],
            )
            return [(int(number), str(command)) for number, command in cursor.fetchall()]

    def kill_others(self) -> set[str]:
        """Kill the user's other connections; return their commands."""
        connections = self.other_connections()
        killed = set()
        with self.connect() as connection, connection.cursor() as cursor:
            for number, command in connections:
                with suppress(pymysql.err.OperationalError):  # a connection that ended meanwhile
                    cursor.execute(f"KILL {number}")
                    killed.add(str(command))
            return killed

    def run_as_root(self, *statements: str) -> None:
        """Run statements as the owner of the server's files, who has the privilege to grant."""
        with (
            pymysql.connect(
                unix_socket=str(self._scratch / "socket"), user=getpass.getuser()
            ) as connection,
            connection.cursor() as cursor,
        ):
            for statement in statements:
                cursor.execute(statement)

    def options(self, table: str, **more: str) -> dict[str, str]:
        """Return the options of a reader."""
        options = {
            "hostname": "127.0.0.1",
            "port": str(self.port),
            "username": self.user,
            "password": self.password,
        }
        return options | {"database-name": "test", "table-name": table} | more

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return list(cursor.fetchall())


class EncryptedSource(LocalSource):
    """A MariaDB with a certificate signed by a test CA."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        trusted, other = authority("trusted"), authority("other")
        self.trusted, self.other = folder / "trusted.pem", folder / "other.pem"
        self.trusted.write_text(trusted.certificate_pem())
        self.other.write_text(other.certificate_pem())
        pem = signed(trusted, "server").write_pem(folder / "server.pem")
        self.more = (f"--ssl-cert={pem}", f"--ssl-key={pem}")


LATEST = {"scan.startup.mode": "latest-offset"}
SMALL = {"scan.incremental.snapshot.chunk.size": "5", "scan.snapshot.chunks-per-batch": "3"}


def purge(options: CaptureOptions) -> None:
    """Purge all log files of a server except the current one."""
    with connect(options) as server:
        last, deadline = server.written().file, time.monotonic() + 30
        # The server keeps a file that a reader has open, until it notices that the reader is gone.
        while server.rows("SHOW BINARY LOGS")[0][0] != last and time.monotonic() < deadline:
            server.rows(f"PURGE BINARY LOGS TO '{last}'")
            time.sleep(0.1)
        assert server.rows("SHOW BINARY LOGS")[0][0] == last


def inferred(options: CaptureOptions) -> pa.Schema:
    """Return the schema of a stream without a declared schema."""

    def schema(server: Server) -> pa.Schema:
        tables = read_tables(server, options)
        require_alike(tables)
        return BatchWriter(server, tables[0], options).schema

    return run_query(options, schema)


@contextmanager
def repeating(*acts: Callable[[], object], pause: float) -> Iterator[None]:
    """Call each function again and again inside the context, in a thread of its own."""
    done = threading.Event()

    def repeat(act: Callable[[], object]) -> None:
        while not done.wait(pause):
            act()

    with ThreadPoolExecutor(len(acts)) as threads:
        repeated = [threads.submit(repeat, act) for act in acts]
        try:
            yield
        finally:
            done.set()
        for each in repeated:
            each.result()


class Stream:
    """A runner of a reader's micro-batches without Spark.

    As in Spark, offsets pass through JSON and partitions through pickle.
    """

    def __init__(
        self,
        options: dict[str, str],
        start: dict[str, Any] | None = None,
        declared: pa.Schema | None = None,
        *,
        available_now: bool = False,
    ) -> None:
        self.options = read_options(options)
        self.reader = ChangelogReader(self.options, declared or inferred(self.options))
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        if start is not None and not HAS_READ_LIMITS:
            self.reader.partitions(start, start)  # as Spark does when a query is restarted
        self.start = start or _through_json(self.reader.initialOffset())
        if start is None and not self.start["snapshot"]:
            assert self.batch() == []  # the first batch, which only stores the start

    def batch(self) -> list[dict[str, Any]]:
        """Return the rows of the next batch, or an empty list."""
        end = self.latest()
        rows = list(self.between(self.start, end))
        self.start = end
        return rows

    def latest(self, **limit: Any) -> dict[str, Any]:
        """Return the end of the next batch; Spark passes the start since 4.2."""
        return _through_json(
            self.reader.latestOffset(*([self.start] if HAS_READ_LIMITS else []), **limit)
        )

    def run(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of a run's further batches; it ends when a batch's end is its start."""
        while (end := self.latest()) != self.start:
            rows = list(self.between(self.start, end))
            self.start = end
            yield rows

    def between(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for partition in self.reader.partitions(start, end):
            for batch in self.reader.read(pickle.loads(pickle.dumps(partition))):
                yield from batch.to_pylist()


def everything(stream: Stream) -> list[dict[str, Any]]:
    """Return the rows of all batches up to the first empty one."""
    return [row for rows in iter(stream.batch, []) for row in rows]


def _through_json(offset: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(offset))
    return copy


METADATA = ("row_kind", "database", "table", "op_ts", "position")


class Replica:
    """A target table of a changelog; a change that does not fit its rows fails the test."""

    def __init__(self, *primary_key: str) -> None:
        self.primary_key = primary_key
        self.rows: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self.places: list[tuple[str, int, int]] = []

    def apply(self, changelog: Iterable[dict[str, Any]]) -> None:
        for change in changelog:
            self._check_place(change["position"])
            key = tuple(change[name] for name in self.primary_key)
            row = tuple(value for name, value in change.items() if name not in METADATA)
            if change["row_kind"] in ("+I", "+U"):
                assert key not in self.rows, f"{change}: the row exists already"
                self.rows[key] = row
            else:
                assert self.rows.pop(key, None) == row, f"{change}: the row is missing or differs"

    def _check_place(self, position: Any) -> None:
        """Check that log changes are ordered by position, at most two rows (an update) at each."""
        if not position["snapshot"]:
            self.places = [*self.places[-2:], (position["file"], position["pos"], position["row"])]
            assert position["pos"] > 0
            assert self.places == sorted(self.places)
            assert len(self.places) < 3 or self.places[0] < self.places[2]

    def contents(self) -> set[tuple[Any, ...]]:
        return set(self.rows.values())
