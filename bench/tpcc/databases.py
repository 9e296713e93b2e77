"""Copies in a PostgreSQL or MariaDB, whose tables are asked how many records they have."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from normalize import JdbcDatabase
from normalize.tables.writers.jdbc import JdbcConnection

from .record import login, source_rows
from .results import Readable
from .servers import Source
from .tables import TABLES
from .targets import Copy, Target

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROBES = {
    "customer": "SELECT sum(c_payment_cnt + c_delivery_cnt) FROM customer",
    "history": "SELECT count(*) FROM history",
    "orders": "SELECT count(*) + count(o_carrier_id) FROM orders",
    "order_line": "SELECT count(*) + count(ol_delivery_d) FROM order_line",
    "stock": "SELECT sum(s_order_cnt) FROM stock",
}
"""Numbers that each change of a table raises by one. The other tables have none."""
_INTERVAL = 1.0  # seconds


class ProbedCopy:
    """A copy whose records are readable when the tables of the server have them."""

    def __init__(self, copy: Copy, spark: SparkSession, server: Source) -> None:
        self.copy, self._spark, self._server = copy, spark, server
        self._readable: list[Readable] = []
        self._before: dict[int, int] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probes", daemon=True)

    def readable(self) -> list[Readable]:
        """Return the numbers of records at the times of the probes."""
        return list(self._readable)

    def wait(self, records: list[int]) -> float:
        """Wait until so many records of each table are readable; first those of the snapshot."""
        when = self.copy.wait(records)
        if self._before:
            time.sleep(2 * _INTERVAL)  # the next probe has them
            return when
        with self._connection() as tables:
            self._before = {
                number: records[number] - value for number, value in _values(tables).items()
            }
        self._thread.start()
        return when

    def stop(self) -> None:
        """End the probes and the copy."""
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self.copy.stop()

    def _run(self) -> None:
        with self._connection() as tables:
            while not self._done.wait(_INTERVAL):
                for number, value in _values(tables).items():
                    records = self._before[number] + value
                    self._readable.append(Readable(number, records, time.time()))

    def _connection(self) -> AbstractContextManager[JdbcConnection]:
        return JdbcConnection.open(self._spark, database_of(self._server).target("any"))


def _values(tables: JdbcConnection) -> dict[int, int]:
    return {
        number: tables.number(PROBES[table.name]) or 0
        for number, table in enumerate(TABLES)
        if table.name in PROBES
    }


def database_of(server: Source) -> JdbcDatabase:
    """Return the database of a server."""
    return JdbcDatabase(**login(server))


def in_database(spark: SparkSession, server: Source, start: Callable[[str, Path], Copy]) -> Target:
    """Return a copy that writes the tables of a server."""

    def log_position() -> int:
        query = (
            "SELECT (pg_current_wal_lsn() - '0/0')::bigint"
            if server.kind == "postgresql"
            else "SELECT variable_value FROM information_schema.global_status WHERE variable_name "
            "= 'INNODB_OS_LOG_WRITTEN'"
        )
        with JdbcConnection.open(spark, database_of(server).target("any")) as connection:
            return connection.number(query) or 0

    return Target(
        spark,
        lambda servers, work: ProbedCopy(start(servers, work), spark, server),
        lambda name: source_rows(spark, server, name),
        lambda: (None, log_position()),
    )
