"""Debezium's rows without an envelope, as written by ExtractNewRecordState (vectors: Debezium 3.4).

A message is the row, bare (``schemas.enable=false``), with a schema block, or in a payload without
one (``{"payload": <row>}``, unless a column ``payload`` is declared); its key is the Kafka key.
``add.fields`` and the modes that rewrite deletes add fields next to the columns::

    {"id": 106, "name": "hammer", "weight": "1.000", "__deleted": "false", "__op": "u", "__table": "products", "__source_ts_ms": 1}

==================================  =============================================================
value                               rows
==================================  =============================================================
a row, ``__op`` ``c`` or ``r``      ``+I``
a row, ``__op`` ``u`` or without    ``+U`` (without ``__op``, inserts and updates cannot be
                                    distinguished)
``"__deleted":"true"``              ``-D`` with the row in the value (``rewrite``,
                                    ``rewrite-with-tombstone``)
``null``, a payload of ``null``     ``-D`` with the Kafka key's columns (``tombstone``, ``none``)
null                                the same (the tombstone after a rewritten delete,
                                    ``delete-to-tombstone``)
``__op`` ``t``                      `Ignored.TRUNCATE`
==================================  =============================================================

Changelog mode: ``+I``, ``+U``, ``-D`` by key, for every ``delete.tombstone.handling.mode``
(``delete.handling.mode`` in older versions); with ``drop`` the topic has no deletes. A rewritten
delete and the tombstone after it are two ``-D`` of one key: ChangelogNormalize counts and drops
deletes of unknown keys, and upserts tolerate both. Key: read if the value is null, as JSON with or
without a schema block; the bare value of a single column (ExtractField) is accepted too.
Null value: a delete.

A table without a primary key has null keys, and its updates do not identify the row that they
replace. With ``keyless=True`` the format declares all kinds and is read without a keyed stage
(``normalize=False``): ``c`` and ``r`` are ``+I``, a rewritten delete is ``-D``, an update is an
error, a tombstone is `Ignored.TOMBSTONE`, ``null`` is an error. Alternatively, set columns that
identify rows as primary_key.

Absent and null: a column that is not in the row is NULL; the unavailable-value placeholder is
`ABSENT` by the column's type and completed by ChangelogNormalize.

Types: as in `debezium_json`: with a schema block, every column is read by its schema there,
otherwise as declared.

Positions: if ``add.fields`` has the required fields (`DebeziumFlatJson.position`). Without them
``order="source"`` makes a record an error. A record with a null value has none: it is applied as it
arrives, and counted as ``WITHOUT_POSITION``, with a warning.

Differs from Flink: Flink has no such format and reads such topics as upsert-kafka. This format
decodes Debezium's decimals and times, schema blocks, ``__deleted`` and JSON's ``null``. The added
fields are metadata, which is ignored when rows are compared.

Source: io.debezium.transforms.ExtractNewRecordState, extractnewstate.DefaultDeleteHandlingStrategy;
its documentation page.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, NamedTuple

import msgspec

from cdc_formats.decoding.envelope import (
    Columnar,
    Envelope,
    Images,
    RowKeys,
    epoch_ms,
    fields_struct,
    narrowed,
    text,
)
from cdc_formats.decoding.other_messages import refuse_other
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding import RowWriter, refuse_filters, writes_iso
from cdc_formats.errors import (
    FormatOptionError,
    MalformedMessageError,
    MissingBeforeImageError,
    MissingFieldError,
    SchemaError,
    TypeConversionError,
)
from cdc_formats.events import (
    ChangelogMode,
    Event,
    Ignored,
    KeyValue,
    Position,
    Reader,
    RowKind,
    unknown_operation,
)
from cdc_formats.format import (
    Encoder,
    Format,
    MetadataColumn,
    RowNames,
    names_in_row,
    table_filter,
)
from cdc_formats.values.connect_schema import struct_schema, written_handling
from cdc_formats.values.json_reader import (
    fields_of,
    json_bytes,
    json_reader,
    read_members,
    read_object,
    read_part,
)
from cdc_formats.values.schema import Column, columns as to_columns

from .json import DebeziumJson, KafkaKey, described_reader, is_complete
from .position import Source, position_of_fields

_KINDS = {
    None: RowKind.UPDATE_AFTER,
    "u": RowKind.UPDATE_AFTER,
    "c": RowKind.INSERT,
    "r": RowKind.INSERT,
    "d": RowKind.DELETE,
}
_DELETED = {None: False, "false": False, False: False, "true": True, True: True}
_DELETED_FIELD = "__deleted"  # constant in Debezium, independent of add.fields.prefix


@dataclass(frozen=True, kw_only=True)
class DebeziumFlatJson(DebeziumJson):
    """Debezium's rows without the envelope.

    Parameters
    ----------
    add_fields_prefix : str
        The transformation's ``add.fields.prefix``.
    keyless : bool
        Whether the table has no primary key, so that records have null keys.
    timestamp_format_standard, schema_include, decimal_handling_mode, time_precision_mode,
    binary_handling_mode
        Same as `DebeziumJson`.
    bigint_unsigned_handling_mode, time_zone
        Same as `DebeziumJson`.
    unavailable_value_placeholder : str
        Same as in `DebeziumJson`. A message shows that its connector never writes it only if
        ``add.fields`` has ``connector`` and ``version``.
    database_include, table_include : str or None
        Regular expressions that the added fields ``db`` and ``table`` must match in full. A null
        value has neither field and is an error.
    url, basic_auth_user_info, bearer_auth_token, ssl_ca_location, ssl_certificate_location,
    ssl_key_location, ssl_key_password
        Same as `DebeziumJson`.
    properties, retry_seconds
        Same as `DebeziumJson`.
    """

    identifier = "debezium-flat-json"
    sampler = "cdc_formats.topics.samplers.debezium:DebeziumFlatSampler"
    reads_key = True
    reads_tombstones = True

    add_fields_prefix: str = "__"
    keyless: bool = False

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "op": MetadataColumn("STRING", lambda m: text(m.added.op)),
        "ingestion-timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda m: epoch_ms(m.added.ts_ms, f"$.{m.prefix}ts_ms")
        ),
        "source.timestamp": MetadataColumn(
            "TIMESTAMP(3)", lambda m: epoch_ms(m.added.source_ts_ms, f"$.{m.prefix}source_ts_ms")
        ),
        "source.database": MetadataColumn(
            "STRING", lambda m: text(either(m.added.db, m.added.source_db))
        ),
        "source.schema": MetadataColumn(
            "STRING", lambda m: text(either(m.added.schema, m.added.source_schema))
        ),
        "source.table": MetadataColumn(
            "STRING", lambda m: text(either(m.added.table, m.added.source_table))
        ),
        "source.properties": MetadataColumn("MAP<STRING, STRING>", lambda m: _properties(m)),
    }
    table_identity: ClassVar[Mapping[str, str]] = {
        "source.database": "database_include",
        "source.schema": "",
        "source.table": "table_include",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.add_fields_prefix:
            raise FormatOptionError(
                "debezium-flat-json: add_fields_prefix is empty: remove it, and declare the added "
                "fields as columns"
            )

    @property
    def changelog_mode(self) -> ChangelogMode:  # type: ignore[override]
        """Upserts by key; for a table without a key, all kinds."""
        return ChangelogMode.all() if self.keyless else ChangelogMode.upsert()

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise without a primary key or `keyless`, or if a column's encoding is not declared."""
        if not unique_key and not self.keyless:
            raise SchemaError(
                "debezium-flat-json needs a primary_key: the columns of the Kafka key. For a table "
                "without one set keyless=True"
            )
        super().check(columns, unique_key)

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's records."""
        reader, prefix = _Reader(self, rows, keyed), self.add_fields_prefix
        starts = (prefix, f"{prefix}source_")
        paths = [
            ((*root, f"{start}db"), (*root, f"{start}table"))
            for root in ((), ("payload",))
            for start in starts
        ]
        return reader.tables.guard(reader, *paths)

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation is.

        The scalar decoder reads a message in a schema block, or without a row.
        """
        prefix = self.add_fields_prefix
        return Envelope(
            operation=("op", "deleted"),
            kinds={
                (op, text): RowKind.DELETE if deletes else kind
                for op, kind in _KINDS.items()
                for text, deletes in _DELETED.items()
            },
            images=Images(missing_is_null=True),
            # A record without a row names no table, and cannot be filtered by it. Its key may have
            # other columns, too.
            keys=RowKeys(
                shape=None
                if table_filter(self).set or self.keyless
                else rows.struct(range(len(rows.columns)), rows.names),
                deletes=(None, b"null"),
            ),
            columnar=Columnar(
                possible=self.schema_include is not True,
                fields=_plain_shape(prefix),
                message=lambda added, value: _Message(added, value, prefix),
            ),
        )

    def row_names(self, event: Event) -> RowNames | None:
        """Return the names in the row; None for a tombstone, which has only the key."""
        row = names_in_row(event)
        if row is None or event.message.value is None:
            return None
        return row._replace(added=[name for name in row.names if self.is_added(name)])

    def encoder(
        self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()
    ) -> Encoder:
        """Return the encoder of one table's rows, with ``__op`` and deletes as tombstones.

        It writes schema blocks if `schema_include` is True.
        """
        self.require_writable()
        return _Encoder(self, to_columns(columns), unique_key)

    def position(self, message: Any) -> Position | None:
        """Return a change's position from the ``add.fields`` fields; None for a key without a row.

        MySQL, MariaDB: file, pos, row, server_id, gtid; PostgreSQL: lsn, sequence; SQL Server:
        commit_lsn, change_lsn, event_serial_no; Oracle: scn, commit_scn, ssn or txSeq; Db2:
        connector, commit_lsn, change_lsn. All: source.ts_ms, snapshot.

        Raises
        ------
        TypeConversionError, MissingFieldError
            As `position.position_of_fields`.
        """
        if message.value is None:
            return None
        return position_of_fields(
            _source_reader(message.prefix)(message.value), f"$.{message.prefix}", _ADD_FIELDS
        )

    # The fields that a transform adds say nothing of a statement.
    control_event = Format.control_event

    def is_added(self, name: str) -> bool:
        """Whether a field is not a column of the table."""
        return name.startswith(self.add_fields_prefix) or name == _DELETED_FIELD


def either(first: Any, second: Any) -> Any:
    """Return the first value that is not None."""
    return second if first is None else first


def connector_of(added: Any) -> tuple[Any, Any]:
    """Return the added fields ``connector`` and ``version``."""
    return (
        either(added.connector, added.source_connector),
        either(added.version, added.source_version),
    )


class _Message(NamedTuple):
    """The source of metadata: the known added fields and the row; None if there is only a key."""

    added: Any
    value: bytes | None
    prefix: str


def _properties(message: _Message) -> list[Any] | None:
    """Return all added fields, without the prefix."""
    if message.value is None:
        return None
    added = {
        name: value
        for name, value in read_object(message.value).items()
        if name.startswith(message.prefix)
    }
    return sorted(
        [name[len(message.prefix) :], text(value)]
        for name, value in added.items()
        if name != _DELETED_FIELD
    )


def _added_shape(prefix: str) -> Any:
    """Return the struct of the fields next to the columns; missing ones are None."""
    names = {
        name: prefix + name
        for name in ("op", "ts_ms", "db", "schema", "table", "connector", "version")
    } | {
        f"source_{name}": f"{prefix}source_{name}"
        for name in ("ts_ms", "db", "schema", "table", "connector", "version")
    }
    return fields_struct(
        " ".join((*names, "deleted")),
        around="block payload",
        rename={**names, "deleted": _DELETED_FIELD, "block": "schema"},
    )


def _plain_shape(prefix: str) -> Any:
    """Return `_added_shape` for a row without a schema block."""
    types = {
        "op": str | None,
        "deleted": str | bool | None,
        # A type without values: a message that has such a field does not match.
        "payload": Annotated[str, msgspec.Meta(min_length=1, max_length=0)],
    }
    return narrowed(_added_shape(prefix), types)


_ADD_FIELDS = "add it with add.fields of ExtractNewRecordState, or use order='arrival'"


@lru_cache(maxsize=100)
def _source_reader(prefix: str) -> Callable[[bytes], Source]:
    """Return a reader of row source fields, named as with ``add.fields=pos`` or ``source.pos``."""
    fields = [(field.name, field.type, field.default) for field in fields_of(Source)]
    names = {field.name: field.encode_name for field in fields_of(Source)}
    # Without `source.` the time is the connector's.
    short = {
        name: prefix + ("source_" if name == "ts_ms" else "") + added
        for name, added in names.items()
    }
    long = {name: f"{prefix}source_{added}" for name, added in names.items()}
    readers = [
        json_reader(msgspec.defstruct("AddedSource", fields, rename=rename, gc=False))
        for rename in (long, short)
    ]

    def read(value: bytes) -> Source:
        try:
            first, second = (msgspec.structs.asdict(reader(value)) for reader in readers)
        except MalformedMessageError as error:
            raise TypeConversionError(error.reason, error.path) from None
        fields = [*first.items(), *second.items()]
        # PostgreSQL's incremental snapshots have a null.
        return Source(
            **({"lsn": None} if ("lsn", None) in fields else {})
            | {
                name: value
                for name, value in fields
                if value is not None and value is not msgspec.UNSET
            }
        )

    return read


class _Reader:
    """Reads the records of one table. A reader is compiled once for each schema block."""

    def __init__(self, format: DebeziumFlatJson, rows: RowConverter, keyed: bool) -> None:
        self.format, self.rows = format, rows
        self.refuses_updates = format.keyless and not keyed
        self.prefix = format.add_fields_prefix
        shape = _added_shape(self.prefix)
        self.nothing = _Message(shape(), None, self.prefix)
        self.added = json_reader(shape | None, spelled=rows.spelled)
        self.described = described_reader(rows, format.handling, of_row=True)
        self.tables = table_filter(format)
        self.key = KafkaKey(rows, format.handling, with_schema=format.schema_include is not False)

    def __call__(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        if self.rows.untyped:
            refuse_other(value)  # any object is a row
        if value is None:
            return Ignored.TOMBSTONE if key is None and self.format.keyless else self._delete(key)
        added = self.added(value)
        if added is None:
            return self._delete(key)
        if added.payload and self._wrapped(added, value):
            block, payload = bytes(added.block), bytes(added.payload)
            if payload == b"null":
                return self._delete(key)
            return self._row(
                read_part(self.added, payload, "$.payload"), payload, block, "$.payload"
            )
        if self.format.schema_include is True:
            raise MalformedMessageError(
                "the message has no schema block, and schema_include is True: set it to False or "
                "'auto'"
            )
        return self._row(added, value, b"", "$")

    def _wrapped(self, added: Any, value: bytes) -> bool:
        """Whether a message with the field ``payload`` is the wrapper of a row, not a row."""
        if added.block and self.format.schema_include is False:
            return False
        marked = bytes(added.block or added.payload)[:1] in (b"{", b"n") and (
            "payload" not in self.rows.names or added.block
        )
        return bool(marked) and len(read_members(value)) == (2 if added.block else 1)

    def _row(self, added: Any, value: bytes, block: bytes, path: str) -> Sequence[Event] | Ignored:
        message = _Message(added, value, self.prefix)
        if not self.tables.match(message, path):
            return Ignored.OTHER_TABLE
        if added.op == "t":
            return Ignored.TRUNCATE
        kind = _KINDS.get(added.op) if added.op is None or isinstance(added.op, str) else None
        if kind is None:
            reason, at = "is none of c, d, r, t, u", f"{path}.{self.prefix}op"
            raise unknown_operation("op", added.op, reason, at)
        rows = self.described(block, is_complete(*connector_of(added)))
        image = read_part(rows.read, value, path)
        if kind is RowKind.DELETE or _is_deleted(added.deleted, path):
            return [Event(RowKind.DELETE, image, None, message, path, "", rows=rows)]
        if self.refuses_updates and kind is RowKind.UPDATE_AFTER and added.op is None:
            raise MissingFieldError(
                f"`{self.prefix}op` is missing, and required without a key to distinguish inserts "
                "from updates: set the transformation's add.fields=op",
                f"{path}.{self.prefix}op",
            )
        if self.refuses_updates and kind is RowKind.UPDATE_AFTER:
            raise MissingBeforeImageError(
                "an update of a table without a primary key does not identify the row that it "
                "replaces: configure the connector to write the envelope (debezium-json), or set "
                "the columns that identify rows as primary_key",
                path,
            )
        return [Event(kind, None, image, message, "", path, rows=rows)]

    def _delete(self, key: bytes | None) -> Sequence[Event] | Ignored:
        """Return the delete of a record without a row."""
        if self.tables.set:
            self.tables.match_names((None, None), "")
        if key is None:
            reason = "the Kafka key is null, and so is the value: the deleted row is unknown"
            hint = (
                ". For a table without a primary key, rewrite deletes "
                "(delete.tombstone.handling.mode=rewrite) and set keyless=True"
            )
            raise MissingFieldError(reason + hint, "", "key")
        event = self.key.delete(key, self.nothing)
        if self.refuses_updates:
            raise MissingBeforeImageError(
                "the delete has only the Kafka key, and keyless is set: set a primary_key instead",
                "",
                "key",
            )
        return [event]


def _is_deleted(deleted: Any, path: str) -> bool:
    is_deleted = (
        _DELETED.get(deleted) if isinstance(deleted, (str, bool)) or deleted is None else None
    )
    if is_deleted is None:
        reason, at = "is neither 'true' nor 'false'", f"{path}.{_DELETED_FIELD}"
        raise unknown_operation(_DELETED_FIELD, deleted, reason, at)
    return is_deleted


class _Encoder(Encoder):
    def __init__(
        self, format: DebeziumFlatJson, columns: Sequence[Column], unique_key: Sequence[str]
    ) -> None:
        if format.keyless:
            raise FormatOptionError(
                "debezium-flat-json cannot be written with keyless=True: an update would not "
                "identify its row"
            )
        format.check(columns, unique_key)
        refuse_filters(format)
        self.op = f"{format.add_fields_prefix}op"
        with_schema = format.schema_include is True
        pairs = [
            (each, written_handling(each.type, format.handling) if with_schema else format.handling)
            for each in columns
        ]
        self.rows = RowWriter(
            columns,
            [how for _, how in pairs],
            unique_key,
            iso=writes_iso(format),
            excerpt=format.error_excerpt,
        )
        key = [pairs[index] for index in self.rows.key_indices]
        self.key_schema = (
            struct_schema("changelog.Key", key, optional=False) if with_schema else None
        )
        row = struct_schema("changelog.Value", pairs, optional=False) if with_schema else {}
        op = {"type": "string", "optional": True, "field": self.op}
        self.schema = {**row, "fields": [*row["fields"], op]} if row else None

    def encode(
        self, kind: RowKind, row: tuple[Any, ...], before: tuple[Any, ...] | None = None
    ) -> KeyValue | None:
        if kind is RowKind.UPDATE_BEFORE:
            return None
        key = _written(self.rows.key(row), self.key_schema)
        if kind is RowKind.DELETE:
            return key, None
        op = "c" if kind is RowKind.INSERT else "u"
        return key, _written({**self.rows.image(row), self.op: op}, self.schema)


def _written(payload: Any, schema: dict[str, Any] | None) -> bytes:
    return json_bytes(payload if schema is None else {"schema": schema, "payload": payload})
