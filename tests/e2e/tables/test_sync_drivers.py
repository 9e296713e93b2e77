"""A driver that wakes up after another one, and a table or checkpoint that is set back."""

import re
from shutil import copytree, rmtree
from typing import Any

import pytest

from cdc_formats.errors import ChangelogError
from tests.support.databases import maxwell
from tests.support.syncing import NewBoundedSync, NewSync


@pytest.mark.parametrize("kind", ["delta", "delta-rs", "iceberg", "postgresql", "mariadb"])
def test_driver_that_wakes_up_after_another_one_writes_no_row_and_no_file(
    new_bounded_sync: NewBoundedSync, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A driver is frozen in a micro-batch, and another one goes on with its checkpoint."""
    sync = new_bounded_sync(kind)
    sync.produce("t", [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    late, newer = sync.job(on_table_error="stop_table"), sync.job()
    sync.apply(late)
    rows, files = [], []
    frozen, row = list[Any](), {"id": 1, "name": "a"}
    for name in "bc":
        row, old = {"id": 1, "name": name}, row
        sync.produce("t", [maxwell("orders", "update", row, old)])
        frozen = frozen or sync.written
        sync.apply(newer)
        rows, files = sync.rows_of("orders"), [path.read_text() for path in sync.files()]
    assert rows == [{"id": 1, "name": "c"}]
    again = sync.last
    for extra in ({}, {"qty": 5}):
        message = maxwell("orders", "update", {"id": 1, "name": "b", **extra}, {"name": "a"})
        sync.planned, sync.number = [{**frozen[0], "value": message[1]}], 1
        with pytest.raises(ChangelogError, match=r"\[BATCH_ORDER\] .*(stop|start)"):
            sync.apply(late)
        assert sync.rows_of("orders") == rows
        assert [path.read_text() for path in sync.files()] == files
    # A repetition is not written again, and the log says so.
    sync.planned, sync.number = again, 2
    with caplog.at_level("INFO", "normalize"):
        sync.apply(sync.job())
    assert "has micro-batch 2 of the query already: it is not written again" in caplog.text
    assert sync.rows_of("orders") == rows


@pytest.mark.parametrize("kind", ["delta-rs", "iceberg"])
def test_table_that_is_restored_alone_and_then_with_its_checkpoint(
    new_sync: NewSync, kind: str
) -> None:
    sync, rows = new_sync(kind), list[dict[str, Any]]()

    def insert() -> None:
        rows.append({"id": len(rows), "name": "a"})
        sync.produce("t", [maxwell("orders", "insert", rows[-1])])

    def statement_of_error(pattern: str) -> str:
        text = sync.error()
        assert "[COMMIT_LOST]" in text
        return re.search(pattern, text)[0]

    insert()
    sync.run()
    checkpoint, backup = sync.folder / "checkpoint", sync.folder / "backup"
    copytree(checkpoint, backup)
    insert()
    sync.run()
    restore = f"RESTORE TABLE delta.`{sync.folder}/lake/orders` TO VERSION AS OF 1"
    if kind == "iceberg":
        target: Any = sync.tables.database.target("orders")
        first = sync.spark.table(f"{target.sql_name}.snapshots").where("parent_id IS NULL").first()
        restore = f"CALL lake.system.rollback_to_snapshot('{target.name}', {first.snapshot_id})"
    sync.spark.sql(restore).collect()
    insert()
    undo = statement_of_error(r"RESTORE TABLE .* TO VERSION AS OF 2|CALL .*\)(?=\. Or)")
    sync.spark.sql(undo).collect()
    sync.run()
    assert sync.rows_of("orders") == rows
    sync.spark.sql(restore).collect()
    rmtree(checkpoint)
    backup.rename(checkpoint)
    accept = statement_of_error(r"ALTER TABLE .* SET TBLPROPERTIES \(.*\)")
    assert sync.rows_of("orders") == rows[:1]
    sync.spark.sql(accept).collect()
    for _ in range(2):
        insert()
        sync.run()
        assert sync.rows_of("orders") == rows
