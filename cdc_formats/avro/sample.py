"""Reads Avro parts of sampled records without declared columns: their plain values, and the columns of their registry schemas."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cdc_formats.errors import DecodeError, SchemaError, WriterSchemaError
from cdc_formats.events import Headers
from cdc_formats.sampling import DeclaredColumn
from cdc_formats.values.handling import Converter, null_or

from .reader import AvroSchema, plain
from .schema_registry import Registry, SchemaId, schema_id

REGISTRY_SCHEMA = "schema registry"
"""The source of columns that a registry's schema declares."""


def plain_value(registry: Registry, part: str, data: bytes, headers: Headers = ()) -> Any:
    """Return a key or value as the writer wrote it.

    Parameters
    ----------
    registry : Registry
    part : {"key", "value"}
    data : bytes
    headers : sequence of (str, bytes or None)

    Raises
    ------
    DecodeError
        When it is not Avro with a schema of the registry.
    SchemaRegistryError
        When the registry does not answer.
    """
    name, at = schema_id(part, data, headers)
    schema, to_plain = _compiled(registry, name)
    return to_plain(schema.read(data, at))


def record_columns(registry: Registry, part: str, data: bytes, headers: Headers = ()) -> tuple[DeclaredColumn, ...]:
    """Return the columns of the schema of a key or value; parameters as in `plain_value`.

    Raises
    ------
    WriterSchemaError
        When the schema does not describe a table.
    """
    return _columns(registry, schema_id(part, data, headers)[0])


def key_record(registry: Registry, key: bytes | None, headers: Headers = ()) -> dict[str, Any]:
    """Return the fields of a key; empty if the key is not a record.

    Raises
    ------
    SchemaRegistryError
        When the registry does not answer.
    """
    try:
        found = plain_value(registry, "key", bytes(key or b""), headers)
    except DecodeError:
        return {}
    return found if isinstance(found, dict) else {}


@lru_cache(maxsize=1000)
def _compiled(registry: Registry, name: SchemaId) -> tuple[AvroSchema, Converter]:
    schema = registry.client.schema(name)
    return schema, null_or(plain(schema, schema.top))


@lru_cache(maxsize=1000)
def _columns(registry: Registry, name: SchemaId) -> tuple[DeclaredColumn, ...]:
    from cdc_formats.topics.inference.source_types import avro_columns  # decoding does not need the type mappings

    schema, _ = _compiled(registry, name)
    try:
        return tuple(avro_columns(schema.top, names=schema.names))
    except SchemaError as error:
        raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None
