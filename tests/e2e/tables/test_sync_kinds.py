"""Tables of each kind, whose SQL differs, as sync_database writes them.

The micro-batches are bounded, and each of their tables is a case.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from normalize.tables.table_options import TableOptions
from tests.support.syncing import ORDER, BoundedSync, NewBoundedSync, rows_of, write

OTHER = {"id": 2, "name": "b"}


def deletions(sync: BoundedSync, table: str) -> list[tuple[Any, ...]]:
    """The rows of a table with soft deletes: key, name, and which of two columns have a time."""
    return sorted(
        (row["id"], row.get("name"), "deleted_at" in row, "gone_at" in row)
        for row in sync.rows_of(table)
    )


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_rows_columns_and_deletes(new_bounded_sync: NewBoundedSync, kind: str) -> None:
    sync = new_bounded_sync(kind)
    hard = TableOptions(deletes="hard")
    options = {
        "target": replace(sync.tables.database, deletes="soft"),
        "tables": {
            **dict.fromkeys(["shop.orders", "shop.added"], hard),
            "shop.wide": TableOptions(types={"qty": "INT"}),
            # The source has a column deleted_at itself.
            "shop.users": TableOptions(deleted_column="gone_at", where="name <> 'hidden'"),
            "shop.sharded": TableOptions(deletes="hard", shards="shop_[0-9]+[.]sharded"),
        },
        "exclude": ".*skipped",
    }
    write(
        sync,
        {
            "orders": [
                ("insert", ORDER),
                ("insert", OTHER),
                ("delete", OTHER),
                ("update", {"id": 3, "name": "c"}, {"id": 1}),  # the key changes
                ("insert", {"id": 6}),
            ],
            "wide": [("insert", {"id": 1, "qty": 1})],
            "users": [("insert", row | {"deleted_at": "-"}) for row in (ORDER, OTHER)],
            "sharded": [
                ("insert", ORDER, None, "shop_1"),
                ("insert", OTHER | {"note": "n"}, None, "shop_2"),
            ],
            "skipped": [("insert", {"id": 1}, None, "shop_1")],
        },
    )
    sync.run(**options)
    assert rows_of(sync, ["orders", "sharded"]) == {
        "orders": [{"id": 3, "name": "c"}, {"id": 6}],
        "sharded": [ORDER, OTHER | {"note": "n"}],
    }
    assert deletions(sync, "users") == [(1, "a", True, False), (2, "b", True, False)]
    assert sync.file("shop.sharded")["schema"] == [
        "id BIGINT NOT NULL",
        "name STRING",
        "note STRING",
    ]
    assert not sync.path("shop_1.skipped").exists()
    write(
        sync,
        {
            "orders": [
                ("insert", {"id": 4, "name": "d"}),
                ("insert", {"id": 5, "name": "e", "note": "new column"}),
                ("update", {"id": 3, "note": "name is dropped"}, {"note": None}),
                ("delete", {"id": 6}),
            ],
            "added": [("insert", {"id": 9})],
            "wide": [("insert", {"id": 2, "qty": 3_000_000_000})],
            "users": [
                ("delete", ORDER),
                ("update", {"id": 2, "name": "hidden", "deleted_at": "-"}, {"name": "b"}),
            ],
            # A shard that appears later, a column that another shard adds, a row that moves to
            # another shard.
            "sharded": [
                ("insert", {"id": 3, "name": "c", "qty": 1}, None, "shop_3"),
                ("update", {"id": 2, "name": "x"}, {"name": "b"}, "shop_2"),
                ("delete", ORDER, None, "shop_1"),
                ("insert", {"id": 1, "name": "moved"}, None, "shop_3"),
            ],
        },
    )
    text = sync.error(**options)
    assert text.startswith("[SYNC] shop.wide: [TYPE_CONVERSION]")
    remedy = re.search(
        "To widen the column, write 'qty BIGINT' into (.*), run (.*), and restart the query", text
    )
    rows = {
        "orders": [
            {"id": 3, "note": "name is dropped"},
            {"id": 4, "name": "d"},
            {"id": 5, "name": "e", "note": "new column"},
        ],
        "added": [{"id": 9}],
        "wide": [{"id": 1, "qty": 1}],
        "sharded": [
            {"id": 1, "name": "moved"},
            {"id": 2, "name": "x"},
            {"id": 3, "name": "c", "qty": 1},
        ],
    }
    assert rows_of(sync, rows) == rows
    assert deletions(sync, "users") == [(1, "a", True, True), (2, "b", True, True)]
    # The statements widen the column. The tables that were written get the micro-batch again: the
    # first delete's time stays.
    before = sync.rows_of("users")
    for statement in remedy[2].split("; "):
        sync.tables.execute(statement)
    file = Path(remedy[1])
    file.write_text(file.read_text("utf-8").replace("qty INT", "qty BIGINT"), "utf-8")
    sync.run(**options)
    assert rows_of(sync, rows) == rows | {
        "wide": [{"id": 1, "qty": 1}, {"id": 2, "qty": 3_000_000_000}]
    }
    assert sync.rows_of("users") == before
    # A row that is inserted again is not deleted.
    write(sync, {"users": [("insert", {"id": 1, "name": "again"})]})
    sync.run(**options)
    assert deletions(sync, "users") == [(1, "again", False, False), (2, "b", True, True)]
