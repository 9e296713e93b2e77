"""Five tables of a real MariaDB, from binlog to Delta, compared with it by `verify_table`."""

import random
import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize import (
    DeltaDatabase,
    DeltaTarget,
    JdbcSource,
    LocalKafka,
    sync_database,
    verify_table,
)
from tests.support.debezium_source import DebeziumSource
from tests.support.servers.local_source import LocalSource

TABLES = {
    "customers": "id INT PRIMARY KEY, name VARCHAR(40) CHARACTER SET utf8mb4, since DATE",
    "products": (
        "sku VARCHAR(10) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY, price DECIMAL(10,"
        "2), weight DOUBLE"
    ),
    "orders": "id BIGINT PRIMARY KEY, customer INT, at DATETIME(6)",
    "order_lines": (
        "id BIGINT PRIMARY KEY, order_id BIGINT, sku VARCHAR(10) CHARACTER SET utf8mb4, quantity "
        "INT"
    ),
    "payments": "id INT PRIMARY KEY, order_id BIGINT, amount DECIMAL(12,4)",
}
KEYS = {table: columns.split()[0] for table, columns in TABLES.items()}
ADDED = {
    "customers": "city VARCHAR(20) CHARACTER SET utf8mb4",
    "products": "stock INT",
    "orders": "total DECIMAL(14,2)",
    "order_lines": "note VARCHAR(20) CHARACTER SET utf8mb4 FIRST",
    "payments": "paid DATETIME(3)",
}


class Shop:
    """Writes random changes to the tables."""

    def __init__(self, source: LocalSource) -> None:
        self.source, self.random = source, random.Random(5)
        source.run(*(f"CREATE TABLE {table} ({columns})" for table, columns in TABLES.items()))
        self.columns = {
            table: dict(
                each.strip().split(" ", 1) for each in re.split(r", (?=\w+ [A-Z])", columns)
            )
            for table, columns in TABLES.items()
        }

    def alter(self) -> None:
        for table, column in ADDED.items():
            self.source.run(f"ALTER TABLE {table} ADD COLUMN {column}")
            name, kind = column.removesuffix(" FIRST").split(" ", 1)
            self.columns[table][name] = kind

    def value(self, kind: str) -> str:
        """Return a value as SQL."""
        number = self.random.randrange(-500, 500)
        if self.random.random() < 0.1:
            return "NULL"
        if "CHAR" in kind:
            return f"'{self.random.choice(['', 'a', 'É', '🚲', 'NULL'])}{number}'"
        if "DATE" in kind:
            return f"'2026-{self.random.randrange(1, 13):02}-{self.random.randrange(1, 29):02}{' 02:30:00.123' if 'TIME' in kind else ''}'"
        return str(number / 4 if "INT" not in kind else number)

    def write(self, changes: int) -> None:
        """Write this many changes in one connection."""
        self.source.run(*(self.change() for _ in range(changes)))

    def change(self) -> str:
        """Return a change as SQL."""
        table = self.random.choice(list(TABLES))
        key, number = KEYS[table], self.random.randrange(1, 30)
        values = {name: self.value(kind) for name, kind in self.columns[table].items()} | {
            key: f"'{number}'"
        }
        if self.random.random() < 0.2:
            return f"DELETE FROM {table} WHERE {key} = '{number}'"
        if self.random.random() < 0.1:
            return (
                f"UPDATE IGNORE {table} SET {key} = '{self.random.randrange(1, 30)}' WHERE "
                f"{key} = '{number}'"
            )
        update = ", ".join(f"{name} = VALUES({name})" for name in values)
        return (
            f"INSERT INTO {table} ({', '.join(values)}) VALUES "
            f"({', '.join(values.values())}) ON DUPLICATE KEY UPDATE {update}"
        )


@pytest.mark.cross_section
def test_five_tables_equal_their_source_after_alter_table(
    spark: SparkSession, kafka: LocalKafka, source: LocalSource, tmp_path: Path
) -> None:
    shop = Shop(source)
    shop.write(100)
    changes = DebeziumSource(source, KEYS)
    prefix = f"verified.{tmp_path.name}"
    for table in TABLES:
        kafka.create_topic(f"{prefix}.{table}")

    def produce() -> None:
        for table, messages in changes.messages().items():
            kafka.produce(f"{prefix}.{table}", messages)

    produce()
    writer = sync_database(
        spark,
        re.compile(f"{re.escape(prefix)}[.].*"),
        format="debezium-json",
        format_options={"schema_include": True},
        target=DeltaDatabase(str(tmp_path / "lake"), only_writer=True),
        schema_location=str(tmp_path / "schemas"),
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
    )
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        query.processAllAvailable()
        shop.write(60)
        produce()
        shop.alter()
        changes.restart()
        shop.write(100)
        produce()
        query.processAllAvailable()
        for table in TABLES:
            server = JdbcSource(source.url, table, user=source.user, password=source.password)
            result = verify_table(
                spark, server, DeltaTarget(str(tmp_path / "lake" / table)), max_lag_seconds=0
            )
            assert result.equal, f"{table}: {result}"
            assert result.source_rows > 5
            assert (
                ADDED[table].split()[0]
                in spark.read.format("delta").load(str(tmp_path / "lake" / table)).columns
            )
    finally:
        query.stop()
