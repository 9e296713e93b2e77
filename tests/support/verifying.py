"""Databases whose tables are compared with Delta tables, with a column of each family of types."""

from typing import Any

from pyspark.sql import SparkSession

from normalize import JdbcSource, verify_table
from normalize.tables.writers.jdbc import JdbcConnection
from normalize.verify.verification import Verification
from tests.support.sinking import table_name

COLUMNS = {
    "name": "STRING",
    "price": "DECIMAL(12,3)",
    "f": "FLOAT",
    "d": "DOUBLE",
    "day": "DATE",
    "local": "TIMESTAMP_NTZ",
    "moment": "TIMESTAMP",
    "bin": "BINARY",
    "doc": "STRING",
}
VALUES = (
    "'a'",
    "1.50",
    "1.1",
    "0.1D",
    "DATE'2026-11-24'",
    "TIMESTAMP_NTZ'2026-03-29 02:30:00.123456'",
    "TIMESTAMP'2026-10-25 00:30:00.000001Z'",
    "X'00FF'",
    '\'{"b":[1,2],"a":null}\'',
)
CHANGED = {
    "name": "'A'",
    "price": "1.501",
    "f": "CAST(1.2 AS FLOAT)",
    "d": "0.1000000000000001D",
    "day": "DATE'2026-11-25'",
    "local": "TIMESTAMP_NTZ'2026-03-29 02:30:00.123457'",
    "moment": "TIMESTAMP'2026-10-25 01:30:00.000001Z'",
    "bin": "X'00FE'",
    "doc": '\'{"b":[2,1],"a":null}\'',
}
MARIADB = (
    "id INT PRIMARY KEY, name VARCHAR(20) CHARACTER SET utf8mb4, price DECIMAL(10,2), f FLOAT, d "
    "DOUBLE, day DATE, local DATETIME(6), moment TIMESTAMP(6) NULL, bin VARBINARY(9), doc TEXT "
    "CHARACTER SET utf8mb4"
)
POSTGRES = (
    "id INT PRIMARY KEY, name VARCHAR(20), price NUMERIC(10,2), f REAL, d DOUBLE PRECISION, day "
    "DATE, local TIMESTAMP, moment TIMESTAMPTZ, bin BYTEA, doc JSONB"
)


class Database:
    """A source database."""

    def __init__(self, spark: SparkSession, server: Any, kind: str) -> None:
        self.spark, self.server, self.kind = spark, server, kind

    def run(self, *statements: str) -> None:
        if self.kind == "mariadb":
            self.server.run(*statements)
        else:
            with JdbcConnection.open(self.spark, self.source("pg_class")) as connection:
                for statement in statements:
                    connection.execute(statement)

    def source(self, table: str) -> JdbcSource:
        return JdbcSource(
            self.server.url, table, user=self.server.user, password=self.server.password
        )

    def table(self, rows: int = 3) -> str:
        """Create a table with a column of each family of types; its last row is NULL."""
        name, values = (
            table_name(),
            (
                "'a', 1.5, 1.1, 0.1, '2026-11-24', '2026-03-29 02:30:00.123456', '2026-10-25 "
                "00:30:00.000001"
            ),
        )
        if self.kind == "mariadb":
            values += "', x'00ff', '{\"b\":[1,2],\"a\":null}'"
        else:
            values += "+00', '\\x00ff', '{\"a\": null, \"b\": [1, 2]}'"
        self.run(f"CREATE TABLE {name} ({MARIADB if self.kind == 'mariadb' else POSTGRES})")
        setting = ["SET time_zone = '+00:00'"] if self.kind == "mariadb" else []
        inserts = [f"INSERT INTO {name} VALUES ({number}, {values})" for number in range(1, rows)]
        self.run(*setting, *inserts, f"INSERT INTO {name} (id) VALUES ({rows})")
        return name


def verify(spark: SparkSession, source: JdbcSource, target: Any, **options: Any) -> Verification:
    return verify_table(spark, source, target, **{"max_lag_seconds": 0, **options})


def differences(result: Verification) -> list[tuple[str, str | None, tuple[str, ...]]]:
    return [(each.kind, each.key[0][1], each.columns) for each in result.differences]
