"""Reads row changes and schema changes between two positions of the binary log.

mysql-replication implements the protocol. Column names and types come from the server's
``information_schema``, because the log's own depend on ``binlog_row_metadata``. Rows whose columns
differ from it raise an error.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pymysql
from pymysql.constants import COMMAND
from pymysql.protocol import MysqlPacket
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.constants import FIELD_TYPE
from pymysqlreplication.constants.BINLOG import TABLE_MAP_EVENT
from pymysqlreplication.event import (
    ExecuteLoadQueryEvent,
    GtidEvent,
    MariadbGtidEvent,
    NotImplementedEvent,
    QueryEvent,
    RotateEvent,
    XAPrepareEvent,
    XidEvent,
)
from pymysqlreplication.exceptions import StatusVariableMismatch
from pymysqlreplication.gtid import Gtid, GtidSet
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)
from pymysqlreplication.table import Table as WireTable

from .errors import BinlogError, BinlogPurgedError, SchemaChangedError, ServerUnavailableError
from .options import CaptureOptions
from .server import (
    LogPosition,
    MySqlConnection,
    Server,
    connection_settings,
    identity_of,
    require_one_server,
    server_errors,
)
from .statements import (
    Effect,
    LogEntry,
    RowChange,
    ServerSyntax,
    SqlStatement,
    Statement,
    TableCreation,
    TransactionEnd,
    decode,
)
from .table import Row, RowImageReader, Table, TableId

# --------------------------------------------------------------------------------------------------
# Sets of transactions, given by GTIDs: an offset stores those before its position.
#
# ========  =================================================================================
# MySQL     a set: the numbers of each source, ``3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9``
# MariaDB   a state: the last transaction of each domain and server, as domain-server-number,
#           ``0-7-12,1-8-5``
# ========  =================================================================================

UNREADABLE = "?"
"""Replaces a GTID that mysql-replication cannot read: one with a tag (MySQL 8.3)."""
_MARIADB = re.compile("([0-9]+)-([0-9]+)-([0-9]+)")


class MySqlGtids:
    """A set of MySQL transactions.

    Examples
    --------
    >>> some = MySqlGtids("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9")
    >>> str(some.plus(["3e11fa47-71ca-11e1-9e33-c80aa9429562:10"]))
    '3e11fa47-71ca-11e1-9e33-c80aa9429562:1-7:9-10'
    """

    def __init__(self, text: str) -> None:
        try:
            self._set = GtidSet(text)
        except ValueError:
            raise _unreadable(text, "MySQL GTIDs without tags") from None

    def __str__(self) -> str:
        return str(self._set)

    def __contains__(self, gtid: str) -> bool:
        return gtid != UNREADABLE and Gtid(gtid) in self._set

    def includes(self, other: MySqlGtids) -> bool:
        """Return whether the set contains all of another set."""
        return all(each in self._set for each in other._set.gtids)

    covers = includes

    def plus(self, gtids: Iterable[str]) -> MySqlGtids:
        """Return the set with further transactions, which it must not contain yet."""
        union = MySqlGtids("")
        union._set = self._set
        for each in _runs(gtids):
            union._set += each
        return union

    def minus(self, gtids: Iterable[str]) -> MySqlGtids:
        """Return the set without some transactions."""
        left = self._set.gtids
        for run in _runs(gtids):
            left = [each - run for each in left]
        difference = MySqlGtids("")
        difference._set = GtidSet([each for each in left if each.intervals])
        return difference


def _runs(gtids: Iterable[str]) -> list[Gtid]:
    """Return transactions as runs of consecutive numbers, which are common in a log."""
    ends: dict[str, list[list[int]]] = {}
    for gtid in gtids:
        source, _, number = gtid.rpartition(":")
        runs = ends.setdefault(source, [])
        if runs and runs[-1][1] == int(number):
            runs[-1][1] += 1
        else:
            runs.append([int(number), int(number) + 1])
    return [
        Gtid("", source, [(first, after)]) for source, runs in ends.items() for first, after in runs
    ]


class MariaDbGtids:
    """A set of MariaDB transactions: in each domain those up to a number, from any server.

    Examples
    --------
    >>> some = MariaDbGtids("0-7-12,1-8-5")
    >>> str(some.plus(["0-9-13"])), "0-8-11" in some, "0-7-13" in some
    ('0-7-12,0-9-13,1-8-5', True, False)
    """

    def __init__(self, text: str) -> None:
        self._last: dict[tuple[int, int], int] = {}
        self._number: dict[int, int] = {}
        for gtid in text.split(",") if text.strip() else []:
            self._take(gtid)

    def _take(self, gtid: str) -> None:
        domain, server, number = _parts(gtid)
        self._last[domain, server] = number
        self._number[domain] = max(number, self._number.get(domain, 0))

    def __str__(self) -> str:
        return ",".join(
            f"{domain}-{server}-{number}" for (domain, server), number in sorted(self._last.items())
        )

    def __contains__(self, gtid: str) -> bool:
        domain, _, number = _parts(gtid)
        return number <= self._number.get(domain, 0)

    def includes(self, other: MariaDbGtids) -> bool:
        """Return whether the set contains all of another set, by domain, server and number."""
        return all(number <= self._last.get(key, 0) for key, number in other._last.items())

    def covers(self, other: MariaDbGtids) -> bool:
        """Return whether the set contains all of another set, compared by domain and number."""
        return all(
            number <= self._number.get(domain, 0) for domain, number in other._number.items()
        )

    def plus(self, gtids: Iterable[str]) -> MariaDbGtids:
        """Return the set with later transactions."""
        union = MariaDbGtids(str(self))
        for gtid in gtids:
            union._take(gtid)
        return union


def _parts(gtid: str) -> tuple[int, int, int]:
    match = _MARIADB.fullmatch(gtid.strip())
    if match is None:
        raise _unreadable(gtid, "MariaDB GTIDs, for example 0-7-12,1-8-5")
    return int(match[1]), int(match[2]), int(match[3])


def _unreadable(text: str, what: str) -> BinlogError:
    return BinlogError(f"{text[:200]!r} is not a list of {what}")


Gtids = MySqlGtids | MariaDbGtids


# --------------------------------------------------------------------------------------------------
# mysql-replication's stream of the log, restricted to one server and made faster.
#
# The library spends most of its time per event, not per row. A TABLE_MAP event precedes the rows of
# every statement. With ``freeze_schema`` the library uses only the first one of a table, so this
# stream skips repeated ones. The library also builds a dictionary of the table's attributes at every
# event; `_Table` avoids that.

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


class _Table(WireTable):  # type: ignore[misc]
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
        self.table_map: dict[int, WireTable] = {}
        super().__init__(pymysql_wrapper=self._connect, **settings)

    def table_of(self, table_id: int) -> WireTable:
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


# --------------------------------------------------------------------------------------------------
# The entries of the log.

# The library warns on every connection if binlog_row_metadata is not FULL. This reader does not
# need FULL.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

_PURGED = 1236
_COMPRESSED = {
    40: "binlog_transaction_compression = OFF",
    **dict.fromkeys(range(165, 172), "log_bin_compress = OFF"),
}
_BEGIN = "BEGIN"
_STATEMENTS = (QueryEvent, ExecuteLoadQueryEvent)
_UTF8 = 45
_ROWS = (WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent, PartialUpdateRowsEvent)
_GTIDS = (GtidEvent, MariadbGtidEvent)
_TAGGED = 42
_ALWAYS = (*_STATEMENTS, XidEvent, RotateEvent, XAPrepareEvent, NotImplementedEvent, *_GTIDS)
_WIRE = {
    "tinyint": {FIELD_TYPE.TINY},
    "smallint": {FIELD_TYPE.SHORT},
    "mediumint": {FIELD_TYPE.INT24},
    "int": {FIELD_TYPE.LONG},
    "bigint": {FIELD_TYPE.LONGLONG},
    "float": {FIELD_TYPE.FLOAT},
    "double": {FIELD_TYPE.DOUBLE},
    "decimal": {FIELD_TYPE.NEWDECIMAL},
    "year": {FIELD_TYPE.YEAR},
    "date": {FIELD_TYPE.DATE, FIELD_TYPE.NEWDATE},
    "time": {FIELD_TYPE.TIME, FIELD_TYPE.TIME2},
    "datetime": {FIELD_TYPE.DATETIME, FIELD_TYPE.DATETIME2},
    "timestamp": {FIELD_TYPE.TIMESTAMP, FIELD_TYPE.TIMESTAMP2},
    "bit": {FIELD_TYPE.BIT},
    "enum": {FIELD_TYPE.ENUM},
    "set": {FIELD_TYPE.SET},
    "json": {FIELD_TYPE.JSON},
    **{kind: {FIELD_TYPE.STRING} for kind in ("char", "binary")},
    **{kind: {FIELD_TYPE.VARCHAR} for kind in ("varchar", "varbinary")},
    **{
        f"{size}{kind}": {FIELD_TYPE.BLOB}
        for size in ("", "tiny", "medium", "long")
        for kind in ("text", "blob")
    },
}


class LogReader:
    """Reads the log from one position to another, or to the end of the log.

    Parameters
    ----------
    server : Server
        A connection to the server. The log connection must reach the same server.
    tables : sequence of Table
    server_id : int
        Must differ from the id of every other reader of the server's log.
    rows : bool
        False returns only statements and ends of transactions, which is much faster.

    Attributes
    ----------
    position : Position
        Where the reader has arrived.
    """

    def __init__(
        self, server: Server, tables: Sequence[Table], server_id: int, *, rows: bool = True
    ) -> None:
        self.options = server.options
        self.identity = server.identity
        self.is_mariadb = server.is_mariadb
        self.server_id = server_id
        self.rows = rows
        self._touched: set[TableId] = set()
        self._number = 0
        self._gtid: str | None = None
        self._is_read = True
        self._shapes: dict[int, tuple[Any, RowImageReader]] = {}
        self._followed = {table.id: table for table in tables}

    def table(self, of: TableId) -> Table:
        """Return a table with the columns that its rows have at the current position."""
        return self._followed[of]

    def take_table(self, table: Table) -> None:
        """Use new columns for a table's rows from the current position on."""
        self._followed[table.id] = table
        self._shapes.clear()

    def leave(self, table: TableId) -> None:
        """Stop reading a table."""
        del self._followed[table]

    def read(
        self,
        start: LogPosition,
        end: LogPosition,
        is_wanted: Callable[[str], bool] = lambda _: True,
    ) -> Iterator[LogEntry]:
        """Return the log entries after `start` up to `end`, or up to the end of the log.

        A transaction whose GTID `is_wanted` rejects yields only its end, without tables.

        Raises
        ------
        BinlogPurgedError
            If the server no longer has this part of the log.
        BinlogError
            If the log contains something that cannot be read as rows.
        SchemaChangedError
            If rows have other columns than the table.
        ServerUnavailableError
            If the connection ends.
        """
        self.position, self._is_wanted = start, is_wanted
        if start.order >= end.order:
            return
        stream = self._open(start)
        try:
            for event in self._events(stream, end):
                yield from self._entries(stream, event)
            self.position = min(
                end, LogPosition(stream.log_file, stream.log_pos), key=lambda each: each.order
            )
        finally:
            stream.close()

    def _open(self, start: LogPosition) -> Stream:
        events = (*_ROWS, *_ALWAYS) if self.rows else (TableMapEvent, *_ALWAYS)
        return Stream(
            self.identity,
            connection_settings=connection_settings(self.options),
            server_id=self.server_id,
            log_file=start.file,
            log_pos=start.pos,
            resume_stream=True,
            only_events=events,
            only_schemas={table.database for table in self._followed},
            only_tables={table.name for table in self._followed},
            freeze_schema=True,
            enable_logging=False,
        )

    def _events(self, stream: Stream, end: LogPosition) -> Iterator[Any]:
        """Return the events up to a position, which is the end of a returned or a skipped event."""
        last = end.order
        with _log_errors(self.options, stream):
            while (event := stream.fetchone()) is not None:
                # The end of a rotation is a position in the previous file, but the library already
                # has the next file's name.
                pos = 0 if isinstance(event, RotateEvent) else event.packet.log_pos
                if pos and LogPosition(stream.log_file, pos).order > last:
                    return
                yield event
                if LogPosition(stream.log_file, stream.log_pos).order >= last:
                    return

    def _entries(self, stream: Stream, event: Any) -> Iterator[LogEntry]:
        position = LogPosition(stream.log_file, event.packet.log_pos or stream.log_pos)
        if isinstance(event, _ROWS):
            yield from self._changes(stream, event, position) if self._is_read else ()
        elif isinstance(event, _STATEMENTS):
            yield from self._statements(event, position)
        elif isinstance(event, XidEvent):
            yield self._committed(event, position)
        elif isinstance(event, XAPrepareEvent):
            self._refuse_xa(position)
            yield self._committed(event, position)
        elif isinstance(event, RotateEvent):
            # A restarted server numbers its tables from the start.
            stream.forget_tables()
            self._shapes.clear()
        elif event.event_type in _COMPRESSED:
            raise BinlogError(
                f"the log is compressed at {position}, which is not supported: SET GLOBAL "
                f"{_COMPRESSED[event.event_type]}"
            )
        else:
            self._note(stream, event)

    def _note(self, stream: Stream, event: Any) -> None:
        """Record the GTID of a transaction and the tables that it changes."""
        if isinstance(event, TableMapEvent):
            if self._is_read:
                self._touched |= {TableId(event.schema, event.table)} & self._followed.keys()
            else:
                # The library returns the TABLE_MAP event of a table once; the next transaction
                # needs it again.
                stream.forget_tables()
        elif isinstance(event, _GTIDS):
            self._gtid, self._is_read = event.gtid, self._is_wanted(event.gtid)
        elif event.event_type == _TAGGED:
            self._gtid = UNREADABLE

    def _refuse_xa(self, position: LogPosition) -> None:
        if self._touched:
            names = ", ".join(map(str, sorted(self._touched)))
            raise BinlogError(
                f"an XA transaction at {position} changes {names}: XA transactions are not "
                "supported, because the log has their rows before they commit"
            )

    def _committed(self, event: Any, position: LogPosition) -> TransactionEnd:
        end = TransactionEnd(
            position,
            frozenset(self._touched),
            event.timestamp,
            self._gtid if self._is_read else None,
        )
        self._touched.clear()
        self._number, self._gtid, self._is_read = 0, None, True
        return end

    def _statements(
        self, event: QueryEvent | ExecuteLoadQueryEvent, position: LogPosition
    ) -> Iterator[LogEntry]:
        if isinstance(event, QueryEvent) and event.query == _BEGIN:
            return
        database, statement = statement_bytes(event)
        text, is_exact = decode(statement, getattr(event, "character_set_client", _UTF8))
        parsed = SqlStatement(
            text, ServerSyntax(self.is_mariadb, getattr(event, "sql_mode", 0)), is_exact=is_exact
        )
        if self._is_read:
            schema = database.decode(errors="replace")
            for table in self._followed:
                effect = parsed.effect(schema, table)
                if effect is not Effect.NOTHING:
                    yield Statement(text, position, table, effect, parsed.names, parsed.removed)
            if parsed.may_create:
                yield TableCreation(position)
        if parsed.ends_transaction:
            yield self._committed(event, position)

    def _changes(
        self, stream: Stream, event: RowsEvent, position: LogPosition
    ) -> Iterator[RowChange]:
        of = TableId(event.schema, event.table)
        table = self._followed.get(of)
        if (
            table is None
        ):  # the library filters by database and by table name separately, not by pairs
            return
        self._touched.add(of)
        if isinstance(event, PartialUpdateRowsEvent):
            raise BinlogError(
                f"the log has only parts of JSON values at {position}: SET GLOBAL "
                "binlog_row_value_options = ''"
            )
        images = self._images(stream, event, position, table)
        present = [
            event.columns_present_bitmap,
            getattr(event, "columns_present_bitmap2", event.columns_present_bitmap),
        ]
        if not all(map(images.complete, present)):
            raise BinlogError(
                f"the log has no full row images at {position}: SET GLOBAL binlog_row_image = "
                "'FULL'"
            )
        made_on = event.packet.server_id
        for before, after in _pairs(event, images.read(event)):
            yield RowChange(
                before, after, position, self._number, event.timestamp, made_on, self._gtid, of
            )
            self._number += 1

    def _images(
        self, stream: Stream, event: RowsEvent, position: LogPosition, table: Table
    ) -> RowImageReader:
        """Return an event's row reader; raise an error if its columns differ from the table's."""
        wire_table = stream.table_of(event.table_id)
        described, images = self._shapes.get(event.table_id, (None, None))
        if described is wire_table and images is not None:
            return images
        columns = table.columns
        if len(wire_table.columns) != len(columns) or any(
            wire.type not in _WIRE[column.data_type]
            for wire, column in zip(wire_table.columns, columns, strict=False)
        ):
            raise SchemaChangedError(
                f"the rows of {table.qualified} at {position} have other columns than the table: "
                "it was altered since. Start from a later position with a new checkpoint"
            )
        for wire, column in zip(wire_table.columns, columns, strict=True):
            wire.name = column.name
            wire.unsigned = column.unsigned
            wire.enum_values = ["", *column.labels]
            wire.set_values = column.labels
        images = RowImageReader(columns, wire_table.columns)
        self._shapes[event.table_id] = wire_table, images
        return images


def _pairs(event: RowsEvent, images: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Return the before-image and after-image of each row of an event; None for a missing image."""
    if isinstance(event, UpdateRowsEvent):
        return zip(images, images, strict=True)
    return (
        zip(images, repeat(None))
        if isinstance(event, DeleteRowsEvent)
        else zip(repeat(None), images)
    )


@contextmanager
def _log_errors(options: CaptureOptions, stream: Stream) -> Iterator[None]:
    try:
        with server_errors(options):
            yield
    except ServerUnavailableError as error:
        if (
            not isinstance(error.__context__, pymysql.err.MySQLError)
            or error.__context__.args[0] != _PURGED
        ):
            raise
        raise BinlogPurgedError(
            f"the server cannot send its log from {stream.log_file}:{stream.log_pos}: "
            f"{error.__context__.args[-1]}. The changes after this position are lost: start with a "
            "new checkpoint, and keep the log longer (SET GLOBAL binlog_expire_logs_seconds = "
            "604800)"
        ) from None
