"""The database of the capture benchmark: a server, its table, and a log of updates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import psutil
import pymysql

from capture.options import CaptureOptions, read_options
from capture.server import LogPosition, connect
from tests.support.servers.local_databases import LocalMariaDb

DATABASE = "bench_capture"
TABLE, SMALL_TABLE = "orders", "few_orders"
COLUMNS = """
    id BIGINT PRIMARY KEY, quantity INT NOT NULL, customer VARCHAR(60) NOT NULL, price DECIMAL(12,2) NOT NULL,
    created_at DATETIME(6) NOT NULL, updated_at TIMESTAMP NOT NULL DEFAULT '2025-01-01 00:00:00', weight DOUBLE NOT NULL, note VARCHAR(200)
"""
_PRICES = 1_000_003
_STRIDE = 7919
_ROW = f"""
    k, k % 1000, CONCAT('customer ', k, ' of the northern region'), k % {_PRICES} / 100,
    TIMESTAMP('2024-01-01 00:00:00.123456') + INTERVAL k % 31536000 SECOND, TIMESTAMP('2025-01-01') + INTERVAL k % 31536000 SECOND,
    k / 7e0, IF(k % 3 = 0, NULL, CONCAT('note ', LPAD(k, 32, '0')))
"""
_UPDATES = f"""
CREATE PROCEDURE updates(events BIGINT, together BIGINT, ids BIGINT)
BEGIN
    DECLARE done BIGINT DEFAULT 0;
    SET autocommit = 0;
    WHILE done < events DO
        UPDATE {TABLE} SET quantity = quantity + 1 WHERE id = 1 + done * {_STRIDE} % ids;
        SET done = done + 1;
        IF done % together = 0 THEN COMMIT; END IF;
    END WHILE;
    COMMIT;
    SET autocommit = 1;
END
"""

Counts = dict[str, tuple[int, int, int]]
"""The number of rows, the sum of their ids and the sum of their prices in cents, by row kind."""


class Source(NamedTuple):
    """A server and a user."""

    host: str
    port: int
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Source({self.host!r}, {self.port})"

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in UTC; return the rows of the last."""
        with (
            pymysql.connect(
                host=self.host,
                port=self.port,
                user=self.user,
                password=self.password,
                autocommit=True,
            ) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute("SET time_zone = '+00:00'")
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    def reader(self, table: str, **more: str) -> dict[str, str]:
        """Return the options of ``mysql-changelog``."""
        login = {
            "hostname": self.host,
            "port": str(self.port),
            "username": self.user,
            "password": self.password,
        }
        return login | {"database-name": DATABASE, "table-name": table} | more

    def options(self) -> CaptureOptions:
        return read_options(self.reader(TABLE))

    def position(self) -> LogPosition:
        """Return the current position of the log."""
        with connect(self.options()) as server:
            return server.settled()

    def process(self) -> psutil.Process | None:
        """Return the server's process, if it runs on this machine."""
        if self.host not in ("127.0.0.1", "localhost"):
            return None
        listening = (
            each
            for each in psutil.net_connections("tcp")
            if each.status == psutil.CONN_LISTEN and each.laddr.port == self.port
        )
        return next((psutil.Process(each.pid) for each in listening if each.pid), None)


class _MariaDb(LocalMariaDb):
    """A MariaDB with a binary log and a large buffer pool."""

    def _start(self, command: list[str]) -> None:
        log = [
            "--log-bin=binlog",
            "--server-id=7",
            "--binlog-format=ROW",
            "--performance-schema=OFF",
            "--default-time-zone=+00:00",
            "--skip-ssl",
        ]
        super()._start(
            [*command, *log, "--innodb-buffer-pool-size=1G", "--innodb-log-file-size=256M"]
        )


@contextmanager
def source_of(server: str | None, user: str, password: str) -> Iterator[Source]:
    """Yield an existing server (``host:port``) or a new MariaDB, with the benchmark's database.

    In the end, the database is dropped.
    """
    if server is not None:
        host, _, port = server.partition(":")
        yield from _with_database(Source(host, int(port or 3306), user, password))
        return
    with LocalMariaDb.__enter__(_MariaDb()) as mariadb:
        yield from _with_database(Source("127.0.0.1", mariadb.port, mariadb.user, mariadb.password))


def _with_database(source: Source) -> Iterator[Source]:
    source.run(
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4",
        f"USE {DATABASE}",
        _UPDATES,
    )
    try:
        yield source
    finally:
        source.run(f"DROP DATABASE {DATABASE}")


def fill(source: Source, table: str, rows: int) -> Counts:
    """Create a table of rows derived from ids, without logging; return expected snapshot counts."""
    doubled, count = [], 1
    while count < rows:
        keys = f"SELECT id + {count} AS k FROM {table} WHERE id <= {rows - count}"
        doubled.append(f"INSERT INTO {table} SELECT {_ROW} FROM ({keys}) AS further")
        count *= 2
    first = f"INSERT INTO {table} SELECT {_ROW} FROM (SELECT 1 AS k) AS first"
    made = [
        "SET sql_log_bin = 0",
        f"USE {DATABASE}",
        f"CREATE TABLE {table} ({COLUMNS})",
        first,
        *doubled,
        f"ANALYZE TABLE {table}",
    ]
    totals = source.run(
        *made, f"SELECT COUNT(*), SUM(id), CAST(SUM(price) * 100 AS SIGNED) FROM {table}"
    )[0]
    return {"+I": (int(totals[0]), int(totals[1]), int(totals[2]))}


def update(source: Source, events: int, together: int | None, rows: int) -> Counts:
    """Update rows, `together` per transaction or in one statement; return the expected log counts.

    `events` must not exceed `rows`.
    """
    if together is None:
        source.run(
            f"USE {DATABASE}", f"UPDATE {TABLE} SET quantity = quantity + 1 WHERE id <= {events}"
        )
        ids = [*range(1, events + 1)]
    else:
        source.run(f"USE {DATABASE}", f"CALL updates({events}, {together}, {rows})")
        ids = [1 + event * _STRIDE % rows for event in range(events)]
    counted = (events, sum(ids), sum(each % _PRICES for each in ids))
    return {"-U": counted, "+U": counted}
