"""Conversion of Avro values to the canonical values of declared columns, and back.

fastavro reads the Avro values with the writer's schema.

A column is read exactly by its writer's type. A number's meaning is its ``logicalType``, or its
``connect.name`` for the types of Kafka Connect and Debezium. An integer with neither is a number,
never a time.

=================================================  ===============================================
Avro                                               columns
=================================================  ===============================================
boolean                                            BOOLEAN
int, long                                          integers, DECIMAL, DOUBLE; DATE (days)
float, double                                      FLOAT, DOUBLE, DECIMAL
string, enum                                       STRING, and what text says: decimals, ISO dates
                                                   and times, base64
bytes, fixed                                       BINARY
decimal, Connect's Decimal, VariableScaleDecimal   DECIMAL, integers, DOUBLE, STRING
time-millis, io.debezium.time.MicroTime, ...       TIME, TIMESTAMP, TIMESTAMP_NTZ, INTERVAL DAY TO
                                                   SECOND in their unit
duration                                           INTERVAL DAY TO SECOND, where it has no months
uuid                                               STRING
array, map, record                                 ARRAY, MAP, STRUCT; as JSON in a STRING
io.debezium.time.StructuredDate, ...               DATE, TIME, TIMESTAMP, TIMESTAMP_NTZ, INTERVAL
                                                   DAY TO SECOND
=================================================  ===============================================

A ``float`` in a DECIMAL column becomes its shortest decimal, as in JSON: 3.14, not
3.140000104904175.

fastavro reads without logical types; the columns' converters convert the plain numbers and bytes
exactly. Three kinds of schemas are rejected. On arrays of zero-byte values, and on records with
very many such values, fastavro would not terminate. A recursive type would crash the process.
fastavro counts a negative index of a union or an enum from the end, so that some corrupt data gives
another value instead of an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from io import BytesIO
from typing import Any, Literal
from uuid import UUID

from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MalformedMessageError, SchemaError, WriterSchemaError
from cdc_formats.values.binary import UNDECLARED_BINARY
from cdc_formats.values.connect_schema import CONNECT, EPOCH_UNITS
from cdc_formats.values.equality import sorted_entries
from cdc_formats.values.json_reader import json_text
from cdc_formats.values.nested import NESTED_TYPES, nested_converter, nested_writer
from cdc_formats.values.numbers import INTEGER_BITS, decimal_text, scaled, shortest, unscaled_bytes
from cdc_formats.values.schema import (
    ABSENT,
    Column,
    Converter,
    Handling,
    SqlType,
    null_or,
    quote,
    refuse,
    same,
)
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import (
    EPOCH_TYPES,
    LEAST_STAMP,
    LOGICAL_TIMES,
    MICROS_PER_UNIT,
    MOST_STAMP,
    TIMESTAMP_TYPES,
    TYPES as TIMES,
    unit_of_precision,
)
from cdc_formats.values.types import canonical_placeholder, converter, without_placeholder

Type = Mapping[str, Any]
"""A type of a schema as `AvroSchema.resolve` gives it: ``type`` is its name, also for the schema's
short form."""
_Weight = tuple[int, int]
"""The minimum bytes of a type's value, and the number of zero-byte values in it."""

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_PYTHON = {
    **{
        "boolean": bool,
        "int": int,
        "long": int,
        "float": float,
        "double": float,
        "string": str,
        "enum": str,
    },
    **{"bytes": bytes, "fixed": bytes, "array": list, "map": dict, "record": dict},
}
"""The Python types that fastavro returns for a type; they distinguish the branches of a union."""
_FAILURES = (
    EOFError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    UnicodeDecodeError,
    ValueError,
    struct.error,
)

_UNITS: Mapping[str, Literal["ms", "us", "ns"]] = {
    **{name: unit for name, (_, unit) in LOGICAL_TIMES.items()},
    **EPOCH_UNITS,
}
"""The unit of an epoch number, by its logicalType or connect.name."""
_NESTED = {"array": "ARRAY", "map": "MAP", "record": "STRUCT"}
"""The SQL type of each of Avro's nested types."""
_MOST_EMPTY = 10_000
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"


class AvroSchema:
    """A writer's schema and its named types.

    Parameters
    ----------
    schema : Any
        The parsed JSON of the schema.
    references : sequence of Any
        The referenced schemas, each after its own references.

    Raises
    ------
    WriterSchemaError
        When it is not an Avro schema, or cannot be read: it contains itself, or an unlimited number
        of zero-byte values.
    """

    def __init__(self, schema: Any, references: Sequence[Any] = ()) -> None:
        from fastavro import parse_schema, schemaless_reader
        from fastavro.schema import SchemaParseException

        self._read, self.names = schemaless_reader, dict[str, Any]()
        self.plain_records: dict[str, Converter] = {}
        raw_names: dict[str, Any] = {}
        try:
            for reference in references:
                parse_schema(reference, self.names)
                parse_schema(without_logical_types(reference), raw_names)
            self.top = self.resolve(parse_schema(schema, self.names))
            self._weigh(self.top, {})
            # A record of one field has the same bytes as the field, and can be parsed with its
            # named types for any type of the field.
            fields = [{"name": "value", "type": without_logical_types(schema)}]
            self._raw = parse_schema(
                {"type": "record", "name": "cdc_formats.Alone", "fields": fields}, raw_names
            )
        except WriterSchemaError:
            raise
        except (SchemaParseException, ValueError, KeyError, TypeError, RecursionError) as error:
            raise WriterSchemaError(
                f"its writer's schema is not an Avro schema: {type(error).__name__} "
                f"{str(error)[:200]}"
            ) from None

    def read(self, data: bytes) -> Any:
        """Return the value that data encodes: a number, text, bytes, list or dict.

        Raises
        ------
        MalformedMessageError
            When the bytes do not match the schema, end too early, or are too many.
        """
        stream = BytesIO(data)
        try:
            record: Any = self._read(stream, self._raw, None)
        except UnicodeDecodeError as error:
            raise MalformedMessageError(
                f"not Avro of this schema: a string is not UTF-8 ({error.reason} at its byte "
                f"{error.start})"
            ) from None
        except (EOFError, struct.error):
            raise MalformedMessageError(
                "not Avro of this schema: the bytes end before the value does"
            ) from None
        except _FAILURES as error:
            raise MalformedMessageError(
                f"not Avro of this schema: {type(error).__name__}"
            ) from None
        if stream.tell() != len(data):
            raise MalformedMessageError(
                f"{len(data) - stream.tell()} bytes are left over after the Avro of this schema"
            )
        return record["value"]

    def resolve(self, schema: Any) -> Type:
        """Return a type in its long form, with its attributes."""
        if isinstance(schema, list):
            return {"type": "union", "branches": schema}
        if isinstance(schema, str):
            return {"type": schema} if schema in PRIMITIVES else self.resolve(self.names[schema])
        inner = schema["type"]
        if inner == "error":
            return {**schema, "type": "record"}
        is_long_form = isinstance(inner, str) and (
            inner in PRIMITIVES or inner in ("record", "enum", "fixed", "array", "map", "union")
        )
        return (
            schema
            if is_long_form
            else {
                **self.resolve(inner),
                **{name: value for name, value in schema.items() if name != "type"},
            }
        )

    def fields(self, record: Type) -> dict[str, Type]:
        """Return the types of a record's fields by their names."""
        return {field["name"]: self.resolve(field["type"]) for field in record["fields"]}

    def part_types(self, avro: Type) -> dict[str, Type]:
        """Return the types in a nested type, by the names of the fields of its `SqlType`.

        The keys of a map have none: they are text.
        """
        if avro["type"] == "record":
            return self.fields(avro)
        name, of = ("element", "items") if avro["type"] == "array" else ("value", "values")
        return {name: self.resolve(avro[of])}

    def branches(self, union: Type) -> list[Type]:
        """Return the types of a union."""
        return [self.resolve(branch) for branch in union["branches"]]

    def not_null(self, avro: Type) -> list[Type]:
        """Return the types of a union but null; of another type, the type itself."""
        return (
            [branch for branch in self.branches(avro) if branch["type"] != "null"]
            if avro["type"] == "union"
            else [avro]
        )

    def record_of(self, avro: Type) -> Type | None:
        """Return the type if it is a record, or the one record in a union with null; else None."""
        branches = self.not_null(avro)
        return branches[0] if len(branches) == 1 and branches[0]["type"] == "record" else None

    def _weigh(self, avro: Type, records: dict[str, _Weight | None]) -> _Weight:
        """Return the weight of a type after a check of all types in it.

        `records` has the weights so far, and None for the records in progress.
        """
        kind = avro["type"]
        if kind in ("null", "fixed"):
            size = int(avro.get("size", 0))
            return size, 0 if size else 1
        if kind == "record":
            return self._weigh_record(avro, records)
        inner = (
            self.branches(avro)
            if kind == "union"
            else [self.resolve(avro[of]) for of in ("items", "values") if of in avro]
        )
        weights = [self._weigh(of, records) for of in inner]
        if kind == "array" and not weights[0][0]:
            raise WriterSchemaError(
                "its writer's schema has an array of zero-byte values, whose length is unlimited"
            )
        return 1, 0

    def _weigh_record(self, avro: Type, records: dict[str, _Weight | None]) -> _Weight:
        name = avro["name"]
        if name in records:
            weight = records[name]
            if weight is None:
                raise WriterSchemaError(
                    f"its writer's schema contains itself ({name}): no column type can hold it"
                )
            return weight
        records[name] = None
        weights = [self._weigh(field, records) for field in self.fields(avro).values()]
        least, empty = (sum(each[part] for each in weights) for part in (0, 1))
        if empty > _MOST_EMPTY:
            raise WriterSchemaError(
                f"its writer's schema has a record ({name}) with more than {_MOST_EMPTY} zero-byte "
                "values"
            )
        weight = records[name] = least, empty if least else empty + 1
        return weight


def without_logical_types(avro: Any) -> Any:
    """Return the schema without logical types: its values are plain numbers and bytes."""
    if isinstance(avro, dict):
        return {
            name: without_logical_types(value)
            for name, value in avro.items()
            if name not in ("logicalType", "precision", "scale")
        }
    return [without_logical_types(item) for item in avro] if isinstance(avro, list) else avro


# --------------------------------------------------------------------------------------------------
# plain values


def plain(schema: AvroSchema, avro: Type) -> Converter:
    """Return the function from a value (never None) to a plain value for any column.

    A decimal becomes a ``Decimal``, and a time becomes its number.
    """
    kind = avro["type"]
    if kind == "union":
        return _union(schema, avro, lambda branch: plain(schema, branch))
    if kind == "array":
        item = null_or(plain(schema, schema.resolve(avro["items"])))
        return lambda values: [item(value) for value in values]
    if kind == "map":
        item = null_or(plain(schema, schema.resolve(avro["values"])))
        return lambda values: {name: item(value) for name, value in values.items()}
    if kind == "record":
        return _variable_scale if _name(avro) == _VARIABLE_SCALE else _plain_record(schema, avro)
    if kind == "float":
        return shortest
    scale = _scale(avro)
    return same if scale is None else lambda raw: scaled(_unscaled(raw), scale)


def _plain_record(schema: AvroSchema, record: Type) -> Converter:
    # Compile once for each name: a type that occurs twice on each of 20 levels would be compiled a
    # million times.
    if record["name"] not in schema.plain_records:
        fields = {name: null_or(plain(schema, of)) for name, of in schema.fields(record).items()}
        schema.plain_records[record["name"]] = lambda values: {
            name: to(values[name]) for name, to in fields.items()
        }
    return schema.plain_records[record["name"]]


def _union(schema: AvroSchema, union: Type, of: Callable[[Type], Converter]) -> Converter:
    """Return the converter of a union's values, by the Python type of each branch."""
    branches = schema.not_null(union)
    converters = [of(branch) for branch in branches]
    if len(branches) == 1:
        return converters[0]
    kinds = [_PYTHON[branch["type"]] for branch in branches]
    alike = {kind for kind in kinds if kinds.count(kind) > 1}
    ambiguous = [
        branch
        for branch, kind in zip(branches, kinds, strict=True)
        if kind in alike and (kind is dict or len(branch) > 1)
    ]
    if ambiguous:
        raise WriterSchemaError(
            "its writer's schema has a union of types that cannot be distinguished "
            f"({', '.join(sorted({branch['type'] for branch in ambiguous}))})"
        )
    by_kind = dict(zip(kinds, converters, strict=True))
    return lambda value: by_kind[type(value)](value)


def _name(avro: Type) -> str | None:
    name = avro.get("connect.name")
    return name if isinstance(name, str) else None


def _scale(avro: Type) -> int | None:
    """Return the scale of a decimal in bytes, None if the type is not a decimal."""
    if avro["type"] not in ("bytes", "fixed"):
        return None
    if avro.get("logicalType") == "decimal":
        scale = avro.get("scale", 0)
        return scale if isinstance(scale, int) and abs(scale) < 10_000 else None
    parameters = avro.get("connect.parameters")
    text = (
        str(parameters.get("scale"))
        if _name(avro) == CONNECT + "Decimal" and isinstance(parameters, Mapping)
        else ""
    )
    return int(text) if re.fullmatch("-?[0-9]{1,4}", text) else None


def _unscaled(raw: bytes) -> int:
    if not raw or len(raw) > 64:
        raise refuse("DECIMAL", raw, "expected the bytes of an unscaled number, at most 64")
    return int.from_bytes(raw, "big", signed=True)


def _variable_scale(value: Mapping[str, Any]) -> Decimal:
    # io.debezium.data.VariableScaleDecimal: a numeric with a scale in each value.
    scale = value["scale"]
    if abs(scale) > 20_000:
        raise refuse("DECIMAL", scale, "no scale")
    return scaled(_unscaled(value["value"]), scale)


# --------------------------------------------------------------------------------------------------
# columns


def row_converter(
    schema: AvroSchema,
    fields: Mapping[str, Type],
    columns: Sequence[Column],
    handling: Handling,
    unique_key: Sequence[str] = (),
) -> RowConverter:
    """Return the converter of a record's fields to rows, by their names.

    Parameters
    ----------
    schema : AvroSchema
    fields : mapping
        The record's types by name.
    columns : sequence of Column
    handling : Handling
        What the schema does not define: the zone of zone-less text, the text form of bytes,
        unsigned numbers, the placeholder.
    unique_key : sequence of str
    """

    def convert(column: Column, how: Handling) -> Converter:
        avro = fields.get(column.name)
        return (
            _refuser(column.type)
            if avro is None
            else column_converter(schema, avro, column.type, how)
        )

    direct = [
        column.name in fields and _is_direct(schema, fields[column.name], column.type, handling)
        for column in columns
    ]
    return RowConverter(columns, handling, unique_key, convert=convert, direct=direct)


def _is_direct(schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling) -> bool:
    """Return whether the canonical values of a column are the writer's.

    A placeholder and numbers out of range are exceptions.
    """
    types = schema.not_null(avro)
    if len(types) != 1 or types[0]["type"] in ("array", "map", "record"):
        return False
    integers = types[0]["type"] in ("int", "long") and sql_type.name in INTEGER_BITS
    return (
        integers or _leaf_converter(types[0], sql_type, replace(handling, placeholder=None)) is None
    )


def column_converter(
    schema: AvroSchema, avro: Type, sql_type: SqlType, handling: Handling
) -> Converter:
    """Return the function from a value of a writer's type (not None) to a column's canonical value.

    Raises
    ------
    ConversionError
        From the returned function, when a value does not have the column's type or is out of its
        range.
    """
    kind, inner = avro["type"], replace(handling, placeholder=None)
    if kind == "union":
        return _union(
            schema, avro, lambda branch: column_converter(schema, branch, sql_type, handling)
        )
    types = schema.part_types(avro) if kind in _NESTED else {}

    def part(column: Column) -> Converter:
        of = types.get(column.name)
        if of is None:  # a map's keys are text, and a record can lack a field
            return converter(column.type, inner)
        return column_converter(schema, of, column.type, inner)

    if kind == "array" and sql_type.name == "MAP":
        # Connect's maps with keys that are not text: an array of records of key and value.
        entry = types["element"]
        types = schema.part_types(entry) if entry["type"] == "record" else {}
        is_map = set(types) == {"key", "value"}
        return _listed_entries(sql_type, part) if is_map else _refuser(sql_type)
    if _NESTED.get(kind) == sql_type.name:
        return _placeholder(sql_type, handling, nested_converter(sql_type, part))
    if kind in _NESTED:
        to, nested = plain(schema, avro), _nested_converter(avro, sql_type, handling)
        return lambda value: nested(to(value))
    return _placeholder(sql_type, handling, _leaf_converter(avro, sql_type, inner))


def _listed_entries(sql_type: SqlType, of: Callable[[Column], Converter]) -> Converter:
    to_key, to_value = (null_or(of(column)) for column in sql_type.fields)
    return lambda values: sorted_entries(
        [to_key(item["key"]), to_value(item["value"])] for item in values
    )


def _nested_converter(avro: Type, sql_type: SqlType, handling: Handling) -> Converter:
    if _name(avro) == _VARIABLE_SCALE:
        return _of_decimal(sql_type, handling)
    if sql_type.name in TIMES and avro["type"] == "record":
        return converter(sql_type, handling)
    return (
        _placeholder(sql_type, handling, json_text)
        if sql_type.name in TEXT_TYPES
        else _refuser(sql_type)
    )


def _refuser(sql_type: SqlType, hint: str = "") -> Converter:
    def convert(value: Any) -> Any:
        raise refuse(sql_type, value, hint)

    return convert


def _placeholder(sql_type: SqlType, handling: Handling, convert: Converter | None) -> Converter:
    """Return a converter that recognizes the unavailable-value placeholder's canonical value."""
    to = convert or same
    form = canonical_placeholder(sql_type, handling.placeholder)
    if form is None:
        return to
    if sql_type.name == "VARIANT":  # the placeholder is not JSON
        return lambda value: ABSENT if value == form else to(value)

    def with_placeholder(value: Any) -> Any:
        canonical = to(value)
        return ABSENT if canonical == form else canonical

    return with_placeholder


# --------------------------------------------------------------------------------------------------
# leaves


def _leaf_converter(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    """Return the function that makes a leaf's value canonical, or None if it already is."""
    return _LEAVES.get(avro["type"], _of_text)(avro, sql_type, handling)


def _of_integer(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    unit = _UNITS.get(_name(avro) or "") or _UNITS.get(avro.get("logicalType") or "")
    if sql_type.name == "BIGINT":
        return None  # the others are checked: fastavro reads an int of more than 32 bits
    if sql_type.name in EPOCH_TYPES and unit is None:
        return _refuser(
            sql_type,
            (
                "its unit is unknown: the writer's schema has neither a logicalType nor a "
                "connect.name. Declare BIGINT"
            ),
        )
    if sql_type.name == "DATE" and unit is not None:
        return _refuser(sql_type, "it is a time, not a date")
    to = converter(sql_type, replace(handling, decimal="string", time="isostring", epoch_unit=unit))
    # Some nanoseconds are no time (PostgreSQL's infinities).
    return _of_stamp(to, unit) if sql_type.name in TIMESTAMP_TYPES and unit in ("ms", "us") else to


def _of_stamp(to: Converter, unit: str) -> Converter:
    """Return `to` without a call for values in range (hot path)."""
    times, by = MICROS_PER_UNIT[unit]

    def convert(value: int) -> int:
        micros: int = value * times // by
        return micros if LEAST_STAMP <= micros <= MOST_STAMP else to(value)

    return convert


def _of_float(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    kind = avro["type"]
    if sql_type.name == "DOUBLE" or (sql_type.name, kind) == ("FLOAT", "float"):
        return None
    to, number = (
        converter(sql_type, replace(handling, decimal="text")),
        shortest if kind == "float" else same,
    )
    return (
        (lambda value: to(Decimal(repr(number(value)))))
        if sql_type.name == "DECIMAL"
        else lambda value: to(number(value))
    )


def _of_bytes(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    scale = _scale(avro)
    if sql_type.name == "BINARY":
        return None
    if scale is not None:
        return _of_unscaled(sql_type, handling, scale)
    if avro["type"] == "fixed" and avro.get("logicalType") == "duration" and avro["size"] == 12:

        def convert(raw: bytes) -> int:
            months, days, millis = struct.unpack("<III", raw)
            micros: int = (days * 86_400_000 + millis) * 1000
            if months:
                raise refuse(sql_type, f"{months} months", "a month has no length")
            return micros

        return convert if sql_type.name == "INTERVAL DAY TO SECOND" else _refuser(sql_type)
    if (
        avro["type"] == "fixed"
        and avro.get("logicalType") == "uuid"
        and avro["size"] == 16
        and sql_type.name in TEXT_TYPES
    ):
        return lambda raw: str(UUID(bytes=raw))
    return _refuser(sql_type, "bytes that are not a decimal in the writer's schema: declare BINARY")


def _of_unscaled(sql_type: SqlType, handling: Handling, scale: int) -> Converter:
    if sql_type.name != "DECIMAL" or scale != sql_type.scale or scale < 0:
        to = _of_decimal(sql_type, handling)
        return lambda raw: to(scaled(_unscaled(raw), scale))
    limit, least_whole, digits = 10 ** (sql_type.precision or 10), 10**scale, scale + 1

    def convert(raw: bytes) -> str:
        number = int.from_bytes(raw, "big", signed=True) if 0 < len(raw) <= 64 else _unscaled(raw)
        if not -limit < number < limit:
            raise refuse(sql_type, scaled(number, scale), "out of its range")
        text = str(number)
        if not scale:
            return text
        if number < least_whole:
            text = text.zfill(digits if number >= 0 else digits + 1)
        return f"{text[:-scale]}.{text[-scale:]}"

    return convert


def _of_decimal(sql_type: SqlType, handling: Handling) -> Converter:
    if sql_type.name == "DECIMAL":
        return lambda value: decimal_text(
            value, sql_type.precision or 10, sql_type.scale or 0, handling.rounding
        )
    if sql_type.name in TEXT_TYPES:
        return lambda value: f"{value:f}"
    return converter(sql_type, handling)


def _of_text(avro: Type, sql_type: SqlType, handling: Handling) -> Converter | None:
    if sql_type.name in TEXT_TYPES:
        return None
    if sql_type.name == "BINARY" and handling.binary == "bytes":
        return _refuser(sql_type, UNDECLARED_BINARY)
    return converter(sql_type, replace(handling, decimal="text", time="isostring", epoch_unit=None))


_LEAVES: dict[str, Callable[[Type, SqlType, Handling], Converter | None]] = {
    "boolean": lambda _, sql_type, handling: (
        None if sql_type.name == "BOOLEAN" else converter(sql_type, handling)
    ),
    **dict.fromkeys(("int", "long"), _of_integer),
    **dict.fromkeys(("float", "double"), _of_float),
    **dict.fromkeys(("bytes", "fixed"), _of_bytes),
}
"""By the name of a type; all others are text."""


# --------------------------------------------------------------------------------------------------
# Avro schemas of columns, like those of Flink's AvroSchemaConverter, and rows encoded with them.
#
# The schema is Flink's with ``timestamp_mapping.legacy=false``: TIMESTAMP is an instant
# (``timestamp-millis``, ``-micros`` or ``-nanos`` by its precision, without one microseconds),
# TIMESTAMP_NTZ a ``local-timestamp-*``; TIME beyond milliseconds is ``time-micros``, and an INTERVAL
# DAY TO SECOND Debezium's MicroDuration (Flink refuses both). A column that may be NULL is a union
# of null and its type.


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
