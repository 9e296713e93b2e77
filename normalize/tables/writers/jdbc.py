"""Tables of PostgreSQL, MySQL and MariaDB, written through a staging table by one transaction.

Spark's JDBC writer fills the staging table, and the transaction applies each micro-batch.

::

    workers ──Spark's JDBC writer──► products_changes_1f0c ──DELETE, INSERT ... ON CONFLICT (or ON DUPLICATE KEY)──► products

Changes that the driver has as Arrow's columns are loaded by ``COPY`` or ``INSERT`` instead, without
a job of Spark: into a temporary table of a connection, both of which are kept for the next
micro-batch.

The columns of the staging table are called ``c0`` and so on: Spark's JDBC writer does not escape
names, which come from messages.

All workers send rows at once, and readers of the table never see part of a micro-batch. The cost is
that the database writes each row twice. A writer that upserts in place, partition by partition,
would write it once, and expose partial micro-batches.

Each query has its own staging table: a new run drops what a killed run left. A change feed's last
micro-batch is a row of ``changelog_batches`` (query, table, number), written in the same
transaction.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
)

from cdc_formats.errors import refuse
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import positional
from normalize.monitoring.watch import Notice, log
from normalize.spark.micro_batch import Batch, running_batch
from normalize.spark.plans import class_of
from normalize.spark.sessions import (
    is_java,
    java_causes,
    java_error_types,
    jdbc_connection,
    require_jvm,
    root_cause,
    spark_error_types,
)
from normalize.tables.batches import Record, is_repeat, log_repeat, record_of, version_of
from normalize.tables.expressions import computed_comment
from normalize.tables.layout import in_lower
from normalize.tables.merge import ABSENT_COLUMN, BASE_COLUMN, MergePlan, missing_row
from normalize.tables.table_spec import (
    TableSpec,
    missing_columns,
    require_no_narrowing,
    written_spec,
)
from normalize.tables.targets import (
    ArrowRows,
    ConflictError,
    Replacement,
    Sink,
    TableTarget,
    TargetError,
    UnavailableError,
)

from .dialects import Dialect, MySql, dialect_of

BATCHES = "changelog_batches"

_CREATED_MEANWHILE = ("23505", "42P07")
"""SQLSTATEs of PostgreSQL: a duplicate key, here of its catalog, and a duplicate table."""
_ROLLED_BACK = ("40001", "40P01")
"""SQLSTATEs of a transaction that the server rolls back because of another one."""
_LOCKED, _LOCKED_IN_MYSQL = "55P03", 1205
"""SQLSTATE, and MySQL's number, of a lock that was not free in the time that the server allows."""
_NOT_OF_A_TABLE = ("08", "25", "53", "57", "58", "70")
"""Classes of SQLSTATE: broken connections, read-only transactions, servers without memory or disk,
servers that end or cancel statements."""
_READ_ONLY = (1290, 1792, 1836)
"""MySQL's numbers of errors of a server that is read-only."""
_SECRET_IN_URL = re.compile(r"(?i)(?:password|passwd|pwd|passphrase)\w*\s*=|//[^/@]*:[^/@]*@")
_SECRET = re.compile("(?i)pass|secret|token|key")
_MOST_SENT = 1 << 20
"""The bytes of rows that a call of the JVM sends."""
_WRITERS = "8"
"""The default number of connections, and so of tasks that write; `JdbcTable.options` override
it."""


@dataclass(frozen=True)
class JdbcTable:
    """A table of PostgreSQL, MySQL or MariaDB, and how to connect to it.

    Parameters
    ----------
    url, table, user, password, options
        Same as `JdbcTarget` and `JdbcSource`.
    """

    url: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        refuse(
            (
                not isinstance(self.url, str) or _SECRET_IN_URL.search(self.url),
                # Without the url, which has the secret.
                f"{kind} has a password in its url, where logs and plans may show it: pass "
                "password=... instead",
            ),
            (
                not f"{self.url}".startswith(("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")),
                f"{kind} has the url {self.url!r}: it must begin with jdbc:postgresql:, "
                "jdbc:mysql: or jdbc:mariadb:",
            ),
            (
                not self.table or not all(self.table.split(".")),
                f"{kind} has the table {self.table!r}: write 'table' or 'schema.table'",
            ),
        )


@dataclass(frozen=True)
class JdbcTarget(JdbcTable, TableTarget):
    """A table of PostgreSQL, MySQL or MariaDB.

    The password never appears in reprs, plans, event logs or errors. At log level DEBUG, Spark's
    class ``BasicConnectionProvider`` logs every connection's properties, as for any use of Spark's
    JDBC source.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://``, ``jdbc:mysql://`` or ``jdbc:mariadb://``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
    options : mapping
        Options of the driver (``sslmode``, ...) and of Spark's JDBC writer (``batchsize``,
        ``numPartitions``, ...). They may contain secrets, and so are not shown.
    """

    positions: ClassVar[bool] = True

    @property
    def sql_name(self) -> str:
        return self.table

    @property
    def batches(self) -> str:
        """The table with the records of micro-batches, in the same schema."""
        return in_same_schema(self.table, BATCHES)

    @property
    def address(self) -> str:
        """The server, database and table; without the url's parameters."""
        return f"{self.url.partition('?')[0]} {self.table}"

    def sink(self, spark: SparkSession) -> DatabaseSink:
        require_jvm(
            spark,
            "JdbcTarget",
            "run this query in a classic session, or write to a DeltaTarget or an IcebergTarget",
        )
        return DatabaseSink(spark, self)


@dataclass(frozen=True)
class DatabaseSink(Sink):
    """Writes a table of a database."""

    spark: SparkSession
    table: JdbcTarget

    def needed(self, spec: TableSpec) -> list[str]:
        with JdbcConnection.open(self.spark, self.table) as connection:
            return _needed(connection, self.table, spec)

    def prepare(self, spec: TableSpec) -> TableSpec:
        with JdbcConnection.open(self.spark, self.table) as connection:
            for statement in _needed(connection, self.table, spec):
                connection.define(statement)
            return (
                spec
                if spec.on_new_column != "ignore"
                else written_spec(self.table, spec, connection.columns(self.table.table))
            )

    @property
    def takes_arrow(self) -> bool:
        return True

    def merge(self, latest: DataFrame, spec: TableSpec) -> None:
        batch = running_batch(self.spark)
        with self._staged(latest, spec, batch) as staged, staged.transaction(batch):
            staged.merge(batch)

    def merge_arrow(self, latest: ArrowRows, spec: TableSpec) -> None:
        kinds = [ROW_KIND, *[ABSENT_COLUMN] * spec.partial_rows]
        rows = dialect_of(self.table.url).rows_text(latest.table.select([*kinds, *spec.names]))
        if rows is None:
            self.merge(latest.frame(), spec)
            return
        batch = running_batch(self.spark)
        # Of its own columns and types: a new schema has a new one.
        name = sha256(f"{self.table.sql_name} {spec.fields} {spec.partial_rows}".encode())
        with JdbcConnection.kept(self.spark, self.table) as connection:
            staged = self._staging(connection, f"changes_{name.hexdigest()[:32]}", spec)
            staged.create(spec, temporary=True)
            with staged.transaction(batch):
                connection.own(self._staging_table(batch))
                staged.load(rows, kinds)
                # Last: another driver with the same checkpoint waits for the record.
                staged.merge(batch)

    def widen(self, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
        with JdbcConnection.open(self.spark, self.table) as connection:
            return [connection.dialect.widen(self.table.table, new, in_key=in_key)]

    def exists(self) -> bool:
        with JdbcConnection.open(self.spark, self.table) as connection:
            return connection.columns(self.table.table) is not None

    def record(self, batch: Batch) -> Record | None:
        with JdbcConnection.open(self.spark, self.table) as connection:
            if connection.columns(self.table.batches) is None:
                return None
            return _record(connection, self.table, batch)

    def fields(self) -> Sequence[StructField]:
        dialect = dialect_of(self.table.url)
        options = jdbc_options(self.table, dialect) | {"dbtable": dialect.table(self.table.table)}
        with database_errors(self.table):
            columns: Any = self.spark.read.format("jdbc").options(**options).load().schema
        return tuple(columns.fields)

    def create_like(self, other: Sink) -> None:
        name = other.table.sql_name
        with JdbcConnection.open(self.spark, self.table) as connection:
            if connection.columns(name) is not None:
                connection.define(connection.dialect.create_like(self.table.table, name))

    def missing(self, other: Sink, key: Sequence[str], deleted_column: str | None) -> int:
        with JdbcConnection.open(self.spark, self.table) as connection:
            dialect, table = connection.dialect, self.table.table
            where = dialect.missing(table, other.table.sql_name, key, deleted_column)
            return (
                connection.number(f"SELECT COUNT(*) FROM {dialect.table(table)} WHERE {where}") or 0
            )

    def replace_rows(self, other: Sink, replacement: Replacement, batch: Batch) -> None:
        table, new, deleted = self.table.table, other.table.sql_name, replacement.deleted_column
        with JdbcConnection.open(self.spark, self.table) as connection:
            dialect = connection.dialect
            connection.define(_batches(dialect, self.table))
            names, key = (
                connection.spelled(table, each) for each in (replacement.names, replacement.key)
            )
            statements = dialect.replace_rows(table, new, names, key, deleted)
            if replacement.remove_missing:
                where = dialect.missing(table, new, key, deleted)
                removal = (
                    f"DELETE FROM {dialect.table(table)}"
                    if deleted is None
                    else f"UPDATE {dialect.table(table)} SET {dialect.name(deleted)} = "
                    "CURRENT_TIMESTAMP(6)"
                )
                statements.insert(0, f"{removal} WHERE {where}")
            with connection.transaction():
                if record := _begin(connection, self.table, batch):
                    connection.execute(*record, *statements)

    def drop(self) -> None:
        with JdbcConnection.open(self.spark, self.table) as connection:
            dialect = connection.dialect
            connection.execute(f"DROP TABLE IF EXISTS {dialect.table(self.table.table)}")
            if connection.columns(self.table.batches) is not None:
                connection.execute(
                    f"DELETE FROM {dialect.table(self.table.batches)} WHERE table_name = "
                    f"{dialect.literal(self.table.table)}"
                )

    def is_reachable(self) -> bool:
        try:
            with JdbcConnection.open(self.spark, self.table):
                return True
        except TargetError:
            return False

    def _staging(
        self, connection: JdbcConnection, name: str, spec: TableSpec, *, with_bases: bool = False
    ) -> _StagedRows:
        spelled = connection.spelled(self.table.table, spec.names)
        plan = spec.plan(dict(zip(spec.names, spelled, strict=True)).__getitem__)
        return _StagedRows(
            connection,
            self.table,
            name,
            {column: f"c{index}" for index, column in enumerate(spelled)},
            {key: f"b{part}" for part, key in enumerate(plan.primary_key) if with_bases},
            plan,
        )

    @contextmanager
    def _staged(
        self, rows: DataFrame, spec: TableSpec, batch: Batch | None
    ) -> Iterator[_StagedRows]:
        with JdbcConnection.open(self.spark, self.table) as connection:
            name = self._staging_table(batch)
            drop = f"DROP TABLE IF EXISTS {connection.dialect.table(name)}"
            connection.end_others(name)
            connection.execute(drop)
            staged = self._staging(connection, name, spec, with_bases=BASE_COLUMN in rows.columns)
            try:
                staged.create(spec)
                staged.fill(rows, spec)
                yield staged
            except BaseException:
                with suppress(TargetError):  # the first error is more helpful
                    connection.execute(drop)
                raise
            connection.execute(drop)

    def _staging_table(self, batch: Batch | None) -> str:
        owner = batch.query if batch else uuid4().hex
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
    bases : dict of str to str
        Those of the key whose row has the missing columns; empty if it is the row's own.
    plan : MergePlan
        With the table's names.
    """

    connection: JdbcConnection
    table: JdbcTarget
    name: str
    names: dict[str, str]
    bases: dict[str, str]
    plan: MergePlan

    def create(self, spec: TableSpec, *, temporary: bool = False) -> None:
        """Create the staging table; a temporary one is kept with the connection, and emptied."""
        connection, dialect = self.connection, self.connection.dialect
        statement = dialect.stage(
            self.name,
            self.table.table,
            self.names,
            partial_rows=spec.partial_rows,
            bases=self.bases,
            temporary=temporary,
        )
        if not temporary:
            connection.execute(statement)
            return
        connection.define(statement)
        if isinstance(dialect, MySql):  # PostgreSQL's empties itself
            connection.execute(f"TRUNCATE TABLE {dialect.table(self.name)}")

    def fill(self, rows: DataFrame, spec: TableSpec) -> None:
        """Write the rows into the staging table by Spark.

        Raises
        ------
        ConflictError
            When rows were staged twice: the caller stages all again.
        """
        dialect, connection = self.connection.dialect, self.connection
        kind = [ROW_KIND] * (ROW_KIND in rows.columns) + [ABSENT_COLUMN] * spec.partial_rows
        # The earlier key of a row, whose row has the missing columns, or its own.
        bases = [
            F.coalesce(F.col(f"{BASE_COLUMN}.{name}"), F.col(name)).alias(f"b{part}")
            for part, name in enumerate(map(backquoted, spec.primary_key))
            if self.bases
        ]
        renamed = rows.select(*kind, *positional(spec.names), *bases)
        staged = renamed.select(
            *kind, *(dialect.staged(field) for field in renamed.schema.fields[len(kind) :])
        )
        options = connection.options | {"dbtable": dialect.table(self.name)}
        with database_errors(self.table):
            staged.write.format("jdbc").options(**options).mode("append").save()
            count = rows.count()
            stored = self.connection.number(f"SELECT COUNT(*) FROM {dialect.table(self.name)}")
        # Spark repeats a task that committed its rows and was then lost with its executor.
        if stored != count:
            raise ConflictError(
                f"{stored} rows instead of {count} were staged for {self.table}, because an "
                "executor was lost"
            )

    def load(self, rows: bytes | list[str], kinds: Sequence[str]) -> None:
        """Write the rows into the staging table.

        Parameters
        ----------
        rows : bytes or list of str
            Those of `Dialect.rows_text`.
        kinds : sequence of str
            The first columns of the rows, which the table does not have.
        """
        dialect, name = self.connection.dialect, self.connection.dialect.table(self.name)
        columns = dialect.names([*kinds, *self.names.values()])
        if isinstance(rows, bytes):
            copy = f"COPY {name} ({columns}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')"
            self.connection.copy(copy, rows)
        else:
            inserts = (f"INSERT INTO {name} ({columns}) VALUES {part}" for part in rows)
            self.connection.execute(*inserts)

    @contextmanager
    def transaction(self, batch: Batch | None) -> Iterator[None]:
        """Run the block in a transaction, beside a table for the record of the micro-batch."""
        if batch is not None:
            self.connection.define(_batches(self.connection.dialect, self.table))
        with self.connection.transaction():
            yield

    def merge(self, batch: Batch | None) -> None:
        """Apply the staged changes with the record of their micro-batch, if it is new.

        It always is without a number to compare.

        Raises
        ------
        PartialImageError
            When the table does not have the row that completes a change.
        TargetError
            When keys that differ in Spark are equal in the database.
        """
        staged = [self.names[name] for name in self.plan.primary_key]
        if self.connection.number(self.connection.dialect.twins(self.name, staged)):
            raise TargetError(
                f"{self.table}: keys ({', '.join(self.plan.primary_key)}) that differ in the "
                "changelog are equal in the table's collation: use a binary collation"
            )
        statements = [] if batch is None else _begin(self.connection, self.table, batch)
        if statements is None:
            return
        steps = self.connection.dialect.merge(
            self.plan, self.name, self.table.table, self.names, self.bases
        )
        for statement, fails in steps:
            if not fails:
                statements.append(statement)
                continue
            self.connection.execute(*statements)
            statements.clear()
            if lost := self.connection.rows(statement)[0][0]:
                raise missing_row(lost.split()[1])
        self.connection.execute(*statements)


def in_same_schema(table: str, name: str) -> str:
    """Return a table name qualified with another table's schema."""
    return ".".join([*table.split(".")[:-1], name])


def _batches(dialect: Dialect, table: JdbcTarget) -> str:
    """Return the statement that creates the table with the records of micro-batches."""
    key = (
        "query_id VARCHAR(64) NOT NULL, table_name VARCHAR(255) NOT NULL, batch_id BIGINT NOT "
        "NULL, PRIMARY KEY (query_id, table_name)"
    )
    return f"CREATE TABLE IF NOT EXISTS {dialect.table(table.batches)} ({key})"


def _record(
    connection: JdbcConnection, table: JdbcTarget, batch: Batch, lock: str = ""
) -> Record | None:
    """Return the record of a query's last micro-batch in a table; None without one."""
    name, (query, of) = connection.dialect.table(table.batches), _key(connection, table, batch)
    version = connection.number(
        f"SELECT batch_id FROM {name} WHERE query_id = {query} AND table_name = {of} {lock}"
    )
    return None if version is None else record_of(version)


def _begin(connection: JdbcConnection, table: JdbcTarget, batch: Batch) -> list[str] | None:
    """Return the statements that store a micro-batch's record; None if the table has it."""
    name, (query, of) = connection.dialect.table(table.batches), _key(connection, table, batch)
    if is_repeat(batch, _record(connection, table, batch, "FOR UPDATE"), table):
        log_repeat(batch, table)
        return None
    return [
        f"DELETE FROM {name} WHERE query_id = {query} AND table_name = {of}",
        f"INSERT INTO {name} VALUES ({query}, {of}, {version_of(batch)})",
    ]


def _key(connection: JdbcConnection, table: JdbcTarget, batch: Batch) -> tuple[str, str]:
    """Return the key of a query's record, as literals."""
    literal = connection.dialect.literal
    return literal(batch.application), literal(table.table)


def _needed(connection: JdbcConnection, table: JdbcTarget, spec: TableSpec) -> list[str]:
    dialect = connection.dialect
    for part in table.table.split("."):
        dialect.require_name(part, "table")
    columns = connection.columns(table.table)
    spec = written_spec(table, spec, columns)
    for column in spec.fields:
        dialect.require_name(column.name)
        dialect.type(column, in_key=False)  # raises for unsupported types, also of existing columns
    if columns is None:
        if not spec.create:
            raise TargetError(f"{table} does not exist: create it, or set create=True")
        created = dialect.create(table.table, spec.fields, spec.primary_key)
        comment = computed_comment(dict(spec.layout.properties))
        return [created, *([dialect.comment(table.table, comment)] if comment else [])]
    if spec.primary_key:
        _check_indexes(connection, table, spec.primary_key)

    key = in_lower(spec.primary_key)
    require_no_narrowing(
        table,
        spec,
        columns,
        lambda _, new: [dialect.widen(table.table, new, in_key=new.name.lower() in key)],
    )
    _warn_of_losses(connection, table, spec, columns)

    def additions(fields: Sequence[StructField]) -> list[str]:
        return [dialect.add(table.table, field) for field in fields]

    return additions(missing_columns(table, spec, columns, additions))


def _check_indexes(
    connection: JdbcConnection, table: JdbcTarget, primary_key: Sequence[str]
) -> None:
    key, indexes = {*in_lower(primary_key)}, connection.unique_indexes(table.table)
    other = [index for index in indexes if index != key and isinstance(connection.dialect, MySql)]
    refuse(
        (
            key not in indexes,
            f"{table} has no unique index on ({', '.join(primary_key)}), which an upsert requires: "
            "add that primary key",
        ),
        *(
            (
                # ON DUPLICATE KEY UPDATE would overwrite any row with the same value in it.
                index,
                f"{table} has another unique index, on ({', '.join(sorted(index))}), with which "
                "MySQL would update other rows: drop it",
            )
            for index in other
        ),
        error=TargetError,
    )


def _warn_of_losses(
    connection: JdbcConnection,
    table: JdbcTarget,
    spec: TableSpec,
    columns: Mapping[str, DataType | None],
) -> None:
    """Warn, once for each column, if the server can change its values without an error.

    It is no error: the source can have the same collation, or no value that changes.
    """
    key, dialect = {name.lower() for name in spec.primary_key}, connection.dialect
    stored = {name.lower(): kind for name, kind in columns.items()}
    lossy = {
        str(name).lower(): (digits, collation)
        for name, digits, collation in connection.rows(
            dialect.lossy_columns.format(*connection.identity(table.table))
        )
    }
    for column in spec.fields:
        name, is_text = column.name.lower(), isinstance(column.dataType, StringType)
        (digits, collation), kind = lossy.get(name, (None, None)), stored.get(name)
        if is_text and name in key and collation:
            text = (
                "is part of the key and has the type or collation "
                f"{collation}, in which keys that differ in case, accents or trailing blanks can be "
                "one row: use a binary collation, unless the source has the same"
            )
        elif digits and int(digits) < 6 and column.dataType.simpleString().startswith("timestamp"):
            text = (
                f"has {digits} digits of a second, and the server drops the others without an "
                f"error: run {dialect.widen(table.table, column, in_key=name in key)}, unless the "
                "source has as few"
            )
        elif is_text and kind is not None:
            declared = kind.simpleString().upper()
            text = (
                f"is {declared}, and the server converts the text of the changes, which can round "
                f"it without an error: declare the column as {declared} in the changes, too"
            )
        else:
            continue
        log([Notice((f"{table} {name}",), f"{table}: the column {backquoted(column.name)} {text}")])


# --------------------------------------------------------------------------------------------------
# the connection

_idle: dict[tuple[Any, ...], list[JdbcConnection]] = {}
"""The connections that are kept between micro-batches, by login: as many as tables are written at a
time."""
_PATIENCE = 5  # seconds


def _answering(idle: list[JdbcConnection]) -> JdbcConnection | None:
    """Take a connection whose server answers, and close those before it."""
    while idle:
        with suppress(Exception):  # it is broken, or another thread took it
            connection = idle.pop()
            if connection.java.isValid(_PATIENCE):
                return connection
            connection.java.close()
    return None


@dataclass
class JdbcConnection:
    """A JDBC connection in Spark's JVM, and its one statement: each call of the JVM takes time."""

    java: Any
    statement: Any
    spark: SparkSession
    dialect: Dialect
    options: dict[str, str] = field(repr=False)
    of: JdbcTable
    _defined: set[str] = field(default_factory=set)
    _spelled: dict[str, dict[str, str]] = field(default_factory=dict)

    @classmethod
    def _new(cls, spark: SparkSession, table: JdbcTable) -> JdbcConnection:
        dialect = dialect_of(table.url)
        options = jdbc_options(table, dialect)
        with database_errors(table):
            java = jdbc_connection(spark, options)
        try:
            statement = java.createStatement()
            # Names have braces and question marks, which are no syntax of the driver's.
            statement.setEscapeProcessing(False)
            connection = cls(java, statement, spark, dialect, options, table)
            return replace(connection, dialect=connection.refined())
        except BaseException:
            java.close()
            raise

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, table: JdbcTable) -> Iterator[JdbcConnection]:
        """Yield a connection that is opened as by Spark's JDBC writer, and close it."""
        connection = cls._new(spark, table)
        try:
            yield connection
        finally:
            connection.java.close()

    @classmethod
    @contextmanager
    def kept(cls, spark: SparkSession, table: JdbcTable) -> Iterator[JdbcConnection]:
        """Yield a connection that an earlier block kept, or a new one, which is kept after it.

        After an error it is closed.
        """
        login = table.url, table.user, table.password, *sorted(table.options.items())
        idle = _idle.setdefault(login, [])
        connection = _answering(idle) or cls._new(spark, table)
        try:
            yield replace(connection, spark=spark, of=table)
        except BaseException:
            with suppress(*java_error_types()):
                connection.java.close()
            raise
        idle.append(connection)

    def execute(self, *statements: str) -> None:
        """Run statements; PostgreSQL's server gets all of them at once."""
        texts = ["; ".join(statements)] if self.dialect.joins else statements
        with database_errors(self.of):
            for text in filter(None, texts):
                self.statement.execute(text)

    def copy(self, statement: str, rows: bytes) -> None:
        """Send the rows of a ``COPY``."""
        with database_errors(self.of):
            copy = self.java.getCopyAPI().copyIn(statement)
            try:
                for begin in range(0, len(rows), _MOST_SENT):
                    part = rows[begin : begin + _MOST_SENT]
                    copy.writeToCopy(part, 0, len(part))
                copy.endCopy()
            except BaseException:
                with suppress(*java_error_types()):  # otherwise the rollback waits for its end
                    copy.cancelCopy()
                raise

    def end_others(self, table: str) -> None:
        """End the connections that have a lock on a table which only this query uses."""
        text, table = self.dialect.end_others, self.dialect.table(table)
        if text:
            self._end(text, table)

    def own(self, name: str) -> None:
        """Take a lock that only this query uses, until the transaction ends.

        The connections that have it are ended.
        """
        literal, try_lock = self.dialect.literal(name), self.dialect.try_lock
        if try_lock and not self.number(try_lock.format(literal)):
            self._end(self.dialect.end_owners, name)
            self.number(self.dialect.lock.format(literal))

    def _end(self, text: str, name: str) -> None:
        if ended := self.number(text.format(self.dialect.literal(name))):
            log([Notice((name,), f"{self.of}: ended {ended} connections of an earlier run")])

    def define(self, statement: str) -> None:
        """Run a definition, also while another connection creates the same table.

        PostgreSQL's ``CREATE TABLE IF NOT EXISTS`` then waits for the other's commit, and fails with
        a duplicate key of the catalog. A second run finds the table. What the connection has
        defined is not defined again.
        """
        if statement in self._defined:
            return
        try:
            self.statement.execute(statement)
        except java_error_types() as error:
            if _state_and_code(error)[0] not in _CREATED_MEANWHILE:
                raise _target_error(error, self.of) from None
            self.execute(statement)
        self._defined.add(statement)

    def number(self, query: str) -> int | None:
        """Return the number that a query selects, or None without a row."""
        with database_errors(self.of):
            rows = self.statement.executeQuery(query)
            return int(rows.getLong(1)) if rows.next() else None

    def rows(self, query: str) -> list[tuple[str | None, ...]]:
        """Return the rows that a query selects, as text."""
        with database_errors(self.of):
            rows = self.statement.executeQuery(query)
            columns, texts = range(1, rows.getMetaData().getColumnCount() + 1), []
            while rows.next():
                texts.append(tuple(rows.getString(index) for index in columns))
            return texts

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the statements of the block, or roll all of them back."""
        self.java.setAutoCommit(False)
        try:
            yield
            with database_errors(self.of):
                self.java.commit()
        except BaseException:
            with suppress(*java_error_types()):  # the server rolls a broken connection back
                self.java.rollback()
            raise
        finally:
            with suppress(*java_error_types()):
                self.java.setAutoCommit(True)

    def refined(self) -> Dialect:
        """Return the dialect with the collation of the connected server, MySQL or MariaDB.

        Raises
        ------
        TargetError
            When the session changes values without an error.
        """
        if not isinstance(self.dialect, MySql):
            return self.dialect
        zone, mode = self.rows("SELECT @@time_zone, @@sql_mode")[0]
        if zone != "+00:00" or "STRICT_ALL_TABLES" not in str(mode):
            needed = self.dialect.properties["sessionVariables"]
            raise TargetError(
                f"{self.of}: its url or options set the session's variables, so that times are in "
                f"{zone} or values are cut without an error (sql_mode={mode!r}): add {needed} to "
                "these sessionVariables"
            )
        mariadb = "mariadb" in str(self.java.getMetaData().getDatabaseProductVersion()).lower()
        return replace(
            self.dialect, binary_collation="utf8mb4_nopad_bin" if mariadb else "utf8mb4_0900_bin"
        )

    def comment(self, table: str) -> str:
        """Return a table's comment; empty without one."""
        rows = self.rows(self.dialect.comment_of.format(*self.identity(table)))
        return "".join(text or "" for (text,) in rows)

    def columns(self, table: str) -> dict[str, DataType | None] | None:
        """Return a table's columns with their types, or None if the table is missing.

        Only types are known that can silently lose part of a value (`table_spec`). The others are
        None.
        """
        query = f"SELECT * FROM {self.dialect.table(table)} WHERE 1 = 0"
        try:
            described = self.statement.executeQuery(query).getMetaData()
            return {
                described.getColumnName(index): _exact_type(described, index)
                for index in range(1, described.getColumnCount() + 1)
            }
        except java_error_types() as error:
            if _state_and_code(error)[0] == self.dialect.missing_table:
                return None
            raise _target_error(error, self.of) from None

    def spelled(self, table: str, names: Sequence[str]) -> list[str]:
        """Return names with the table's upper and lower case; columns that it knows are not asked."""
        spelled = self._spelled.setdefault(table, {})
        if not {*in_lower(names)} <= spelled.keys():
            spelled.update((name.lower(), name) for name in self.columns(table) or [])
        return [spelled.get(name.lower(), name) for name in names]

    def identity(self, table: str) -> tuple[str, ...]:
        """Return the literals by which queries of the catalog find a table."""
        if isinstance(self.dialect, MySql):
            *schema, name = table.split(".")
            names = [schema[0] if schema else self.java.getCatalog(), name]
        else:
            names = [self.dialect.table(table)]
        return tuple(map(self.dialect.literal, names))

    def unique_indexes(self, table: str) -> list[set[str]]:
        """Return the columns, in lower case, of each unique index that an upsert can use."""
        indexes: dict[str | None, set[str]] = {}
        # Not by the driver's getIndexInfo: PostgreSQL's returns names quoted in part.
        for index, column in self.rows(self.dialect.unique_indexes.format(*self.identity(table))):
            indexes.setdefault(index, set()).add(str(column).lower())
        return list(indexes.values())


def _exact_type(columns: Any, index: int) -> DataType | None:
    """Return the type of a column of integers, decimals or dates; None for others.

    Parameters
    ----------
    columns : java.sql.ResultSetMetaData
    index : int
        From 1.
    """
    kinds = {-6: ByteType(), 5: ShortType(), 4: IntegerType(), -5: LongType(), 91: DateType()}
    number = columns.getColumnType(index)
    if number in (2, 3):  # NUMERIC and DECIMAL
        digits, scale = columns.getPrecision(index), columns.getScale(index)
        # PostgreSQL's NUMERIC without a precision has any number of digits.
        return DecimalType(digits, scale) if 0 < digits <= 38 and 0 <= scale <= digits else None
    return kinds.get(number)


def jdbc_options(table: JdbcTable, dialect: Dialect) -> dict[str, str]:
    """Return the options of Spark's JDBC source and writer for a table."""
    url = table.url
    if url.startswith("jdbc:mariadb:"):
        # Spark uses MySQL's SQL and quotes for this scheme only.
        url = (
            url.replace("jdbc:mariadb:", "jdbc:mysql:", 1)
            + ("&" if "?" in url else "?")
            + "permitMysqlScheme"
        )
    account = {
        name: value
        for name, value in (("user", table.user), ("password", table.password))
        if value is not None
    }
    options = {name: str(value) for name, value in table.options.items()}
    return {
        **dialect.properties,
        "numPartitions": _WRITERS,
        **options,
        **account,
        "url": url,
        "driver": dialect.driver,
        "dbtable": table.table,
    }


@contextmanager
def database_errors(table: JdbcTable) -> Iterator[None]:
    """Raise a database error as a `TargetError`, without the password and without Java's stack.

    Raises
    ------
    TargetError
    """
    try:
        yield
    except spark_error_types() as error:
        raise _target_error(error, table) from None


def _target_error(error: Any, table: JdbcTable) -> TargetError:
    """Return a database error without the password and without Java's stack."""
    state, code = _state_and_code(error)
    if state in _ROLLED_BACK:
        return ConflictError(f"another writer locked rows of {table} at the same time (deadlock)")
    if state == _LOCKED or code == _LOCKED_IN_MYSQL:
        return ConflictError(f"{table} waited for a lock longer than its server allows")
    text = _text(error, table)
    if state[:2] in _NOT_OF_A_TABLE or code in _READ_ONLY:
        return UnavailableError(
            f"{text.rstrip('.')}. Start the query again when its server works: it repeats the "
            "micro-batch"
        )
    return TargetError(text)


def _state_and_code(error: Any) -> tuple[str, int]:
    """Return the SQLSTATE and the server's number of an error; empty and 0 without them.

    A broken connection has a cause that is no error of SQL.
    """
    causes = [each for each in java_causes(error) if is_java(each, "java.sql.SQLException")]
    return (causes[-1].getSQLState() or "", causes[-1].getErrorCode()) if causes else ("", 0)


def _text(error: Any, table: JdbcTable) -> str:
    root = root_cause(error)
    if root is not None:
        text = f"{class_of(root)}: {root.getMessage()}"
    else:
        lines = str(error).splitlines()
        text = ([line for line in lines if "Exception: " in line] or lines)[-1]
    shown = " ".join(text.split())[:500]
    secrets = (
        str(value)
        for name, value in {**table.options, "password": table.password}.items()
        if value and _SECRET.search(name)
    )
    for secret in secrets:
        shown = shown.replace(secret, "***")
    return f"{table}: {shown}"
