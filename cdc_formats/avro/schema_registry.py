"""Schemas from a registry, the schema ids in records, and values without declared columns.

A key or a value contains the id of its writer's schema before its Avro (`frames`), or a header of
the record does (`unframed`)::

    0x00 <id: 4 bytes, big-endian> <Avro>                                 in front
    0x01 <GUID: 16 bytes>                                                 in the header __value_schema_id or __key_schema_id
    0x03 <compression> <schema version's UUID: 16 bytes> <Avro>           in front: AWS Glue

The registry of a URL that begins with ``glue://`` is AWS Glue (`glue_client`). The others have
Confluent's API (`confluent_client`). A client is created on first use, once per process and
`Registry`. `registry_client` says when requests are repeated, and which errors they raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from cdc_formats.errors import DecodeError, FormatOptionError, MalformedMessageError
from cdc_formats.events import Headers
from cdc_formats.values.frames import FRAME_SIZE, GLUE_FRAME_SIZE, SchemaId, read_frame
from cdc_formats.values.schema import Converter, null_or

from .confluent_client import ConfluentClient
from .glue_client import READ_ONLY, GlueClient
from .records import AvroSchema, plain
from .registry_client import RegistryClient, RegistryOptions

VALUE_HEADER = "__value_schema_id"


def unframed(part: str, data: bytes, headers: Headers = ()) -> tuple[SchemaId, bytes]:
    """Return the id of a key's or value's writer's schema, and its content.

    Parameters
    ----------
    part : str
        ``key`` or ``value``.
    data : bytes
    headers : sequence of (str, bytes or None)
        The record's headers. The first one with the part's schema has precedence over an id before
        the content.

    Raises
    ------
    MalformedMessageError
        When there is no schema id, or the content cannot be decompressed.
    """
    for name, value in headers:
        if name == f"__{part}_schema_id" and value is not None:
            identified = read_frame(bytes(value))
            if identified is None or identified.size != len(value):
                raise MalformedMessageError(
                    f"the header {name} is not a schema id: expected 0x01 and 16 bytes, or 0x00 "
                    "and 4 bytes"
                )
            return identified.schema, data
    frame = read_frame(data)
    if frame is None:
        raise MalformedMessageError(
            "not in a schema registry's framing: it does not begin with 0x00 and a schema id of 4 "
            "bytes"
        )
    return frame.schema, frame.content(data)


def framed(number: int, avro: bytes) -> bytes:
    """Return Avro with its schema's id before it."""
    return b"\0" + number.to_bytes(4, "big") + avro


class Registry(RegistryOptions):
    """The connection to a schema registry. Secrets never appear in its ``repr`` or in errors."""

    @property
    def client(self) -> RegistryClient[Any]:
        """The client of this process.

        Raises
        ------
        FormatOptionError
            When no URL is set, or the client rejects an option.
        MissingDependencyError
            When the client's package is not installed.
        """
        self.require_url("url")
        return _client(self)

    @property
    def frame_size(self) -> int:
        """The size of the frame in front of most of its messages."""
        return GLUE_FRAME_SIZE if self.is_glue else FRAME_SIZE

    def require_url(self, option: str) -> None:
        """Raise if no URL is set.

        Raises
        ------
        FormatOptionError
        """
        if not self.url:
            raise FormatOptionError(
                f"{option} is not set: set it to the schema registry's URL, such as "
                "'http://localhost:8081'"
            )

    def numbered(
        self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool
    ) -> Callable[[], int]:
        """Return the function to the id of a schema, which is requested by its first call.

        Parameters
        ----------
        subject, schema, register
            Same as `RegistryClient.number`.
        """
        return lru_cache(lambda: self.client.number(subject, schema, register=register))

    def require_writable(self) -> None:
        """Raise if nothing can be written with this registry's schemas.

        Raises
        ------
        FormatOptionError
        """
        if self.is_glue:
            raise FormatOptionError(READ_ONLY)


@lru_cache(maxsize=64)
def _client(registry: Registry) -> RegistryClient[Any]:
    return (GlueClient if registry.is_glue else ConfluentClient)(registry)


# --------------------------------------------------------------------------------------------------
# Keys and values in Avro without declared columns: what their writer wrote, as plain values.


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
