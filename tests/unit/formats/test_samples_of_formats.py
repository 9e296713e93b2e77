"""What samples of unrecorded messages show, in shapes from the producers' documentation.

`tests/vectors/rules` has the rows of such messages. Messages of something else that look like a
format's are named by profiles and by inference.
"""

import json
from functools import partial
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import InferenceError
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.times import STRUCTURED
from tests.support.error_texts import error_test, text_test
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample

pytestmark = pytest.mark.usefixtures("no_other_formats")
Record = tuple[bytes | None, bytes | None]


def sampled(table: str, *records: Record) -> str:
    """Return what a profile shows of records, and the schema that is inferred for a table."""
    profile = profile_records(sample(*records))
    tables = [(each.name, each.records, each.operations, each.ddl) for each in profile.tables]
    inferred = infer_schema(records, format=profile.format or "", table_include=table)
    return f"{profile.format} {profile.ignored}\n{tables}\n{inferred}"


POSTGRES = {
    "version": "3.4.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_735_819_200_000, "snapshot": "false", "db": "shop",
    "sequence": '["24023119","24023128"]', "schema": "public", "table": "orders", "txId": 555, "lsn": 24023128, "xmin": None,
}  # fmt: skip
SPANNER = {
    "connector": "spanner", "db": "shop", "table": "parts", "ts_ms": 1, "ts_ns": 1000000, "sequence": "1", "mod_number": 0,
    "value_capture_type": "OLD_AND_NEW_VALUES",
}  # fmt: skip


def line(op: str, source: dict[str, Any], before: Any, after: Any, schema: Any = None) -> bytes:
    value = {"before": before, "after": after, "source": source, "op": op}
    return json_bytes(value if schema is None else {"schema": schema, "payload": value})


def envelope(**fields: dict[str, Any]) -> dict[str, Any]:
    columns = [{**field, "field": name} for name, field in fields.items()]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "shop.orders.Value"}
    images = [{**row, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": images, "name": "shop.orders.Envelope"}


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": name, "version": 1, **more}


def structured(name: str) -> dict[str, Any]:
    """Return the schema of a type of ``time.precision.mode=structured``."""
    fields = [
        {
            "type": "string" if part in ("specialValue", "zoneId") else "int32",
            "optional": True,
            "field": part,
        }
        for part in STRUCTURED[f"Structured{name}"][1]
    ]
    return named("struct", f"io.debezium.time.Structured{name}", fields=fields)


def parts_of(name: str, **parts: Any) -> dict[str, Any]:
    """Return a value of the type: JsonConverter writes missing parts as null."""
    return dict.fromkeys(STRUCTURED[f"Structured{name}"][1]) | parts


DAY = {"year": 2025, "month": 1, "day": 2}
CLOCK = {"hour": 12, "minute": 0, "second": 0, "nanos": 500_000_000}
LASTING = dict.fromkeys(("years", "months", "days", "minutes", "seconds", "nanos"), 0)
TIMES = {
    "Date": DAY,
    "Time": CLOCK,
    "Timestamp": {**DAY, **CLOCK, "precision": 6},
    "ZonedTimestamp": {**DAY, **CLOCK, "offsetSeconds": 0, "zoneId": "Z"},
    "Duration": {**LASTING, "hours": -838},
    "ZonedTime": {**CLOCK, "offsetSeconds": -28_800},
}
_INDEX = {"type": "int16", "optional": False}
_BY_INDEX = {"type": "map", "keys": _INDEX, "values": {"type": "double", "optional": False}}
SPARSE_VECTOR = named(
    "struct",
    "io.debezium.data.SparseDoubleVector",
    fields=[{**_INDEX, "field": "dimensions"}, {**_BY_INDEX, "field": "vector"}],
)
TEXTS = {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}
GEOMETRY = named(
    "struct",
    "io.debezium.data.geometry.Geometry",
    fields=[
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
        {**TEXTS, "optional": True, "field": "extensions"},
    ],
)
VECTOR = named("array", "io.debezium.data.FloatVector", items={"type": "float"})
VECTORS = {"v": [1.5], "s": {"dimensions": 2, "vector": [[1, 1.5]]}, "g": {"wkb": "AQE="}}


def inferred(*values: bytes) -> object:
    return infer_schema([(None, value) for value in values], format="debezium-json")


def inferred_time(name: str, parts: dict[str, Any], block: Any) -> object:
    """Infer the columns of an insert and an update with a structured time."""
    rows = [{"id": key, "v": parts_of(name, **parts)} for key in (1, 2)]
    changes = zip(("c", "u"), rows, strict=True)
    return inferred(*(line(op, POSTGRES, None, row, block) for op, row in changes))


# --------------------------------------------------------------------------------------------------
# TiCDC's simple protocol, and events of SQL Server
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


WATERMARK = (None, json_bytes({"version": 1, "type": "WATERMARK", "commitTs": 5, "buildTs": 6}))
ORDERS = {
    "id": {"mysqlType": "bigint", "length": 20, "unsigned": True},
    "price": {"mysqlType": "decimal", "length": 10, "decimal": 2},
    "paid_at": {"mysqlType": "timestamp", "length": 23, "decimal": 3},
    "made_at": {"mysqlType": "datetime", "length": 19},
    "photo": {"mysqlType": "blob"},
    "is_open": {"mysqlType": "bit", "length": 1},
    "numbers": {"mysqlType": "vector"},
}
WIDER = {**ORDERS, "price": {"mysqlType": "decimal", "length": 12, "decimal": 2}}
ODD: dict[str, Any] = {"id": {"mysqlType": "int", "length": []}, "name": {"mysqlType": 5}}
BOOTSTRAP = of_table("orders", "BOOTSTRAP", ["id"], **ORDERS)
PARTS = of_table("parts", "BOOTSTRAP", ["id"], id={"mysqlType": "int"})
PAID = {"location": "Asia/Shanghai", "value": "2025-01-02 11:04:05.123"}
ORDER = row(
    "orders",
    id="1",
    price="9.50",
    paid_at=PAID,
    made_at=None,
    photo="AP8=",
    is_open="1",
    numbers="[1]",
)
TYPES_OF_CES = {
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


def event_of_ces(operation: str = "INS") -> bytes:
    columns = [
        {"name": name, "type": of, "index": at}
        for at, (name, (of, _)) in enumerate(TYPES_OF_CES.items())
    ]
    source = {"db": "shop", "schema": "dbo", "tbl": "parts", "cols": columns}
    source |= {"pkkey": [{"columnname": "id", "value": "8"}]}
    row = json.dumps({name: value for name, (_, value) in TYPES_OF_CES.items()})
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


# --------------------------------------------------------------------------------------------------
# messages of something else


def batch(*events: bytes) -> bytes:
    """Return events in a batch of TiCDC's open protocol."""
    return b"".join(len(event).to_bytes(8, "big") + event for event in events)


CLOUD_EVENT = {
    "id": "name:shop;lsn:29274832;txId:565",
    "source": "/debezium/postgresql/shop",
    "specversion": "1.0",
    "type": "io.debezium.connector.postgresql.DataChangeEvent",
    "time": "2026-01-13T13:55:39.738Z",
    "datacontenttype": "application/json",
    "iodebeziumop": "c",
    "data": {"before": None, "after": {"id": 1, "name": "Bob"}},
}
MAXWELL = {
    "database": "shop",
    "table": "parts",
    "type": "insert",
    "ts": 1477053217,
    "xid": 23396,
    "commit": True,
}
ENCRYPTED = {"encrypted": {"iv": "aXY=", "bytes": "Ynl0ZXM="}}
GOLDENGATE = {
    "table": "SHOP.PARTS",
    "op_ts": "2026-05-13 15:40:06.000000",
    "current_ts": "2026-05-13T15:40:07.000000",
    "pos": "00000000143",
}
ROW = {"id": "1", "name": "Bob"}
PROTOBUF = b"\x08\x01\x12\x04bike\x1a\x02\x08\x05"
"""A number, text and a message."""
FOREIGN_MESSAGES = [
    ("debezium-json", CLOUD_EVENT, "a CloudEvent around Debezium's"),
    ("maxwell-json", CLOUD_EVENT, "a CloudEvent around Debezium's"),
    ("maxwell-json", {**MAXWELL, **ENCRYPTED}, "Maxwell encrypted the message"),
    ("maxwell-json", ENCRYPTED, "Maxwell encrypted the message"),
    ("ogg-json", {**GOLDENGATE, "op_type": "I", **ROW}, "GoldenGate wrote the message in row mode"),
    ("ogg-json", {**GOLDENGATE, "op_type": "D", **ROW}, "GoldenGate wrote the message in row mode"),
    (
        "ogg-json",
        {**GOLDENGATE, "op_type": "K", "before": ROW, "after": {**ROW, "id": "2"}},
        "this update of a primary key as op_type K",
    ),
    (
        "canal-json",
        batch(b'{"u":{"id":{"t":3,"h":true,"f":11,"v":1}}}'),
        "a batch of TiCDC's open protocol",
    ),
    (
        "ticdc-canal-json",
        batch(b'{"u":{"id":{"t":3,"v":1}}}', b'{"d":{"id":{"t":3,"v":1}}}'),
        "a batch of TiCDC's open protocol",
    ),
    ("maxwell-json", {"data": ROW, "type": "INSERT"}, "SeaTunnel's maxwell_json"),
    ("canal-json", {"data": ROW, "type": "DELETE"}, "SeaTunnel's maxwell_json"),
    (
        "ogg-json",
        {"before": None, "after": ROW, "op_type": "D", "table": "shop.parts", "op_ts": None},
        "SeaTunnel's ogg_json",
    ),
    ("debezium-json", PROTOBUF, "the message looks like Protobuf. Protobuf is not read"),
    (
        "maxwell-json",
        b"\0\0\0\0\7\0" + PROTOBUF,
        "the message looks like Protobuf. Protobuf is not read",
    ),
    (
        "upsert-kafka",
        b"\0\0\0\0\7\4\2\0" + PROTOBUF,
        "the message looks like Protobuf. Protobuf is not read",
    ),
]


CELLS = {
    "id": {"value": 1, "deletion_ts": None, "set": True},
    "email": None,
    "name": {"value": "Anne", "deletion_ts": None, "set": True},
}
NO_FORMATS = [
    (
        {"op": "d", "after": None, "key": [1], "source": {"connector": "cockroachdb"}},
        "CockroachDB wrote the delete without its row",
    ),
    (
        {"op": "d", "before": None, "after": None, "source": {"origin": "cockroachdb"}},
        "CockroachDB wrote the delete without its row",
    ),
    (
        {"op": "i", "after": CELLS, "source": {"connector": "cassandra"}},
        "the message is of Debezium's connector for Cassandra",
    ),
    (
        b"\x01" + bytes(range(16)) + b"\x00" + bytes([8, 1, 18, 4]) + b"bike",
        "the message looks like Protobuf",
    ),
]


@pytest.mark.parametrize(
    ("message", "sentence", "identifiers"),
    [
        *(
            (message, sentence, (identifier, "upsert-kafka", "debezium-flat-json"))
            for identifier, message, sentence in FOREIGN_MESSAGES
        ),
        *((message, sentence, ()) for message, sentence in NO_FORMATS),
    ],
)
def test_another_message_is_named_and_no_schema_is_inferred_from_it(
    message: dict[str, Any] | bytes, sentence: str, identifiers: tuple[str, ...]
) -> None:
    value = message if isinstance(message, bytes) else json_bytes(message)
    for each in identifiers:
        with pytest.raises(InferenceError, match=sentence):
            infer_schema([(b'{"id":1}', value)], format=each)
    profile = profile_records(sample(*[(b'{"id":1}', value)] * 3))
    assert (profile.format, profile.tables) == (None, ())
    assert sentence in profile.reason


def inferred_as(identifier: str, message: dict[str, Any]) -> object:
    return infer_schema([(b'{"id":1}', json_bytes(message))], format=identifier)


test_texts = text_test(
    __file__,
    {
        **{
            f"a structured {name}{' in a schema block' if block else ''}": partial(
                inferred_time, name, parts, block
            )
            for name, parts in TIMES.items()
            for block in (None, envelope(id={"type": "int32"}, v=structured(name)))
        },
        "a schema block declares vectors and geometry": partial(
            inferred,
            line("c", POSTGRES, None, VECTORS, envelope(v=VECTOR, s=SPARSE_VECTOR, g=GEOMETRY)),
        ),
        "an update of Spanner has all columns": partial(
            inferred,
            line(
                *("u", SPANNER, {"id": 1, "name": None, "stock": 6}),
                {"id": 1, "name": "fork", "stock": 7},
            ),
        ),
        "a topic of TiCDC has the types and the primary key of each table": partial(
            sampled,
            "orders",
            BOOTSTRAP,
            PARTS,
            ORDER,
            row("parts", id="7"),
            row("parts", id="8"),
            WATERMARK,
        ),
        "a statement has them, too, and the wider type is used": partial(
            *(sampled, "orders", BOOTSTRAP, ORDER), of_table("orders", "ALTER", ["id"], **WIDER)
        ),
        "columns of an unknown form are left to the values": partial(
            *(sampled, "parts", of_table("parts", "BOOTSTRAP", [], **ODD)),
            row("parts", id="1", name="a"),
        ),
        "messages without the protocol's fields are not of TiCDC": lambda: (
            profile_records(
                sample(*[(None, json_bytes({"type": "INSERT", "data": {"id": "1"}}))] * 3)
            ).format
        ),
        "an event of SQL Server has the types and the primary key": partial(
            sampled, "parts", (None, event_of_ces()), (None, event_of_ces("DEL"))
        ),
        "a column with a struct like a cell": partial(
            inferred_as,
            "debezium-json",
            {
                "op": "u",
                "after": {"id": 1, "setting": {"value": "on", "set": True}},
                "source": {"connector": "postgresql", "table": "customers"},
            },
        ),
        **{
            f"a row that resembles another message: {message}": partial(
                inferred_as, "upsert-kafka", message
            )
            for message in (
                {"id": 1, "encrypted": True},
                {"id": 1, "type": "io", "specversion": "1.0"},
                {"data": {}, "type": "x"},
                {"id": 1, "after": {}},
            )
        },
    },
)
test_error_texts = error_test(
    __file__,
    {
        "a binary column of SQL Server": lambda: get_format("sqlserver-ces-json").decoder(
            "id INT, photo BINARY"
        ),
        **{
            f"an event of SQL Server as {identifier}": partial(
                get_format(identifier).decoder("id INT").decode, None, event_of_ces()
            )
            for identifier in ("debezium-json", "ogg-json")
        },
        "a truncate of GoldenGate is none of them": partial(
            inferred_as, "ogg-json", {**GOLDENGATE, "op_type": "T"}
        ),
        **{
            f"cells of {connector} are no columns": partial(
                inferred_as,
                "debezium-json",
                {
                    "op": "u",
                    "after": CELLS,
                    "source": {"connector": connector, "table": "customers"},
                },
            )
            for connector in ("cassandra", None)
        },
        "cells in a flat row are no columns": partial(inferred_as, "debezium-flat-json", CELLS),
    },
)
