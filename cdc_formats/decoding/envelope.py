"""What a format declares about its messages, tables and metadata, for both decoders.

`scalar_reader.ScalarReader` reads one message, and is the specification.
`normalize.decode.columnar` decodes many messages as Arrow columns, if it gives exactly the rows of
`decoder.Decoder.upserts`. All others are left to that decoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, reduce
from itertools import product
from operator import attrgetter, or_
from types import NoneType
from typing import Any, ClassVar, Literal, get_args

import msgspec

from cdc_formats.errors import (
    DecodeError,
    FormatOptionError,
    MalformedMessageError,
    MissingBeforeImageError,
    MissingFieldError,
    TypeConversionError,
)
from cdc_formats.events import ControlEvent, Event, Headers, Ignored, Position, Reader, RowKind
from cdc_formats.values.json_reader import (
    BatchReader,
    fields_of,
    json_reader,
    json_text,
    read_json,
    read_members,
    read_object,
)
from cdc_formats.values.schema import ABSENT, ConversionError, Converter, Handling, SqlType
from cdc_formats.values.times import LEAST_STAMP, MOST_STAMP
from cdc_formats.values.types import converter

from .rows import RowConverter

# --------------------------------------------------------------------------------------------------
# Filters for topics of several tables (Canal's ``database.include`` and ``table.include``).

Path = tuple[str, ...]


class TableFilter:
    """Regular expressions that the names of a message's table must match in full, as in Flink.

    Parameters
    ----------
    options : mapping
        By the names of the options, such as ``database_include``, their expressions; None matches
        everything.
    columns : sequence of str
        The metadata columns that the options select (`Traits.table_identity`).
    read : callable
        From a message to the values of these columns.

    Raises
    ------
    FormatOptionError
        When an expression is not a regular expression.
    """

    def __init__(
        self,
        options: Mapping[str, str | None],
        columns: Sequence[str],
        read: Callable[[Any], tuple[Any, ...]],
    ) -> None:
        self.patterns = {
            option.removesuffix("_include"): _compile(option, text)
            for option, text in options.items()
        }
        self.set = any(pattern is not None for pattern in self.patterns.values())
        self.columns, self.read = columns, read

    def match(self, message: Any, path: str) -> bool:
        """Whether a message belongs to a selected table.

        Parameters
        ----------
        message : Any
            `Event.message`.
        path : str
            The object with the names in the message, for errors.

        Raises
        ------
        MissingFieldError
            As `match_names`.
        """
        return not self.set or self.match_names(self.read(message), path)

    def match_names(self, names: Sequence[Any], path: str) -> bool:
        """Whether these are the names of a selected table.

        Raises
        ------
        MissingFieldError
            When the message does not contain a name (Flink: a NullPointerException). A JSON null is
            treated as missing.
        """
        for (what, pattern), name in zip(self.patterns.items(), names, strict=True):
            if pattern is None:
                continue
            if name is None:
                raise MissingFieldError(
                    f"`{what}` is null or missing, and {what}_include is set", path
                )
            if not pattern.fullmatch(str(name)):
                return False
        return True

    def guard(self, read: Reader, *name_paths: Sequence[Path]) -> Reader:
        """Return `read`, but ignore other tables' JSON messages even if it raises an error.

        Parameters
        ----------
        read : callable
        *name_paths : sequence of tuple of str
            The paths of the names that `match_names` compares, from the root of a record's value.
            Each sequence is tried.
        """
        if not self.set:
            return read

        def guarded(
            key: bytes | None, value: bytes | None, *headers: Headers
        ) -> Sequence[Event] | Ignored:
            try:
                return read(key, value, *headers)
            except DecodeError:
                if value is not None and any(self._is_other(value, paths) for paths in name_paths):
                    return Ignored.OTHER_TABLE
                raise

        return guarded

    def _is_other(self, value: bytes, paths: Sequence[Path]) -> bool:
        try:
            return not self.match_names([_at(value, path) for path in paths], "$")
        except DecodeError:
            return False  # not JSON, or without the name


def _at(text: bytes, path: Path) -> Any:
    """Return the value at a path, or None; other members are skipped and may hold anything."""
    for name in path:
        members = read_members(text)
        if name not in members:
            return None
        text = bytes(members[name])
    return read_json(text)


def _compile(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except (re.error, TypeError) as error:
        raise FormatOptionError(f"{option} {text!r} is not a regular expression: {error}") from None


# --------------------------------------------------------------------------------------------------
# Rows that are incomplete in MySQL's log, as written by Canal and Maxwell.
#
# With ``binlog_row_image=MINIMAL`` an update has the primary key and the columns that the statement
# set, and a delete has the primary key. ``NOBLOB`` omits unchanged TEXT and BLOB columns. If the
# setting is not declared, a message is treated as minimal in two cases: an update without a changed
# column in ``old``, and an update or delete with only the primary key. If the table's primary key is
# unknown, the second case is an update with a single column, which changed.
#
# In all other messages a missing column is NULL: it was added to the table later, or Maxwell omits
# NULLs (``output_nulls=false``).

WHOLE_ROWS = (
    "configure MySQL to write whole rows (binlog_row_image=FULL; if it does, set the option "
    "binlog_row_image)"
)
"""The remedy in errors about a row that lacks columns."""


@dataclass(frozen=True)
class PartialRows:
    """Recognises rows whose missing columns are unchanged, not NULL.

    The fields with rows are ``data`` and ``old``.

    Parameters
    ----------
    rows : RowConverter
    row_image : str or None
        The server's ``binlog_row_image``; None if it is not declared.
    key_field : str
        The field with the names of the table's primary key.
    in_arrays : bool
        Whether the rows are in arrays, as Canal writes them. Then an empty row of ``old`` has no
        change, and a message that names no primary key is of a table without one.
    """

    rows: RowConverter
    row_image: str | None
    key_field: str
    in_arrays: bool = False

    def mark(self, event: Event, value: bytes, index: int, keyed: bool) -> None:
        """Mark an event whose missing columns are unchanged; the parameters are those of `adjust`.

        Raises
        ------
        MissingFieldError
            When an update has none of the declared columns.
        MissingBeforeImageError
            When the declared key may have changed, and its old value is not in the message.
        """
        is_delete = event.kind is RowKind.DELETE
        present = self._present(event.before if is_delete else event.after)
        is_whole = present is None and (is_delete or event.before is not None)
        if is_whole or self.row_image == "FULL" or event.kind is RowKind.INSERT:
            return
        row, old, has_changes = self._read_again(value, index)
        declared = self.rows.unique_key if keyed else ()
        key = self._key(event.message, () if self.in_arrays else declared)
        event.sparse = present is not None and (
            self.row_image is not None
            or not (is_delete or has_changes)
            or _is_minimal(present, row, old, (*key, *declared), is_delete=is_delete)
        )
        if not is_delete and (event.sparse or not has_changes):
            self._require_key(event, present, [name for name in declared if name not in key])

    def _read_again(self, value: bytes, index: int) -> tuple[Any, Any, bool]:
        """Return a row and its changed columns, also undeclared ones, and whether there are any."""
        message = read_object(value)
        old: Any = message.get("old")
        row: Any = message.get("data") or old
        if not self.in_arrays:
            return row, old, old is not None
        changed = old and old[index]
        return row[index], changed, bool(changed)

    def _require_key(self, event: Event, present: set[str] | None, other: Sequence[str]) -> None:
        """Raise if an update has no declared column, or columns of a key that may have changed."""
        if present is not None and not present:
            raise MissingFieldError(
                f"the update has none of the declared columns: {WHOLE_ROWS}", event.after_path
            )
        if name := next((name for name in other if present is None or name in present), None):
            raise MissingBeforeImageError(
                f"the update lacks old values, and `{name}` is not in the table's primary key, so it "
                f"may have changed: {WHOLE_ROWS}",
                event.before_path,
            )

    def nulls(self, message: Any, kind: Any, image: Any, old: Any) -> bool:
        """Return whether a row's missing columns are certainly NULL, from declared columns only.

        Parameters
        ----------
        message : Struct
        kind : RowKind
        image, old : Struct or mapping
            The row, and the columns of it that changed; None: `old` is missing.
        """
        present = self._present(image)
        if present is None or kind is RowKind.INSERT:
            return present is None or bool(present)
        changed = kind is RowKind.DELETE or (
            old is not None and any(value is not ABSENT for value in self.rows.raw(old))
        )
        other = not _within(present, (*self._key(message, ()), *self.rows.unique_key))
        return self.row_image is None and changed and other and len(present) > 1

    def _key(self, message: Any, unnamed: Sequence[str]) -> Sequence[Any]:
        """Return the table's primary key that a message names, or `unnamed`."""
        return text_list(getattr(message, self.key_field)) or unnamed

    def _present(self, image: Any) -> set[str] | None:
        """Return an image's declared columns; None if it has all, or if every image is whole."""
        if self.row_image == "FULL":
            return None
        pairs = zip(self.rows.names, self.rows.raw(image), strict=True)
        present = {name for name, value in pairs if value is not ABSENT}
        return None if len(present) == len(self.rows.names) else present


def _is_minimal(
    present: set[str], row: Any, old: Any, key: Sequence[Any], *, is_delete: bool
) -> bool:
    """Return whether a row has only columns of the key: `present` are the declared ones in it."""
    if is_delete or key:
        return _within(present, key) and _within(row, key)
    # If the key is unknown, a single changed column is treated as the key.
    return len(present) == 1 and set(row) == set(old)


def _within(names: Collection[str], key: Collection[Any]) -> bool:
    # A message's key can have any JSON values, which a set could not have.
    return all(name in key for name in names)


@dataclass(frozen=True, kw_only=True)
class Images:
    """The rows in a message.

    Parameters
    ----------
    many : {"one", "array", "array of one"}
        Whether a field holds a row, or an array of rows.
    missing_is_null : bool
        Whether a column that is not in a row is NULL. Otherwise `partial` decides, or the scalar
        decoder reads messages with such rows.
    partial : PartialRows or None
        Decides whether the columns that a row lacks are NULL or unchanged, in place of
        `Envelope.adjust`.
    missing_mark : str
        The end of the names of fields in a row that say which of its columns are missing. Messages
        that have one are left to the scalar decoder.
    before_has : {"all columns", "changed columns", "some columns"}
        The columns of the row before an update: all of the table, or only those that changed, or
        others, which are no row.
    before_prefix : str
        The prefix of the columns of the row before an update, if they are next to those of the row
        after; only without `Envelope.before`.
    deleted_in_either : bool
        Whether a delete without the field `Envelope.deleted` has its row in `Envelope.before`.
    remedy : str
        How a producer is configured to write the row of a delete, if that is the one before.
    names : mapping
        The names of the fields of the rows in the message where they differ, if `Envelope.fields`
        does not declare them.
    columns : tuple of int or None
        The columns that the message's row has; None: all.
    """

    many: Literal["one", "array", "array of one"] = "one"
    missing_is_null: bool = False
    partial: PartialRows | None = None
    missing_mark: str = ""
    before_has: Literal["all columns", "changed columns", "some columns"] = "all columns"
    before_prefix: str = ""
    deleted_in_either: bool = False
    remedy: str = ""
    names: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Codes:
    """What else a message's operation says.

    Parameters
    ----------
    without_table : mapping
        The reason of messages without rows by the operation's value, if they name no table: the
        filter does not exclude them.
    are_text : bool
        Whether an operation that is not text is a missing one; otherwise it is unknown.
    or_else : str
        What an unknown operation also is not, for its error.
    """

    without_table: Mapping[str, Ignored] = field(default_factory=dict)
    are_text: bool = True
    or_else: str = ""


@dataclass(frozen=True, kw_only=True)
class Columnar:
    """Which messages the columnar decoder reads; the scalar decoder reads the others.

    Parameters
    ----------
    possible : bool
    fields : type or None
        As `Envelope.fields`: the scalar decoder reads a message that does not have its types. None:
        those, with types of the operation, `plain` and `Envelope.attributes` that accept only the
        declared values, or names.
    plain : mapping
        By the names of fields that decide how a message is read, the values of such messages.
    needs_before : bool
        Whether the scalar decoder reads an update without the row before it.
    message : callable or None
        From the struct and the text of a message to the value from which metadata, table and
        position are read; None: the struct.
    """

    possible: bool = True
    fields: type[msgspec.Struct] | None = None
    plain: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    needs_before: bool = False
    message: Callable[[Any, Any], Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Framing:
    """What is around a message: Connect's schema block, or a schema registry's frame.

    Parameters
    ----------
    block : tuple of str
        The fields of a message around the actual one: the schema block, and the message; empty if
        there are none.
    bare : bool
        Whether a message without a schema block is accepted.
    by_block : callable
        From the text of a schema block, or from a frame, to the converter of its rows. If it
        returns None or raises a DecodeError, the scalar decoder reads the messages.
    frame : int
        The bytes in front of each message that identify its writer's schema; 0: messages are JSON.
    header : str
        The Kafka header that replaces the frame; the scalar decoder reads records that have it.
    writer_schema : callable or None
        From a frame to the Avro schema (`avro.records.AvroSchema`) of the messages behind it; only
        with `frame`.
    row_reader : callable or None
        From the msgspec struct of a row to the reader of messages that are not JSON; only without
        `Envelope.after`.
    unwrap : callable or None
        From a record's value to its message in JSON; None: the value is the message. It may raise a
        DecodeError.
    """

    block: tuple[str, ...] = ()
    bare: bool = True
    by_block: Callable[[bytes], RowConverter | None] = lambda block: None
    frame: int = 0
    header: str = ""
    writer_schema: Callable[[bytes], Any] | None = None
    row_reader: Callable[[Any], BatchReader] | None = None
    unwrap: Callable[[bytes], bytes] | None = None


@dataclass(frozen=True, kw_only=True)
class RowKeys:
    """The Kafka keys, if a record without a row is the delete of its key.

    Parameters
    ----------
    shape : type or None
        The msgspec struct of a key with the primary key's columns; None: keys are not read.
    reader : callable or None
        From `shape` to the reader of keys that are not JSON.
    of_rows : bool
        Whether the key also gives a row the columns of the primary key that it lacks; then a row
        has a column of its own, too. A delete without a row has the columns of the key.
    is_compared : bool
        Whether a key with other values than its row is an error: it names no columns.
    deletes : tuple of (bytes or None)
        The values of records without a row.
    """

    shape: Any = None
    reader: Callable[[Any], BatchReader] | None = None
    of_rows: bool = False
    is_compared: bool = False
    deletes: tuple[bytes | None, ...] = (None,)


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """Where a format's messages have the operation, the rows, the table, the time and the position.

    Unstable: a minor release may change it without a deprecation.

    Parameters
    ----------
    fields : type
        A msgspec struct of the fields other than the rows. Types narrower than ``Any`` refuse
        messages as malformed. By default it has the fields of `operation`.
    operation : tuple of str
        The fields with the operation; a field within another is ``outer.inner``. Empty: every
        message is the newest row of its key.
    operation_header : str
        The Kafka header with the operation, which replaces the field `operation` of the message.
    kinds : mapping
        The row kind by the operation's value: a tuple if `operation` has several fields. Messages
        without rows have the reason, if their table is compared with the filter first. Messages of
        other operations are left to the scalar decoder.
    codes : Codes
    inspect : callable or None
        Called with the struct of a message and its kind, None if it is unknown. Returns the reason
        if the message has no rows, or raises a DecodeError. Messages of which it returns a reason
        need values that are not in `kinds` or `Columnar.plain`.
    after : str
        The field with the row after the change, ``outer.inner`` if it is within another. Empty: the
        message itself is the row.
    before : str
        The field with the row before an update; empty if the format has none. Unless a plan needs
        whole rows, only its key is read.
    deleted : str
        The field with the row of a delete, `after` or `before`.
    images : Images
    adjust : callable or None
        Called with each `Event`, the text of its message, its index there, and whether only keys of
        rows before updates are used. It changes the event, or raises a DecodeError. Messages of
        such events must be left to the scalar decoder.
    attributes : mapping
        Metadata that is a field of the message: by its name, the field (``outer.inner`` if it is
        within another), and the function from its value to the canonical one, None if it is text.
        The format's `metadata` reads all others.
    position : callable or None
        From the struct of a message to its position; None: `Traits.position`.
    framing : Framing
    keys : RowKeys
    columnar : Columnar
    """

    fields: type[msgspec.Struct] = msgspec.Struct
    operation: tuple[str, ...] = ()
    operation_header: str = ""
    kinds: Mapping[Any, RowKind | Ignored]
    codes: Codes = Codes()
    inspect: Callable[[Any, RowKind | Ignored | None], Ignored | None] | None = None
    after: str = ""
    before: str = ""
    deleted: str = ""
    images: Images = Images()
    adjust: Callable[[Event, bytes, int, bool], None] | None = None
    attributes: Mapping[str, tuple[str, Callable[[Any], Any] | None]] = field(default_factory=dict)
    position: Callable[[Any], Position | None] | None = None
    framing: Framing = Framing()
    keys: RowKeys = RowKeys()
    columnar: Columnar = Columnar()

    NEWEST: ClassVar[Mapping[Any, RowKind]] = {(): RowKind.UPDATE_AFTER}
    """The `kinds` of a format without operations."""

    def __post_init__(self) -> None:
        if self.fields is msgspec.Struct:
            object.__setattr__(self, "fields", fields_struct(" ".join(self.operation)))

    @property
    def is_plain(self) -> bool:
        """Whether `scalar_reader` reads each message whole.

        It does if each is a JSON object with one operation.
        """
        return len(self.operation) == 1 and not (
            self.framing.block or self.framing.frame or self.keys.shape is not None
        )

    @property
    def has_row_field(self) -> bool:
        """Whether a message is a JSON object with the operation, and with the row in a field of it.

        The native decoder, and the router of many tables, read only such messages.
        """
        return bool(self.after) and not (
            self.framing.frame
            or self.framing.unwrap is not None
            or self.keys.shape is not None
            or self.operation_header
            or self.images.before_prefix
            or self.columnar.message is not None
        )

    @cached_property
    def strict_fields(self) -> type[msgspec.Struct]:
        """The struct of the fields other than the rows, for the columnar decoder."""
        if self.columnar.fields is not None:
            return self.columnar.fields
        keys = [(key,) if len(self.operation) == 1 else key for key in self.kinds]
        types: dict[str, Any] = {
            name: _type_of(values)
            for name, values in zip(self.operation, zip(*keys, strict=True), strict=True)
        }
        types |= {name: _type_of(values) for name, values in self.columnar.plain.items()}
        types |= {name: str | None for name, convert in self.attributes.values() if convert is None}
        return narrowed(self.fields, types)

    @cached_property
    def operation_of(self) -> Callable[[Any], Any]:
        """The function from a message to its operation, a key of `plain_kinds`."""
        fields = (*self.operation, *self.columnar.plain)
        return attrgetter(*fields) if fields else lambda message: ()

    @cached_property
    def plain_kinds(self) -> Mapping[Any, RowKind | Ignored]:
        """The row kind or reason by the result of `operation_of`, for the columnar decoder."""
        if not self.columnar.plain:
            return self.kinds
        return {
            (operation, *values): kind
            for operation, kind in self.kinds.items()
            for values in product(*self.columnar.plain.values())
        }

    def set_operation(self, message: Any, headers: Headers) -> None:
        """Set a message's operation to that of the header; the last of several headers wins."""
        value = dict(headers).get(self.operation_header)
        # Bytes that are not UTF-8 become text that no code has.
        setattr(
            message,
            self.operation[0],
            None if value is None else value.decode(errors="backslashreplace"),
        )

    def kinds_of(self, messages: Iterable[Any]) -> list[RowKind | Ignored | None]:
        """Return the row kind or reason of each message; None: the scalar decoder reads it."""
        return list(map(self.plain_kinds.get, map(self.operation_of, messages)))

    def path(self, name: str) -> Path:
        """Return the path in the message of a field, ``outer.inner`` if it is within another."""
        struct, path = self.strict_fields, list[str]()
        for part in name.split("."):
            each = next((field for field in fields_of(struct) if field.name == part), None)
            # A property of the struct is no field of the message.
            path.append(part if each is None else each.encode_name)
            struct = struct if each is None else each.type
        return tuple(path)

    def image_path(self, name: str) -> Path:
        """Return the path in the message of a field with rows."""
        declared = any(field.name == name.partition(".")[0] for field in fields_of(self.fields))
        return self.path(name) if declared else (self.images.names.get(name, name),)

    def can_hold(self, rows: RowConverter) -> bool:
        """Return whether no column is named like a field of a message that is itself the row."""
        fields = fields_of(self.strict_fields)
        return bool(self.after) or {field.encode_name for field in fields}.isdisjoint(rows.names)

    def image(self, rows: RowConverter, missing: Any) -> Any:
        """Return a row's msgspec struct: it types integers; converters check the other columns.

        Parameters
        ----------
        rows : RowConverter
        missing : Any
            Same as in `row_struct`.
        """
        images = self.images
        indices = range(len(rows.columns)) if images.columns is None else images.columns
        base = msgspec.Struct if self.after else self.strict_fields
        return rows.struct(indices, rows.names, missing, base, images.missing_mark)

    def struct(self, fields: type[msgspec.Struct], after: Any, before: Any = None) -> Any:
        """Return the msgspec struct of a message with these fields and types of rows.

        A message that is itself the row has the fields of `after`.
        """
        if not self.after:
            fields, after = after or fields, None
        many = self.images.many != "one"
        images: dict[str, Any] = {
            name: (list[of] if many else of) | None  # type: ignore[valid-type]
            for name, of in ((self.after, after), (self.before, before))
            if of is not None
        }
        # The struct of the fields may declare the rows' fields, too, which then get another type.
        declared = {field.name for field in fields_of(fields)}
        own = {name: of for name, of in images.items() if name.partition(".")[0] in declared}
        return msgspec.defstruct(
            "Message",
            [(name, of, None) for name, of in images.items() if name not in own],
            bases=(narrowed(fields, own),),
            rename=dict(self.images.names),
            gc=False,
        )

    def shape(self, rows: RowConverter, image: Any, *, whole: bool) -> Any:
        """Return the msgspec struct of a message whose rows are `image`.

        The row before an update has only the key, or is `whole`.
        """
        before = None
        if self.before:
            whole = whole or self.images.before_has == "changed columns"
            indices = range(len(rows.columns)) if whole else rows.key_indices
            before = rows.struct(indices, rows.names, missing_mark=self.images.missing_mark)
        return self.struct(self.strict_fields, image, before)

    def prefixed_shape(self, rows: RowConverter) -> Any:
        """Return the msgspec struct of a message, whose row is the one before an update.

        The columns of this row have a prefix, and are next to those of the row after. All are read,
        since a text that is not UTF-8 is an error also in a column that is not needed.
        """
        names = [self.images.before_prefix + name for name in rows.names]
        return self.struct(self.strict_fields, rows.struct(range(len(names)), names))


def _type_of(values: Sequence[Any]) -> Any:
    """Return the type of a field that has one of these values, or none."""
    return reduce(or_, {type(value) for value in values}, None)


# --------------------------------------------------------------------------------------------------
# Readers of metadata for `MetadataColumn`: functions from message values to canonical values.

_LEAST_MS, _MOST_MS = -(-LEAST_STAMP // 1000), MOST_STAMP // 1000
_TO_BIGINT = converter(SqlType("BIGINT"), Handling())
_TO_TIMESTAMP = converter(SqlType("TIMESTAMP"), Handling(time_zone="UTC"))


def unraw(value: Any) -> Any:
    """Return the value of a message's part that was kept as raw text."""
    return read_json(bytes(value)) if isinstance(value, msgspec.Raw) else value


def member(value: Any, name: str) -> Any:
    """Return a member of an object, or None if it is missing or the value is not an object.

    The other members are not read.
    """
    if isinstance(value, msgspec.Raw):
        try:
            return _member_reader(name)(value).member
        except MalformedMessageError:
            value = unraw(value)  # null, or not an object; it raises if the text is damaged
    return value.get(name) if isinstance(value, dict) else None


@lru_cache(maxsize=64)
def _member_reader(name: str) -> Callable[[bytes], Any]:
    return json_reader(
        msgspec.defstruct("Member", [("member", Any, None)], rename={"member": name}, gc=False),
        spelled=True,
    )


def text(value: Any) -> str | None:
    """Return a value as text: a string unchanged, anything else as compact JSON."""
    value = unraw(value)
    return value if value is None or isinstance(value, str) else json_text(value)


def named(value: Any) -> str | None:
    """Return a name, or None if it is missing, empty or not text."""
    return value if isinstance(value, str) and value else None


def control_event(value: bytes | None, reason: Ignored, **paths: str) -> ControlEvent:
    """Return the control event of a message that has the event's names at these paths.

    Parameters
    ----------
    value : bytes or None
    reason : Ignored
    **paths : str
        By the names of the event's attributes, fields; ``outer.inner`` is within another.
    """
    message = read_object(value) if value else {}
    return ControlEvent(
        reason,
        **{name: named(reduce(member, path.split("."), message)) for name, path in paths.items()},
    )


def text_list(value: Any) -> list[Any] | None:
    """Return an array with its elements as text."""
    value = unraw(value)
    return [text(item) for item in value] if isinstance(value, list) else None


def text_map(value: Any) -> list[Any] | None:
    """Return an object as a canonical MAP<STRING, STRING>: text values, nested ones as JSON."""
    value = unraw(value)
    return (
        sorted([name, text(item)] for name, item in value.items())
        if isinstance(value, dict)
        else None
    )


def epoch_ms(value: Any, path: str) -> int | None:
    """Return a number of milliseconds since 1970 as a canonical TIMESTAMP, in microseconds."""
    if type(value) is int and _LEAST_MS <= value <= _MOST_MS:
        return value * 1000
    return None if value is None else _instant(_canonical(_TO_BIGINT, value, path) * 1000, path)


def epoch_s(value: Any, path: str) -> int | None:
    """Return a number of seconds since 1970 as a canonical TIMESTAMP, in microseconds."""
    return (
        None if value is None else _instant(_canonical(_TO_BIGINT, value, path) * 1_000_000, path)
    )


def timestamp(value: Any, path: str) -> int | None:
    """Return ISO or SQL text as a canonical TIMESTAMP, in UTC if it has no zone."""
    return None if value is None else _canonical(_TO_TIMESTAMP, value, path)


def bigint(value: Any, path: str) -> int | None:
    """Return a number as a canonical BIGINT."""
    return None if value is None else _canonical(_TO_BIGINT, value, path)


def int_map(value: Any, path: str) -> list[Any] | None:
    """Return an object as a canonical MAP<STRING, INT>."""
    value = unraw(value)
    return (
        sorted([name, bigint(item, path)] for name, item in value.items())
        if isinstance(value, dict)
        else None
    )


def _instant(micros: int, path: str) -> int:
    if LEAST_STAMP <= micros <= MOST_STAMP:
        return micros
    raise TypeConversionError("expected a time in the years 1 to 9999", path)


def _canonical(convert: Converter, value: Any, path: str) -> int:
    try:
        return int(convert(value))
    except ConversionError as error:
        raise TypeConversionError(str(error), path, bare=error.bare) from None


# --------------------------------------------------------------------------------------------------
# The msgspec structs of messages: the fields that a format declares, and its rows.


def fields_struct(
    names: str, *, raw: str = "", around: str = "", rename: Any = None
) -> type[msgspec.Struct]:
    """Return a struct of fields of a message, which may have any values; a missing one is None.

    Parameters
    ----------
    names : str
        The fields, separated by blanks.
    raw : str
        More fields, whose values are kept as JSON text; ``null`` if the field is missing.
    around : str
        More fields of messages that are around another one; empty text if the field is missing.
    rename : mapping, str or None
        Same as msgspec's: the names of the fields in the message.
    """
    fields: list[Any] = [(name, Any, None) for name in names.split()]
    fields += [(name, msgspec.Raw, msgspec.Raw(b"null")) for name in raw.split()]
    fields += [(name, msgspec.Raw, msgspec.Raw(b"")) for name in around.split()]
    return msgspec.defstruct("Fields", fields, rename=rename, gc=False)


def narrowed(struct: type[msgspec.Struct], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return a struct with other types of some fields; a nested field is ``outer.inner``."""
    by_field: dict[str, dict[str, Any]] = {}
    for name, of in types.items():
        outer, _, inner = name.partition(".")
        by_field.setdefault(outer, {})[inner] = of
    fields: list[Any] = []
    renamed = {}
    for each in fields_of(struct):
        if each.name in by_field:
            own = by_field[each.name]
            # The type of a struct may also accept null.
            inner = next(of for of in (*get_args(each.type), each.type) if of is not NoneType)
            of = own[""] if "" in own else narrowed(inner, own)
            default = None if each.default is msgspec.NODEFAULT else each.default
            is_struct = isinstance(of, type(msgspec.Struct))
            fields.append(
                (each.name, of, msgspec.field(default_factory=of) if is_struct else default)
            )
            renamed[each.name] = each.encode_name
    return msgspec.defstruct(struct.__name__, fields, bases=(struct,), rename=renamed, gc=False)
