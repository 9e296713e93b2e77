"""Errors of tables: each names its table, the others are written, and its remedy works.

The tables are cases of one query.
"""

import json
from dataclasses import replace

import pytest

from cdc_formats.errors import ArgumentError
from normalize import JdbcDatabase
from normalize.tables.table_options import Maintenance, TableOptions
from tests.support.databases import Message, debezium, maxwell
from tests.support.syncing import MINIMAL, ORDER, BoundedSync, rows_of, write

OTHER = {"id": 2, "name": "b"}


def test_errors_of_tables_and_their_remedies(sync: BoundedSync) -> None:
    write(sync, {"rows": [("insert", ORDER)], "typed": [("insert", ORDER)]})
    sync.run()
    lost = sync.folder / "lake" / "lost"
    sync.spark.sql(f"CREATE TABLE delta.`{lost}` (id BIGINT) USING delta")
    names = {"kinds": "row_kind", "absent": "__Absent", "placed": "__place"}
    shards = {"shards": "shop_[0-9][.]sharded"}
    tables = {
        "shop.rows": TableOptions(scd_type=2),
        "shop.softly": TableOptions(deletes="soft"),
        "shop.started": TableOptions(scd_type=2),
        "shop.tracked": TableOptions(scd_type=2, track_history="note"),
        "shop.sharded": TableOptions(**shards),  # type: ignore[arg-type]
        "SHOP.`cased`": TableOptions(where="id > 1"),
    }
    write(
        sync,
        {
            "fine": [("insert", ORDER)],
            "typed": [("insert", {"id": "x"})],
            "rows": [("insert", {"id": 2})],
            "softly": [("insert", ORDER | {"Deleted_At": "-"})],
            **{table: [("insert", {"id": 1, name: "x"})] for table, name in names.items()},
            "started": [("insert", {"id": 1, "__start_at": 1})],
            "tracked": [("insert", ORDER)],
            "sharded": [
                ("insert", {"id": 1, "name": "a"}, None, "shop_1"),
                ("insert", {"id": 2, "name": 5}, None, "shop_2"),
            ],
            "twice": [("insert", ORDER, None, "a"), ("insert", OTHER, None, "b")],
            "lost": [("delete", ORDER)],
            "cased": [("insert", ORDER), ("insert", OTHER)],
        },
    )
    text = sync.error(tables=tables)
    reserved = (
        "has the name of a column of the query: pass tables={{'shop.{}': "
        "TableOptions(exclude_columns=...)}}"
    )
    expected = {
        "shop.typed": "[TYPE_CONVERSION] expected `BIGINT`, got `str` 'x' - at `$.data.id`",
        "shop.softly": (
            "its column Deleted_At has the name of deleted_column: pass tables={'shop.softly': "
            "TableOptions(deleted_column="
        ),
        **{
            f"shop.{table}": f"its column {name} {reserved.format(table)}"
            for table, name in names.items()
        },
        "shop.started": (
            "its column __start_at has the name of a column of a history: pass "
            "tables={'shop.started': TableOptions(excl"
        ),
        "shop.tracked": "[ARGUMENT] track_history has 'note', which is not one of its columns: id, name",
        "shop.sharded": (
            "its shards shop_1.sharded and shop_2.sharded have the column name as STRING and as "
            "BIGINT: pass its type"
        ),
        "a.twice": "the target 'twice' is that of a.twice and of b.twice: pass another template of names",
        "b.twice": "the target 'twice' is that of a.twice and of b.twice: pass another template of names",
        "shop.lost": "its first records are deletes, from which no schema can be inferred, and ",
        "shop.rows": "[SCHEMA] ",
        "shop.cased": (
            "tables= has options for 'SHOP.`cased`', and the messages name 'shop.cased': correct "
            "the entry, or add 'shop.cased': TableOptions() if there are two tables"
        ),
    }
    assert [
        f"{table}: {sentence}"
        for table, sentence in expected.items()
        if f"{table}: {sentence}" not in text
    ] == []
    assert "has no column __START_AT, __END_AT, which scd_type=2 requires: run ALTER TABLE" in text
    assert text.startswith("[SYNC] shop.cased: ")
    assert text.endswith(". The other tables of the micro-batch are written")
    assert "shop.fine" not in text
    assert sorted(path.name for path in (sync.folder / "lake").iterdir()) == [
        "fine",
        "lost",
        "rows",
        "typed",
    ]
    assert rows_of(sync, ["fine", "typed", "rows"]) == {
        table: [ORDER] for table in ("fine", "typed", "rows")
    }
    remedies = {
        "shop.softly": TableOptions(deletes="soft", deleted_column="gone_at"),
        "shop.kinds": TableOptions(exclude_columns="row_kind"),
        "shop.started": TableOptions(scd_type=2, exclude_columns="__start_at"),
        "shop.tracked": TableOptions(scd_type=2, track_history="name"),
        "shop.sharded": TableOptions(**shards, types={"name": "STRING"}),  # type: ignore[arg-type]
        "a.twice": TableOptions(name="once"),
        "shop.lost": TableOptions(schema="id BIGINT", primary_key="id"),
        "shop.cased": TableOptions(where="id > 1"),
    }
    sync.run(tables=remedies, exclude="shop[.](typed|absent|placed)")
    assert rows_of(
        sync, ["fine", "rows", "softly", "kinds", "sharded", "once", "twice", "lost", "cased"]
    ) == {
        "fine": [ORDER],
        "rows": [ORDER, {"id": 2}],
        "softly": [ORDER | {"Deleted_At": "-"}],
        "kinds": [{"id": 1}],
        "sharded": [{"id": 1, "name": "a"}, {"id": 2, "name": "5"}],
        "once": [ORDER],
        "twice": [OTHER],
        "lost": [],
        "cased": [OTHER],
    }
    assert [row["id"] for row in sync.rows("started")] == [1]
    assert [row["name"] for row in sync.rows("tracked")] == ["a"]


def test_stopped_tables_stay_stopped_and_the_others_go_on(
    sync: BoundedSync, caplog: pytest.LogCaptureFixture
) -> None:
    options = {
        "target": replace(sync.tables.database, table="{database}_{table}"),
        "on_table_error": "stop_table",
    }
    without_database = b'{"table": "lost", "type": "insert", "ts": 1, "data": {"id": 1}}'
    sync.produce("lost", [(None, without_database)])
    write(sync, {"orders": [("insert", ORDER)], "items": [("insert", {"id": 1})]})
    sync.run(**options)
    assert (
        "the source table 'lost' has no database for the template '{database}_{table}': remove it"
        in sync.file("lost")["stopped"]
    )
    write(sync, {"orders": [("insert", {"id": "x"})], "items": [("insert", {"id": 2})]})
    sync.run(**options)
    assert "shop.orders is stopped, and the other tables go on: [TYPE_CONVERSION]" in caplog.text
    assert sync.file("shop.orders")["stopped"].startswith("[TYPE_CONVERSION]")
    write(sync, {"orders": [("insert", {"id": 3})], "items": [("insert", {"id": 3})]})
    sync.run(**options)
    assert "shop.orders is stopped and misses 1 records: [TYPE_CONVERSION]" in caplog.text
    assert (sync.rows("shop_orders"), sync.rows("shop_items")) == (
        [ORDER],
        [{"id": 1}, {"id": 2}, {"id": 3}],
    )


def test_file_of_a_table_of_goldengate_by_release_0_2(sync: BoundedSync) -> None:
    row = {"table": "SHOP.ORDERS", "primary_keys": ["ID"], "op_type": "I"}

    def produce(number: int) -> None:
        sync.produce("t", [(None, json.dumps(row | {"after": {"ID": number}}).encode())])

    options = {"format": "ogg-json", "tables": {"SHOP.ORDERS": TableOptions(name="SHOP.ORDERS")}}
    produce(1)
    sync.run(**options)
    sync.edit("SHOP.ORDERS", '"table": "SHOP.ORDERS"', '"table": "`SHOP.ORDERS`"')
    earlier = sync.path("%60SHOP.ORDERS%60")
    sync.path("SHOP.ORDERS").rename(earlier)
    produce(2)
    text = sync.error(**options)
    assert (
        f"SHOP.ORDERS: its file is {earlier}, with its name in backquotes: stop the query" in text
    )
    assert sync.rows("SHOP.ORDERS") == [{"ID": 1}]
    earlier.rename(sync.path("SHOP.ORDERS"))
    sync.edit("SHOP.ORDERS", '"table": "`SHOP.ORDERS`"', '"table": "SHOP.ORDERS"')
    sync.run(**options)
    assert sync.rows("SHOP.ORDERS") == [{"ID": 1}, {"ID": 2}]


@pytest.mark.parametrize("on_question", ["fail", "stop_table"])
def test_a_question_is_answered_before_anything_is_written(
    sync: BoundedSync, on_question: str
) -> None:
    options = {
        "format": "debezium-json",
        "target": replace(sync.tables.database, on_question=on_question),
        "exclude": "[.]dropped",
    }
    row, decimal = {"id": "a"}, {"price": "Cr1t6rqqFik=", "seen_at": 1767323045000}

    def stopped(table: str, **more: object) -> str:
        if on_question == "fail":
            text = sync.error(**options, **more)
        else:
            sync.run(**options, **more)
            text = f"{table}: {sync.file(table)['stopped']}"
        return text

    sync.produce("t", [debezium("plain", "c", None, row)])
    sync.produce("t", [debezium("asked", "c", None, row | decimal)])
    text = stopped("shop.asked")
    assert (
        "shop.asked: its messages do not show the types of columns, `price STRING` (every" in text
    )
    assert "; `seen_at BIGINT` (an integer; " in text
    assert "): pass tables={'shop.asked': TableOptions(types=...)} with the type of each" in text
    assert sync.rows("plain") == [row]
    assert [path.name for path in (sync.folder / "lake").iterdir()] == ["plain"]
    answers = {"price": "as_is", "seen_at": "TIMESTAMP(3)"}
    asked = {"shop.asked": TableOptions(types=answers)}
    mode = {"format_options": {"time_precision_mode": "adaptive"}}
    if on_question == "fail":
        sync.run(**options, **mode, tables=asked)
        assert sync.file("shop.asked")["schema"][1:] == ["price STRING", "seen_at TIMESTAMP(3)"]
    sync.produce("t", [debezium("plain", "c", None, {"id": "b", "photo": "Cr1t6rqqFik="})])
    assert "shop.plain: its messages do not show the types of columns, `photo STRING` (" in stopped(
        "shop.plain", **mode, tables=asked
    )
    assert (sync.rows("plain"), sync.file("shop.plain")["schema"]) == (
        [row],
        ["id STRING NOT NULL"],
    )


def test_record_that_names_none_of_the_tables_of_its_topic_fails_the_query(
    sync: BoundedSync,
) -> None:
    messages = [maxwell(table, "insert", ORDER) for table in ("orders", "items")]
    sync.produce("all", [*messages, (None, b"not JSON")])
    text = sync.error(on_table_error="stop_table")
    assert text.startswith("[SYNC] [MALFORMED_MESSAGE]")
    assert (
        "Its topic has the tables shop.items, shop.orders, and the record names none of them: pass "
        "mode=DeadLetter(...)"
    ) in text
    assert not (sync.folder / "schemas" / "shop.orders.json").exists()
    sync.run(on_table_error="stop_table", mode="DROPMALFORMED")
    assert rows_of(sync, ["orders", "items"]) == {"orders": [ORDER], "items": [ORDER]}


def test_partial_rows_that_nothing_completes(sync: BoundedSync) -> None:
    rows = [{"id": number, "name": "a", "qty": 1} for number in (1, 2)]
    options = {
        **MINIMAL,
        "tables": {
            **dict.fromkeys(["shop.filtered", "shop.unread"], TableOptions(where="qty < 9")),
            "shop.history": TableOptions(scd_type=2),
        },
    }
    write(sync, {table: [("insert", row) for row in rows] for table in ("filtered", "unread")})
    sync.run(**options)
    updates = [
        ("update", {"id": 1, "qty": 5}, {"qty": 1}),
        ("update", {"id": 2, "qty": 9}, {"qty": 1}),
    ]
    write(sync, {table: updates for table in ("filtered", "unread")})
    sync.run(**options)
    filtered = [{"id": 1, "name": "a", "qty": 5}]
    assert rows_of(sync, ["filtered", "unread"]) == {"filtered": filtered, "unread": filtered}
    write(
        sync,
        {
            # The target does not have a row that did not match.
            "filtered": [("update", {"id": 2, "qty": 8}, {"qty": 9})],
            "unread": [("update", {"id": 1, "name": "b"}, {"name": "a"})],
            "history": [("insert", ORDER), ("update", {"id": 1}, {"id": 1})],
            "deleted": [("insert", ORDER), ("delete", ORDER), ("update", {"id": 1}, {"id": 1})],
        },
    )
    text = sync.error(**options)
    expected = {
        "filtered": "and the target does not have its key, and so cannot complete it",
        "unread": "and where reads its column qty",
        "history": "and a history cannot complete it: pass scd_type=1",
        "deleted": "and the change of its key before it is a delete",
    }
    sentences = [
        f"shop.{table}: [PARTIAL_IMAGE] the row lacks unchanged columns, {sentence}"
        for table, sentence in expected.items()
    ]
    assert [sentence for sentence in sentences if sentence not in text] == []
    assert rows_of(sync, ["filtered", "unread"]) == {"filtered": filtered, "unread": filtered}


def test_unchanged_values_and_truncates_of_debezium(
    sync: BoundedSync, caplog: pytest.LogCaptureFixture
) -> None:
    order, source = ORDER | {"photo": "AAEC/w=="}, {"connector": "postgresql", "db": "shop"}

    def toasted(quantity: int) -> Message:
        # Placeholders of a text and of bytes.
        unchanged = {
            "name": "__debezium_unavailable_value",
            "photo": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==",
        }
        event = {
            "before": None,
            "after": {"id": 1, "qty": quantity, **unchanged},
            "op": "u",
            "source": source | {"table": "orders"},
        }
        return b'{"id": 1}', json.dumps(event).encode()

    truncate = json.dumps(
        {"before": None, "after": None, "op": "t", "source": source | {"table": "emptied"}}
    ).encode()
    sync.produce("orders", [debezium("orders", "c", None, order | {"qty": 1000})])
    sync.run(format="debezium-json")
    guessed = "shop.orders: the types of `photo`, `qty` are guesses, and "
    assert f"{guessed}{sync.path('shop.orders')} has the questions" in caplog.text
    assert sync.file("shop.orders")["questions"].keys() == {"qty", "photo"}
    caplog.clear()
    sync.produce("orders", [toasted(2)])
    as_is = TableOptions(types=dict.fromkeys(("id", "qty", "photo"), "as_is"))
    sync.run(format="debezium-json", tables={"shop.orders": as_is})
    assert "guesses" not in caplog.text
    assert sync.rows("orders") == [order | {"qty": 2}]
    # Without the table's file, no value of the columns is known.
    sync.path("shop.orders").unlink()
    sync.produce("orders", [toasted(3)])
    sync.produce("emptied", [debezium("emptied", "c", None, ORDER), (None, truncate)])
    text = sync.error(format="debezium-json")
    assert (
        "shop.orders: the type of its new column 'name' is unknown, because no record has a value"
        in text
    )
    assert "shop.emptied: [TRUNCATE] the source table was truncated" in text
    assert sync.rows("orders") == [order | {"qty": 2}]
    sync.run(
        format="debezium-json",
        tables={"shop.orders": TableOptions(types={"name": "STRING", "photo": "STRING"})},
        on_truncate="ignore",
    )
    assert rows_of(sync, ["orders", "emptied"]) == {
        "orders": [order | {"qty": 3}],
        "emptied": [ORDER],
    }
    assert "shop.emptied: 1 records not applied (TRUNCATE)" in caplog.text


def test_options_without_effect(sync: BoundedSync) -> None:
    soft = replace(sync.tables.database, deletes="soft")
    for options, database, text in (
        (
            {"deleted_column": "gone_at"},
            sync.tables.database,
            "deleted_column has no effect with hard deletes",
        ),
        (
            {"scd_type": 2},
            JdbcDatabase("jdbc:postgresql://db/shop"),
            "scd_type=2 is not supported for JdbcTarget",
        ),
        (
            {"scd_type": 2, "deletes": "soft"},
            sync.tables.database,
            "scd_type=2 and deletes='soft' cannot be combined",
        ),
        ({"scd_type": 2}, soft, "scd_type=2 and deletes='soft' cannot be combined"),
        (
            {"properties": {"fillfactor": 70}},
            JdbcDatabase("jdbc:postgresql://db/shop"),
            "partition_by, cluster_by and properties are not supported for JdbcTarget",
        ),
        (
            {"schema": "id INT", "primary_key": "id", "cluster_by": "at"},
            sync.tables.database,
            "cluster_by has 'at', which is not one of the columns: id",
        ),
        (
            {"maintenance": Maintenance()},
            JdbcDatabase("jdbc:postgresql://db/shop"),
            "maintenance is not supported for JdbcTarget",
        ),
        (
            {"maintenance": Maintenance(expire="6 days")},
            sync.tables.database,
            "expire is '6 days', and a running MERGE or reader needs older files",
        ),
        # The columns are unknown.
        ({"where": "qty >"}, sync.tables.database, r"where is not a condition .*\[PARSE_SYNTAX"),
        (
            {"primary_key": "id", "deleted_column": "ID"},
            soft,
            r"its column id has the name of deleted_column: pass tables=\{'shop.orders'",
        ),
        (
            {"schema": "id INT", "primary_key": "id", "where": "uuid() < 'x'"},
            sync.tables.database,
            "where is not deterministic",
        ),
    ):
        with pytest.raises(
            ArgumentError, match=rf"tables\['shop.orders'\] has wrong options: {text}"
        ):
            sync.job(target=database, tables={"shop.orders": TableOptions(**options)})  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="deletes is 'sft'"):
        replace(sync.tables.database, deletes="sft")  # type: ignore[arg-type]
