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

Types: Extended JSON in all its forms (`values.extended_json`). A schema block does not describe the
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

from cdc_formats.decoding.envelope import epoch_ms, fields_struct, member, narrowed, text, text_map
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
    FilteredFormat,
    MetadataColumn,
    RowNames,
    choice,
    names_in_row,
    table_filter,
)
from cdc_formats.values.connect_schema import is_wrapped
from cdc_formats.values.json_reader import json_reader, read_json, read_object, read_part
from cdc_formats.values.schema import Column, Handling

from .json import DebeziumEnvelope, WrappedReader, without_op

_UPDATED = "updateDescription.updatedFields"
_REMEDY = (
    "is null: set the connector's capture.mode to change_streams_update_full_with_pre_image (and "
    "the collection's changeStreamPreAndPostImages), or set primary_key=['_id'] so that "
    "ChangelogNormalize takes it from its state"
)


@dataclass(frozen=True, kw_only=True)
class DocumentFormat(FilteredFormat):
    """A format whose rows are documents of MongoDB."""

    @property
    def encodings(self) -> Handling:
        """Extended JSON, in which a number can be an object."""
        return Handling(json="extended", native=False, time_zone=self.time_zone)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise if the primary key is not that of every collection."""
        if unique_key and list(unique_key) != ["_id"]:
            raise SchemaError(
                f"{self.identifier} requires primary_key=['_id'], which identifies documents, not "
                f"{list(unique_key)}"
            )

    def row_names(self, event: Event) -> RowNames | None:
        """Return the fields of the document, which can lack fields of its collection."""
        row = names_in_row(event)
        return row and row._replace(whole=False)


@dataclass(frozen=True, kw_only=True)
class DebeziumMongodbJson(DocumentFormat, DebeziumEnvelope):
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

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one collection's messages."""
        reader, names = _Reader(self, rows, keyed), (("source", "db"), ("source", "collection"))
        return reader.tables.guard(reader, names, [("payload", *name) for name in names])


class UpdateDescription(msgspec.Struct, gc=False, rename="camel"):
    """What an update changed; documents are text."""

    updated_fields: str | None = None
    removed_fields: list[str] | None = None
    truncated_arrays: list[Any] | None = None


_Message = narrowed(
    fields_struct(
        "op before after description ts_ms",
        raw="source",
        around="schema payload",
        rename={"description": "updateDescription"},
    ),
    {"before": str | None, "after": str | None, "description": UpdateDescription | None},
)
"""The fields read from an envelope, wrapped or bare."""


class _Reader(WrappedReader):
    """Reads the messages of one collection."""

    def __init__(self, format: DebeziumMongodbJson, rows: RowConverter, keyed: bool) -> None:
        self.schema_include, self.keyed, self.rows = format.schema_include, keyed, rows
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
            return [Event(INSERT, None, after, message, "", f"{root}.after")]
        if op == "u":
            return [self._update(key, message, root)]
        if op == "d" and message.before is None and self.keyed:
            return [Event(DELETE, {"_id": self._id(key)}, None, message, "$", "")]
        if op == "d":
            path = f"{root}.before"
            return [Event(DELETE, self._before(message, path), None, message, path, "")]
        raise unknown_operation("op", op, "is none of c, d, r, u", f"{root}.op")

    def _update(self, key: bytes | None, message: Any, root: str) -> Event:
        before, path = None, f"{root}.after"
        # A document's _id never changes: if only keys are used, `before` adds nothing to `after`.
        if not self.keyed:
            before = self._before(message, f"{root}.before")
        elif message.after is None:
            before = self._image(message.before, f"{root}.before")
        after = self._image(message.after, path)
        is_sparse = after is None and before is None
        if after is None:
            columns = {} if before is None else self.rows.present(before)
            after = {**columns, **self._changed(message.description, root), "_id": self._id(key)}
            path = f"{root}.{_UPDATED}"
        return Event(UPDATE_AFTER, before, after, message, f"{root}.before", path, sparse=is_sparse)

    def _before(self, message: Any, path: str) -> Any:
        if message.before is None:
            raise MissingBeforeImageError(f"`before` {_REMEDY}", path)
        return self._image(message.before, path)

    def _image(self, document: str | None, path: str) -> Any:
        return None if document is None else read_part(self.rows.read, document.encode(), path)

    def _changed(self, description: UpdateDescription | None, root: str) -> dict[str, Any]:
        """Return the columns that an update set, and NULL for those that it removed."""
        if description is None:
            raise MissingFieldError(
                "`after` and updateDescription are missing (the `patch` of Debezium 1.x's oplog "
                "mode is not supported)",
                f"{root}.after",
            )
        return changed_columns(
            read_part(
                read_object, (description.updated_fields or "{}").encode(), f"{root}.{_UPDATED}"
            ),
            description.removed_fields,
            description.truncated_arrays,
            self.rows,
            "set the connector's capture.mode to change_streams_update_full, which writes the whole column",
            f"{root}.updateDescription",
        )

    def _id(self, key: bytes | None) -> Any:
        """Return the ``_id`` of the Kafka key."""
        try:
            if key is None:
                raise MissingFieldError(
                    "the Kafka key is null, and the message has no document: the changed document "
                    "is unknown"
                )
            fields = read_object(key)
            if is_wrapped(fields) and (self.schema_include is not False or "schema" not in fields):
                fields = fields["payload"] if isinstance(fields["payload"], dict) else {}
            identifier = fields.get("id")
            if not isinstance(identifier, str):
                raise MissingFieldError("`id` is missing or not a string", "$.id")
            value = read_part(read_json, identifier.encode(), "$.id")
            if value is None:
                raise MissingFieldError("`id` is null", "$.id")
            if self.rows.unique_key:
                self.rows.key({"_id": value}, "$")
        except DecodeError as error:
            raise error.at(field="key") from None
        return value


def changed_columns(
    updated: Mapping[str, Any],
    removed: Iterable[str] | None,
    arrays: Iterable[Any] | None,
    rows: RowConverter,
    remedy: str,
    path: str,
) -> dict[str, Any]:
    """Return the columns that an update set, and NULL for those that it removed.

    Parameters
    ----------
    updated : mapping
        The fields that it set; ``outer.inner`` is a part of a column.
    removed : iterable of str or None
    arrays : iterable or None
        The arrays that it cut.
    rows : RowConverter
    remedy : str
        How the producer is configured to write whole documents.
    path : str
        The path of the description, for errors.

    Raises
    ------
    PartialImageError
        When the update changes a part of a declared column.
    """
    fields = {**dict.fromkeys(removed or ()), **updated}
    cut = [str(member(array, "field")) for array in arrays or ()]
    for name in (*(name for name in fields if "." in name), *cut):
        if name in rows.names or name.split(".")[0] in rows.names:
            reason = "the update changes only a part of a column"
            raise PartialImageError(
                f"{reason} ({name}): {remedy}", path, bare=f"{reason}: {remedy}"
            )
    return {name: value for name, value in fields.items() if "." not in name}
