"""The layout of new tables: partitions, clusters and properties; an existing table is compared."""

import logging
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from normalize.tables.maintenance import maintain
from normalize.tables.table_options import Maintenance, TableOptions
from tests.support.databases import debezium, maxwell
from tests.support.maintenance import MAINTENANCE
from tests.support.syncing import BoundedSync, NewBoundedSync

SCHEMA: dict[str, Any] = {"schema": "id INT, at TIMESTAMP_NTZ, name STRING", "primary_key": "id"}
PROPERTIES: dict[str, str | bool] = {"team": "it's shop", "checked": True}
LAYOUTS = {
    "delta": (["day(at)"], {"cluster_by": "id"}, "CLUSTER BY (`id`)"),
    "iceberg": (
        ["day(at)", "bucket(4, id)"],
        {"partition_by": ["month(at)"], "cluster_by": "id"},
        "WRITE LOCALLY ORDERED BY `id`",
    ),
}


def statements(sync: BoundedSync, caplog: pytest.LogCaptureFixture) -> list[str]:
    """Run the statements of the warnings, and return them."""
    texts = [text for text in caplog.messages if "another layout" in text]
    caplog.clear()
    found = [each for text in texts for each in text.partition("keeps it: ")[2].split("; ")]
    for each in found:
        sync.spark.sql(each)
    return found


def partitions(sync: BoundedSync, table: str) -> list[str]:
    """The partition columns of a Delta table, or the fields of an Iceberg table."""
    target = sync.tables.database.target(table)
    if target.provider == "delta":
        return list(
            sync.spark.sql(f"DESCRIBE DETAIL {target.sql_name}").first()["partitionColumns"]
        )  # type: ignore[index]
    rows = sync.spark.sql(f"DESCRIBE TABLE {target.sql_name}").collect()
    return [row["data_type"] for row in rows if row["col_name"].startswith("Part ")]


@pytest.mark.parametrize("kind", LAYOUTS)
def test_new_tables_have_the_layout_and_existing_ones_a_warning(
    new_sync: NewBoundedSync, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    sync, (partition_by, other, expected) = new_sync(kind), LAYOUTS[kind]
    database: Any = sync.tables.database
    tables = {
        "shop.orders": TableOptions(**SCHEMA),
        "shop.notes": TableOptions(**SCHEMA, **other, scd_type=2),
    }
    options: dict[str, Any] = {
        "target": replace(database, partition_by=partition_by, properties=PROPERTIES),
        "tables": tables,
    }
    first = {"id": 1, "at": "2026-01-02 03:04:05", "name": "a"}
    for table, row in (("orders", first), ("notes", first), ("items", {"id": 7})):
        sync.produce(table, [maxwell(table, "insert", row)])
    sync.run(**options)
    of_kind = kind == "delta"
    assert partitions(sync, "orders") == (["at_day"] if of_kind else ["days(at)", "bucket(4, id)"])
    assert partitions(sync, "notes") == ([] if of_kind else ["months(at)"])
    assert partitions(sync, "items") == []  # it has no such column
    clusters = {
        "delta": f"DESCRIBE DETAIL {database.target('notes').sql_name}",
        "iceberg": f"SHOW TBLPROPERTIES {database.target('notes').sql_name}",
    }
    assert re.search(r"\['id'\]|id ASC", str(sync.spark.sql(clusters[kind]).collect()))
    name = database.target("items").sql_name
    found = {
        row["key"]: row["value"] for row in sync.spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
    }
    assert found.items() >= {"team": "it's shop", "checked": "true"}.items()
    assert statements(sync, caplog) == []
    # A row moves to another partition, and a table exists.
    tables["shop.items"] = TableOptions(cluster_by="id", properties={"team": "me"})
    moved = {**first, "at": "2026-02-02 03:04:05"}
    sync.produce("orders", [maxwell("orders", "update", moved, {"at": first["at"]})])
    sync.produce("items", [maxwell("items", "insert", {"id": 8})])
    sync.run(**options)
    assert [row["at"].month for row in sync.rows("orders")] == [2]
    assert statements(sync, caplog) == [
        f"ALTER TABLE {name} {expected}",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('team' = 'me')",
    ]
    sync.produce("items", [maxwell("items", "insert", {"id": 9})])
    sync.run(**options)
    assert statements(sync, caplog) == []
    assert [row["id"] for row in sync.rows("items")] == [7, 8, 9]


@pytest.mark.parametrize("kind", LAYOUTS)
def test_columns_have_the_comments_of_the_source(new_sync: NewBoundedSync, kind: str) -> None:
    sync, types = new_sync(kind), {"id": "int32", "name": "string"}
    comments = {"id": "the number", "name": "it's ${env:HOME} \\ 名"}
    options: dict[str, Any] = {"format": "debezium-json"}

    def produce(row: dict[str, Any]) -> None:
        sync.produce("orders", [debezium("orders", "c", None, row, types, comments)])
        sync.run(**options)

    produce({"id": 1, "name": "a"})
    types["qty"], comments["qty"] = "int32", "a new column"
    produce({"id": 2, "name": "b", "qty": 3})
    table = sync.spark.table(sync.tables.database.target("orders").sql_name)
    assert {each.name: each.metadata.get("comment") for each in table.schema.fields} == comments
    assert len(sync.rows("orders")) == 2


# --------------------------------------------------------------------------------------------------
# Maintenance between micro-batches: few files, no old ones, and the query's record stays
PROPERTIES_OF_TABLE_MAINTENANCE = {
    "delta": {
        "delta.enableDeletionVectors": True,
        "delta.deletedFileRetentionDuration": "interval 0 hours",
    },
    "iceberg": {"write.merge.mode": "merge-on-read"},
}
LATER = datetime.now(timezone.utc) + timedelta(days=30)


@pytest.mark.parametrize("kind", MAINTENANCE)
def test_a_table_is_maintained_and_keeps_the_record_of_its_query(
    new_sync: NewBoundedSync, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    sync = new_sync(kind)

    def apply(maintenance: Maintenance, *keys: int) -> None:
        rows = [maxwell("orders", "insert", {"id": key, "name": "a", "qty": 1}) for key in keys]
        sync.produce(
            "t", [*rows, maxwell("orders", "update", {"id": 1, "name": f"b{keys}", "qty": 1})]
        )
        options: dict[str, Any] = {"schema": "id INT, name STRING, qty INT", "primary_key": "id"}
        table = TableOptions(
            maintenance=maintenance, properties=PROPERTIES_OF_TABLE_MAINTENANCE[kind]
        )
        sync.apply(sync.table_job(table=table, **options))

    with caplog.at_level(logging.INFO, "normalize"):
        later = Maintenance(every="1 hour")
        for key in range(1, 4):
            apply(later, key)
        assert ": maintained: " not in caplog.text
        apply(Maintenance(every="0 seconds", expire=kind == "delta"), 4)
    assert "files compacted into 1" in caplog.text
    target = sync.tables.database.target("orders")
    if kind == "iceberg":
        done = [*maintain(sync.spark, target, Maintenance(), sync.query, now=LATER)]
        assert "expired and 0 orphan files removed" in done[-1]
        # The snapshots of the last micro-batch and of the compaction remain.
        assert sync.spark.table(f"{target.sql_name}.snapshots").count() == 2
    else:
        assert len([*Path(sync.tables.database.target("orders").name).glob("*.parquet")]) == 1
    rows = sync.rows("orders")
    assert [row["id"] for row in rows] == [1, 2, 3, 4]
    # The record is there: a repeated micro-batch is not written again.
    sync.forget_last_commit()
    caplog.clear()
    with caplog.at_level(logging.INFO, "normalize"):
        apply(later, 5)
    assert "it is not written again" in caplog.text
    assert sync.rows("orders") == rows
