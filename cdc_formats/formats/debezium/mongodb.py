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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import msgspec

from cdc_formats.decoding.metadata import epoch_ms, member, text, text_map
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import (
    DecodeError,
    MissingBeforeImageError,
    MissingFieldError,
    PartialImageError,
    SchemaError,
    UnknownOperationError,
)
from cdc_formats.events import Event, Ignored, Reader
from cdc_formats.message_format import (
    MetadataColumn,
    RowNames,
    choice,
    names_in_row,
    table_filter,
    typeless_reader,
)
from cdc_formats.row_kind import RowKind
from cdc_formats.values.connect_schema import is_wrapped
from cdc_formats.values.handling import Handling
from cdc_formats.values.images import ABSENT
from cdc_formats.values.json_reader import json_reader, read_json, read_object, read_part
from cdc_formats.values.schema import Column

from .envelope import DebeziumEnvelope, WrappedReader, without_op
from .extended_json import document_converter

_INSERT, _UPDATE, _DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
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

    def untyped_reader(self) -> Reader:
        """Return the reader of messages with any fields, without an update's paths into fields."""
        read = typeless_reader(self)

        def read_fields(key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
            events = read(key, value)
            for event in () if isinstance(events, Ignored) else events:
                if isinstance(event.after, Mapping):
                    event.after = {
                        name: part for name, part in event.after.items() if "." not in name
                    }
            return events

        return read_fields


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
            convert=_converter,
            names_only=rows.names_only,
        )
        self.message = json_reader(_Message)
        self.document = json_reader(self.rows.shape, spelled=rows.spelled)
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
            return [Event(_INSERT, None, after, message, "", f"{root}.after", rows=self.rows)]
        if op == "u":
            return [self._update(key, message, root)]
        if op == "d":
            return [self._delete(key, message, root)]
        reason = "is none of c, d, r, u"
        raise UnknownOperationError(
            f"op {str(op)[:40]!r} {reason}", f"{root}.op", bare=f"op {reason}"
        )

    def _update(self, key: bytes | None, message: _Message, root: str) -> Event:
        before_path, after_path = f"{root}.before", f"{root}.after"
        # A document's _id never changes: if only keys are used, `before` adds nothing to `after`.
        if message.after is not None:
            before = None if self.keyed else self._before(message, before_path)
            return Event(
                _UPDATE,
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
            **self._fields(before),
            **self._changed(message.description, root),
            "_id": self._id(key),
        }
        whole = before is not None
        return Event(
            _UPDATE,
            before,
            after,
            message,
            before_path,
            f"{root}.{_UPDATED}",
            sparse=not whole,
            rows=self.rows,
        )

    def _fields(self, image: Any) -> dict[str, Any]:
        """Return the declared columns that a document has."""
        values = () if image is None else zip(self.rows.names, self.rows.raw(image), strict=True)
        return {name: value for name, value in values if value is not ABSENT}

    def _delete(self, key: bytes | None, message: _Message, root: str) -> Event:
        if message.before is not None or not self.keyed:
            return Event(
                _DELETE,
                self._before(message, f"{root}.before"),
                None,
                message,
                f"{root}.before",
                "",
                rows=self.rows,
            )
        return Event(_DELETE, {"_id": self._id(key)}, None, message, "$", "", rows=self.rows)

    def _before(self, message: _Message, path: str) -> Any:
        image = self._image(message.before, path)
        if image is None:
            raise MissingBeforeImageError(f"`before` {_REMEDY}", path)
        return image

    def _image(self, document: str | None, path: str) -> Any:
        return None if document is None else read_part(self.document, document.encode(), path)

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
        return {**dict.fromkeys(removed), **updated}

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


def _converter(column: Column, handling: Handling) -> Any:
    return document_converter(column.type, handling)
