"""Where a capture begins: ``scan.startup.mode``."""

from __future__ import annotations

from .binlog import Committed, LogReader
from .options import Options
from .server import Position, Server
from .table import Table

FIRST_EVENT = 4


def start_position(server: Server, options: Options, table: Table, server_id: int) -> Position:
    """Return the position that the log is read from."""
    if options.startup_mode == "specific-offset":
        return Position(str(options.startup_file), int(options.startup_pos or FIRST_EVENT))
    if options.startup_mode == "earliest-offset":
        return _earliest(server)
    if options.startup_mode == "timestamp":
        return _at(server, options, table, server_id)
    return server.settled()


def _earliest(server: Server) -> Position:
    return Position(server.rows("SHOW BINARY LOGS")[0][0], FIRST_EVENT)


def _at(server: Server, options: Options, table: Table, server_id: int) -> Position:
    """Return the end of the last transaction before the first that ended at a time or later."""
    found = _earliest(server)
    for entry in LogReader(options, table, server_id, rows=False).read(found, server.settled()):
        if isinstance(entry, Committed):
            if entry.seconds * 1000 >= (options.startup_timestamp or 0):
                break
            found = entry.position
    return found
