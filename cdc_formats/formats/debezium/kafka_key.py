"""The primary key in a Kafka key, for a delete whose message has no row."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import DecodeError, MalformedMessageError, MissingFieldError
from cdc_formats.events import Event
from cdc_formats.row_kind import RowKind
from cdc_formats.values.connect_schema import described, is_wrapped
from cdc_formats.values.handling import Handling
from cdc_formats.values.json_reader import json_bytes, read_json, read_object

from .envelope import SCHEMAS_KEPT


class KafkaKey:
    """Reads the Kafka keys of one table.

    A key is an object, with or without a schema block, or the only column's value, also in an
    array.

    Parameters
    ----------
    rows : RowConverter
        The table's columns and key.
    handling : Handling
        The handling of a key without a schema block.
    with_schema : bool
        Whether a key can be in a schema block.
    """

    def __init__(self, rows: RowConverter, handling: Handling, *, with_schema: bool) -> None:
        self.columns, self.unique_key = rows.columns, rows.unique_key
        self.handling, self.with_schema = handling, with_schema
        self.bare = RowConverter(
            rows.columns,
            handling,
            rows.unique_key,
            names_only=rows.names_only,
        )
        types = [rows.columns[index].type.name for index in rows.key_indices]
        self.has_arrays = "ARRAY" in types
        self.described = lru_cache(SCHEMAS_KEPT)(self._described)

    def delete(self, key: bytes, message: Any) -> Event:
        """Return the delete of a key.

        Parameters
        ----------
        key : bytes
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the key cannot be read, or lacks a column of the primary key.
        """
        try:
            image, rows = self._image(key)
            rows.key(image, "$")
        except DecodeError as error:
            raise error.at(field="key") from None
        missing = [name for name in self.unique_key if image.get(name) is None]
        if missing:
            there = ", ".join(sorted(image)) or "none"
            reason = f"`{missing[0]}` is part of the primary key and is not in the Kafka key"
            text, path = f"{reason}, which has {there}", f"$.{missing[0]}"
            raise MissingFieldError(text, path, "key", bare=reason)
        return Event(RowKind.DELETE, image, None, message, "$", "", rows=rows)

    def _image(self, key: bytes) -> tuple[dict[str, Any], RowConverter]:
        """Return the key's columns and their converter."""
        value = read_json(key)
        schema = None
        if isinstance(value, dict) and is_wrapped(value) and self._opens(value):
            schema, value = value.get("schema"), value["payload"]
        if not isinstance(value, dict):
            name = self._only_column()
            value = {name: self._only_value(value)}
            if isinstance(schema, dict):
                schema = {"fields": [{**schema, "field": name}]}
        return value, self._rows(schema)

    def _opens(self, wrapper: Mapping[str, Any]) -> bool:
        return self.with_schema if "schema" in wrapper else "payload" not in self.unique_key

    def _only_column(self) -> str:
        if len(self.unique_key) != 1:
            reason = "expected a JSON object with the primary key's columns"
            raise MalformedMessageError(reason, "$")
        return self.unique_key[0]

    def _only_value(self, value: Any) -> Any:
        """Return the value of the only column."""
        # CockroachDB writes an array of the key's values, without their names.
        alone = isinstance(value, list) and len(value) == 1 and not self.has_arrays
        return value[0] if alone else value

    def _rows(self, schema: Any) -> RowConverter:
        if not isinstance(schema, dict):
            return self.bare
        return self.described(json_bytes(schema))

    def _described(self, block: bytes) -> RowConverter:
        how = described(as_image(read_object(block)), self.columns, self.handling)
        return RowConverter(self.columns, how, self.unique_key)


def as_image(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a row's schema as the schema of an envelope with one image, for `described`."""
    return {"fields": [{**schema, "field": "after"}]}
