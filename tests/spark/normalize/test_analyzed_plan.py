"""Whether a changelog has ``-U`` is found in its plan: no operation loses it silently."""

import json
from collections.abc import Callable
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, aggregate_changes, signed_count, signed_sum
from normalize.dataframe import changelog_mode, with_changelog_mode

ROWS = [("+I", 1, 2), ("-U", 1, 2), ("+U", 1, 3)]
SCHEMA = "row_kind STRING, id INT, n INT"

Operation = Callable[["DataFrame"], "DataFrame"]


def total(changes: DataFrame, **options: Any) -> DataFrame:
    """The sum of n."""
    return aggregate_changes(changes, [], signed_sum("n").alias("n"), **options)


def _by_sql(df: DataFrame) -> DataFrame:
    df.createOrReplaceTempView("changes_of_a_view")
    return df.sparkSession.sql(
        "WITH c AS (SELECT * FROM changes_of_a_view) SELECT trim(row_kind) AS row_kind, n FROM c "
        "WHERE n > 0"
    )


def _other(df: DataFrame) -> DataFrame:
    return df.sparkSession.createDataFrame([(1, "x")], "id INT, s STRING")


SHOWN: dict[str, Operation] = {
    "select": lambda df: df.select("row_kind", "n"),
    "a computed row_kind": lambda df: df.selectExpr("upper(row_kind) AS row_kind", "n"),
    "withColumn": lambda df: df.withColumn("row_kind", df.row_kind.substr(1, 2)),
    "alias": lambda df: df.alias("c").select("c.row_kind", "c.n"),
    "join": lambda df: df.join(_other(df), "id"),
    "left join": lambda df: df.alias("c").join(
        _other(df).hint("broadcast").alias("o"), "id", "left"
    ),
    "union": lambda df: df.union(df).where("n > 0"),
    "sql": _by_sql,
    "mapInArrow": lambda df: df.mapInArrow(lambda batches: batches, SCHEMA),
    "repartition": lambda df: df.repartition(2).sort("n"),
    "cache": lambda df: df.cache(),
}
LOST: dict[str, Operation] = {
    "rdd": lambda df: df.sparkSession.createDataFrame(df.rdd, df.schema),
    "localCheckpoint": lambda df: df.localCheckpoint(),
    "union with another": lambda df: df.union(df.sparkSession.createDataFrame(ROWS, SCHEMA)),
    "groupBy": lambda df: df.groupBy("n").agg({"row_kind": "max"}).toDF("n", "row_kind"),
}


def unmarked(spark: SparkSession, mode: str) -> DataFrame:
    """A changelog that has -U, or not."""
    rows = ROWS if mode == "all" else [row for row in ROWS if row[0] != "-U"]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 1), SCHEMA)


def frame(spark: SparkSession, mode: Literal["all", "upsert"]) -> DataFrame:
    """A changelog that is known to have -U, or not, as that of `ChangelogNormalize`."""
    return with_changelog_mode(unmarked(spark, mode), mode)


@pytest.mark.cross_section
def test_operations_that_the_plan_shows(spark: SparkSession) -> None:
    totals = []
    for operation in SHOWN:
        answer = total(SHOWN[operation](frame(spark, "all")))
        totals.append(answer.selectExpr(f"'{operation}' AS operation", "n"))
        upserts = SHOWN[operation](frame(spark, "upsert"))
        for stated in ("all", None):
            with pytest.raises(
                ArgumentError,
                match="the changelog has no -U, which retracts the old row of an update",
            ):
                total(upserts, changelog_mode=stated)
        with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
            upserts.agg(signed_sum("n"))
    sums = {
        row.operation: row.n
        for row in reduce(lambda one, other: one.unionByName(other), totals).collect()
    }
    assert sums == {operation: 6 if operation == "union" else 3 for operation in SHOWN}


@pytest.mark.parametrize("operation", LOST)
def test_operations_after_which_the_caller_must_declare_it(
    spark: SparkSession, operation: str
) -> None:
    changes = LOST[operation](frame(spark, "all"))
    assert changelog_mode(changes) is None
    with pytest.raises(
        ArgumentError,
        match="if it has, pass changelog_mode='all'; if not, apply ChangelogNormalize",
    ):
        total(changes)
    assert total(changes, changelog_mode="all").columns == ["row_kind", "n"]
    with pytest.raises(ArgumentError, match="changelog_mode is 'upsert': use 'all'"):
        total(changes, changelog_mode="upsert")


def test_a_union_of_both_has_updates_without_update_before(spark: SparkSession) -> None:
    both = frame(spark, "all").union(frame(spark, "upsert"))
    assert changelog_mode(both) == "upsert"


def test_the_stage_adds_update_before(spark: SparkSession) -> None:
    stage = ChangelogNormalize(primary_key="id")
    assert changelog_mode(stage(frame(spark, "upsert"))) == "all"
    assert changelog_mode(stage(unmarked(spark, "all"))) == "all"
    upserts = ChangelogNormalize(primary_key="id", changelog_mode="upsert")
    assert changelog_mode(upserts(unmarked(spark, "all"))) == "upsert"


def test_the_schema_has_no_mark(spark: SparkSession) -> None:
    changes = frame(spark, "upsert")
    assert not changes.schema["row_kind"].metadata
    assert changes.schema == frame(spark, "all").schema


def test_the_signed_columns_find_the_row_kind(spark: SparkSession) -> None:
    operations = ("select", "join", "repartition", "cache")
    totals = [
        SHOWN[operation](frame(spark, "all")).agg(signed_sum("n"), signed_count("*"))
        for operation in operations
    ]
    assert [
        tuple(row) for row in reduce(lambda one, other: one.union(other), totals).collect()
    ] == [(3, 1)] * len(operations)


def test_the_signed_columns_take_the_callers_row_kind(spark: SparkSession) -> None:
    changes = frame(spark, "all").selectExpr("upper(row_kind) AS kind", "n")
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        changes.agg(signed_sum("n"))
    assert changes.agg(signed_sum("n", row_kind="kind")).collect()[0][0] == 3


# --------------------------------------------------------------------------------------------------
# streams


def _stream(spark: SparkSession, folder: Path) -> DataFrame:
    folder.mkdir()
    (folder / "changes.json").write_text(
        "\n".join(json.dumps(dict(zip(("row_kind", "id", "n"), row, strict=True))) for row in ROWS)
    )
    return spark.readStream.schema(SCHEMA).json(str(folder))


def _in_foreach_batch(
    stream: DataFrame, checkpoint: Path, function: Callable[[DataFrame], object]
) -> list[object]:
    """Return what a function returned or raised in ``foreachBatch``."""
    results: list[object] = []

    def call(batch: DataFrame, number: int) -> None:
        try:
            results.append(function(batch))
        except ArgumentError as error:
            results.append(error)

    query = (
        stream.writeStream.foreachBatch(call)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return results


@pytest.mark.cross_section
def test_a_foreach_batch_dataframe_has_the_plan_of_its_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    def compute(batch: DataFrame) -> object:
        own = batch.sparkSession.createDataFrame(ROWS, SCHEMA)
        return (
            changelog_mode(batch),
            changelog_mode(batch.where("n > 0")),
            changelog_mode(own),
            changelog_mode(batch.union(own)),
        )

    for mode in ("all", "upsert"):
        changes = with_changelog_mode(_stream(spark, tmp_path / mode), mode).selectExpr(
            "upper(row_kind) AS row_kind", "id", "n"
        )  # type: ignore[arg-type]
        results = _in_foreach_batch(changes, tmp_path / f"checkpoint_{mode}", compute)
        assert results == [(mode, mode, None, "upsert" if mode == "upsert" else None)]


def test_the_results_of_a_stream_have_no_update_before(spark: SparkSession, tmp_path: Path) -> None:
    changes = _stream(spark, tmp_path / "source")
    totals = aggregate_changes(changes, "id", signed_sum("n").alias("n"), changelog_mode="all")
    with pytest.raises(ArgumentError, match="the changelog has no -U"):
        total(totals, changelog_mode="all")
