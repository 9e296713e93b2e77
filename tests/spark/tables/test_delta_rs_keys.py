"""Keys and partitions of each type in Delta tables that Spark and delta-rs write in turn."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize import DeltaTarget
from normalize.tables.apply import apply_batch
from normalize.tables.merge import merge_plan
from normalize.tables.writers import delta_rs
from tests.support.delta_values import VALUES, literal
from tests.support.sinking import last_writer
from tests.support.streams import settings

SIMPLE_KEYS = ("BOOLEAN", "TINYINT", "INT", "BIGINT", "DECIMAL(15,4)", "DECIMAL(17,2)")


def changes(spark: SparkSession, kind: str, value: int, values: Sequence[str]) -> DataFrame:
    """Changes of the rows with these keys, in one file: some files have one key."""
    rows = " UNION ALL ".join(
        f"SELECT '+U' AS row_kind, {literal(each, kind)} AS id, {value} AS v" for each in values
    )
    return spark.sql(rows).coalesce(1)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[pytest.mark.soak] if kind in SIMPLE_KEYS else [])
        for kind in VALUES
        if kind not in ("FLOAT", "DOUBLE")
    ],
)
def test_keys(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    path, values = str(tmp_path / "table"), VALUES[kind]
    with settings(spark, {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        rows = changes(spark, kind, 0, values).repartition(2, "id").drop("row_kind")
        rows.write.format("delta").save(path)
    plan, stored = merge_plan(["id", "v"], ["id"]), spark.table(f"delta.`{path}`")
    for number, changed in enumerate([(0,), (-1,), range(len(values)), (1,)], 1):
        chosen = [values[index] for index in changed]
        table = delta_rs.open_table(path, {})
        numbers = delta_rs.merge(table, plan, changes(spark, kind, number, chosen).toArrow(), None)
        updated = numbers["num_target_rows_updated"], numbers["num_target_rows_inserted"]
        assert updated == (len(chosen), 0), (chosen, numbers)
    by_spark = DeltaTarget(path, writer="spark")
    apply_batch(changes(spark, kind, 9, values), by_spark, keys="id", order_by="v")
    assert [row.v for row in stored.select("v").collect()] == [9] * len(values)


OF_PARTITIONS = {f"p{number}": kind for number, kind in enumerate(("BOOLEAN", "TINYINT", "DATE"))}
"""Columns of the types, besides STRING, by which delta-rs writes partitioned tables."""
ASCII = ("a b", "a/b", "100%", "%20", "a#b", "a?b", "a+b", "a=b", "\\", "'", "[~")


@pytest.mark.parametrize(
    ("columns", "texts", "writer"),
    [
        (OF_PARTITIONS, (), "delta-rs"),
        ({"p": "STRING"}, ASCII, "delta-rs"),
        ({"p": "STRING"}, ("Zürich", "東京", "a b"), "spark"),
        ({"p": "STRING"}, ("", "a"), "spark"),
        ({"größe": "STRING"}, ("a",), "spark"),
    ],
)
def test_partitions(
    spark: SparkSession, tmp_path: Path, columns: dict[str, str], texts: Sequence[str], writer: str
) -> None:
    """Spark's rows are changed by delta-rs, where it can, and then again."""
    path, names = str(tmp_path / "table"), ", ".join(f"`{name}`" for name in columns)
    rows = [dict.fromkeys(columns)]
    for name, kind in columns.items():
        rows += [{**rows[0], name: value} for value in texts or VALUES[kind]]
    for number in range(3):
        selected = " UNION ALL ".join(
            f"SELECT '+U' AS row_kind, {key} AS id, {number} AS v, "
            + ", ".join(f"{literal(row[name], kind)} AS `{name}`" for name, kind in columns.items())
            for key, row in enumerate(rows)
        )
        made, target = spark.sql(selected).coalesce(1), DeltaTarget(path, only_writer=True)
        if number == 0:
            made.drop("row_kind").write.format("delta").partitionBy(*columns).save(path)
        else:
            apply_batch(made, target, keys="id", order_by="v")
            assert last_writer(path) == writer
        kept = f"SELECT id, v, CAST(struct({names}) AS STRING) FROM"
        stored = spark.sql(f"{kept} delta.`{path}` ORDER BY id").collect()
        # Delta has no partition of the empty text.
        expected = spark.sql(f"{kept} ({selected}) ORDER BY id".replace("CAST('' ", "CAST(NULL "))
        assert stored == expected.collect()
