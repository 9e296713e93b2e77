"""Avro and declared columns: which part reads a column, the schema that columns have as Avro, and rows as Avro.

A column is read by its writer's type, exactly: what a number means is said by its ``logicalType``, or by ``connect.name`` where Kafka
Connect and Debezium name their own types; an integer that neither of them names is a number, never a time.

=================================================  ==========================================================================
Avro                                               columns
=================================================  ==========================================================================
boolean                                            BOOLEAN
int, long                                          integers, DECIMAL, DOUBLE; DATE (days)
float, double                                      FLOAT, DOUBLE, DECIMAL
string, enum                                       STRING, and what text says: decimals, ISO dates and times, base64
bytes, fixed                                       BINARY
decimal, Connect's Decimal, VariableScaleDecimal   DECIMAL, integers, DOUBLE, STRING
time-millis, io.debezium.time.MicroTime, ...       TIME, TIMESTAMP, TIMESTAMP_NTZ, INTERVAL DAY TO SECOND in their unit
duration                                           INTERVAL DAY TO SECOND, where it has no months
uuid                                               STRING
array, map, record                                 ARRAY, MAP, STRUCT; as JSON in a STRING
=================================================  ==========================================================================
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import fastavro
from fastavro.schema import SchemaParseException

from . import avro_binary as binary
from .avro_binary import Field, Part
from .errors import WriterSchemaError
from .handling import Converter, Handling, refuse
from .images import ABSENT
from .json_reader import json_text
from .schema import INTEGER_BITS, Column, SqlType
from .times import LEAST_STAMP, MOST_STAMP
from .types import converter, decimal_text

Type = Mapping[str, Any]
"""A type of a schema as `AvroSchema.resolve` gives it: ``type`` is its name, whatever the schema's short form."""

_CONNECT = "org.apache.kafka.connect.data."
_DEBEZIUM = "io.debezium.time."
_UNITS: Mapping[str, Literal["ms", "us", "ns"]] = {
    "time-millis": "ms",
    "time-micros": "us",
    "timestamp-millis": "ms",
    "timestamp-micros": "us",
    "timestamp-nanos": "ns",
    "local-timestamp-millis": "ms",
    "local-timestamp-micros": "us",
    "local-timestamp-nanos": "ns",
    _CONNECT + "Time": "ms",
    _CONNECT + "Timestamp": "ms",
    **{_DEBEZIUM + name: "ms" for name in ("Time", "Timestamp")},
    **{_DEBEZIUM + "Micro" + name: "us" for name in ("Time", "Timestamp", "Duration")},
    **{_DEBEZIUM + "Nano" + name: "ns" for name in ("Time", "Timestamp", "Duration")},
}
"""The unit of an epoch number, by its logicalType or connect.name."""
_TIMES = ("TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND")
_TEXT = ("STRING", "CHAR", "VARCHAR")
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


class AvroSchema:
    """A schema that someone wrote with, and the types that it names.

    Parameters
    ----------
    schema : Any
        What its JSON says.
    references : sequence of Any
        The schemas that it refers to, each after those that it refers to itself.

    Raises
    ------
    WriterSchemaError
        When it is no Avro schema, or one that cannot be read: it contains itself, or has arrays of what takes no byte.
    """

    def __init__(self, schema: Any, references: Sequence[Any] = ()) -> None:
        self.names: dict[str, Any] = {}
        try:
            for reference in references:
                fastavro.parse_schema(reference, self.names)
            self.top = self.resolve(fastavro.parse_schema(schema, self.names))
            self._least_bytes(self.top, ())
        except WriterSchemaError:
            raise
        except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise WriterSchemaError(f"its writer's schema is no Avro schema: {type(error).__name__} {str(error)[:200]}") from None

    def resolve(self, schema: Any) -> Type:
        """Return a type in its long form, with its attributes."""
        if isinstance(schema, list):
            return {"type": "union", "branches": schema}
        if isinstance(schema, str):
            return {"type": schema} if schema in binary.PRIMITIVES else self.resolve(self.names[schema])
        inner = schema["type"]
        if inner == "error":
            return {**schema, "type": "record"}
        known = isinstance(inner, str) and (inner in binary.PRIMITIVES or inner in ("record", "enum", "fixed", "array", "map", "union"))
        return schema if known else {**self.resolve(inner), **{name: value for name, value in schema.items() if name != "type"}}

    def fields(self, record: Type) -> dict[str, Type]:
        """Return the types of a record's fields by their names."""
        return {field["name"]: self.resolve(field["type"]) for field in record["fields"]}

    def branches(self, union: Type) -> list[Type]:
        """Return the types of a union."""
        return [self.resolve(branch) for branch in union["branches"]]

    def record_of(self, avro: Type) -> Type | None:
        """Return the record that a type is, or is the only one of beside null; None where it is another type."""
        found = [branch for branch in self.branches(avro) if branch["type"] != "null"] if avro["type"] == "union" else [avro]
        return found[0] if len(found) == 1 and found[0]["type"] == "record" else None

    def _least_bytes(self, avro: Type, around: tuple[str, ...]) -> int:
        """Return how many bytes a value has at least, having looked at all that is in a type."""
        kind = avro["type"]
        if kind == "null":
            return 0
        if kind == "fixed":
            return int(avro["size"])
        if kind == "record":
            if avro["name"] in around:
                raise WriterSchemaError(f"its writer's schema contains itself ({avro['name']}), which no declared column can")
            return sum([self._least_bytes(field, (*around, avro["name"])) for field in self.fields(avro).values()])
        inner = self.branches(avro) if kind == "union" else [self.resolve(avro[of]) for of in ("items", "values") if of in avro]
        least = [self._least_bytes(of, around) for of in inner]
        if kind == "array" and not least[0]:
            raise WriterSchemaError("its writer's schema has an array of what takes no byte, which may be of any length")
        return 1


# --------------------------------------------------------------------------------------------------------- plain reading


def plain(schema: AvroSchema, avro: Type) -> Part:
    """Return the part that reads a type as it stands: a record as a dict, a decimal as ``Decimal``, a time as its number."""
    kind = avro["type"]
    if kind == "union":
        return binary.union([plain(schema, branch) for branch in schema.branches(avro)])
    if kind == "array":
        return binary.array(plain(schema, schema.resolve(avro["items"])))
    if kind == "map":
        return binary.mapping(plain(schema, schema.resolve(avro["values"])))
    if kind == "record":
        fields = schema.fields(avro)
        names, to = tuple(fields), _variable_scale if _name(avro) == _VARIABLE_SCALE else None
        row = binary.record([Field(plain(schema, field), slot) for slot, field in enumerate(fields.values())])
        return binary.converted(row, lambda values: dict(zip(names, values, strict=True)) if to is None else to(values))
    return _leaf(avro, _plain_decimal(avro))


def _leaf(avro: Type, convert: Converter | None) -> Part:
    kind = avro["type"]
    if kind == "enum":
        return binary.enum(avro["symbols"], convert)
    return binary.fixed(avro["size"], convert) if kind == "fixed" else binary.primitive(kind, convert)


def _plain_decimal(avro: Type) -> Converter | None:
    scale = _scale(avro)
    return None if scale is None else lambda raw: Decimal(_unscaled(raw)).scaleb(-scale)


def _name(avro: Type) -> str | None:
    name = avro.get("connect.name")
    return name if isinstance(name, str) else None


def _scale(avro: Type) -> int | None:
    """Return the scale of a decimal in bytes, None where a type is none."""
    if avro["type"] not in ("bytes", "fixed"):
        return None
    if avro.get("logicalType") == "decimal":
        scale = avro.get("scale", 0)
        return scale if isinstance(scale, int) and abs(scale) < 10_000 else None
    parameters = avro.get("connect.parameters")
    text = str(parameters.get("scale")) if _name(avro) == _CONNECT + "Decimal" and isinstance(parameters, Mapping) else ""
    return int(text) if re.fullmatch("-?[0-9]{1,4}", text) else None


def _unscaled(raw: bytes) -> int:
    if not raw or len(raw) > 64:
        raise refuse("DECIMAL", raw, "expected the bytes of an unscaled number, at most 64")
    return int.from_bytes(raw, "big", signed=True)


def _variable_scale(values: tuple[Any, ...]) -> Decimal:
    # io.debezium.data.VariableScaleDecimal: a numeric without a scale of its own.
    scale, raw = values
    if abs(scale) > 20_000:
        raise refuse("DECIMAL", scale, "no scale")
    return Decimal(_unscaled(raw)).scaleb(-scale)


# --------------------------------------------------------------------------------------------------------------- columns


def row_part(
    schema: AvroSchema,
    record: Type,
    columns: Sequence[Column],
    handling: Handling,
    path: str,
    *,
    only: Sequence[int] | None = None,
) -> Part | None:
    """Return the part that reads a record as a row, by the names of its fields; None where it has no declared column.

    Parameters
    ----------
    schema : AvroSchema
    record : mapping
        A record of the schema.
    columns : sequence of Column
    handling : Handling
        What the schema does not say: the zone of zone-less text, text of bytes, unsigned numbers, the placeholder.
    path : str
        Where the record stands in the message, for errors.
    only : sequence of int or None
        The columns that are read, the others are None; None for all.

    Raises
    ------
    TypeConversionError
        From the part, when a value does not fit its column.
    """
    slots = {name: slot for slot, name in enumerate([column.name for column in columns])}
    fields = schema.fields(record)
    if not slots.keys() & fields.keys():
        return None
    parts = []
    for name, avro in fields.items():
        slot = slots.get(name)
        if slot is None or (only is not None and slot not in only):
            parts.append(Field(plain(schema, avro)))
        else:
            parts.append(Field(column_part(schema, avro, columns[slot].type, handling, f"{path}.{name}"), slot, f"{path}.{name}"))
    return binary.record(parts, len(columns))


def column_part(schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling, path: str) -> Part:
    """Return the part that reads a writer's type as the canonical value of a column's type."""
    kind, inner = avro["type"], replace(handling, placeholder=None)
    if kind == "union":
        return binary.union([column_part(schema, branch, sql_type, handling, path) for branch in schema.branches(avro)])
    if kind == "null":
        return binary.primitive("null")
    if kind == "array" and sql_type.name == "ARRAY":
        item = column_part(schema, schema.resolve(avro["items"]), sql_type.fields[0].type, inner, path)
        return binary.array(item, _placeholder(sql_type, handling, None))
    if kind == "map" and sql_type.name == "MAP":
        return _map_part(schema, avro, sql_type, handling, path)
    if kind == "array" and sql_type.name == "MAP":
        return _entries_part(schema, avro, sql_type, inner, path)
    if kind == "record" and sql_type.name == "STRUCT":
        return _struct_part(schema, avro, sql_type, inner, path)
    if kind in ("array", "map", "record"):
        return binary.converted(plain(schema, avro), _nested_converter(avro, sql_type, handling))
    return _leaf(avro, _placeholder(sql_type, handling, _leaf_converter(avro, sql_type, inner)))


def _map_part(schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling, path: str) -> Part:
    key, value = sql_type.fields
    inner = replace(handling, placeholder=None)
    to_key = converter(key.type, inner)

    def entries(values: Mapping[str, Any]) -> list[Any]:
        # Sorted, since the order of a map's entries is no difference between two rows.
        return sorted([[to_key(name), item] for name, item in values.items()], key=lambda entry: entry[0])

    part = column_part(schema, schema.resolve(avro["values"]), value.type, inner, path)
    return binary.mapping(part, _placeholder(sql_type, handling, entries))


def _entries_part(schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling, path: str) -> Part:
    # Connect's maps with keys that are no text: an array of records of key and value.
    entry = schema.resolve(avro["items"])
    fields = schema.fields(entry) if entry["type"] == "record" else {}
    if set(fields) != {"key", "value"}:
        return binary.converted(plain(schema, avro), _refuser(sql_type))
    parts = {name: column_part(schema, field, sql_type.fields[name == "value"].type, handling, path) for name, field in fields.items()}
    item = binary.record([Field(part, int(name == "value"), path) for name, part in parts.items()], as_list=True)
    return binary.array(item, lambda entries: sorted(entries, key=lambda pair: pair[0]))


def _struct_part(schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling, path: str) -> Part:
    slots = {field.name: slot for slot, field in enumerate(sql_type.fields)}
    fields = []
    for name, field in schema.fields(avro).items():
        slot = slots.get(name)
        if slot is None:
            fields.append(Field(plain(schema, field)))
        else:
            fields.append(Field(column_part(schema, field, sql_type.fields[slot].type, handling, f"{path}.{name}"), slot, f"{path}.{name}"))
    return binary.record(fields, len(slots), as_list=True)


def _nested_converter(avro: Type, sql_type: SqlType, handling: Handling) -> Converter:
    if _name(avro) == _VARIABLE_SCALE:
        return _of_decimal(sql_type, handling)
    return _placeholder(sql_type, handling, json_text) or json_text if sql_type.name in _TEXT else _refuser(sql_type)


def _refuser(sql_type: SqlType, hint: str = "") -> Converter:
    def convert(value: Any) -> Any:
        raise refuse(sql_type, value, hint)

    return convert


def _placeholder(sql_type: SqlType, handling: Handling, convert: Converter | None) -> Converter | None:
    """Return a converter that knows the unavailable-value placeholder, in the form that a column's canonical value has of it."""
    form = canonical_placeholder(sql_type, handling.placeholder)
    if form is None:
        return convert

    def known(value: Any) -> Any:
        canonical = value if convert is None else convert(value)
        return ABSENT if canonical == form else canonical

    return known


def canonical_placeholder(sql_type: SqlType, placeholder: str | None) -> Any:
    """Return the canonical value that a column has of the unavailable-value placeholder, None where it has none."""
    if placeholder is None:
        return None
    if sql_type.name in _TEXT:
        return placeholder
    if sql_type.name == "BINARY":
        return placeholder.encode()
    if sql_type.name == "MAP":
        return [[placeholder, placeholder]]
    if sql_type.name != "ARRAY":
        return None
    # Of numbers the placeholder's bytes (Debezium's UnchangedToastedPlaceholder).
    element = sql_type.fields[0].type
    item = canonical_placeholder(element, placeholder)
    return list(placeholder.encode()) if element.name in INTEGER_BITS else None if item is None else [item]


# ---------------------------------------------------------------------------------------------------------------- leaves


def _leaf_converter(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    """Return what makes a leaf's value canonical, None where it is already."""
    kind = avro["type"]
    if kind in ("int", "long"):
        return _of_integer(avro, sql_type, handling)
    if kind in ("float", "double"):
        return _of_float(kind, sql_type, handling)
    if kind in ("bytes", "fixed"):
        return _of_bytes(avro, sql_type, handling)
    if kind == "boolean":
        return None if sql_type.name == "BOOLEAN" else converter(sql_type, handling)
    return _of_text(sql_type, handling)


_BITS = {"int": 31, "long": 63}


def _of_integer(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    unit = _UNITS.get(_name(avro) or "") or _UNITS.get(avro.get("logicalType") or "")
    if INTEGER_BITS.get(sql_type.name, 0) >= _BITS[avro["type"]]:
        return None
    if sql_type.name in _TIMES and unit is None:
        return _refuser(sql_type, "in which unit? The writer's schema has no logicalType and no connect.name that says it: declare BIGINT")
    if sql_type.name == "DATE" and unit is not None:
        return _refuser(sql_type, "it is a time, not a date")
    to = converter(sql_type, replace(handling, decimal="string", time="isostring", epoch_unit=unit))
    return _of_stamp(to, unit) if sql_type.name in ("TIMESTAMP", "TIMESTAMP_NTZ") and unit else to


_PER_UNIT = {"ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}


def _of_stamp(to: Converter, unit: str) -> Converter:
    """Return `to`, without a call for what is in range: this is the hot path."""
    times, by = _PER_UNIT[unit]

    def convert(value: int) -> int:
        micros: int = value * times // by
        return micros if LEAST_STAMP <= micros <= MOST_STAMP else to(value)

    return convert


def _of_float(kind: str, sql_type: SqlType, handling: Handling) -> Converter | None:
    if sql_type.name == "DOUBLE" or (sql_type.name, kind) == ("FLOAT", "float"):
        return None
    if sql_type.name == "FLOAT":
        return _single
    to = converter(sql_type, replace(handling, decimal="text"))
    return (lambda value: to(Decimal(repr(value)))) if sql_type.name == "DECIMAL" else to


def _single(value: float) -> float:
    try:
        number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise refuse("FLOAT", value, "out of its range") from None
    return number


def _of_bytes(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    scale = _scale(avro)
    if sql_type.name == "BINARY":
        return None
    if scale is not None:
        return _of_unscaled(sql_type, handling, scale)
    if avro["type"] == "fixed" and avro.get("logicalType") == "duration" and avro["size"] == 12:
        return _of_duration(sql_type)
    if avro["type"] == "fixed" and avro.get("logicalType") == "uuid" and avro["size"] == 16 and sql_type.name in _TEXT:
        return lambda raw: str(UUID(bytes=raw))
    return _refuser(sql_type, "bytes that the writer's schema does not call a decimal: declare BINARY")


def _of_unscaled(sql_type: SqlType, handling: Handling, scale: int) -> Converter:
    if sql_type.name != "DECIMAL" or scale != sql_type.scale or scale < 0:
        to = _of_decimal(sql_type, handling)
        return lambda raw: to(Decimal(_unscaled(raw)).scaleb(-scale))
    limit, least_whole, digits = 10 ** (sql_type.precision or 10), 10**scale, scale + 1

    def convert(raw: bytes) -> str:
        number = int.from_bytes(raw, "big", signed=True) if 0 < len(raw) <= 64 else _unscaled(raw)
        if not -limit < number < limit:
            raise refuse(sql_type, Decimal(number).scaleb(-scale), "out of its range")
        text = str(number)
        if not scale:
            return text
        if number < least_whole:
            text = text.zfill(digits if number >= 0 else digits + 1)
        return f"{text[:-scale]}.{text[-scale:]}"

    return convert


def _of_decimal(sql_type: SqlType, handling: Handling) -> Converter:
    if sql_type.name == "DECIMAL":
        return lambda value: decimal_text(value, sql_type.precision or 10, sql_type.scale or 0)
    if sql_type.name in _TEXT:
        return lambda value: f"{value:f}"
    return converter(sql_type, handling)


_DURATION = struct.Struct("<III")


def _of_duration(sql_type: SqlType) -> Converter:
    def convert(raw: bytes) -> int:
        months, days, millis = _DURATION.unpack(raw)
        micros: int = (days * 86_400_000 + millis) * 1000
        if months:
            raise refuse(sql_type, f"{months} months", "a month has no length")
        return micros

    return convert if sql_type.name == "INTERVAL DAY TO SECOND" else _refuser(sql_type)


def _of_text(sql_type: SqlType, handling: Handling) -> Converter | None:
    if sql_type.name in _TEXT:
        return None
    if sql_type.name == "BINARY" and handling.binary == "bytes":
        return _refuser(sql_type, "text: set binary_handling_mode to the connector's binary.handling.mode")
    return converter(sql_type, replace(handling, decimal="string", time="isostring", epoch_unit=None))
