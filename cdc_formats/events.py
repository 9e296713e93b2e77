"""The results of decoding: row kinds, events, changes, and reasons why a record has none.

The position of a change in its source's log, which can be compared, and the checks of its parts.

A `Position` is two unsigned 64-bit integers in a history. Nothing is guessed: a malformed field is
an error. Parts of a producer's position beyond 128 bits are omitted if no two changes of one key
need them; otherwise they are an error too.

Each format describes its positions in its module, and its method `position` reads them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from cdc_formats.decoding.rows import Image, RowConverter
from cdc_formats.errors import TypeConversionError, UnknownOperationError
from cdc_formats.values.json_reader import json_text

# --------------------------------------------------------------------------------------------------
# Row kinds: the effect of one changelog row on the table.
#
# Values and short strings are those of Flink's ``org.apache.flink.types.RowKind``; the values are
# part of the state format. A `ChangelogMode` is the set of row kinds that a format declares or a
# consumer needs.


class RowKind(IntEnum):
    """The kind of one changelog row.

    Examples
    --------
    >>> RowKind.UPDATE_BEFORE.short_string
    '-U'
    >>> RowKind.from_short_string("+I")
    <RowKind.INSERT: 0>
    """

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    @property
    def short_string(self) -> str:
        """``+I``, ``-U``, ``+U`` or ``-D``."""
        return SHORT_STRINGS[self]

    @classmethod
    def from_short_string(cls, text: str) -> RowKind:
        """Return the kind with the short string `text`.

        Raises
        ------
        ValueError
            When `text` is not one of ``+I -U +U -D``.
        """
        if text not in SHORT_STRINGS:
            raise ValueError(f"{text!r} is not a row kind; use one of {', '.join(SHORT_STRINGS)}")
        return cls(SHORT_STRINGS.index(text))


# Member lookup on an Enum is slow up to Python 3.11.
INSERT, UPDATE_BEFORE, UPDATE_AFTER, DELETE = RowKind
SHORT_STRINGS = ("+I", "-U", "+U", "-D")
"""Short strings by the row kind's value."""


# --------------------------------------------------------------------------------------------------
# Changelog modes (Flink's ``ChangelogMode``): row kinds that formats declare or consumers n


@dataclass(frozen=True)
class ChangelogMode:
    """A set of row kinds, declared before any data is read.

    Parameters
    ----------
    kinds : frozenset of RowKind
        The kinds that can appear.
    key_only_deletes : bool
        Whether a ``-D`` may carry only the key columns, like a Kafka tombstone. Flink's Kafka
        connector declares full deletes for upsert-kafka although its tombstones have only the key.

    Examples
    --------
    >>> ChangelogMode.all().contains(RowKind.UPDATE_BEFORE)
    True
    >>> str(ChangelogMode.upsert())
    '[+I, +U, ~D]'
    """

    kinds: frozenset[RowKind]
    key_only_deletes: bool = False

    @classmethod
    def insert_only(cls) -> ChangelogMode:
        """Only ``+I``."""
        return cls(frozenset({RowKind.INSERT}))

    @classmethod
    def upsert(cls, *, key_only_deletes: bool = True) -> ChangelogMode:
        """``+I +U -D``: updates without their before-image."""
        return cls(
            frozenset({RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE}), key_only_deletes
        )

    @classmethod
    def all(cls) -> ChangelogMode:
        """``+I -U +U -D``: a changelog that can be retracted."""
        return cls(frozenset(RowKind))

    def contains(self, kind: RowKind) -> bool:
        """Whether rows of `kind` can appear."""
        return kind in self.kinds

    def __str__(self) -> str:
        kinds = ", ".join(kind.short_string for kind in sorted(self.kinds))
        return f"[{kinds.replace('-D', '~D') if self.key_only_deletes else kinds}]"


class Position(msgspec.Struct, frozen=True, gc=False):
    """The position of a change in its source's log.

    Attributes
    ----------
    history : str
        The identity of the log. Only positions of one history can be compared.
    high, low : int or None, int
        From 0 to 2**64-1, compared as a pair; `high` is None if the change has no position in the
        log.
    clock_ms : int or None
        The source's own time of the change, in milliseconds since 1970-01-01 UTC; of 64 bits.
    """

    history: str
    high: int | None
    low: int
    clock_ms: int | None


@lru_cache(100)
def file_number(file: str, path: str) -> int:
    """Return the number at the end of a log file's name, such as ``binlog.000006``.

    Raises
    ------
    TypeConversionError
    """
    number = file.rpartition(".")[2]
    if not (number.isascii() and number.isdigit() and len(number) < len(file)):
        raise malformed("a file with a number, as in 'binlog.000006'", file, path)
    return digits(number, 64, path)


def digits(text: Any, bits: int, path: str) -> int:
    """Return the number in text of digits, which has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 40):
        raise malformed("an integer or text of digits", text, path)
    return within(int(text), bits, path)


_HLC = re.compile(r"([0-9]{1,19})\.([0-9]{10})")


def hlc_position(text: Any, path: str) -> Position:
    """Return the position in the text of CockroachDB's hybrid logical clock.

    It has nanoseconds since 1970, a point, and the logical part as ten digits.

    Raises
    ------
    TypeConversionError
    """
    parts = _HLC.fullmatch(text) if isinstance(text, str) else None
    if parts is None:
        raise malformed(
            "nanoseconds and ten digits, as in '1532377312562986715.0000000001'", text, path
        )
    nanos, logical = map(int, parts.groups())
    return Position("", within(nanos, 63, path), within(logical, 32, path), nanos // 1_000_000)


def integer(value: Any, bits: int, path: str) -> int:
    """Return an integer that is not negative and has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    if type(value) is not int:
        raise malformed("an integer", value, path)
    return within(value, bits, path)


def within(number: int, bits: int, path: str) -> int:
    """Return a number if it has at most so many bits.

    Raises
    ------
    TypeConversionError
    """
    # Negative numbers stay negative when shifted.
    if number >> bits:
        raise malformed(f"an integer from 0 to 2**{bits} - 1", number, path)
    return number


def malformed(expected: str, value: Any, path: str) -> TypeConversionError:
    """Return the error of a value that is not the expected one."""
    return TypeConversionError(
        f"expected {expected}, got {json_text(value)[:40]}", path, bare=f"expected {expected}"
    )


def unknown_operation(label: str, value: Any, reason: str, path: str) -> UnknownOperationError:
    """Return the error of an operation that the format does not know."""
    return UnknownOperationError(
        f"{label} {str(value)[:40]!r} {reason}", path, bare=f"{label} {reason}"
    )


Headers = Sequence[tuple[str, "bytes | None"]]
"""The headers of a Kafka record, in order; a name may occur twice."""
KeyValue = tuple["bytes | None", "bytes | None"]
"""The key and the value of a Kafka record."""
Reader = Callable[..., "Sequence[Event] | Ignored"]
"""A function from the key and value of a Kafka record (and its headers if `Traits.reads_headers`)
to its events."""


class Ignored(Enum):
    """The reason why a valid record gives no rows. Such records are counted by reason."""

    TOMBSTONE = "TOMBSTONE"
    """A null (or empty) value in a format whose deletes are messages."""
    DDL = "DDL"
    """A statement that changes the schema."""
    HEARTBEAT = "HEARTBEAT"
    TRANSACTION = "TRANSACTION"
    """The begin or end of a transaction."""
    TRUNCATE = "TRUNCATE"
    """All rows of the table are gone."""
    MESSAGE = "MESSAGE"
    """A logical message, or a statement without rows."""
    SNAPSHOT_MARK = "SNAPSHOT_MARK"
    """The begin or end of a snapshot."""
    OTHER_TABLE = "OTHER_TABLE"
    """A table that the format's filters exclude."""


class ControlEvent(NamedTuple):
    """The content of a record that has no rows, such as a schema change or a truncate.

    Attributes
    ----------
    type : Ignored
    database, schema, table : str or None
        The table concerned; None if the record does not name it or concerns all.
    statement : str or None
        The SQL text of a DDL; the prefix and content of a logical message (as a JSON object);
        ``BEGIN`` or ``END`` and the id of a transaction; the producer's name for a snapshot's begin
        or end.
    """

    type: Ignored
    database: str | None = None
    schema: str | None = None
    table: str | None = None
    statement: str | None = None


class Change(msgspec.Struct, frozen=True, gc=False):
    """One row of a changelog.

    Attributes
    ----------
    kind : RowKind
    row : tuple
        Canonical values (see `cdc_formats.values.types`) in the order of the declared columns.
    metadata : tuple
        Canonical values of the requested metadata columns, in the requested order.
    """

    kind: RowKind
    row: tuple[Any, ...]
    metadata: tuple[Any, ...] = ()


class KeyedChange(msgspec.Struct, frozen=True, gc=False):
    """The effect of one event on one key: its newest row, or its deletion.

    Attributes
    ----------
    key : tuple
        Canonical values of the unique key's columns, the same ones for equal keys (`equality`).
    row : tuple or None
        The row after the event, with `ABSENT` for columns that the event lacks; ``None``: deleted.
    metadata : tuple
    partial : bool
        Whether `row` contains `ABSENT`.
    position : Position or None
        The event's position in its source's log, if positions were requested; None if the message
        has none.
    moved_from : tuple or None
        If the key of a partial row changed: its earlier key, from the event or a header
        (`Traits.old_key_header`): the row of that key has the missing columns.
    """

    key: tuple[Any, ...]
    row: tuple[Any, ...] | None
    metadata: tuple[Any, ...] = ()
    partial: bool = False
    position: Position | None = None
    moved_from: tuple[Any, ...] | None = None


class Event(msgspec.Struct, gc=False):
    """One event of a message (or of one element of its arrays), with unconverted values.

    Parameters
    ----------
    kind : RowKind
        ``INSERT`` has `after`, ``UPDATE_AFTER`` has `after` and may have `before`, ``DELETE`` has
        `before`.
    before, after : mapping, `RowConverter.shape` or None
        Row images: column name to the message's value.
    message : Any
        The object from which the format's metadata is read.
    before_path, after_path : str
        The paths of the images in the message, for errors.
    changed_only : bool
        Whether `before` has only the columns that changed (Canal's and Maxwell's ``old``).
    sparse : bool
        Whether a column that is missing in `after`, or in `before` of a delete, is unknown and not
        NULL (OGG's compressed updates). With `changed_only`, a column that is in `before` and not
        in `after` is NULL.
    rows : RowConverter or None
        The converter of this message's images, where the message describes its columns itself.
    single : bool
        Whether each message holds one changelog row, so that the ``-U`` of an update is a separate
        message (changelog-json).
    """

    kind: RowKind
    before: Any = None
    after: Any = None
    message: Any = None
    before_path: str = "$.before"
    after_path: str = "$.after"
    changed_only: bool = False
    sparse: bool = False
    rows: RowConverter | None = None
    single: bool = False

    @classmethod
    def insert(cls, after: Image, message: Any = None, path: str = "$.after") -> Event:
        """A row that was inserted, or read by a snapshot."""
        return cls(INSERT, None, after, message, "", path)

    @classmethod
    def update(
        cls,
        before: Image | None,
        after: Image,
        message: Any = None,
        paths: tuple[str, str] = ("$.before", "$.after"),
    ) -> Event:
        """A row that was updated; `before` is None if the producer does not write it."""
        return cls(UPDATE_AFTER, before, after, message, *paths)

    @classmethod
    def delete(cls, before: Image, message: Any = None, path: str = "$.before") -> Event:
        """A row that was deleted."""
        return cls(DELETE, before, None, message, path, "")
