"""Make Avro vectors with fastavro from debezium-json's events, as Debezium's Avro converter does.

::

    python tests/vectors/make_avro.py

writes ``<scenario>/debezium-avro-confluent.jsonl``, ``reject/debezium-avro-confluent.jsonl`` and
``avro-schemas.json``, the schemas in the order of their ids. A schema has Connect's and Debezium's
names where the converter has them (``connect.name``). Values are written unchanged in such schemas:
decimals as unscaled bytes, times as numbers.
"""

import base64
import json
from decimal import Decimal
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro

from cdc_formats import Column, columns
from cdc_formats.values.schema import SqlType

FOLDER = Path(__file__).parent
IDENTIFIER = "debezium-avro-confluent"
SCENARIOS = (
    "all-types",
    "ddl-and-heartbeats",
    "key-change",
    "multi-row-update",
    "nested-types",
    "null-to-value",
    "product",
    "snapshot",
    "toast",
    "tombstones",
    "truncate",
    "value-to-null",
    # Later ones, at the end: the ids of the schemas before them stay.
    "sqlserver",
    "oracle",
    "db2",
    "informix",
    "vitess",
    "spanner",
)

_PLAIN = {
    "BOOLEAN": "boolean",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BINARY": "bytes",
}
_PLAIN |= {"STRING": "string", "CHAR": "string", "VARCHAR": "string"}
_NAMED = {
    "DATE": ("int", "Date"),
    "TIME": ("long", "MicroTime"),
    "TIMESTAMP": ("string", "ZonedTimestamp"),
    "TIMESTAMP_NTZ": ("long", "MicroTimestamp"),
    "INTERVAL DAY TO SECOND": ("long", "MicroDuration"),
}
_COMMON = ("version", "connector", "name", "snapshot", "db", "sequence", "schema", "table")
_BINLOG = ("server_id", "pos", "row", "thread", "txId", "lsn", "xmin")
_LSNS = ("change_lsn", "commit_lsn")
_OF_CONNECTOR: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sqlserver": (_LSNS, ("event_serial_no",)),
    "oracle": (("scn", "commit_scn", "rs_id", "user_name", "row_id"), ("ssn", "txSeq")),
    "db2": (_LSNS, ()),
    "informix": ((*_LSNS, "begin_lsn"), ()),
    "vitess": (("keyspace", "shard", "vgtid"), ()),
    "spanner": (("server_transaction_id", "value_capture_type"), ("mod_number",)),
}
"""Text and numbers in the source of a connector."""


def optional(avro: Any) -> dict[str, Any]:
    return {"type": ["null", avro], "default": None}


def field_of(column: Column, around: str) -> dict[str, Any]:
    avro = type_of(column.type, f"{around}_{column.name}")
    return {"name": column.name, **(optional(avro) if column.nullable else {"type": avro})}


def type_of(sql_type: SqlType, name: str) -> Any:
    if sql_type.name in _NAMED:
        kind, of = _NAMED[sql_type.name]
        return {"type": kind, "connect.version": 1, "connect.name": f"io.debezium.time.{of}"}
    if sql_type.name == "DECIMAL" and (sql_type.precision, sql_type.scale) == (20, 0):
        return "long"  # bigint.unsigned.handling.mode=long
    if sql_type.name == "DECIMAL":
        parameters = {
            "scale": str(sql_type.scale),
            "connect.decimal.precision": str(sql_type.precision),
        }
        named = {
            "connect.version": 1,
            "connect.parameters": parameters,
            "connect.name": "org.apache.kafka.connect.data.Decimal",
        }
        return {
            "type": "bytes",
            "scale": sql_type.scale,
            "precision": sql_type.precision,
            **named,
            "logicalType": "decimal",
        }
    inner = [type_of(field.type, f"{name}_{field.name}") for field in sql_type.fields]
    if sql_type.name == "ARRAY":
        return {"type": "array", "items": ["null", inner[0]]}
    if sql_type.name == "MAP":
        return {"type": "map", "values": ["null", inner[1]]}
    if sql_type.name == "STRUCT":
        return {
            "type": "record",
            "name": name,
            "fields": [field_of(field, name) for field in sql_type.fields],
        }
    return _PLAIN.get(sql_type.name, "int")


def envelope(table: str, declared: tuple[Column, ...], connector: str) -> dict[str, Any]:
    value = {
        "type": "record",
        "name": "Value",
        "fields": [field_of(column, "Value") for column in declared],
    }
    message = {
        "type": "record",
        "name": "Message",
        "fields": [
            {"name": "prefix", **optional("string")},
            {"name": "content", **optional("bytes")},
        ],
    }
    fields = {
        "before": value,
        "after": "Value",
        "source": source(connector),
        "transaction": "string",
        "op": "string",
        "ts_ms": "long",
    }
    listed = [
        {"name": name, **optional(avro)} for name, avro in {**fields, "message": message}.items()
    ]
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": f"shop.{table}",
        "fields": listed,
        "connect.name": f"shop.{table}.Envelope",
    }


def source(connector: str) -> dict[str, Any]:
    texts, numbers = _OF_CONNECTOR.get(connector, (("gtid", "file", "query", "lsn_text"), _BINLOG))
    texts = (*_COMMON, *texts)
    numbers = ("ts_ms", *(("ts_ns",) if connector in _OF_CONNECTOR else ()), *numbers)
    fields = [
        {"name": name, **optional("string" if name in texts else "long")}
        for name in (*texts, *numbers)
    ]
    spanner = connector == "spanner"
    return {
        "type": "record",
        "name": "Source",
        "namespace": "com.google.spanner.connector"
        if spanner
        else f"io.debezium.connector.{connector}",
        "fields": fields,
    }


def without_rows(message: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a message that is no envelope, as the value of its fields is."""

    def of(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return {"type": "array", "items": ["null", of(name, value[0])] if value else "string"}
        if isinstance(value, dict):
            fields = [
                {"name": inner, **optional(of(f"{name}_{inner}", item))}
                for inner, item in value.items()
            ]
            return {"type": "record", "name": name, "fields": fields}
        return (
            "boolean" if isinstance(value, bool) else "long" if isinstance(value, int) else "string"
        )

    record = of("SchemaChangeValue" if "ddl" in message else "Mark", message)
    return {**record, "namespace": "io.debezium.connector.mysql"}


def written(value: Any, sql_type: SqlType) -> Any:
    """Return a value of debezium-json's vectors as the Avro of its type holds it."""
    if value is None:
        return None
    if sql_type.name == "DECIMAL" and type_of(sql_type, "") != "long":
        number = unscaled(value, sql_type.scale or 0)
        return number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, "big", signed=True)
    if sql_type.name == "BINARY":
        return base64.b64decode(value)
    if sql_type.name == "ARRAY":
        return [written(item, sql_type.fields[0].type) for item in value]
    if sql_type.name == "MAP":
        return {key: written(item, sql_type.fields[1].type) for key, item in value.items()}
    if sql_type.name == "STRUCT":
        return {field.name: written(value.get(field.name), field.type) for field in sql_type.fields}
    return value


def unscaled(value: Any, scale: int) -> int:
    if isinstance(value, str) and not value.strip("+-0123456789."):
        return int(Decimal(value).scaleb(scale))
    return int.from_bytes(base64.b64decode(value), "big", signed=True)


def raw(avro: Any) -> Any:
    """Return a schema whose decimals are bytes."""
    if isinstance(avro, dict):
        return {name: raw(value) for name, value in avro.items() if name != "logicalType"}
    return [raw(item) for item in avro] if isinstance(avro, list) else avro


class Schemas:
    """The schemas that were written, by id."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def framed(self, schema: dict[str, Any], message: dict[str, Any]) -> bytes:
        text = json.dumps(schema, ensure_ascii=False)
        if text not in self.texts:
            self.texts.append(text)
        out = BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(raw(schema)), message)
        return b"\0" + (self.texts.index(text) + 1).to_bytes(4, "big") + out.getvalue()


def avro_of(message: dict[str, Any], declared: tuple[Column, ...], schemas: Schemas) -> bytes:
    if "op" not in message:
        return schemas.framed(without_rows(message), message)
    source = message.get("source") or {}
    source = {
        name: str(value).lower() if name == "snapshot" and value is not None else value
        for name, value in source.items()
    }
    images = {}
    for name in ("before", "after"):
        image = message.get(name)
        images[name] = image and {
            column.name: written(image.get(column.name), column.type) for column in declared
        }
    logical = message.get("message")
    content = logical and {**logical, "content": base64.b64decode(logical["content"])}
    schema = envelope(
        source.get("table") or "messages", declared, source.get("connector") or "mysql"
    )
    rest = {
        "source": source,
        "op": message["op"],
        "ts_ms": message.get("ts_ms"),
        "message": content,
    }
    return schemas.framed(schema, {**images, **rest})


def rejects(schemas: Schemas) -> list[dict[str, Any]]:
    """Return the records that have to be refused."""
    ddl = "id INT, name STRING, price DECIMAL(6,2), blob BINARY, tags ARRAY<STRING>"
    declared = columns(ddl)
    row = {"id": 1, "name": "fork", "price": "2.50", "blob": "AAE=", "tags": ["a", None]}
    from_mysql, from_postgres = (
        {"connector": name, "db": "shop", "table": "parts"} for name in ("mysql", "postgresql")
    )

    def event(op: str, before: Any, after: Any, source: dict[str, Any] = from_mysql) -> bytes:
        return avro_of(
            {"op": op, "before": before, "after": after, "source": source}, declared, schemas
        )

    good = event("c", None, row)
    unavailable = {**row, "name": "__debezium_unavailable_value"}
    toast = event("u", None, unavailable, from_postgres)
    unlogged = event("u", {**row, "name": ""}, unavailable, from_postgres)
    number = {
        "type": "record",
        "name": "Value",
        "fields": [{"name": "id", "type": "int"}, {"name": "at", "type": "long"}],
    }
    fields = [
        {"name": "before", **optional(number)},
        {"name": "after", **optional("Value")},
        {"name": "op", "type": "string"},
    ]
    plain_long = {"type": "record", "name": "Envelope", "fields": fields}
    unnamed = schemas.framed(
        plain_long, {"before": None, "after": {"id": 1, "at": 1_700_000_000_000}, "op": "c"}
    )
    flat = schemas.framed(
        {"type": "record", "name": "Row", "fields": [{"name": "id", "type": "int"}]}, {"id": 1}
    )
    items = {"type": "array", "items": "null"}
    endless = schemas.framed(
        {"type": "record", "name": "Endless", "fields": [{"name": "op", "type": items}]}, {"op": []}
    )
    link = {
        "type": "record",
        "name": "Link",
        "fields": [{"name": "op", "type": "string"}, {"name": "next", **optional("Link")}],
    }
    chain = schemas.framed(link, {"op": "c", "next": None})
    table = [
        ("text is not in a registry's framing", b'{"op": "c"}', "MalformedMessageError", ""),
        ("an id is cut", good[:4], "MalformedMessageError", ""),
        ("the registry has no such schema", b"\0\0\0\xff\xff" + good[5:], "WriterSchemaError", ""),
        ("the schema contains itself", chain, "WriterSchemaError", ""),
        (
            "an array of nulls may be of any length",
            endless[:-1] + b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
            "WriterSchemaError",
            "",
        ),
        ("nothing follows the id", good[:5], "MalformedMessageError", ""),
        ("the bytes end too early", good[:-3], "MalformedMessageError", ""),
        ("bytes are left over", good + b"\0", "MalformedMessageError", ""),
        ("a union has no third branch", good[:5] + b"\x04" + good[6:], "MalformedMessageError", ""),
        (
            "a union has no branch before the first",
            good[:5] + b"\x01" + good[6:],
            "MalformedMessageError",
            "",
        ),
        ("a string is not UTF-8", good.replace(b"fork", b"f\xffrk"), "MalformedMessageError", ""),
        (
            "a string is longer than the message",
            good.replace(b"\x08fork", b"\xfe\xff\xff\x7ffork"),
            "MalformedMessageError",
            "",
        ),
        (
            "a string has a negative length",
            good.replace(b"\x08fork", b"\x07fork"),
            "MalformedMessageError",
            "",
        ),
        (
            "a number has more than 64 bits",
            good[:5] + b"\xff" * 11 + good[6:],
            "MalformedMessageError",
            "",
        ),
        ("a row is no envelope", flat, "MissingFieldError", "$.op"),
        ("an unknown operation", event("x", None, row), "UnknownOperationError", "$.op"),
        ("an insert without a row", event("c", None, None), "MissingFieldError", "$.after"),
        ("a delete without a row", event("d", None, None), "MissingBeforeImageError", "$.before"),
        (
            "an update without the row before",
            event("u", None, row),
            "MissingBeforeImageError",
            "$.before",
        ),
        ("an unchanged value that nothing completes", toast, "PartialImageError", "$.after"),
        (
            "an unchanged value, and an index's before-image",
            unlogged,
            "PartialImageError",
            "$.after",
        ),
        (
            "a long that nothing calls a time",
            unnamed,
            "TypeConversionError",
            "$.after.at",
            "id INT, at TIMESTAMP(3)",
        ),
        (
            "a decimal that is too large",
            good,
            "TypeConversionError",
            "$.after.price",
            "id INT, price DECIMAL(2,2)",
        ),
        ("text in a number", good, "TypeConversionError", "$.after.name", "id INT, name INT"),
        ("bytes in text", good, "TypeConversionError", "$.after.blob", "id INT, blob STRING"),
        (
            "an element that is no number",
            good,
            "TypeConversionError",
            "$.after.tags",
            "id INT, tags ARRAY<INT>",
        ),
        ("no column is in the row", good, "MissingFieldError", "$.after", "ID INT, Name STRING"),
        (
            "null in a column that has none",
            event("c", None, {**row, "name": None}),
            "MissingFieldError",
            "$.after.name",
            "name STRING NOT NULL",
        ),
    ]
    keys = ("why", "value_base64", "error", "path", "schema")
    lines = [
        dict(zip(keys, line if len(line) == 5 else (*line, ddl), strict=True)) for line in table
    ]
    return [
        {**line, "value_base64": base64.b64encode(line["value_base64"]).decode()} for line in lines
    ]


def main() -> None:
    """Write the vectors."""
    schemas = Schemas()
    for scenario in SCENARIOS:
        folder = FOLDER / scenario
        declared = columns(json.loads((folder / "schema.json").read_text("utf-8"))["columns"])
        lines = []
        for line in (folder / "debezium-json.jsonl").read_text("utf-8").split("\n"):
            record = json.loads(line) if line else None
            if record is None:
                continue
            value = record.pop("value")
            if isinstance(value, dict):
                record["value_base64"] = base64.b64encode(
                    avro_of(value, declared, schemas)
                ).decode()
            else:
                record["value"] = value
            lines.append(json.dumps(record, ensure_ascii=False))
        (folder / f"{IDENTIFIER}.jsonl").write_text("".join(line + "\n" for line in lines), "utf-8")
    lines = [json.dumps(line) for line in rejects(schemas)]
    (FOLDER / "reject" / f"{IDENTIFIER}.jsonl").write_text(
        "".join(line + "\n" for line in lines), "utf-8"
    )
    listed = ",\n".join(schemas.texts)
    (FOLDER / "avro-schemas.json").write_text(f"[\n{listed}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
