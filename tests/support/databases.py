"""Messages of several tables, and targets that hold several tables."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from pyspark.sql import SparkSession

from normalize import DeltaDatabase, DeltaTarget, IcebergDatabase, JdbcDatabase, JdbcTarget
from normalize.tables.database_target import Database
from normalize.tables.writers.delta import is_path
from normalize.tables.writers.dialects import dialect_of
from normalize.tables.writers.jdbc import JdbcConnection, jdbc_options

from .delta_files import delta_rows
from .json_bytes import json_bytes

Message = tuple[bytes | None, bytes | None]
Row = Mapping[str, Any]

RECORDS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("stamp", pa.int64()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)
"""The columns of routed records (`route.RECORD_DDL`)."""


def maxwell(
    table: str, kind: str, row: Row, old: Row | None = None, database: str = "shop"
) -> Message:
    """A message of Maxwell: ``insert``, ``update`` or ``delete``, with ``id`` as the key."""
    message = {"database": database, "table": table, "type": kind, "ts": 1, "data": row} | (
        {} if old is None else {"old": old}
    )
    return json_bytes({"database": database, "table": table, "pk.id": row["id"]}), json_bytes(
        message
    )


def canal(table: str, kind: str, row: Row, types: Mapping[str, str]) -> Message:
    """A message of Canal, whose values are text and whose types are MySQL's."""
    data = {name: None if value is None else str(value) for name, value in row.items()}
    event = {"database": "shop", "table": table, "type": kind, "isDdl": False}
    return None, json_bytes({**event, "data": [data], "pkNames": ["id"], "mysqlType": dict(types)})


def debezium(
    table: str,
    op: str,
    before: Row | None,
    after: Row | None,
    types: Mapping[str, str | Mapping[str, Any]] | None = None,
    comments: Mapping[str, str] | None = None,
) -> Message:
    """A message of Debezium's MySQL connector; with Connect's types, in a schema block.

    A type is its name, or has its parameters too. The block has comments of columns with ``include.schema.comments=true``.
    """
    source = {"connector": "mysql", "db": "shop", "table": table, "ts_ms": 1}
    payload = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
    key = {"id": (after or before or {})["id"]}
    if types is None:
        return json_bytes(key), json_bytes(payload)
    docs = comments or {}
    rows: list[dict[str, Any]] = [
        {
            **({"type": kind} if isinstance(kind, str) else kind),
            **({"doc": docs[name]} if name in docs else {}),
            "field": name,
            "optional": name != "id",
        }
        for name, kind in types.items()
    ]
    images = [
        {"type": "struct", "fields": rows, "optional": True, "field": image}
        for image in ("before", "after")
    ]
    block = {
        "type": "struct",
        "fields": [*images, {"type": "string", "field": "op", "optional": False}],
        "optional": False,
    }
    key_block = {
        "type": "struct",
        "fields": [{"type": types["id"], "field": "id", "optional": False}],
        "optional": False,
    }
    return json_bytes({"schema": key_block, "payload": key}), json_bytes(
        {"schema": block, "payload": payload}
    )


@dataclass
class Tables:
    """A target that holds several tables."""

    spark: SparkSession
    database: Database

    def types(self, table: str) -> dict[str, str]:
        """The types of a table's columns in Delta or Iceberg."""
        target = self.database.target(table)
        return {
            field.name: field.dataType.simpleString()
            for field in self.spark.table(target.sql_name).schema.fields
        }

    def execute(self, statement: str) -> None:
        """Run a statement in the database, or in Spark for Delta and Iceberg."""
        target = self.database.target("any")
        if isinstance(target, JdbcTarget):
            with JdbcConnection.open(self.spark, target) as connection:
                connection.execute(statement)
        else:
            self.spark.sql(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table without NULLs, sorted."""
        target = self.database.target(table)
        if isinstance(target, DeltaTarget) and is_path(target.name):
            rows = delta_rows(Path(target.name))
            if rows is not None:
                return sorted_rows(rows)
        return self.rows_by_spark(table)

    def rows_by_spark(self, table: str) -> list[dict[str, Any]]:
        """The same rows, as Spark reads them."""
        target = self.database.target(table)
        if isinstance(target, JdbcTarget):
            dialect = dialect_of(target.url)
            options = jdbc_options(target, dialect) | {"dbtable": dialect.table(target.table)}
            frame = self.spark.read.format("jdbc").options(**options).load()
        else:
            frame = self.spark.table(target.sql_name)
        return sorted_rows(row.asDict() for row in frame.collect())


def sorted_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows without NULLs, sorted."""
    there = [{name: value for name, value in row.items() if value is not None} for row in rows]
    return sorted(there, key=repr)


def new_tables(spark: SparkSession, kind: str, folder: Path, server: Any = None) -> Tables:
    """Tables that do not exist yet, of a kind."""
    unique = uuid4().hex[:8]
    if kind == "delta":
        lake = DeltaDatabase(str(folder / "lake"), writer="spark", on_question="guess")
        return Tables(spark, lake)
    if kind == "delta-rs":
        return Tables(spark, DeltaDatabase(str(folder / "lake"), on_question="guess"))
    if kind == "iceberg":
        return Tables(spark, IcebergDatabase(f"lake.d{unique}", on_question="guess"))
    database = JdbcDatabase(
        server.url,
        table=f"{{table}}_{unique}",
        user=server.user,
        password=server.password,
        on_question="guess",
    )
    return Tables(spark, database)
