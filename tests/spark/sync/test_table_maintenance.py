"""Maintenance between micro-batches: few files, no old ones, and the query's record stays."""

import logging
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from normalize.tables.maintenance import maintain
from normalize.tables.policy import Maintenance
from normalize.tables.table_options import TableOptions
from tests.support.databases import maxwell
from tests.support.maintenance import MAINTENANCE
from tests.support.syncing import NewBoundedSync

PROPERTIES = {
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
        table = TableOptions(maintenance=maintenance, properties=PROPERTIES[kind])
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
        # That of the last micro-batch, and that of the compaction.
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
