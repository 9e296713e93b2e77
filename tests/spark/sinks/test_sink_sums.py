"""Sums over a changelog in a table: a batch of results has one row per group, so needs no order."""

import json
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize import ChangelogNormalize, aggregate_changes, signed_count, signed_sum
from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from tests.support.sinking import Sink, apply_stream

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
