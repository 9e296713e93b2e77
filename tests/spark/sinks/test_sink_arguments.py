"""Invalid arguments are refused at the call, and secrets are not shown."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget, IcebergTarget, apply_changes
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from tests.support.sinking import Sink, changelog

URL = "jdbc:postgresql://localhost/shop"


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


def test_invalid_targets(spark: SparkSession, new_sink: Callable[[str], Sink]) -> None:
    changes = changelog(spark, "id INT", [("+I", 1)])
    with pytest.raises(TargetError, match="table 'nowhere' is not in the session's catalogs"):
        apply_batch(changes, "nowhere", keys="id")
    spark.sql("CREATE TABLE IF NOT EXISTS plain (id INT) USING parquet")
    with pytest.raises(TargetError, match="'plain' has the provider parquet"):
        apply_batch(changes, "plain", keys="id")
    delta = new_sink("delta")
    delta.execute(f"CREATE TABLE {delta.sql_name} (id INT) USING delta")
    with pytest.raises(TargetError, match="has the provider delta"):
        apply_batch(changes, IcebergTarget(delta.sql_name), keys="id")
