r"""CockroachDB changefeeds in JSON with ``envelope=wrapped``, the default, or ``bare``.

A row, a deleted row and a resolved timestamp; the Kafka key of the first two is ``[103]``, the
values of the primary key::

    {"after": {"id": 103, "name": "hammer", "weight": 0.750}, "updated": "1532377312562986715.0000000001"}
    {"after": null, "updated": "1532377312562986716.0000000000"}
    {"resolved": "1532377312562986716.0000000000"}

==============================  ====================================================
value                           rows
==============================  ====================================================
``after`` is an object          ``+U`` after
``after`` is null               ``-D`` of the Kafka key
``resolved`` without ``after``  `Ignored.HEARTBEAT`
==============================  ====================================================

Changelog mode: ``+U``, ``-D`` by key, since a message does not tell an insert from an update. ``before``
(the option ``diff``) is not read. Null value: `Ignored.TOMBSTONE`.

Key: an array without names. The order of ``primary_key`` is that of its values, and is never guessed:
declare the columns in the order of the table's PRIMARY KEY. A row with other values in the declared
columns is an error. A delete has no row to compare. CockroachDB writes a change of the key as a delete
and an insert.

Absent and null: a missing column did not change, and ChangelogNormalize completes the row. This is
how tables with several column families are written (``split_column_families``): each message has the
columns of one family, and the key's columns come from the Kafka key. A key whose first message lacks
columns is an error there.

Types: JSON numbers and text, bytes as ``\\x48656c``, JSON columns as values, times as text.

Position: ``updated``, a hybrid logical clock: `high` is its nanoseconds, `low` its logical part. There
is one history. A changefeed may repeat messages, and the repeated ones are older: with
``order="source"`` they lose. The option ``updated`` of the changefeed writes it.

Other envelopes: ``enriched`` is read as debezium-json. ``bare`` is read if it has ``__crdb__``, which the
option ``updated`` writes::

    {"id": 103, "name": "hammer", "__crdb__": {"updated": "1532377312562986715.0000000001"}}
    {"id": 103, "name": null, "__crdb__": {"updated": "1532377312562986716.0000000000"}}
    {"__crdb__": {"resolved": "1532377312562986716.0000000000"}}

The second is a delete: all columns but the key's are null. Only a column that is never null tells it from
a row. Declare one as NOT NULL, which the rows of the query have: without one each message is an error.
``row`` and ``key_only`` are refused: they have no ``__crdb__``, and ``key_only`` has no rows.

Differs from Flink: Flink has no such format.

Source: CockroachDB's pages "Changefeed Messages" and "Changefeeds on Tables with Column Families",
and its encoder_json.go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import Codes, Envelope, Framing, RowKeys, text
from cdc_formats.decoding.rows import RowConverter, row_struct
from cdc_formats.decoding.scalar_reader import ScalarReader
from cdc_formats.errors import DecodeError, MalformedMessageError, MissingFieldError, SchemaError
from cdc_formats.events import (
    DELETE,
    UPDATE_AFTER,
    ChangelogMode,
    Event,
    Headers,
    Ignored,
    Position,
    Reader,
    RowKind,
    hlc_position,
)
from cdc_formats.format import MetadataColumn, ZonedFormat, table_filter
from cdc_formats.values.json_reader import json_bytes, json_reader, read_members, read_part
from cdc_formats.values.schema import ABSENT, Column, Handling


@dataclass(frozen=True, kw_only=True)
class CockroachdbJson(ZonedFormat):
    """CockroachDB's wrapped and bare messages.

    Parameters
    ----------
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "cockroachdb-json"
    sampler = "cdc_formats.topics.samplers.messages:CockroachdbSampler"
    changelog_mode = ChangelogMode.upsert()
    reads_key = True
    positions = ""
    whole_rows = "create the changefeed without split_column_families"

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "updated": MetadataColumn("STRING", lambda message: text(message.updated)),
        "mvcc-timestamp": MetadataColumn("STRING", lambda message: text(message.mvcc_timestamp)),
        "topic": MetadataColumn("STRING", lambda message: text(message.topic)),
    }

    @property
    def encodings(self) -> Handling:
        """Numbers and text; bytes are hexadecimal digits, JSON columns are JSON values."""
        return Handling(binary="bytea", json="value", time_zone=self.time_zone)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Raise without a primary key: a delete has only the Kafka key."""
        if not unique_key:
            raise SchemaError(
                "cockroachdb-json needs a primary_key: the columns of the Kafka key, in the order "
                "of the table's primary key"
            )

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return the reader of one table's records."""
        return _Reader(self.envelope(rows), rows, table_filter(self), keyed=keyed)

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the row and its key are; the scalar decoder reads rows that lack columns."""
        key = {index: f"c{index}" for index in rows.key_indices}
        return Envelope(
            fields=_Message,
            operation=("operation",),
            kinds={"row": UPDATE_AFTER, "null": DELETE, "resolved": Ignored.HEARTBEAT},
            codes=Codes(are_text=False),
            inspect=_require_after,
            after="after",
            deleted="after",
            attributes={name: (name, None) for name in ("updated", "topic")},
            framing=Framing(unwrap=partial(_wrapped, rows)),
            keys=RowKeys(
                shape=row_struct(
                    key,
                    {},
                    msgspec.NODEFAULT,
                    namespace={f"c{at}": ABSENT for at in range(len(rows.names)) if at not in key},
                    array_like=True,
                    forbid_unknown_fields=True,
                ),
                of_rows=True,
                is_compared=True,
                deletes=(),
            ),
        )

    def position(self, message: Any) -> Position | None:
        """Return the position in ``updated``.

        Raises
        ------
        MissingFieldError
            When it is missing.
        TypeConversionError
            When it is not a hybrid logical clock's text.
        """
        if message.updated is None:
            raise MissingFieldError(
                "`updated` is missing: create the changefeed with the option updated, or use "
                "order='arrival'",
                "$.updated",
            )
        return hlc_position(message.updated, "$.updated")


class _Message(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    after: Any = ABSENT
    before: msgspec.Raw = msgspec.Raw(b"null")
    key: msgspec.Raw = msgspec.Raw(b"null")
    topic: Any = None
    updated: Any = None
    mvcc_timestamp: Any = None
    resolved: Any = None

    @property
    def operation(self) -> str | None:
        """What the message is; None: it is not one of a wrapped changefeed."""
        if self.after is not ABSENT:
            return "null" if self.after is None else "row"
        return None if self.resolved is None else "resolved"


def _require_after(message: Any, kind: RowKind | Ignored | None) -> None:
    if kind is None:
        raise MissingFieldError(
            "`after` is missing: not a message of a changefeed with envelope=wrapped, or with "
            "envelope=bare and the option updated",
            "$.after",
        )


def _wrapped(rows: RowConverter, value: bytes) -> bytes:
    """Return the wrapped message of a bare one, and any other message as it is."""
    row = read_members(value) if b'"__crdb__"' in bytes(value) else {}
    if "__crdb__" not in row:
        return value
    meta = read_part(read_members, bytes(row.pop("__crdb__")), "$.__crdb__")
    if not row:
        return json_bytes(meta)
    needed = {rows.names[index] for index in rows.required} - {*rows.unique_key}
    values = [bytes(row[name]) for name in needed & row.keys()]
    if not values and not rows.untyped:
        raise MissingFieldError(
            "CockroachDB writes a delete as a row of NULLs with envelope=bare: declare a column of "
            "the row that is never null as NOT NULL, or create the changefeed with envelope=wrapped",
            "$",
        )
    return json_bytes({**meta, "after": None if set(values) == {b"null"} else row})


class _Reader(ScalarReader):
    """Reads the records of one table, whose rows get the columns of the key that they lack."""

    def __call__(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        if value is None:
            return Ignored.TOMBSTONE
        message = self.message(value)
        if message.after is None:
            # The key of a sample's message has no names.
            return (
                Ignored.TOMBSTONE
                if self.rows.untyped
                else [Event(DELETE, self._key(key), None, message, "$", "")]
            )
        events = self.events(message, value)
        for event in () if isinstance(events, Ignored) or self.rows.untyped else events:
            own, image = self.rows.key(event.after, event.after_path), self._key(key)
            for name, mine, other in zip(
                self.rows.unique_key, own, self.rows.key(image, "$"), strict=True
            ):
                if mine is not ABSENT and mine != other:
                    raise MalformedMessageError(
                        f"`{name}` has another value in the Kafka key than in the row: declare the "
                        "columns of primary_key in the order of the table's primary key",
                        f"{event.after_path}.{name}",
                    )
            if ABSENT in own:
                event.after = self.rows.present(event.after) | image
        return events

    @cached_property
    def _read_key(self) -> Callable[[bytes], Any]:
        return json_reader(self.envelope.keys.shape, spelled=self.rows.spelled)

    def _key(self, key: bytes | None) -> dict[str, Any]:
        """Return the columns of the Kafka key."""
        if key is None:
            raise MissingFieldError("the Kafka key is null", "", "key")
        try:
            image = self.rows.raw_key(self._read_key(key))
            self.rows.key(image, "$")
        except DecodeError as error:
            raise error.at(field="key") from None
        return image
