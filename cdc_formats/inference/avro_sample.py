"""Reads a sample of Avro records: the columns of their registry schemas, and their values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..avro import AvroSchema, plain
from ..base import Event, Format, Headers, Ignored
from ..debezium_json import events_of, without_op
from ..errors import DecodeError, MalformedMessageError, SchemaError, WriterSchemaError
from ..handling import Converter
from ..rows import RowConverter
from ..schema_registry import SchemaId, schema_id
from ..tables import TableFilter
from ..types import null_or
from .source_types import Declared, avro_columns, field_names


class _Envelope(NamedTuple):
    """The fields that metadata columns read."""

    source: Any
    ts_ms: Any


class AvroSample:
    """Reads records whose schemas are in a registry, without declared columns.

    Parameters
    ----------
    format : Format
        A format with a `registry`.
    rows : RowConverter
        The converter of `reading.AnyColumns`, which keeps images as written.
    """

    def __init__(self, format: Format, rows: RowConverter) -> None:
        self.registry, self.rows = getattr(format, "registry"), rows  # noqa: B009 - several formats have one
        self.envelopes = not hasattr(format, "value_format")
        self.tables = TableFilter(getattr(format, "database_include", None), getattr(format, "table_include", None))
        self.known: dict[SchemaId, tuple[AvroSchema, Converter]] = {}
        self.columns: dict[SchemaId, list[Declared]] = {}

    def _schema(self, name: SchemaId) -> tuple[AvroSchema, Converter]:
        found = self.known.get(name)
        if found is None:
            schema = self.registry.client.schema(name)
            found = self.known[name] = (schema, null_or(plain(schema, schema.top)))
        return found

    def _message(self, part: str, data: bytes, headers: Headers) -> Any:
        name, at = schema_id(part, data, headers)
        schema, to_plain = self._schema(name)
        return to_plain(schema.read(data, at))

    def read(self, key: bytes | None, value: bytes | None, headers: Headers) -> Sequence[Event] | Ignored:
        """Return the events of one record; their images keep the writer's values."""
        if value is None:
            return Ignored.TOMBSTONE
        message = self._message("value", bytes(value), headers)
        if not self.envelopes:
            fields = message if isinstance(message, dict) else {}
            return [Event.insert(fields, path="$")]
        if not isinstance(message, dict):
            raise MalformedMessageError("expected a record", "$")
        if "op" not in message:
            return without_op(message, "$")
        source = message.get("source")
        place = source if isinstance(source, dict) else {}
        if self.tables.set and not self.tables.match(place.get("db"), place.get("table"), "$.source"):
            return Ignored.OTHER_TABLE
        found = _Envelope(source, message.get("ts_ms"))
        return events_of(message["op"], message.get("before"), message.get("after"), found, "$", self.rows)

    def declared(self, value: bytes, headers: Headers) -> list[Declared]:
        """Return the columns of a value's schema.

        Raises
        ------
        WriterSchemaError
            When the schema does not describe a table.
        """
        name, _ = schema_id("value", bytes(value), headers)
        if name not in self.columns:
            schema, _ = self._schema(name)
            try:
                self.columns[name] = avro_columns(schema.top, names=schema.names)
            except SchemaError as error:
                raise WriterSchemaError(f"schema {name}: {error.args[0]}") from None
        return self.columns[name]

    def key_names(self, key: bytes | None, headers: Headers) -> tuple[str, ...] | None:
        """Return the field names of a key, None when the key is not an Avro record."""
        try:
            name, _ = schema_id("key", bytes(key or b""), headers)
            schema, _ = self._schema(name)
            return field_names(schema.top, names=schema.names) or None
        except (DecodeError, SchemaError):
            return None

    def key_fields(self, key: bytes | None, headers: Headers) -> dict[str, Any]:
        """Return the fields of a key; an empty dict when the key is not a record.

        Raises
        ------
        SchemaRegistryError
            When the registry does not answer.
        """
        try:
            found = self._message("key", bytes(key or b""), headers)
        except DecodeError:
            return {}
        return found if isinstance(found, dict) else {}
