"""Computed columns: Spark's SQL on the decoded row, in all rows and in partial ones."""

import json
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize.tables.policy import COMPUTED_PROPERTY
from normalize.tables.table_options import TableOptions
from tests.support.databases import maxwell
from tests.support.syncing import MINIMAL, BoundedSync, NewBoundedSync

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
