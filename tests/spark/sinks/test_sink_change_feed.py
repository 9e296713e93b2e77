"""Change feeds: a changelog with Delta's names, and converted back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from cdc_formats.errors import ArgumentError
from normalize.sinks.change_feed import from_change_feed, to_change_feed
from tests.support.sinking import STORY, changelog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_changelog_is_a_change_feed_and_back(spark: SparkSession) -> None:
    changes = changelog(spark, "id INT, name STRING", STORY)
    feed = to_change_feed(changes)
    assert feed.columns == ["id", "name", "_change_type"]
    assert [row._change_type for row in feed.take(4)] == [
        "insert",
        "insert",
        "update_preimage",
        "update_postimage",
    ]
    assert from_change_feed(feed).collect() == changes.collect()


def test_invalid_change_feeds(spark: SparkSession) -> None:
    changes = changelog(spark, "id INT", [("+I", 1)])
    with pytest.raises(ArgumentError, match="no column _change_type"):
        from_change_feed(changes)
    with pytest.raises(ArgumentError, match="already has a column _change_type"):
        to_change_feed(changes.withColumn("_change_type", changes.row_kind))
    for odd, convert in (
        (changelog(spark, "id INT", [(None, 1)]), to_change_feed),
        (_feed(spark, "truncate"), from_change_feed),
    ):
        with pytest.raises(Exception, match=r"is (NULL|truncate), not one of"):
            convert(odd).collect()


def _feed(spark: SparkSession, kind: str) -> DataFrame:
    return spark.createDataFrame([(1, kind)], "id INT, _change_type STRING")
