"""Tables of all kinds are read again from their topic: what they have then."""

import json
from typing import Any

import pytest

from normalize.spark_versions import has_package
from normalize.tables.table_options import TableOptions
from tests.support.databases import Message, maxwell
from tests.support.resyncing import ROWS, left_behind, read_again, request, state, sync_name
from tests.support.syncing import NewSync

TABLES = {
    "shop.soft": TableOptions(deletes="soft", position_column="position"),
    "shop.few": TableOptions(where="qty > 1", select={"twice": "qty * 2"}),
    "shop.sharded": TableOptions(shards="shop_[0-9]+[.]sharded", shard_column="shard"),
}
MASKED = {"mask": {"shop.few.secret": "redact"}}


@pytest.mark.parametrize("kind", ["delta-rs", "iceberg", "postgresql", "mariadb"])
def test_all_kinds_of_tables_are_read_again(new_sync: NewSync, kind: str) -> None:
    if kind == "iceberg" and not has_package("iceberg"):
        pytest.skip("Iceberg has no package for this Spark")
    sync = new_sync(kind)
    secret = {"secret": "s"}
    sync.produce(
        "all",
        [
            *(maxwell("orders", "insert", row) for row in ROWS),
            *(placed(row["id"], "insert", row) for row in ROWS),
            placed(6, "delete", ROWS[0]),
            *(maxwell("few", "insert", {"id": key, "qty": key, **secret}) for key in (1, 2, 3)),
            *(maxwell("sharded", "insert", {"id": 1}, database=f"shop_{each}") for each in (1, 2)),
        ],
    )
    options: dict[str, Any] = {"tables": TABLES, "format_options": MASKED}
    if kind in ("delta-rs", "iceberg"):
        options["tables"] = {**TABLES, "shop.history": TableOptions(scd_type=2)}
        sync.produce("all", [maxwell("history", "insert", {"id": 1})])
    sync.run(**options)
    names = ("orders", "soft", "few", "sharded")
    before = {name: sync.rows_of(name) for name in names}
    assert [len(rows) for rows in before.values()] == [5, 5, 2, 2]
    target = {each: sync_name(sync, each) for each in names}
    for statement in (
        f"UPDATE {target['orders']} SET name = 'wrong' WHERE id = 1",
        f"INSERT INTO {target['orders']} (id, name) VALUES (99, 'only here')",
        f"DELETE FROM {target['soft']} WHERE id > 3",
        f"INSERT INTO {target['soft']} (id, name) VALUES (99, 'only here')",
        f"UPDATE {target['few']} SET qty = 9",
        f"DELETE FROM {target['sharded']}",
    ):
        sync.tables.execute(statement)
    sync.edit("shop.orders", '"stopped": ""', '"stopped": "by hand"')
    # It is only counted; and what the stopped table misses is in its topic.
    request(sync, "few", dry_run=True)
    request(sync, "orders")
    later = maxwell("orders", "insert", {"id": 6, "name": "n6", "note": "new"})
    read_again(sync, later, **options)
    assert (state(sync, "few").phase, state(sync, "few").missing) == ("counted", 0)
    assert {row["qty"] for row in sync.rows_of("few")} == {9}
    kept = [{"id": 6, "name": "n6", "note": "new"}, {"id": 99, "name": "only here"}]
    assert sync.rows_of("orders") == [*before["orders"], *kept]
    assert (state(sync).phase, state(sync).missing) == ("replaced", 1)
    assert sync.file("shop.orders")["stopped"] == ""
    for name in names:
        request(sync, name, remove_missing=True)
    if "shop.history" in options["tables"]:
        request(sync, "history")
    last = maxwell("orders", "delete", {"id": 6, "name": "n6", "note": "new"})
    read_again(sync, last, **options)
    soft = sync.rows_of("soft")
    assert soft[-1].pop("deleted_at")
    assert soft == [*before["soft"], {"id": 99, "name": "only here"}]
    assert {name: sync.rows_of(name) for name in names if name != "soft"} == {
        name: rows for name, rows in before.items() if name != "soft"
    }
    assert [state(sync, name).phase for name in names] == ["replaced"] * 4
    assert left_behind(sync) == []
    if "shop.history" in options["tables"]:
        refused = state(sync, "history")
        assert refused.phase == "refused"
        assert refused.reason.startswith("it is a history")


def placed(position: int, kind: str, row: dict[str, Any]) -> Message:
    """Return a message of the table ``soft`` with a position in the source's log."""
    key, value = maxwell("soft", kind, row)
    source = {"position": f"log.000001:{position}", "xid": position, "xoffset": 0, "commit": True}
    return key, json.dumps({**json.loads(value), **source}).encode()
