"""The tables of a reader, by names or regular expressions, and the checks of them.

A name that matches exactly selects only that database or table. Otherwise the option is a regular
expression that must match whole names, as in Flink CDC, in Python's syntax (a comma is a literal
comma). Case is ignored if the server ignores it. Regular expressions never match views, sequences
and system databases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.values.schema import backquoted

from .errors import ServerNotReadyError
from .options import CaptureOptions
from .server import Server
from .table import Table, TableId, read_table

_DATABASES = "SELECT schema_name FROM information_schema.schemata"
_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE')
"""
_OWN = {"information_schema", "mysql", "performance_schema", "sys"}


def matching(server: Server, options: CaptureOptions) -> list[TableId]:
    """Return the existing tables that match the options, sorted by database and name."""
    case = _case(server)
    databases = _named(options.database, {name for (name,) in server.rows(_DATABASES)}, case) - (
        _OWN - {options.database}
    )
    tables = [
        TableId(database, name)
        for database in databases
        for (name,) in server.rows(_TABLES, (database,))
    ]
    names = _named(options.table, {each.name for each in tables}, case)
    return sorted(each for each in tables if each.name in names)


def _case(server: Server) -> re.RegexFlag:
    return re.NOFLAG if server.value("SELECT @@lower_case_table_names") == "0" else re.IGNORECASE


def _named(option: str, names: set[str], case: re.RegexFlag) -> set[str]:
    """Return the names equal to `option`; if none, those that match it as a regular expression."""
    exactly = {name for name in names if re.fullmatch(re.escape(option), name, case)}
    return exactly or {
        name
        for name in names
        if _expression_error(option) is None and re.fullmatch(option, name, case)
    }


def _expression_error(expression: str) -> str | None:
    try:
        re.compile(expression)
    except re.error as error:
        return str(error)
    return None


def find_tables(server: Server, options: CaptureOptions) -> list[TableId]:
    """Return the tables of a new stream.

    Raises
    ------
    ServerNotReadyError
        If no table matches.
    ArgumentError
        If an option is neither an existing name nor a valid regular expression.
    """
    tables = matching(server, options)
    if tables:
        return tables
    for name, option in (("database-name", options.database), ("table-name", options.table)):
        if error := _expression_error(option):
            raise ArgumentError(
                f"option {name!r} is {option!r}, which is neither an existing name nor a valid "
                f"regular expression: {error}"
            )
    where = backquoted(options.database) if re.fullmatch(r"[\w$-]+", options.database) else "*"
    raise ServerNotReadyError(
        f"no table matches {options.database}.{options.table}, by name or as a regular expression, "
        f"or {options.username!r} has no access to it: GRANT SELECT ON {where}.* TO "
        f"{server.account()}"
    )


def require_named(server: Server, options: CaptureOptions, captured: Iterable[TableId]) -> None:
    """Check that the options match the tables of a restarted stream, whether or not these exist.

    Raises
    ------
    ArgumentError
    """
    case = _case(server)
    for table in sorted(captured):
        if not (
            _named(options.database, {table.database}, case)
            and _named(options.table, {table.name}, case)
        ):
            raise ArgumentError(
                f"the checkpoint contains {table}, which the options database-name and table-name "
                "do not match: change them, or start with a new checkpoint"
            )


def read_tables(server: Server, options: CaptureOptions) -> list[Table]:
    """Return the tables of a new stream, with their columns and keys."""
    return [read_table(server, options, each) for each in find_tables(server, options)]


def require_alike(tables: Sequence[Table]) -> None:
    """Check that all tables have the same column names and types, in any order.

    Raises
    ------
    SchemaError
        With the first table and column that differs.
    """
    first = _types(tables[0])
    for table in tables[1:]:
        types = _types(table)
        for name in (*first, *types):
            if types.get(name) != first.get(name):
                raise SchemaError(
                    f"column `{name}` is {types.get(name, 'missing')} in {table.qualified} and "
                    f"{first.get(name, 'missing')} in {tables[0].qualified}: declare the stream's "
                    "columns with .schema(...), or select tables with equal columns"
                )


def _types(table: Table) -> dict[str, str]:
    return {column.name.lower(): str(column.column.type) for column in table.columns}


# --------------------------------------------------------------------------------------------------
# Checks a server and its tables before the capture; each reason includes the SQL that fixes it.

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
                f"the foreign key {backquoted(name)} changes rows by ON DELETE {on_delete} ON UPDATE "
                f"{on_update}, which the log does not show: ALTER TABLE {table.qualified} DROP "
                f"FOREIGN KEY {backquoted(name)}, and add it again with RESTRICT"
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
