"""Tables whose columns are narrower than those of the changes: no value is cut silently, and the error's statement widens the column."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted
from normalize import JdbcTarget, apply_batch
from tests.support.sinking import Sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NewSink = Callable[[str], Sink]
CASES = [
    # the table's type, the type of the changes, a value, whether Delta can widen the column
    ("DECIMAL(10,2)", "DECIMAL(8,4)", "1.2345", True),
    ("INT", "DECIMAL(10,2)", "1.25", True),
    ("INT", "DOUBLE", "1.25", True),
    ("DATE", "TIMESTAMP_NTZ", "2026-01-02 03:04:05", True),
    ("DATE", "TIMESTAMP", "2026-01-02 03:04:05", False),
]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_statement_of_the_error_widens_the_column(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    quoted = {"postgresql": '"Va""l"', "mariadb": "`Va``l`"}.get(kind, "Val")
    column = {"postgresql": 'Va"l', "mariadb": "Va`l"}.get(kind, "val")
    for old, given, value, widens in CASES:
        sink = new_sink(kind)
        key, using = ("INT PRIMARY KEY", "") if isinstance(sink.table, JdbcTarget) else ("INT", f"USING {kind}")
        sink.execute(f"CREATE TABLE {sink.sql_name} (id {key}, {quoted} {old}) {using}")
        changes = spark.sql(f"SELECT '+I' AS row_kind, 1 AS id, CAST('{value}' AS {given}) AS {backquoted(column)}")
        with pytest.raises(SchemaError, match=rf"as {re.escape(old)}, which cuts values of {re.escape(given)}: ") as error:
            apply_batch(changes, sink.table, keys="id")
        found = re.search("run (.*), or convert the column to", str(error.value))
        if kind == "iceberg" or (kind == "delta" and not widens):
            assert found is None
            continue
        assert found is not None
        for statement in found[1].split("; "):
            sink.execute(statement)
        apply_batch(changes, sink.table, keys="id")
        assert [row[0] for row in sink.read().select(backquoted(column)).collect()] == [changes.collect()[0][2]], (old, given)
