"""`sync_database` merges, skips or overwrites no row silently; an error stops its table only."""

import json
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from normalize.tables.schema_store import SchemaStore, file_name
from tests.support.databases import maxwell, new_tables
from tests.support.syncing import BoundedSync

LONG, ENCODED = "n" * 300, "注" * 28


@pytest.fixture(scope="module")
def sync(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BoundedSync:
    """A restarted query over one topic per table.

    In the restart, each table except ``fine`` meets its own error.
    """
    folder = tmp_path_factory.mktemp("guards")
    sync = BoundedSync(spark, new_tables(spark, "delta-rs", folder), folder)
    for table in ("orders", "keys", "text", "checked", "fine"):
        sync.produce(table, [maxwell(table, "insert", {"id": 1, "qty": 1})])
    wide_row = {"id": 1} | {f"c{number}": 1 for number in range(5)}
    sync.produce("wide", [maxwell("wide", "insert", wide_row)])
    sync.produce("grown", [maxwell("grown", "insert", {"id": 1, "qty": 1})])
    # Names that are too long for a file: of the target too, or only with percent-encoded letters.
    for table in (LONG, ENCODED):
        sync.produce(table, [maxwell(table, "insert", {"id": 1})])
    for table in ("../../x", "_delta_log"):
        sync.produce(f"name{len(table)}", [maxwell(table, "insert", {"id": 1})])
    sync.produce("late", [(None, b"not JSON")])
    limited = replace(sync.tables.database, max_columns=5)
    sync.run(on_table_error="stop_table", target=limited)
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
    sync.produce("grown", [maxwell("grown", "insert", wide_row | {"id": 2})])
    sync.produce("last", [maxwell("last", "insert", {"id": 1}, database="zzz")])
    sync.produce(ENCODED, [maxwell(ENCODED, "insert", {"id": 2})])
    sync.produce("orders", [maxwell("orders", "insert", {"id": 2, "qty": 2})])
    sync.produce("fine", [maxwell("fine", "insert", {"id": 2, "qty": 2})])
    sync.run(on_table_error="stop_table", target=replace(limited, max_tables=8))
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


def test_name_that_is_too_long_for_a_file_has_a_shorter_one(sync: BoundedSync) -> None:
    assert [row["id"] for row in sync.rows(ENCODED)] == [1, 2]
    assert sync.file(file_name(f"shop.{ENCODED}"))["table"] == f"shop.{ENCODED}"
    stopped = sync.file(file_name(f"shop.{LONG}"))
    assert stopped["table"] == f"shop.{LONG}"
    assert "has 300 bytes, and a folder's name at most 255" in stopped["stopped"]
    store = SchemaStore(sync.spark, str(sync.folder / "schemas"))
    assert {f"shop.{LONG}", f"shop.{ENCODED}"} < set(store.tables())


def test_tables_and_columns_above_the_limits_stop_their_table(sync: BoundedSync) -> None:
    assert sync.file("shop.wide")["stopped"].startswith(
        "it would have 6 columns, 6 of them new (id, ...), and max_columns is 5: leave some out"
    )
    assert sync.file("shop.grown")["stopped"].startswith(
        "it would have 7 columns, 5 of them new (c0, ...), and max_columns is 5: leave some out"
    )
    assert sync.rows("grown") == [{"id": 1, "qty": 1}]
    assert sync.file("zzz.last")["stopped"].startswith(
        "the query has 7 tables and 2 new ones, and max_tables is 8: leave tables out with include="
    )


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
