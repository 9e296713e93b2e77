"""Finds the position in another server's log where a capture continues after a failover.

The new server has the same transactions under the same GTIDs, but in other files. Their order can
differ (MySQL's ``replica_preserve_commit_order = OFF``, MariaDB's domains), and local transactions
can lie in between. The capture reads from the first transaction that it has not read, and skips
those that it has read. A replica with GTID auto-positioning does the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from .binlog import UNREADABLE, Gtids, LogReader, MariaDbGtids, MySqlGtids
from .errors import BinlogError, BinlogPurgedError, ServerChangedError
from .server import AGAIN_AFTER, FIRST_EVENT, LogPlace, LogPosition, Server
from .statements import TransactionEnd


def gtids_of(server: Server, text: str) -> Gtids:
    """Parse GTIDs in the format of a server."""
    return MariaDbGtids(text) if server.is_mariadb else MySqlGtids(text)


def gtids_at(server: Server, position: LogPosition, server_id: int) -> str | None:
    """Return the transactions before a position of the log; None if their GTIDs cannot be read.

    MariaDB has a function for it. For MySQL, these are all transactions of the server except those
    after the position.
    """
    if server.is_mariadb:
        return _gtids_before(server, position)
    try:
        executed = MySqlGtids(server.executed())
    except BinlogError:
        return None
    entries = LogReader(server, [], server_id, rows=False).read(position, server.written())
    later = [
        entry.gtid
        for entry in entries
        if isinstance(entry, TransactionEnd) and entry.gtid is not None
    ]
    return None if UNREADABLE in later else str(executed.minus(later))


def gtids_after(server: Server, before: str | None, gtids: Iterable[str]) -> str | None:
    """Return transactions `before` and the later `gtids`; None if their GTIDs cannot be read."""
    later = list(gtids)
    if before is None or UNREADABLE in later:
        return None
    return str(gtids_of(server, before).plus(later)) if later else before


def lacking(server: Server, gtids: str | None) -> Callable[[str], bool]:
    """Return a function that returns whether a transaction is missing from `gtids`."""
    if gtids is None:
        return lambda _: True
    transactions = gtids_of(server, gtids)
    return lambda gtid: gtid not in transactions


def begin_at(server: Server, place: LogPlace, server_id: int) -> LogPosition:
    """Return the position in the server's log where the transactions after a place begin.

    Raises
    ------
    ServerChangedError
        If this is another server, and the GTIDs are unknown or it lacks transactions before the
        place.
    BinlogPurgedError
        If this is another server, and it purged the log of transactions that the capture has not
        read.
    """
    return (
        place.position
        if place.server == server.identity
        else begin_after(server, _gtids_of_place(server, place), server_id)
    )


def end_at(server: Server, place: LogPlace, server_id: int) -> LogPosition:
    """Return the log position after all transactions before a place; raise `begin_at`'s errors."""
    if place.server == server.identity:
        return place.position
    before = _gtids_of_place(server, place)
    gtids, begin = gtids_of(server, before), begin_after(server, before, server_id)
    ends = (
        entry.position
        for entry in _transactions(server, begin, server_id)
        if entry.gtid is not None and entry.gtid in gtids
    )
    return max(ends, key=lambda each: each.order, default=begin)


def begin_after(server: Server, gtids: str, server_id: int) -> LogPosition:
    """Return the start of the first transaction not in `gtids`; raise the errors of `begin_at`."""
    transactions = gtids_of(server, gtids)
    _require_all(server, transactions)
    begin = _file_before(server, transactions)
    for entry in _transactions(server, begin, server_id):
        if entry.gtid is not None and entry.gtid not in transactions:
            break
        begin = entry.position
    return begin


def _gtids_of_place(server: Server, place: LogPlace) -> str:
    if place.gtids is None:
        raise ServerChangedError(
            f"{server.options.hostname}:{server.options.port} is not the server whose log was read "
            f"before ({place.server}), and the checkpoint has no GTIDs that can be read: connect "
            "to that server, or start with a new checkpoint"
        )
    return place.gtids


def _transactions(server: Server, start: LogPosition, server_id: int) -> Iterable[TransactionEnd]:
    entries = LogReader(server, [], server_id, rows=False).read(start, server.written())
    return (entry for entry in entries if isinstance(entry, TransactionEnd))


def _require_all(server: Server, gtids: Gtids) -> None:
    """Wait for all transactions; raise an error on timeout or if the log lacks replicated ones."""
    if not _logs_all(server):
        raise ServerChangedError(
            f"the log of {server.options.hostname}:{server.options.port} lacks replicated "
            "transactions: start replicas with "
            f"{'--log-slave-updates' if server.is_mariadb else '--log-replica-updates'}, and start "
            "with a new checkpoint"
        )
    deadline = time.monotonic() + server.options.connect_timeout
    while not _has(server, gtids):
        if time.monotonic() > deadline:
            raise ServerChangedError(
                f"{server.options.hostname}:{server.options.port} ({server.identity}) has the "
                f"transactions {server.executed()}, but not all of {gtids}, which come before the "
                "start position: restart the query when the server has them. If they are lost, "
                "start with a new checkpoint"
            )
        time.sleep(AGAIN_AFTER)


def _logs_all(server: Server) -> bool:
    """Return whether the server's own log contains replicated transactions."""
    if server.is_mariadb:
        return MariaDbGtids(server.executed()).includes(
            MariaDbGtids(str(server.value("SELECT @@GLOBAL.gtid_slave_pos")))
        )
    settings = server.rows(
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_replica_updates', 'log_slave_updates')"
    )
    return all(value == "ON" for _, value in settings)


def _has(server: Server, gtids: Gtids) -> bool:
    """Return whether transactions are in the server's log and visible to queries."""
    if isinstance(gtids, MySqlGtids):
        return MySqlGtids(server.executed()).includes(gtids)
    seen = MariaDbGtids(_gtids_before(server, server.settled()))
    return MariaDbGtids(server.executed()).includes(gtids) and seen.covers(gtids)


def _file_before(server: Server, gtids: Gtids) -> LogPosition:
    """Return the start of the last file that has only these transactions before it."""
    for file, *_ in reversed(server.rows("SHOW BINARY LOGS")):
        if _covers(gtids, server, LogPosition(file, FIRST_EVENT)):
            return LogPosition(file, FIRST_EVENT)
    raise BinlogPurgedError(
        f"the log of {server.options.hostname}:{server.options.port} begins after transactions "
        f"that are not in {gtids}, the set to continue from. Their changes are lost: start with a "
        "new checkpoint, and keep the log longer (SET GLOBAL binlog_expire_logs_seconds = 604800)"
    )


def _covers(gtids: Gtids, server: Server, head: LogPosition) -> bool:
    if isinstance(gtids, MariaDbGtids):
        return gtids.covers(MariaDbGtids(_gtids_before(server, head)))
    events = server.rows("SHOW BINLOG EVENTS IN %s LIMIT 3", (head.file,))
    by_kind = {kind: info for _, _, kind, _, _, info, *_ in events}
    return gtids.covers(MySqlGtids(by_kind.get("Previous_gtids", "")))


def _gtids_before(server: Server, position: LogPosition) -> str:
    """Return the transactions before a position of a MariaDB log."""
    return str(server.value("SELECT BINLOG_GTID_POS(%s, %s)", position) or "")
