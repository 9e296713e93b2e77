"""mysql-replication's log stream, restricted to one server and made faster.

The library spends most of its time per event, not per row. A TABLE_MAP event precedes the rows of
every statement. With ``freeze_schema`` the library uses only the first one of a table, so this
stream skips repeated ones. The library also builds a dictionary of the table's attributes at every
event; `_Table` avoids that.
"""

from __future__ import annotations

from typing import Any

import pymysql
from pymysql.constants import COMMAND
from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants.BINLOG import TABLE_MAP_EVENT
from pymysqlreplication.event import ExecuteLoadQueryEvent, QueryEvent
from pymysqlreplication.exceptions import StatusVariableMismatch
from pymysqlreplication.table import Table

from .server import MySqlConnection, identity_of, require_one_server

_read_variable = QueryEvent._read_status_vars_value_for_key
_EVENT = 0
"""The first byte of a packet that contains an event."""


def _read_or_skip(event: QueryEvent, key: int) -> None:
    """Read a session variable of a statement; if it is unknown, skip it and the rest.

    Newer MariaDB versions have variables that the library does not know.
    """
    end = vars(event).setdefault(
        "status_vars_end", event.packet.read_bytes - 1 + event.status_vars_length
    )
    try:
        _read_variable(event, key)
    except StatusVariableMismatch:
        event.packet.advance(end - event.packet.read_bytes)


QueryEvent._read_status_vars_value_for_key = _read_or_skip

_EVENT_HEADER = 20
"""The number of bytes in a packet before the event's body."""
_STATEMENT_HEADERS = {QueryEvent: 13, ExecuteLoadQueryEvent: 26}


def statement_bytes(event: QueryEvent | ExecuteLoadQueryEvent) -> tuple[bytes, bytes]:
    """Return the default database and the statement of an event, as bytes.

    The library decodes every statement as UTF-8.
    """
    start = _EVENT_HEADER + _STATEMENT_HEADERS[type(event)] + event.status_vars_length
    body = bytes(event.packet.get_all_data()[start : _EVENT_HEADER + event.event_size])
    return body[: event.schema_length], body[event.schema_length + 1 :]


class _LogConnection(MySqlConnection):
    """A connection that skips repeated TABLE_MAP events, also of tables the library filters out."""

    def __init__(self, **settings: Any) -> None:
        self._sends_log = False
        self.tables: set[bytes] = set()
        super().__init__(**settings)

    def _write_bytes(self, data: bytes) -> None:
        self._sends_log = data[4] == COMMAND.COM_BINLOG_DUMP
        self.tables.clear()
        super()._write_bytes(data)

    def _read_packet(self, packet_type: Any = MysqlPacket) -> Any:
        while True:
            packet = super()._read_packet(packet_type)
            if not (self._sends_log and self._is_had(packet.get_all_data())):
                return packet

    def _is_had(self, data: bytes) -> bool:
        if data[0] != _EVENT or data[5] != TABLE_MAP_EVENT:
            return False
        count, table = len(self.tables), data[20:26]
        self.tables.add(table)
        return len(self.tables) == count


class _Table(Table):  # type: ignore[misc]
    """The library's table, whose `data` does not build a new dictionary."""

    @property
    def data(self) -> dict[str, Any]:
        return self.__dict__


class Stream(BinLogStreamReader):  # type: ignore[misc]
    """The library's stream, limited to two connections.

    The first connection reads the log and must reach the expected server. After a lost connection,
    the library would connect a third time and continue with outdated table maps. This class raises
    an error instead, so that the caller starts a new stream.

    Parameters
    ----------
    identity : str
        The expected `Server.identity`.
    **settings
        The library's settings.
    """

    def __init__(self, identity: str, **settings: Any) -> None:
        self._identity = identity
        self._connections: list[_LogConnection] = []
        self.table_map: dict[int, Table] = {}
        super().__init__(pymysql_wrapper=self._connect, **settings)

    def known_table(self, table_id: int) -> Table:
        """Return a table's columns as the log describes them."""
        table = self.table_map[table_id]
        if not isinstance(table, _Table):
            table = self.table_map[table_id] = _Table(**vars(table))
        return table

    def forget_tables(self) -> None:
        """Discard all table maps, and read the next ones."""
        self.table_map = {}
        for connection in self._connections:
            connection.tables.clear()

    def _connect(self, **settings: Any) -> _LogConnection:
        if len(self._connections) == 2:
            raise pymysql.err.OperationalError(0, "the connection ended while the log was read")
        if "db" in settings:  # PyMySQL's former name of the parameter
            settings["database"] = settings.pop("db")
        connection = _LogConnection(**settings)
        self._connections.append(connection)
        if len(self._connections) == 1:
            require_one_server(self._identity, identity_of(connection))
        return connection
