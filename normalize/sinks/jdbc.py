"""Sinks for PostgreSQL, MySQL and MariaDB: Spark's JDBC writer fills a staging table, and one transaction applies each micro-batch.

::

    workers ──Spark's JDBC writer──► products_changes_1f0c ──DELETE, INSERT ... ON CONFLICT (or ON DUPLICATE KEY)──► products

The columns of the staging table are called ``c0`` and so on: Spark's JDBC writer does not escape names, which come from messages.

All workers send rows at once, and readers of the table never see part of a micro-batch. The cost is that the database writes each row
twice. A writer that upserts in place, partition by partition, would write it once, and expose partial micro-batches.

Each query has its own staging table: a new run drops what a killed run left. A change feed's last micro-batch is a row of
``changelog_batches`` (query, table, number), written in the same transaction. Statements use a JDBC connection in Spark's JVM and require
no other client. A Spark Connect session has no such JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import positional

from .dialects import Dialect, MySql, dialect_of
from .narrowing import require_no_narrowing
from .partial_rows import ABSENT_COLUMN, BASE_COLUMN, missing_row
from .table_spec import Batch, TableSpec, missing_columns, running_batch, written_spec
from .targets import ConflictError, JdbcTarget, TargetError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructField

BATCHES = "changelog_batches"
_SECRET = re.compile("(?i)pass|secret|token|key")
_WRITERS = "8"
"""The default number of connections, and so of tasks that write; `JdbcTarget.options` override it."""


def needed(spark: SparkSession, table: JdbcTarget, spec: TableSpec) -> list[str]:
    """Return the SQL statements that create the table or add its missing columns; empty if there is nothing to change.

    Raises
    ------
    TargetError
        When the database cannot be reached, the table is missing and may not be created, or it lacks the unique index of an upsert.
    SchemaError
        When it lacks columns that may not be added, or a column has no type in the database.
    """
    with JdbcConnection.open(spark, table) as connection:
        return _needed(connection, table, spec)


def widen(spark: SparkSession, table: JdbcTarget, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
    """Return the statements that give a column a wider type."""
    with JdbcConnection.open(spark, table) as connection:
        return [connection.dialect.widen(table.table, new, in_key=in_key)]


def prepare(spark: SparkSession, table: JdbcTarget, spec: TableSpec) -> TableSpec:
    """Create the table or add columns, if needed and allowed, and return what is written."""
    with JdbcConnection.open(spark, table) as connection:
        for statement in _needed(connection, table, spec):
            connection.execute(statement)
        return spec if spec.on_new_column != "ignore" else written_spec(table, spec, connection.columns(table.table))


def merge(latest: DataFrame, table: JdbcTarget, spec: TableSpec) -> None:
    """Apply the last change of each key, in one transaction.

    Parameters
    ----------
    latest : DataFrame
        ``row_kind`` and the columns, a row for each key.
    table : JdbcTarget
    spec : TableSpec
    """
    with JdbcConnection.open(latest.sparkSession, table) as connection, _staged(latest, connection, table, spec) as staging:
        dialect, names = connection.dialect, connection.staged(table.table, spec.names)
        key = {name: names[name] for name in connection.spelled(table.table, spec.primary_key)}
        if connection.number(dialect.twins(staging, key)):
            raise TargetError(
                f"{table}: keys ({', '.join(key)}) that differ in the changelog are equal in the table's collation: use a binary collation"
            )
        deleted = None if spec.deleted_column is None else connection.spelled(table.table, [spec.deleted_column])[0]
        bases, batch = _bases(latest, connection, table, spec), running_batch(latest.sparkSession)
        batches = in_same_schema(table.table, BATCHES)
        if bases and batch is not None:
            connection.execute(_batches(dialect, batches))
        with connection.transaction():
            if bases and batch is not None and not _begun(connection, batches, table.table, batch):
                return  # the earlier keys have other rows now
            if spec.partial_rows:
                _complete(connection, staging, table, (names, bases or key, deleted))
            if deleted is None:
                connection.execute(dialect.delete(staging, table.table, key))
            else:
                connection.execute(dialect.soft_delete(staging, table.table, key, (deleted, names[deleted])))
            connection.execute(dialect.upsert(staging, table.table, names, key))


def _bases(latest: DataFrame, connection: JdbcConnection, table: JdbcTarget, spec: TableSpec) -> dict[str, str]:
    """Return the columns of the staging table with the key whose row has the missing columns; empty if it is the row's own."""
    if BASE_COLUMN not in latest.columns:
        return {}
    return {name: f"b{part}" for part, name in enumerate(connection.spelled(table.table, spec.primary_key))}


def _complete(
    connection: JdbcConnection, staging: str, table: JdbcTarget, columns: tuple[dict[str, str], dict[str, str], str | None]
) -> None:
    """Give partial rows of the staging table the values that the target has in the columns that they lack.

    Raises
    ------
    PartialImageError
        When the target does not have a row's key.
    """
    names, key, deleted = columns
    ((lost,),) = connection.rows(connection.dialect.incomplete(staging, table.table, key, deleted))
    if lost:
        raise missing_row(lost.split()[1])
    connection.execute(connection.dialect.complete(staging, table.table, names, key))


def append(rows: DataFrame, table: JdbcTarget, spec: TableSpec, batch: Batch | None) -> None:
    """Append rows, unless the micro-batch was appended before."""
    with JdbcConnection.open(rows.sparkSession, table) as connection, _staged(rows, connection, table, spec) as staging:
        names, batches = connection.staged(table.table, spec.names), in_same_schema(table.table, BATCHES)
        if batch is not None:
            connection.execute(_batches(connection.dialect, batches))
        with connection.transaction():
            if batch is not None and not _begun(connection, batches, table.table, batch):
                return
            connection.execute(connection.dialect.insert(staging, table.table, names))


def in_same_schema(table: str, name: str) -> str:
    """Return a table name qualified with another table's schema."""
    return ".".join([*table.split(".")[:-1], name])


# ----------------------------------------------------------------------------------------------------------- the staging table


@contextmanager
def _staged(rows: DataFrame, connection: JdbcConnection, table: JdbcTarget, spec: TableSpec) -> Iterator[str]:
    staging, dialect = _staging(rows.sparkSession, table), connection.dialect
    drop = f"DROP TABLE IF EXISTS {dialect.table(staging)}"
    connection.execute(drop)
    names, bases = connection.staged(table.table, spec.names), _bases(rows, connection, table, spec)
    connection.execute(dialect.stage(staging, table.table, names, partial_rows=spec.partial_rows, bases=bases))
    try:
        kind = [ROW_KIND] * (ROW_KIND in rows.columns) + [ABSENT_COLUMN] * spec.partial_rows
        renamed = rows.select(*kind, *positional(spec.names), *(_base(name, part) for part, name in enumerate(spec.primary_key) if bases))
        staged = renamed.select(*kind, *(dialect.staged(field) for field in renamed.schema.fields[len(kind) :]))
        options = connection.options | {"dbtable": dialect.table(staging)}
        with database_errors(table):
            staged.write.format("jdbc").options(**options).mode("append").save()
        yield staging
    except BaseException:
        with suppress(TargetError):  # the first error is more helpful
            connection.execute(drop)
        raise
    connection.execute(drop)


def _base(name: str, part: int) -> SparkColumn:
    """Return a column of the key whose row has the missing columns of a row: its earlier key, or its own."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col(f"{BASE_COLUMN}.{backquoted(name)}"), F.col(backquoted(name))).alias(f"b{part}")


def _staging(spark: SparkSession, table: JdbcTarget) -> str:
    running = running_batch(spark)
    owner = running.query if running else uuid4().hex
    # Letters that need no quotes, since Spark's JDBC writer does not quote the name.
    name = re.sub("[^A-Za-z0-9]", "_", table.table.split(".")[-1])
    # PostgreSQL cuts names to 63 bytes, MySQL refuses more than 64 characters.
    return in_same_schema(table.table, f"{name[:12]}_changes_{sha256(f'{owner} {table.table}'.encode()).hexdigest()[:12]}")


def _batches(dialect: Dialect, name: str) -> str:
    key = "query_id VARCHAR(64) NOT NULL, table_name VARCHAR(255) NOT NULL, batch_id BIGINT NOT NULL, PRIMARY KEY (query_id, table_name)"
    return f"CREATE TABLE IF NOT EXISTS {dialect.table(name)} ({key})"


def _begun(connection: JdbcConnection, batches: str, table: str, batch: Batch) -> bool:
    """Store a micro-batch's number, and return whether the batch is new."""
    name, of = connection.dialect.table(batches), "WHERE query_id = ? AND table_name = ?"
    last = connection.number(f"SELECT batch_id FROM {name} {of} FOR UPDATE", batch.query, table)
    if last is not None and last >= batch.number:
        return False
    connection.execute(f"DELETE FROM {name} {of}", batch.query, table)
    connection.execute(f"INSERT INTO {name} VALUES (?, ?, {batch.number})", batch.query, table)
    return True


# -------------------------------------------------------------------------------------------------------------- the connection


@dataclass(frozen=True)
class JdbcConnection:
    """A JDBC connection in Spark's JVM."""

    java: Any
    jvm: Any
    dialect: Dialect
    options: dict[str, str]
    of: JdbcTarget

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, table: JdbcTarget) -> Iterator[JdbcConnection]:
        """Yield a connection that is opened as by Spark's JDBC writer, and close it."""
        jvm: Any = spark._jvm
        dialect = dialect_of(table.url)
        options = _options(table, dialect)
        with database_errors(table):
            parsed = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap(options))
            java = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"]).createConnectionFactory(parsed).apply(-1)
        try:
            connection = cls(java, jvm, dialect, options, table)
            yield replace(connection, dialect=connection.refined())
        finally:
            java.close()

    def execute(self, statement: str, *parameters: str) -> None:
        """Run a statement."""
        with database_errors(self.of), self._executed(statement, parameters):
            pass

    def number(self, query: str, *parameters: str) -> int | None:
        """Return the number that a query selects, or None without a row."""
        with database_errors(self.of), self._executed(query, parameters) as rows:
            return int(rows.getLong(1)) if rows.next() else None

    def rows(self, query: str, *parameters: str) -> list[tuple[str | None, ...]]:
        """Return the rows that a query selects, as text."""
        with database_errors(self.of), self._executed(query, parameters) as rows:
            columns, found = range(1, rows.getMetaData().getColumnCount() + 1), []
            while rows.next():
                found.append(tuple(rows.getString(index) for index in columns))
            return found

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block, or roll all of them back."""
        from py4j.protocol import Py4JError

        self.java.setAutoCommit(False)
        try:
            yield
            with database_errors(self.of):
                self.java.commit()
        except BaseException:
            with suppress(Py4JError):  # the server rolls a broken connection back
                self.java.rollback()
            raise
        finally:
            with suppress(Py4JError):
                self.java.setAutoCommit(True)

    def refined(self) -> Dialect:
        """Return the dialect with the collation of the connected server, MySQL or MariaDB."""
        if not isinstance(self.dialect, MySql):
            return self.dialect
        mariadb = "mariadb" in str(self.java.getMetaData().getDatabaseProductVersion()).lower()
        return replace(self.dialect, binary_collation="utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin")

    def columns(self, table: str) -> dict[str, DataType | None] | None:
        """Return a table's columns with their types, or None if the table is missing.

        Only types are known that can silently lose part of a value (`narrowing`). The others are None.
        """
        from py4j.protocol import Py4JJavaError

        try:
            with self._executed(f"SELECT * FROM {self.dialect.table(table)} WHERE 1 = 0", ()) as rows:
                found = rows.getMetaData()
                return {found.getColumnName(index): _exact_type(found, index) for index in range(1, found.getColumnCount() + 1)}
        except Py4JJavaError as error:
            if error.java_exception.getSQLState() == self.dialect.missing_table:
                return None
            raise TargetError(_text(error, self.of)) from None

    def spelled(self, table: str, names: Sequence[str]) -> list[str]:
        """Return names with the table's upper and lower case."""
        found = {name.lower(): name for name in self.columns(table) or []}
        return [found.get(name.lower(), name) for name in names]

    def staged(self, table: str, names: Sequence[str]) -> dict[str, str]:
        """Return a mapping from the table's column names to those of the staging table."""
        return {name: f"c{index}" for index, name in enumerate(self.spelled(table, names))}

    def unique_indexes(self, table: str) -> list[set[str]]:
        """Return the columns, in lower case, of each unique index that an upsert can use."""
        *schema, name = table.split(".")
        of = [schema[0] if schema else self.java.getCatalog(), name] if isinstance(self.dialect, MySql) else [self.dialect.table(table)]
        indexes: dict[str, set[str]] = {}
        # Not by the driver's getIndexInfo: PostgreSQL's returns names quoted in part.
        with database_errors(self.of), self._executed(self.dialect.unique_indexes, of) as rows:
            while rows.next():
                indexes.setdefault(rows.getString(1), set()).add(rows.getString(2).lower())
        return list(indexes.values())

    @contextmanager
    def _executed(self, text: str, parameters: Sequence[str]) -> Iterator[Any]:
        """Run a statement, and yield its rows, or None."""
        # Prepared only with parameters: MySQL's driver treats a question mark in a name as one.
        statement = self.java.prepareStatement(text) if parameters else self.java.createStatement()
        try:
            statement.setEscapeProcessing(False)
            for index, value in enumerate(parameters, 1):
                statement.setString(index, value)
            statement.execute(*([] if parameters else [text]))
            yield statement.getResultSet()
        finally:
            statement.close()


def _exact_type(columns: Any, index: int) -> DataType | None:
    """Return the type of a column of integers, decimals or dates; None for others.

    Parameters
    ----------
    columns : java.sql.ResultSetMetaData
    index : int
        From 1.
    """
    from pyspark.sql.types import ByteType, DateType, DecimalType, IntegerType, LongType, ShortType

    kinds = {-6: ByteType(), 5: ShortType(), 4: IntegerType(), -5: LongType(), 91: DateType()}
    number = columns.getColumnType(index)
    if number in (2, 3):  # NUMERIC and DECIMAL
        digits, scale = columns.getPrecision(index), columns.getScale(index)
        # PostgreSQL's NUMERIC without a precision has any number of digits.
        return DecimalType(digits, scale) if 0 < digits <= 38 and 0 <= scale <= digits else None
    return kinds.get(number)


def _options(table: JdbcTarget, dialect: Dialect) -> dict[str, str]:
    url = table.url
    if url.startswith("jdbc:mariadb:"):
        # Spark uses MySQL's SQL and quotes for this scheme only.
        url = url.replace("jdbc:mariadb:", "jdbc:mysql:", 1) + ("&" if "?" in url else "?") + "permitMysqlScheme"
    account = {name: value for name, value in (("user", table.user), ("password", table.password)) if value is not None}
    given = {name: str(value) for name, value in table.options.items()}
    return {
        **dialect.properties,
        "numPartitions": _WRITERS,
        **given,
        **account,
        "url": url,
        "driver": dialect.driver,
        "dbtable": table.table,
    }


def _needed(connection: JdbcConnection, table: JdbcTarget, spec: TableSpec) -> list[str]:
    dialect = connection.dialect
    for part in table.table.split("."):
        dialect.require_name(part, "table")
    found = connection.columns(table.table)
    spec = written_spec(table, spec, found)
    for field in spec.fields:
        dialect.require_name(field.name)
        dialect.type(field, in_key=False)  # raises for unsupported types, also of existing columns
    if found is None:
        if not spec.create:
            raise TargetError(f"{table} does not exist: create it, or set create=True")
        return [dialect.create(table.table, spec.fields, spec.primary_key)]
    if spec.primary_key:
        _check_indexes(connection, table, spec.primary_key)

    def widen(old: StructField, new: StructField) -> list[str]:
        return [dialect.widen(table.table, new, in_key=old.name.lower() in map(str.lower, spec.primary_key))]

    require_no_narrowing(table, spec, found, widen)

    def additions(fields: Sequence[StructField]) -> list[str]:
        return [dialect.add(table.table, field) for field in fields]

    return additions(missing_columns(table, spec, found, additions))


def _check_indexes(connection: JdbcConnection, table: JdbcTarget, primary_key: Sequence[str]) -> None:
    key, indexes = {name.lower() for name in primary_key}, connection.unique_indexes(table.table)
    if key not in indexes:
        raise TargetError(f"{table} has no unique index on ({', '.join(primary_key)}), which an upsert requires: add that primary key")
    others = [index for index in indexes if index != key]
    if others and isinstance(connection.dialect, MySql):
        # ON DUPLICATE KEY UPDATE would overwrite any row with the same value in it.
        raise TargetError(
            f"{table} has another unique index, on ({', '.join(sorted(others[0]))}), with which MySQL would update other rows: drop it"
        )


# ------------------------------------------------------------------------------------------------------------------ its errors


@contextmanager
def database_errors(table: JdbcTarget) -> Iterator[None]:
    """Raise a database error as a `TargetError`, without the password and without Java's stack.

    Raises
    ------
    TargetError
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        if _deadlock(error):
            raise ConflictError(f"another writer locked rows of {table} at the same time (deadlock)") from None
        raise TargetError(_text(error, table)) from None


def _deadlock(error: Any) -> bool:
    """Return whether the database rolled the transaction back because of another: a deadlock, or a failed serialization."""
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    if not hasattr(error, "java_exception"):
        return False
    root = _root(error.java_exception)
    return is_instance_of(SparkContext._gateway, root, "java.sql.SQLException") and root.getSQLState() in ("40001", "40P01")


def _root(java: Any) -> Any:
    while java.getCause() is not None:
        java = java.getCause()
    return java


def _text(error: Any, table: JdbcTarget) -> str:
    java = getattr(error, "java_exception", None)
    if java is not None:
        java = _root(java)
        text = f"{java.getClass().getSimpleName()}: {java.getMessage()}"
    else:
        causes = [line for line in str(error).splitlines() if "Exception: " in line]
        text = (causes or str(error).splitlines())[-1]
    shown = " ".join(text.split())[:500]
    secrets = (str(value) for name, value in {**table.options, "password": table.password}.items() if value and _SECRET.search(name))
    for secret in secrets:
        shown = shown.replace(secret, "***")
    return f"{table}: {shown}"
