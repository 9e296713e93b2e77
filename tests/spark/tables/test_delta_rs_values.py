"""Awkward values of each type in Delta tables that Spark and delta-rs write in turn.

Spark reads the same rows and answers filters in the same way, whatever wrote the files. A new
version of the package ``deltalake`` enters the tested range only if this passes.
"""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize import DeltaTarget
from normalize.tables.apply import apply_batch
from tests.support.delta_values import VALUES, literal
from tests.support.sinking import last_writer
from tests.support.streams import settings

REPEATED = ("DECIMAL(20,0)", "DOUBLE", "STRING", "TIMESTAMP")


def forms(value: str, index: int, kind: str) -> dict[str, str]:
    """A value as the plain, nested and repeated columns of its type."""
    nested = f"named_struct('a.b', {value}, 'deep', named_struct('x', {value}))"
    columns = {f"c.{index}": value, f"s{index}": nested}
    repeated = {f"l{index}": f"array({value})", f"m{index}": f"map('k', {value})"}
    return columns | (repeated if kind in REPEATED else {})


def random_rows(spark: SparkSession, random: Random, ids: Sequence[int]) -> DataFrame:
    """A row of random values for each key, in one file."""
    rows = []
    for key in ids:
        columns = {"row_kind": "'+U'", "id": str(key)}
        for index, (kind, values) in enumerate(VALUES.items()):
            columns |= forms(literal(random.choice([*values, None]), kind), index, kind)
        rows.append([f"{value} AS `{name}`" for name, value in columns.items()])
    return spark.sql(" UNION ALL ".join(f"SELECT {', '.join(row)}" for row in rows)).coalesce(1)


def texts(rows: DataFrame) -> dict[int, str]:
    """Each row as text, by its key."""
    names = [name for name in rows.columns if name not in ("id", "row_kind")]
    hidden = [f"c.{list(VALUES).index('BINARY')}"]
    columns = [f"hex(`{name}`)" if name in hidden else f"`{name}`" for name in names]
    selected = rows.selectExpr("id", f"CAST(struct({', '.join(columns)}) AS STRING) AS row")
    collected = [tuple(row) for row in selected.collect()]
    assert len({key for key, _ in collected}) == len(collected), "a key has two rows"
    return dict(collected)


def filters(random: Random) -> list[str]:
    """Three filters on the plain column of each type, and one on a nested one."""
    conditions = []
    for index, (kind, values) in enumerate(VALUES.items()):
        value, other = (literal(random.choice(values), kind) for _ in range(2))
        compared = [f"= {value}", f"< {value}", f">= {value}", f"IN ({value}, {other})", "IS NULL"]
        conditions += [f"`c.{index}` {each}" for each in random.sample(compared, 3)]
        leaf = random.choice(["`a.b`", "deep.x"])
        conditions.append(f"s{index}.{leaf} {random.choice(compared)}")
    return conditions


def answers(spark: SparkSession, name: str, conditions: Sequence[str]) -> None:
    """Compare the answers to filters, which skip files, with those of a pass over all rows."""
    counts = ", ".join(f"count_if({each})" for each in conditions)
    (all_rows,) = spark.sql(f"SELECT {counts} FROM {name}").collect()
    skipping = " UNION ALL ".join(
        f"SELECT {number} AS number, count(*) AS rows FROM {name} WHERE {each}"
        for number, each in enumerate(conditions)
    )
    found = {row.number: row.rows for row in spark.sql(skipping).collect()}
    wrong = {
        each: (found[number], all_rows[number])
        for number, each in enumerate(conditions)
        if found[number] != all_rows[number]
    }
    assert not wrong, wrong
    # Python has no dates and times as early and late as these.
    numbers = [index for index, kind in enumerate(VALUES) if not kind.startswith(("DATE", "TIME"))]
    bounds = ", ".join(f"{of}(`c.{index}`)" for index in numbers for of in ("min", "max"))
    by_metadata, by_rows = (
        repr(spark.sql(f"SELECT {bounds} FROM {of}").collect())
        for of in (name, f"(SELECT * FROM {name} WHERE rand() >= 0)")
    )
    assert by_metadata == by_rows


@pytest.mark.slow(20)
@pytest.mark.parametrize(
    ("timestamps", "first", "seed"),
    [
        ("TIMESTAMP_MICROS", "spark", 1),
        # That files with INT96 are left to Spark is a fact of a unit test, too.
        pytest.param("INT96", "delta-rs", 1, marks=pytest.mark.soak),
        *(
            pytest.param(timestamps, first, seed, marks=pytest.mark.soak)
            for timestamps in ("TIMESTAMP_MICROS", "INT96")
            for first in ("spark", "delta-rs")
            for seed in range(2, 6)
        ),
    ],
)
def test_rows_and_answers_to_filters(
    spark: SparkSession, tmp_path: Path, timestamps: str, first: str, seed: int
) -> None:
    with settings(spark, {"spark.sql.parquet.outputTimestampType": timestamps}):
        by_both_in_turn(spark, str(tmp_path / "table"), timestamps, first, seed)


def by_both_in_turn(spark: SparkSession, path: str, timestamps: str, first: str, seed: int) -> None:
    """Write random rows by both, with OPTIMIZE between, and compare rows and answers."""
    mapping = ("name", "none")[(seed + (timestamps == "INT96")) % 2]
    properties = {"delta.dataSkippingNumIndexedCols": "-1", "delta.columnMapping.mode": mapping}
    random = Random(f"{seed} {first}")
    columns = random_rows(spark, random, [0]).drop("row_kind").limit(0)
    columns.write.format("delta").options(**properties).save(path)
    by_spark = DeltaTarget(path, writer="spark")
    by_either = DeltaTarget(path, only_writer=True)
    expected: dict[int, str] = {}
    in_turn = (by_spark, by_either) if first == "spark" else (by_either, by_spark)
    for ids, target in zip([(1, 2, 3, 4, 5), (2,), (3, 6)], (*in_turn, by_either), strict=True):
        changes = random_rows(spark, random, ids).localCheckpoint()
        apply_batch(changes, target, keys="id", order_by="id")
        expected |= texts(changes)
        assert texts(spark.table(f"delta.`{path}`")) == expected
    spark.sql(f"OPTIMIZE delta.`{path}`").collect()
    changes = random_rows(spark, random, (4, 7)).localCheckpoint()
    apply_batch(changes, by_either, keys="id", order_by="id")
    assert texts(spark.table(f"delta.`{path}`")) == expected | texts(changes)
    answers(spark, by_spark.sql_name, filters(random))
    assert last_writer(path) == ("spark" if timestamps == "INT96" else "delta-rs")
