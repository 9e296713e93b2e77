"""ticdc-simple-json: the columns of a table are in messages without rows."""

from __future__ import annotations

from typing import Any

from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

Record = tuple[bytes | None, bytes | None]


def of_table(table: str, kind: str, key: list[str], **types: dict[str, Any]) -> Record:
    """Return a message with the columns of a table."""
    columns = [
        {"name": name, "dataType": of, "nullable": name not in key, "default": None}
        for name, of in types.items()
    ]
    indexes = [
        {"name": "by_x", "primary": False, "columns": ["x"]},
        {"name": "primary", "primary": True, "columns": key},
    ]
    schema = {"schema": "shop", "table": table, "columns": columns, "indexes": indexes[not key :]}
    return None, json_bytes(
        {"version": 1, "type": kind, "commitTs": 0, "buildTs": 1, "tableSchema": schema}
    )


def row(table: str, **data: Any) -> Record:
    names = {"database": "shop", "table": table, "tableID": 1}
    stamps = {"commitTs": 447984084414103554, "buildTs": 1708923662983, "schemaVersion": 4}
    return None, json_bytes({"version": 1, **names, "type": "INSERT", **stamps, "data": data})


WATERMARK = json_bytes({"version": 1, "type": "WATERMARK", "commitTs": 5, "buildTs": 6})
ORDERS = {
    "id": {"mysqlType": "bigint", "length": 20, "unsigned": True},
    "price": {"mysqlType": "decimal", "length": 10, "decimal": 2},
    "paid_at": {"mysqlType": "timestamp", "length": 23, "decimal": 3},
    "made_at": {"mysqlType": "datetime", "length": 19},
    "photo": {"mysqlType": "blob"},
    "is_open": {"mysqlType": "bit", "length": 1},
    "numbers": {"mysqlType": "vector"},
}
PAID = {"location": "Asia/Shanghai", "value": "2025-01-02 11:04:05.123"}
ROW = row(
    "orders",
    id="1",
    price="9.50",
    paid_at=PAID,
    made_at=None,
    photo="AP8=",
    is_open="1",
    numbers="[1]",
)
DDL = (
    "id DECIMAL(20,0) NOT NULL, price DECIMAL(10,2), paid_at TIMESTAMP(3), made_at TIMESTAMP_NTZ(0), "
    "photo BINARY, is_open BOOLEAN, numbers STRING"
)


def test_bootstrap_has_the_types_and_the_primary_key() -> None:
    records = [of_table("orders", "BOOTSTRAP", ["id"], **ORDERS), ROW, (None, WATERMARK)]
    inferred = infer_schema(records, format="ticdc-simple-json")
    assert (inferred.ddl, inferred.primary_key) == (DDL, ("id",))
    assert inferred.notes == ()
    assert inferred.ignored == {"MESSAGE": 1, "HEARTBEAT": 1}


def test_a_statement_has_them_too_and_the_wider_type_is_used() -> None:
    wider = {**ORDERS, "price": {"mysqlType": "decimal", "length": 12, "decimal": 2}}
    records = [
        of_table("orders", "BOOTSTRAP", ["id"], **ORDERS),
        ROW,
        of_table("orders", "ALTER", ["id"], **wider),
    ]
    inferred = infer_schema(records, format="ticdc-simple-json")
    assert inferred.ddl == DDL.replace("DECIMAL(10,2)", "DECIMAL(12,2)")


def test_columns_of_an_unknown_form_are_left_to_the_values() -> None:
    odd: dict[str, Any] = {"id": {"mysqlType": "int", "length": []}, "name": {"mysqlType": 5}}
    records = [of_table("parts", "BOOTSTRAP", [], **odd), row("parts", id="1", name="a")]
    inferred = infer_schema(records, format="ticdc-simple-json")
    assert (inferred.ddl, inferred.primary_key) == ("id INT, name STRING", ())


def test_a_topic_is_detected_and_each_table_has_its_own_columns() -> None:
    profile = profile_records(
        sample(
            of_table("orders", "BOOTSTRAP", ["id"], **ORDERS),
            of_table("parts", "BOOTSTRAP", ["id"], id={"mysqlType": "int"}),
            ROW,
            row("parts", id="7"),
            row("parts", id="8"),
            (None, WATERMARK),
        )
    )
    assert profile.format == "ticdc-simple-json"
    assert [(each.name, each.records, each.ddl, each.operations) for each in profile.tables] == [
        ("shop.parts", 2, "id INT NOT NULL", {"INSERT": 2}),
        ("shop.orders", 1, DDL, {"INSERT": 1}),
    ]
    assert profile.ignored == {"MESSAGE": 2, "HEARTBEAT": 1}


def test_messages_without_the_protocols_fields_are_not_detected() -> None:
    records = [(None, json_bytes({"type": "INSERT", "data": {"id": "1"}}))] * 3
    assert profile_records(sample(*records)).format is None
