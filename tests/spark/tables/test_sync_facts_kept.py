"""Facts and completed rows that are kept beside the schemas, and rows whose key changed.

A row whose key changed has the values of the earlier key's row.
"""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from cdc_formats import get_format
from cdc_formats.values.schema import columns
from normalize import DeltaTarget
from normalize.decode.plan import DecodePlan
from normalize.tables.changes import ChangeOptions, table_changes
from normalize.tables.facts import QueryFacts
from normalize.tables.merge import BASE_COLUMN
from normalize.tables.route import RECORD_DDL
from normalize.tables.schema import TableSchema
from normalize.tables.schema_store import SchemaStore
from normalize.tables.table_options import SyncError
from normalize.tables.table_spec import TableSpec
from tests.support.databases import RECORDS, maxwell

FACTS = QueryFacts("q1", {"t": "A"})


def test_tables_with_a_file(spark: SparkSession, tmp_path: Path) -> None:
    store = SchemaStore(spark, str(tmp_path / "none"))
    assert store.tables() == []
    store = SchemaStore(spark, str(tmp_path))
    names = ["../../x", "shop.`a.b`", "shop.orders"]
    for name in names:
        store.write(TableSchema(name))
    store.write_query(FACTS)
    (tmp_path / "shop.unfinished.json.new").write_text("{")
    assert store.tables() == [*names, "shop.unfinished"]


@pytest.mark.parametrize(
    "length", [0, 9, 10_000], ids=lambda length: f"{length} characters written"
)
def test_killed_write_of_the_query_leaves_whole_facts(
    spark: SparkSession, tmp_path: Path, length: int
) -> None:
    store = SchemaStore(spark, str(tmp_path))
    assert store.read_query() == QueryFacts()
    store.write_query(FACTS)
    text = Path(store.query_file).read_text("utf-8")
    Path(store.query_file).unlink()
    Path(f"{store.query_file}.new").write_text(text[:length])
    assert store.read_query() == (FACTS if length >= len(text) else QueryFacts())
    Path(store.query_file).write_text("{")
    with pytest.raises(SyncError, match="is not the file of a query"):
        store.read_query()


def records() -> pa.Table:
    messages = [
        maxwell("orders", "update", {"id": 2, "qty": 5}, {"id": 1, "qty": 4}),
        maxwell("orders", "update", {"id": 3}, {"id": 2}),
        maxwell("orders", "update", {"id": 8, "qty": 6}, {"qty": 5}),
        maxwell("orders", "insert", {"id": 9, "name": "i", "qty": 9}),
    ]
    rows = [
        {
            "key": key,
            "value": value,
            "topic": "t",
            "partition": 0,
            "offset": at,
            "stamp": at,
            "headers": None,
        }
        for at, (key, value) in enumerate(messages)
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS)


def test_moved_rows_are_completed_by_the_target(spark: SparkSession, tmp_path: Path) -> None:
    source = DecodePlan(
        format=get_format("maxwell-json", binlog_row_image="MINIMAL"),
        columns=columns("id INT NOT NULL, name STRING, qty INT"),
        unique_key=("id",),
        distinguished_by=("database", "table", "topic"),
        completes_moved=True,
    )
    record_table = records()
    with table_changes(record_table, source, ChangeOptions(), None) as (changes, _):
        here = changes.frame(spark)
    expected = sorted(map(str, here.toArrow().to_pylist()))
    frame = spark.createDataFrame(record_table, RECORD_DDL).repartition(3)
    for records_of_tasks in (frame, frame.repartition(1).sortWithinPartitions("offset")):
        for most_bytes in (None, 1 << 20):
            with table_changes(records_of_tasks, source, ChangeOptions(), most_bytes) as both:
                rows = both[0].frame(spark) if most_bytes else both[0]
                assert sorted(map(str, rows.toArrow().to_pylist())) == expected
                assert (both[1].rows, len(both[1].moved)) == (5, 3)

    table = DeltaTarget(str(tmp_path / "orders"))
    spark.sql(f"CREATE TABLE {table.sql_name} (id INT, name STRING, qty BIGINT) USING delta")
    spark.sql(f"INSERT INTO {table.sql_name} VALUES (1, 'one', 4), (3, 'stale', 3)")
    moved = here.where(f"{BASE_COLUMN} IS NOT NULL")
    spec = TableSpec(
        tuple(here.schema.fields[1:4]),
        ("id",),
        create=True,
        on_new_column="add",
        partial_rows=True,
    )
    whole = table.sink(spark).with_values_of_bases(moved, spec)
    assert [row.asDict() for row in whole.collect()] == [
        {"row_kind": "+U", "id": 3, "name": "one", "qty": 5}
    ]
    spark.sql(f"DELETE FROM {table.sql_name} WHERE id = 1")
    with pytest.raises(
        Exception,
        match=r"the target does not have its key, and so cannot complete it.* in t\[0\]@1",
    ):
        table.sink(spark).with_values_of_bases(moved, spec).collect()
