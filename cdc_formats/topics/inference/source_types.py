"""Declared types as `Column`: Kafka Connect and Avro schemas, types of databases, JDBC type numbers.

Each type holds all values of the source's type as the producer writes them. Nothing is guessed:

=====================================  ============================================================
Connect                                column
=====================================  ============================================================
``int8`` to ``int64``, ``boolean``     TINYINT to BIGINT, BOOLEAN
``float``, ``double``                  FLOAT, DOUBLE
``string``, ``bytes``                  STRING, BINARY
``Decimal``                            DECIMAL(p,s), with p of ``connect.decimal.precision``, else
                                       38
``Date``; ``Time``, ``Timestamp``      DATE; TIME(p), TIMESTAMP_NTZ(p), with p of the unit
MySQL's ``MicroTime``                  INTERVAL DAY TO SECOND, since MySQL's TIME goes from -838 to
                                       838 hours
``ZonedTimestamp``                     TIMESTAMP
``ZonedTime``, ``Interval``            STRING: Spark has no type for an offset of a time, or for
                                       months
``MicroDuration``, ``NanoDuration``    INTERVAL DAY TO SECOND
``StructuredDate``, ...                DATE, TIME, TIMESTAMP_NTZ, TIMESTAMP, INTERVAL DAY TO
                                       SECOND; ``StructuredZonedTime``: STRING
``VariableScaleDecimal``               STRUCT<scale: INT, value: BINARY> (a declared DECIMAL(p,s)
                                       reads it too)
``array``, ``map``, ``struct``         ARRAY, MAP, STRUCT
``FloatVector``, ``DoubleVector``      ARRAY<FLOAT>, ARRAY<DOUBLE>
``SparseDoubleVector``                 STRUCT<dimensions: SMALLINT, vector: MAP<SMALLINT, DOUBLE>>
``Geometry``, ``Geography``            STRUCT<wkb: BINARY, srid: INT>, with ``extensions`` from
                                       Debezium 3.7 on
``Point``                              STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>
=====================================  ============================================================

Avro schemas are converted to Connect schemas first (``connect.name``, ``connect.parameters``,
``connect.type``); without a Connect name, Avro's logical types apply: ``timestamp-*`` is an instant
and ``local-timestamp-*`` is not.

Columns of JSON Schemas: those of Kafka Connect's JsonSchemaConverter, and others.

The schemas of the converter have ``connect.type``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from cdc_formats.avro.records import AvroSchema
from cdc_formats.errors import SchemaError
from cdc_formats.topics.declared import DeclaredColumn
from cdc_formats.values.connect_schema import CONNECT, DEBEZIUM_TIME
from cdc_formats.values.mysql import UNSIGNED_BIGINT, mysql_type
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.times import LOGICAL_TIMES, STRUCTURED
from cdc_formats.values.types import MOST_DIGITS

STRING = SqlType("STRING")
MYSQL_CONNECTORS = ("mysql", "mariadb")


# --------------------------------------------------------------------------------------------------
# Kafka Connect

_PLAIN = {
    "int8": "TINYINT",
    "int16": "SMALLINT",
    "int32": "INT",
    "int64": "BIGINT",
    "float32": "FLOAT",
    "float": "FLOAT",
    "float64": "DOUBLE",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "string": "STRING",
    "bytes": "BINARY",
}
_AVRO = "avro."
_TIMES = {
    CONNECT + "Date": SqlType("DATE"),
    CONNECT + "Time": SqlType("TIME", 3),
    CONNECT + "Timestamp": SqlType("TIMESTAMP_NTZ", 3),
    DEBEZIUM_TIME + "Date": SqlType("DATE"),
    DEBEZIUM_TIME + "IsoDate": SqlType("DATE"),
    DEBEZIUM_TIME + "Time": SqlType("TIME", 3),
    DEBEZIUM_TIME + "MicroTime": SqlType("TIME", 6),
    DEBEZIUM_TIME + "NanoTime": SqlType("TIME", 6),
    DEBEZIUM_TIME + "IsoTime": SqlType("TIME"),
    DEBEZIUM_TIME + "Timestamp": SqlType("TIMESTAMP_NTZ", 3),
    DEBEZIUM_TIME + "MicroTimestamp": SqlType("TIMESTAMP_NTZ", 6),
    DEBEZIUM_TIME + "NanoTimestamp": SqlType("TIMESTAMP_NTZ", 9),
    DEBEZIUM_TIME + "IsoTimestamp": SqlType("TIMESTAMP_NTZ"),
    DEBEZIUM_TIME + "ZonedTimestamp": SqlType("TIMESTAMP"),
    DEBEZIUM_TIME + "MicroDuration": SqlType("INTERVAL DAY TO SECOND"),
    DEBEZIUM_TIME + "NanoDuration": SqlType("INTERVAL DAY TO SECOND"),
    **{DEBEZIUM_TIME + name: SqlType(sql_type) for name, (sql_type, _) in STRUCTURED.items()},
    _AVRO + "date": SqlType("DATE"),
    **{_AVRO + name: sql_type for name, (sql_type, _) in LOGICAL_TIMES.items()},
}
_MYSQL_TIMES = {DEBEZIUM_TIME + name for name in ("Time", "MicroTime", "NanoTime")}
_VECTORS = tuple(f"io.debezium.data.{name}Vector" for name in ("Double", "Float", "SparseDouble"))
_VECTOR_NOTE = (
    "PostgreSQL's log lacks a long vector that an update did not change, and the connector writes "
    "null: ALTER TABLE ... ALTER COLUMN ... SET STORAGE PLAIN"
)


def connect_columns(schema: Mapping[str, Any], connector: str = "") -> list[DeclaredColumn]:
    """Return the columns of a row's Connect schema.

    Parameters
    ----------
    schema : mapping
        The struct of a row, as JsonConverter writes it; for an envelope, call `row_schema` first.
    connector : str
        ``source.connector`` of the messages, if known.

    Raises
    ------
    SchemaError
        When the schema is not a struct.
    """
    return [_connect_column(field, connector) for field in _fields(schema)]


def row_schema(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rows' schema: an envelope's ``after`` (or ``before``), or the schema itself."""
    fields = {field.get("field"): field for field in _fields(schema)}
    image: Mapping[str, Any] = fields.get("after") or fields.get("before") or {}
    # The sink of Flink CDC describes only the two images.
    envelope = "op" in fields or (
        set(fields) <= {"before", "after"} and image.get("type") == "struct"
    )
    return image if image and envelope else schema


def _fields(schema: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    fields = schema.get("fields")
    if schema.get("type") != "struct" or not isinstance(fields, list):
        raise SchemaError("expected a Connect schema of a struct with its fields")
    return [
        field
        for field in fields
        if isinstance(field, Mapping) and isinstance(field.get("field"), str)
    ]


def _connect_column(field: Mapping[str, Any], connector: str) -> DeclaredColumn:
    name, kind, doc = field.get("name"), str(field.get("type")), str(field.get("doc") or "")
    if kind == "struct" and str(name).startswith("io.debezium.data."):
        doc = ""  # of the type, such as "Variable scaled decimal", and not of the column
    source = _parameter(field, "__debezium.source.column.type")
    nullable = field.get("optional") is not False
    source_type = str(name or kind) + (f", {source} in the source" if source else "")
    if kind == "int64" and "UNSIGNED" in source.upper() and source.upper().startswith("BIGINT"):
        note = "written as a signed 64-bit number: bigint_unsigned_handling_mode='long'"
        return DeclaredColumn(
            Column(str(field["field"]), UNSIGNED_BIGINT, nullable), source_type, note, doc
        )
    note = {
        "io.debezium.data.VariableScaleDecimal": "a number whose scale differs by value: declare DECIMAL(p,s) to read it as a number",
        DEBEZIUM_TIME
        + "MicroDuration": "months of an interval count as the connector's average month",
        DEBEZIUM_TIME + "StructuredDuration": "an interval with months is an error: declare STRING",
        **(dict.fromkeys(_VECTORS, _VECTOR_NOTE) if connector == "postgresql" else {}),
    }.get(str(name), "")
    if name == CONNECT + "Decimal" and not _parameter(field, "connect.decimal.precision"):
        note = "the schema has no precision: 38 holds every value"
        if kind == "bytes" and _parameter(field, "scale") == "0":
            note += "; an unsigned BIGINT (bigint.unsigned.handling.mode=precise) is DECIMAL(20,0)"
    return DeclaredColumn(
        Column(str(field["field"]), _connect_type(field, connector), nullable),
        source_type,
        note,
        doc,
    )


def _connect_type(field: Mapping[str, Any], connector: str) -> SqlType:
    name, kind = str(field.get("name") or ""), str(field.get("type"))
    if name == CONNECT + "Decimal":
        return _decimal(_parameter(field, "connect.decimal.precision"), _parameter(field, "scale"))
    if name in _MYSQL_TIMES and connector in MYSQL_CONNECTORS:
        return SqlType("INTERVAL DAY TO SECOND")
    if name in _TIMES:
        return _TIMES[name]
    if kind == "array":
        return SqlType(
            "ARRAY", fields=(Column("element", _connect_type(_part(field, "items"), connector)),)
        )
    if kind == "map":
        key, value = (_connect_type(_part(field, part), connector) for part in ("keys", "values"))
        return SqlType("MAP", fields=(Column("key", key, nullable=False), Column("value", value)))
    if kind == "struct":
        return SqlType(
            "STRUCT", fields=tuple(each.column for each in connect_columns(field, connector))
        )
    if kind not in _PLAIN:
        raise SchemaError(
            f"unsupported Connect type {kind!r} of {field.get('field', 'an element')!r}"
        )
    return SqlType(_PLAIN[kind])


def _part(field: Mapping[str, Any], part: str) -> Mapping[str, Any]:
    schema = field.get(part)
    if not isinstance(schema, Mapping):
        raise SchemaError(f"the Connect schema of a {field.get('type')} has no {part!r}")
    return schema


def _parameter(field: Mapping[str, Any], name: str) -> str:
    parameters = field.get("parameters")
    return str(parameters.get(name) or "") if isinstance(parameters, Mapping) else ""


def _decimal(precision: str, scale: str) -> SqlType:
    digits = int(precision) if precision.isdigit() else MOST_DIGITS
    after = int(scale) if re.fullmatch("-?[0-9]{1,4}", scale) else 0
    # A negative scale has zeros before the point.
    digits, after = (digits - after, 0) if after < 0 else (digits, after)
    most = min(max(digits, after, 1), MOST_DIGITS)
    return SqlType("DECIMAL", most, min(after, most))


# --------------------------------------------------------------------------------------------------
# Avro

_AVRO_PLAIN = {
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "boolean": "boolean",
    "string": "string",
    "enum": "string",
}


def avro_columns(schema: AvroSchema, connector: str = "") -> list[DeclaredColumn]:
    """Return the columns of an Avro schema: those of a record, or of the rows in an envelope.

    Parameters
    ----------
    schema : AvroSchema
    connector : str
        ``source.connector`` of the messages; by default taken from the envelope's namespace.

    Raises
    ------
    SchemaError
        When the schema is not a record, or has a union other than one type and null.

    Examples
    --------
    >>> from cdc_formats.avro.records import AvroSchema
    >>> price = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    >>> fields = [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", price]}]
    >>> schema = AvroSchema({"type": "record", "name": "Value", "fields": fields})
    >>> [str(each.column) for each in avro_columns(schema)]
    ['id BIGINT NOT NULL', 'price DECIMAL(10,2)']
    """
    connect = _connect_schema(schema, schema.top, {})
    source = next((field for field in _fields(connect) if field.get("field") == "source"), {})
    match = re.search(r"io\.debezium\.connector\.(\w+)", str(source.get("name") or ""))
    return connect_columns(row_schema(connect), connector or (match[1] if match else ""))


def field_names(schema: AvroSchema) -> tuple[str, ...]:
    """Return the field names of a record's Avro schema; empty for another type."""
    return tuple(schema.fields(schema.top)) if schema.top["type"] == "record" else ()


def _connect_schema(
    schema: AvroSchema, avro: Mapping[str, Any], records: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """Return an Avro type as a Connect schema; `records` has those of the records so far."""
    kind = avro["type"]
    if kind == "union":
        types = schema.not_null(avro)
        if len(types) != 1:
            raise SchemaError(
                f"an Avro union of {len(types)} types has no column type: declare the schema"
            )
        return {
            **_connect_schema(schema, types[0], records),
            "optional": len(avro["branches"]) > 1,
        }
    if kind == "record" and avro["name"] in records:
        return records[avro["name"]]
    made = {"optional": False, **_connect_names(avro)}
    if kind == "record":
        fields = [
            {**_connect_schema(schema, of, records), "field": name}
            for name, of in schema.fields(avro).items()
        ]
        made = records[avro["name"]] = {**made, "type": "struct", "fields": fields}
        return made
    if kind in ("array", "map"):
        inner = schema.resolve(avro["items" if kind == "array" else "values"])
        of = _connect_schema(schema, inner, records)
        map_of = {"type": "map", "keys": {"type": "string"}, "values": of}
        return {**made, **(_array_or_map(of) if kind == "array" else map_of)}
    return {**made, "type": avro.get("connect.type") or _AVRO_PLAIN.get(kind, "bytes")}


def _array_or_map(items: dict[str, Any]) -> dict[str, Any]:
    # Connect's Avro converter writes a map with keys other than strings as an array of entries.
    fields = {field["field"]: field for field in items.get("fields", ())}
    if str(items.get("name", "")).endswith("MapEntry") and set(fields) == {"key", "value"}:
        return {"type": "map", "keys": fields["key"], "values": fields["value"]}
    return {"type": "array", "items": items}


def _connect_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Connect schema's name and parameters, by Connect's properties or logical type."""
    logical, parameters = schema.get("logicalType"), dict(schema.get("connect.parameters") or {})
    name, doc = schema.get("connect.name"), schema.get("connect.doc")
    if logical == "decimal":
        parameters = {
            "scale": str(schema.get("scale", 0)),
            "connect.decimal.precision": str(schema.get("precision", "")),
            **parameters,
        }
        name = CONNECT + "Decimal"
    elif name is None and isinstance(logical, str) and _AVRO + logical in _TIMES:
        name = _AVRO + logical
    if name is None and schema.get("type") == "record":
        name = schema["name"]
    return {
        **({"name": name} if name else {}),
        **({"parameters": parameters} if parameters else {}),
        **({"doc": doc} if doc else {}),
    }


# --------------------------------------------------------------------------------------------------
# MySQL

_MYSQL_TYPE = re.compile(r"([a-z]+[0-9]?(?: precision)?)\s*(?:\((.*)\))?([a-z ]*)", re.DOTALL)
# Canal writes the names of the statement that created the column, with MySQL's synonyms.
_SYNONYMS = {
    "int1": "tinyint",
    "int2": "smallint",
    "int3": "mediumint",
    "middleint": "mediumint",
    "int4": "int",
    "int8": "bigint",
    "float4": "float",
    "float8": "double",
    "integer": "int",
    "bool": "tinyint",
    "boolean": "tinyint",
    "double precision": "double",
    "real": "double",
}
_MYSQL_OTHER = {
    "bit": UNSIGNED_BIGINT,
    "set": SqlType("BIGINT"),
    "enum": SqlType("INT"),
    **{name: STRING for name in ("character", "nchar", "nvarchar")},
    **{
        name: SqlType("BINARY")
        for name in (
            "vector",
            "geometry",
            "point",
            "linestring",
            "polygon",
            "multipoint",
            "multilinestring",
            "multipolygon",
            "geometrycollection",
            "geomcollection",
        )
    },
    "serial": UNSIGNED_BIGINT,  # BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
}
"""The types of which Canal writes the values in its own way, and those without a row type in
`values.mysql`: bits and labels are numbers."""


def canal_type(text: str, *, zoned: bool) -> tuple[SqlType | None, str]:
    """Return the type for a MySQL type name (None: unknown) and a note; DECIMAL may lack precision.

    Parameters
    ----------
    text : str
        ``DECIMAL(20,4)``, ``int(10) unsigned``, in any case.
    zoned : bool
        Whether ``time_zone`` is declared; without it a TIMESTAMP is text without a zone.

    Examples
    --------
    >>> str(canal_type("BIGINT(20) UNSIGNED", zoned=False)[0])
    'DECIMAL(20,0)'
    """
    match = _MYSQL_TYPE.fullmatch(text.strip().lower())
    if match is None:
        return None, ""
    kind, size, rest = _SYNONYMS.get(match[1], match[1]), match[2] or "", match[3]
    if kind in ("decimal", "numeric", "dec", "fixed"):
        precision, _, scale = size.partition(",")
        return (
            (_decimal(precision.strip(), scale.strip()), "")
            if precision
            else (
                SqlType("DECIMAL"),
                "the type has no precision: declare the source's DECIMAL(p,s), because a value with "
                "more digits than this type is an error",
            )
        )
    if kind in ("datetime", "timestamp"):
        unzoned = (
            "an instant in the zone of the producer's session: set time_zone to read it as "
            "TIMESTAMP"
        )
        is_instant, digits = kind == "timestamp", int(size) if size.isdigit() else 0
        name = "TIMESTAMP" if is_instant and zoned else "TIMESTAMP_NTZ"
        return SqlType(name, digits), unzoned if is_instant and not zoned else ""
    note = (
        "the label's number (SET: one bit per label): only the table definition has the labels"
        if kind in ("enum", "set")
        else ""
    )
    unsigned = "unsigned" in rest or "zerofill" in rest
    bits = int(size) if size.isdigit() else None
    return mysql_type(kind, bits, unsigned=unsigned) or _MYSQL_OTHER.get(kind), note


_TIMES_OF_CATALOGS = {
    "datetime": ("TIMESTAMP_NTZ", 0),
    "timestamp without time zone": ("TIMESTAMP_NTZ", 6),
    "time without time zone": ("TIME", 6),
}
"""The types of times whose digits decide the unit of Debezium's numbers, and their default digits."""
_POSTGRES_NAMES = {
    "integer": "int",
    "real": "float",
    "double precision": "double",
    "numeric": "decimal",
    "bytea": "blob",
    "timestamp with time zone": "timestamp",
    **dict.fromkeys(
        ("character varying", "character", "uuid", "xml", "jsonb", "time with time zone"), "text"
    ),
}
"""PostgreSQL's names of types that MySQL has, too."""


def catalog_type(kind: str, full: str) -> SqlType | None:
    """Return the type of a column in a database's catalog; None if a producer decides, or unknown.

    Parameters
    ----------
    kind : str
        The type of PostgreSQL, MySQL or MariaDB without its size: ``timestamp without time zone``.
    full : str
        The type with its size: ``timestamp(3) without time zone``.

    Examples
    --------
    >>> print(catalog_type("int", "int(10) unsigned"), catalog_type("numeric", "numeric(10,2)"))
    BIGINT DECIMAL(10,2)
    """
    size = re.search(r"\(([0-9]+)(?:, ?([0-9]+))?\)", full)
    digits, scale = (int(size[1]), int(size[2] or 0)) if size else (None, None)
    if kind == "boolean":
        return SqlType("BOOLEAN")
    if kind in _TIMES_OF_CATALOGS:
        name, default = _TIMES_OF_CATALOGS[kind]
        return SqlType(name, 3 if (default if digits is None else digits) <= 3 else 6)
    kind = _POSTGRES_NAMES.get(kind, kind)
    if kind == "decimal" and not (digits and (scale or 0) <= digits <= MOST_DIGITS):
        return None
    return mysql_type(kind, digits, scale, unsigned="unsigned" in full or "zerofill" in full)


_JDBC = {
    2: "DECIMAL",
    3: "DECIMAL",
    -7: "BIGINT",
    -6: "SMALLINT",
    5: "INT",
    4: "BIGINT",
    -5: "BIGINT",
    6: "DOUBLE",
    7: "FLOAT",
    8: "DOUBLE",
    91: "DATE",
    92: "INTERVAL DAY TO SECOND",
    93: "TIMESTAMP_NTZ",
    1: "STRING",
    12: "STRING",
    -1: "STRING",
    2005: "STRING",
    -2: "BINARY",
    -3: "BINARY",
    -4: "BINARY",
}


def jdbc_type(number: int) -> SqlType | None:
    """Return the type for a ``java.sql.Types`` number, None if unknown; a DECIMAL has no precision.

    The number does not show whether an integer is unsigned, so integers get the next larger type.
    2004 (BLOB) is unknown because it is MySQL's JSON too.
    """
    return SqlType(_JDBC[number]) if number in _JDBC else None


# --------------------------------------------------------------------------------------------------
# Columns of JSON Schemas: those of Kafka Connect's JsonSchemaConverter, and others

_JSON_PLAIN = {"integer": "int64", "boolean": "boolean", "string": "string"}


def json_schema_columns(schema: Any, connector: str = "") -> list[DeclaredColumn]:
    """Return the columns of the rows of a JSON Schema, of an envelope or of the rows themselves.

    The type of a column is empty, and inferred from values, if the schema does not say it exactly:
    ``number``, text with a ``format``, and several types.

    Parameters
    ----------
    schema : Any
        The parsed JSON Schema.
    connector : str
        Same as `source_types.connect_columns`.

    Raises
    ------
    SchemaError
        When it does not describe an object with properties.

    Examples
    --------
    >>> schema = {"type": "object", "properties": {"id": {"type": "integer", "connect.type": "int32"}, "price": {"type": "number"}}}
    >>> [str(each.column) for each in json_schema_columns(schema)]
    ['id INT NOT NULL', 'price ']
    """
    read = _Reader(schema).read(schema, 0)
    row = row_schema(read) if read["type"] == "struct" else {}
    if row.get("type") != "struct":
        raise SchemaError("the JSON Schema does not describe an object with properties")
    return [_column(field, connector) for field in row["fields"]]


def _column(field: Mapping[str, Any], connector: str) -> DeclaredColumn:
    try:
        return connect_columns({"type": "struct", "fields": [field]}, connector)[0]
    except SchemaError:
        return DeclaredColumn(
            Column(str(field["field"]), SqlType(""), field.get("optional") is not False),
            "not exact in the JSON Schema",
        )


class _Reader:
    """Reads a JSON Schema as the schema that Kafka Connect's JsonConverter writes."""

    def __init__(self, root: Any) -> None:
        self.root = root

    def read(self, schema: Any, depth: int) -> dict[str, Any]:
        schema, optional = self._one(schema, depth)
        types = schema.get("type")
        kinds = [each for each in (types if isinstance(types, list) else [types]) if each != "null"]
        optional |= isinstance(types, list) and "null" in types
        kind = schema.get("connect.type") or (kinds[0] if len(kinds) == 1 else None)
        # The name of an object is not one of a type that Connect knows.
        about = (
            {"name": schema.get("title"), "parameters": schema.get("connect.parameters")}
            if "connect.type" in schema
            else {}
        )
        return {"optional": optional, **about, **self._parts(str(kind), schema, depth)}

    def _one(self, schema: Any, depth: int) -> tuple[Mapping[str, Any], bool]:
        """Return a schema without references and without null, and whether it accepts null."""
        if depth > 100 or not isinstance(schema, Mapping):
            raise SchemaError("the JSON Schema is nested too deeply, or not an object")
        if isinstance(reference := schema.get("$ref"), str):
            if not reference.startswith("#"):
                raise SchemaError(
                    f"the JSON Schema refers to {reference[:40]!r}, which is not in it"
                )
            part = self.root
            for name in filter(None, reference[1:].split("/")):
                name = name.replace("~1", "/").replace("~0", "~")
                part = part.get(name) if isinstance(part, Mapping) else None
            return self._one(part, depth + 1)
        branches = next(
            (schema[each] for each in ("oneOf", "anyOf") if isinstance(schema.get(each), list)),
            None,
        )
        if branches is None:
            return schema, False
        not_null = [each for each in branches if each != {"type": "null"}]
        if len(not_null) != 1:
            return {}, len(not_null) < len(branches)
        one, optional = self._one(not_null[0], depth + 1)
        return one, optional or len(not_null) < len(branches)

    def _parts(self, kind: str, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, items, more = (
            schema.get(name) for name in ("properties", "items", "additionalProperties")
        )
        if kind == "array":
            return {"type": "array", "items": self.read(items, depth + 1)}
        if kind in ("object", "map") and isinstance(more, Mapping):
            return {"type": "map", "keys": {"type": "string"}, "values": self.read(more, depth + 1)}
        if kind in ("object", "struct") and isinstance(properties, Mapping):
            return {
                "type": "struct",
                "fields": self._fields(properties, schema.get("required") or (), depth),
            }
        if "connect.type" in schema:
            return {"type": {"float32": "float", "float64": "double"}.get(kind, kind)}
        return {"type": None if "format" in schema or "enum" in schema else _JSON_PLAIN.get(kind)}

    def _fields(
        self, properties: Mapping[str, Any], required: Collection[str], depth: int
    ) -> list[dict[str, Any]]:
        fields = [
            self._field(name, each, name in required, depth) for name, each in properties.items()
        ]
        indexes = [
            each["connect.index"]
            for each in properties.values()
            if isinstance(each, Mapping) and "connect.index" in each
        ]
        if len(indexes) < len(fields) or not all(type(index) is int for index in indexes):
            return fields
        return [fields[index] for index in sorted(range(len(fields)), key=indexes.__getitem__)]

    def _field(self, name: str, schema: Any, required: bool, depth: int) -> dict[str, Any]:
        read = self.read(schema, depth + 1)
        # Connect's fields accept null if they are optional; others can be missing, too.
        declared = isinstance(schema, Mapping) and (
            "connect.index" in schema or "connect.type" in schema
        )
        return {**read, "field": name, "optional": read["optional"] or not (declared or required)}
