r"""Change events of MongoDB in JSON, as MongoDB's Kafka connector writes them.

An insert, an update, a delete and a dropped collection::

    {"_id": {"_data": "82646F..."}, "operationType": "insert", "clusterTime": {"$timestamp": {"t": 1684998551, "i": 9}},
     "ns": {"db": "shop", "coll": "products"}, "documentKey": {"_id": {"$oid": "646f0d97b0a6e1a3d2f4c101"}},
     "fullDocument": {"_id": {"$oid": "646f0d97b0a6e1a3d2f4c101"}, "name": "scooter", "weight": 3.14}}
    {"_id": {"_data": "82646F..."}, "operationType": "update", "clusterTime": {"$timestamp": {"t": 1684998552, "i": 1}},
     "ns": {"db": "shop", "coll": "products"}, "documentKey": {"_id": {"$oid": "646f0d97b0a6e1a3d2f4c101"}},
     "updateDescription": {"updatedFields": {"name": "bike"}, "removedFields": ["weight"], "truncatedArrays": []}}
    {"_id": {"_data": "82646F..."}, "operationType": "delete", "clusterTime": {"$timestamp": {"t": 1684998553, "i": 1}},
     "ns": {"db": "shop", "coll": "products"}, "documentKey": {"_id": {"$oid": "646f0d97b0a6e1a3d2f4c101"}}}
    {"_id": {"_data": "82646F..."}, "operationType": "drop", "clusterTime": {"$timestamp": {"t": 1684998554, "i": 1}},
     "ns": {"db": "shop", "coll": "products"}}

=============================  ==============================================
operationType                  rows
=============================  ==============================================
``insert``                     ``+I`` fullDocument, also of a copied document
                               (``startup.mode=copy_existing``)
``replace``                    ``+U`` fullDocument
``update``                     ``+U`` fullDocument; if it is null or missing,
                               the updated fields, and NULL for the removed
``delete``                     ``-D`` documentKey
``drop``, ``rename``           `Ignored.TRUNCATE`: no documents are left
``dropDatabase``,              `Ignored.DDL`
``invalidate``, ``create``,
``modify``, ``createIndexes``,
``dropIndexes``,
``shardCollection``,
``reshardCollection``,
``refineCollectionShardKey``
=============================  ==============================================

Changelog mode: ``+I``, ``+U``, ``-D`` by key. ``fullDocumentBeforeChange`` is not read. Null value:
`Ignored.TOMBSTONE`; so are the connector's heartbeats, which have a topic of their own.

Key: ``documentKey``; the Kafka key is not read. primary_key is ``_id``.

The columns are the document's top-level fields. ``fullDocument`` of an update is the document at
the time of the connector's lookup, which can be newer than the update.

Absent and null: a field that is not in a document is NULL. In an update without ``fullDocument`` it
did not change, and ChangelogNormalize completes the row.

Refused, since the message lacks values: an update of a part of a column without ``fullDocument``
(``updatedFields`` or ``removedFields`` with ``address.city`` or ``tags.0``, ``truncatedArrays``). Set
the connector's ``change.stream.full.document=updateLookup``. With it, ``fullDocument`` is null if the
document was deleted before the lookup. With ``required``, and ``changeStreamPreAndPostImages`` of the
collection, it never is.

Refused as well: a delete without ``documentKey``, and an insert or a replace without
``fullDocument``, which a ``pipeline`` of the connector removed; ``publish.full.document.only=true``,
whose documents have no operation (without deletes, upsert-kafka reads them); messages, or documents
in them, as text in JSON: set ``output.format.value=json``, and ``value.converter`` to Kafka Connect's
StringConverter.

Types: Extended JSON in all its forms (`values.extended_json`), so all three of the connector's
``output.json.formatter``. SimplifiedJson writes bytes as plain base64: declare STRING.

Position: ``clusterTime``, and within a transaction the part of the resume token in ``_id`` that
counts its changes. Another resume token (of Amazon DocumentDB, or before MongoDB 4.2) orders all
but the changes of a transaction, which are errors with ``order="source"``. Copied documents
(``copy_existing``) have no position.

Differs from Flink: Flink has no such format (Flink CDC's MongoDB source reads change streams
itself).

Source: MongoDB's pages "Change Events" and "Change Streams"; the MongoDB Kafka connector's
MongoSourceConfig, MongoCopyDataManager and JSON formatters (1.16); SERVER-29716 and DOCS-11616 on
the order of resume tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import (
    Codes,
    Envelope,
    Images,
    control_event,
    epoch_s,
    fields_struct,
    member,
    narrowed,
)
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    ChangelogMode,
    ControlEvent,
    Event,
    Headers,
    Ignored,
    Position,
    RowKind,
    integer,
)
from cdc_formats.format import MetadataColumn
from cdc_formats.formats.debezium.mongodb import (
    DocumentFormat,
    UpdateDescription,
    changed_columns,
)
from cdc_formats.values.json_reader import json_reader, read_part

_KINDS: Mapping[str, RowKind | Ignored] = {
    "insert": INSERT,
    "replace": UPDATE_AFTER,
    "update": UPDATE_AFTER,
    "delete": DELETE,
    **dict.fromkeys(("drop", "rename"), Ignored.TRUNCATE),
    **dict.fromkeys(
        (
            "create",
            "createIndexes",
            "dropIndexes",
            "modify",
            "refineCollectionShardKey",
            "reshardCollection",
            "shardCollection",
        ),
        Ignored.DDL,
    ),
}
_REMEDY = (
    "set the connector's change.stream.full.document=updateLookup. If it is set, the document was "
    "deleted before the lookup: set it to required, and the collection's "
    "changeStreamPreAndPostImages"
)
_TOKEN = re.compile("82([0-9A-F]{16})2B0[24]2C0100([0-9A-F]{16})[0-9A-F]*")
"""A resume token of an event: its time, two numbers of its version and kind, and its order in a
transaction, which is followed by bytes that are the same for all events of the collection."""


@dataclass(frozen=True, kw_only=True)
class MongodbJson(DocumentFormat):
    """The change events of MongoDB's Kafka connector.

    Parameters
    ----------
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column; a ``$date`` needs none.
    database_include, table_include : str or None
        Regular expressions that ``ns.db`` and ``ns.coll`` must match in full; others are ignored.
    """

    identifier = "mongodb-json"
    sampler = "cdc_formats.topics.samplers.debezium:MongodbSampler"
    changelog_mode = ChangelogMode.upsert()
    positions = ""
    whole_rows = "set the connector's change.stream.full.document=updateLookup"

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "database": MetadataColumn("STRING", lambda message: message.ns and message.ns.db),
        "collection": MetadataColumn("STRING", lambda message: message.ns and message.ns.coll),
        "cluster-time": MetadataColumn(
            "TIMESTAMP(3)",
            lambda message: epoch_s(
                member(member(message.cluster_time, "$timestamp"), "t"), "$.clusterTime"
            ),
        ),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "database": "database_include",
        "collection": "table_include",
    }

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the documents are.

        The scalar decoder reads updates without ``fullDocument``.
        """
        return Envelope(
            fields=_Message,
            operation=("operation_type",),
            kinds=_KINDS,
            codes=Codes(without_table={"dropDatabase": Ignored.DDL, "invalidate": Ignored.DDL}),
            inspect=partial(_set_changed_columns, rows),
            adjust=_mark_changed_columns,
            after="full_document",
            before="document_key",
            deleted="document_key",
            images=Images(
                missing_is_null=True, remedy="The connector's pipeline must not remove it"
            ),
            attributes={"database": ("ns.db", None), "collection": ("ns.coll", None)},
        )

    def position(self, message: Any) -> Position | None:
        """Return the position in ``clusterTime`` and the resume token; None for a copied document.

        Raises
        ------
        MissingFieldError
            When ``clusterTime`` is missing, or does not order a transaction's changes.
        TypeConversionError
            When it is not a timestamp.
        """
        stamp, path = member(message.cluster_time, "$timestamp"), "$.clusterTime"
        if stamp is None and member(message.token, "copyingData") is True:
            return None
        if stamp is None:
            raise MissingFieldError(
                "`clusterTime` is missing: the connector's pipeline must not remove it, or use "
                "order='arrival'",
                path,
            )
        seconds, number = (integer(member(stamp, name), 32, path) for name in ("t", "i"))
        high, data = seconds << 32 | number, member(message.token, "_data")
        token = _TOKEN.fullmatch(data) if isinstance(data, str) else None
        if token is not None and int(token[1], 16) == high:
            return Position("", high, int(token[2], 16), seconds * 1000)
        if message.txn_number is not None:
            raise MissingFieldError(
                "the changes of a transaction have the same clusterTime, and `_id` is no resume "
                "token of MongoDB 4.2 or later, which orders them: use order='arrival'",
                "$._id",
            )
        return Position("", high, 0, seconds * 1000)

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the collection, and ``operationType`` as the statement."""
        return control_event(
            value, reason, database="ns.db", table="ns.coll", statement="operationType"
        )


class _Namespace(msgspec.Struct, gc=False):
    db: str | None = None
    coll: str | None = None


_Message = narrowed(
    fields_struct(
        "operation_type full_document document_key ns txn_number",
        raw="update_description cluster_time token",
        rename={
            "operation_type": "operationType",
            "full_document": "fullDocument",
            "document_key": "documentKey",
            "txn_number": "txnNumber",
            "update_description": "updateDescription",
            "cluster_time": "clusterTime",
            "token": "_id",
        },
    ),
    {"ns": _Namespace | None},
)


class _ChangedColumns(dict[str, Any]):
    """The columns of a document that an update changed, and its ``_id``."""


_Description: Any = narrowed(UpdateDescription, {"updated_fields": dict[str, Any] | None})
_read_description: Callable[[bytes], Any] = json_reader(_Description | None, spelled=True)


def _set_changed_columns(
    rows: RowConverter, message: Any, kind: RowKind | Ignored | None
) -> Ignored | None:
    """Set ``fullDocument`` of an update without it to the columns in its description."""
    if message.operation_type == "update" and message.full_document is None:
        path = "$.updateDescription"
        of = read_part(_read_description, bytes(message.update_description), path)
        if of is None or message.document_key is None:
            missing = "updateDescription" if of is None else "documentKey"
            raise MissingFieldError(
                f"`fullDocument` and `{missing}` are missing or null: {_REMEDY}", f"$.{missing}"
            )
        changed = changed_columns(
            of.updated_fields or {}, of.removed_fields, of.truncated_arrays, rows, _REMEDY, path
        )
        key = message.document_key if rows.untyped else rows.raw_key(message.document_key)
        message.full_document = _ChangedColumns(key | changed)
    return None


def _mark_changed_columns(event: Event, value: bytes, index: int, keyed: bool) -> None:
    if isinstance(event.after, _ChangedColumns):
        event.sparse, event.before, event.after_path = (
            True,
            None,
            "$.updateDescription.updatedFields",
        )
