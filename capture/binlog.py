"""The binary log between two positions: the changes of tables' rows, and the statements that alter them.

The protocol is mysql-replication's. What the log says of a table's columns depends on ``binlog_row_metadata``; here it comes from the
server's ``information_schema`` instead, and the log's rows are checked to have that shape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat
from typing import Any

import pymysql
from pymysqlreplication.constants import FIELD_TYPE
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
from pymysqlreplication.row_event import (
    DeleteRowsEvent,
    PartialUpdateRowsEvent,
    RowsEvent,
    TableMapEvent,
    UpdateRowsEvent,
    WriteRowsEvent,
)

from .columns import SourceColumn
from .entries import Change, Committed, Creation, LogEntry, Statement
from .errors import BinlogError, BinlogPurgedError, SchemaChangedError, ServerUnavailableError
from .gtids import UNREADABLE
from .images import Images
from .options import Options
from .server import Position, Server, connection_settings, server_errors
from .statements import Effect, SqlStatement
from .stream import Stream, statement_bytes
from .table import Row, Table, TableId
from .tokens import Dialect, decode

# It warns on every connection that binlog_row_metadata is not FULL, which is not needed here.
logging.getLogger("pymysqlreplication").setLevel(logging.ERROR)

_PURGED = 1236
_COMPRESSED = {40: "binlog_transaction_compression = OFF", **dict.fromkeys(range(165, 172), "log_bin_compress = OFF")}
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
    **{f"{size}{kind}": {FIELD_TYPE.BLOB} for size in ("", "tiny", "medium", "long") for kind in ("text", "blob")},
}


class LogReader:
    """Reads the log from one position to another, or to its end.

    Parameters
    ----------
    server : Server
        A connection to it; one to another server is refused.
    tables : sequence of Table
    server_id : int
        No other reader of the server's log may have it at the same time.
    rows : bool
        False leaves out changes: statements and ends of transactions alone, which is much faster.

    Attributes
    ----------
    position : Position
        How far it has read.
    """

    def __init__(self, server: Server, tables: Sequence[Table], server_id: int, *, rows: bool = True) -> None:
        self.options = server.options
        self.identity = server.identity
        self.is_mariadb = server.is_mariadb
        self.server_id = server_id
        self.rows = rows
        self._touched: set[TableId] = set()
        self._number = 0
        self._gtid: str | None = None
        self._wanted = True
        self._shapes: dict[int, tuple[Any, Images]] = {}
        self._followed = {table.id: table for table in tables}

    def table(self, of: TableId) -> Table:
        """Return a table as the log's rows are here."""
        return self._followed[of]

    def take_table(self, table: Table) -> None:
        """Read a table's rows from here on with the columns that a statement has left."""
        self._followed[table.id] = table
        self._shapes.clear()

    def leave(self, table: TableId) -> None:
        """Read no more of a table."""
        del self._followed[table]

    def read(self, start: Position, end: Position, wanted: Callable[[str], bool] = lambda _: True) -> Iterator[LogEntry]:
        """Return what is in the log after `start` up to `end`, or up to the end of what is on the server's disk.

        Of transactions whose GTIDs are not wanted there is the end alone, as of one that has not touched the table.

        Raises
        ------
        BinlogPurgedError
            When the server has no such part of its log.
        BinlogError
            When the log has what cannot be read as rows.
        SchemaChangedError
            When rows have another shape than the table.
        ServerUnavailableError
            When the connection ends.
        """
        self.position, self._is_wanted = start, wanted
        if start.order >= end.order:
            return
        stream = self._open(start)
        try:
            for event in self._events(stream, end):
                yield from self._entries(stream, event)
            self.position = min(end, Position(stream.log_file, stream.log_pos), key=lambda each: each.order)
        finally:
            stream.close()

    def _open(self, start: Position) -> Stream:
        wanted = (*_ROWS, *_ALWAYS) if self.rows else (TableMapEvent, *_ALWAYS)
        return Stream(
            self.identity,
            connection_settings=connection_settings(self.options),
            server_id=self.server_id,
            log_file=start.file,
            log_pos=start.pos,
            resume_stream=True,
            only_events=wanted,
            only_schemas={table.database for table in self._followed},
            only_tables={table.name for table in self._followed},
            freeze_schema=True,
            enable_logging=False,
        )

    def _events(self, stream: Stream, end: Position) -> Iterator[Any]:
        """Return the events up to a position, which is the end of one or of several that are not asked for."""
        last = end.order
        with _log_errors(self.options, stream):
            while (event := stream.fetchone()) is not None:
                # A rotation's end is a place in the file before, whose name the library has already replaced.
                place = 0 if isinstance(event, RotateEvent) else event.packet.log_pos
                if place and Position(stream.log_file, place).order > last:
                    return
                yield event
                if Position(stream.log_file, stream.log_pos).order >= last:
                    return

    def _entries(self, stream: Stream, event: Any) -> Iterator[LogEntry]:
        position = Position(stream.log_file, event.packet.log_pos or stream.log_pos)
        if isinstance(event, _ROWS):
            yield from self._changes(stream, event, position) if self._wanted else ()
        elif isinstance(event, _STATEMENTS):
            yield from self._statements(event, position)
        elif isinstance(event, XidEvent):
            yield self._committed(event, position)
        elif isinstance(event, XAPrepareEvent):
            self._refuse_xa(position)
            yield self._committed(event, position)
        elif isinstance(event, RotateEvent):
            # A server that starts numbers its tables anew.
            stream.forget_tables()
            self._shapes.clear()
        elif event.event_type in _COMPRESSED:
            raise BinlogError(f"the log is compressed at {position}: SET GLOBAL {_COMPRESSED[event.event_type]}")
        else:
            self._note(stream, event)

    def _note(self, stream: Stream, event: Any) -> None:
        """Note what a transaction is, and that it has changed a table."""
        if isinstance(event, TableMapEvent):
            if self._wanted:
                self._touched |= {TableId(event.schema, event.table)} & self._followed.keys()
            else:
                # The library tells each table once; the next transaction's is to be told again.
                stream.forget_tables()
        elif isinstance(event, _GTIDS):
            self._gtid, self._wanted = event.gtid, self._is_wanted(event.gtid)
        elif event.event_type == _TAGGED:
            self._gtid = UNREADABLE

    def _refuse_xa(self, position: Position) -> None:
        if self._touched:
            names = ", ".join(map(str, sorted(self._touched)))
            raise BinlogError(f"an XA transaction at {position} changes {names}: its rows are logged before it is known whether it commits")

    def _committed(self, event: Any, position: Position) -> Committed:
        found = Committed(position, frozenset(self._touched), event.timestamp, self._gtid if self._wanted else None)
        self._touched.clear()
        self._number, self._gtid, self._wanted = 0, None, True
        return found

    def _statements(self, event: QueryEvent | ExecuteLoadQueryEvent, position: Position) -> Iterator[LogEntry]:
        if isinstance(event, QueryEvent) and event.query == _BEGIN:
            return
        database, statement = statement_bytes(event)
        text, is_exact = decode(statement, getattr(event, "character_set_client", _UTF8))
        found = SqlStatement(text, Dialect(self.is_mariadb, getattr(event, "sql_mode", 0)), is_exact=is_exact)
        if self._wanted:
            schema = database.decode(errors="replace")
            for table in self._followed:
                effect = found.effect(schema, table)
                if effect is not Effect.NOTHING:
                    yield Statement(text, position, table, effect, found.names, found.removed)
            if found.may_create:
                yield Creation(position)
        if found.ends_transaction:
            yield self._committed(event, position)

    def _changes(self, stream: Stream, event: RowsEvent, position: Position) -> Iterator[Change]:
        of = TableId(event.schema, event.table)
        table = self._followed.get(of)
        if table is None:  # the library asks for names of databases and of tables, and not for pairs
            return
        self._touched.add(of)
        if isinstance(event, PartialUpdateRowsEvent):
            raise BinlogError(f"the log has parts of JSON values only at {position}: SET GLOBAL binlog_row_value_options = ''")
        images = self._images(stream, event, position, table)
        present = [event.columns_present_bitmap, getattr(event, "columns_present_bitmap2", event.columns_present_bitmap)]
        if not all(map(images.complete, present)):
            raise BinlogError(f"the log has no full row images at {position}: SET GLOBAL binlog_row_image = 'FULL'")
        made_on = event.packet.server_id
        for before, after in _pairs(event, images.read(event)):
            yield Change(before, after, position, self._number, event.timestamp, made_on, self._gtid, of)
            self._number += 1

    def _images(self, stream: Stream, event: RowsEvent, position: Position, table: Table) -> Images:
        """Return what reads the rows of an event, whose columns in the log must be those of the table."""
        found = stream.known_table(event.table_id)
        known, images = self._shapes.get(event.table_id, (None, None))
        if known is found and images is not None:
            return images
        columns = table.columns
        if len(found.columns) != len(columns) or any(
            wire.type not in _WIRE[column.data_type] for wire, column in zip(found.columns, columns, strict=False)
        ):
            raise SchemaChangedError(
                f"at {position} the rows of {table.qualified} have other columns than the table has now: it was altered since. "
                "Begin anew from a later position, with another checkpoint"
            )
        for wire, column in zip(found.columns, columns, strict=True):
            _describe(wire, column)
        images = Images(columns, found.columns)
        self._shapes[event.table_id] = found, images
        return images


def _pairs(event: RowsEvent, images: Iterator[Row]) -> Iterator[tuple[Row | None, Row | None]]:
    """Return what rows were before and after an event."""
    if isinstance(event, UpdateRowsEvent):
        return zip(images, images, strict=True)
    return zip(images, repeat(None)) if isinstance(event, DeleteRowsEvent) else zip(repeat(None), images)


def _describe(wire: Any, column: SourceColumn) -> None:
    wire.name = column.name
    wire.unsigned = column.unsigned
    wire.enum_values = ["", *column.labels]
    wire.set_values = column.labels


@contextmanager
def _log_errors(options: Options, stream: Stream) -> Iterator[None]:
    try:
        with server_errors(options):
            yield
    except ServerUnavailableError as error:
        if not isinstance(error.__context__, pymysql.err.MySQLError) or error.__context__.args[0] != _PURGED:
            raise
        raise BinlogPurgedError(
            f"the server cannot send its log from {stream.log_file}:{stream.log_pos} on: {error.__context__.args[-1]}. "
            "What it had is gone for this capture: begin anew with another checkpoint, and keep the log longer "
            "(SET GLOBAL binlog_expire_logs_seconds = 604800)"
        ) from None
