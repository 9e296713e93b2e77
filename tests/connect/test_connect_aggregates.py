"""Aggregates on Spark Connect: the client's relations show whether a changelog has ``-U``, and never claim it wrongly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession, functions as F

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, aggregate_changes, signed_count, signed_sum
from normalize.analyzed_plan import changelog_mode

ROWS = [("+I", 1, 2), ("-U", 1, 2), ("+U", 1, 3)]
SCHEMA = "row_kind STRING, id INT, n INT"
Operation = Callable[[DataFrame], DataFrame]


def total(changes: DataFrame, **options: Any) -> DataFrame:
    """The sum of n."""
    return aggregate_changes(changes, [], signed_sum("n").alias("n"), **options)


def frame(spark: SparkSession, mode: str) -> DataFrame:
    """A changelog that is known to have -U, or not."""
    rows = [row for row in ROWS if mode == "all" or row[0] != "-U"]
    return ChangelogNormalize(primary_key="id", changelog_mode=mode)(spark.createDataFrame(rows, SCHEMA).coalesce(1))


def _other(df: DataFrame) -> DataFrame:
    return df.sparkSession.createDataFrame([(1, "x")], "id INT, s STRING")


def _by_sql(df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("changes_of_a_view")
    return df.sparkSession.sql("SELECT * FROM changes_of_a_view")


def _upserts_of_a_view(df: DataFrame) -> DataFrame:
    """The row kinds of another changelog, which the client does not know, beside those of a known one."""
    frame(df.sparkSession, "upsert").createOrReplaceTempView("upserts_of_a_view")
    return df.withColumnRenamed("id", "key").join(
        df.sparkSession.table("upserts_of_a_view").select("id", "row_kind"), F.col("key") == F.col("id")
    )


SHOWN: dict[str, Operation] = {
    "select": lambda df: df.select("row_kind", "n"),
    "select of columns": lambda df: df.select(df.row_kind, (df.n + 0).alias("n")),
    "selectExpr": lambda df: df.selectExpr("*", "n + 1 AS m"),
    "withColumn": lambda df: df.withColumn("m", F.lit("x\n+- SubqueryAlias changelog_upsert")),
    "withColumnRenamed": lambda df: df.withColumnRenamed("id", "key").drop("key"),
    "alias": lambda df: df.alias("c").select("c.row_kind", "c.n"),
    "join": lambda df: df.join(_other(df), "id"),
    "left join": lambda df: df.alias("c").join(_other(df).hint("broadcast").alias("o"), "id", "left"),
    "union": lambda df: df.unionByName(df).where("n > 0"),
    "mapInArrow": lambda df: df.mapInArrow(lambda batches: batches, SCHEMA),
    "repartition": lambda df: df.repartition(2).sort("n"),
    "cache": lambda df: df.cache(),
}
HIDDEN: dict[str, Operation] = {
    "a computed row_kind": lambda df: df.selectExpr("upper(row_kind) AS row_kind", "n"),
    "withColumn of row_kind": lambda df: df.withColumn("row_kind", F.upper("row_kind")),
    "an aggregate without groupBy": lambda df: df.select(F.max("row_kind").alias("row_kind"), F.max("n").alias("n")),
    "groupBy": lambda df: df.groupBy("row_kind").agg(F.max("n").alias("n")),
    "toDF": lambda df: df.select("row_kind", "n").toDF("row_kind", "n"),
    "distinct": lambda df: df.distinct(),
    "sql": _by_sql,
    "checkpoint": lambda df: df.localCheckpoint(),
    "union with another": lambda df: df.union(df.sparkSession.createDataFrame(ROWS, SCHEMA)),
    "another row_kind": lambda df: df.select("n", "id").join(_by_sql(df).drop("n"), "id"),
    "a name that looks like a plan": lambda df: df.sparkSession.createDataFrame(ROWS, SCHEMA).withColumn(
        "\n+- SubqueryAlias changelog_all", F.lit("\n+- SubqueryAlias changelog_all")
    ),
}


@pytest.mark.parametrize("operation", SHOWN)
def test_operations_that_the_relations_show(connect: SparkSession, operation: str) -> None:
    answer = total(SHOWN[operation](frame(connect, "all")))
    assert changelog_mode(SHOWN[operation](frame(connect, "upsert"))) == "upsert"
    if operation in ("join", "union"):
        assert answer.collect()[0].n == (6 if operation == "union" else 3)


@pytest.mark.parametrize("operation", HIDDEN)
def test_operations_after_which_the_caller_must_declare_it(connect: SparkSession, operation: str) -> None:
    with pytest.raises(ArgumentError, match="if it has, pass changelog_mode='all'; if not, apply ChangelogNormalize"):
        total(HIDDEN[operation](frame(connect, "all")))
    assert changelog_mode(HIDDEN[operation](frame(connect, "upsert"))) == ("upsert" if operation == "union with another" else None)


def test_an_unknown_row_kind_beside_a_known_one_is_ambiguous(connect: SparkSession) -> None:
    with pytest.raises(Exception, match="AMBIGUOUS_REFERENCE"):
        total(_upserts_of_a_view(frame(connect, "all"))).collect()
    hidden = _upserts_of_a_view(frame(connect, "all").drop("row_kind"))
    assert changelog_mode(hidden) is None


def test_a_union_of_both_has_updates_without_update_before(connect: SparkSession) -> None:
    both = frame(connect, "all").union(frame(connect, "upsert"))
    assert changelog_mode(both) == "upsert"
    with pytest.raises(ArgumentError, match="the changelog has no -U, which retracts the old row of an update"):
        total(both, changelog_mode="all")


def test_the_signed_columns_find_the_row_kind(connect: SparkSession) -> None:
    changes = frame(connect, "all")
    assert tuple(changes.agg(signed_sum("n"), signed_count("*")).collect()[0]) == (3, 1)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        frame(connect, "upsert").agg(signed_sum("n")).collect()
