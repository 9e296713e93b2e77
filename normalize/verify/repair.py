"""Repairs the keys that differ: merges the source's rows, or asks Debezium to read them again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructField

from cdc_formats.errors import refuse
from cdc_formats.values.key_range import Key
from cdc_formats.values.schema import backquoted
from normalize.change_feed import CHANGE_TYPE
from normalize.core.output import ROW_KIND
from normalize.spark.plans import computed, count
from normalize.tables.apply import apply_batch
from normalize.tables.table_options import DELETED_AT
from normalize.tables.table_spec import START_AT
from normalize.tables.targets import TableTarget
from normalize.tables.writers.jdbc import JdbcConnection

from .canonical import ROW, as_copied
from .chunk import listed
from .comparison import Comparison
from .database_table import DatabaseTable, JdbcSource
from .verification import Kind

_ORDER = "__repair_order"


@dataclass(frozen=True)
class DebeziumSignal:
    """Debezium's ``execute-snapshot``, which reads the rows of some keys again.

    Pass ``repair=DebeziumSignal("shop.debezium_signal")``.

    The user of the `JdbcSource` must be allowed to insert into the signal table. The session needs
    the database's JDBC driver.

    Parameters
    ----------
    table : str
        The connector's ``signal.data.collection``, as ``table`` or ``schema.table`` of the source
        database.
    collection : str or None
        The source table as Debezium names it; by default ``schema.table`` for PostgreSQL (the
        schema ``public`` if the source names none), and ``database.table`` for MySQL and MariaDB.

    Notes
    -----
    A snapshot has the rows that exist: keys that only the target has are not repaired, and are not
    in the signal.
    """

    table: str
    collection: str | None = None

    def send(
        self,
        spark: SparkSession,
        source: JdbcSource,
        keys: Sequence[str],
        kinds: Mapping[Key, Kind],
    ) -> int:
        """Insert the signal, and return the number of its keys.

        Parameters
        ----------
        spark : SparkSession
        source : JdbcSource
        keys : sequence of str
            The key columns.
        kinds : mapping
            How each key differs.

        Raises
        ------
        TargetError
            When the database refuses the signal.
        """
        existing = [key for key, kind in kinds.items() if kind != "extra"]
        if not existing:
            return 0
        address = urlsplit(source.url.removeprefix("jdbc:"))
        schema = "public" if address.scheme == "postgresql" else address.path.strip("/")
        prefix = "" if "." in source.table else f"{schema}."
        collection = self.collection or prefix + source.table
        with JdbcConnection.open(spark, source) as connection:
            table = DatabaseTable(spark, source)
            columns = [table.column(name) for name in keys]
            condition = listed(connection.dialect, columns, keys=existing)
            data = {
                "type": "incremental",
                "data-collections": [collection],
                "additional-conditions": [{"data-collection": collection, "filter": condition}],
            }
            literals = map(
                connection.dialect.literal, (str(uuid4()), "execute-snapshot", json.dumps(data))
            )
            connection.execute(
                f"INSERT INTO {connection.dialect.table(self.table)} VALUES ({', '.join(literals)})"
            )
        return len(existing)


def write_rows(
    rows: DataFrame,
    target: TableTarget | str,
    keys: Sequence[str],
    columns: Sequence[str],
    deleted: str | None,
) -> None:
    """Write columns of rows with ``row_kind``, one for each key, to a table that exists.

    Parameters
    ----------
    rows : DataFrame
    target : TableTarget or str
    keys, columns : sequence of str
    deleted : str or None
        The column of soft deletes; None: rows are deleted.
    """
    apply_batch(
        rows.withColumn(_ORDER, F.lit(0)),  # a key has one row: any order is right
        target,
        keys=keys,
        order_by=_ORDER,
        deletes="soft" if deleted else "hard",
        deleted_column=deleted or DELETED_AT,
        column_list=columns,
        create=False,
    )


def check_repair(repair: Any, comparison: Comparison) -> None:
    """Raise an error for a repair that cannot be made.

    Raises
    ------
    ArgumentError
        When the repair is unknown, or the target has other rows or values than the source by
        design.
    """
    if isinstance(repair, DebeziumSignal):
        return
    target, fields = comparison.target, comparison.target.schema.fields
    names = {field.name.lower() for field in fields}
    kinds = ((START_AT, "a history"), (CHANGE_TYPE, "a change feed"))
    refuse(
        (repair != "merge", f"repair is {repair!r}: pass 'merge', DebeziumSignal(...) or None"),
        (
            comparison.target_where,
            "repair='merge' and target_where cannot be combined: the target's other rows would be "
            "replaced, too. For soft deletes, pass deleted_column",
        ),
        *(
            (
                name.lower() in names,
                f"repair='merge' would overwrite other rows of a key, since {target.name} is "
                f"{kind}, with the column {name}: remove repair, or pass a DebeziumSignal",
            )
            for name, kind in kinds
        ),
        *(
            (
                field.name in comparison.not_compared and is_time(field),
                f"repair='merge' would delete rows for good, and {target.name} has the column "
                f"{backquoted(field.name)}, which the source lacks: pass deleted_column="
                f"{field.name!r} if it has the time of soft deletes, or deleted_column='' if the "
                "target has hard deletes",
            )
            for field in fields
            if comparison.deleted_column is None
        ),
        *(
            (
                column.masks is not None,
                f"repair='merge' would write the source's values of {backquoted(column.name)}, of "
                "which the target has masks: exclude the column, or pass a DebeziumSignal",
            )
            for column in comparison.columns
        ),
    )


def is_time(field: StructField) -> bool:
    """Return whether a column may have the time of soft deletes; databases have it without zone."""
    return field.dataType.simpleString() in ("timestamp", "timestamp_ntz")


def merge_source_rows(
    comparison: Comparison, target: TableTarget | str, kinds: Mapping[Key, Kind]
) -> None:
    """Write the source's rows of some keys to the target; delete those the source lacks.

    Parameters
    ----------
    comparison : Comparison
    target : TableTarget or str
    kinds : mapping
        How each key differs. A key with NULL is left: a table cannot be merged by it.

    With soft deletes, rows that the source lacks stay, with the time of the repair. The column with
    the positions of rows is not written.

    Raises
    ------
    TargetError, ConflictError
        As `apply_batch`.
    """
    keys = [key for key in kinds if None not in key]
    duplicates = [key for key in keys if kinds[key] == "duplicate"]
    key_texts = [f"k{index}" for index in range(len(comparison.keys))]
    columns = [column.target_name for column in comparison.columns]

    def changes(rows: DataFrame, kind: str) -> DataFrame:
        row = rows.select(f"{ROW}.*")
        values = as_copied(row.schema.fields, comparison.target.schema.fields, columns)
        return row.selectExpr(f"'{kind}' AS {ROW_KIND}", *values)

    def deletes(rows: DataFrame) -> DataFrame:
        return changes(rows.dropDuplicates(key_texts), "-D")

    def write(rows: DataFrame, deleted: str | None = None) -> None:
        write_rows(rows, target, comparison.target_keys, columns, deleted)

    if duplicates:
        # A MERGE keeps all rows of a key. The source has this key: it is no soft delete.
        write(deletes(comparison.rows_of_keys(duplicates, of_target=True)[0]))
    if not keys:
        return
    # Read once: a key must not be in two states of the source.
    with computed(comparison.rows_of_keys(keys, of_target=False)[0], count) as (source, _):
        extra = comparison.rows_of_keys(keys, of_target=True)[0].join(
            source.select(*key_texts), key_texts, "left_anti"
        )
        rows = changes(source, "+U")
        write(rows.unionByName(deletes(extra)), comparison.deleted_column)
