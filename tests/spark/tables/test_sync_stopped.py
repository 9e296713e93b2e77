"""`sync_database` merges, skips or overwrites no row silently; an error stops its table only."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from normalize.tables.schema_store import SchemaStore, file_name
from tests.support.databases import Message, maxwell, new_tables
from tests.support.syncing import BoundedSync

# Names that are too long for a file: of the target too, or only with percent-encoded letters.
LONG, ENCODED = "n" * 300, "注" * 28
WIDE_ROW = {"id": 1} | {f"c{number}": 1 for number in range(5)}
WIDE_KEY = json.dumps({"database": "shop", "table": "keys", "pk.id": 1, "pk.v": 2}).encode()
NO_JSON = (None, b"not JSON")


def insert(table: str, row: dict[str, Any], database: str = "shop") -> Message:
    return maxwell(table, "insert", row, database=database)


FIRST: dict[str, list[Message]] = {
    **{
        table: [insert(table, {"id": 1, "qty": 1})]
        for table in ("orders", "keys", "text", "checked", "fine", "grown")
    },
    "wide": [insert("wide", WIDE_ROW)],
    **{table: [insert(table, {"id": 1})] for table in (LONG, ENCODED)},
    "path": [insert("../../x", {"id": 1})],
    "log": [insert("_delta_log", {"id": 1})],
    "late": [NO_JSON],
}
"""The messages of each topic before the restart."""
SECOND: dict[str, list[Message]] = {
    "other": [insert("orders", {"id": 1, "note": "of another database"}, "shop2")],
    "keys": [(WIDE_KEY, insert("keys", {"id": 1, "v": 2})[1])],
    "text": [insert("text", {"id": 2}), NO_JSON],
    "checked": [insert("checked", {"id": 2, "qty": 0})],
    "late": [insert("late", {"id": 1})],
    "grown": [insert("grown", WIDE_ROW | {"id": 2})],
    "last": [insert("last", {"id": 1}, "zzz")],
    ENCODED: [insert(ENCODED, {"id": 2})],
    "fine": [insert("fine", {"id": 2, "qty": 2})],
}
"""After it: each table except ``fine`` meets its own error."""


@pytest.fixture(scope="module")
def sync(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BoundedSync:
    """A restarted query."""
    folder = tmp_path_factory.mktemp("guards")
    sync = BoundedSync(spark, new_tables(spark, "delta-rs", folder), folder)
    limited = replace(sync.tables.database, max_columns=5)
    for messages, target in ((FIRST, limited), (SECOND, replace(limited, max_tables=8))):
        for topic, each in messages.items():
            sync.produce(topic, each)
        sync.run(on_table_error="stop_table", target=target)
        if messages is FIRST:
            checked = f"delta.`{folder}/lake/checked`"
            sync.tables.execute(f"ALTER TABLE {checked} ADD CONSTRAINT positive CHECK (qty > 0)")
    return sync


ONE, TWO = {"id": 1, "qty": 1}, {"id": 2, "qty": 2}
TARGETS = {
    "fine": [ONE, TWO],
    # The target that another table would share, which has no records since the restart.
    "orders": [ONE],
    "keys": [ONE],
    "text": [ONE],
    "checked": [ONE],
    "grown": [ONE],
    ENCODED: [{"id": 1}, {"id": 2}],
}


def test_rows_that_are_written(sync: BoundedSync) -> None:
    assert {table: sync.rows(table) for table in TARGETS} == TARGETS
    folders = {path.name for path in (sync.folder / "lake").iterdir()}
    assert not folders & {"late", "_delta_log"}


CUT = "has 300 bytes, and a folder's name at most 255"
STOPPED = {
    "shop.fine": "",
    "shop.orders": "",
    "shop2.orders": "the target 'orders' is that of shop.orders and of shop2.orders: pass another",
    "shop.keys": "the primary key of its source was (id), and its records now name (id, v)",
    "shop.text": "[MALFORMED_MESSAGE]",
    # A topic that begins with such a record has no table.
    "late": "[MALFORMED_MESSAGE]",
    "shop.late": "[MALFORMED_MESSAGE]",
    "shop.checked": "CHECK constraint positive (qty > 0) violated by row",
    file_name(f"shop.{LONG}"): CUT,
    file_name(f"shop.{ENCODED}"): "",
    "shop.wide": (
        "it would have 6 columns, 6 of them new (id, ...), and max_columns is 5: leave some out"
    ),
    "shop.grown": (
        "it would have 7 columns, 5 of them new (c0, ...), and max_columns is 5: leave some out"
    ),
    "zzz.last": (
        "the query has 7 tables and 2 new ones, and max_tables is 8: leave tables out with include="
    ),
    "shop.%60..%2F..%2Fx%60": "the table name '../../x' cannot be a folder's name: pass tables=",
    "shop._delta_log": "the table name '_delta_log' is that of a folder in Delta tables: pass ",
}


@pytest.mark.parametrize(("file", "reason"), STOPPED.items())
def test_a_table_that_is_stopped_and_why(sync: BoundedSync, file: str, reason: str) -> None:
    stopped = sync.file(file)["stopped"]
    assert reason in stopped
    assert bool(reason) == bool(stopped)


def test_name_that_is_too_long_for_a_file_has_a_shorter_one(sync: BoundedSync) -> None:
    names = [f"shop.{table}" for table in (LONG, ENCODED)]
    assert [sync.file(file_name(name))["table"] for name in names] == names
    assert set(names) < set(SchemaStore(sync.spark, str(sync.folder / "schemas")).tables())
