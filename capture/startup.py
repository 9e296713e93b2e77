"""The start position of a capture: ``scan.startup.mode``."""

from __future__ import annotations

from collections.abc import Sequence

from .binlog import LogReader
from .entries import TransactionEnd
from .errors import SchemaChangedError
from .failover import begin_after, gtids_at
from .options import CaptureOptions
from .server import FIRST_EVENT, LogPlace, LogPosition, Server
from .shapes import first_schema_change
from .table import Table


def start_place(server: Server, options: CaptureOptions, server_id: int) -> LogPlace:
    """Return the place where the stream starts to read the log."""
    if options.startup_mode == "specific-offset" and options.startup_gtids is not None:
        gtids = options.startup_gtids
        if (
            not server.is_mariadb
        ):  # MySQL returns the set in canonical form, and raises an error for an invalid set
            gtids = str(server.value("SELECT GTID_SUBTRACT(%s, '')", (gtids,)))
        return LogPlace(server.identity, begin_after(server, gtids, server_id), gtids)
    position = _start_position(server, options, server_id)
    return LogPlace(server.identity, position, gtids_at(server, position, server_id))


def require_unaltered(
    server: Server,
    options: CaptureOptions,
    tables: Sequence[Table],
    start: LogPosition,
    server_id: int,
) -> None:
    """Check that the columns of all row changes after the start are known.

    Raises
    ------
    SchemaChangedError
        If a statement after a row change may have changed the table's columns.
    """
    if options.startup_mode in ("initial", "snapshot", "latest-offset"):
        return
    if change := first_schema_change(server, start, tables, server_id, after_rows=True):
        raise SchemaChangedError(
            f"{change.table} may have had other columns before {change.position}, where the log "
            f"has {change.text[:200]!r}: the columns of earlier changes are unknown. Start there "
            "or later: scan.startup.mode = specific-offset, scan.startup.specific-offset.file = "
            f"{change.position.file}, scan.startup.specific-offset.pos = {change.position.pos}"
        )


def _start_position(server: Server, options: CaptureOptions, server_id: int) -> LogPosition:
    if options.startup_mode == "specific-offset":
        return LogPosition(str(options.startup_file), int(options.startup_pos or FIRST_EVENT))
    if options.startup_mode == "earliest-offset":
        return _earliest(server)
    if options.startup_mode == "timestamp":
        return _at(server, options.startup_timestamp or 0, server_id)
    return server.settled()


def _earliest(server: Server) -> LogPosition:
    return LogPosition(server.rows("SHOW BINARY LOGS")[0][0], FIRST_EVENT)


def _at(server: Server, millis: int, server_id: int) -> LogPosition:
    """Return the end of the last transaction before a time."""
    end = _earliest(server)
    for entry in LogReader(server, [], server_id, rows=False).read(end, server.settled()):
        if isinstance(entry, TransactionEnd):
            if entry.seconds * 1000 >= millis:
                break
            end = entry.position
    return end
