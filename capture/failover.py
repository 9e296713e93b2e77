"""Another server with the same transactions, as a replica that takes over: where in its log a capture goes on.

Its log has the transactions of the server before it under the same GTIDs, in files of its own, perhaps in another order (MySQL's
``replica_preserve_commit_order = OFF``, MariaDB's domains), and perhaps others in between that were made on it. So it is read from the
first transaction on that the capture has not had, without those that it has had: what a replica does that finds its place by GTIDs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .binlog import LogReader
from .entries import Committed
from .errors import BinlogError, BinlogPurgedError, ServerChangedError
from .gtids import UNREADABLE, Gtids, MariaDbGtids, MySqlGtids
from .server import AGAIN_AFTER, FIRST_EVENT, Place, Position, Server


def gtids_of(server: Server, text: str) -> Gtids:
    """Read GTIDs as a server writes them."""
    return MariaDbGtids(text) if server.is_mariadb else MySqlGtids(text)


def gtids_at(server: Server, position: Position, server_id: int) -> str | None:
    """Return the transactions before a position of the server's log; None where their GTIDs cannot be read.

    MariaDB tells it. For MySQL it is what the server has, without what comes after the position.
    """
    if server.is_mariadb:
        return _gtids_before(server, position)
    try:
        executed = MySqlGtids(server.executed())
    except BinlogError:
        return None
    entries = LogReader(server, [], server_id, rows=False).read(position, server.written())
    later = [entry.gtid for entry in entries if isinstance(entry, Committed) and entry.gtid is not None]
    return None if UNREADABLE in later else str(executed.minus(later))


def gtids_after(server: Server, before: str | None, gtids: Iterable[str]) -> str | None:
    """Return transactions and those after them; None where their GTIDs cannot be read."""
    found = list(gtids)
    if before is None or UNREADABLE in found:
        return None
    return str(gtids_of(server, before).plus(found)) if found else before


def lacking(server: Server, gtids: str | None) -> Callable[[str], bool]:
    """Return what tells whether a transaction is not among some."""
    if gtids is None:
        return lambda _: True
    had = gtids_of(server, gtids)
    return lambda gtid: gtid not in had


def begin_at(server: Server, place: Place, server_id: int) -> Position:
    """Return where in the server's log what comes after a place begins.

    Raises
    ------
    ServerChangedError
        When this is another server, and transactions cannot be told there, or it does not have those before the place.
    BinlogPurgedError
        When this is another server, and has had others, whose log it no longer has.
    """
    return place.position if place.server == server.identity else begin_after(server, _known(server, place), server_id)


def end_at(server: Server, place: Place, server_id: int) -> Position:
    """Return where in the server's log all that comes before a place has ended; errors are those of `begin_at`."""
    if place.server == server.identity:
        return place.position
    known = _known(server, place)
    gtids, begin = gtids_of(server, known), begin_after(server, known, server_id)
    had = (entry.position for entry in _transactions(server, begin, server_id) if entry.gtid is not None and entry.gtid in gtids)
    return max(had, key=lambda each: each.order, default=begin)


def begin_after(server: Server, gtids: str, server_id: int) -> Position:
    """Return where the first transaction begins that is not among some; errors are those of `begin_at`."""
    had = gtids_of(server, gtids)
    _require_all(server, had)
    found = _file_before(server, had)
    for entry in _transactions(server, found, server_id):
        if entry.gtid is not None and entry.gtid not in had:
            break
        found = entry.position
    return found


def _known(server: Server, place: Place) -> str:
    if place.gtids is None:
        raise ServerChangedError(
            f"{server.options.hostname}:{server.options.port} is another server than the one whose log was read so far, {place.server}: "
            "positions of its log mean nothing in this one's, and transactions of it are not known by GTIDs that can be read"
        )
    return place.gtids


def _transactions(server: Server, start: Position, server_id: int) -> Iterable[Committed]:
    entries = LogReader(server, [], server_id, rows=False).read(start, server.written())
    return (entry for entry in entries if isinstance(entry, Committed))


def _require_all(server: Server, gtids: Gtids) -> None:
    """Wait until the server has transactions, as a replica that is behind will, and refuse one that has them not, or not in its log."""
    if not _logs_all(server):
        raise ServerChangedError(
            f"the log of {server.options.hostname}:{server.options.port} lacks what it did as a replica: start replicas with "
            f"{'--log-slave-updates' if server.is_mariadb else '--log-replica-updates'}, and begin anew, with another checkpoint"
        )
    deadline = time.monotonic() + server.options.connect_timeout
    while not _has(server, gtids):
        if time.monotonic() > deadline:
            raise ServerChangedError(
                f"{server.options.hostname}:{server.options.port}, which is {server.identity}, has the transactions {server.executed()}, "
                f"but not all of {gtids}, which come before what is to be read: start the query again when it has; if they are lost, begin "
                "anew, with another checkpoint"
            )
        time.sleep(AGAIN_AFTER)


def _logs_all(server: Server) -> bool:
    """Return whether what was done as a replica is in the server's own log."""
    if server.is_mariadb:
        return MariaDbGtids(server.executed()).includes(MariaDbGtids(str(server.value("SELECT @@GLOBAL.gtid_slave_pos"))))
    found = server.rows("SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_replica_updates', 'log_slave_updates')")
    return all(value == "ON" for _, value in found)


def _has(server: Server, gtids: Gtids) -> bool:
    """Return whether transactions are in the server's log and can be seen."""
    if isinstance(gtids, MySqlGtids):
        return MySqlGtids(server.executed()).includes(gtids)
    seen = MariaDbGtids(_gtids_before(server, server.settled()))
    return MariaDbGtids(server.executed()).includes(gtids) and seen.covers(gtids)


def _file_before(server: Server, gtids: Gtids) -> Position:
    """Return the beginning of the last file before which there are no others."""
    for file, *_ in reversed(server.rows("SHOW BINARY LOGS")):
        if _covers(gtids, server, Position(file, FIRST_EVENT)):
            return Position(file, FIRST_EVENT)
    raise BinlogPurgedError(
        f"the log of {server.options.hostname}:{server.options.port} begins after transactions that are not among those before what is to "
        f"be read, {gtids}: what it had is gone for this capture: begin anew with another checkpoint, and keep the log longer "
        "(SET GLOBAL binlog_expire_logs_seconds = 604800)"
    )


def _covers(gtids: Gtids, server: Server, head: Position) -> bool:
    if isinstance(gtids, MariaDbGtids):
        return gtids.covers(MariaDbGtids(_gtids_before(server, head)))
    events = server.rows("SHOW BINLOG EVENTS IN %s LIMIT 3", (head.file,))
    found = {kind: info for _, _, kind, _, _, info, *_ in events}
    return gtids.covers(MySqlGtids(found.get("Previous_gtids", "")))


def _gtids_before(server: Server, position: Position) -> str:
    """Ask MariaDB for the transactions before a position of its log."""
    return str(server.value("SELECT BINLOG_GTID_POS(%s, %s)", position) or "")
