"""VARIANT columns of `sync_table`: whole rows, partial rows, rows whose key changed, histories."""

from typing import Any

import pytest

from cdc_formats.errors import ChangelogError
from normalize.spark_versions import installed_version
from normalize.tables.table_options import TableOptions
from tests.support.databases import maxwell
from tests.support.syncing import MINIMAL, BoundedSync, NewBoundedSync

TABLE = {"schema": "id INT, doc VARIANT, qty INT", "primary_key": "id"}


def orders(kind: str, row: dict[str, Any], old: dict[str, Any] | None = None) -> Any:
    return maxwell("orders", kind, row, old)


def docs(sync: BoundedSync, *columns: str) -> list[tuple[Any, ...]]:
    table = sync.spark.table(sync.tables.database.target("orders").sql_name)
    rows = table.selectExpr("id", "to_json(doc)", "qty", *columns).collect()
    return sorted(map(tuple, rows), key=repr)


@pytest.mark.cross_section
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_variants_of_whole_and_partial_rows(new_sync: NewBoundedSync, kind: str) -> None:
    sync = new_sync(kind)
    sync.produce(
        "t",
        [
            orders("insert", {"id": 1, "doc": {"b": [1.50], "a": "x"}, "qty": 1}),
            orders("insert", {"id": 2, "doc": "text", "qty": 2}),
        ],
    )
    if kind == "iceberg" and installed_version() < "4.1":
        with pytest.raises(ChangelogError, match=r"Iceberg for Spark 4\.0 does not merge"):
            sync.apply(sync.table_job(**TABLE, **MINIMAL))
        return
    sync.apply(sync.table_job(**TABLE, **MINIMAL))
    assert docs(sync) == [(1, '{"a":"x","b":[1.5]}', 1), (2, '"text"', 2)]
    changes = [
        orders("update", {"id": 1, "qty": 7}, {"qty": 1}),
        orders("update", {"id": 3}, {"id": 2}),
    ]
    sync.produce("t", changes)
    sync.apply(sync.table_job(**TABLE, **MINIMAL))
    assert docs(sync) == [(1, '{"a":"x","b":[1.5]}', 7), (3, '"text"', 2)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_variants_of_versions_are_compared(new_sync: NewBoundedSync, kind: str) -> None:
    sync = new_sync(kind)
    history = {**TABLE, "table": TableOptions(scd_type=2)}
    sync.produce("t", [orders("insert", {"id": 1, "doc": {"a": 1, "b": 2}, "qty": 1})])
    sync.apply(sync.table_job(**history))
    same = orders("update", {"id": 1, "doc": {"b": 2, "a": 1}, "qty": 1}, {"doc": {"a": 1}})
    other = orders("update", {"id": 1, "doc": "1", "qty": 1}, {"doc": {"a": 1, "b": 2}})
    sync.produce("t", [same, other])
    sync.apply(sync.table_job(**history))
    valid = [row for row in docs(sync, "__START_AT.offset", "__END_AT.offset") if row[3] != row[4]]
    assert valid == [(1, '"1"', 1, 2, None), (1, '{"a":1,"b":2}', 1, 0, 2)]
