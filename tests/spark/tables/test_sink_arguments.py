"""Invalid arguments are refused at the call, and secrets are not shown."""

import json
import os
from collections.abc import Callable
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import (
    ChangelogNormalize,
    DeltaTarget,
    IcebergTarget,
    aggregate_changes,
    apply_changes,
    signed_count,
    signed_sum,
)
from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from normalize.tables.targets import TargetError
from tests.support.sinking import NewSink, Sink, apply_stream, changelog, lake_sink

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


# --------------------------------------------------------------------------------------------------
# Columns of Delta tables: wider than those of the changes, and nested ones that are narrower
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


# --------------------------------------------------------------------------------------------------
# Tables of Delta and Iceberg with partitions
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_row_that_moves_between_partitions_of_the_table_is_not_doubled(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    sink.execute(
        f"CREATE TABLE {sink.sql_name} (id INT, day DATE, own STRING) USING {kind} PARTITIONED BY "
        "(day)"
    )
    sink.execute(
        f"INSERT INTO {sink.sql_name} VALUES (1, DATE'2024-01-01', 'kept'), (2, DATE'2024-01-01', "
        "NULL)"
    )
    changes = [
        ("-U", 1, date(2024, 1, 1)),
        ("+U", 1, date(2024, 1, 2)),
        ("-D", 2, date(2024, 1, 1)),
    ]
    name = sink.sql_name if kind == "iceberg" else sink.table
    apply_batch(changelog(spark, "id INT, day DATE", changes), name, keys="id")
    # A column that the changelog does not have is not changed.
    assert sink.rows() == [(1, date(2024, 1, 2), "kept")]


# --------------------------------------------------------------------------------------------------
# Sums over a changelog in a table: a batch of results has one row per group, so needs no order
SCHEMA = "row_kind STRING, id INT, name STRING, weight DECIMAL(10,3)"
BATCHES = [
    [("+I", 1, "bike", "9.5"), ("+I", 2, "bike", "1"), ("+I", 3, "car", "1000")],
    [("-U", 2, "bike", "1"), ("+U", 2, "cart", "2"), ("-D", 3, "car", "1000")],
]


def as_changelog(changes: DataFrame) -> DataFrame:
    """The sums of a changelog that has -U."""
    return aggregate_changes(
        changes,
        "name",
        signed_sum("weight").alias("weight"),
        signed_count("*").alias("n"),
        changelog_mode="all",
    )


def by_columns(changes: DataFrame) -> DataFrame:
    """The sums by columns, of the keyed stage's result."""
    clean = ChangelogNormalize(primary_key="id", key_groups=1)(changes)
    totals = clean.groupBy("name").agg(
        signed_sum("weight").alias("weight"), signed_count("*").alias("n")
    )
    return totals.selectExpr("IF(n > 0, '+U', '-D') AS row_kind", "*")


@pytest.mark.parametrize("aggregate", [as_changelog, by_columns])
def test_a_table_of_sums_follows_the_changelog(
    spark: SparkSession,
    new_sink: Callable[[str], Sink],
    aggregate: Callable[[DataFrame], DataFrame],
    tmp_path: Path,
) -> None:
    source, sink = tmp_path / "source", new_sink("delta")
    source.mkdir()
    for number, rows in enumerate(BATCHES):
        lines = (dict(zip(("row_kind", "id", "name", "weight"), row, strict=True)) for row in rows)
        (source / f"{number}.json").write_text("\n".join(map(json.dumps, lines)))
        os.utime(source / f"{number}.json", (number, number))  # the order in which they are read
    changes = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(source))
    query = apply_stream(
        aggregate(changes), sink.table, tmp_path / "checkpoint", output_mode="update", keys="name"
    )
    assert [batch["numInputRows"] for batch in query.recentProgress] == list(map(len, BATCHES))
    assert {tuple(row) for row in sink.read().collect()} == {
        ("bike", Decimal("9.500"), 1),
        ("cart", Decimal("2.000"), 1),
    }


def test_a_key_that_is_not_the_groups_needs_an_order(
    spark: SparkSession, new_sink: Callable[[str], Sink]
) -> None:
    changes = spark.createDataFrame([("+I", 1, "bike", Decimal(1))], SCHEMA)
    totals = aggregate_changes(
        changes, ["id", "name"], signed_count("*").alias("n"), changelog_mode="all"
    )
    with pytest.raises(ChangeOrderError, match="the plan contains Aggregate"):
        apply_batch(totals, new_sink("delta").table, keys="name")


# --------------------------------------------------------------------------------------------------
# What Java refuses while a table is written is one sentence
VIOLATED = (
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (qty > 0) violated by row "
    "with values:"
)


def a_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of one row, which no CHECK allows."""
    changelog(spark, "id INT, qty INT", [("+I", 1, -5)]).coalesce(1).write.json(str(folder))
    return spark.readStream.schema("row_kind STRING, id INT, qty INT").json(str(folder))


def test_a_check_that_a_row_violates(spark: SparkSession, tmp_path: Path) -> None:
    sink = lake_sink(spark, "delta", tmp_path)
    apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, 1)]), sink.table, keys="id")
    sink.execute(f"ALTER TABLE {sink.sql_name} ADD CONSTRAINT positive CHECK (qty > 0)")
    with pytest.raises(TargetError) as refused:
        apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, -5)]), sink.table, keys="id")
    assert VIOLATED in str(refused.value)
    assert "- qty : -5" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(StreamingQueryException) as failed:
        apply_stream(
            a_stream(spark, tmp_path / "in"),
            sink.table,
            tmp_path / "checkpoint",
            keys="id",
            order_by="qty",
        )
    assert VIOLATED in explain_error(failed.value)
    assert sink.rows() == [(1, 1)]


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(tmp_path / "file" / "table"))

    writer = a_stream(spark, tmp_path / "in").writeStream.foreachBatch(write)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    sentence = explain_error(failed.value)
    assert sentence.startswith("org.apache.hadoop.fs.ParentNotDirectoryException: ")
    assert str(tmp_path / "file") in sentence
