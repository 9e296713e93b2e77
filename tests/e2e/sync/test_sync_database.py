"""`sync_database` as a query on a real broker: topics, restarts, errors and unreadable records."""

from __future__ import annotations

import re

import pytest

from normalize import DeadLetter
from tests.support.databases import debezium, maxwell
from tests.support.streams import letters
from tests.support.syncing import ORDER, Sync


def test_tables_of_one_topic_with_new_columns_and_new_tables(sync: Sync) -> None:
    sync.produce(
        "all",
        [
            maxwell("orders", "insert", ORDER),
            maxwell("items", "insert", {"id": 1, "qty": 5}),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
            maxwell("orders", "delete", {"id": 2, "name": "b"}),
            maxwell("orders", "update", {"id": 3, "name": "c"}, {"id": 1}),  # the key changes
        ],
    )
    sync.run()
    assert sync.rows("orders") == [{"id": 3, "name": "c"}]
    assert sync.rows("items") == [{"id": 1, "qty": 5}]
    sync.produce(
        "all",
        [
            maxwell("orders", "insert", {"id": 4, "name": "d"}),
            maxwell("orders", "insert", {"id": 5, "name": "e", "note": "new column"}),
            maxwell("added", "insert", {"id": 9}),
            maxwell("items", "delete", {"id": 1, "qty": 5}),
            maxwell("orders", "update", {"id": 3, "note": "name is dropped"}, {"note": None}),
        ],
    )
    sync.run()
    orders = [
        {"id": 3, "note": "name is dropped"},
        {"id": 4, "name": "d"},
        {"id": 5, "name": "e", "note": "new column"},
    ]
    assert (sync.rows("orders"), sync.rows("items"), sync.rows("added")) == (
        orders,
        [],
        [{"id": 9}],
    )
    sync.forget_last_commit()
    sync.produce("all", [maxwell("added", "insert", {"id": 10})])
    sync.run()
    assert (sync.rows("orders"), sync.rows("added")) == (orders, [{"id": 10}, {"id": 9}])


def test_topic_for_each_table_of_debezium(sync: Sync) -> None:
    typed = {"id": "int32", "name": "string"}
    # Of each pair, the second has a schema block.
    tables = {"orders": None, "typed_orders": typed, "items": None, "typed_items": typed}
    for table, types in tables.items():
        messages = [debezium(table, "c", None, ORDER, types)]
        if table.endswith("orders"):
            messages += [debezium(table, "u", ORDER, ORDER | {"name": "b"}, types)]
        else:
            messages += [debezium(table, "d", ORDER, None, types), (b'{"id": 1}', None)]
        sync.produce(table, messages)
    sync.run(format="debezium-json")
    assert {table: sync.rows(table) for table in tables} == {
        "orders": [{"id": 1, "name": "b"}],
        "typed_orders": [{"id": 1, "name": "b"}],
        "items": [],
        "typed_items": [],
    }
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL", "name STRING"]
    assert sync.file("shop.typed_orders")["schema"] == ["id INT NOT NULL", "name STRING"]
    # A topic that appears later, and a column that only the schema block of a new record has.
    for table, types in (("items", None), ("typed_items", typed | {"price": "double"})):
        sync.produce(table, [debezium(table, "c", None, {**ORDER, "price": 1.5}, types)])
    sync.produce("later", [debezium("later", "r", None, ORDER)])
    sync.run(format="debezium-json")
    assert sync.rows("later") == [ORDER]
    assert sync.rows("items") == sync.rows("typed_items") == [{**ORDER, "price": 1.5}]


def test_failing_table_fails_the_query_and_the_others_are_written(
    sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    sync.produce("all", [maxwell("orders", "insert", ORDER), maxwell("items", "insert", {"id": 1})])
    sync.run()
    sync.produce(
        "all", [maxwell("orders", "insert", {"id": "x"}), maxwell("items", "insert", {"id": 2})]
    )
    text = sync.error()
    assert text.startswith(
        "[SYNC] shop.orders: [TYPE_CONVERSION] expected `BIGINT`, got `str` 'x' - at `$.data.id`"
    )
    assert text.endswith("The other tables of the micro-batch are written")
    assert sync.rows("items") == [{"id": 1}, {"id": 2}]
    # The micro-batch is repeated.
    assert "[TYPE_CONVERSION]" in sync.error()
    sync.run(on_table_error="stop_table")
    assert "shop.orders is stopped, and the other tables go on: [TYPE_CONVERSION]" in caplog.text


def test_records_that_cannot_be_read(sync: Sync) -> None:
    dead = f"dead.{sync.prefix}"
    sync.kafka.create_topic(dead)
    topic = sync.produce(
        "all",
        [
            maxwell("orders", "insert", ORDER),
            (None, b"{"),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
        ],
    )
    with pytest.raises(Exception, match=re.escape(f"in {topic}[0]@1")):
        sync.writer()
    assert f"{topic}[0]@1" in sync.error(check=False)
    sync.run(mode=DeadLetter(dead))
    assert sync.rows("orders") == [ORDER, {"id": 2, "name": "b"}]
    assert [letter.value() for letter in letters(sync.kafka, dead)] == [b"{"]
