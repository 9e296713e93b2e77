"""Invalid arguments are refused at the call, and secrets are not shown."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import (
    DeltaTarget,
    IcebergTarget,
    apply_changes,
)
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from tests.support.sinking import NewSink, changelog


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, r"keys is missing: pass keys=\[...\]"),
        ({"keys": "no"}, "keys has 'no', which is not one of the columns to write: id, v"),
        (
            {"keys": "id", "column_list": ["v"]},
            "keys has 'id', which is not one of the columns to write: v",
        ),
        ({"keys": "id", "order_by": "no"}, "the DataFrame has no column 'no'; it has id, v"),
        ({"keys": "id", "scd_type": 3}, "scd_type=3 is unknown: pass 1 or 2"),
        ({"keys": "id", "scd_type": 2}, "sequence_by is missing, which scd_type=2 requires"),
        (
            {"keys": "id", "sequence_by": "v", "scd_type": 2, "deletes": "soft"},
            "scd_type=2 and deletes='soft' cannot be combined",
        ),
        ({"keys": "id", "sequence_by": "v"}, "sequence_by requires scd_type=2: pass order_by"),
        (
            {"keys": "id", "track_history": "v"},
            "track_history requires scd_type=2: pass it too, or remove track_history",
        ),
        (
            {"keys": "id", "sequence_by": "v", "scd_type": 2, "track_history": "w"},
            "track_history has 'w', which is not one of the columns to write: ",
        ),
        (
            {"keys": "id", "sequence_by": "v", "order_by": "v", "scd_type": 2},
            "order_by and scd_type=2 cannot be combined",
        ),
        ({"keys": "id", "scd_type": 0}, "scd_type=0 is unknown: pass 1 or 2"),
        ({"keys": "id", "deletes": ""}, "deletes is '': use 'hard' or 'soft'"),
        ({"keys": "id", "deletes": "softly"}, "deletes is 'softly': use 'hard' or 'soft'"),
        (
            {"keys": "id", "deleted_column": "gone"},
            "deleted_column has no effect with hard deletes: remove it, or pass deletes='soft'",
        ),
        (
            {"keys": "id", "deletes": "soft", "deleted_column": "V"},
            "column v is one that apply_changes writes itself",
        ),
        (
            {"keys": "id", "on_new_column": "merge"},
            "on_new_column is 'merge': use 'add' or 'ignore' or 'fail'",
        ),
    ],
)
def test_invalid_arguments(spark: SparkSession, arguments: Any, text: str, tmp_path: Any) -> None:
    with pytest.raises(ArgumentError, match=text):
        apply_batch(
            changelog(spark, "id INT, v INT", [("+I", 1, 2)]),
            DeltaTarget(str(tmp_path)),
            **arguments,
        )


def test_a_dataframe_without_row_kind_is_refused(spark: SparkSession, tmp_path: Any) -> None:
    with pytest.raises(ArgumentError, match="no column row_kind"):
        apply_batch(spark.range(1), DeltaTarget(str(tmp_path)), keys="id")


def test_each_function_refuses_the_other_kind_of_dataframe(
    spark: SparkSession, tmp_path: Any
) -> None:
    stream = spark.readStream.schema("row_kind STRING, id INT").json(str(tmp_path))
    with pytest.raises(
        ArgumentError, match=r"this one is a stream: call apply_changes\(stream, target, ...\)"
    ):
        apply_batch(stream, DeltaTarget(str(tmp_path / "table")), keys="id")
    with pytest.raises(
        ArgumentError, match=r"this DataFrame is bounded: call apply_batch\(df, target, ...\)"
    ):
        apply_changes(
            changelog(spark, "id INT", [("+I", 1)]), DeltaTarget(str(tmp_path / "table")), keys="id"
        )


def test_invalid_targets(spark: SparkSession, new_sink: NewSink) -> None:
    delta, changes = new_sink("delta"), changelog(spark, "id INT", [("+I", 1)])
    delta.execute(f"CREATE TABLE {delta.sql_name} (id INT) USING delta")
    spark.sql("CREATE TABLE IF NOT EXISTS plain (id INT) USING parquet")
    for target, text in (
        ("nowhere", "table 'nowhere' is not in the session's catalogs"),
        ("plain", "'plain' has the provider parquet"),
        (IcebergTarget(delta.sql_name), "has the provider delta"),
    ):
        with pytest.raises(TargetError, match=text):
            apply_batch(changes, target, keys="id")


# --------------------------------------------------------------------------------------------------
# Columns of Delta tables that are wider than those of the changes
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


# --------------------------------------------------------------------------------------------------
# What Java refuses while a table is written is one sentence
def test_a_check_that_a_row_violates(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("delta")
    apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, 1)]), sink.table, keys="id")
    sink.execute(f"ALTER TABLE {sink.sql_name} ADD CONSTRAINT positive CHECK (qty > 0)")
    with pytest.raises(TargetError, match=r"CHECK constraint positive .*- qty : -5") as refused:
        apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, -5)]), sink.table, keys="id")
    assert "\n" not in str(refused.value)
    assert sink.rows() == [(1, 1)]
