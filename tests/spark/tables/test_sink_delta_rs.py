"""Delta tables that Spark made, written by delta-rs and by Spark in turn: which writes, and the rows."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize import DeltaTarget
from normalize.checkpoint.status import checkpoint_status
from normalize.tables.apply import apply_batch
from normalize.tables.writers import delta_rs
from tests.support.delta_values import ROW_SCHEMA, ROW_VALUES, apply
from tests.support.sinking import changelog, last_writer
from tests.support.syncing import idle_query, micro_batch

MADE = {
    "partitioned, vectors": (
        "PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    ),
    "mapped, feed": (
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    ),
}
"""Tables that delta-rs writes."""


@pytest.fixture(autouse=True)
def timestamps(spark: SparkSession) -> Iterator[None]:
    """Spark's files have timestamps as those of the queries."""
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, "TIMESTAMP_MICROS")
    yield
    spark.conf.unset(name)


@pytest.mark.parametrize("kind", MADE)
def test_rows_of_both_writers_in_turn(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{path}` ({ROW_SCHEMA}) USING delta {MADE[kind]}")
    targets = DeltaTarget(path, only_writer=True), DeltaTarget(path, writer="spark")
    stories: list[list[tuple[str, int, str, str]]] = [
        [("+I", 1, "a", "x"), ("+I", 2, "b", "x"), ("+I", 3, "c", "y")],
        [("+U", 1, "d", "y"), ("-D", 2, "b", "x"), ("+I", 4, "e", "y")],
        [("+U", 1, "f", "x"), ("-D", 4, "e", "y"), ("+I", 2, "g", "z")],
        [("+U", 3, "h", "x"), ("-D", 1, "f", "x")],
    ]
    expected: dict[int, tuple[str, str]] = {}
    for number, changes in enumerate(stories):
        target = targets[number % 2]
        apply(spark, target, *changes)
        assert last_writer(path) == ("delta-rs", "spark")[number % 2]
        for of_row, key, name, part in changes:
            expected.pop(key, None)
            if of_row != "-D":
                expected[key] = name, part
        stored = spark.table(f"delta.`{path}`")
        assert {each.id: (each.name, each.part) for each in stored.collect()} == expected
    # All other columns have the values of the changes, whichever wrote the row.
    others = [name for name in stored.columns if name not in ("id", "name", "part")]
    values = changelog(spark, "id INT", [("+I", 1)]).selectExpr(*ROW_VALUES)
    rows = stored.select(others).union(values.select(others)).collect()
    assert len({repr(each) for each in rows}) == 1
    if "feed" in kind:
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", 1).load(path)
        kinds = {(each.id, each._change_type, each.name) for each in feed.collect()}
        assert {
            (1, "update_preimage", "d"),
            (1, "update_postimage", "f"),
            (1, "delete", "f"),
        } <= kinds


@pytest.mark.parametrize("statement", ["UPDATE {} SET name = 'u' WHERE id = 1", "OPTIMIZE {}"])
def test_a_commit_of_spark_while_delta_rs_merges(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    target, merges = DeltaTarget(str(tmp_path / "table"), only_writer=True), list[int]()
    for key in range(3):  # a file for each row
        apply(spark, target, ("+I", key, "a", "x"))
    merge = delta_rs.merge

    def merge_late(table: Any, *arguments: Any, **options: Any) -> Any:
        merges.append(table.version())
        if len(merges) == 1:
            spark.sql(statement.format(target.sql_name)).collect()
        return merge(table, *arguments, **options)

    monkeypatch.setattr(delta_rs, "merge", merge_late)
    apply(spark, target, ("+U", 1, "b", "x"), ("-D", 2, "a", "x"), ("+I", 3, "c", "x"))
    # The first attempt lost, and the second one read Spark's commit.
    assert merges == [3, 4]
    rows = spark.table(target.sql_name).select("id", "name").collect()
    assert sorted(map(tuple, rows)) == [(0, "a"), (1, "b"), (3, "c")]


def test_error_that_follows_a_commit_is_named(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path, query = tmp_path / "table", idle_query(spark, tmp_path)
    every_version = "TBLPROPERTIES ('delta.checkpointInterval' = '1')"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, name STRING) USING delta {every_version}")
    # delta-rs cannot write the log's checkpoint.
    (path / "_delta_log" / "_last_checkpoint" / "folder").mkdir(parents=True)
    target = DeltaTarget(str(path), only_writer=True)
    changes = changelog(spark, "id INT, name STRING", [("+I", 1, "a")])
    for _ in range(2):
        with caplog.at_level("INFO", "normalize"), micro_batch(spark, str(query.id), 0):
            apply_batch(changes, target, keys="id", order_by="id")
    query.stop()
    reason = "an error followed the commit of micro-batch 0: "
    assert [reason in each for each in caplog.messages].count(True) == 1
    assert "has micro-batch 0 of the query already" in caplog.messages[-1]
    (status,) = checkpoint_status(str(tmp_path / "checkpoint")).writers
    assert (status.writer, status.reason[: len(reason)]) == ("delta-rs", reason)
    assert [tuple(row) for row in spark.table(f"delta.`{path}`").collect()] == [(1, "a")]
