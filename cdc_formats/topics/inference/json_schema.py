"""Columns of JSON Schemas: those of Kafka Connect's JsonSchemaConverter, and others.

The schemas of the converter have ``connect.type``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from cdc_formats.errors import SchemaError
from cdc_formats.topics.declarations import DeclaredColumn
from cdc_formats.values.schema import Column, SqlType

from .source_types import connect_columns, row_schema

_FLOATS = {"float32": "float", "float64": "double"}
_PLAIN = {"integer": "int64", "boolean": "boolean", "string": "string"}
_INEXACT = "not exact in the JSON Schema"
_MOST_DEEP = 100


def json_schema_columns(schema: Any, connector: str = "") -> list[DeclaredColumn]:
    """Return the columns of the rows of a JSON Schema, of an envelope or of the rows themselves.

    The type of a column is empty, and inferred from values, if the schema does not say it exactly:
    ``number``, text with a ``format``, and several types.

    Parameters
    ----------
    schema : Any
        The parsed JSON Schema.
    connector : str
        As of `source_types.connect_columns`.

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
            Column(str(field["field"]), SqlType(""), field.get("optional") is not False), _INEXACT
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
        if depth > _MOST_DEEP or not isinstance(schema, Mapping):
            raise SchemaError("the JSON Schema is nested too deeply, or not an object")
        if isinstance(reference := schema.get("$ref"), str):
            return self._one(self._at(reference), depth + 1)
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

    def _at(self, reference: str) -> Any:
        if not reference.startswith("#"):
            raise SchemaError(f"the JSON Schema refers to {reference[:40]!r}, which is not in it")
        place = self.root
        for name in filter(None, reference[1:].split("/")):
            place = (
                place.get(name.replace("~1", "/").replace("~0", "~"))
                if isinstance(place, Mapping)
                else None
            )
        return place

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
            return {"type": _FLOATS.get(kind, kind)}
        return {"type": None if "format" in schema or "enum" in schema else _PLAIN.get(kind)}

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
        return [fields[place] for place in sorted(range(len(fields)), key=indexes.__getitem__)]

    def _field(self, name: str, schema: Any, required: bool, depth: int) -> dict[str, Any]:
        read = self.read(schema, depth + 1)
        # Connect's fields accept null if they are optional; others can be missing, too.
        declared = isinstance(schema, Mapping) and (
            "connect.index" in schema or "connect.type" in schema
        )
        return {**read, "field": name, "optional": read["optional"] or not (declared or required)}
