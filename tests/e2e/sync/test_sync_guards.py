"""`sync_database` merges, skips or overwrites no row silently; an error stops its table only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from normalize import LocalKafka
from tests.support.databases import Message, maxwell, new_tables
from tests.support.streams import recreate_topic
from tests.support.syncing import MINIMAL, BoundedSync, NewBoundedSync, NewSync, Sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOP: dict[str, Any] = {"on_table_error": "stop_table"}


@pytest.fixture(scope="module")
def sync(spark: SparkSession, kafka: LocalKafka, tmp_path_factory: pytest.TempPathFactory) -> Sync:
    """Return a restarted query over one topic per table.

    In the restart, each table except ``fine`` meets its own error.
    """
    folder = tmp_path_factory.mktemp("guards")
    sync = Sync(spark, kafka, new_tables(spark, "delta", folder), folder)
    for table in ("orders", "keys", "text", "checked", "fine"):
        sync.produce(table, [maxwell(table, "insert", {"id": 1, "qty": 1})])
    for table in ("../../x", "_delta_log"):
        sync.produce(f"name{len(table)}", [maxwell(table, "insert", {"id": 1})])
    sync.produce("late", [(None, b"not JSON")])
    sync.run(**STOP)
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
    sync.run(**STOP)
    return sync


def test_tables_without_an_error_go_on(sync: Sync) -> None:
    rows = [{"id": 1, "qty": 1}, {"id": 2, "qty": 2}]
    assert sync.rows("fine") == rows
    # The table whose target another one would share.
    assert sync.rows("orders") == rows
    assert [sync.file(table)["stopped"] for table in ("shop.fine", "shop.orders")] == ["", ""]


def test_second_table_with_a_target_is_stopped_after_a_restart(sync: Sync) -> None:
    assert sync.file("shop2.orders")["stopped"].startswith(
        "the target 'orders' is that of shop.orders and of shop2.orders: pass another"
    )


def test_table_whose_source_has_a_wider_key_is_stopped(sync: Sync) -> None:
    assert sync.file("shop.keys")["stopped"].startswith(
        "the primary key of its source was (id), and its records now name (id, v)"
    )
    assert sync.rows("keys") == [{"id": 1, "qty": 1}]


def test_record_that_is_not_json_stops_the_table_of_its_topic(sync: Sync) -> None:
    assert sync.file("shop.text")["stopped"].startswith("[MALFORMED_MESSAGE]")
    assert sync.rows("text") == [{"id": 1, "qty": 1}]


def test_topic_that_begins_with_such_a_record_has_no_table(sync: Sync) -> None:
    assert sync.file(f"{sync.prefix}.late")["stopped"].startswith("[MALFORMED_MESSAGE]")
    assert sync.file("shop.late")["stopped"] == sync.file(f"{sync.prefix}.late")["stopped"]
    assert not (sync.folder / "lake" / "late").exists()


def test_violated_constraint_stops_its_table(sync: Sync) -> None:
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
def test_name_that_cannot_be_a_target_stops_its_table(sync: Sync, file: str, text: str) -> None:
    assert text in sync.file(file)["stopped"]
    assert not (sync.folder / "lake" / "_delta_log").exists()


def test_topic_that_is_created_again_ends_the_query(sync: Sync) -> None:
    recreate_topic(
        sync.kafka,
        f"{sync.prefix}.fine",
        [maxwell("fine", "insert", {"id": number, "qty": 9}) for number in (1, 2, 3)],
    )
    before = sync.rows("fine")
    assert f"[TOPIC_REPLACED] topic {sync.prefix}.fine was deleted and created again" in sync.error(
        **STOP
    )
    assert sync.rows("fine") == before
    (sync.folder / "checkpoint").rename(sync.folder / "old")
    sync.run(**STOP, include="shop[.]fine")
    assert sync.rows("fine") == [{"id": number, "qty": 9} for number in (1, 2, 3)]


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_tables_of_a_database_that_stop_alone(new_bounded_sync: NewBoundedSync, kind: str) -> None:
    sync = new_bounded_sync(kind)
    template = sync.tables.database.table
    long = "n" * 63
    names = {"fine": template.format(table="fine"), "checked": template.format(table="checked")}
    key = "id BIGINT PRIMARY KEY, qty BIGINT CHECK (qty > 0)"
    sync.tables.execute(f"CREATE TABLE {names['checked']} ({key})")
    sync.produce(
        "all",
        [
            maxwell(table, "insert", {"id": 1, "qty": 0})
            for table in ("fine", "checked", "a.b", f"{long}a", f"{long}b")
        ],
    )
    sync.run(**STOP)
    assert sync.rows(names["fine"]) == [{"id": 1, "qty": 0}]
    assert sync.rows(names["checked"]) == []
    assert sync.file("shop.checked")["stopped"]
    limit = "PostgreSQL's 63 bytes" if kind == "postgresql" else "MySQL's 64 characters"
    for end in "ab":
        stopped = sync.file(f"shop.{long}{end}")["stopped"]
        assert stopped.startswith(
            f"[SCHEMA] the table name '{template.format(table=long + end)}' is empty, longer than "
            f"{limit}"
        )
    assert (
        "has a dot: pass tables="
        in json.loads((sync.folder / "schemas" / "shop.%60a.b%60.json").read_text("utf-8"))[
            "stopped"
        ]
    )


def moved(earlier: int, key: int, **changed: Any) -> Message:
    """A partial row whose key changed."""
    return maxwell(
        "orders", "update", {"id": key, **changed}, {"id": earlier} | dict.fromkeys(changed, 0)
    )


INSERTS = [
    maxwell("orders", "insert", {"id": key, "name": f"n{key}", "qty": key}) for key in (1, 2, 5, 6)
]
MOVES = [
    moved(1, 3, qty=9),
    maxwell("orders", "insert", {"id": 1, "name": "another", "qty": 0}),
    moved(3, 4),  # through a chain of keys
    maxwell("orders", "delete", {"id": 2}),
    # Two rows change places.
    moved(5, 7),
    moved(6, 5),
    moved(7, 6),
]
MOVED = [
    {"id": 1, "name": "another", "qty": 0},
    {"id": 4, "name": "n1", "qty": 9},
    {"id": 5, "name": "n6", "qty": 6},
    {"id": 6, "name": "n5", "qty": 5},
]


def assert_unknown_row_is_an_error(sync: Sync | BoundedSync) -> None:
    """Require an error of a partial row whose earlier key the target does not have."""
    sync.produce("all", [moved(99, 100)])
    assert (
        "shop.orders: [PARTIAL_IMAGE] the row lacks unchanged columns, and the target does not "
        "have its key"
    ) in sync.error(**MINIMAL)
    assert sync.rows_of("orders") == MOVED


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_partial_rows_whose_key_changes(
    new_sync: NewSync, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = new_sync(kind)
    sync.produce("all", INSERTS)
    sync.run(**MINIMAL)
    sync.produce("all", MOVES)
    with monkeypatch.context() as patch:
        patch.setattr("normalize.sync.sync_database._FEW_RECORDS", 0)  # decoded by Spark
        sync.run(**MINIMAL)
    assert sync.rows_of("orders") == MOVED
    # As after a kill between the tables' commits and Spark's commit: the earlier keys have other
    # rows now. The driver decodes the micro-batch again.
    sync.forget_last_commit()
    sync.run(**MINIMAL)
    assert sync.rows_of("orders") == MOVED
    assert_unknown_row_is_an_error(sync)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_partial_rows_whose_key_changes_in_databases(
    new_bounded_sync: NewBoundedSync, kind: str
) -> None:
    sync = new_bounded_sync(kind)
    sync.produce("all", INSERTS)
    sync.run(**MINIMAL)
    sync.produce("all", MOVES)
    sync.run(**MINIMAL)
    assert sync.rows_of("orders") == MOVED
    assert_unknown_row_is_an_error(sync)
