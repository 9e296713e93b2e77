"""`JdbcSource`, and tables of PostgreSQL, MySQL and MariaDB, read with Spark's JDBC source.

Dates, times and types that Spark does not have are selected as text, and Spark converts the text:
JDBC drivers shift dates and times by the JVM's time zone.

PostgreSQL: a transaction exports its snapshot (``pg_export_snapshot``), and the connection of every
task imports it. So all tasks read the same rows. No statement returns a snapshot together with its
position. `_postgres_snapshot` explains which position is reported.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import cast

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cdc_formats.values.key_range import KeyRange
from cdc_formats.values.schema import backquoted
from normalize.tables.expressions import columns_of_comment
from normalize.tables.targets import TargetError
from normalize.tables.writers.dialects import MySql
from normalize.tables.writers.jdbc import JdbcConnection, JdbcTable, database_errors

from .chunk import DatabaseColumn, Where
from .comparison import Snapshot

_FETCH_ROWS = "10000"
_BLOCKS_PER_TASK = 4_000
"""32 MB of a PostgreSQL table."""
_ATTEMPTS, _PAUSE = 20, 0.05
"""How often a quiet moment is sought for the position of a snapshot, and the seconds in between."""

_POSTGRES_COLUMNS = """
SELECT a.attname, format_type(a.atttypid, NULL), format_type(a.atttypid, a.atttypmod),
       CAST(array_position(CAST(i.indkey AS int2[]), a.attnum) AS text)
FROM pg_attribute AS a LEFT JOIN pg_index AS i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = CAST({} AS regclass) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_MYSQL_COLUMNS = """
SELECT c.column_name, c.data_type, c.column_type, s.seq_in_index
FROM information_schema.columns AS c LEFT JOIN information_schema.statistics AS s ON s.table_schema = c.table_schema
 AND s.table_name = c.table_name AND s.column_name = c.column_name AND s.index_name = 'PRIMARY'
WHERE c.table_schema = {} AND c.table_name = {} ORDER BY c.ordinal_position
"""
_POSTGRES_TYPES = {
    "boolean": ("{0}", "BOOLEAN"),
    "bytea": ("{0}", "BINARY"),
    "real": ("{0}", "FLOAT"),
    "double precision": ("{0}", "DOUBLE"),
    "smallint": ("{0}", "SMALLINT"),
    "integer": ("{0}", "INT"),
    "bigint": ("{0}", "BIGINT"),
    "date": ("CAST({0} AS text)", "DATE"),
    "timestamp without time zone": ("CAST({0} AS text)", "TIMESTAMP_NTZ"),
    "timestamp with time zone": ("CAST({0} AT TIME ZONE 'UTC' AS text)", "TIMESTAMP_NTZ"),
}
_MYSQL_TYPES = {
    "float": ("CAST({0} AS DOUBLE)", "FLOAT"),  # as text it has six digits
    "double": ("{0}", "DOUBLE"),
    "bit": ("CAST({0} AS UNSIGNED)", "DECIMAL(20,0)"),
    "year": ("CAST({0} AS UNSIGNED)", "BIGINT"),
    "date": ("CAST({0} AS CHAR)", "DATE"),
    **dict.fromkeys(("datetime", "timestamp"), ("CAST({0} AS CHAR)", "TIMESTAMP_NTZ")),
    **dict.fromkeys(
        ("tinyint", "smallint", "mediumint", "int", "bigint"), ("CAST({0} AS SIGNED)", "BIGINT")
    ),
    **dict.fromkeys(
        ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), ("{0}", "BINARY")
    ),
}
_IN_SPARK = {
    # A time that Spark does not have (infinity, BC) becomes one that no row has, and not NULL:
    # another for each text.
    "DATE": (
        "CASE WHEN {0} IS NOT NULL THEN coalesce(try_cast({0} AS DATE), "
        "date_from_unix_date(CAST(2147483647 - pmod(xxhash64({0}), 1000000L) AS INT))) END"
    ),
    "TIMESTAMP_NTZ": (
        "CASE WHEN {0} IS NOT NULL THEN coalesce(try_cast({0} AS TIMESTAMP_NTZ), "
        "TIMESTAMP_NTZ'+294247-01-10 04:00:54' - make_dt_interval(0, 0, 0, pmod(xxhash64({0}), "
        "1000000000L) * 0.000001BD)) END"
    ),
}


@dataclass(frozen=True)
class DatabaseTable:
    """A table of PostgreSQL, MySQL or MariaDB."""

    spark: SparkSession
    target: JdbcTable

    # A database has no property of a table.
    deleted_column: str | None = None

    @property
    def name(self) -> str:
        return self.target.table

    @property
    def schema(self) -> StructType:
        columns = (f"{backquoted(each.name)} {each.spark_type}" for each in self.columns)
        return cast(StructType, StructType.fromDDL(", ".join(columns)))

    @property
    def primary_key(self) -> tuple[str, ...]:
        return self._described[1]

    @property
    def json_columns(self) -> frozenset[str]:
        return frozenset(column.name for column in self.columns if column.kind in ("json", "jsonb"))

    @cached_property
    def computed_columns(self) -> frozenset[str]:
        with JdbcConnection.open(self.spark, self.target) as connection:
            return columns_of_comment(connection.comment(self.target.table))

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        with JdbcConnection.open(self.spark, self.target) as connection:
            if isinstance(connection.dialect, MySql):
                # One statement of one task: MySQL's connections cannot share a snapshot.
                yield Snapshot(self._rows(connection, "", {}, []), "")
            else:
                with _postgres_snapshot(connection) as (statement, position):
                    yield Snapshot(
                        self._rows(
                            connection,
                            "",
                            {"sessionInitStatement": statement},
                            self._blocks(connection),
                        ),
                        position,
                    )

    def current(self, names: Sequence[str], where: Where) -> Snapshot:
        columns = [self.column(name) for name in names]
        with JdbcConnection.open(self.spark, self.target) as connection:
            condition = f" WHERE {where(connection.dialect, columns)}"
            return Snapshot(self._rows(connection, condition, {}, []), _position(connection))

    def column(self, name: str) -> DatabaseColumn:
        return next(column for column in self.columns if column.name == name)

    @property
    def columns(self) -> tuple[DatabaseColumn, ...]:
        return self._described[0]

    @property
    def exists(self) -> bool:
        with JdbcConnection.open(self.spark, self.target) as connection:
            return connection.columns(self.target.table) is not None

    @cached_property
    def _described(self) -> tuple[tuple[DatabaseColumn, ...], tuple[str, ...]]:
        """The columns and the primary key."""
        if not self.exists:
            raise TargetError(f"{self.target} does not exist")
        with JdbcConnection.open(self.spark, self.target) as connection:
            dialect, column, query = connection.dialect, _postgres_column, _POSTGRES_COLUMNS
            if isinstance(dialect, MySql):
                column, query = mysql_column, _MYSQL_COLUMNS
            described = connection.rows(query.format(*connection.identity(self.target.table)))
            columns = [column(dialect.name(str(row[0])), *map(str, row[:3])) for row in described]
        key = sorted(
            (int(number), str(name)) for name, _, _, number in described if number is not None
        )
        return tuple(columns), tuple(name for _, name in key)

    def _rows(
        self, connection: JdbcConnection, where: str, options: dict[str, str], predicates: list[str]
    ) -> DataFrame:
        selected = [f"{column.selected} AS c{index}" for index, column in enumerate(self.columns)]
        extra = ["ctid"] if predicates else []
        query = (
            f"(SELECT {', '.join([*selected, *extra])} FROM "
            f"{connection.dialect.table(self.target.table)}{where}) AS t"
        )
        properties = {
            name: value
            for name, value in connection.options.items()
            if name not in ("url", "dbtable", "numPartitions")
        }
        properties |= {"fetchsize": _FETCH_ROWS, **options}
        with database_errors(self.target):
            rows = self.spark.read.jdbc(
                connection.options["url"],
                query,
                predicates=predicates or ["TRUE"],
                properties=properties,
            )
        typed = [
            _IN_SPARK.get(column.spark_type, f"CAST({{0}} AS {column.spark_type})")
            for column in self.columns
        ]
        named = enumerate(zip(typed, self.columns, strict=True))
        return rows.selectExpr(
            *(
                f"{value.format(f'c{index}')} AS {backquoted(column.name)}"
                for index, (value, column) in named
            )
        )

    def _blocks(self, connection: JdbcConnection) -> list[str]:
        """Return the conditions that split a PostgreSQL table into block ranges, one per task."""
        (table,) = connection.identity(self.target.table)
        blocks = (
            connection.number(f"SELECT pg_relation_size(CAST({table} AS regclass)) / 8192") or 0
        )
        # No row has the number 0 of a block.
        firsts = ((str(block),) for block in range(_BLOCKS_PER_TASK, blocks, _BLOCKS_PER_TASK))
        return [
            KeyRange(*each).condition(["ctid"], lambda key: [f"'({key[0]},0)'"])
            for each in pairwise([None, *firsts, None])
        ]


def _postgres_column(quoted: str, name: str, kind: str, full: str) -> DatabaseColumn:
    decimal = re.fullmatch(r"numeric\((\d+),(\d+)\)", full)
    if decimal and int(decimal[2]) <= int(decimal[1]) <= 38:
        return DatabaseColumn(name, kind, full, quoted, f"DECIMAL({decimal[1]},{decimal[2]})")
    selected, spark_type = _POSTGRES_TYPES.get(kind, ("CAST({0} AS text)", "STRING"))
    return DatabaseColumn(name, kind, full, selected.format(quoted), spark_type)


def mysql_column(quoted: str, name: str, kind: str, full: str) -> DatabaseColumn:
    """Return a column of MySQL or MariaDB; `quoted` is its name in SQL."""
    decimal = re.match(r"decimal\((\d+),(\d+)\)", full)
    if decimal and int(decimal[1]) <= 38:
        return DatabaseColumn(name, kind, full, quoted, f"DECIMAL({decimal[1]},{decimal[2]})")
    selected, spark_type = _MYSQL_TYPES.get(kind, ("CAST({0} AS CHAR)", "STRING"))
    if kind == "bit" and full != "bit(1)":
        selected, spark_type = "CAST({0} AS BINARY)", "BINARY"  # as the capture reads it
    if "unsigned" in full and spark_type == "BIGINT":
        selected, spark_type = "CAST({0} AS UNSIGNED)", "DECIMAL(20,0)"
    return DatabaseColumn(name, kind, full, selected.format(quoted), spark_type)


# --------------------------------------------------------------------------------------------------
# PostgreSQL's snapshot


@contextmanager
def _postgres_snapshot(connection: JdbcConnection) -> Iterator[tuple[str, str]]:
    """Yield the statement that imports a snapshot, and the snapshot's position.

    The server first writes a commit to its log and then makes it visible. So of a snapshot it is
    known:

    - every visible transaction is before the end of the log *after* the snapshot;
    - if no transaction was running, every transaction before the end of the log *before* the
      snapshot is visible.

    If the two ends are equal, that is the exact position. Otherwise another attempt follows; the
    last one returns both ends. A standby makes transactions visible before it notes their position,
    so that its position is approximate.
    """
    ((is_standby,),) = connection.rows("SELECT CAST(pg_is_in_recovery() AS text)")
    for attempt in range(_ATTEMPTS):
        first = _position(connection)
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            ((name, running),) = connection.rows(
                "SELECT pg_export_snapshot(), CAST(txid_current_snapshot() AS text)"
            )
            last = _position(connection)
            is_exact = first == last and str(running).endswith(":")
            if is_exact or is_standby == "true" or attempt == _ATTEMPTS - 1:
                statement = (
                    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION "
                    f"SNAPSHOT '{name}'"
                )
                yield (
                    statement,
                    f"about {last}"
                    if is_standby == "true"
                    else first
                    if is_exact
                    else f"{first} to {last}",
                )
                return
        time.sleep(_PAUSE)


def _position(connection: JdbcConnection) -> str:
    """Return the end of PostgreSQL's log; empty for MySQL, whose source is not read with JDBC."""
    if isinstance(connection.dialect, MySql):
        return ""
    at_end = (
        "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE "
        "pg_current_wal_insert_lsn() END"
    )
    return str(connection.rows(f"SELECT CAST({at_end} AS text)")[0][0])


# --------------------------------------------------------------------------------------------------
# The source table of a comparison.


@dataclass(frozen=True)
class JdbcSource(JdbcTable):
    """A source table of PostgreSQL, MySQL or MariaDB.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://host:5432/database``, ``jdbc:mysql://host:3306/database`` or
        ``jdbc:mariadb://...``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
        The password never appears in reprs, plans or errors.
    options : mapping
        PostgreSQL: options of the JDBC driver (``sslmode``, ...). MySQL and MariaDB: options of
        ``mysql-changelog`` (``ssl.ca``, ...). They may contain secrets, and so are not shown.
    """
