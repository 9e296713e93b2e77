"""A table with soft deletes that differs from its source is repaired; and Debezium reads rows again."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget
from normalize.tables.apply import apply_batch
from normalize.tables.writers.jdbc import JdbcConnection
from normalize.verify.repair import DebeziumSignal
from tests.support.servers.local_databases import LocalPostgres
from tests.support.sinking import changelog, database_sink, lake_sink, table_name
from tests.support.verifying import Database, differences, verify


@pytest.mark.parametrize(
    "kind", ["delta", pytest.param("iceberg", marks=pytest.mark.iceberg), "postgresql"]
)
def test_repair_of_soft_deletes(
    spark: SparkSession, maria: Database, postgres: LocalPostgres, tmp_path: Path, kind: str
) -> None:
    name = table_name()
    maria.run(
        f"CREATE TABLE {name} (id INT PRIMARY KEY, name VARCHAR(9))",
        f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    source = maria.source(name)
    sink = (
        database_sink(spark, postgres, table_name())
        if kind == "postgresql"
        else lake_sink(spark, kind, tmp_path)
    )
    inserts = [("+I", key, text, key) for key, text in enumerate(("a", "x", "c", "d", "e"), 1)]
    deletes = [("-D", 3, "c", 6), ("-D", 5, "e", 7)]
    for rows in (inserts, deletes):
        apply_batch(
            changelog(spark, "id INT, name STRING, no INT", rows),
            sink.table,
            keys="id",
            order_by="no",
            column_list=["id", "name"],
            deletes="soft",
        )
    sink.execute(
        f"ALTER TABLE {sink.sql_name} ADD COLUMN place {'TEXT' if kind == 'postgresql' else 'STRING'}"
    )
    sink.execute(f"UPDATE {sink.sql_name} SET place = concat('at ', id)")

    def stored() -> dict[int, tuple[Any, ...]]:
        return {row.id: (row.name, row.deleted_at, row.place) for row in sink.read().collect()}

    before, known = stored(), {"deleted_column": "deleted_at"} if kind == "postgresql" else {}
    if kind != "postgresql":
        sink.execute(
            f"ALTER TABLE {sink.sql_name} RENAME COLUMN deleted_at TO gone_at"
            if kind == "iceberg"
            else f"ALTER TABLE {sink.sql_name} UNSET TBLPROPERTIES ('changelog.deleted_column')"
        )
    text = (
        "deleted_column is 'deleted_at', which is not a TIMESTAMP column"
        if kind == "iceberg"
        else "has the column `deleted_at`, which the source lacks: pass deleted_column='deleted_at'"
    )
    with pytest.raises(ArgumentError, match=text):
        verify(spark, source, sink.table, repair="merge")
    if kind == "iceberg":
        sink.execute(f"ALTER TABLE {sink.sql_name} RENAME COLUMN gone_at TO deleted_at")
    elif kind == "delta":
        sink.execute(
            f"ALTER TABLE {sink.sql_name} SET TBLPROPERTIES ('changelog.deleted_column' = 'deleted_at')"
        )
    assert stored() == before
    with pytest.raises(ArgumentError, match="deleted_column is 'name', which is not a TIMESTAMP"):
        verify(spark, source, sink.table, deleted_column="name")

    result = verify(spark, source, sink.table, **known)
    assert sorted(differences(result)) == [
        ("different", "2", ("name",)),
        ("extra", "4", ()),
        ("missing", "3", ()),
    ]
    result = verify(spark, source, sink.table, repair="merge", **known)
    assert (result.equal, result.repaired, result.source_rows, result.target_rows) == (
        True,
        3,
        3,
        3,
    ), str(result)
    # The deleted rows stay, also that which the repair deletes, and no row loses its place.
    after = stored()
    assert {key: (row[0], row[1] is None, row[2]) for key, row in after.items()} == {
        1: ("a", True, "at 1"),
        2: ("b", True, "at 2"),
        3: ("c", True, "at 3"),
        4: ("d", False, "at 4"),
        5: ("e", False, "at 5"),
    }
    assert after[5] == before[5]
    # For a target that has hard deletes after all.
    result = verify(spark, source, sink.table, repair="merge", deleted_column="")
    assert (result.equal, sorted(stored())) == (True, [1, 2, 3])


def test_repair_by_a_signal_to_debezium(
    spark: SparkSession, postgresql: Database, delta: Callable[..., DeltaTarget]
) -> None:
    source, target, signals = postgresql.table(5), delta(5), table_name()
    postgresql.run(
        f"CREATE TABLE {signals} (id VARCHAR(42) PRIMARY KEY, type VARCHAR(32) NOT NULL, data "
        "VARCHAR(2048))"
    )
    signal = DebeziumSignal(f"public.{signals}")
    assert verify(spark, postgresql.source(source), target, repair=signal).repaired == 0
    spark.sql(f"DELETE FROM {target.sql_name} WHERE id IN (2, 3)")
    spark.sql(f"INSERT INTO {target.sql_name} (id) VALUES (77)")
    result = verify(spark, postgresql.source(source), target, repair=signal)
    assert (result.equal, result.repaired, result.counts["missing"], result.counts["extra"]) == (
        False,
        2,
        2,
        1,
    )
    with JdbcConnection.open(spark, postgresql.source(source)) as connection:
        ((kind, data),) = connection.rows(f"SELECT type, data FROM {signals}")
        request = json.loads(data)
        condition = request["additional-conditions"][0]["filter"]
        assert sorted(connection.rows(f"SELECT id FROM {source} WHERE {condition}")) == [
            ("2",),
            ("3",),
        ]
    assert (kind, request["type"], request["data-collections"]) == (
        "execute-snapshot",
        "incremental",
        [f"public.{source}"],
    )
    assert request["additional-conditions"][0]["data-collection"] == f"public.{source}"
