"""Hostile text, and one message of every format."""

import json
from typing import Any

from hypothesis import strategies as st

HOSTILE = [
    "\x1b[2J\x1b[31m",
    "\x07",
    "\r",
    "\n",
    "\x9b2J",
    "\u202etxt.exe",
    "\u2066",
    "\u200b",
    "\u2028",
    "\ud800",
    "\x00",
    "<script>",
    '"""',
    "`",
]

PIECE = st.lists(st.sampled_from(HOSTILE), min_size=1, max_size=3).map("".join)

ROW = {"id": 1, "name": "bike", "price": "9.50", "at": "2024-01-02 03:04:05"}

MESSAGES: dict[str, list[Any]] = {
    "canal-json": [
        {
            "type": "UPDATE",
            "data": [ROW],
            "old": [{"name": "x"}],
            "database": "shop",
            "table": "products",
            "es": 1,
            "ts": 2,
            "pkNames": ["id"],
        },
        {
            "type": "INSERT",
            "data": [ROW],
            "mysqlType": {"id": "int", "name": "varchar(9)"},
            "sqlType": {"id": 4},
        },
    ],
    "changelog-json": [{"op": "+I", "data": ROW}],
    "cockroachdb-json": [
        {"after": ROW, "key": [1], "topic": "products", "updated": "1532377312562986715.0000000001"}
    ],
    "debezium-flat-json": [
        {**ROW, "__op": "u", "__deleted": "false", "__table": "products", "__source_ts_ms": 1}
    ],
    "debezium-json": [
        {
            "op": "u",
            "before": ROW,
            "after": ROW,
            "ts_ms": 1,
            "source": {"db": "shop", "table": "products", "gtid": "x", "file": "b.1", "pos": 4},
        },
        {
            "schema": {
                "type": "struct",
                "fields": [{"field": "after", "type": "struct", "fields": []}],
            },
            "payload": {"op": "c", "after": ROW},
        },
    ],
    "debezium-mongodb-json": [
        {
            "op": "c",
            "after": json.dumps({"_id": 1, "name": "bike"}),
            "source": {"collection": "products"},
        }
    ],
    "dms-json": [
        {
            "metadata": {"operation": "update", "record-type": "data", "table-name": "products"},
            "data": ROW,
        }
    ],
    "maxwell-json": [
        {
            "type": "update",
            "database": "shop",
            "table": "products",
            "data": ROW,
            "old": {"name": "x"},
            "ts": 1,
            "position": "b.1:4",
        }
    ],
    "mongodb-json": [
        {
            "operationType": "insert",
            "fullDocument": {"_id": 1, "name": "bike"},
            "ns": {"db": "shop", "coll": "products"},
            "documentKey": {"_id": 1},
            "clusterTime": {"$timestamp": {"t": 1, "i": 1}},
        },
        {
            "operationType": "update",
            "updateDescription": {"updatedFields": {"name": "bike"}, "removedFields": ["note"]},
            "documentKey": {"_id": 1},
        },
    ],
    "ogg-json": [
        {
            "op_type": "U",
            "table": "shop.products",
            "before": ROW,
            "after": ROW,
            "pos": "1",
            "op_ts": "2024-01-02 03:04:05.000000",
        }
    ],
    "op-json": [{"op": "U", **ROW}, {"op": "D", **ROW}],
    "sqlserver-ces-json": [
        {
            "type": "com.microsoft.SQL.CES.DML.V1",
            "operation": "INS",
            "logicalid": "1:000000B1000009300009:1",
            "data": json.dumps(
                {
                    "eventsource": {
                        "db": "shop",
                        "tbl": "products",
                        "cols": [{"name": "name", "type": "nvarchar(50)"}],
                        "pkkey": [{"columnname": "id", "value": 1}],
                    },
                    "eventrow": {"old": "{}", "current": json.dumps(ROW)},
                }
            ),
        }
    ],
    "ticdc-canal-json": [
        {
            "type": "UPDATE",
            "data": [ROW],
            "old": [{"name": "x"}],
            "mysqlType": {"id": "int"},
            "_tidb": {"commitTs": 1},
        }
    ],
    "ticdc-simple-json": [
        {
            "version": 1,
            "type": "UPDATE",
            "database": "shop",
            "table": "products",
            "commitTs": 1,
            "buildTs": 2,
            "data": ROW,
            "old": ROW,
        },
        {
            "version": 1,
            "type": "BOOTSTRAP",
            "commitTs": 0,
            "buildTs": 2,
            "tableSchema": {
                "schema": "shop",
                "table": "products",
                "columns": [{"name": "name", "dataType": {"mysqlType": "varchar"}}],
                "indexes": [{"primary": True, "columns": ["id"]}],
            },
        },
    ],
    "upsert-kafka": [ROW],
}

SCHEMA = "id INT NOT NULL, name STRING, price DECIMAL(5,2), at TIMESTAMP(3)"
