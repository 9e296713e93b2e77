"""`sync_database` merges, skips or overwrites no row silently; an error stops its table only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import maxwell, new_tables
from tests.support.syncing import BoundedSync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def sync(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BoundedSync:
    """A restarted query over one topic per table.

    In the restart, each table except ``fine`` meets its own error.
    """
    folder = tmp_path_factory.mktemp("guards")
    sync = BoundedSync(spark, new_tables(spark, "delta", folder), folder)
    for table in ("orders", "keys", "text", "checked", "fine"):
        sync.produce(table, [maxwell(table, "insert", {"id": 1, "qty": 1})])
    for table in ("../../x", "_delta_log"):
        sync.produce(f"name{len(table)}", [maxwell(table, "insert", {"id": 1})])
    sync.produce("late", [(None, b"not JSON")])
    sync.run(on_table_error="stop_table")
    sync.tables.execute(
        f"ALTER TABLE delta.`{folder}/lake/checked` ADD CONSTRAINT positive CHECK (qty > 0)"
    )
    sync.produce(
        "other",
        [maxwell("orders", "insert", {"id": 1, "note": "of another database"}, database="shop2")],
    )
    wide = json.dumps({"database": "shop", "table": "keys", "pk.id": 1, "pk.v": 2}).encode()
    sync.produce("keys", [(wide, maxwell("keys", "insert", {"id": 1, "v": 2})[1])])
    sync.produce("text", [maxwell("text", "insert", {"id": 2}), (None, b"not JSON")])
    sync.produce("checked", [maxwell("checked", "insert", {"id": 2, "qty": 0})])
    sync.produce("late", [maxwell("late", "insert", {"id": 1})])
    sync.produce("orders", [maxwell("orders", "insert", {"id": 2, "qty": 2})])
    sync.produce("fine", [maxwell("fine", "insert", {"id": 2, "qty": 2})])
    sync.run(on_table_error="stop_table")
    return sync


def test_tables_without_an_error_go_on(sync: BoundedSync) -> None:
    rows = [{"id": 1, "qty": 1}, {"id": 2, "qty": 2}]
    assert sync.rows("fine") == rows
    # The table whose target another one would share.
    assert sync.rows("orders") == rows
    assert [sync.file(table)["stopped"] for table in ("shop.fine", "shop.orders")] == ["", ""]


def test_second_table_with_a_target_is_stopped_after_a_restart(sync: BoundedSync) -> None:
    assert sync.file("shop2.orders")["stopped"].startswith(
        "the target 'orders' is that of shop.orders and of shop2.orders: pass another"
    )


def test_table_whose_source_has_a_wider_key_is_stopped(sync: BoundedSync) -> None:
    assert sync.file("shop.keys")["stopped"].startswith(
        "the primary key of its source was (id), and its records now name (id, v)"
    )
    assert sync.rows("keys") == [{"id": 1, "qty": 1}]


def test_record_that_is_not_json_stops_the_table_of_its_topic(sync: BoundedSync) -> None:
    assert sync.file("shop.text")["stopped"].startswith("[MALFORMED_MESSAGE]")
    assert sync.rows("text") == [{"id": 1, "qty": 1}]


def test_topic_that_begins_with_such_a_record_has_no_table(sync: BoundedSync) -> None:
    assert sync.file("late")["stopped"].startswith("[MALFORMED_MESSAGE]")
    assert sync.file("shop.late")["stopped"] == sync.file("late")["stopped"]
    assert not (sync.folder / "lake" / "late").exists()


def test_violated_constraint_stops_its_table(sync: BoundedSync) -> None:
    assert (
        "CHECK constraint positive (qty > 0) violated by row"
        in sync.file("shop.checked")["stopped"]
    )
    assert sync.rows("checked") == [{"id": 1, "qty": 1}]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        (
            "shop.%60..%2F..%2Fx%60",
            "the table name '../../x' cannot be a folder's name: pass tables=",
        ),
        (
            "shop._delta_log",
            "the table name '_delta_log' is that of a folder in Delta tables: pass ",
        ),
    ],
)
def test_name_that_cannot_be_a_target_stops_its_table(
    sync: BoundedSync, file: str, text: str
) -> None:
    assert text in sync.file(file)["stopped"]
    assert not (sync.folder / "lake" / "_delta_log").exists()
