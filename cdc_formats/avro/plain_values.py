"""Keys and values in Avro without declared columns: what their writer wrote, as plain values."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cdc_formats.errors import DecodeError
from cdc_formats.events import Headers
from cdc_formats.values.frames import SchemaId
from cdc_formats.values.handling import Converter, null_or

from .reader import AvroSchema, plain
from .schema_registry import Registry, unframed


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
    name, content = unframed(part, data, headers)
    schema, to_plain = _compiled(registry, name)
    return to_plain(schema.read(content))


def key_record(registry: Registry, key: bytes | None, headers: Headers = ()) -> dict[str, Any]:
    """Return the fields of a key; empty if the key is not a record.

    Raises
    ------
    SchemaRegistryError
        When the registry does not answer.
    """
    try:
        value = plain_value(registry, "key", bytes(key or b""), headers)
    except DecodeError:
        return {}
    return value if isinstance(value, dict) else {}


@lru_cache(maxsize=1000)
def _compiled(registry: Registry, name: SchemaId) -> tuple[AvroSchema, Converter]:
    schema = registry.client.schema(name)
    return schema, null_or(plain(schema, schema.top))
