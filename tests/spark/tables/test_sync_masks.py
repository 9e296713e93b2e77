"""Tables of `sync_database` and `sync_table` with masked columns."""

import json
import logging
from threading import Barrier
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize.tables.expressions import COMPUTED_PROPERTY
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.delta import DeltaSink
from tests.support.databases import maxwell
from tests.support.masks import KEY, KEY_ENV, hashed
from tests.support.syncing import MINIMAL, BoundedSync, NewBoundedSync, write

MASK = {
    "Email": "hmac",
    "shop.users.id": "hmac",
    "shop.users.name": "drop",
    "shop.users.nane": "drop",
    "emails": "drop",
}
OPTIONS = {"format_options": {"mask": MASK, "mask_key_env": KEY_ENV}}
ANN = {"id": 1, "email": "ann", "name": "Ann"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def test_masks_of_all_tables_and_of_one_also_of_a_column_that_appears_later(
    sync: BoundedSync, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "normalize")
    write(sync, {"users": [("insert", ANN)], "orders": [("insert", {"id": 1, "name": "pen"})]})
    sync.run(**OPTIONS)
    ann = {"id": hashed("1"), "email": hashed("ann")}
    assert sync.rows_of("users") == [ann]
    assert sync.rows_of("orders") == [{"id": 1, "name": "pen"}]
    assert "shop.users: mask has `shop.users.nane`, which is not one of its columns" in caplog.text
    unused = (
        "mask has `emails`, which no table has so far; similar columns are `email` of shop.users"
    )
    assert caplog.text.count(unused) == 1
    bob = {"id": 2, "email": "bob", "name": "Bob"}
    write(
        sync,
        {
            "users": [
                ("insert", bob),
                ("update", {**ANN, "email": "anna"}, {"email": "ann"}),
                ("delete", bob),
            ],
            "orders": [("insert", {"id": 2, "name": "cup", "email": "ann"})],
        },
    )
    sync.run(by_spark=True, **OPTIONS)
    assert sync.rows_of("users") == [{**ann, "email": hashed("anna")}]
    assert sync.rows_of("orders")[1] == {"id": 2, "name": "cup", "email": ann["email"]}
    assert sync.file("shop.users")["facts"]["masks"].keys() == {"id", "email", "name"}
    files = "".join(path.read_text("utf-8") for path in (sync.folder / "schemas").glob("*.json"))
    assert "ann" not in files
    # The next micro-batch with other masks writes nothing.
    write(sync, {"orders": [("delete", {"id": 2, "name": "cup", "email": "ann"})]})
    monkeypatch.setenv("OTHER_KEY", KEY[::-1])
    other = {"format_options": {"mask": MASK, "mask_key_env": "OTHER_KEY"}}
    assert "[SYNC] shop.orders: the mask of 'email' is 'hmac with" in sync.error(**other)
    sync.run(**OPTIONS)
    assert sync.rows_of("orders") == [{"id": 1, "name": "pen"}]


def test_a_primary_key_that_is_redacted_stops_its_table(sync: BoundedSync) -> None:
    write(sync, {"users": [("insert", ANN)]})
    text = sync.error(format_options={"mask": {"id": "redact"}})
    assert "[SYNC] shop.users: [SCHEMA] mask has 'redact' for 'id', which is part of the" in text


# --------------------------------------------------------------------------------------------------
# Computed columns: Spark's SQL on the decoded row, in all rows and in partial ones
SCHEMA: dict[str, Any] = {
    "schema": "id INT, name STRING, price DECIMAL(10,2), qty INT",
    "primary_key": "id",
}
SELECT = {"NAME": "upper(name)", "total": "price * qty"}
ROW = {"id": 1, "name": "a", "price": "1.50", "qty": 2}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_computed_columns(new_sync: NewBoundedSync, kind: str) -> None:
    sync = new_sync(kind)
    options = {"table": TableOptions(select=SELECT, where="qty < 5", cluster_by="total"), **SCHEMA}
    few = [maxwell("orders", "insert", {**ROW, "id": key}) for key in (1, 2, 3)]
    sync.produce("t", few)
    sync.apply(sync.table_job(**options, **MINIMAL))
    # The condition is on the decoded row. A partial row without `name` keeps the computed one.
    sync.produce(
        "t",
        [
            maxwell("orders", "update", {"id": 1, "price": "2.00", "qty": 4}, {"qty": 2}),
            maxwell("orders", "delete", {**ROW, "id": 2}),
            maxwell("orders", "update", {"id": 3, "price": "1.00", "qty": 5}, {"qty": 2}),
        ],
    )
    sync.apply(sync.table_job(**options, **MINIMAL))
    (row,) = sync.rows("orders")
    assert {name: str(each) for name, each in row.items()} == {
        **{"id": "1", "name": "A", "price": "2.00", "qty": "4"},
        "total": "8.00",
    }
    name = sync.tables.database.target("orders").sql_name
    properties = sync.spark.sql(f"SHOW TBLPROPERTIES {name}").where(f"key = '{COMPUTED_PROPERTY}'")
    assert [json.loads(each["value"]) for each in properties.collect()] == [["NAME", "total"]]
    # Other expressions would leave other values in the rows that the table has.
    with pytest.raises(ArgumentError, match=r"select is .*, and was .*upper.* set it back"):
        sync.table_job(table=TableOptions(select={"total": "qty"}, where="qty < 5"), **SCHEMA)
    # A new column whose expression reads one that the row lacks.
    sync.produce("t", [maxwell("orders", "update", {"id": 1, "qty": 3}, {"qty": 4})])
    with pytest.raises(Exception, match="select of 'total' reads its column price"):
        sync.apply(sync.table_job(**options, **MINIMAL))


@pytest.mark.parametrize(
    ("select", "text"),
    [
        ({"ID": "id + 1"}, "select computes 'ID', which is part of the primary key"),
        (
            {"total": "price * quantity"},
            "select of 'total' is not an expression of a row: .*quantity",
        ),
        ({"total": "sum(qty)"}, "select of 'total' is not an expression of a row"),
        ({"total": "qty *"}, r"select of 'total' is not an expression of a row: .*PARSE_SYNTAX"),
        ({"total": "rand() * qty"}, "select of 'total' is not deterministic"),
        ({"seen": "current_timestamp()"}, "select of 'seen' depends on the time or the session"),
        ({"row_kind": "name"}, "its column row_kind has the name of a column of the query"),
    ],
)
def test_expressions_that_are_refused(sync: BoundedSync, select: dict[str, str], text: str) -> None:
    with pytest.raises(ArgumentError, match=f"table has wrong options: {text}"):
        sync.table_job(table=TableOptions(select=select), **SCHEMA)


# --------------------------------------------------------------------------------------------------
# `sync_database` writes tables beside each other, each with local properties of its own
def test_no_statement_sees_the_properties_of_another(
    sync: BoundedSync, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, properties = Barrier(2, timeout=60), {}

    def merge(sink: DeltaSink, *_: Any) -> None:
        # As Spark does with the number of an SQL execution.
        context = sink.spark.sparkContext
        context.setLocalProperty("tests.table", sink.table.name)
        both.wait()
        properties[sink.table.name] = context.getLocalProperty("tests.table")

    for name in ("merge", "merge_arrow"):
        monkeypatch.setattr(DeltaSink, name, merge)
    for table in ("orders", "items"):
        sync.produce(table, [maxwell(table, "insert", {"id": 1})])
    sync.run()
    assert len(properties) == 2
    assert all(name == seen for name, seen in properties.items())
