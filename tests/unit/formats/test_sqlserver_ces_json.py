"""sqlserver-ces-json: the types of columns, and what a sample shows."""

from __future__ import annotations

import json

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, SchemaError
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

TYPES = {
    "id": ("bigint", "8"),
    "line": ("tinyint", "255"),
    "is_open": ("bit", "1"),
    "price": ("decimal(10,2)", "9.50"),
    "ratio": ("float", "0.5"),
    "day": ("date", "2026-08-07"),
    "made_at": ("datetime2(7)", "2026-08-07 16:25:00.8833333"),
    "sold_at": ("datetimeoffset(3)", "2026-08-07 16:25:00.883 +02:00"),
    "name": ("nvarchar(max)", "nail"),
    "photo": ("varbinary(max)", "0xFF"),
    "other": ("hierarchyid", "12.5"),
}
DDL = (
    "id BIGINT NOT NULL, line SMALLINT, is_open BOOLEAN, price DECIMAL(10,2), ratio DOUBLE, day DATE, "
    "made_at TIMESTAMP_NTZ(7), sold_at TIMESTAMP(3), name STRING, photo STRING, other STRING"
)


def event(operation: str = "INS") -> bytes:
    columns = [
        {"name": name, "type": of, "index": at} for at, (name, (of, _)) in enumerate(TYPES.items())
    ]
    source = {"db": "shop", "schema": "dbo", "tbl": "parts", "cols": columns}
    source |= {"pkkey": [{"columnname": "id", "value": "8"}]}
    row = json.dumps({name: value for name, (_, value) in TYPES.items()})
    images = {"old": "{}", "current": row} if operation == "INS" else {"old": row, "current": "{}"}
    return json_bytes(
        {
            "specversion": "1.0",
            "type": "com.microsoft.SQL.CES.DML.V1",
            "operation": operation,
            "logicalid": "1bf2756a:000000B1000009300009:00000000000000000001",
            "data": json.dumps({"eventsource": source, "eventrow": images}),
        }
    )


def test_cols_have_the_types_and_pkkey_the_primary_key() -> None:
    inferred = infer_schema([(None, event()), (None, event("DEL"))], format="sqlserver-ces-json")
    assert (inferred.ddl, inferred.primary_key) == (DDL, ("id",))


def test_a_topic_is_detected_and_its_table_named() -> None:
    profile = profile_records(sample((None, event()), (None, event("DEL"))))
    assert profile.format == "sqlserver-ces-json"
    assert [(each.name, each.operations) for each in profile.tables] == [
        ("shop.dbo.parts", {"INS": 1, "DEL": 1})
    ]


def test_a_binary_column_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"photo is BINARY.*declare STRING"):
        get_format("sqlserver-ces-json").decoder("id INT, photo BINARY")


@pytest.mark.parametrize("identifier", ["debezium-json", "ogg-json"])
def test_another_format_names_the_event(identifier: str) -> None:
    with pytest.raises(DecodeError, match="read it as sqlserver-ces-json"):
        get_format(identifier).decoder("id INT").decode(None, event())
