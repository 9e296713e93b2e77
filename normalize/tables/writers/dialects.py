"""The SQL dialects of PostgreSQL, and of MySQL and MariaDB: types, staging, upserts, deletes.

A staging table has the target's column types, so that the database compares and stores values as in
the target. Its columns are called ``c0`` and so on, since Spark's JDBC writer does not escape
names. Statements take a mapping from the target's names to these. Dates and times are sent as text,
in UTC: drivers shift them by the JVM's time zone, and lose the hour that summer time skips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column as SparkColumn, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted
from normalize.core.order import redelivery_condition
from normalize.core.output import ROW_KIND
from normalize.tables.merge import ABSENT_COLUMN, ADDS, Clause, MergePlan, Side

from .rows_text import as_csv, as_values, mysql_literal

_TEXT = {
    "date": "CAST({0} AS STRING)",
    "timestamp_ntz": "CAST({0} AS STRING)",
    # By arithmetic: a cast would use the session's time zone, in which an hour in autumn is
    # ambiguous.
    "timestamp": "CAST(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, CAST(unix_micros({0}) * "
    "0.000001BD AS DECIMAL(18,6))) AS STRING)",
}


_ESCAPE = "\\"


@dataclass(frozen=True)
class Dialect:
    """The dialect of PostgreSQL; `MySql` overrides what differs.

    Parameters
    ----------
    binary_collation : str
        The collation of text in a created primary key, which distinguishes ``a``, ``A`` and ``a``
        with a trailing blank.
    driver : str
        The class of the JDBC driver.
    """

    binary_collation: str = ""
    driver: str = "org.postgresql.Driver"

    quote: ClassVar[str] = '"'
    missing_table: ClassVar[str] = "42P01"
    # The server converts text to the column's type: dates and times, and json, uuid, enums, inet
    # from STRING.
    properties: ClassVar[Mapping[str, str]] = {
        "stringtype": "unspecified",
        "reWriteBatchedInserts": "true",
        "tcpKeepAlive": "true",  # as MySQL's drivers do
    }
    # Indexes that ON CONFLICT supports: of whole columns and all rows. An INCLUDE column is not
    # part of the key.
    unique_indexes: ClassVar[str] = (
        "SELECT i.indexrelid, a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = "
        "i.indrelid AND a.attnum = ANY ((CAST(i.indkey AS int2[]))[0:i.indnkeyatts - 1]) WHERE "
        "i.indrelid = CAST({} AS regclass) AND i.indisunique AND i.indimmediate AND i.indpred IS "
        "NULL AND i.indexprs IS NULL"
    )
    # The digits of a second in a time, and the type or collation in which different texts are equal.
    lossy_columns: ClassVar[str] = (
        "SELECT a.attname, CASE WHEN t.typname IN ('timestamp', 'timestamptz') THEN "
        "NULLIF(a.atttypmod, -1) END, CASE WHEN t.typname IN ('bpchar', 'citext') THEN "
        "format_type(a.atttypid, a.atttypmod) WHEN NOT c.collisdeterministic THEN c.collname END "
        "FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_collation AS c "
        "ON c.oid = a.attcollation WHERE a.attrelid = CAST({} AS regclass) AND a.attnum > 0"
    )
    comment_of: ClassVar[str] = "SELECT obj_description(CAST({} AS regclass), 'pg_class')"
    # A server notices after hours that a client has vanished. Until then, its statement or
    # transaction keeps its locks. Those of autovacuum end by themselves.
    end_others: ClassVar[str] = (
        "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "
        "relation = to_regclass({}) AND pid <> pg_backend_pid() AND usename = current_user"
    )
    # The same for a lock with a name, which a transaction takes.
    try_lock: ClassVar[str] = (
        "SELECT CAST(pg_try_advisory_xact_lock(hashtextextended({}, 0)) AS INT)"
    )
    lock: ClassVar[str] = "SELECT COUNT(pg_advisory_xact_lock(hashtextextended({}, 0)))"
    end_owners: ClassVar[str] = (
        "SELECT COUNT(pg_terminate_backend(pid)) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE "
        "locktype = 'advisory' AND pid <> pg_backend_pid() AND usename = current_user AND "
        "datname = current_database() AND CAST(classid AS BIGINT) << 32 | CAST(objid AS BIGINT) = "
        "hashtextextended({}, 0)"
    )
    timestamp_suffix: ClassVar[str] = "+00"
    joins: ClassVar[bool] = True
    """Whether a call of its driver can have several statements."""
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "BOOLEAN",
        "tinyint": "SMALLINT",
        "smallint": "SMALLINT",
        "int": "INTEGER",
        "bigint": "BIGINT",
        "float": "REAL",
        "double": "DOUBLE PRECISION",
        "string": "TEXT",
        "binary": "BYTEA",
        "date": "DATE",
        "timestamp": "TIMESTAMP(6) WITH TIME ZONE",
        "timestamp_ntz": "TIMESTAMP(6)",
    }

    def name(self, name: str) -> str:
        """Return a column's name, quoted."""
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote

    def table(self, name: str) -> str:
        """Return a table's name, its parts quoted."""
        return ".".join(map(self.name, name.split(".")))

    def literal(self, text: str) -> str:
        """Return text as a literal that has the same meaning with all settings of the server."""
        # An E string, with and without standard_conforming_strings.
        return "E'" + text.replace(_ESCAPE, _ESCAPE * 2).replace("'", "''") + "'"

    def type(self, field: StructField, *, in_key: bool) -> str:
        """Return the type of a created column.

        Raises
        ------
        SchemaError
        """
        kind = field.dataType.simpleString()
        if kind.startswith("decimal"):
            return kind.upper()
        if kind not in self.types:
            hint = (
                "convert it to text with to_json(...), or declare it as STRING"
                if kind.split("<")[0] in ("array", "map", "struct", "variant")
                else "cast it first"
            )
            raise SchemaError(
                f"column {backquoted(field.name)} is {kind}, which has no type in the database: "
                f"{hint}"
            )
        return self._key_type(kind) if in_key else self.types[kind]

    def _key_type(self, kind: str) -> str:
        return self.types[kind]

    def create(self, table: str, fields: Sequence[StructField], primary_key: Sequence[str]) -> str:
        """Return the statement that creates a table."""
        columns = [
            f"{self.name(field.name)} {self.type(field, in_key=field.name in primary_key)}"
            for field in fields
        ]
        key = [f"PRIMARY KEY ({self.names(primary_key)})"] if primary_key else []
        return f"CREATE TABLE IF NOT EXISTS {self.table(table)} ({', '.join([*columns, *key])})"

    def comment(self, table: str, text: str) -> str:
        """Return the statement that gives a table a comment."""
        return f"COMMENT ON TABLE {self.table(table)} IS {self.literal(text)}"

    def add(self, table: str, field: StructField) -> str:
        """Return the statement that adds a column."""
        return (
            f"ALTER TABLE {self.table(table)} ADD COLUMN {self.name(field.name)} "
            f"{self.type(field, in_key=False)}"
        )

    def widen(self, table: str, field: StructField, *, in_key: bool) -> str:
        """Return the statement that gives a column another type."""
        return (
            f"ALTER TABLE {self.table(table)} ALTER COLUMN {self.name(field.name)} TYPE "
            f"{self.type(field, in_key=in_key)}"
        )

    def stage(
        self,
        staging: str,
        table: str,
        columns: Mapping[str, str],
        *,
        partial_rows: bool = False,
        bases: Mapping[str, str] | None = None,
        temporary: bool = False,
    ) -> str:
        """Return the statement that creates the staging table.

        The table has nullable columns of the target's types, the row kind, and the missing columns.

        `bases` are the columns of the key whose row has the missing columns, as `columns`. A
        temporary table is the connection's, and empty at the begin of a transaction.
        """
        staged = self.staged_columns(columns, bases, partial_rows=partial_rows)
        what, then = (
            ("UNLOGGED TABLE", "")
            if not temporary
            else ("TEMP TABLE IF NOT EXISTS", "ON COMMIT DELETE ROWS ")
        )
        return (
            f"CREATE {what} {self.table(staging)} {then}AS SELECT {staged} FROM "
            f"{self.table(table)} AS t WITH NO DATA"
        )

    def staged_columns(
        self, columns: Mapping[str, str], bases: Mapping[str, str] | None, *, partial_rows: bool
    ) -> str:
        """Return the columns of the staging table, from the table as ``t``; the others as in `stage`."""
        of_table = [*columns.items(), *(bases or {}).items()]
        kinds = {ROW_KIND: "CAST('' AS CHAR(2))"}
        if partial_rows:
            # A flag for each column, and the place of a record: a topic has up to 249 characters.
            kinds[ABSENT_COLUMN] = f"CAST(NULL AS CHAR({len(columns) + 300}))"
        return ", ".join(
            [
                *(f"t.{self.name(name)} AS {staged}" for name, staged in of_table),
                *(f"{value} AS {name}" for name, value in kinds.items()),
            ]
        )

    def merge(
        self,
        plan: MergePlan,
        staging: str,
        table: str,
        columns: Mapping[str, str],
        bases: Mapping[str, str] | None = None,
    ) -> list[tuple[str, bool]]:
        """Return the statements that apply the staged changes, in this order.

        With each, whether it is a query for a change that its row cannot complete.

        Parameters
        ----------
        plan : MergePlan
            With the target's names.
        staging, table : str
        columns : mapping
            The columns of the staging table, by those of the target.
        bases : mapping or None
            As in `stage`.
        """
        column, tables = self._column(columns), {"s": staging, "t": table}
        same, base = (
            plan.same.render(self._column({**columns, **each})) for each in ({}, bases or {})
        )
        steps = []
        if plan.position is not None:
            redelivered = redelivery_condition(
                column("s", plan.position), column("t", plan.position)
            )
            steps.append((self.delete_from("s", tables, same, redelivered), False))
        if any(clause.fails for clause in plan.clauses):
            steps.append((self._failing(plan, tables, base, column), True))
        if plan.completed:
            values = {columns[name]: each.render(column) for name, each in plan.completed.items()}
            partial = plan.partial.render(column)
            steps.append((self.update("s", tables, base, values, partial), False))
        before: Clause | None = None
        for clause in plan.clauses:
            when = clause.when.render(column)
            inserted = f"{self.insert(staging, table, columns)} AS s WHERE {when}"
            values = {self.name(name): each.render(column) for name, each in clause.values.items()}
            if clause.kind == "delete":
                steps.append((self.delete_from("t", tables, same, when), False))
            elif clause.kind == "update":
                steps.append((self.update("t", tables, same, values, when), False))
            elif before is not None and (before.when, before.values) == clause[1:3]:
                # An update and an insert of the same rows are one statement.
                steps[-1] = f"{inserted} {self.or_update(plan.primary_key, clause.values)}", False
            else:
                stored = f"SELECT 1 FROM {self.table(table)} AS t WHERE {same}"
                steps.append((f"{inserted} AND NOT EXISTS ({stored})", False))
            before = clause
        return steps

    def _failing(
        self,
        plan: MergePlan,
        tables: Mapping[str, str],
        same: str,
        column: Callable[[Side, str], str],
    ) -> str:
        """Return the query for a staged change that its row cannot complete.

        The query returns the text of `ABSENT_COLUMN`, and NULL if there is no such change.
        """
        key = column("t", plan.primary_key[0])
        failing = " OR ".join(
            f"{key} IS {'' if clause.kind == 'insert' else 'NOT '}NULL AND "
            f"{clause.when.render(column)} AND {clause.fails.render(column)}"
            for clause in plan.clauses
            if clause.fails is not None
        )
        return (
            f"SELECT MIN(s.{ABSENT_COLUMN}) FROM {self.table(tables['s'])} AS s LEFT JOIN "
            f"{self.table(tables['t'])} AS t ON {same} WHERE {failing}"
        )

    def _column(self, columns: Mapping[str, str]) -> Callable[[Side, str], str]:
        """Return the function that renders a column of a plan."""
        return lambda side, name: f"t.{self.name(name)}" if side == "t" else f"s.{columns[name]}"

    def update(
        self,
        alias: str,
        tables: Mapping[str, str],
        same: str,
        values: Mapping[str, str],
        condition: str,
    ) -> str:
        """Return the UPDATE of one table's rows whose keys are also in the other table.

        Parameters
        ----------
        alias : str
            ``s``: the staging table is updated. ``t``: the target.
        tables : mapping
            The two tables, by their alias.
        same : str
            The condition that two rows have the same key.
        values : mapping
            The new values, by the name of their column in SQL.
        condition : str
        """
        sets = ", ".join(f"{column} = {value}" for column, value in values.items())
        updated, other = self._joined(alias, tables)
        return f"UPDATE {updated} SET {sets} FROM {other} WHERE {same} AND {condition}"

    def delete_from(self, alias: str, tables: Mapping[str, str], same: str, condition: str) -> str:
        """Return the DELETE of one table's rows whose keys are also in the other table.

        The parameters are those of `update`.
        """
        deleted, other = self._joined(alias, tables)
        return f"DELETE FROM {deleted} USING {other} WHERE {same} AND {condition}"

    def _joined(self, alias: str, tables: Mapping[str, str]) -> list[str]:
        """Return the two tables with their aliases, that of the statement first."""
        ordered = sorted(tables, key=lambda each: each != alias)
        return [f"{self.table(tables[each])} AS {each}" for each in ordered]

    def or_update(self, primary_key: Sequence[str], names: Iterable[str]) -> str:
        """Return the end of an ``INSERT`` that updates the rows which are there already."""
        sets = ", ".join(f"{self.name(name)} = EXCLUDED.{self.name(name)}" for name in names)
        return f"ON CONFLICT ({self.names(primary_key)}) DO UPDATE SET {sets}"

    def insert(self, staging: str, table: str, columns: Mapping[str, str]) -> str:
        """Return the statement that inserts all rows."""
        return (
            f"INSERT INTO {self.table(table)} ({self.names(columns)}) SELECT "
            f"{', '.join(columns.values())} FROM {self.table(staging)}"
        )

    def twins(self, staging: str, key: Iterable[str]) -> str:
        """Return the query that counts keys which differ in Spark but are equal in the database."""
        return (
            f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {self.table(staging)} WHERE "
            f"{self.name(ROW_KIND)} IN {ADDS} GROUP BY {', '.join(key)} HAVING COUNT(*) > 1) AS twins"
        )

    def create_like(self, new: str, table: str) -> str:
        """Return the statement that creates a table with all columns and indexes of another one."""
        return (
            f"CREATE TABLE IF NOT EXISTS {self.table(new)} (LIKE {self.table(table)} INCLUDING ALL)"
        )

    def missing(self, table: str, new: str, key: Iterable[str], deleted: str | None) -> str:
        """Return the condition of the rows of a table whose keys another one lacks.

        `deleted` is the column of soft deletes: rows that have its time are not among them.
        """
        quoted = self.table(table)
        same = " AND ".join(f"s.{self.name(each)} = {quoted}.{self.name(each)}" for each in key)
        lacks = f"NOT EXISTS (SELECT 1 FROM {self.table(new)} AS s WHERE {same})"
        return lacks if deleted is None else f"{self.name(deleted)} IS NULL AND {lacks}"

    def replace_rows(
        self, table: str, new: str, names: Sequence[str], key: Sequence[str], deleted: str | None
    ) -> list[str]:
        """Return the statements that write all rows of another table over those of their keys.

        Parameters
        ----------
        table, new : str
        names : sequence of str
            The columns that are written.
        key : sequence of str
        deleted : str or None
            The column of soft deletes: a row that both tables have as deleted keeps its time.
        """
        statements = []
        if deleted is not None:
            at = self.name(deleted)
            same = " AND ".join(f"s.{self.name(each)} = t.{self.name(each)}" for each in key)
            both = f"s.{at} IS NOT NULL AND t.{at} IS NOT NULL"
            tables = {"s": new, "t": table}
            statements.append(self.update("s", tables, same, {at: f"t.{at}"}, both))
        inserted = self.insert(new, table, {name: self.name(name) for name in names})
        return [*statements, f"{inserted} AS s WHERE 1 = 1 {self.or_update(key, names)}"]

    def require_name(self, name: str, of: str = "column") -> None:
        """Raise an error for the name of a column or table that the database does not support.

        PostgreSQL would cut a longer name, so that two tables could become one.

        Raises
        ------
        SchemaError
        """
        if not name or "\0" in name or len(name.encode()) > 63:
            raise SchemaError(
                f"the {of} name {name!r} is empty, longer than PostgreSQL's 63 bytes, or has a NUL "
                "character: choose another name"
            )

    def names(self, columns: Iterable[str]) -> str:
        """Return names, quoted, with commas."""
        return ", ".join(map(self.name, columns))

    def rows_text(self, rows: pa.Table) -> bytes | list[str] | None:
        """Return rows as `as_csv` or `as_values`, which the server loads."""
        return as_csv(rows)

    def staged(self, field: StructField) -> SparkColumn:
        """Return a column as it is written into the staging table."""
        column, kind = backquoted(field.name), field.dataType.simpleString()
        if kind not in _TEXT:
            return F.col(column)
        text = F.expr(_TEXT[kind].format(column))
        return (
            F.concat(text, F.lit(self.timestamp_suffix)) if kind == "timestamp" else text
        ).alias(field.name)


@dataclass(frozen=True)
class MySql(Dialect):
    """MySQL and MariaDB."""

    driver: str = "com.mysql.cj.jdbc.Driver"
    quote: ClassVar[str] = "`"
    missing_table: ClassVar[str] = "42S02"
    end_others: ClassVar[str] = ""
    try_lock: ClassVar[str] = ""
    # Strict mode rejects values that do not fit; text is parsed as UTC.
    properties: ClassVar[Mapping[str, str]] = {
        "sessionVariables": "time_zone='+00:00',sql_mode='STRICT_ALL_TABLES'",
        "rewriteBatchedStatements": "true",
    }
    # A prefix of a column and an expression are no columns: keys that differ are equal in them.
    unique_indexes: ClassVar[str] = (
        "SELECT index_name, CONCAT(COALESCE(column_name, 'an expression'), "
        "COALESCE(CONCAT('(', sub_part, ')'), '')) FROM information_schema.statistics "
        "WHERE table_schema = {} AND table_name = {} AND non_unique = 0"
    )
    lossy_columns: ClassVar[str] = (
        "SELECT column_name, datetime_precision, CASE WHEN collation_name NOT LIKE '%nopad_bin' AND "
        "collation_name NOT LIKE '%0900_bin' THEN collation_name END FROM "
        "information_schema.columns WHERE table_schema = {} AND table_name = {}"
    )
    comment_of: ClassVar[str] = (
        "SELECT table_comment FROM information_schema.tables WHERE table_schema = {} AND table_name = {}"
    )
    timestamp_suffix: ClassVar[str] = ""
    joins: ClassVar[bool] = False
    types: ClassVar[Mapping[str, str]] = {
        "boolean": "BOOLEAN",
        "tinyint": "TINYINT",
        "smallint": "SMALLINT",
        "int": "INT",
        "bigint": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "string": "LONGTEXT CHARACTER SET utf8mb4",
        "binary": "LONGBLOB",
        "date": "DATE",
        "timestamp": "TIMESTAMP(6) NULL",
        "timestamp_ntz": "DATETIME(6)",
    }

    def rows_text(self, rows: pa.Table) -> bytes | list[str] | None:
        return as_values(rows)

    def _key_type(self, kind: str) -> str:
        # MySQL requires a length for key columns.
        sized = {
            "string": f"VARCHAR(255) CHARACTER SET utf8mb4 COLLATE {self.binary_collation}",
            "binary": "VARBINARY(255)",
        }
        return sized.get(kind) or self.types[kind].removesuffix(" NULL")

    def require_name(self, name: str, of: str = "column") -> None:
        if (
            not name
            or len(name) > 64
            or name.endswith(" ")
            or "\0" in name
            or any(char > "\uffff" for char in name)
        ):
            raise SchemaError(
                f"the {of} name {name!r} is empty, longer than MySQL's 64 characters, ends with a "
                "blank, or has a NUL character or one beyond U+FFFF: choose another name"
            )

    def comment(self, table: str, text: str) -> str:
        shown = text.replace(_ESCAPE, _ESCAPE * 2).replace("'", "''")
        return f"ALTER TABLE {self.table(table)} COMMENT = '{shown}'"

    def literal(self, text: str) -> str:
        return mysql_literal(text)

    def widen(self, table: str, field: StructField, *, in_key: bool) -> str:
        required = " NOT NULL" if in_key else ""
        return (
            f"ALTER TABLE {self.table(table)} MODIFY COLUMN {self.name(field.name)} "
            f"{self.type(field, in_key=in_key)}{required}"
        )

    def stage(
        self,
        staging: str,
        table: str,
        columns: Mapping[str, str],
        *,
        partial_rows: bool = False,
        bases: Mapping[str, str] | None = None,
        temporary: bool = False,
    ) -> str:
        staged = self.staged_columns(columns, bases, partial_rows=partial_rows)
        # The outer join makes the columns nullable: a delete may have the key alone.
        what = "TEMPORARY TABLE IF NOT EXISTS" if temporary else "TABLE"
        return (
            f"CREATE {what} {self.table(staging)} AS SELECT {staged} FROM (SELECT 1 AS one) "
            f"AS one LEFT JOIN {self.table(table)} AS t ON one.one = 0 LIMIT 0"
        )

    def update(
        self,
        alias: str,
        tables: Mapping[str, str],
        same: str,
        values: Mapping[str, str],
        condition: str,
    ) -> str:
        sets = ", ".join(f"{alias}.{column} = {value}" for column, value in values.items())
        joined = f"{' JOIN '.join(self._joined(alias, tables))} ON {same}"
        return f"UPDATE {joined} SET {sets} WHERE {condition}"

    def delete_from(self, alias: str, tables: Mapping[str, str], same: str, condition: str) -> str:
        joined = " JOIN ".join(self._joined(alias, tables))
        return f"DELETE {alias} FROM {joined} ON {same} WHERE {condition}"

    def create_like(self, new: str, table: str) -> str:
        return f"CREATE TABLE IF NOT EXISTS {self.table(new)} LIKE {self.table(table)}"

    def or_update(self, primary_key: Sequence[str], names: Iterable[str]) -> str:
        sets = ", ".join(f"{self.name(name)} = VALUES({self.name(name)})" for name in names)
        return f"ON DUPLICATE KEY UPDATE {sets}"


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a JDBC URL."""
    if url.startswith("jdbc:mariadb:"):
        return MySql(driver="org.mariadb.jdbc.Driver")
    return MySql() if url.startswith("jdbc:mysql:") else Dialect()
