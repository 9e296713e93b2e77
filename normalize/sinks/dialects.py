"""The SQL dialects of PostgreSQL, and of MySQL and MariaDB: types, staging, upserts, deletes.

A staging table has the target's column types, so that the database compares and stores values as in
the target. Its columns are called ``c0`` and so on, since Spark's JDBC writer does not escape
names. Statements take a mapping from the target's names to these. Dates and times are sent as text,
in UTC: drivers shift them by the JVM's time zone, and lose the hour that summer time skips.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.core.stored_position import redelivery_condition

from .latest import ADDS
from .partial_rows import ABSENT_COLUMN, is_absent

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql.types import StructField

_TEXT = {
    "date": "CAST({0} AS STRING)",
    "timestamp_ntz": "CAST({0} AS STRING)",
    # By arithmetic: a cast would use the session's time zone, in which an hour in autumn is
    # ambiguous.
    "timestamp": "CAST(TIMESTAMP_NTZ'1970-01-01' + make_dt_interval(0, 0, 0, CAST(unix_micros({0}) * "
    "0.000001BD AS DECIMAL(18,6))) AS STRING)",
}


@dataclass(frozen=True)
class Dialect:
    """The dialect of PostgreSQL; `MySql` overrides what differs.

    Parameters
    ----------
    binary_collation : str
        The collation of text in a created primary key, which distinguishes ``a``, ``A`` and ``a``
        with a trailing blank.
    """

    binary_collation: str = ""

    driver: ClassVar[str] = "org.postgresql.Driver"
    quote: ClassVar[str] = '"'
    missing_table: ClassVar[str] = "42P01"
    # The server converts text to the column's type: dates and times, and json, uuid, enums, inet
    # from STRING.
    properties: ClassVar[Mapping[str, str]] = {
        "stringtype": "unspecified",
        "reWriteBatchedInserts": "true",
    }
    # Indexes that ON CONFLICT supports: of whole columns and all rows. An INCLUDE column is not
    # part of the key.
    unique_indexes: ClassVar[str] = (
        "SELECT i.indexrelid, a.attname FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = "
        "i.indrelid AND a.attnum = ANY ((CAST(i.indkey AS int2[]))[0:i.indnkeyatts - 1]) WHERE "
        "i.indrelid = CAST(? AS regclass) AND i.indisunique AND i.indimmediate AND i.indpred IS "
        "NULL AND i.indexprs IS NULL"
    )
    timestamp_suffix: ClassVar[str] = "+00"
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
    ) -> str:
        """Return the statement that creates the staging table.

        The table has nullable columns of the target's types, the row kind, and the missing columns.

        `bases` are the columns of the key whose row has the missing columns, as `columns`.
        """
        kind = self.staged_kinds(len(columns), partial_rows)
        names = ", ".join(
            f"{self.name(name)} AS {staged}"
            for name, staged in [*columns.items(), *(bases or {}).items()]
        )
        return (
            f"CREATE UNLOGGED TABLE {self.table(staging)} AS SELECT {names}, {kind} FROM "
            f"{self.table(table)} WITH NO DATA"
        )

    def staged_kinds(self, columns: int, partial_rows: bool) -> str:
        """Return the columns of the staging table that the target does not have."""
        kind = f"CAST('' AS CHAR(2)) AS {self.name(ROW_KIND)}"
        # A flag for each column, and the place of a record: a topic has up to 249 characters.
        return (
            f"{kind}, CAST(NULL AS CHAR({columns + 300})) AS {ABSENT_COLUMN}"
            if partial_rows
            else kind
        )

    def incomplete(
        self, staging: str, table: str, primary_key: Mapping[str, str], deleted: str | None
    ) -> str:
        """Return the query for a partial row whose key the target lacks or has deleted softly.

        The query returns NULL if there is no such row.
        """
        deleted_too = "" if deleted is None else f" OR t.{self.name(deleted)} IS NOT NULL"
        is_gone = f"(t.{self.name(next(iter(primary_key)))} IS NULL{deleted_too})"
        return (
            f"SELECT MIN(s.{ABSENT_COLUMN}) FROM {self.table(staging)} AS s LEFT JOIN "
            f"{self.table(table)} AS t ON {self.equal(primary_key)} WHERE s.{self.name(ROW_KIND)} "
            f"IN {ADDS} AND s.{ABSENT_COLUMN} IS NOT NULL AND {is_gone}"
        )

    def complete(
        self, staging: str, table: str, columns: Mapping[str, str], primary_key: Mapping[str, str]
    ) -> str:
        """Return the statement that fills staged partial rows' missing columns from the target."""
        tables, absent = {"s": staging, "t": table}, f"s.{ABSENT_COLUMN} IS NOT NULL"
        return self.update("s", tables, primary_key, self.completed(columns), absent)

    def completed(self, columns: Mapping[str, str]) -> dict[str, str]:
        """Return the value of each column of the staging table: the target's if it is absent."""
        return {
            staged: f"CASE WHEN {is_absent(index)} THEN t.{self.name(name)} ELSE s.{staged} END"
            for index, (name, staged) in enumerate(columns.items())
        }

    def update(
        self,
        alias: str,
        tables: Mapping[str, str],
        primary_key: Mapping[str, str],
        values: Mapping[str, str],
        condition: str,
    ) -> str:
        """Return the statement that updates rows of one table which the other has, too.

        Parameters
        ----------
        alias : str
            ``s``: the staging table is updated. ``t``: the target.
        tables : mapping
            The two tables, by their alias.
        primary_key : mapping
            The columns of the staging table, by those of the target.
        values : mapping
            The new values, by the name of their column in SQL.
        condition : str
        """
        sets = ", ".join(f"{column} = {value}" for column, value in values.items())
        updated, other = self._joined(alias, tables)
        return (
            f"UPDATE {updated} SET {sets} FROM {other} WHERE {self.equal(primary_key)} "
            f"AND {condition}"
        )

    def delete_from(
        self, alias: str, tables: Mapping[str, str], primary_key: Mapping[str, str], condition: str
    ) -> str:
        """Return the statement that deletes rows of one table which the other has, too.

        The parameters are those of `update`.
        """
        deleted, other = self._joined(alias, tables)
        return (
            f"DELETE FROM {deleted} USING {other} WHERE {self.equal(primary_key)} AND {condition}"
        )

    def _joined(self, alias: str, tables: Mapping[str, str]) -> list[str]:
        """Return the two tables with their aliases, that of the statement first."""
        ordered = sorted(tables, key=lambda each: each != alias)
        return [f"{self.table(tables[each])} AS {each}" for each in ordered]

    @property
    def _is_deleted(self) -> str:
        return f"s.{self.name(ROW_KIND)} NOT IN {ADDS}"

    def delete(self, staging: str, table: str, primary_key: Mapping[str, str]) -> str:
        """Return the statement that deletes the rows whose last change is a retraction."""
        return self.delete_from("t", {"s": staging, "t": table}, primary_key, self._is_deleted)

    def soft_delete(
        self, staging: str, table: str, primary_key: Mapping[str, str], deleted: tuple[str, str]
    ) -> str:
        """Return the statement that sets the time of a delete, unless it is set.

        `deleted` are the columns of this time in the target and in the staging table.
        """
        name, tables = self.name(deleted[0]), {"s": staging, "t": table}
        unset = f"{self._is_deleted} AND t.{name} IS NULL"
        return self.update("t", tables, primary_key, {name: f"s.{deleted[1]}"}, unset)

    def redelivered(
        self, staging: str, table: str, primary_key: Mapping[str, str], position: tuple[str, str]
    ) -> str:
        """Return the statement that drops staged changes which are not after their row.

        The statement compares the positions in the two tables.
        """
        is_redelivered = redelivery_condition(f"s.{position[1]}", f"t.{self.name(position[0])}")
        return self.delete_from("s", {"s": staging, "t": table}, primary_key, is_redelivered)

    def place_deletes(
        self, staging: str, table: str, primary_key: Mapping[str, str], position: tuple[str, str]
    ) -> str:
        """Return the statement that gives deleted rows the position of their last delete."""
        tables, value = {"s": staging, "t": table}, {self.name(position[0]): f"s.{position[1]}"}
        return self.update("t", tables, primary_key, value, self._is_deleted)

    def insert_deletes(
        self, staging: str, table: str, columns: Mapping[str, str], primary_key: Mapping[str, str]
    ) -> str:
        """Return the statement that inserts a deleted row for each delete of an absent key.

        An absent key is one that the table lacks.
        """
        return (
            f"{self.insert(staging, table, columns)} AS s WHERE {self._is_deleted} "
            f"AND NOT EXISTS (SELECT 1 FROM {self.table(table)} AS t WHERE "
            f"{self.equal(primary_key)})"
        )

    def upsert(
        self, staging: str, table: str, columns: Mapping[str, str], primary_key: Mapping[str, str]
    ) -> str:
        """Return the statement that inserts or updates the other rows."""
        sets = ", ".join(f"{self.name(name)} = EXCLUDED.{self.name(name)}" for name in columns)
        return (
            f"{self.insert(staging, table, columns)} {self.added()} ON CONFLICT "
            f"({self.names(primary_key)}) DO UPDATE SET {sets}"
        )

    def insert(self, staging: str, table: str, columns: Mapping[str, str]) -> str:
        """Return the statement that inserts all rows."""
        return (
            f"INSERT INTO {self.table(table)} ({self.names(columns)}) SELECT "
            f"{', '.join(columns.values())} FROM {self.table(staging)}"
        )

    def twins(self, staging: str, primary_key: Mapping[str, str]) -> str:
        """Return the query that counts keys which differ in Spark but are equal in the database."""
        return (
            f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM {self.table(staging)} {self.added()} "
            f"GROUP BY {', '.join(primary_key.values())} HAVING COUNT(*) > 1) AS twins"
        )

    def added(self) -> str:
        """Return the condition of rows that are inserted or updated."""
        return f"WHERE {self.name(ROW_KIND)} IN {ADDS}"

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

    def equal(self, primary_key: Mapping[str, str]) -> str:
        """Return the condition that a target row t and a staging table row s have the same key."""
        return " AND ".join(
            f"t.{self.name(name)} = s.{staged}" for name, staged in primary_key.items()
        )

    def staged(self, field: StructField) -> SparkColumn:
        """Return a column as it is written into the staging table."""
        from pyspark.sql import functions as F

        column, kind = backquoted(field.name), field.dataType.simpleString()
        if kind not in _TEXT:
            return F.col(column)
        text = F.expr(_TEXT[kind].format(column))
        return (
            F.concat(text, F.lit(self.timestamp_suffix)) if kind == "timestamp" else text
        ).alias(field.name)


@dataclass(frozen=True)
class MySql(Dialect):
    """MySQL and MariaDB, with MySQL's driver."""

    driver: ClassVar[str] = "com.mysql.cj.jdbc.Driver"
    quote: ClassVar[str] = "`"
    missing_table: ClassVar[str] = "42S02"
    # Strict mode rejects values that do not fit; text is parsed as UTC.
    properties: ClassVar[Mapping[str, str]] = {
        "sessionVariables": "time_zone='+00:00',sql_mode='STRICT_ALL_TABLES'",
        "rewriteBatchedStatements": "true",
    }
    unique_indexes: ClassVar[str] = (
        "SELECT index_name, column_name FROM information_schema.statistics "
        "WHERE table_schema = ? AND table_name = ? AND non_unique = 0 AND column_name IS NOT NULL"
    )
    timestamp_suffix: ClassVar[str] = ""
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
    ) -> str:
        kind = self.staged_kinds(len(columns), partial_rows)
        names = ", ".join(
            f"t.{self.name(name)} AS {staged}"
            for name, staged in [*columns.items(), *(bases or {}).items()]
        )
        # The outer join makes the columns nullable: a delete may have the key alone.
        return (
            f"CREATE TABLE {self.table(staging)} AS SELECT {names}, {kind} FROM (SELECT 1 AS one) "
            f"AS one LEFT JOIN {self.table(table)} AS t ON one.one = 0 LIMIT 0"
        )

    def update(
        self,
        alias: str,
        tables: Mapping[str, str],
        primary_key: Mapping[str, str],
        values: Mapping[str, str],
        condition: str,
    ) -> str:
        sets = ", ".join(f"{alias}.{column} = {value}" for column, value in values.items())
        joined = " JOIN ".join(self._joined(alias, tables))
        return f"UPDATE {joined} ON {self.equal(primary_key)} SET {sets} WHERE {condition}"

    def delete_from(
        self, alias: str, tables: Mapping[str, str], primary_key: Mapping[str, str], condition: str
    ) -> str:
        joined = " JOIN ".join(self._joined(alias, tables))
        return f"DELETE {alias} FROM {joined} ON {self.equal(primary_key)} WHERE {condition}"

    def upsert(
        self, staging: str, table: str, columns: Mapping[str, str], primary_key: Mapping[str, str]
    ) -> str:
        sets = ", ".join(f"{self.name(name)} = VALUES({self.name(name)})" for name in columns)
        return (
            f"{self.insert(staging, table, columns)} {self.added()} ON DUPLICATE KEY UPDATE {sets}"
        )


@dataclass(frozen=True)
class MariaDb(MySql):
    """MariaDB's dialect: MySQL's, with MariaDB's driver."""

    driver: ClassVar[str] = "org.mariadb.jdbc.Driver"


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a JDBC URL."""
    kinds = {"jdbc:mysql:": MySql, "jdbc:mariadb:": MariaDb}
    return next((kind() for prefix, kind in kinds.items() if url.startswith(prefix)), Dialect())
