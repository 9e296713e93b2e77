r"""Positions in Debezium's ``source`` block: one function for each kind of database.

===================  =================================  ===========================  ===========================================
source               history                            high                         low
===================  =================================  ===========================  ===========================================
MySQL                ``server_id``                      number of ``file``           ``pos`` << 32 | ``row``
MySQL, GTID          ``server_id``, GTID's source       GTID's number                ``pos`` << 32 | ``row``
MariaDB, GTID        ``server_id``, GTID's domain and   GTID's number                ``pos`` << 32 | ``row``
                     server
MySQL, MariaDB,      ``snapshot``                       number of ``file``           ``pos`` << 32 | ``row``
snapshot
PostgreSQL           ``name``, ``db``                   last committed LSN           ``lsn``
                                                        (``sequence[0]``), or
                                                        ``lsn`` where it is null
PostgreSQL,          ``name``, ``db``, ``snapshot``     ``lsn``                      ``lsn``
snapshot
SQL Server           ``name``, ``db``                   ``commit_lsn`` but its slot  log files before the commit's, counted
                                                                                     down (16 bits), block (32), slot (13) of
                                                                                     ``change_lsn``, ``event_serial_no`` (3)
Oracle               ``name``, ``db``                   ``commit_scn``, of a         2**32 - 1 - (``commit_scn`` - ``scn``) << 32
                                                        snapshot ``scn``             | ``txSeq``, or else ``ssn``
Db2                  ``name``, ``db``                   ``commit_lsn`` >> 16         the last 16 bits of ``commit_lsn``, then
                                                                                     2**48 - 1 - (``commit_lsn`` - ``change_lsn``)
CockroachDB          none                               nanoseconds of ``ts_hlc``    its logical part
MongoDB              ``name``, ``rs``                   seconds of ``ts_ms``         ``ord``
MongoDB, snapshot    ``name``, ``rs``, ``snapshot``     seconds of ``ts_ms``         ``ord``
===================  =================================  ===========================  ===========================================

Failover, MySQL and MariaDB: with GTIDs a replica has the same transactions with the same numbers,
but in other files: the number is compared, not the file. A new primary writes with its own name,
and so starts a new history, independent of its numbers and clock. Without GTIDs, and if a server's
numbers start again (RESET MASTER), only the source's clock distinguishes a new log from an old one.
``pos`` is compared within one transaction, which never spans two files. After a failover in the
middle of a transaction that changes a key more than once, the later change can be misordered.

Snapshots: a MySQL snapshot's rows do not name their server (``server_id`` 0). PostgreSQL's have an
LSN, and a transaction has the LSN of the commit before it. That LSN can be the lower one although
the transaction is not in the snapshot. MongoDB's rows are read while the oplog grows. Therefore
these snapshots have separate histories. An incremental snapshot's rows have the stream's position;
PostgreSQL's have no LSN, only a clock.

PostgreSQL: LSNs of concurrent transactions interleave, and Debezium writes transactions in commit
order. ``lsn`` alone therefore does not order a topic, but it orders the changes of one key, whose
row is locked until the commit.

SQL Server: if two transactions commit in one block of the log, the one that changes a key later has
the higher ``change_lsn``. A transaction that spans more than 65,536 virtual log files does not fit.

Oracle: ``txSeq`` (Debezium 3) numbers a transaction's changes. Older versions have only ``ssn``,
mostly 0: two changes of one key at one SCN have the same position. MongoDB: two changes of one
document in one transaction have the same position in the oplog.

Db2: an LSN has 10 or 16 bytes. One of more than 80 bits is an error, and so is a transaction of
2**48 bytes in the log. Up to Debezium 3.6 ``ts_ms`` of a change on Linux, UNIX and Windows is the
time of the connector's query, so that a redelivery has a later clock: it is applied again.

Vitess: changes have no order. A ``vgtid`` names a transaction of each shard: it does not order the
changes within a transaction, nor the transactions of two shards.

MySQL and MariaDB: an offset in a file is less than 4 GiB, since the binlog stores 32 bits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from cdc_formats.errors import MalformedMessageError, MissingFieldError, TypeConversionError
from cdc_formats.events import Position, digits, file_number, hlc_position, malformed, within
from cdc_formats.values.json_reader import json_reader
from cdc_formats.values.times import INT64

_STREAMED = (None, False, "false", "incremental")
"""The values of ``source.snapshot`` for changes from the log or at the stream's position."""
_MOST_32, _MOST_48 = 2**32 - 1, 2**48 - 1
_KEEP = "keep the fields of `source` if a transform removes them, or use order='arrival'"
_LSN = re.compile(r"([0-9A-Fa-f]{8}):([0-9A-Fa-f]{8}):([0-9A-Fa-f]{4})")
_DB2_LSN = re.compile(r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{8}:[0-9A-Fa-f]{4}(?:[0-9A-Fa-f]{12})?")
BEFORE_3_7 = re.compile(r"[0-2]\..*|3\.[0-6]\..*|3\.7\.0\.Alpha[12]")
"""The versions whose connectors of MySQL and MariaDB never write the unavailable-value
placeholder."""


class Source(msgspec.Struct, gc=False, rename={"tx_seq": "txSeq"}):
    """The fields of Debezium's ``source`` for positions, for all connectors."""

    connector: str | None = None
    name: str | None = None
    db: str | None = None
    snapshot: str | bool | None = None
    ts_ms: INT64 | None = None
    server_id: int | None = None
    gtid: str | None = None
    file: str | None = None
    pos: int | None = None
    row: int | None = None
    sequence: str | None = None
    lsn: int | msgspec.UnsetType | None = msgspec.UNSET
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: int | None = None
    commit_scn: str | None = None
    scn: str | None = None
    ssn: int | None = None
    tx_seq: int | None = None
    ord: int | None = None
    rs: str | None = None
    ts_hlc: str | None = None


_read_source: Callable[[bytes], Source | None] = json_reader(Source | None)  # type: ignore[arg-type]
_read_sequence = msgspec.json.Decoder(tuple[str | None, str | None]).decode


def position_of(source: Any) -> Position:
    """Return the position in Debezium's ``source``.

    Parameters
    ----------
    source : msgspec.Raw, mapping or None
        The block, as JSON text or parsed.

    Raises
    ------
    TypeConversionError
        When a field of the position has the wrong type or is malformed.
    MissingFieldError
        When the block is missing, it has no position, or its connector is not supported.

    Examples
    --------
    >>> position_of({"connector": "mariadb", "server_id": 1, "gtid": "0-1-7", "file": "b.000002", "pos": 4, "row": 1, "ts_ms": 9})
    Position(history='1 0-1', high=7, low=17179869185, clock_ms=9)
    """
    try:
        fields = (
            _read_source(source)
            if isinstance(source, msgspec.Raw)
            else msgspec.convert(source, Source | None)
        )
    except MalformedMessageError as error:
        raise TypeConversionError(error.reason, "$.source" + error.path[1:]) from None
    except msgspec.ValidationError as error:
        reason, _, path = str(error).partition(" - at ")
        raise TypeConversionError(reason, "$.source" + path.strip("`")[1:]) from None
    if fields is None:
        raise MissingFieldError(
            "`source` is missing or null: the message has no position in the log", "$.source"
        )
    return position_of_fields(fields, "$.source.")


def position_of_fields(source: Source, path: str, remedy: str = _KEEP) -> Position:
    """Return the position in the fields of a ``source``.

    Parameters
    ----------
    source : Source
    path : str
        The prefix of their names in the message, for errors.
    remedy : str
        How the producer writes them, for the error if there is none.

    Raises
    ------
    TypeConversionError, MissingFieldError
        As `position_of`.
    """
    fields = (
        name
        for name, field in _CONNECTOR_FIELDS.items()
        if getattr(source, field) not in (None, msgspec.UNSET)
    )
    # Only PostgreSQL's snapshots have a null in place of their position.
    name = source.connector or next(fields, "postgresql" if source.lsn is None else None)
    if name is None:
        raise _no_position(path, sorted(_CONNECTOR_FIELDS.values()), remedy)
    position_of = _CONNECTORS.get(name)
    if position_of is None:
        supported = f"has no supported positions; supported are {', '.join(sorted(_CONNECTORS))}"
        reason = _UNORDERED.get(name, supported)
        raise MissingFieldError(
            f"connector {name[:40]!r} {reason}", f"{path}connector", bare=f"the connector {reason}"
        )
    position = position_of(source, path)
    if position is None:
        raise _no_position(path, [_POSITION_FIELDS[name]], remedy)
    return position


def _no_position(path: str, fields: Sequence[str], remedy: str) -> MissingFieldError:
    names = " or ".join(f"`{path.removeprefix('$.')}{field}`" for field in fields)
    at = f"{path}{fields[0]}" if len(fields) == 1 else "$"
    reason = f"the message has no position in the source's log ({names} is missing)"
    return MissingFieldError(f"{reason}: {remedy}", at)


def mysql(source: Source, path: str) -> Position | None:
    """Return the position of a MySQL or MariaDB change; None without ``file`` and ``pos``."""
    if source.file is None or source.pos is None:
        return None
    low = within(source.pos, 32, f"{path}pos") << 32 | within(source.row or 0, 32, f"{path}row")
    if source.snapshot not in _STREAMED:
        return Position("snapshot", file_number(source.file, f"{path}file"), low, source.ts_ms)
    if source.gtid:
        origin, number = _gtid(source.gtid, f"{path}gtid")
        return Position(_history(source.server_id, origin), number, low, source.ts_ms)
    return Position(
        _history(source.server_id), file_number(source.file, f"{path}file"), low, source.ts_ms
    )


def postgresql(source: Source, path: str) -> Position | None:
    """Return a PostgreSQL change's position; None without ``lsn``, no `high` if ``lsn`` is null."""
    lsn = source.lsn
    if lsn is msgspec.UNSET:
        return None
    if lsn is None:
        return Position(_history(source.name, source.db), None, 0, source.ts_ms)
    low = within(lsn, 64, f"{path}lsn")
    if source.snapshot not in _STREAMED:
        return Position(_history(source.name, source.db, "snapshot"), low, low, source.ts_ms)
    committed = _last_committed(source.sequence, f"{path}sequence")
    return Position(
        _history(source.name, source.db), low if committed is None else committed, low, source.ts_ms
    )


def sqlserver(source: Source, path: str) -> Position | None:
    """Return the position of a SQL Server change; None without ``commit_lsn``.

    A snapshot's rows have no ``change_lsn``.
    """
    if source.commit_lsn is None:
        return None
    file, block, _ = _lsn(source.commit_lsn, f"{path}commit_lsn")
    low = 0
    if source.change_lsn is not None:
        change_file, change_block, slot = _lsn(source.change_lsn, f"{path}change_lsn")
        # A log block has 60 KiB, and a record more than 8 bytes.
        before = within(file - change_file, 16, f"{path}change_lsn")
        slot = within(slot, 13, f"{path}change_lsn")
        serial = within(source.event_serial_no or 0, 3, f"{path}event_serial_no")
        low = (0xFFFF - before) << 48 | change_block << 16 | slot << 3 | serial
    return Position(_history(source.name, source.db), file << 32 | block, low, source.ts_ms)


def oracle(source: Source, path: str) -> Position | None:
    """Return the position of an Oracle change; None without ``scn``."""
    if source.scn is None:
        return None
    scn = digits(source.scn, 64, f"{path}scn")
    history = _history(source.name, source.db)
    if source.commit_scn is None:
        if source.snapshot in (None, False, "false"):
            raise MissingFieldError(
                "`commit_scn` is null: the SCN of a change does not order transactions",
                f"{path}commit_scn",
            )
        return Position(history, scn, 0, source.ts_ms)
    commit_scn = digits(source.commit_scn, 64, f"{path}commit_scn")
    before = within(commit_scn - scn, 32, f"{path}scn")
    number, field = (source.ssn or 0, "ssn") if source.tx_seq is None else (source.tx_seq, "txSeq")
    return Position(
        history,
        commit_scn,
        (_MOST_32 - before) << 32 | within(number, 32, f"{path}{field}"),
        source.ts_ms,
    )


def db2(source: Source, path: str) -> Position | None:
    """Return the position of a Db2 change; None without ``commit_lsn``.

    A snapshot's rows have no ``change_lsn``.
    """
    if source.commit_lsn is None:
        return None
    commit, before = _db2_lsn(source.commit_lsn, f"{path}commit_lsn"), _MOST_48
    if source.change_lsn is not None:
        change = _db2_lsn(source.change_lsn, f"{path}change_lsn")
        before = within(commit - change, 48, f"{path}change_lsn")
    return Position(
        _history(source.name, source.db),
        commit >> 16,
        (commit & 0xFFFF) << 48 | _MOST_48 - before,
        source.ts_ms,
    )


def mongodb(source: Source, path: str) -> Position | None:
    """Return the position of a MongoDB change; None without ``ord``."""
    if source.ord is None or source.ts_ms is None:
        return None
    return Position(
        _history(source.name, source.rs, None if source.snapshot in _STREAMED else "snapshot"),
        within(source.ts_ms // 1000, 64, f"{path}ts_ms"),
        within(source.ord, 64, f"{path}ord"),
        source.ts_ms,
    )


_CONNECTORS: Mapping[str, Callable[[Source, str], Position | None]] = {
    "cockroachdb": lambda source, path: (
        None if source.ts_hlc is None else hlc_position(source.ts_hlc, f"{path}ts_hlc")
    ),
    "db2": db2,
    "mariadb": mysql,
    "mongodb": mongodb,
    "mysql": mysql,
    "oracle": oracle,
    "postgresql": postgresql,
    "sqlserver": sqlserver,
}
_UNORDERED = {
    "vitess": "has positions (`vgtid`) that do not order the changes of one transaction, nor those "
    "of two shards: use order='arrival'"
}
"""Connectors whose changes have no order, and why."""
_CONNECTOR_FIELDS = {
    "cockroachdb": "ts_hlc",
    "mysql": "file",
    "sqlserver": "commit_lsn",
    "oracle": "scn",
    "mongodb": "ord",
    "postgresql": "lsn",
}
"""The field of each connector's position, which also identifies an unnamed connector."""
_POSITION_FIELDS = {**_CONNECTOR_FIELDS, "mariadb": "file", "db2": "commit_lsn"}
"""The field of each connector's position that a message without one lacks."""


@lru_cache(maxsize=1000)
def _history(*parts: str | int | None) -> str:
    return " ".join([str(part) for part in parts if part is not None])


def _gtid(gtid: str, path: str) -> tuple[str, int]:
    """Return a GTID's source (MySQL: UUID and optional tag; MariaDB: domain, server) and number."""
    origin, _, number = gtid.rpartition(":" if ":" in gtid else "-")
    if "-" not in origin:
        raise malformed("a GTID, as in 'UUID:7' or '0-1-7'", gtid, path)
    return origin, digits(number, 64, path)


def _last_committed(sequence: str | None, path: str) -> int | None:
    if sequence is None:
        return None
    try:
        committed = _read_sequence(sequence)[0]
    except msgspec.MsgspecError:
        raise malformed("two LSNs as JSON text", sequence, path) from None
    return None if committed is None else digits(committed, 64, path)


def _lsn(lsn: str, path: str) -> tuple[int, int, int]:
    match = _LSN.fullmatch(lsn)
    if match is None:
        raise malformed("an LSN, as in '00000027:00000758:0005'", lsn, path)
    return int(match[1], 16), int(match[2], 16), int(match[3], 16)


def _db2_lsn(lsn: str, path: str) -> int:
    if _DB2_LSN.fullmatch(lsn) is None:
        raise malformed("an LSN, as in '00000000:00000000:0000000002f4a1b0'", lsn, path)
    number = int(lsn.replace(":", ""), 16)
    if number >> 80:
        raise malformed("an LSN of at most 80 bits, or use order='arrival'", lsn, path)
    return number
