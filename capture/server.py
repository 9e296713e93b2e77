"""Connections to a server, and positions in its log.

A position of the log is *settled* when a new query sees every transaction up to it. The position of
``SHOW MASTER STATUS`` is not settled. The server writes a transaction to its log first. The
transaction becomes visible once the log is on disk and, with semi-synchronous replication, on
another server. A chunk selected in between lacks the transaction, and so does the log after that
position.

========  ======================================================================================
MariaDB   ``START TRANSACTION WITH CONSISTENT SNAPSHOT`` returns the position of its snapshot
          (``binlog_snapshot_position``)
MySQL     ``@@gtid_owned`` lists transactions that have a GTID and are not visible yet: read the
          position, then wait until the transactions listed at that time are gone
========  ======================================================================================

Neither takes a lock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import pymysql
from pymysql.connections import Connection
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from .errors import (
    BinlogError,
    CaptureError,
    ConnectionLostError,
    ServerChangedError,
    ServerUnavailableError,
)
from .options import CaptureOptions

FIRST_EVENT = 4
"""The position of the first event in a log file."""
_POLL = 0.005  # seconds
_UNKNOWN_STATEMENT = 1064
_LOST = {0, 1040, 1053, 1317, 1927, 2002, 2003, 2006, 2013}
"""Error codes of a connection that was refused, timed out or was killed, or whose server stops."""
AGAIN_AFTER = 0.3  # seconds
_KEPT_SECONDS = 10.0
_T = TypeVar("_T")


class LogPosition(NamedTuple):
    """A position in a server's log, between two transactions or events."""

    file: str
    pos: int

    @property
    def order(self) -> tuple[int, int]:
        """The sort key for positions of one server."""
        return _file_number(self.file), self.pos

    def __str__(self) -> str:
        return f"{self.file}:{self.pos}"


@lru_cache(64)
def _file_number(file: str) -> int:
    number = file.rpartition(".")[2]
    if not number.isdigit():
        raise BinlogError(
            f"{file!r} is not the name of a binary log file: the name must end with a number, for "
            "example binlog.000007"
        )
    return int(number)


class MySqlConnection(Connection):  # type: ignore[misc]
    """PyMySQL's connection, with a shared TLS context if no certificate option is set.

    The context is shared because loading the system's CAs is slow.
    """

    _unchecked: Any = None

    def _create_ssl_ctx(self, sslp: Mapping[str, Any]) -> Any:
        if sslp:
            return super()._create_ssl_ctx(sslp)
        MySqlConnection._unchecked = MySqlConnection._unchecked or super()._create_ssl_ctx({})
        return MySqlConnection._unchecked


class ServerPosition(NamedTuple):
    """A position in the log of one server, with GTIDs that identify it in the log of another.

    Attributes
    ----------
    server : str
        The server's `Server.identity`.
    position : Position
    gtids : str or None
        The transactions before it; None if they are unknown.
    """

    server: str
    position: LogPosition
    gtids: str | None


class Server:
    """A connection for queries: rows, settings, log positions.

    Values are not converted: they are text, bytes for binary columns, or None.
    """

    def __init__(self, connection: Any, options: CaptureOptions) -> None:
        self.connection = connection
        self.options = options
        about = _about(connection)
        self.version = about["version"]
        self.is_mariadb = "mariadb" in self.version.lower()
        self.id = int(about["server_id"])
        self.identity = _identity(about)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Return all rows of a statement."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return list(cursor.fetchall())

    def value(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the only value of a statement's only row."""
        return self.rows(statement, values)[0][0]

    def stream(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement, fetched in batches."""
        with self.connection.cursor(SSCursor) as cursor:
            cursor.execute(statement)
            while rows := cursor.fetchmany(self.options.fetch_size):
                yield from rows

    def written(self) -> LogPosition:
        """Return the end of the written log, after every transaction that a query has seen."""
        try:
            status = self.rows(
                "SHOW MASTER STATUS" if self.is_mariadb else "SHOW BINARY LOG STATUS"
            )
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != _UNKNOWN_STATEMENT:
                raise
            status = self.rows("SHOW MASTER STATUS")  # MySQL before 8.2
        if not status:
            raise BinlogError("the server does not write a binary log: start it with --log-bin")
        return LogPosition(status[0][0], int(status[0][1]))

    def settled(self) -> LogPosition:
        """Return a settled position: a new query sees every transaction before it."""
        return self._snapshot_position() if self.is_mariadb else self._when_visible(self.written())

    def _snapshot_position(self) -> LogPosition:
        self.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = dict(self.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        self.rows("COMMIT")
        return LogPosition(status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"]))

    def _when_visible(self, position: LogPosition) -> LogPosition:
        waiting = self._owned()
        while waiting:
            time.sleep(_POLL)
            waiting &= self._owned()
        return position

    def _owned(self) -> set[str]:
        """Return the GTIDs in use (``uuid:number#thread``; several numbers can share a uuid)."""
        owned: set[str] = set()
        source = ""
        for part in self.value("SELECT @@GLOBAL.gtid_owned").replace("\n", "").split(","):
            head, *numbers = part.strip().split(":")
            source = head or source
            owned.update(f"{source}:{number}" for number in numbers)
        return owned

    def account(self) -> str:
        """Return the account that the server matched to the user, in the syntax of GRANT."""
        name, _, host = str(self.value("SELECT CURRENT_USER()")).rpartition("@")
        return f"'{name}'@'{host}'"

    def encrypted(self) -> bool:
        """Return whether this connection is encrypted."""
        return bool(dict(self.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")).get("Ssl_cipher"))

    def executed(self) -> str:
        """Return the GTIDs of all transactions on the server."""
        return str(
            self.value(
                "SELECT @@GLOBAL.gtid_binlog_state"
                if self.is_mariadb
                else "SELECT @@GLOBAL.gtid_executed"
            )
        )


def _about(connection: Any) -> dict[str, str]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('version', 'server_id', 'server_uuid', "
            "'server_uid')"
        )
        return dict(cursor.fetchall())


def identity_of(connection: Any) -> str:
    """Return the `Server.identity` of the server that a connection reaches."""
    return _identity(_about(connection))


def _identity(about: Mapping[str, str]) -> str:
    """Return MySQL's ``server_uuid``, or MariaDB's ``server_id`` with its ``server_uid``.

    MariaDB derives ``server_uid`` from the machine's address and the port, which two containers can
    share.
    """
    return about.get("server_uuid") or f"{about['server_id']} {about.get('server_uid', '')}".strip()


def require_one_server(before: str, now: str) -> None:
    """Check that a new connection reaches the same server: no successor, no other behind a proxy.

    Raises
    ------
    ServerChangedError
        If the identities differ.
    """
    if before != now:
        raise ServerChangedError(
            f"connections of one task reach different servers, {before} and {now}: after a "
            "failover, restart the query from its checkpoint; if 'hostname' resolves to several "
            "servers, set it to one of them"
        )


def connection_settings(options: CaptureOptions) -> dict[str, Any]:
    """Return the settings of a connection, for PyMySQL."""
    settings = {
        "host": options.hostname,
        "port": options.port,
        "user": options.username,
        "password": options.password,
        "connect_timeout": max(int(options.connect_timeout), 1),
        "charset": "utf8mb4",
        "autocommit": True,
    }
    tls = {"ssl_ca": options.ssl_ca, "ssl_cert": options.ssl_cert, "ssl_key": options.ssl_key}
    certificates = {name: value for name, value in tls.items() if value is not None}
    # With a CA, the host name is verified too.
    return (
        settings
        | certificates
        | (
            {"ssl_verify_cert": True, "ssl_verify_identity": True}
            if "ssl_ca" in certificates
            else {}
        )
    )


def session_settings(is_mariadb: bool) -> str:
    """Return the first statement of a session: UTC, no SQL modes, no time limit for queries."""
    limit = "max_statement_time" if is_mariadb else "max_execution_time"
    return f"SET time_zone = '+00:00', sql_mode = '', {limit} = 0, net_write_timeout = 600"


@contextmanager
def connect(options: CaptureOptions) -> Iterator[Server]:
    """Connect to the server, in UTC and without SQL modes.

    Raises
    ------
    ServerUnavailableError
        If the server does not answer, denies access, or ends the connection.
    """
    with server_errors(options):
        connection = MySqlConnection(**connection_settings(options), conv=dict(encoders))
    try:
        with server_errors(options):
            server = Server(connection, options)
            server.rows(session_settings(server.is_mariadb))
            yield server
    finally:
        connection.close()


@contextmanager
def server_errors(options: CaptureOptions) -> Iterator[None]:
    """Convert driver errors to `ServerUnavailableError`, with the server's message, no password."""
    try:
        yield
    except CaptureError:
        raise
    except pymysql.err.MySQLError as error:
        text = (
            f"{options.hostname}:{options.port}, user {options.username!r}: "
            f"{error.args[-1] if error.args else error}"
        )
        raise (
            ConnectionLostError if error.args and error.args[0] in _LOST else ServerUnavailableError
        )(text) from None


class Connections:
    """A runner of queries on one connection at a time, which reconnects after a while.

    The host name may then be another server's.

    Parameters
    ----------
    options : CaptureOptions
    """

    def __init__(self, options: CaptureOptions) -> None:
        self.options = options
        self._open = ExitStack()
        self._server: Server | None = None
        self._until = 0.0

    def run_query(self, question: Callable[[Server], _T]) -> _T:
        """Return the result of a function of the server; retry refused or ended connections."""
        left = self.options.connect_max_retries
        while True:
            kept = self._server if time.monotonic() < self._until else None
            try:
                with server_errors(self.options):
                    return question(kept or self._new())
            except BaseException as error:
                self.close()
                if not isinstance(error, ConnectionLostError) or not (kept or left):
                    raise
            if kept is None:  # a kept connection that ended while idle does not count as a failure
                left -= 1
                time.sleep(AGAIN_AFTER)

    def close(self) -> None:
        """Close the connection; the next `run_query` opens a new one."""
        self._server = None
        self._open.close()

    def _new(self) -> Server:
        self.close()
        self._server, self._until = (
            self._open.enter_context(connect(self.options)),
            time.monotonic() + _KEPT_SECONDS,
        )
        return self._server


def run_query(options: CaptureOptions, question: Callable[[Server], _T]) -> _T:
    """Connect and return a function's result for the server; retry refused or ended connections."""
    with closing(Connections(options)) as connections:
        return connections.run_query(question)
