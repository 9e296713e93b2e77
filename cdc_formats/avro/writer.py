"""Avro schemas of columns, like those of Flink's AvroSchemaConverter, and rows encoded with them.

The schema is Flink's with ``timestamp_mapping.legacy=false``: TIMESTAMP is an instant
(``timestamp-millis``, ``-micros`` or ``-nanos`` by its precision, without one microseconds),
TIMESTAMP_NTZ a ``local-timestamp-*``; TIME beyond milliseconds is ``time-micros``, and an INTERVAL
DAY TO SECOND Debezium's MicroDuration (Flink refuses both). A column that may be NULL is a union of
null and its type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

from cdc_formats.errors import SchemaError
from cdc_formats.values.nested import NESTED_TYPES, nested_writer
from cdc_formats.values.numbers import unscaled_bytes
from cdc_formats.values.schema import Column, Converter, Handling, SqlType, quote, refuse
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import LOGICAL_TIMES, MICROS_PER_UNIT, unit_of_precision
from cdc_formats.values.types import canonical_placeholder, without_placeholder

from .reader import without_logical_types

RECORD = "org.apache.flink.avro.generated.record"
"""The name of a row's record, as in Flink."""

_PLAIN = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    **dict.fromkeys((*TEXT_TYPES, "VARIANT"), "string"),
    "BINARY": "bytes",
}
_LOGICAL: dict[tuple[str, str], str] = {
    (sql_type.name, unit): name for name, (sql_type, unit) in LOGICAL_TIMES.items()
}
_TIMES = {name for name, _ in _LOGICAL}


def record_schema(columns: Sequence[Column], name: str = RECORD) -> dict[str, Any]:
    """Return the Avro schema of a row.

    Parameters
    ----------
    columns : sequence of Column
    name : str
        The record's name.

    Raises
    ------
    SchemaError
        When a column has no Avro type, or its name is not valid in Avro.
    """
    fields = []
    for column in columns:
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", column.name):
            raise SchemaError(
                f"{quote(column.name)} is not a valid Avro name: use only ASCII letters, digits "
                "and `_`"
            )
        avro = _type(column.type, f"{name}_{column.name}")
        optional = {"type": ["null", avro], "default": None}
        fields.append({"name": column.name, **(optional if column.nullable else {"type": avro})})
    return {"type": "record", "name": name, "fields": fields}


def _type(sql_type: SqlType, name: str) -> Any:
    if sql_type.name in _PLAIN:
        return _PLAIN[sql_type.name]
    if sql_type.name == "DECIMAL":
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": sql_type.precision,
            "scale": sql_type.scale,
        }
    if sql_type.name == "DATE":
        return {"type": "int", "logicalType": "date"}
    if sql_type.name in _TIMES:
        logical = _LOGICAL[sql_type.name, _unit(sql_type)]
        return {"type": "int" if logical == "time-millis" else "long", "logicalType": logical}
    if sql_type.name == "INTERVAL DAY TO SECOND":
        return {"type": "long", "connect.name": "io.debezium.time.MicroDuration"}
    if sql_type.name == "STRUCT":
        return record_schema(sql_type.fields, name)
    if sql_type.name == "MAP" and sql_type.fields[0].type.name not in TEXT_TYPES:
        raise SchemaError(
            f"{sql_type} cannot be written as Avro: the key of a map must be a STRING"
        )
    inner = sql_type.fields[-1]
    avro = _type(inner.type, name)
    part = ["null", avro] if inner.nullable else avro
    return (
        {"type": "array", "items": part}
        if sql_type.name == "ARRAY"
        else {"type": "map", "values": part}
    )


def _unit(sql_type: SqlType) -> str:
    return unit_of_precision(6 if sql_type.precision is None else sql_type.precision)


def avro_writer(sql_type: SqlType, handling: Handling) -> Converter | None:
    """Return the function from a canonical value (never None) to fastavro's for `record_schema`.

    It is for `encoding.RowWriter`, instead of `types.writer`.

    Parameters
    ----------
    sql_type : SqlType
    handling : Handling
        Only its placeholder: a value that equals it is an error.

    Returns
    -------
    callable or None
        None if the canonical value is also fastavro's.
    """
    write, form = _writer(sql_type), canonical_placeholder(sql_type, handling.placeholder)
    if form is None:
        return write
    return without_placeholder(sql_type, write, lambda value, _: bool(value == form))


def _writer(sql_type: SqlType) -> Converter | None:
    if sql_type.name == "DECIMAL":
        return unscaled_bytes
    if sql_type.name in _TIMES:
        return _time_writer(sql_type)
    if sql_type.name not in NESTED_TYPES:
        return None
    return nested_writer(sql_type, lambda column: _writer(column.type))


def _time_writer(sql_type: SqlType) -> Converter:
    times, by = MICROS_PER_UNIT[_unit(sql_type)]

    def write(micros: int) -> int:
        number, rest = divmod(micros * by, times)
        if rest:
            raise refuse(
                sql_type,
                f"{micros} microseconds",
                "more fractional digits than the type holds: declare a higher precision",
            )
        if not -(2**63) <= number < 2**63:
            raise refuse(
                sql_type,
                f"{micros} microseconds",
                "out of Avro's range: declare a precision of at most 6",
            )
        return number

    return write


def avro_bytes(schema: Any) -> Callable[[Any], bytes]:
    """Return the function from the image of a row (`avro_writer`) to Avro bytes.

    Logical types are already encoded.
    """
    import fastavro

    parsed = fastavro.parse_schema(without_logical_types(schema))

    def write(image: Any) -> bytes:
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, image)
        return out.getvalue()

    return write
