"""Kafka Connect's schemas of columns, as Debezium names them and JsonConverter writes them (``schemas.enable=true``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from .handling import Handling
from .schema import Column, SqlType
from .times import epoch_unit

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
_PREFIXES = {"ms": "", "us": "Micro", "ns": "Nano"}
_TIMES = {"TIME": "Time", "TIMESTAMP_NTZ": "Timestamp", "INTERVAL DAY TO SECOND": "Duration"}


def written_handling(sql_type: SqlType, declared: Handling) -> Handling:
    """Return the handling of a column that is written with a schema block.

    The defaults are Debezium's ``decimal.handling.mode=precise`` and ``time.precision.mode=microseconds``: they are lossless, and the
    schema has the unit. In a STRUCT or MAP decimals and times are text, since a reader of a schema block uses only the columns' schemas.
    """
    if sql_type.name == "ARRAY":
        return written_handling(sql_type.fields[0].type, declared)
    if sql_type.name in ("STRUCT", "MAP"):
        return replace(declared, decimal="string", time="isostring", bigint_unsigned="precise")
    return replace(declared, decimal=declared.decimal or "precise", time=declared.time or "microseconds", bigint_unsigned="precise")


def struct_schema(name: str, columns: Sequence[Column], handling: Sequence[Handling], *, optional: bool) -> dict[str, Any]:
    """Return the schema of a row.

    Parameters
    ----------
    name : str
    columns : sequence of Column
    handling : sequence of Handling
        The handling of each column.
    optional : bool
        Whether the row may be null.
    """
    fields = [_field(column, how) for column, how in zip(columns, handling, strict=True)]
    return {"type": "struct", "fields": fields, "optional": optional, "name": name}


def _field(column: Column, handling: Handling) -> dict[str, Any]:
    return {**_schema(column.type, column.nullable, handling), "field": column.name}


def _schema(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    inner = [_schema(field.type, field.nullable, handling) for field in sql_type.fields]
    if sql_type.name == "ARRAY":
        return {"type": "array", "items": inner[0], "optional": optional}
    if sql_type.name == "MAP":
        return {"type": "map", "keys": inner[0], "values": inner[1], "optional": optional}
    if sql_type.name == "STRUCT":
        return {"type": "struct", "fields": [_field(field, handling) for field in sql_type.fields], "optional": optional}
    return _leaf(sql_type, optional, handling)


def _leaf(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    if sql_type.name == "DECIMAL":
        return _decimal(sql_type, optional, handling)
    if sql_type.name == "BINARY":
        return {"type": "bytes" if handling.binary == "bytes" else "string", "optional": optional}
    if sql_type.name in ("DATE", "TIMESTAMP", *_TIMES):
        return _time(sql_type, optional, handling)
    return {"type": _PLAIN.get(sql_type.name, "string"), "optional": optional}


def _named(kind: str, optional: bool, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "name": name, "version": 1, **more}


def _decimal(sql_type: SqlType, optional: bool, handling: Handling) -> dict[str, Any]:
    if handling.decimal != "precise":
        return {"type": "double" if handling.decimal == "double" else "string", "optional": optional}
    parameters = {"scale": str(sql_type.scale), "connect.decimal.precision": str(sql_type.precision)}
    return _named("bytes", optional, CONNECT + "Decimal", parameters=parameters)


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
        kind = "int32" if (sql_type.name, unit) == ("TIME", "ms") else "int64"
        return _named(kind, optional, (CONNECT if connect else DEBEZIUM_TIME) + _PREFIXES[unit] + _TIMES[sql_type.name])
    if handling.time == "isostring" and sql_type.name != "INTERVAL DAY TO SECOND":
        return _named("string", optional, DEBEZIUM_TIME + "Iso" + _TIMES[sql_type.name])
    return {"type": "string", "optional": optional}
