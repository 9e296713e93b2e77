"""Delta tables that Spark made, written by delta-rs and by Spark in turn: which writes, and the rows."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget
from normalize.checkpoint.status import checkpoint_status
from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from normalize.tables.maintenance import damages
from normalize.tables.targets import RefusedError, TargetError, Writer
from normalize.tables.writers import delta, delta_rs
from tests.support.sinking import changelog, last_writer, random_changelog
from tests.support.syncing import idle_query, micro_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "id INT, name STRING, part STRING, price DECIMAL(20,4), at TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, raw BINARY, tags ARRAY<STRING>, sizes MAP<STRING, INT>, doc STRUCT<a: BIGINT, b: TIMESTAMP>"
)
VALUES = (
    "CAST('1234567890123456.7891' AS DECIMAL(20,4)) AS price",
    "TIMESTAMP'2026-03-08 07:30:00.000001Z' AS at",
    "TIMESTAMP_NTZ'2026-03-08 02:30:00' AS local",
    "DATE'2026-01-02' AS day",
    "X'00ff' AS raw",
    "array('a', NULL) AS tags",
    "map('k', 1) AS sizes",
    "struct(1L AS a, TIMESTAMP'2026-03-08 07:30:00Z' AS b) AS doc",
)
MADE = {
    "plain": "",
    "partitioned, vectors": (
        "PARTITIONED BY (part) TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    ),
    "mapped, feed": (
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true')"
    ),
}
"""Tables that delta-rs writes."""
OF_SPARK = {
    "clustered": ("CLUSTER BY (id)", "it has the feature clustering"),
    "tracked": ("TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "it has the feature"),
    "50%20 off": ("", "its path has the character %"),
}
"""Tables that Spark writes: the name of their folder, what they declare, and the reason."""


@pytest.fixture(autouse=True)
def timestamps(spark: SparkSession) -> Iterator[None]:
    """Spark's files have timestamps as those of the queries."""
    name = "spark.sql.parquet.outputTimestampType"
    spark.conf.set(name, "TIMESTAMP_MICROS")
    yield
    spark.conf.unset(name)


def apply(spark: SparkSession, target: DeltaTarget, *changes: tuple[str, int, str, str]) -> None:
    """Apply changes with values of all types."""
    rows = changelog(spark, "id INT, name STRING, part STRING", changes).selectExpr("*", *VALUES)
    apply_batch(rows, target, keys="id", order_by="id")


@pytest.mark.parametrize("kind", MADE)
def test_rows_of_both_writers_in_turn(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{path}` ({SCHEMA}) USING delta {MADE[kind]}")
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
    other = stored.selectExpr(
        *(name for name in stored.columns if name not in ("id", "name", "part"))
    )
    assert len({repr(each) for each in other.collect()}) == 1
    value = other.first()
    assert value is not None
    assert (value.price, bytes(value.raw), value.tags, value.sizes) == (
        Decimal("1234567890123456.7891"),
        b"\x00\xff",
        ["a", None],
        {"k": 1},
    )
    instants = other.selectExpr("unix_micros(at)", "unix_micros(doc.b)", "CAST(local AS STRING)")
    assert tuple(instants.first() or ()) == (
        1772955000000001,
        1772955000000000,
        "2026-03-08 02:30:00",
    )
    if "feed" in kind:
        reader = spark.read.format("delta").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", 1).load(path)
        kinds = {(each.id, each._change_type, each.name) for each in feed.collect()}
        assert {
            (1, "update_preimage", "d"),
            (1, "update_postimage", "f"),
            (1, "delete", "f"),
        } <= kinds


@pytest.mark.parametrize("kind", OF_SPARK)
def test_spark_writes_what_delta_rs_is_not_known_to_write(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path, (tail, reason) = str(tmp_path / kind), OF_SPARK[kind]
    spark.sql(f"CREATE TABLE delta.`{path}` ({SCHEMA}) USING delta {tail}")
    target = DeltaTarget(path, only_writer=True)
    with caplog.at_level("INFO", "normalize"):
        apply(spark, target, ("+I", 1, "a", "x"))
    (line,) = (each for each in caplog.messages if "is written by spark: " in each)
    assert reason in line
    with pytest.raises(TargetError, match=f"cannot be written by delta-rs: .*{reason}"):
        apply(spark, DeltaTarget(path, only_writer=True, writer="delta-rs"), ("+I", 2, "a", "x"))


def test_a_feature_that_the_table_gains_and_storage_that_others_write(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = str(tmp_path / "gains")
    target = DeltaTarget(path, only_writer=True)
    writers = []
    for changes in ([("+I", 1, "a", "x")], [("+I", 2, "b", "x")], [("-D", 1, "a", "x")]):
        apply(spark, target, *changes)
        writers.append(last_writer(path))
        if changes[0][1] == 2:
            enabled = "('delta.enableRowTracking' = 'true')"
            spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES {enabled}")
    assert writers == ["delta-rs", "delta-rs", "spark"]
    assert [each.id for each in spark.table(f"delta.`{path}`").collect()] == [2]
    large = DeltaTarget(str(tmp_path / "large"), only_writer=True)
    apply(spark, large, ("+I", 1, "a", "x"))
    monkeypatch.setattr(delta, "MOST_REWRITTEN", 0)
    with caplog.at_level("INFO", "normalize"):
        apply(spark, large, ("+U", 1, "b", "x"))
    assert "is written by spark: the files to rewrite have more than 0 MiB" in caplog.text
    assert spark.table(large.sql_name).select("name").collect() == [("b",)]
    monkeypatch.undo()
    shared = DeltaTarget(path)
    apply(spark, shared, ("+I", 3, "c", "x"))
    assert last_writer(shared.name) == "spark"
    with pytest.raises(ArgumentError, match="on local storage, a commit that another Spark makes"):
        DeltaTarget(path, writer="delta-rs")


def test_a_table_of_the_catalog_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE named_orders ({SCHEMA}) USING delta LOCATION '{tmp_path / 'orders'}'")
    for name in ("named_orders", "default.named_orders"):
        target = DeltaTarget(name, only_writer=True)
        apply(spark, target, ("+U", 1, name, "x"))
        assert last_writer(str(tmp_path / "orders")) == "delta-rs"
        assert spark.table(name).select("id", "name").collect() == [(1, name)]
    spark.sql("DROP TABLE named_orders")


def test_a_violated_constraint_has_a_sentence_without_values(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "checked")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT NOT NULL, name STRING NOT NULL) USING delta")
    spark.sql(f"ALTER TABLE delta.`{path}` ADD CONSTRAINT small CHECK (id < 10)")
    target = DeltaTarget(path, only_writer=True)
    for changed, constraint in (
        (("+I", 77, "secret"), "CHECK constraint small (id < 10) violated by row"),
        (("+I", 7, None), "NOT NULL constraint violated for column: name"),
    ):
        with pytest.raises(RefusedError) as refused:
            apply_batch(changelog(spark, "id INT, name STRING", [changed]), target, keys="id")
        text = explain_error(refused.value)
        assert constraint in text
        assert "secret" not in text
    assert spark.table(f"delta.`{path}`").isEmpty()


def as_before(path: str, rows: pa.Table, **options: Any) -> None:
    """Append rows by delta-rs, as an earlier version of the library let it write."""
    write_deltalake(path, rows, mode="append", **options)


def test_damage_of_an_earlier_version_is_found_and_healed(
    spark: SparkSession, tmp_path: Path
) -> None:
    path, large = str(tmp_path / "table"), "12345678901234567891"
    rows = {"id": [Decimal(large), Decimal(1)], "v": [1, 1], "x": [float("nan"), 1.0]}
    kinds = pa.schema({"id": pa.decimal128(20, 0), "v": pa.int32(), "x": pa.float64()})
    as_before(path, pa.table(rows, kinds))
    changes = spark.sql(f"SELECT '+U' AS row_kind, {large}BD AS id, 2 AS v, double('NaN') AS x")
    remedy = f"OPTIMIZE delta.`{path}` ZORDER BY (`id`)"
    for target in (DeltaTarget(path, only_writer=True), DeltaTarget(path, writer="spark")):
        with pytest.raises(TargetError, match="wrong statistics of id") as damaged:
            apply_batch(changes, target, keys="id", order_by="v")
        assert f"run {remedy.replace('delta', '`delta`', 1)}, and then" in str(damaged.value)
    as_before(path, pa.table(rows, kinds))  # as an update did that found no row
    found = [each.partition(":")[0].partition(", in")[0] for each in damages(spark, target, ["id"])]
    assert found == [
        "delta-rs has written wrong statistics of id (2 files)",
        "2 keys have more than one row",
        "filters do not see all rows with NaN in x",
    ]
    spark.sql(remedy).collect()
    assert [each[:6] for each in damages(spark, target, ["id"])] == ["2 keys"]
    apply_batch(changes, DeltaTarget(path, only_writer=True), keys="id", order_by="v")
    stored = spark.table(f"delta.`{path}`")
    assert stored.where(f"id = {large}BD AND x = double('NaN')").count() == 2


def test_timestamps_that_an_earlier_version_lost_are_found(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    spark.conf.unset("spark.sql.parquet.outputTimestampType")
    spark.sql("SELECT 1 AS id, TIMESTAMP'9999-12-31 23:59:59' AS t").write.format("delta").save(
        path
    )
    target = DeltaTarget(path, only_writer=True)
    assert list(damages(spark, target, ["id"])) == []
    stored = DeltaTable(path)
    merger = stored.merge(pa.table({"id": pa.array([2], pa.int32())}), "s.id < t.id + 2", "s", "t")
    merger.when_matched_update({"id": "s.id"}).execute()
    assert [row.t.year for row in spark.table(f"delta.`{path}`").collect()] == [1816]
    (found,) = damages(spark, target, ["id"])
    assert found.startswith("delta-rs has rewritten 1 files that Spark wrote with timestamps")


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


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
def test_random_changes_by_writers_in_turn_beside_maintenance(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    random, table = Random(seed), dict[int, int]()
    writers: tuple[Writer, Writer] = "delta-rs", "spark"
    alone = [DeltaTarget(str(tmp_path / of), writer=of, only_writer=True) for of in writers]
    path = str(tmp_path / "in-turn")
    in_turn = [DeltaTarget(path, writer=of, only_writer=True) for of in writers]
    vectors = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, v INT) USING delta {vectors}")
    for _ in range(8):
        story = random_changelog(random, 6, table)
        for target in (*alone, random.choice(in_turn)):
            rows = changelog(spark, "id INT, v INT", story)
            apply_batch(rows, target, keys="id", deletes="hard")
        if random.random() < 0.4:
            spark.sql(f"OPTIMIZE {in_turn[0].sql_name}").collect()
        for target in (*alone, in_turn[0]):
            stored = spark.table(target.sql_name).collect()
            assert {each.id: each.v for each in stored} == table, target


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
