"""Columns of Delta tables: wider than those of the changes, and nested ones that are narrower."""

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from normalize.tables.apply import apply_batch
from tests.support.sinking import NewSink


def test_wider_columns_and_values_that_fit_are_written(
    spark: SparkSession, new_sink: NewSink
) -> None:
    sink = new_sink("delta")
    columns = (
        "id INT, amount DECIMAL(20,4), number INT, approximate FLOAT, at TIMESTAMP, list "
        "ARRAY<BIGINT>"
    )
    sink.execute(f"CREATE TABLE {sink.sql_name} ({columns}) USING delta")
    row = (
        "CAST(1.5 AS DECIMAL(10,2)) AS amount, 7L AS number, 0.5D AS approximate, DATE'2026-01-02' "
        "AS at, array(1) AS list"
    )
    apply_batch(spark.sql(f"SELECT '+I' AS row_kind, 1 AS id, {row}"), sink.table, keys="id")
    assert [str(value) for value in sink.rows("amount", "number", "approximate")[0]] == [
        "1.5000",
        "7",
        "0.5",
    ]


def test_nested_column_that_would_be_cut(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("delta")
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT, list ARRAY<INT>) USING delta")
    changes = spark.sql("SELECT '+I' AS row_kind, 1 AS id, array(1.5D) AS list")
    with pytest.raises(
        SchemaError,
        match=(
            "the column `list` as ARRAY<INT>, which cuts values of ARRAY<DOUBLE>: convert the "
            "column to"
        ),
    ):
        apply_batch(changes, sink.table, keys="id")
