"""Encoders of the benchmark's history for each producer: an event's key and value, by format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple

import msgspec

from cdc_formats.avro.records import avro_bytes
from cdc_formats.avro.schema_registry import Registry, framed
from cdc_formats.values.json_reader import json_bytes, json_text

from .history import NAMES, SCHEMA, Row, message

Write = Callable[[int, "Row | None", "Row | None"], "tuple[bytes | None, bytes | None]"]

_SQL_TYPES = dict(zip(NAMES, (-5, 12, 12, 12, 3, 4, 93, -6), strict=True))
_MYSQL_TYPES = dict(
    zip(
        NAMES,
        (
            "bigint",
            "varchar(60)",
            "varchar(80)",
            "varchar(30)",
            "decimal(12,2)",
            "int",
            "datetime(3)",
            "tinyint(1)",
        ),
        strict=True,
    )
)
_MILLIS = 1_700_000_000_000


def _image(row: Row) -> dict[str, Any]:
    return dict(zip(NAMES, row, strict=True))


def _numbers(row: Row) -> dict[str, Any]:
    """Return a row with its decimal as a number and its flag as 0 or 1, as in MySQL."""
    return {**_image(row), "amount": msgspec.Raw(row[4].encode()), "flag": int(row[7])}


def _texts(row: Row) -> dict[str, Any]:
    return {**{name: str(value) for name, value in _image(row).items()}, "flag": str(int(row[7]))}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in before.items() if value != after[name]}


def _what(before: Row | None, after: Row | None, names: tuple[str, str, str]) -> tuple[str, Row]:
    name = names[2] if after is None else names[0] if before is None else names[1]
    return name, after or before or ()


def _key(row: Row) -> bytes:
    return b'{"id":%d}' % row[0]


def canal_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Return Canal's flat message of one row."""
    what, row = _what(before, after, ("INSERT", "UPDATE", "DELETE"))
    old = [_changed(_texts(before), _texts(after))] if before and after else None
    times = {"es": _MILLIS + number, "ts": _MILLIS + number + 200}
    types = {"mysqlType": _MYSQL_TYPES, "sqlType": _SQL_TYPES, "pkNames": ["id"]}
    data = {
        "data": [_texts(row)],
        "old": old,
        "type": what,
        "isDdl": False,
        "sql": "",
        "id": number,
    }
    return None, json_bytes({**data, **times, **types, "database": "shop", "table": "customers"})


def ticdc_canal_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Return TiCDC's message: Canal's with all columns in ``old``."""
    what, row = _what(before, after, ("INSERT", "UPDATE", "DELETE"))
    old = [_texts(before)] if before and after else None
    head = {
        "id": 0,
        "database": "shop",
        "table": "customers",
        "pkNames": ["id"],
        "isDdl": False,
        "type": what,
        "es": _MILLIS + number,
    }
    types = {
        "ts": _MILLIS + number + 200,
        "sql": "",
        "sqlType": _SQL_TYPES,
        "mysqlType": _MYSQL_TYPES,
    }
    return None, json_bytes(
        {
            **head,
            **types,
            "old": old,
            "data": [_texts(row)],
            "_tidb": {"commitTs": (_MILLIS + number) << 18},
        }
    )


def dms_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return DMS's message with a full before-image."""
    what, row = _what(before, after, ("insert", "update", "delete"))
    where = {
        "partition-key-type": "primary-key",
        "schema-name": "shop",
        "table-name": "customers",
        "transaction-id": number,
    }
    metadata = {
        "timestamp": "2023-11-14T22:13:20.713000Z",
        "record-type": "data",
        "operation": what,
        **where,
    }
    image = {"before-image": _numbers(before)} if before and after else {}
    return b'"shop.customers.%d"' % row[0], json_bytes(
        {"data": _numbers(row), **image, "metadata": metadata}
    )


def debezium_flat_json(
    number: int, before: Row | None, after: Row | None
) -> tuple[bytes, bytes | None]:
    """Return Debezium's row without its envelope; a delete is a JSON null."""
    what, row = _what(before, after, ("c", "u", "d"))
    added = {"__op": what, "__table": "customers", "__source_ts_ms": _MILLIS + number}
    return _key(row), b"null" if after is None else json_bytes({**_image(after), **added})


def maxwell_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return Maxwell's message."""
    what, row = _what(before, after, ("insert", "update", "delete"))
    value = {
        "database": "shop",
        "table": "customers",
        "type": what,
        "ts": (_MILLIS + number) // 1000,
        "xid": number,
        "commit": True,
    }
    old = {"old": _changed(_numbers(before), _numbers(after))} if before and after else {}
    return b'{"database":"shop","table":"customers","pk.id":%d}' % row[0], json_bytes(
        {**value, "data": _numbers(row), **old}
    )


def ogg_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Return GoldenGate's message with full images."""
    what, _ = _what(before, after, ("I", "U", "D"))
    times = {
        "op_ts": "2023-11-14 22:13:20.000000",
        "current_ts": "2023-11-14T22:13:20.713000",
        "pos": f"{number:023d}",
    }
    value = {
        "table": "SHOP.CUSTOMERS",
        "op_type": what,
        **times,
        "primary_keys": ["id"],
        "tokens": {},
    }
    return None, json_bytes(
        {**value, "before": before and _image(before), "after": after and _image(after)}
    )


def changelog_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return a changelog-json row; for an update, only the ``+U``."""
    what, row = _what(before, after, ("+I", "+U", "-D"))
    return _key(row), json_bytes({"data": _image(row), "op": what})


def cockroachdb_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return CockroachDB's wrapped message, with the clock that ``order="source"`` reads."""
    clock = f"{_MILLIS + number}000000.0000000000"
    value = {"after": after and _image(after), "updated": clock}
    return b"[%d]" % (after or before or ())[0], json_bytes(value)


def ticdc_simple_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Return a message of TiCDC's simple protocol."""
    what, _ = _what(before, after, ("INSERT", "UPDATE", "DELETE"))
    where = {"version": 1, "database": "shop", "table": "customers", "tableID": 148, "type": what}
    times = {"commitTs": (_MILLIS + number) << 18, "buildTs": _MILLIS + number + 200}
    images = {
        name: _texts(row) for name, row in (("data", after), ("old", before)) if row is not None
    }
    return None, json_bytes({**where, **times, "schemaVersion": 447984074911121426, **images})


_SQL_SERVER_TYPES = dict(
    zip(
        NAMES,
        (
            "bigint",
            "nvarchar(60)",
            "nvarchar(80)",
            "nvarchar(30)",
            "decimal(12,2)",
            "int",
            "datetime2(3)",
            "bit",
        ),
        strict=True,
    )
)


def sqlserver_ces_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Return SQL Server's event with all columns: JSON in two levels of text."""
    what, row = _what(before, after, ("INS", "UPD", "DEL"))
    columns = [
        {"name": name, "type": of, "index": index}
        for index, (name, of) in enumerate(_SQL_SERVER_TYPES.items())
    ]
    key = [{"columnname": "id", "value": str(row[0])}]
    names = {"db": "shop", "schema": "dbo", "tbl": "customers"}
    data = {
        "eventsource": {**names, "cols": columns, "pkkey": key},
        "eventrow": {
            "old": json_text(_texts(before) if before else {}),
            "current": json_text(_texts(after) if after else {}),
        },
    }
    event = {
        "specversion": "1.0",
        "type": "com.microsoft.SQL.CES.DML.V1",
        "source": "/",
        "id": f"d43f09a0-d13b-4902-86d3-{number:012d}",
        "logicalid": f"9c8d1bf2-756a-c15f-4d2e-a2d57d3f9dbf:{number:020X}:00000000000000000001",
        "time": "2023-11-14T22:13:20.713Z",
        "datacontenttype": "application/json",
        "operation": what,
        "segmentindex": 0,
        "finalsegment": True,
    }
    return None, json_bytes({**event, "data": json_text(data)})


def sequin_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return Sequin's message, which op-json reads, with the columns that an update changed."""
    what, row = _what(before, after, ("insert", "update", "delete"))
    changes = {"changes": _changed(_image(before), _image(after))} if before and after else {}
    where = {"table_schema": "public", "table_name": "customers"}
    position = {"commit_lsn": _MILLIS + number, "commit_idx": 0}
    return _key(row), json_bytes(
        {"record": _image(row), **changes, "action": what, "metadata": {**where, **position}}
    )


def cockroachdb_bare(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return CockroachDB's message with envelope=bare; a delete is a row of NULLs."""
    key = (after or before or ())[0]
    row = _image(after) if after else {**dict.fromkeys(NAMES), "id": key}
    clock = {"__crdb__": {"updated": f"{_MILLIS + number}000000.0000000000"}}
    return b"[%d]" % key, json_bytes({**row, **clock})


def upsert_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes | None]:
    """Return the newest row by key as JSON."""
    return _key(after or before or ()), after and json_bytes(_image(after))


def upsert_csv(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes | None]:
    """Return the newest row by key as CSV."""
    return b"%d" % (after or before or ())[0], after and ",".join(map(str, after)).lower().encode()


_REGISTRY = "mock://bench"
_OPTIONAL = {"name": "string", "email": "string", "city": "string", "qty": "int", "flag": "boolean"}
_SOURCE = {
    **dict.fromkeys(("version", "connector", "name", "db", "file"), "string"),
    "snapshot": ["null", "string"],
    "table": ["null", "string"],
}
_POSITION = {
    **dict.fromkeys(("ts_ms", "server_id", "pos"), "long"),
    "row": "int",
    "gtid": ["null", "string"],
    "thread": ["null", "long"],
}


def _record(name: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [{"name": field, "type": avro} for field, avro in fields.items()],
    }


def _avro_schema() -> dict[str, Any]:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    stamp = {"type": "long", "connect.name": "io.debezium.time.Timestamp"}
    types: dict[str, Any] = {**_OPTIONAL, "amount": decimal, "updated_at": stamp}
    row = _record("Value", {"id": "long", **{name: ["null", types[name]] for name in NAMES[1:]}})
    source = {
        **_record("Source", {**_SOURCE, **_POSITION}),
        "namespace": "io.debezium.connector.mysql",
    }
    return _record(
        "Envelope",
        {
            "before": ["null", row],
            "after": ["null", "Value"],
            "source": source,
            "op": "string",
            "ts_ms": ["null", "long"],
        },
    )


@cache
def _avro_writer() -> Callable[[Any], bytes]:
    schema = _avro_schema()
    number = Registry(url=_REGISTRY).client.number("bench-value", schema, register=True)
    write = avro_bytes(schema)
    return lambda message: framed(number, write(message))


def debezium_avro(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return Debezium's envelope in Avro, with a schema registry's framing."""

    def image(row: Row | None) -> dict[str, Any] | None:
        if row is None:
            return None
        unscaled = int(row[4].replace(".", ""))
        stamp = round(datetime.fromisoformat(f"{row[6]}+00:00").timestamp() * 1000)
        amount = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
        return {**_image(row), "amount": amount, "updated_at": stamp}

    op, row = _what(before, after, ("c", "u", "d"))
    at = {
        "file": "mysql-bin.000003",
        "pos": 1000 + number * 37,
        "row": 0,
        "ts_ms": _MILLIS + number,
        "snapshot": "false",
    }
    where = {
        "version": "3.0.0.Final",
        "connector": "mysql",
        "name": "shop",
        "db": "shop",
        "table": "customers",
        "server_id": 223344,
    }
    envelope = {
        "before": image(before),
        "after": image(after),
        "source": {**where, **at},
        "op": op,
        "ts_ms": _MILLIS + number,
    }
    return _key(row), _avro_writer()(envelope)


def _document(number: int, row: Row) -> dict[str, Any]:
    row_with_types = {
        "_id": row[0],
        "amount": {"$numberDecimal": row[4]},
        "updated_at": {"$date": _MILLIS + number},
    }
    return {**_image(row), **row_with_types}


def mongodb_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Return the change event of MongoDB's connector with change.stream.full.document=updateLookup."""
    operation, row = _what(before, after, ("insert", "update", "delete"))
    seconds, key = _MILLIS // 1000 + number, json_bytes({"_id": row[0]})
    event = {
        "_id": {"_data": f"82{seconds:08X}000000012B042C0100296E5A1004BBCFDF90907247ABA61D94DF"},
        "operationType": operation,
        "clusterTime": {"$timestamp": {"t": seconds, "i": 1}},
        "wallTime": {"$date": _MILLIS + number},
        **({} if after is None else {"fullDocument": _document(number, after)}),
        "ns": {"db": "shop", "coll": "customers"},
        "documentKey": {"_id": row[0]},
    }
    return key, json_bytes(event)


def debezium_mongodb_json(
    number: int, before: Row | None, after: Row | None
) -> tuple[bytes, bytes]:
    """Return Debezium's MongoDB envelope with pre-images."""

    def document(row: Row | None) -> str | None:
        return None if row is None else json_text(_document(number, row))

    op, row = _what(before, after, ("c", "u", "d"))
    where = {
        "version": "3.0.0.Final",
        "connector": "mongodb",
        "name": "shop",
        "db": "shop",
        "collection": "customers",
        "ord": 1,
    }
    envelope = {
        "before": document(before),
        "after": document(after),
        "updateDescription": None,
        "source": where,
        "op": op,
    }
    return json_bytes({"id": str(row[0])}), json_bytes({**envelope, "ts_ms": _MILLIS + number})


class Producer(NamedTuple):
    """A format, its messages' options, the function that encodes them, their columns and key.

    `variant` names the messages where a format has several.
    """

    format: str
    options: dict[str, Any]
    write: Write
    schema: str = SCHEMA
    key: str = "id"
    variant: str = ""

    @property
    def label(self) -> str:
        """The format and the variant."""
        return f"{self.format} {self.variant}".strip()


_OF_SEQUIN = {
    "op_field": "action",
    "row_field": "record",
    "before_field": "changes",
    "before_columns": "changed",
    "position_field": "metadata.commit_lsn",
    "position_index_field": "metadata.commit_idx",
    "codes": {"insert": "+I", "update": "+U", "delete": "-D"},
}
_DOCUMENTS = SCHEMA.replace("id BIGINT", "_id BIGINT").replace("TIMESTAMP_NTZ(3)", "TIMESTAMP(3)")

PRODUCERS = (
    Producer("debezium-json", {"decimal_handling_mode": "string"}, message),
    Producer("debezium-avro-confluent", {"url": _REGISTRY}, debezium_avro),
    Producer("debezium-mongodb-json", {}, debezium_mongodb_json, _DOCUMENTS, "_id"),
    Producer("mongodb-json", {}, mongodb_json, _DOCUMENTS, "_id"),
    Producer("debezium-flat-json", {"decimal_handling_mode": "string"}, debezium_flat_json),
    Producer("canal-json", {}, canal_json),
    Producer("ticdc-canal-json", {}, ticdc_canal_json),
    Producer(
        "dms-json",
        {"before_image_field": "before-image", "before_image_column_filter": "all"},
        dms_json,
    ),
    Producer("maxwell-json", {}, maxwell_json),
    Producer("ogg-json", {}, ogg_json),
    Producer("changelog-json", {}, changelog_json),
    Producer("cockroachdb-json", {}, cockroachdb_json),
    # Only a column that is never null tells a delete from a row.
    Producer(
        "cockroachdb-json",
        {},
        cockroachdb_bare,
        SCHEMA.replace("name STRING", "name STRING NOT NULL"),
        variant="bare",
    ),
    Producer("ticdc-simple-json", {}, ticdc_simple_json),
    Producer("sqlserver-ces-json", {}, sqlserver_ces_json),
    Producer("op-json", _OF_SEQUIN, sequin_json),
    Producer("upsert-kafka", {}, upsert_json),
    Producer(
        "upsert-kafka", {"key_format": "csv", "value_format": "csv"}, upsert_csv, variant="csv"
    ),
)
