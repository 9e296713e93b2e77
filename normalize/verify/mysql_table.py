"""MySQL and MariaDB tables, read with ``capture`` at one exact binary log position, without locks.

Tasks select chunks of the table and roll back the changes since the position with the log's
before-images (`capture.chunk`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, cast

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from capture.chunk import current_rows
from capture.options import CaptureOptions, read_options
from capture.rows import METADATA, ROW_KIND, spark_ddl
from capture.server import run_query
from capture.source import ChangelogReader, ReadAllAvailable, arrow_schema
from capture.table import Table, TableId, read_table
from cdc_formats.values.schema import backquoted
from normalize.tables.writers.dialects import MySql

from .chunk import Where
from .comparison import Snapshot
from .database_table import mysql_column


@dataclass(frozen=True)
class MySqlTable:
    """A table of MySQL or MariaDB with a binary log."""

    spark: SparkSession
    options: CaptureOptions

    @classmethod
    def of(cls, spark: SparkSession, options: Mapping[str, str]) -> MySqlTable:
        """Return the table with options of ``mysql-changelog``."""
        defaults = {"scan.snapshot.parallelism": str(spark.sparkContext.defaultParallelism)}
        return cls(spark, read_options({**defaults, **options, "scan.startup.mode": "snapshot"}))

    @property
    def name(self) -> str:
        return f"{self.options.database}.{self.options.table}"

    @property
    def schema(self) -> StructType:
        return StructType(
            [
                field
                for field in self._changelog_schema.fields
                if field.name not in (ROW_KIND, *METADATA)
            ]
        )

    @property
    def primary_key(self) -> tuple[str, ...]:
        return tuple(self._table.columns[index].name for index in self._table.primary_key)

    @property
    def json_columns(self) -> frozenset[str]:
        return frozenset(
            column.name for column in self._table.columns if column.data_type == "json"
        )

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        schema = arrow_schema(self._changelog_schema)
        reader = ChangelogReader(self.options, schema)
        try:
            start = reader.initialOffset()
            end = reader.latestOffset(start, ReadAllAvailable())
            partitions = reader.partitions(start, end)
        finally:
            reader.stop()
        tasks = self.spark.range(0, len(partitions), 1, len(partitions))
        rows = tasks.mapInArrow(
            partial(_read_pass, options=self.options, schema=schema, partitions=partitions),
            self._changelog_schema,
        )
        yield Snapshot(rows.drop(ROW_KIND, *METADATA), f"{end['file']}:{end['pos']}")

    def current(self, names: Sequence[str], where: Where) -> Snapshot:
        columns = [
            mysql_column(backquoted(name), name, column.data_type, column.column_type)
            for name in names
            for column in self._table.columns
            if column.name == name
        ]
        read = partial(
            current_rows,
            options=self.options,
            table=self._table,
            condition=where(MySql(), columns),
        )
        rows, position = run_query(self.options, read)
        return Snapshot(self.spark.createDataFrame(rows, self.schema), str(position))

    @cached_property
    def _table(self) -> Table:
        of = TableId(self.options.database, self.options.table)
        return run_query(self.options, lambda server: read_table(server, self.options, of))

    @cached_property
    def _changelog_schema(self) -> StructType:
        return cast(StructType, StructType.fromDDL(spark_ddl(self._table)))


def _read_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    options: CaptureOptions,
    schema: pa.Schema,
    partitions: Sequence[Any],
) -> Iterator[pa.RecordBatch]:
    """Read the partition whose number is the task's only row; for ``mapInArrow``."""
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from ChangelogReader(options, schema).read(partitions[number])
