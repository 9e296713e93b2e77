"""Columns and options of tables as cases of one query, on bounded micro-batches, into Delta."""

import json
import re
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import pytest

from normalize.tables import changes as table_changes
from normalize.tables.changes import changes_on_spark
from normalize.tables.table_options import TableOptions
from tests.support.databases import canal, maxwell
from tests.support.syncing import ORDER, BoundedSync, NewBoundedSync, rows_of, write

TYPES = {"id": "int(11)", "name": "varchar(20)", "price": "decimal(10,2)"}
NARROW = {"id": "int", "name": "varchar(9)"}


def calls_on_spark(run: Callable[[], None]) -> int:
    """Return of how many tables Spark computes the changes, rather than the driver."""
    with patch.object(table_changes, "changes_on_spark", wraps=changes_on_spark) as on_spark:
        run()
    return on_spark.call_count


def test_columns_and_options_of_tables(sync: BoundedSync, caplog: pytest.LogCaptureFixture) -> None:
    options = {
        "tables": {
            "shop.chosen": TableOptions(
                name="renamed",
                columns=["id", "name", "price"],
                types={"price": "DECIMAL(8,2)"},
                where="name <> 'hidden'",
            ),
            "shop.pinnd": TableOptions(name="misspelt"),
            "shop.in_another_year": TableOptions(),
        },
        "exclude": "shop[.]tmp_.*",
    }
    write(
        sync,
        {
            "pinned": [("insert", ORDER)],
            "waiting": [("insert", {"id": 1, "note": None})],
            "chosen": [
                ("insert", {"id": 1, "name": "a", "price": 1.5, "secret": "s"}),
                ("insert", {"id": 2, "name": "hidden", "price": 2}),
            ],
            "updated": [("insert", ORDER)],
            "deleted": [("delete", ORDER)],
            "tmp_1": [("insert", {"id": 1})],
        },
    )
    sync.run(**options)
    assert [text for text in caplog.messages if text.startswith("tables=")] == [
        (
            "tables= has 'shop.pinnd', which no message names so far: if it is misspelt, correct "
            "it to 'shop.pinned'"
        )
    ]
    assert sync.file("shop.waiting")["schema"] == ["id BIGINT NOT NULL"]
    assert sync.file("shop.chosen")["schema"] == [
        "id BIGINT NOT NULL",
        "name STRING",
        "price DECIMAL(8,2)",
    ]
    assert [(row["id"], str(row["price"])) for row in sync.rows("renamed")] == [(1, "1.50")]
    assert sorted(path.name for path in (sync.folder / "lake").iterdir()) == [
        "pinned",
        "renamed",
        "updated",
        "waiting",
    ]
    assert not sync.path("shop.deleted").exists()
    sync.edit("shop.pinned", '"name STRING"', '"name STRING", "age SMALLINT"')
    write(
        sync,
        {
            "pinned": [("insert", {"id": 2, "age": 7})],
            "waiting": [("insert", {"id": 2, "note": 7})],
            "chosen": [("update", {"id": 1, "name": "hidden"}, {"name": "a"})],  # no longer matches
            # The update changes nothing, and is older than the column.
            "updated": [("update", ORDER), ("insert", {"id": 2, "name": "b", "note": "n"})],
        },
    )
    sync.run(**options)
    assert rows_of(sync, ["pinned", "waiting", "updated"]) == {
        "pinned": [ORDER, {"id": 2, "age": 7}],
        "waiting": [{"id": 1}, {"id": 2, "note": 7}],
        "updated": [ORDER, {"id": 2, "name": "b", "note": "n"}],
    }
    assert sync.rows("renamed") == []
    assert sync.tables.types("pinned") == {"id": "bigint", "name": "string", "age": "smallint"}
    assert sync.file("shop.waiting")["schema"] == ["id BIGINT NOT NULL", "note BIGINT"]


def test_new_column_that_is_not_added(sync: BoundedSync, caplog: pytest.LogCaptureFixture) -> None:
    write(sync, {"orders": [("insert", ORDER)]})
    sync.run(on_new_column="fail")
    write(sync, {"orders": [("insert", {"id": 2, "note": "n"})]})
    assert "shop.orders: it has the new columns `note`" in sync.error(on_new_column="fail")
    assert sync.rows("orders") == [ORDER]
    sync.run(on_new_column="ignore")
    assert "shop.orders: the new columns `note` are ignored" in caplog.text
    assert sync.rows("orders") == [ORDER, {"id": 2}]


@pytest.mark.parametrize("kind", ["delta", "delta-rs", "iceberg"])
def test_new_columns_in_micro_batches_of_one_query_that_the_driver_and_spark_decode(
    new_sync: NewBoundedSync, kind: str
) -> None:
    sync = new_sync(kind)
    job = sync.job()
    for number, (by_spark, names) in enumerate(
        [(True, "a"), (False, "ab"), (True, "abc"), (False, "abc")]
    ):
        # A new row, and an update of the one before it.
        rows = [{"id": key} | dict.fromkeys(names, number) for key in (number, number + 1)]
        write(sync, {"orders": [("insert", row) for row in rows]})
        sync.apply(job, by_spark=by_spark)
    names = ["a", "ab", "abc", "abc", "abc"]
    assert sync.rows("orders") == [
        {"id": key} | dict.fromkeys(names[key], min(key, 3)) for key in range(5)
    ]


def test_large_micro_batch_with_the_changes_of_a_key_in_several_partitions(
    sync: BoundedSync,
) -> None:
    options = {"tables": {"shop.orders": TableOptions(primary_key="id", where="id <> 7")}}
    messages = [
        maxwell("orders", "insert", {"id": number % 20, "name": str(number)})
        for number in range(400)
    ]
    # Without keys, so that a row's messages are in all partitions.
    sync.produce("all", [(None, value) for _, value in messages], partitions=3)
    assert calls_on_spark(partial(sync.run, by_spark=True, **options)) == 1
    last = [{"id": number, "name": str(380 + number)} for number in range(20) if number != 7]
    assert sorted(sync.rows("orders"), key=lambda row: row["id"]) == last


def test_spark_decodes_large_micro_batches(new_sync: NewBoundedSync) -> None:
    sync = new_sync("delta")  # changes for delta-rs are collected by another way
    write(sync, {"orders": [("insert", ORDER)]})
    assert calls_on_spark(sync.run) == 0
    # Above the limit of bytes. The table without a row, of this message, has no changes to compute.
    write(sync, {"orders": [("insert", ORDER)]})
    write(sync, {"unknown": [("delete", {"id": 1, "text": "x" * (33 << 20)})]})
    assert calls_on_spark(sync.run) == 1


def test_tables_of_canal(sync: BoundedSync) -> None:
    def several(
        kind: str, *rows: tuple[int, str], old: tuple[dict[str, str], ...] = ()
    ) -> tuple[None, bytes]:
        """A message with several rows."""
        data = [{"id": str(number), "name": name} for number, name in rows]
        value = (
            json.loads(canal("moved", kind, {}, NARROW)[1] or b"")
            | {"data": data}
            | ({"old": list(old)} if old else {})
        )
        return None, json.dumps(value).encode()

    def moving(first: int) -> list[tuple[None, bytes]]:
        """Messages in which a key becomes the next and then the third.

        The last change of the second is a delete.
        """
        second, third = first + 1, first + 2
        earlier = ({"id": str(first)}, {"id": str(second)})
        return [
            several("INSERT", (first, "a")),
            several("UPDATE", (first, "b"), (first, "c"), old=({"name": "a"}, {"name": "b"})),
            several("UPDATE", (second, "c"), (third, "c"), old=earlier),
        ]

    options = {"format": "canal-json", "tables": {"shop.moved": TableOptions(scd_type=2)}}
    priced = {"id": 1, "name": "a", "price": "9.50"}
    sync.produce("orders", [canal("orders", "INSERT", priced, TYPES)])
    sync.produce("moved", moving(1))
    sync.run(**options)
    assert sync.file("shop.orders")["schema"] == [
        "id INT NOT NULL",
        "name STRING",
        "price DECIMAL(10,2)",
    ]
    assert [str(row["price"]) for row in sync.rows("orders")] == ["9.50"]
    sync.produce("moved", moving(11))
    sync.run(by_spark=True, **options)
    versions = [
        [
            row["id"],
            row.get("name"),
            *(row.get(name, {"offset": None})["offset"] for name in ("__START_AT", "__END_AT")),
        ]
        for row in sync.rows("moved")
    ]
    assert sorted(versions) == [
        [1, "a", 0, 1],
        [1, "c", 1, 2],
        [2, None, None, 2],
        [3, "c", 2, None],
        # Of Spark.
        [11, "a", 3, 4],
        [11, "c", 4, 5],
        [12, None, None, 5],
        [13, "c", 5, None],
    ]
    # Tests read the files of tables (`delta_files`), as Spark does.
    for table in ("orders", "moved"):
        assert sync.rows(table) == sync.tables.rows_by_spark(table)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_statements_of_the_error_widen_a_column_and_the_micro_batch_is_repeated(
    new_sync: NewBoundedSync, kind: str
) -> None:
    # `test_sink_new_columns` has the databases.
    sync, rows = new_sync(kind), [{"id": 1, "qty": 1}, {"id": 2, "qty": 3_000_000_000}]
    options = {"tables": {"shop.wide": TableOptions(types={"qty": "INT"})}}
    for row in rows:
        write(sync, {"wide": [("insert", row)]})
        if row is rows[0]:
            sync.run(**options)
    remedy = re.search(
        "To widen the column, write 'qty BIGINT' into (.*), run (.*), and restart the query",
        sync.error(**options),
    )
    assert remedy[1] == str(sync.path("shop.wide"))
    for statement in remedy[2].split("; "):
        sync.tables.execute(statement)
    sync.edit("shop.wide", "qty INT", "qty BIGINT")
    sync.run(**options)
    assert sync.rows("wide") == rows


def test_a_row_that_moves_to_another_shard(sync: BoundedSync) -> None:
    options = {"tables": {"shop.orders": TableOptions(shards="shop_[0-9]+[.]orders")}}
    other, moved = {"id": 2, "note": "n"}, {"id": 1, "name": "moved"}
    for changes in (
        [("insert", ORDER, None, "shop_1"), ("insert", other, None, "shop_2")],
        [("delete", ORDER, None, "shop_1"), ("insert", moved, None, "shop_3")],
    ):
        write(sync, {"orders": changes})
        sync.run(**options)
    assert sync.rows("orders") == [moved, other]


def test_shards_by_topic(sync: BoundedSync) -> None:
    key = json.dumps({"id": 1}).encode()
    for number in (1, 2):
        sync.produce(
            f"x.shop_{number}.orders", [(key, json.dumps({"id": 1, "name": f"n{number}"}).encode())]
        )
    options = {
        "tables": {
            "orders": TableOptions(
                shards=".*[.]shop_[0-9][.]orders", shard_column="shard", primary_key="id"
            )
        }
    }
    sync.run(format="debezium-flat-json", **options)
    assert [row["name"] for row in sync.rows("orders")] == ["n1", "n2"]
    sync.produce("x.shop_1.orders", [(key, None)])
    sync.run(format="debezium-flat-json", **options)
    assert sync.rows("orders") == [{"id": 1, "name": "n2", "shard": "x.shop_2.orders"}]
