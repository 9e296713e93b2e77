"""The tables of a reader: ``database-name`` and ``table-name``, each a name or a regular expression.

A name that there is exactly is that one alone, whatever it would match as a regular expression. Else the whole name must match, of the
database and of the table, as Flink CDC has it, in Python's syntax (a comma is a comma), and in upper or lower case where the server makes
no difference. Views, sequences and the server's own databases match no expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from cdc_formats.errors import ArgumentError, SchemaError

from .errors import ServerNotReadyError
from .options import Options
from .server import Server
from .table import Table, TableId, quoted, read_table

_DATABASES = "SELECT schema_name FROM information_schema.schemata"
_TABLES = """
SELECT table_name FROM information_schema.tables
WHERE table_schema = %s AND table_type NOT IN ('VIEW', 'SYSTEM VIEW', 'SEQUENCE')
"""
_OWN = {"information_schema", "mysql", "performance_schema", "sys"}


def matching(server: Server, options: Options) -> list[TableId]:
    """Return the tables that there are which the options name, by database and name."""
    case = _case(server)
    databases = _named(options.database, {name for (name,) in server.rows(_DATABASES)}, case) - (_OWN - {options.database})
    there = [TableId(database, name) for database in databases for (name,) in server.rows(_TABLES, (database,))]
    names = _named(options.table, {each.name for each in there}, case)
    return sorted(each for each in there if each.name in names)


def _case(server: Server) -> re.RegexFlag:
    return re.NOFLAG if server.value("SELECT @@lower_case_table_names") == "0" else re.IGNORECASE


def _named(given: str, names: set[str], case: re.RegexFlag) -> set[str]:
    """Return the names that are a given one, or else match it."""
    exactly = {name for name in names if re.fullmatch(re.escape(given), name, case)}
    return exactly or {name for name in names if _expression_error(given) is None and re.fullmatch(given, name, case)}


def _expression_error(given: str) -> str | None:
    try:
        re.compile(given)
    except re.error as error:
        return str(error)
    return None


def find_tables(server: Server, options: Options) -> list[TableId]:
    """Return the tables that a new stream has.

    Raises
    ------
    ServerNotReadyError
        When there is none.
    ArgumentError
        When an option is neither a name that there is nor a regular expression.
    """
    found = matching(server, options)
    if found:
        return found
    for name, given in (("database-name", options.database), ("table-name", options.table)):
        if error := _expression_error(given):
            raise ArgumentError(f"option {name!r} is {given!r}, which is no name that there is, and no regular expression: {error}")
    where = quoted(options.database) if re.fullmatch(r"[\w$-]+", options.database) else "*"
    raise ServerNotReadyError(
        f"there is no table {options.database}.{options.table}, by name or by regular expression, or {options.username!r} may not see it: "
        f"GRANT SELECT ON {where}.* TO {server.account()}"
    )


def require_named(server: Server, options: Options, captured: Iterable[TableId]) -> None:
    """Refuse options that do not name the tables of a stream which goes on, whether these are there or not.

    Raises
    ------
    ArgumentError
    """
    case = _case(server)
    for table in sorted(captured):
        if not (_named(options.database, {table.database}, case) and _named(options.table, {table.name}, case)):
            raise ArgumentError(
                f"the checkpoint is of {table}, which the options database-name and table-name do not name: let them name it, or begin "
                "anew, with another checkpoint"
            )


def read_tables(server: Server, options: Options) -> list[Table]:
    """Read the columns and keys of the tables that a new stream has."""
    return [read_table(server, options, each) for each in find_tables(server, options)]


def require_alike(tables: Sequence[Table]) -> None:
    """Refuse tables whose columns are not the same by name and type, in whatever order.

    Raises
    ------
    SchemaError
        With the first table and column that differs.
    """
    wanted = _types(tables[0])
    for table in tables[1:]:
        found = _types(table)
        for name in (*wanted, *found):
            if found.get(name) != wanted.get(name):
                raise SchemaError(
                    f"column `{name}` is {found.get(name, 'not there')} in {table.qualified} and {wanted.get(name, 'not there')} in "
                    f"{tables[0].qualified}: declare the columns that the stream is to have by .schema(...), or name tables that are alike"
                )


def _types(table: Table) -> dict[str, str]:
    return {column.name.lower(): str(column.column.type) for column in table.columns}
