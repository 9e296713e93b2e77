"""Which of Spark and delta-rs writes a Delta table, what it refuses, and the damage of an earlier version."""

from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget
from normalize.tables.apply import apply_batch
from normalize.tables.maintenance import damages
from normalize.tables.targets import TargetError
from normalize.tables.writers import delta, delta_rs
from tests.support.delta_values import ROW_SCHEMA, apply
from tests.support.sinking import last_writer
from tests.support.syncing import micro_batch

OF_SPARK = {
    "clustered": ("CLUSTER BY (id)", "it has the feature clustering"),
    "tracked": ("TBLPROPERTIES ('delta.enableRowTracking' = 'true')", "it has the feature"),
    "50%20 off": ("", "its path has the character %"),
}


@pytest.mark.parametrize("kind", OF_SPARK)
def test_spark_writes_what_delta_rs_is_not_known_to_write(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    path, (tail, reason) = str(tmp_path / kind), OF_SPARK[kind]
    spark.sql(f"CREATE TABLE delta.`{path}` ({ROW_SCHEMA}) USING delta {tail}")
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
    on_hdfs = spark.newSession()
    on_hdfs.conf.set("fs.defaultFS", "hdfs://nowhere")
    assert [DeltaTarget(path).sink(each).takes_arrow for each in (spark, on_hdfs)] == [True, False]
    with monkeypatch.context() as patch:
        patch.setattr(delta_rs, "LOCAL_DISKS", ())
        apply(spark, DeltaTarget(path), ("+I", 3, "c", "x"))
        assert last_writer(path) == "spark"
        with pytest.raises(ArgumentError, match="on other local storage, a commit that another"):
            DeltaTarget(path, writer="delta-rs")


def test_a_commit_that_another_spark_replaced_on_a_local_disk_is_made_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, merge, replaced = tmp_path / "shared", delta_rs.merge, list[int]()
    target = DeltaTarget(str(path))
    apply(spark, target, ("+I", 1, "a", "x"))

    def replacing(table: DeltaTable, *values: Any, **options: Any) -> object:
        numbers = merge(table, *values, **options)
        if not replaced:
            entry = path / "_delta_log" / f"{table.version():020}.json"
            entry.write_text('{"commitInfo": {"operation": "OPTIMIZE"}}', "utf-8")
            replaced.append(table.version())
        return numbers

    monkeypatch.setattr(delta_rs, "merge", replacing)
    with micro_batch(spark, str(uuid4()), 0):
        apply(spark, target, ("+U", 1, "b", "x"))
    assert (replaced, DeltaTable(path).version(), last_writer(str(path))) == ([2], 3, "delta-rs")
    assert spark.table(target.sql_name).select("id", "name").collect() == [(1, "b")]


def test_a_table_of_the_catalog_by_its_name(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(
        f"CREATE TABLE named_orders ({ROW_SCHEMA}) USING delta LOCATION '{tmp_path / 'orders'}'"
    )
    for name in ("named_orders", "default.named_orders"):
        target = DeltaTarget(name, only_writer=True)
        apply(spark, target, ("+U", 1, name, "x"))
        assert last_writer(str(tmp_path / "orders")) == "delta-rs"
        assert spark.table(name).select("id", "name").collect() == [(1, name)]
    spark.sql("DROP TABLE named_orders")


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


# --------------------------------------------------------------------------------------------------
# Keys and partitions of each type in Delta tables that Spark and delta-rs write in turn
