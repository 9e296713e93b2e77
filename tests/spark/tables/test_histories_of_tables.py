"""A table of rows becomes a history and no other way round; and who else may write a history."""

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from normalize.tables.writers.lake import LakeSink
from tests.support.sinking import NewSink, changelog, finish_all


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_of_rows_becomes_a_history(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT, v INT) USING {kind}")
    sink.execute(f"INSERT INTO {sink.sql_name} VALUES (1, 1), (2, 1)")

    def apply() -> None:
        changes = changelog(spark, "id INT, v INT, w INT, at BIGINT", [("+U", 1, 2, 3, 7)])
        apply_batch(
            changes,
            sink.table,
            keys="id",
            sequence_by="at",
            scd_type=2,
            on_new_column="add",
            column_list=["id", "v", "w"],
        )

    with pytest.raises(SchemaError) as missing:
        apply()
    statement = (
        f"ALTER TABLE {sink.table.sql_name} ADD COLUMNS (`__START_AT` bigint, `__END_AT` bigint)"
    )
    assert (
        f"has no column __START_AT, __END_AT, which scd_type=2 requires: run {statement}, and then "
        "set __START_AT"
    ) in str(missing.value)
    sink.execute(statement)
    with pytest.raises(
        TargetError,
        match=(
            "has rows without __START_AT, which are at no place of the history: set it to a value "
            "before"
        ),
    ):
        apply()
    sink.execute(
        f"UPDATE {sink.sql_name} SET __START_AT = 0 WHERE __START_AT IS NULL AND __END_AT IS NULL"
    )
    apply()
    assert sink.rows("id", "v", "w", "__START_AT", "__END_AT") == [
        (1, 1, None, 0, 7),
        (1, 2, 3, 7, None),
        (2, 1, None, 0, None),
    ]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_soft_deletes_need_their_column(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink = new_sink(kind)
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT) USING {kind}")
    changes = changelog(spark, "id INT, at TIMESTAMP", [("-D", 1, datetime(2024, 1, 1))])
    alter = f"ALTER TABLE {sink.table.sql_name}"
    statements = [
        f"{alter} SET TBLPROPERTIES ('changelog.deleted_column' = 'gone')",
        f"{alter} ADD COLUMNS (`gone` timestamp)",
    ]
    arguments: dict[str, Any] = {
        "keys": "id",
        "deletes": "soft",
        "deleted_column": "gone",
        "column_list": ["id"],
        "order_by": "at",
    }
    with pytest.raises(SchemaError) as missing:
        apply_batch(changes, sink.table, **arguments)
    assert str(missing.value).endswith(
        f"has no column gone, which deletes='soft' requires: run {'; '.join(statements)}"
    )
    for statement in statements:
        sink.execute(statement)
    sink.execute(f"INSERT INTO {sink.sql_name} VALUES (1, NULL)")
    apply_batch(changes, sink.table, **arguments)
    assert sink.rows() == [(1, datetime(2024, 1, 1))]
    apply_batch(changes, sink.table, **arguments | {"deleted_column": "lost"}, on_new_column="add")
    assert sink.rows("id", "lost") == [(1, datetime(2024, 1, 1))]
    properties = spark.sql(f"SHOW TBLPROPERTIES {sink.table.sql_name}").where(
        "key = 'changelog.deleted_column'"
    )
    assert [row["value"] for row in properties.collect()] == ["lost"]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("writers", [2, pytest.param(3, marks=pytest.mark.soak)])
def test_concurrent_writers_of_different_keys(
    spark: SparkSession, new_sink: NewSink, kind: str, writers: int
) -> None:
    sink = new_sink(kind)

    def write(writer: int) -> None:
        rows = [("+U", writer, at, at) for at in range(2)]
        changes = changelog(spark, "id INT, v INT, at INT", rows)
        written = ["id", "v"]
        apply_batch(
            changes, sink.table, keys="id", sequence_by="at", scd_type=2, column_list=written
        )

    # They compete for the table's creation, and then with their MERGEs.
    with ThreadPoolExecutor(writers) as pool:
        finish_all(pool.submit(write, writer) for writer in range(writers))
    assert sink.rows() == sorted(
        ((writer, at, at, end) for writer in range(writers) for at, end in [(0, 1), (1, None)]),
        key=repr,
    )


def test_a_table_that_another_writer_is_creating_is_tried_again(
    spark: SparkSession, new_sink: NewSink, monkeypatch: Any
) -> None:
    sink, prepare, calls = new_sink("delta"), LakeSink.prepare, list[str]()

    def late(*arguments: Any) -> Any:
        # Another writer's CREATE TABLE is seen, and its table is not yet.
        calls.append("prepare")
        return prepare(*arguments) if len(calls) > 1 else arguments[-1]

    monkeypatch.setattr(LakeSink, "prepare", late)
    changes = changelog(spark, "id INT, at INT", [("+U", 1, 5)])
    apply_batch(changes, sink.table, keys="id", sequence_by="at", scd_type=2, column_list=["id"])
    assert sink.rows() == [(1, 5, None)]
    assert len(calls) == 2
