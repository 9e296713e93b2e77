"""Kafka Connect's schemas of columns, as Debezium names them and JsonConverter writes them.

JsonConverter writes them with ``schemas.enable=true``.

Fields of JSON messages and keys, also in Kafka Connect's wrapper of schema and payload.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from cdc_formats.errors import MalformedMessageError
from cdc_formats.values.json_reader import read_json, read_object, read_part
from cdc_formats.values.schema import Column, Handling, SqlType
from cdc_formats.values.times import epoch_unit


def message_fields(value: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object; empty for another value."""
    try:
        fields = read_json(value)
    except (MalformedMessageError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def key_fields(key: bytes | None) -> dict[str, Any]:
    """Return a Kafka key's fields, with or without schema block; empty if it is no JSON object."""
    fields = message_fields(key) if key else {}
    payload = fields["payload"] if is_wrapped(fields) else fields
    return payload if isinstance(payload, dict) else {}


def is_wrapped(fields: Mapping[str, Any]) -> bool:
    """Return whether a JSON object only wraps a message or key: its payload, mostly with schema.

    Examples
    --------
    >>> is_wrapped({"schema": None, "payload": {"id": 1}}), is_wrapped({"payload": {"id": 1}}), is_wrapped({"payload": 1})
    (True, True, False)
    """
    if set(fields) == {"payload"}:
        return fields["payload"] is None or isinstance(fields["payload"], dict)
    return set(fields) == {"schema", "payload"}


CONNECT = "org.apache.kafka.connect.data."
DEBEZIUM_TIME = "io.debezium.time."

EPOCH_UNITS: Mapping[str, Literal["ms", "us", "ns"]] = {
    **{CONNECT + name: "ms" for name in ("Time", "Timestamp")},
    **{DEBEZIUM_TIME + name: "ms" for name in ("Time", "Timestamp")},
    **{DEBEZIUM_TIME + "Micro" + name: "us" for name in ("Time", "Timestamp", "Duration")},
    **{DEBEZIUM_TIME + "Nano" + name: "ns" for name in ("Time", "Timestamp", "Duration")},
}
"""The unit of an epoch number, by the name of its type."""

_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int16",  # as in Debezium: MySQL's unsigned TINYINT does not fit into 8 bits
    "SMALLINT": "int16",
    "INT": "int32",
    "BIGINT": "int64",
    "FLOAT": "float",
    "DOUBLE": "double",
}
_TIMES = {"TIME": "Time", "TIMESTAMP_NTZ": "Timestamp", "INTERVAL DAY TO SECOND": "Duration"}


def written_handling(sql_type: SqlType, declared: Handling) -> Handling:
    """Return the handling of a column that is written with a schema block.

    The defaults are Debezium's ``decimal.handling.mode=precise`` and
    ``time.precision.mode=microseconds``: they are lossless, and the schema has the unit. In a
    STRUCT or MAP decimals and times are text, since a reader of a schema block uses only the
    columns' schemas.
    """
    if sql_type.name == "ARRAY":
        return written_handling(sql_type.fields[0].type, declared)
    if sql_type.name in ("STRUCT", "MAP"):
        return replace(declared, decimal="string", time="isostring", bigint_unsigned="precise")
    return replace(
        declared,
        decimal=declared.decimal or "precise",
        time=declared.time or "microseconds",
        bigint_unsigned="precise",
    )


def struct_schema(
    name: str, columns: Iterable[tuple[Column, Handling]], *, optional: bool
) -> dict[str, Any]:
    """Return the schema of a row.

    Parameters
    ----------
    name : str
    columns : iterable of (Column, Handling)
    optional : bool
        Whether the row may be null.
    """
    return {
        "type": "struct",
        "fields": [_field(column, how) for column, how in columns],
        "optional": optional,
        "name": name,
    }


def _field(column: Column, handling: Handling) -> dict[str, Any]:
    return {**_schema(column.type, column.nullable, handling), "field": column.name}


def _schema(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    inner = [_schema(field.type, field.nullable, handling) for field in sql_type.fields]
    if sql_type.name == "ARRAY":
        return {"type": "array", "items": inner[0], "optional": optional}
    if sql_type.name == "MAP":
        return {"type": "map", "keys": inner[0], "values": inner[1], "optional": optional}
    if sql_type.name == "STRUCT":
        return {
            "type": "struct",
            "fields": [_field(field, handling) for field in sql_type.fields],
            "optional": optional,
        }
    return _leaf(sql_type, optional, handling)


def _leaf(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    if sql_type.name == "DECIMAL":
        if handling.decimal != "precise":
            return {
                "type": "double" if handling.decimal == "double" else "string",
                "optional": optional,
            }
        parameters = {
            "scale": str(sql_type.scale),
            "connect.decimal.precision": str(sql_type.precision),
        }
        return _named("bytes", optional, CONNECT + "Decimal", parameters=parameters)
    if sql_type.name == "BINARY":
        return {"type": "bytes" if handling.binary == "bytes" else "string", "optional": optional}
    if sql_type.name in ("DATE", "TIMESTAMP", *_TIMES):
        return _time(sql_type, optional, handling)
    if sql_type.name == "VARIANT":
        return _named("string", optional, "io.debezium.data.Json")
    return {"type": _PLAIN.get(sql_type.name, "string"), "optional": optional}


def _named(kind: str, optional: bool, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "name": name, "version": 1, **more}


def _time(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    connect = handling.time == "connect"
    if sql_type.name == "TIMESTAMP":
        return _named("string", optional, DEBEZIUM_TIME + "ZonedTimestamp")
    if sql_type.name == "DATE":
        if handling.time == "isostring":
            return _named("string", optional, DEBEZIUM_TIME + "IsoDate")
        return _named("int32", optional, (CONNECT if connect else DEBEZIUM_TIME) + "Date")
    unit = epoch_unit(sql_type, handling)[0]
    if unit:
        return _named(
            "int32" if (sql_type.name, unit) == ("TIME", "ms") else "int64",
            optional,
            (CONNECT if connect else DEBEZIUM_TIME)
            + {"ms": "", "us": "Micro", "ns": "Nano"}[unit]
            + _TIMES[sql_type.name],
        )
    if handling.time == "isostring" and sql_type.name != "INTERVAL DAY TO SECOND":
        return _named("string", optional, DEBEZIUM_TIME + "Iso" + _TIMES[sql_type.name])
    return {"type": "string", "optional": optional}


# --------------------------------------------------------------------------------------------------
# reading


def schema_of(schema: bytes) -> dict[str, Any]:
    """Return a schema block.

    Raises
    ------
    MalformedMessageError
        When it is not a JSON object.
    """
    return read_part(read_object, schema, "$.schema")


def described(
    schema: dict[str, Any], columns: Sequence[Column], declared: Handling
) -> list[Handling]:
    """Return the handling of each column by a schema block.

    Parameters
    ----------
    schema : dict
        A Connect schema of an envelope: a struct with the fields ``before`` and ``after``.
    columns : sequence of Column
    declared : Handling
        The handling of values that the block does not define: the text form of bytes in a
        ``string``, an unsigned BIGINT in an ``int64``.
    """
    images = _by_name(schema)
    fields = _by_name(images.get("after") or images.get("before") or {})
    return [_described(fields.get(column.name, {}), declared) for column in columns]


def _described(field: dict[str, Any], declared: Handling) -> Handling:
    kind, items = field.get("type"), field.get("items")
    if kind == "array" and isinstance(items, dict):
        return _described(items, declared)
    name, parameters = field.get("name"), field.get("parameters")
    scale = parameters.get("scale") if isinstance(parameters, dict) else None
    if (
        name == CONNECT + "Decimal"
        and isinstance(scale, str)
        and re.fullmatch("-?[0-9]{1,4}", scale)
    ):
        # A number instead of base64 (JsonConverter's decimal.format=NUMERIC) is never in two's
        # complement.
        return replace(
            declared,
            decimal="precise",
            decimal_scale=int(scale),
            time="isostring",
            bigint_unsigned="precise",
            binary="base64",
        )
    # Text of a described column is ISO text, and its number (except a date's days) has the unit of
    # its type name.
    return replace(
        declared,
        decimal="text" if kind == "string" else "string",
        time="isostring",
        epoch_unit=EPOCH_UNITS.get(name) if isinstance(name, str) else None,
        # JsonConverter writes ``bytes`` as base64; binary.handling.mode makes a ``string``.
        binary="base64"
        if kind == "bytes"
        else None
        if (kind, declared.binary) == ("string", "bytes")
        else declared.binary,
        parts=_described_parts(field, declared),
    )


def _described_parts(field: dict[str, Any], declared: Handling) -> dict[str, Handling] | None:
    if field.get("type") == "struct":
        return {f"STRUCT.{name}": _described(of, declared) for name, of in _by_name(field).items()}
    if field.get("type") == "map":
        named = {"MAP.key": field.get("keys"), "MAP.value": field.get("values")}
        return {
            name: _described(of, declared) for name, of in named.items() if isinstance(of, dict)
        }
    return None


def _by_name(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    fields = schema.get("fields")
    described = (
        [field for field in fields if isinstance(field, dict)] if isinstance(fields, list) else []
    )
    return {name: field for field in described if isinstance(name := field.get("field"), str)}
