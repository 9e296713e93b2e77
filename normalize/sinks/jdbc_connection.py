"""Connections to PostgreSQL, MySQL and MariaDB in Spark's JVM, which need no other client; a Spark Connect session has no such JVM."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError

from .dialects import Dialect, MySql, dialect_of
from .targets import ConflictError, TargetError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType

_SECRET_IN_URL = re.compile(r"(?i)(?:password|passwd|pwd|passphrase)\w*\s*=|//[^/@]*:[^/@]*@")
_SECRET = re.compile("(?i)pass|secret|token|key")
_WRITERS = "8"
"""The default number of connections, and so of tasks that write; `JdbcTable.options` override it."""


@dataclass(frozen=True)
class JdbcTable:
    """A table of PostgreSQL, MySQL or MariaDB, and how to connect to it.

    Parameters
    ----------
    url, table, user, password, options
        As of `JdbcTarget` and `JdbcSource`.
    """

    url: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        kind = type(self).__name__
        if not isinstance(self.url, str) or _SECRET_IN_URL.search(self.url):
            # The text leaves out the url, which contains the secret.
            raise ArgumentError(f"{kind} has a password in its url, where logs and plans may show it: pass password=... instead")
        if not self.url.startswith(("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")):
            raise ArgumentError(f"{kind} has the url {self.url!r}: it must begin with jdbc:postgresql:, jdbc:mysql: or jdbc:mariadb:")
        if not self.table or not all(self.table.split(".")):
            raise ArgumentError(f"{kind} has the table {self.table!r}: write 'table' or 'schema.table'")


@dataclass(frozen=True)
class JdbcConnection:
    """A JDBC connection in Spark's JVM."""

    java: Any
    jvm: Any
    dialect: Dialect
    options: dict[str, str]
    of: JdbcTable

    @classmethod
    @contextmanager
    def open(cls, spark: SparkSession, table: JdbcTable) -> Iterator[JdbcConnection]:
        """Yield a connection that is opened as by Spark's JDBC writer, and close it."""
        jvm: Any = spark._jvm
        dialect = dialect_of(table.url)
        options = jdbc_options(table, dialect)
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


def jdbc_options(table: JdbcTable, dialect: Dialect) -> dict[str, str]:
    """Return the options of Spark's JDBC source and writer for a table."""
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


@contextmanager
def database_errors(table: JdbcTable) -> Iterator[None]:
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


def _text(error: Any, table: JdbcTable) -> str:
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
