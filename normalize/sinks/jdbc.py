"""Tables of PostgreSQL, MySQL and MariaDB: Spark's JDBC writer fills a staging table, and one transaction applies each micro-batch.

::

    workers ──Spark's JDBC writer──► products_changes_1f0c ──DELETE, INSERT ... ON CONFLICT (or ON DUPLICATE KEY)──► products

The columns of the staging table are called ``c0`` and so on: Spark's JDBC writer does not escape names, which come from messages.

All workers send rows at once, and readers of the table never see part of a micro-batch. The cost is that the database writes each row
twice. A writer that upserts in place, partition by partition, would write it once, and expose partial micro-batches.

Each query has its own staging table: a new run drops what a killed run left. A change feed's last micro-batch is a row of
``changelog_batches`` (query, table, number), written in the same transaction.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import uuid4

from cdc_formats.values.schema import backquoted
from normalize.connect import require_jvm
from normalize.core.output import ROW_KIND
from normalize.dataframe import positional

from .dialects import Dialect, MySql
from .jdbc_connection import JdbcConnection, JdbcTable, database_errors
from .narrowing import require_no_narrowing
from .partial_rows import ABSENT_COLUMN, BASE_COLUMN, missing_row
from .table_spec import Batch, TableSpec, missing_columns, running_batch, written_spec
from .targets import ConflictError, Sink, TableTarget, TargetError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession
    from pyspark.sql.types import StructField

BATCHES = "changelog_batches"


@dataclass(frozen=True)
class JdbcTarget(JdbcTable, TableTarget):
    """A table of PostgreSQL, MySQL or MariaDB.

    The password never appears in reprs, plans, event logs or errors. At log level DEBUG, Spark's class ``BasicConnectionProvider`` logs
    every connection's properties, as for any use of Spark's JDBC source.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://``, ``jdbc:mysql://`` or ``jdbc:mariadb://``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
    options : mapping
        Options of the driver (``sslmode``, ...) and of Spark's JDBC writer (``batchsize``, ``numPartitions``, ...). They may contain
        secrets, and so are not shown.
    """

    def sink(self, spark: SparkSession) -> DatabaseSink:
        require_jvm(spark, "JdbcTarget", "run this query in a classic session, or write to a DeltaTarget or an IcebergTarget")
        return DatabaseSink(spark, self)


@dataclass(frozen=True)
class DatabaseSink(Sink):
    """Writes a table of a database."""

    spark: SparkSession
    table: JdbcTarget

    def needed(self, spec: TableSpec) -> list[str]:
        with self._connection() as connection:
            return _needed(connection, self.table, spec)

    def prepare(self, spec: TableSpec) -> TableSpec:
        with self._connection() as connection:
            for statement in _needed(connection, self.table, spec):
                connection.execute(statement)
            return spec if spec.on_new_column != "ignore" else written_spec(self.table, spec, connection.columns(self.table.table))

    def merge(self, latest: DataFrame, spec: TableSpec, keep: Callable[[DataFrame], DataFrame] | None = None) -> None:
        """Apply the last change of each key, in one transaction, in which also partial rows are completed."""
        with self._staged(latest, spec) as staged:
            staged.require_distinct_keys()
            # A repeated micro-batch would find other rows at earlier keys.
            batch = running_batch(self.spark) if staged.bases else None
            with staged.transaction(batch) as begun:
                if begun:
                    staged.merge(partial_rows=spec.partial_rows)

    def append(self, rows: DataFrame, spec: TableSpec, batch: Batch | None) -> None:
        with self._staged(rows, spec) as staged, staged.transaction(batch) as begun:
            if begun:
                staged.append()

    def widen(self, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
        with self._connection() as connection:
            return [connection.dialect.widen(self.table.table, new, in_key=in_key)]

    def is_reachable(self) -> bool:
        try:
            with self._connection():
                return True
        except TargetError:
            return False

    @contextmanager
    def _connection(self) -> Iterator[JdbcConnection]:
        with JdbcConnection.open(self.spark, self.table) as connection:
            yield connection

    @contextmanager
    def _staged(self, rows: DataFrame, spec: TableSpec) -> Iterator[_StagedRows]:
        with self._connection() as connection:
            name = self._staging_table()
            drop = f"DROP TABLE IF EXISTS {connection.dialect.table(name)}"
            connection.execute(drop)
            staged = _StagedRows.of(connection, self.table, name, spec, with_bases=BASE_COLUMN in rows.columns)
            try:
                staged.fill(rows, spec)
                yield staged
            except BaseException:
                with suppress(TargetError):  # the first error is more helpful
                    connection.execute(drop)
                raise
            connection.execute(drop)

    def _staging_table(self) -> str:
        running = running_batch(self.spark)
        owner = running.query if running else uuid4().hex
        # Letters that need no quotes, since Spark's JDBC writer does not quote the name.
        name = re.sub("[^A-Za-z0-9]", "_", self.table.table.split(".")[-1])
        # PostgreSQL cuts names to 63 bytes, MySQL refuses more than 64 characters.
        unique = sha256(f"{owner} {self.table.table}".encode()).hexdigest()[:12]
        return in_same_schema(self.table.table, f"{name[:12]}_changes_{unique}")


@dataclass(frozen=True)
class _StagedRows:
    """The staging table of a micro-batch.

    Parameters
    ----------
    connection : JdbcConnection
    table : JdbcTarget
    name : str
        The staging table's name.
    names : dict of str to str
        The columns of the staging table, by those of the table.
    key, bases : dict of str to str
        Those of the row's key, and of the key whose row has the missing columns; empty if it is the row's own.
    deleted : str or None
        The table's column of soft deletes.
    """

    connection: JdbcConnection
    table: JdbcTarget
    name: str
    names: dict[str, str]
    key: dict[str, str]
    bases: dict[str, str]
    deleted: str | None

    @classmethod
    def of(cls, connection: JdbcConnection, table: JdbcTarget, name: str, spec: TableSpec, *, with_bases: bool) -> _StagedRows:
        names = connection.staged(table.table, spec.names)
        spelled = connection.spelled(table.table, [*spec.primary_key, *([spec.deleted_column] if spec.deleted_column else [])])
        key = spelled[: len(spec.primary_key)]
        bases = {column: f"b{part}" for part, column in enumerate(key)} if with_bases else {}
        return cls(connection, table, name, names, {column: names[column] for column in key}, bases, next(iter(spelled[len(key) :]), None))

    def fill(self, rows: DataFrame, spec: TableSpec) -> None:
        """Create the staging table, and write the rows into it."""
        dialect, connection = self.connection.dialect, self.connection
        connection.execute(dialect.stage(self.name, self.table.table, self.names, partial_rows=spec.partial_rows, bases=self.bases))
        kind = [ROW_KIND] * (ROW_KIND in rows.columns) + [ABSENT_COLUMN] * spec.partial_rows
        bases = [_base(column, part) for part, column in enumerate(spec.primary_key) if self.bases]
        renamed = rows.select(*kind, *positional(spec.names), *bases)
        staged = renamed.select(*kind, *(dialect.staged(field) for field in renamed.schema.fields[len(kind) :]))
        options = connection.options | {"dbtable": dialect.table(self.name)}
        with database_errors(self.table):
            staged.write.format("jdbc").options(**options).mode("append").save()
            self._require_once(rows.count())

    def _require_once(self, count: int) -> None:
        """Raise an error if rows were staged twice: Spark repeats a task that committed its rows and was then lost with its executor.

        Raises
        ------
        ConflictError
            The caller stages all rows again.
        """
        staged = self.connection.number(f"SELECT COUNT(*) FROM {self.connection.dialect.table(self.name)}")
        if staged != count:
            raise ConflictError(f"{staged} rows instead of {count} were staged for {self.table}, because an executor was lost")

    def require_distinct_keys(self) -> None:
        """Raise an error for keys that differ in Spark and are equal in the database."""
        if self.connection.number(self.connection.dialect.twins(self.name, self.key)):
            raise TargetError(
                f"{self.table}: keys ({', '.join(self.key)}) that differ in the changelog are equal in the table's collation: use a binary "
                "collation"
            )

    @contextmanager
    def transaction(self, batch: Batch | None) -> Iterator[bool]:
        """Run the block in a transaction, and yield whether the micro-batch is new; it always is without a number to compare."""
        batches = in_same_schema(self.table.table, BATCHES)
        if batch is not None:
            self.connection.execute(_batches(self.connection.dialect, batches))
        with self.connection.transaction():
            yield batch is None or _begun(self.connection, batches, self.table.table, batch)

    def merge(self, *, partial_rows: bool) -> None:
        """Apply the staged changes."""
        dialect, connection, table = self.connection.dialect, self.connection, self.table.table
        if partial_rows:
            self._complete()
        if self.deleted is None:
            connection.execute(dialect.delete(self.name, table, self.key))
        else:
            connection.execute(dialect.soft_delete(self.name, table, self.key, (self.deleted, self.names[self.deleted])))
        connection.execute(dialect.upsert(self.name, table, self.names, self.key))

    def _complete(self) -> None:
        """Give partial rows the values that the table has in the columns that they lack.

        Raises
        ------
        PartialImageError
            When the table does not have a row's key.
        """
        dialect, key = self.connection.dialect, self.bases or self.key
        ((lost,),) = self.connection.rows(dialect.incomplete(self.name, self.table.table, key, self.deleted))
        if lost:
            raise missing_row(lost.split()[1])
        self.connection.execute(dialect.complete(self.name, self.table.table, self.names, key))

    def append(self) -> None:
        """Insert all staged rows."""
        self.connection.execute(self.connection.dialect.insert(self.name, self.table.table, self.names))


def in_same_schema(table: str, name: str) -> str:
    """Return a table name qualified with another table's schema."""
    return ".".join([*table.split(".")[:-1], name])


def _base(name: str, part: int) -> SparkColumn:
    """Return a column of the key whose row has the missing columns of a row: its earlier key, or its own."""
    from pyspark.sql import functions as F

    return F.coalesce(F.col(f"{BASE_COLUMN}.{backquoted(name)}"), F.col(backquoted(name))).alias(f"b{part}")


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
