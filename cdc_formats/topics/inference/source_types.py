"""Declared types as `Column`: Kafka Connect and Avro schemas, MySQL type names, JDBC type numbers.

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
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from cdc_formats.avro.logical_types import LOGICAL_TIMES
from cdc_formats.decoding.connect_schema import CONNECT, DEBEZIUM_TIME
from cdc_formats.errors import SchemaError
from cdc_formats.topics.declarations import DeclaredColumn
from cdc_formats.values.lattice import MOST_DIGITS
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.times import STRUCTURED

UNSIGNED_BIGINT = SqlType("DECIMAL", 20, 0)
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
_VARIABLE_SCALE = "io.debezium.data.VariableScaleDecimal"
_SOURCE_TYPE = "__debezium.source.column."
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
    name, kind = field.get("name"), str(field.get("type"))
    source = _parameter(field, _SOURCE_TYPE + "type")
    nullable = field.get("optional") is not False
    source_type = str(name or kind) + (f", {source} in the source" if source else "")
    if kind == "int64" and "UNSIGNED" in source.upper() and source.upper().startswith("BIGINT"):
        note = "written as a signed 64-bit number: bigint_unsigned_handling_mode='long'"
        return DeclaredColumn(
            Column(str(field["field"]), UNSIGNED_BIGINT, nullable), source_type, note
        )
    note = {
        _VARIABLE_SCALE: "a number whose scale differs by value: declare DECIMAL(p,s) to read it as a number",
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
        Column(str(field["field"]), _connect_type(field, connector), nullable), source_type, note
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
}
_AVRO_BYTES = ("bytes", "fixed")


def avro_columns(
    schema: Any, connector: str = "", *, names: Mapping[str, Any] | None = None
) -> list[DeclaredColumn]:
    """Return the columns of an Avro schema: those of a record, or of the rows in an envelope.

    Parameters
    ----------
    schema : dict or list
        An Avro schema, parsed from its JSON.
    connector : str
        ``source.connector`` of the messages; by default taken from the envelope's namespace.
    names : mapping or None
        Schemas, by full name, of types that the schema uses but does not define.

    Raises
    ------
    SchemaError
        When the schema is not a record, or has a union other than one type and null.

    Examples
    --------
    >>> price = {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    >>> fields = [{"name": "id", "type": "long"}, {"name": "price", "type": ["null", price]}]
    >>> [str(each.column) for each in avro_columns({"type": "record", "name": "Value", "fields": fields})]
    ['id BIGINT NOT NULL', 'price DECIMAL(10,2)']
    """
    connect = connect_schema_of(schema, names=names)
    source = next((field for field in _fields(connect) if field.get("field") == "source"), {})
    match = re.search(r"io\.debezium\.connector\.(\w+)", str(source.get("name") or ""))
    return connect_columns(row_schema(connect), connector or (match[1] if match else ""))


def connect_schema_of(schema: Any, *, names: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an Avro schema as a Connect schema; for `names` see `avro_columns`.

    Raises
    ------
    SchemaError
        When the Avro schema has no Connect equivalent.
    """
    return _Avro(names or {}).read(schema, "")


def field_names(schema: Any, *, names: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return the field names of a record's Avro schema, else nothing; see `connect_schema_of`."""
    return tuple(
        field["field"] for field in connect_schema_of(schema, names=names).get("fields", ())
    )


class _Avro:
    """The reader of one Avro schema.

    `named` are types that other schemas define. `defined` are those defined so far in this one.
    """

    def __init__(self, named: Mapping[str, Any]) -> None:
        self.named = named
        self.defined: dict[str, dict[str, Any]] = {}

    def read(self, schema: Any, space: str) -> dict[str, Any]:
        """Return a Connect schema; `space` is the enclosing namespace."""
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if isinstance(schema, list):
            return self._union(schema, space)
        if not isinstance(schema, Mapping):
            raise SchemaError("an Avro schema must be a name, an object or a union")
        kind = schema.get("type")
        if kind == "union":  # fastavro writes a top-level union this way
            return self._union(schema.get("branches", ()), space)
        if not isinstance(kind, str):
            return self.read(kind, space)
        made = {"optional": False, **_connect_names(schema)}
        if kind in ("record", "enum", "fixed"):
            space = _namespace(schema, space)
            self.defined[_full_name(str(schema.get("name")), space)] = made
        made.update(self._parts(kind, schema, space))
        return made

    def _parts(self, kind: str, schema: Mapping[str, Any], space: str) -> dict[str, Any]:
        if kind == "record":
            fields = [
                {**self.read(field.get("type"), space), "field": field.get("name")}
                for field in schema.get("fields", ())
            ]
            return {"type": "struct", "fields": fields}
        if kind == "array":
            return _array_or_map(self.read(schema.get("items"), space))
        if kind == "map":
            return {
                "type": "map",
                "keys": {"type": "string"},
                "values": self.read(schema.get("values"), space),
            }
        if kind == "enum":
            return {"type": "string"}
        if kind in _AVRO_BYTES or kind in _AVRO_PLAIN:
            return {"type": schema.get("connect.type") or _AVRO_PLAIN.get(kind, "bytes")}
        return self._by_name(kind, space)

    def _union(self, branches: Sequence[Any], space: str) -> dict[str, Any]:
        types = [branch for branch in branches if branch not in ("null", {"type": "null"})]
        if len(types) != 1:
            raise SchemaError(
                f"an Avro union of {len(types)} types has no column type: declare the schema"
            )
        return {**self.read(types[0], space), "optional": len(branches) > 1}

    def _by_name(self, name: str, space: str) -> dict[str, Any]:
        if name in _AVRO_PLAIN or name in _AVRO_BYTES:
            return {"type": _AVRO_PLAIN.get(name, "bytes"), "optional": False}
        full = _full_name(name, space)
        if full not in self.defined and full in self.named:
            return self.read(self.named[full], "")
        connect = self.defined.get(full)
        if connect is None:
            raise SchemaError(f"the Avro schema uses a type {name!r} that it does not define")
        if "type" not in connect:
            raise SchemaError(
                f"the Avro type {name!r} contains itself, which no column type supports"
            )
        return dict(connect)


def _array_or_map(items: dict[str, Any]) -> dict[str, Any]:
    # Connect's Avro converter writes a map with keys other than strings as an array of entries.
    fields = {field["field"]: field for field in items.get("fields", ())}
    if str(items.get("name", "")).endswith("MapEntry") and set(fields) == {"key", "value"}:
        return {"type": "map", "keys": fields["key"], "values": fields["value"]}
    return {"type": "array", "items": items}


def _namespace(schema: Mapping[str, Any], space: str) -> str:
    name = str(schema.get("name"))
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace") or space)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _connect_names(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Connect schema's name and parameters, by Connect's properties or logical type."""
    logical, parameters = schema.get("logicalType"), dict(schema.get("connect.parameters") or {})
    name = schema.get("connect.name")
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
        name = _full_name(str(schema.get("name")), _namespace(schema, ""))
    return {
        **({"name": name} if name else {}),
        **({"parameters": parameters} if parameters else {}),
    }


# --------------------------------------------------------------------------------------------------
# MySQL

_MYSQL_TYPE = re.compile(r"([a-z]+[0-9]?(?: precision)?)\s*(?:\((.*)\))?([a-z ]*)", re.DOTALL)
_SIGNED = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "mediumint": "INT",
    "int": "INT",
    "integer": "INT",
    "bigint": "BIGINT",
    "year": "INT",
    "bool": "TINYINT",
    "boolean": "TINYINT",
}
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
}
_GEOMETRIES = (
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
_UNSIGNED = {
    "tinyint": "SMALLINT",
    "smallint": "INT",
    "mediumint": "INT",
    "int": "BIGINT",
    "integer": "BIGINT",
    "bigint": "",
}
_MYSQL_OTHER = {
    "float": SqlType("FLOAT"),
    "double": SqlType("DOUBLE"),
    "double precision": SqlType("DOUBLE"),
    "real": SqlType("DOUBLE"),
    "date": SqlType("DATE"),
    "time": SqlType("INTERVAL DAY TO SECOND"),
    "json": STRING,
    "bit": UNSIGNED_BIGINT,
    "set": SqlType("BIGINT"),
    "enum": SqlType("INT"),
    **{f"{size}text": STRING for size in ("", "tiny", "medium", "long")},
    **{f"{size}blob": SqlType("BINARY") for size in ("", "tiny", "medium", "long")},
    **{name: STRING for name in ("char", "varchar", "character", "nchar", "nvarchar")},
    **{name: SqlType("BINARY") for name in ("binary", "varbinary", "vector", *_GEOMETRIES)},
    "serial": UNSIGNED_BIGINT,  # BIGINT UNSIGNED NOT NULL AUTO_INCREMENT UNIQUE
}
_NO_PRECISION = (
    "the type has no precision: declare the source's DECIMAL(p,s), because a value with more "
    "digits than this type is an error"
)
_LABELLED = ("enum", "set")


def mysql_type(text: str, *, zoned: bool) -> tuple[SqlType | None, str]:
    """Return the type for a MySQL type name (None: unknown) and a note; DECIMAL may lack precision.

    Parameters
    ----------
    text : str
        ``DECIMAL(20,4)``, ``int(10) unsigned``, in any case.
    zoned : bool
        Whether ``time_zone`` is declared; without it a TIMESTAMP is text without a zone.

    Examples
    --------
    >>> str(mysql_type("BIGINT(20) UNSIGNED", zoned=False)[0])
    'DECIMAL(20,0)'
    """
    match = _MYSQL_TYPE.fullmatch(text.strip().lower())
    if match is None:
        return None, ""
    kind, size, rest = _SYNONYMS.get(match[1], match[1]), match[2] or "", match[3]
    if kind in _SIGNED:
        return _mysql_integer(kind, unsigned="unsigned" in rest or "zerofill" in rest), ""
    if kind in ("decimal", "numeric", "dec", "fixed"):
        precision, _, scale = size.partition(",")
        return (
            (_decimal(precision.strip(), scale.strip()), "")
            if precision
            else (SqlType("DECIMAL"), _NO_PRECISION)
        )
    if kind in ("datetime", "timestamp"):
        return _mysql_timestamp(
            int(size) if size.isdigit() else 0, instant=kind == "timestamp", zoned=zoned
        )
    note = (
        "the label's number (SET: one bit per label): only the table definition has the labels"
        if kind in _LABELLED
        else ""
    )
    return _MYSQL_OTHER.get(kind), note


def _mysql_integer(kind: str, *, unsigned: bool) -> SqlType:
    if unsigned and _UNSIGNED.get(kind) == "":
        return UNSIGNED_BIGINT
    return SqlType((unsigned and _UNSIGNED.get(kind)) or _SIGNED[kind])


def _mysql_timestamp(digits: int, *, instant: bool, zoned: bool) -> tuple[SqlType, str]:
    note = (
        ""
        if zoned or not instant
        else (
            "an instant in the zone of the producer's session: set time_zone to read it as "
            "TIMESTAMP"
        )
    )
    return SqlType("TIMESTAMP" if instant and zoned else "TIMESTAMP_NTZ", digits), note


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
