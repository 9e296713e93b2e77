"""Reads declared columns and primary keys from messages: schema blocks, ``mysqlType``, ``pkNames``, Kafka keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..base import Format
from ..errors import MalformedMessageError, SchemaError
from ..json_reader import read_json
from ..metadata import member
from ..schema import Column, SqlType
from .source_types import Declared, connect_columns, jdbc_type, mysql_type, row_schema


def declared_columns(message: Mapping[str, Any], format: Format) -> tuple[str, list[Declared]]:
    """Return the source of a message's column declarations (``schema block``, ``mysqlType``, ``sqlType``) and the columns.

    Both are empty when the message declares no columns.

    Raises
    ------
    MalformedMessageError
        When a schema block is not a Connect schema.
    """
    declares = _of_format(_DECLARES, format)
    return ("", []) if declares is None else declares(message, format)


def key_names(key: bytes | None, message: Mapping[str, Any], format: Format) -> tuple[str, ...] | None:
    """Return the primary key columns that a record names; None when it names none."""
    names = _of_format(_KEYS, format)
    return None if names is None else names(key, message, format)


def connector_of(message: Any) -> Any:
    """Return the connector that wrote a Debezium message; None when the message does not name it."""
    added = getattr(message, "added", None)
    found = getattr(added, "connector", None) or getattr(added, "source_connector", None)
    return found or member(getattr(message, "source", None), "connector")


def _of_format(table: Mapping[str, Any], format: Format) -> Any:
    """Return the entry of a format or of its base class; None when the table has neither."""
    names = (getattr(cls, "identifier", "") for cls in type(format).__mro__)
    return next((table[name] for name in names if name in table), None)


def _connect_block(message: Mapping[str, Any], format: Format) -> tuple[str, list[Declared]]:
    schema, payload = message.get("schema"), message.get("payload")
    if not isinstance(schema, dict) or "payload" not in message or "op" in message:
        return "", []
    source = payload.get("source") if isinstance(payload, dict) else None
    connector = source.get("connector") if isinstance(source, dict) else None
    if isinstance(payload, dict) and connector is None:
        prefix = getattr(format, "add_fields_prefix", "__")
        connector = payload.get(f"{prefix}source_connector") or payload.get(f"{prefix}connector")
    try:
        return "schema block", connect_columns(row_schema(schema), str(connector or ""))
    except SchemaError as error:
        raise MalformedMessageError(str(error.args[0]), "$.schema") from None


def _canal_types(message: Mapping[str, Any], format: Format) -> tuple[str, list[Declared]]:
    mysql, jdbc = message.get("mysqlType"), message.get("sqlType")
    zoned = getattr(format, "time_zone", None) is not None
    if isinstance(mysql, dict):
        return "mysqlType", [_canal_column(name, str(text), *mysql_type(str(text), zoned=zoned)) for name, text in mysql.items()]
    if isinstance(jdbc, dict):
        numbers = {name: number for name, number in jdbc.items() if isinstance(number, int)}
        return "sqlType", [_canal_column(name, f"java.sql.Types {number}", jdbc_type(number), "") for name, number in numbers.items()]
    return "", []


def _canal_column(name: str, said: str, sql_type: SqlType | None, note: str) -> Declared:
    # An empty type means that the type is inferred from the values.
    return Declared(Column(name, sql_type or SqlType("")), said, note)


def key_fields(key: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a Kafka key, with or without a schema block."""
    if not key:
        return None
    try:
        value = read_json(key)
    except MalformedMessageError:
        return None
    if isinstance(value, dict) and set(value) == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def _connect_key(key: bytes | None, message: Any, format: Format) -> tuple[str, ...] | None:
    return tuple(key_fields(key) or ()) or None


def _upsert_key(key: bytes | None, message: Any, format: Any) -> tuple[str, ...] | None:
    fields = key_fields(key) if format.key_format == "json" else None
    return tuple(format.key_fields_prefix + name for name in fields or ()) or None


def _listed(name: str) -> Callable[[Any, Mapping[str, Any], Format], tuple[str, ...] | None]:
    def names(key: bytes | None, message: Mapping[str, Any], format: Format) -> tuple[str, ...] | None:
        found = message.get(name)
        return tuple(map(str, found)) or None if isinstance(found, list) else None

    return names


def _maxwell_key(key: bytes | None, message: Mapping[str, Any], format: Format) -> tuple[str, ...] | None:
    """Return ``primary_key_columns``, else the columns of the key: ``{"pk.id": 1}`` or ``["shop", "parts", [{"id": 1}]]``."""
    if (names := _listed("primary_key_columns")(key, message, format)) is not None:
        return names
    try:
        value = read_json(key) if key else None
    except MalformedMessageError:
        return None  # producer_partition_by may put any text there
    if isinstance(value, dict):
        return tuple(name[3:] for name in value if name.startswith("pk.")) or None
    if isinstance(value, list) and len(value) == 3 and isinstance(value[2], list):
        return tuple(name for part in value[2] if isinstance(part, dict) for name in part) or None
    return None


_DECLARES: Mapping[str, Callable[[Mapping[str, Any], Format], tuple[str, list[Declared]]]] = {
    "canal-json": _canal_types,
    "debezium-flat-json": _connect_block,
    "debezium-json": _connect_block,
    "ticdc-canal-json": _canal_types,
}
_KEYS: Mapping[str, Callable[[bytes | None, Mapping[str, Any], Format], tuple[str, ...] | None]] = {
    "canal-json": _listed("pkNames"),
    "debezium-flat-json": _connect_key,
    "debezium-json": _connect_key,
    "debezium-mongodb-json": lambda key, message, format: ("_id",),
    "maxwell-json": _maxwell_key,
    "ogg-json": _listed("primary_keys"),
    "ticdc-canal-json": _listed("pkNames"),
    "upsert-kafka": _upsert_key,
}
KEY_SOURCES = {
    "canal-json": "pkNames",
    "debezium-mongodb-json": "of every collection",
    "maxwell-json": "primary_key_columns, or the Kafka key",
    "ogg-json": "primary_keys",
    "ticdc-canal-json": "pkNames",
}
