"""`sync_database` as a query on a real broker: topics, restarts, errors and unreadable records."""

import re
from unittest.mock import patch

import pytest

from normalize import DeadLetter
from normalize.tables import job
from normalize.tables.changes import TableDecoder, table_changes
from tests.support.databases import debezium, maxwell
from tests.support.streams import letters
from tests.support.syncing import ORDER, NewSync, Sync


def test_tables_of_one_topic_with_new_columns_new_tables_and_one_that_fails(
    sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
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
    # The micro-batch is repeated before the next.
    sync.forget_last_commit()
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
    sync.produce(
        "all", [maxwell("orders", "insert", {"id": "x"}), maxwell("added", "insert", {"id": 10})]
    )
    text = sync.error()
    assert text.startswith(
        "[SYNC] shop.orders: [TYPE_CONVERSION] expected `BIGINT`, got `str` 'x' - at `$.data.id`"
    )
    assert text.endswith("The other tables of the micro-batch are written")
    assert (sync.rows("orders"), sync.rows("added")) == (orders, [{"id": 10}, {"id": 9}])
    # The micro-batch is repeated.
    sync.run(on_table_error="stop_table")
    assert "shop.orders is stopped, and the other tables go on: [TYPE_CONVERSION]" in caplog.text
    assert (sync.rows("orders"), sync.rows("added")) == (orders, [{"id": 10}, {"id": 9}])


@pytest.mark.cross_section
def test_topic_for_each_table_of_debezium(sync: Sync) -> None:
    typed = {"id": "int32", "name": "string"}
    # The second table's messages have a schema block.
    sync.produce(
        "orders",
        [
            debezium("orders", "c", None, ORDER),
            debezium("orders", "u", ORDER, ORDER | {"name": "b"}),
        ],
    )
    sync.produce(
        "items",
        [
            debezium("items", "c", None, ORDER, typed),
            debezium("items", "d", ORDER, None, typed),
            (b'{"id": 1}', None),
        ],
    )
    sync.run(format="debezium-json")
    assert (sync.rows("orders"), sync.rows("items")) == ([{"id": 1, "name": "b"}], [])
    assert sync.file("shop.orders")["schema"] == ["id BIGINT NOT NULL", "name STRING"]
    assert sync.file("shop.items")["schema"] == ["id INT NOT NULL", "name STRING"]
    # A topic that appears later, and a column that only the schema block of a new record has.
    priced = {**ORDER, "price": 1.5}
    sync.produce("items", [debezium("items", "c", None, priced, typed | {"price": "double"})])
    sync.produce("later", [debezium("later", "r", None, priced)])
    sync.run(format="debezium-json")
    assert sync.rows("later") == sync.rows("items") == [priced]


@pytest.mark.parametrize("kind", ["delta", "delta-rs", "iceberg"])
def test_micro_batches_whose_changes_cancel_out(new_sync: NewSync, kind: str) -> None:
    # A writer may commit nothing for one: that is no lost commit.
    sync = new_sync(kind)
    for number in (1, 2):
        row = {"id": number, "name": "a"}
        sync.produce("all", [maxwell("orders", "insert", row), maxwell("orders", "delete", row)])
        sync.run()
    sync.produce("all", [maxwell("orders", "insert", ORDER)])
    sync.run()
    assert sync.rows("orders") == [ORDER]


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


@pytest.mark.parametrize("few", [100_000, 0], ids=["few records", "many records"])
def test_tasks_that_route_records_decode_those_of_known_tables(
    sync: Sync, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr("normalize.tables.query._FEW_RECORDS", few)
    dead, width = f"dead.{sync.prefix}", 8
    sync.kafka.create_topic(dead)
    micro_batches = [
        [maxwell(table, "insert", {"id": number, "name": "a"})]
        for number in range(width // 2)
        for table in ("orders", "items")
    ]
    first = [message for each in micro_batches for message in each]
    changed = [maxwell("orders", "update", {"id": 0, "name": at}, {"name": "a"}) for at in "bcde"]
    changed += [maxwell("items", "delete", {"id": at, "name": "a"}) for at in range(4)]
    of_new_column = [maxwell("orders", "insert", {"id": 9, "note": "n"}), *changed[1:]]
    bad = [maxwell("orders", "insert", {"id": "x"}), (None, b"{"), *changed[2:]]
    of_new_table = [maxwell("added", "insert", {"id": 1}), *changed[:7]]
    last = [maxwell("items", "insert", {"id": 7}), *changed[3:], (None, None), (None, None)]
    for messages in (first, changed, of_new_column, bad, of_new_table, last):
        assert len(messages) == width
        sync.produce("all", messages)
    decoded = patch.object(TableDecoder, "changes", autospec=True, side_effect=TableDecoder.changes)
    with decoded as changes, patch.object(job, "table_changes", wraps=table_changes) as by_table:
        sync.run(
            mode=DeadLetter(dead),
            options={
                "kafka.bootstrap.servers": sync.kafka.bootstrap_servers,
                "maxOffsetsPerTrigger": width,
            },
        )
    # Both tables but in the first micro-batch, and in that of the new column, which is routed again.
    assert changes.call_count - by_table.call_count == 8
    assert sync.rows("orders") == [
        {"id": 0, "name": "e"},
        *({"id": number, "name": "a"} for number in range(1, 4)),
        {"id": 9, "note": "n"},
    ]
    assert (sync.rows("items"), sync.rows("added")) == ([{"id": 7}], [{"id": 1}])
    assert {letter.value() for letter in letters(sync.kafka, dead)} == {bad[0][1], b"{"}
