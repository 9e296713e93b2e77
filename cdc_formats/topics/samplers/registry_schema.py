"""Columns of the schemas in a registry."""

from __future__ import annotations

from functools import lru_cache

from cdc_formats.avro.schema_registry import Registry, unframed
from cdc_formats.decoding.frames import SchemaId
from cdc_formats.errors import MalformedMessageError, SchemaError, WriterSchemaError
from cdc_formats.events import Headers
from cdc_formats.topics.declarations import DeclaredColumn
from cdc_formats.topics.inference.json_schema import json_schema_columns
from cdc_formats.topics.inference.source_types import avro_columns

REGISTRY_SCHEMA = "schema registry"
"""The source of columns that a registry's schema declares."""


def record_columns(
    registry: Registry, part: str, data: bytes, headers: Headers = ()
) -> tuple[DeclaredColumn, ...]:
    """Return the columns of the schema of a key or value.

    Parameters
    ----------
    registry : Registry
    part : {"key", "value"}
    data : bytes
    headers : sequence of (str, bytes or None)

    Raises
    ------
    WriterSchemaError
        When the schema does not describe a table.
    """
    return _columns(registry, unframed(part, data, headers)[0])


def json_columns(
    registry: Registry, value: bytes, headers: Headers = (), connector: str = ""
) -> tuple[DeclaredColumn, ...]:
    """Return the columns of a value's JSON Schema; none if it has no schema in the registry.

    Parameters
    ----------
    registry : Registry
    value : bytes
    headers : sequence of (str, bytes or None)
    connector : str
        As of `json_schema.json_schema_columns`.

    Raises
    ------
    WriterSchemaError
        When the schema does not describe a table.
    """
    try:
        name = unframed("value", value, headers)[0]
    except MalformedMessageError:
        return ()
    return _of_json_schema(registry, name, connector)


@lru_cache(maxsize=1000)
def _of_json_schema(
    registry: Registry, name: SchemaId, connector: str
) -> tuple[DeclaredColumn, ...]:
    schema = registry.client.json_schema(name)
    try:
        return () if schema is None else tuple(json_schema_columns(schema, connector))
    except SchemaError as error:
        raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None


@lru_cache(maxsize=1000)
def _columns(registry: Registry, name: SchemaId) -> tuple[DeclaredColumn, ...]:
    schema = registry.client.schema(name)
    try:
        return tuple(avro_columns(schema.top, names=schema.names))
    except SchemaError as error:
        raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None
