"""Change feeds: a changelog with Delta's names, and feeds of others as a changelog in order."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, DeltaTarget
from normalize.change_feed import from_change_feed, to_change_feed
from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from tests.support.sinking import STORY, changelog
from tests.support.streams import run_stream

COMMIT = ["_commit_version", "_commit_timestamp"]


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
    stamped = changes.select(F.lit(7).alias("_commit_version"), "row_kind", "id")
    assert to_change_feed(stamped).columns == ["id", "_change_type", "_commit_version"]


def test_a_micro_batch_that_python_does_not_see_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DeltaTarget(str(tmp_path / "feed"))
    monkeypatch.setenv("PYSPARK_PIN_THREAD", "false")
    with pytest.raises(ArgumentError, match="remove this environment variable"):
        apply_batch(changelog(spark, "id INT", [("+I", 1)]), target, keys="id")
    assert not (tmp_path / "feed").exists()


def test_invalid_change_feeds(spark: SparkSession) -> None:
    changes = changelog(spark, "id INT", [("+I", 1)])
    with pytest.raises(ArgumentError, match="no column _change_type"):
        from_change_feed(changes)
    with pytest.raises(ArgumentError, match="already has a column _change_type"):
        to_change_feed(changes.withColumn("_change_type", changes.row_kind))
    for invalid_rows, convert in (
        (changelog(spark, "id INT", [(None, 1)]), to_change_feed),
        (_feed(spark, "truncate"), from_change_feed),
    ):
        with pytest.raises(Exception, match=r"is (NULL|truncate), not one of"):
            convert(invalid_rows).collect()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"order_by": "id"}, "order_by requires primary_key, the columns that identify a row"),
        ({"primary_key": "id"}, "neither _commit_version nor _change_ordinal"),
        ({"primary_key": "no", "order_by": "id"}, "primary_key has 'no', and the DataFrame has no"),
        ({"primary_key": "id", "order_by": "at"}, r"order_by has 'at', which is struct<n:int>"),
    ],
)
def test_an_order_that_cannot_be_had_is_refused(
    spark: SparkSession, arguments: dict[str, Any], text: str
) -> None:
    feed = _feed(spark, "insert").selectExpr("*", "named_struct('n', 1) AS at")
    with pytest.raises(ArgumentError, match=text):
        from_change_feed(feed, **arguments)


def test_icebergs_feed_is_normalized_in_the_order_of_its_commits(spark: SparkSession) -> None:
    commits = [
        (0, "INSERT", 1, "a"),
        (1, "UPDATE_BEFORE", 1, "a"),
        (1, "UPDATE_AFTER", 1, "b"),
        (2, "DELETE", 1, "b"),
        (3, "INSERT", 1, "c"),
        (4, "DELETE", 1, "c"),
        (4, "INSERT", 1, "d"),
    ]
    shuffled = Random(5).sample(commits, len(commits))
    feed = spark.createDataFrame(
        spark.sparkContext.parallelize(shuffled, len(shuffled)),
        "_change_ordinal INT, _change_type STRING, id INT, `a.b` STRING",
    )
    changes = from_change_feed(feed, primary_key="id")
    assert [tuple(row) for row in changes.collect()] == [
        (kind, ordinal, 1, name)
        for kind, (ordinal, _, _, name) in zip(
            ["+I", "-U", "+U", "-D", "+I", "-D", "+I"], commits, strict=True
        )
    ]
    clean = changes.transform(ChangelogNormalize("id", metadata=["_change_ordinal"]))
    assert [tuple(row)[:3] for row in clean.select("row_kind", "id", "`a.b`").collect()] == [
        ("+I", 1, "a"),
        ("-U", 1, "a"),
        ("+U", 1, "b"),
        ("-D", 1, "b"),
        ("+I", 1, "c"),
        ("-D", 1, "c"),
        ("+I", 1, "d"),
    ]
    with pytest.raises(Exception, match="CHANGE_ORDER") as failed:
        from_change_feed(feed.union(feed), primary_key="id").collect()
    assert "are both additions or both removals" in explain_error(failed.value)


def test_a_stream_of_deltas_feed_is_normalized(spark: SparkSession, tmp_path: Path) -> None:
    """All commits are in one micro-batch, whose rows Delta returns in the order of its files."""
    name = f"delta.`{tmp_path}/feed`"
    spark.sql(
        f"CREATE TABLE {name} (id INT, name STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    # An upsert of this package is an update in the feed.
    target = DeltaTarget(f"{tmp_path}/feed")
    apply_batch(changelog(spark, "id INT, name STRING", STORY[:2]), target, keys="id")
    apply_batch(changelog(spark, "id INT, name STRING", STORY[2:5]), target, keys="id")
    spark.sql(f"INSERT INTO {name} VALUES (2, 'd')")
    spark.sql(f"UPDATE {name} SET name = 'e' WHERE id = 2")
    options = {"readChangeFeed": "true", "startingVersion": "0"}
    feed = spark.readStream.format("delta").options(**options).load(str(tmp_path / "feed"))
    changes = from_change_feed(feed, primary_key="id")
    assert changes.columns == ["row_kind", "id", "name", *COMMIT]
    clean = changes.transform(ChangelogNormalize("id", metadata=COMMIT)).drop(*COMMIT)
    run = run_stream(clean, tmp_path / "checkpoint")
    assert len(run.batches) == 1
    rows = [(row["row_kind"], row["id"], row["name"]) for row in run.rows]
    assert sorted(rows, key=lambda row: row[1]) == sorted(STORY, key=lambda row: row[1])


def _feed(spark: SparkSession, kind: str) -> DataFrame:
    return spark.createDataFrame([(1, kind)], "id INT, _change_type STRING")
