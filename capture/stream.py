"""mysql-replication's stream of a log: on connections that are to one server, and without what it would read in vain.

The library takes most of its time for each event, and not for each row. A map of the table's columns comes before the rows of every
statement, and with ``freeze_schema`` the library looks at the first of a table alone: the others are passed over where they arrive. Of the
table it asks the key at every event, and makes a dictionary for it.
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

from .server import Driver, identity_of, require_one_server

_read_variable = QueryEvent._read_status_vars_value_for_key
_EVENT = 0
"""How a packet begins that has an event."""


def _read_or_skip(event: QueryEvent, key: int) -> None:
    """Read a variable of a statement's session, or skip this and the rest where the library does not know it: newer MariaDB have more."""
    end = vars(event).setdefault("status_vars_end", event.packet.read_bytes - 1 + event.status_vars_length)
    try:
        _read_variable(event, key)
    except StatusVariableMismatch:
        event.packet.advance(end - event.packet.read_bytes)


QueryEvent._read_status_vars_value_for_key = _read_or_skip

_EVENT_HEADER = 20
"""Bytes of a packet before an event's own."""
_STATEMENT_HEADERS = {QueryEvent: 13, ExecuteLoadQueryEvent: 26}


def statement_bytes(event: QueryEvent | ExecuteLoadQueryEvent) -> tuple[bytes, bytes]:
    """Return the default database and the statement of an event; the library takes every statement for UTF-8."""
    start = _EVENT_HEADER + _STATEMENT_HEADERS[type(event)] + event.status_vars_length
    found = bytes(event.packet.get_all_data()[start : _EVENT_HEADER + event.event_size])
    return found[: event.schema_length], found[event.schema_length + 1 :]


class _LogConnection(Driver):
    """A connection that passes over the maps of tables that it has had, also of those that the library leaves out, and knows not."""

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
        had, table = len(self.tables), data[20:26]
        self.tables.add(table)
        return len(self.tables) == had


class _Table(Table):  # type: ignore[misc]
    """The library's table, which gives what there is of it without making it anew."""

    @property
    def data(self) -> dict[str, Any]:
        return self.__dict__


class Stream(BinLogStreamReader):  # type: ignore[misc]
    """The library's stream.

    It has two connections, the first of which, the log's, must be to the very server. The library would connect a third time and go on
    where it was, with what it knows of tables from before; the reading is begun anew instead.

    Parameters
    ----------
    identity : str
        The server's.
    **settings
        The library's.
    """

    def __init__(self, identity: str, **settings: Any) -> None:
        self._identity = identity
        self._connections: list[_LogConnection] = []
        self.table_map: dict[int, Table] = {}
        super().__init__(pymysql_wrapper=self._connect, **settings)

    def known_table(self, table_id: int) -> Table:
        """Return what the log has said of a table."""
        found = self.table_map[table_id]
        if not isinstance(found, _Table):
            found = self.table_map[table_id] = _Table(**vars(found))
        return found

    def forget_tables(self) -> None:
        """Read anew what the log says of tables."""
        self.table_map = {}
        for connection in self._connections:
            connection.tables.clear()

    def _connect(self, **settings: Any) -> _LogConnection:
        if len(self._connections) == 2:
            raise pymysql.err.OperationalError(0, "the connection ended while the log was read")
        if "db" in settings:  # an old name of PyMySQL's
            settings["database"] = settings.pop("db")
        connection = _LogConnection(**settings)
        self._connections.append(connection)
        if len(self._connections) == 1:
            require_one_server(self._identity, identity_of(connection))
        return connection
