r"""Debezium JSON of MongoDB: Debezium's envelope around documents in Extended JSON.

The documents are text. The format is after Debezium 2.x and 3.x.

A message, bare or with a schema block, and its key::

    {"before": null, "after": "{\"_id\": {\"$oid\": \"596e275826f08b2730779e1f\"}, \"name\": \"bike\", \"weight\": 9.5}",
     "updateDescription": {"removedFields": null, "updatedFields": "{\"name\": \"bike\"}", "truncatedArrays": null},
     "source": {"db": "inventory", "collection": "products", "ts_ms": 1589362330000, "ord": 31}, "op": "u", "ts_ms": 1589362330904}

    {"id": "{\"$oid\": \"596e275826f08b2730779e1f\"}"}

==================  ================================================================================
op                  rows
==================  ================================================================================
``c``, ``r``        ``+I`` after
``u``               ``-U`` before, ``+U`` after; without ``after`` (``capture.mode=change_streams``)
                    the updated fields, and NULL for the removed ones: ChangelogNormalize completes
                    the others, or they are taken from ``before``
``d``               ``-D`` before, or by the Kafka key
no op               heartbeat, transaction mark: `Ignored`
==================  ================================================================================

Changelog mode: all. Key: read for deletes and for updates without ``after``; primary_key is
``_id``. Null value: `Ignored.TOMBSTONE`.

The columns are the document's top-level fields. ``before`` is written with
``capture.mode=change_streams_with_pre_image`` and ``change_streams_update_full_with_pre_image``;
otherwise only a keyed stage can give ``-U`` and ``-D`` with the whole row. ``after`` of an update
is the document at the time of the connector's lookup, which can be newer than the update.

Absent and null: a field that is not in a document is NULL. In an update without ``after`` it did
not change. An update of a part of a column (``updatedFields`` with ``address.city`` or ``tags.0``,
truncated arrays) is an error: only the database has the column's whole value
(``capture.mode=change_streams_update_full``).

Types: Extended JSON in all its forms (`extended_json`). A schema block does not describe the
documents in it.

Differs from Flink: Flink has no such format (Flink CDC's MongoDB source reads change streams
itself).

Source: io.debezium.connector.mongodb's MongoDbFieldName and JsonSerialization; Debezium's MongoDB
connector page.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal
from uuid import UUID

import msgspec

from cdc_formats.decoding.envelope import epoch_ms, member, text, text_map
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import (
    DecodeError,
    MissingBeforeImageError,
    MissingFieldError,
    PartialImageError,
    SchemaError,
)
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    Event,
    Ignored,
    Reader,
    unknown_operation,
)
from cdc_formats.format import (
    MetadataColumn,
    RowNames,
    choice,
    names_in_row,
    table_filter,
)
from cdc_formats.values.connect_schema import is_wrapped
from cdc_formats.values.handling import Converter, Handling, refuse
from cdc_formats.values.json_reader import json_reader, json_text, read_json, read_object, read_part
from cdc_formats.values.nested import NESTED_TYPES, nested_converter
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import DAY_MICROS, TIMESTAMP_TYPES, timestamp_text
from cdc_formats.values.types import converter

from .envelope import DebeziumEnvelope, WrappedReader, without_op

# --------------------------------------------------------------------------------------------------
# MongoDB's Extended JSON: conversion of document values to canonical ones (see `values.types`).
#
# A BSON value without a JSON type is an object with a name that begins with ``$``, in one of three
# forms: the strict mode of version 1 (``{"$date": 1589362330904}``), version 2 canonical
# (``{"$date": {"$numberLong": "1589362330904"}}``) and version 2 relaxed
# (``{"$date": "2020-05-13T09:32:10.904Z"}``, numbers as they are). All are read, by the column's
# type:
#
# =========================  =========================================================================
# column                     values
# =========================  =========================================================================
# STRING                     text; ``$oid``, ``$symbol``, ``$code`` and numbers as their text, a
#                            ``$date`` as ISO text, a UUID in its usual form; all else as compact JSON
# numbers, BOOLEAN           JSON's own, ``$numberInt``, ``$numberLong``, ``$numberDouble``,
#                            ``$numberDecimal``
# TIMESTAMP, TIMESTAMP_NTZ   ``$date`` (of TIMESTAMP_NTZ in UTC), ``$timestamp`` (its seconds), text
# DATE                       ``$date`` of a midnight in UTC, text
# BINARY                     ``$binary``, ``$uuid``
# VARIANT                    every value, as its Extended JSON
# ARRAY, MAP, STRUCT         arrays and documents, their values likewise
# =========================  =========================================================================
#
# ``$undefined`` is NULL. A plain number in a time column and plain text in a BINARY column are
# errors.
#
# Source: MongoDB's specification of Extended JSON; org.bson.json.JsonWriterSettings.

_NUMBERS = ("$numberInt", "$numberLong", "$numberDouble", "$numberDecimal")
_MILLISECONDS: Callable[[Any], int] = converter(SqlType("TIMESTAMP"), Handling(epoch_unit="ms"))
_HEX_BYTE = re.compile("[0-9a-fA-F]{1,2}")
_UUID_SUBTYPES = (3, 4)


def document_converter(sql_type: SqlType, handling: Handling) -> Converter:
    """Return the function from a document's value to the canonical value of `sql_type`.

    The document's value is never None. The function returns None for ``$undefined``.

    Parameters
    ----------
    sql_type : SqlType
    handling : Handling
        The zone of zone-less text in a TIMESTAMP column, and the rounding.

    Raises
    ------
    ConversionError
        From the returned function, when a value does not have the type or is out of its range.
    """
    convert = _FACTORIES.get(sql_type.name, _number)(sql_type, handling)
    return lambda value: None if type(value) is dict and "$undefined" in value else convert(value)


def _only(value: Any, *names: str) -> Any:
    """Return the only member of an object if it has one of the names; otherwise None."""
    if type(value) is dict and len(value) == 1:
        (name,) = value
        return value[name] if name in names else None
    return None


def _number(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        return to(
            value if type(value) is not dict or (text := _only(value, *_NUMBERS)) is None else text
        )

    return convert


def _instant(value: dict[str, Any]) -> int | None:
    """Return the microseconds of ``$date`` and ``$timestamp``, or None for other values."""
    date = _only(value, "$date")
    if date is not None:
        if type(date) is dict:
            date = _only(date, "$numberLong")
        if type(date) is str and date.lstrip("-").isdigit():
            date = int(date)
        return _MILLISECONDS(date)
    stamp = _only(value, "$timestamp")
    if type(stamp) is dict and type(stamp.get("t")) is int:
        return _MILLISECONDS(stamp["t"] * 1000)
    return None


def _timestamp(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        if type(value) is dict:
            instant = _instant(value)
            if instant is not None:
                return instant
        elif type(value) is not str:
            raise refuse(sql_type, value, "a plain number is not a time in MongoDB: declare BIGINT")
        return to(value)

    return convert


def _date(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        instant = _instant(value) if type(value) is dict else None
        if instant is None:
            return to(value)
        days, rest = divmod(instant, DAY_MICROS)
        if rest:
            raise refuse(sql_type, value, "it has a time of day: declare TIMESTAMP")
        return days

    return convert


def _bytes(sql_type: SqlType, value: Any) -> tuple[bytes, int] | None:
    """Return the bytes and the subtype of ``$binary`` and ``$uuid``, or None for other values."""
    if type(value) is not dict:
        return None
    uuid = _only(value, "$uuid")
    try:
        if type(uuid) is str:
            return UUID(uuid).bytes, 4
        of = value.get("$binary")
        text, subtype = (
            (of.get("base64"), of.get("subType")) if type(of) is dict else (of, value.get("$type"))
        )
        if type(text) is not str or type(subtype) is not str or not _HEX_BYTE.fullmatch(subtype):
            return None
        return base64.b64decode(text, validate=True), int(subtype, 16)
    except ValueError:
        raise refuse(sql_type, value, "not base64, or not a UUID") from None


def _binary(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> bytes:
        binary = _bytes(sql_type, value)
        if binary is None:
            raise refuse(
                sql_type,
                value,
                "expected $binary" + (": declare STRING" if type(value) is str else ""),
            )
        return binary[0]

    return convert


def _string(sql_type: SqlType, handling: Handling) -> Converter:
    to = converter(sql_type, handling)

    def convert(value: Any) -> Any:
        if type(value) is str:
            return value
        return _text_of(sql_type, value) if type(value) is dict else to(value)

    return convert


def _text_of(sql_type: SqlType, value: dict[str, Any]) -> str:
    if len(value) <= 2 and any(name.startswith("$") for name in value):
        text = _only(value, "$oid", "$symbol", "$code", *_NUMBERS)
        if type(text) is str:
            return text
        if "$date" in value and (instant := _instant(value)) is not None:
            return timestamp_text(instant, "T") + "Z"
        binary = _bytes(sql_type, value)
        if binary is not None and binary[1] in _UUID_SUBTYPES and len(binary[0]) == 16:
            return str(UUID(bytes=binary[0]))
    return json_text(value)


_FACTORIES: dict[str, Callable[[SqlType, Handling], Converter]] = {
    **dict.fromkeys(TEXT_TYPES, _string),
    "BINARY": _binary,
    "VARIANT": lambda sql_type, handling: converter(sql_type, replace(handling, json="value")),
    "DATE": _date,
    **dict.fromkeys(TIMESTAMP_TYPES, _timestamp),
    **dict.fromkeys(
        NESTED_TYPES,
        lambda sql_type, handling: nested_converter(
            sql_type, lambda column: document_converter(column.type, handling)
        ),
    ),
}


_UPDATED = "updateDescription.updatedFields"
_REMEDY = (
    "is null: set the connector's capture.mode to change_streams_update_full_with_pre_image (and "
    "the collection's changeStreamPreAndPostImages), or set primary_key=['_id'] so that "
    "ChangelogNormalize takes it from its state"
)


@dataclass(frozen=True, kw_only=True)
class DebeziumMongodbJson(DebeziumEnvelope):
    """Debezium's envelope for MongoDB.

    Parameters
    ----------
    schema_include : {"auto", True, False}
        Whether messages and keys have a schema block; ``auto`` detects it in each.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; a ``$date`` needs none.
    database_include, table_include : str or None
        Regular expressions that ``source.db`` and ``source.collection`` must match in full; others
        are ignored.
    """

    identifier = "debezium-mongodb-json"
    reads_key = True
    sampler = "cdc_formats.topics.samplers.debezium:DebeziumMongodbSampler"
    whole_rows = "set the connector's capture.mode=change_streams_update_full_with_pre_image"

    schema_include: Literal["auto"] | bool = choice("auto", True, False)

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda message: epoch_ms(message.ts_ms, "$.ts_ms")
        ),
        "source.timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda m: epoch_ms(member(m.source, "ts_ms"), "$.source.ts_ms")
        ),
        "source.database": MetadataColumn(
            "STRING", lambda message: text(member(message.source, "db"))
        ),
        "source.collection": MetadataColumn(
            "STRING", lambda message: text(member(message.source, "collection"))
        ),
        "source.properties": MetadataColumn(
            "MAP<STRING, STRING>", lambda message: text_map(message.source)
        ),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "source.database": "database_include",
        "source.collection": "table_include",
    }

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise if the primary key is not that of the Kafka key."""
        if unique_key and list(unique_key) != ["_id"]:
            raise SchemaError(
                "debezium-mongodb-json requires primary_key=['_id'], the column of the Kafka key, "
                f"not {list(unique_key)}"
            )

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one collection's messages."""
        reader, names = _Reader(self, rows, keyed), (("source", "db"), ("source", "collection"))
        return reader.tables.guard(reader, names, [("payload", *name) for name in names])

    def row_names(self, event: Event) -> RowNames | None:
        """Return the fields of the document, which can lack fields of its collection."""
        row = names_in_row(event)
        return row and row._replace(whole=False)


class _Description(msgspec.Struct, gc=False, rename="camel"):
    updated_fields: str | None = None
    removed_fields: list[str] | None = None
    truncated_arrays: list[Any] | None = None


class _Message(msgspec.Struct, gc=False):
    """The fields read from an envelope, wrapped or bare (empty if missing)."""

    op: Any = None
    before: str | None = None
    after: str | None = None
    description: _Description | None = msgspec.field(default=None, name="updateDescription")
    source: msgspec.Raw = msgspec.Raw(b"null")
    ts_ms: Any = None
    schema: msgspec.Raw = msgspec.Raw(b"")
    payload: msgspec.Raw = msgspec.Raw(b"")


class _Reader(WrappedReader):
    """Reads the messages of one collection."""

    def __init__(self, format: DebeziumMongodbJson, rows: RowConverter, keyed: bool) -> None:
        self.schema_include, self.keyed = format.schema_include, keyed
        self.rows = RowConverter(
            rows.columns,
            format.handling,
            rows.unique_key,
            convert=lambda column, handling: document_converter(column.type, handling),
            untyped=rows.untyped,
        )
        self.message = json_reader(_Message)
        self.tables = table_filter(format)

    def of_message(
        self, key: bytes | None, message: Any, value: bytes, root: str
    ) -> Sequence[Event] | Ignored:
        """Return the events of a message."""
        op = message.op
        if op is None:
            return without_op(read_object(value), root)
        if not self.tables.match(message, f"{root}.source"):
            return Ignored.OTHER_TABLE
        if op == "c" or op == "r":
            after = self._image(message.after, f"{root}.after")
            if after is None:
                raise MissingFieldError(f"`after` is null, and op is {op!r}", f"{root}.after")
            return [Event(INSERT, None, after, message, "", f"{root}.after", rows=self.rows)]
        if op == "u":
            return [self._update(key, message, root)]
        if op == "d":
            return [self._delete(key, message, root)]
        raise unknown_operation("op", op, "is none of c, d, r, u", f"{root}.op")

    def _update(self, key: bytes | None, message: _Message, root: str) -> Event:
        before_path, after_path = f"{root}.before", f"{root}.after"
        # A document's _id never changes: if only keys are used, `before` adds nothing to `after`.
        if message.after is not None:
            before = None if self.keyed else self._before(message, before_path)
            return Event(
                UPDATE_AFTER,
                before,
                self._image(message.after, after_path),
                message,
                before_path,
                after_path,
                rows=self.rows,
            )
        before = (
            self._image(message.before, before_path)
            if self.keyed
            else self._before(message, before_path)
        )
        after = {
            **({} if before is None else self.rows.present(before)),
            **self._changed(message.description, root),
            "_id": self._id(key),
        }
        whole = before is not None
        return Event(
            UPDATE_AFTER,
            before,
            after,
            message,
            before_path,
            f"{root}.{_UPDATED}",
            sparse=not whole,
            rows=self.rows,
        )

    def _delete(self, key: bytes | None, message: _Message, root: str) -> Event:
        if message.before is not None or not self.keyed:
            return Event(
                DELETE,
                self._before(message, f"{root}.before"),
                None,
                message,
                f"{root}.before",
                "",
                rows=self.rows,
            )
        return Event(DELETE, {"_id": self._id(key)}, None, message, "$", "", rows=self.rows)

    def _before(self, message: _Message, path: str) -> Any:
        image = self._image(message.before, path)
        if image is None:
            raise MissingBeforeImageError(f"`before` {_REMEDY}", path)
        return image

    def _image(self, document: str | None, path: str) -> Any:
        return None if document is None else read_part(self.rows.read, document.encode(), path)

    def _changed(self, description: _Description | None, root: str) -> dict[str, Any]:
        """Return the columns that an update set, and NULL for those that it removed."""
        if description is None:
            reason = (
                "`after` and updateDescription are missing (the `patch` of Debezium 1.x's oplog "
                "mode is not supported)"
            )
            raise MissingFieldError(reason, f"{root}.after")
        updated = read_part(
            read_object, (description.updated_fields or "{}").encode(), f"{root}.{_UPDATED}"
        )
        arrays = [str(member(array, "field")) for array in description.truncated_arrays or ()]
        removed = description.removed_fields or ()
        self._refuse_parts((*(name for name in (*updated, *removed) if "." in name), *arrays), root)
        fields = {**dict.fromkeys(removed), **updated}
        return {name: value for name, value in fields.items() if "." not in name}

    def _refuse_parts(self, paths: Iterable[str], root: str) -> None:
        for path in paths:
            if path in self.rows.names or path.split(".")[0] in self.rows.names:
                reason = "the update changes only a part of a column"
                hint = (
                    ": set the connector's capture.mode to change_streams_update_full, which "
                    "writes the whole column"
                )
                raise PartialImageError(
                    f"{reason} ({path}){hint}", f"{root}.updateDescription", bare=reason + hint
                )

    def _id(self, key: bytes | None) -> Any:
        """Return the ``_id`` of the Kafka key."""
        try:
            value = self._key(key)
            if self.rows.unique_key:
                self.rows.key({"_id": value}, "$")
        except DecodeError as error:
            raise error.at(field="key") from None
        return value

    def _key(self, key: bytes | None) -> Any:
        if key is None:
            raise MissingFieldError(
                "the Kafka key is null, and the message has no document: the changed document is "
                "unknown"
            )
        message = read_object(key)
        if is_wrapped(message) and (self.schema_include is not False or "schema" not in message):
            message = message["payload"] if isinstance(message["payload"], dict) else {}
        identifier = message.get("id")
        if not isinstance(identifier, str):
            raise MissingFieldError("`id` is missing or not a string", "$.id")
        value = read_part(read_json, identifier.encode(), "$.id")
        if value is None:
            raise MissingFieldError("`id` is null", "$.id")
        return value
