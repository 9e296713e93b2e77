"""Columns of the schemas in a registry."""

from __future__ import annotations

from functools import lru_cache

from cdc_formats.avro.schema_registry import Registry, SchemaId, schema_id
from cdc_formats.errors import SchemaError, WriterSchemaError
from cdc_formats.events import Headers
from cdc_formats.topics.declarations import DeclaredColumn
from cdc_formats.topics.inference.source_types import avro_columns

REGISTRY_SCHEMA = "schema registry"
"""The source of columns that a registry's schema declares."""


def record_columns(registry: Registry, part: str, data: bytes, headers: Headers = ()) -> tuple[DeclaredColumn, ...]:
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
    return _columns(registry, schema_id(part, data, headers)[0])


@lru_cache(maxsize=1000)
def _columns(registry: Registry, name: SchemaId) -> tuple[DeclaredColumn, ...]:
    schema = registry.client.schema(name)
    try:
        return tuple(avro_columns(schema.top, names=schema.names))
    except SchemaError as error:
        raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None
