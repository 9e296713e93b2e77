"""Checks a server and its tables before the capture; each reason includes the SQL that fixes it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .errors import ServerNotReadyError
from .options import CaptureOptions
from .server import Server
from .table import Table, quoted

_OLDEST = {False: (5, 7), True: (10, 5)}
_REQUIRED = {
    "log_bin": ("ON", "start the server with --log-bin"),
    "binlog_format": ("ROW", "SET GLOBAL binlog_format = 'ROW'"),
    "binlog_row_image": ("FULL", "SET GLOBAL binlog_row_image = 'FULL'"),
    "binlog_row_value_options": ("", "SET GLOBAL binlog_row_value_options = ''"),
    "binlog_transaction_compression": ("OFF", "SET GLOBAL binlog_transaction_compression = OFF"),
    "log_bin_compress": ("OFF", "SET GLOBAL log_bin_compress = OFF"),
    "gtid_mode": ("ON", "SET GLOBAL gtid_mode = 'ON', after OFF_PERMISSIVE and ON_PERMISSIVE"),
}
_WHY = {"gtid_mode": ", because only GTIDs show which transactions of the log are visible"}
_REPLICA = {
    False: ("REPLICATION SLAVE", "REPLICATION CLIENT"),
    True: ("REPLICATION SLAVE", "BINLOG MONITOR"),
}
_SAME = {
    "BINLOG MONITOR": ("BINLOG MONITOR", "REPLICATION CLIENT"),
    "REPLICATION SLAVE": ("REPLICATION SLAVE", "REPLICATION REPLICA"),
}


def validate(server: Server, options: CaptureOptions, tables: Sequence[Table]) -> None:
    """Check the server's version and settings, the tables, and the user's privileges.

    Raises
    ------
    ServerNotReadyError
        With all reasons.
    """
    of_tables = [
        reason
        for table in tables
        for reason in (*_engine(server, table), *_cascades(server, table))
    ]
    reasons = [*_version(server), *_settings(server), *of_tables, *_privileges(server, options)]
    if reasons:
        raise ServerNotReadyError("; ".join(reasons))


def _version(server: Server) -> Iterator[str]:
    match = re.match(r"(\d+)\.(\d+)", server.version)
    oldest = _OLDEST[server.is_mariadb]
    if match is None or (int(match[1]), int(match[2])) < oldest:
        yield (
            f"the server is {server.version}: it must be "
            f"{'MariaDB' if server.is_mariadb else 'MySQL'} {oldest[0]}.{oldest[1]} or later"
        )


def _settings(server: Server) -> Iterator[str]:
    names = ", ".join(f"'{name}'" for name in _REQUIRED)
    values = {
        name.lower(): value
        for name, value in server.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
    }
    for name, (required, remedy) in _REQUIRED.items():
        if name in values and values[name].upper() != required:
            yield f"{name} is {values[name]!r} and must be {required!r}{_WHY.get(name, '')}: {remedy}"


def _engine(server: Server, table: Table) -> Iterator[str]:
    query = (
        "SELECT engine FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"
    )
    engine = server.value(query, (table.database, table.name))
    if engine != "InnoDB":
        kind = f"the engine {engine}" if engine else "no storage engine, like a view"
        yield (
            f"{table.qualified} has {kind}, without transactions: ALTER TABLE {table.qualified} "
            "ENGINE = InnoDB"
        )


def _cascades(server: Server, table: Table) -> Iterator[str]:
    query = (
        "SELECT constraint_name, delete_rule, update_rule FROM "
        "information_schema.referential_constraints WHERE constraint_schema = %s AND table_name = "
        "%s"
    )
    for name, on_delete, on_update in server.rows(query, (table.database, table.name)):
        if {on_delete, on_update} & {"CASCADE", "SET NULL"}:
            yield (
                f"the foreign key {quoted(name)} changes rows by ON DELETE {on_delete} ON UPDATE "
                f"{on_update}, which the log does not show: ALTER TABLE {table.qualified} DROP "
                f"FOREIGN KEY {quoted(name)}, and add it again with RESTRICT"
            )


def _privileges(server: Server, options: CaptureOptions) -> Iterator[str]:
    granted = " ".join(
        row[0].upper()
        for row in server.rows("SHOW GRANTS FOR CURRENT_USER()")
        if " ON *.* " in row[0].upper()
    )
    if "ALL PRIVILEGES" in granted:
        return
    lacking = [
        name
        for name in _REPLICA[server.is_mariadb]
        if not any(same in granted for same in _SAME.get(name, (name,)))
    ]
    if lacking:
        yield (
            f"{options.username!r} lacks {' and '.join(lacking)}: GRANT {', '.join(lacking)} ON "
            f"*.* TO {server.account()}"
        )
