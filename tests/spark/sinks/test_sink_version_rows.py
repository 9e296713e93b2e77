"""SCD type 2 histories: repeated micro-batches, ignored columns, names and types, equal sequence values."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from tests.support.sinking import NewSink, changelog


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_repeated_micro_batch_makes_no_commit(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    changes = changelog(
        spark,
        "id INT, v INT, at INT",
        [("+I", 1, 1, 5), ("+U", 1, 2, 6), ("+U", 1, 2, 7), ("-D", 1, 2, 8), ("-D", 2, 0, 9)],
    )
    commits = (
        f"DESCRIBE HISTORY {sink.sql_name}"
        if kind == "delta"
        else f"SELECT * FROM {sink.sql_name}.snapshots"
    )
    counts = set()
    for _ in range(2):
        apply_batch(
            changes, sink.table, keys="id", sequence_by="at", scd_type=2, column_list=["id", "v"]
        )
        counts.add(spark.sql(commits).count())
    assert len(counts) == 1
    assert sink.rows() == [(1, 1, 5, 6), (1, 2, 6, 8), (1, 2, 7, 7), (2, None, None, 9)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_history_ignores_a_column_in_its_comparison_too(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    arguments: dict[str, Any] = {"keys": "id", "sequence_by": "at", "scd_type": 2}
    apply_batch(
        changelog(spark, "id INT, name STRING, at INT", [("+I", 1, "a", 1)]),
        sink.table,
        column_list=["id", "name"],
        **arguments,
    )
    changes = changelog(
        spark,
        "id INT, name STRING, weight INT, at INT",
        [("+U", 1, "a", 7, 2), ("+U", 1, "b", 7, 3)],
    )
    apply_batch(
        changes,
        sink.table,
        column_list=["id", "name", "weight"],
        on_new_column="ignore",
        **arguments,
    )
    # The update of the ignored column alone is no version.
    assert sink.rows() == [(1, "a", 1, 3), (1, "a", 2, 2), (1, "b", 3, None)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_columns_of_any_type_and_name(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink, start = new_sink(kind), datetime(2024, 1, 1)
    hours = [start + timedelta(hours=hour) for hour in range(3)]
    schema = (
        "`a.b` STRING, k0 MAP<STRING, INT>, row ARRAY<STRUCT<c0: DOUBLE>>, at TIMESTAMP_NTZ, `no` "
        "BIGINT"
    )
    rows = [
        ("+I", "x", {"m": 1}, [(float("nan"),)], hours[0], 1),
        ("+U", "x", {"m": 1}, [(float("nan"),)], hours[0], 2),
        ("+U", "x", {"m": None}, [(float("nan"),)], hours[1], 1),
        ("+U", "x", {"m": None}, None, hours[2], 1),
    ]
    for some in ([*rows[:1], *rows[2:]], rows[1:2]):  # the second at its place, between the others
        columns: dict[str, Any] = {"keys": "a.b", "column_list": ["a.b", "k0", "row"]}
        apply_batch(
            changelog(spark, schema, some),
            sink.table,
            sequence_by=["at", "no"],
            scd_type=2,
            **columns,
        )
    history = sink.read().selectExpr("k0", "size(row)", "__START_AT", "__END_AT").collect()
    assert sorted(map(tuple, history), key=lambda row: row[2]) == [
        ({"m": 1}, 1, (hours[0], 1), (hours[1], 1)),
        ({"m": 1}, 1, (hours[0], 2), (hours[0], 2)),
        ({"m": None}, 1, (hours[1], 1), (hours[2], 1)),
        ({"m": None}, None, (hours[2], 1), None),
    ]


def test_equal_sequence_values(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("delta")

    def apply(*rows: Any) -> list[tuple[Any, ...]]:
        apply_batch(
            changelog(spark, "id INT, v INT, at INT", rows),
            sink.table,
            keys="id",
            sequence_by="at",
            scd_type=2,
            column_list=["id", "v"],
        )
        return sink.rows()

    with pytest.raises(
        ChangeOrderError,
        match=r"two rows of one key have the same values in \['at'\], which order its changes",
    ):
        apply(("+I", 1, 1, 5), ("+U", 1, 2, 5), ("+U", 1, 3, 6))
    ended = [("+I", 1, 5), ("-D", 1, 5), ("-D", 1, 9)]
    changes = [(kind, key, value, at) for key in (1, 2) for kind, value, at in ended]
    assert apply(*changes, ("-D", 3, 0, 4)) == [(1, 1, 5, 9), (2, 1, 5, 9), (3, None, None, 4)]
    # An upsert at the place of a delete, and, of key 1, a delete at the place of a version, of key
    # 2 another row.
    changed = [("+I", 1, 3, 9), ("-D", 1, 1, 5), ("+I", 2, 2, 5), ("+I", 2, 3, 9), ("+I", 3, 0, 4)]
    assert apply(*changed) == [
        (1, 1, 5, 9),
        (1, 3, 9, None),
        (2, 2, 5, 9),
        (2, 3, 9, None),
        (3, 0, 4, None),
    ]
