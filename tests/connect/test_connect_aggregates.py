"""Aggregates on Spark Connect, whose client does not know whether a changelog has ``-U``."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, aggregate_changes, signed_count, signed_sum

ROWS = [("+I", 1, 2), ("-U", 1, 2), ("+U", 1, 3)]
SCHEMA = "row_kind STRING, id INT, n INT"


def total(changes: DataFrame, **options: Any) -> DataFrame:
    """The sum of n."""
    return aggregate_changes(changes, [], signed_sum("n").alias("n"), **options)


def frame(spark: SparkSession, mode: str) -> DataFrame:
    """A changelog that is known to have -U, or not."""
    rows = [row for row in ROWS if mode == "all" or row[0] != "-U"]
    return ChangelogNormalize(primary_key="id", changelog_mode=mode)(spark.createDataFrame(rows, SCHEMA).coalesce(1))


def test_the_caller_declares_the_changelog_mode(connect: SparkSession) -> None:
    changes = frame(connect, "all")
    assert total(changes.where("n > 0"), changelog_mode="all").collect() == [("+U", 3)]
    with pytest.raises(ArgumentError, match="if it has, pass changelog_mode='all'; if not, apply ChangelogNormalize"):
        total(changes)


def test_the_signed_columns_find_the_row_kind(connect: SparkSession) -> None:
    changes = frame(connect, "all")
    assert tuple(changes.agg(signed_sum("n"), signed_count("*")).collect()[0]) == (3, 1)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        frame(connect, "upsert").agg(signed_sum("n")).collect()
