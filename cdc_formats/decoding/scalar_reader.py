"""The reader of one message, made from its format's declaration: the specification."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from cdc_formats.errors import (
    DecodeError,
    MissingBeforeImageError,
    MissingFieldError,
)
from cdc_formats.events import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Event,
    Headers,
    Ignored,
    Reader,
    RowKind,
    unknown_operation,
)
from cdc_formats.values.json_reader import json_reader, message_shape
from cdc_formats.values.schema import ABSENT

from .envelope import Envelope, Path, TableFilter
from .rows import Image, RowConverter, message_reader, row_shape


class ScalarReader:
    """Reads the JSON messages of one table.

    Parameters
    ----------
    envelope : Envelope
    rows : RowConverter
    tables : TableFilter
    keyed : bool
        Same as `MessageFormat.reader`.
    """

    def __init__(
        self, envelope: Envelope, rows: RowConverter, tables: TableFilter, *, keyed: bool
    ) -> None:
        self.envelope, self.rows, self.tables, self.keyed = envelope, rows, tables, keyed
        self.table_paths = [
            envelope.path(envelope.attributes[name][0])
            for name in tables.columns
            if name in envelope.attributes
        ]
        self.table_outer = self.table_paths[-1][:-1] if self.table_paths else ()
        # A row before an update with some columns only shows whether the key changed.
        reads_before = keyed or envelope.images.before_has != "some columns"
        self.before = envelope.before if reads_before else ""
        self.changed_only = envelope.images.before_has == "changed columns"
        self.single = UPDATE_BEFORE in envelope.kinds.values()
        self.sparse = not envelope.images.missing_is_null and envelope.columnar.lacks_nulls is None
        self.message = self._message_reader()
        fields = [field for field in (envelope.after, envelope.before) if field]
        self.paths, self.rows_in = (
            {field: envelope.image_path(field) for field in fields},
            {field: attrgetter(field) for field in fields},
        )
        self.row = None if envelope.after else rows.read
        self.row_before = _row_before_reader(envelope, rows) if reads_before else None
        *self.outer, self.label = envelope.path(envelope.operation[0])
        self.operation = attrgetter(envelope.operation[0])
        self.operation_types = {str, *map(type, envelope.kinds)}

    def _message_reader(self) -> Callable[[bytes], Any]:
        envelope = self.envelope
        return message_reader(
            self.rows,
            envelope.fields,
            envelope.after,
            self.before,
            key_before=self.keyed
            and bool(envelope.after and self.before)
            and not self.changed_only,
            sparse=self.sparse,
            many=envelope.images.many != "one",
            names=envelope.images.names,
        )

    def guarded(self, *roots: Path) -> Reader:
        """Return this reader, which ignores other tables' messages even if they are damaged.

        Parameters
        ----------
        *roots : tuple of str
            The paths of messages in a record's value; none: the value is the message.
        """
        return self.tables.guard(
            self, *([(*root, *path) for path in self.table_paths] for root in roots or ((),))
        )

    def __call__(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        return Ignored.TOMBSTONE if value is None else self.events(self.message(value), value)

    def events(
        self, message: Any, value: bytes, root: str = "$", rows: RowConverter | None = None
    ) -> Sequence[Event] | Ignored:
        """Return the events of a message.

        Parameters
        ----------
        message : Struct
        value : bytes
            Its text.
        root : str
            The message's path in the record's value, for errors.
        rows : RowConverter or None
            Same as `Event`.
        """
        envelope, operation = self.envelope, self._operation(message, root)
        if reason := envelope.codes.without_table.get(operation or ""):
            return reason
        if self.tables.set and not self.tables.match(message, _json_path(root, self.table_outer)):
            return Ignored.OTHER_TABLE
        kind = envelope.kinds.get(operation)
        kind = (envelope.inspect(message, kind) if envelope.inspect is not None else None) or kind
        if isinstance(kind, Ignored):
            return kind
        if kind is None:
            raise self._unknown(message, root)
        events = self._events(message, value, kind, operation, root, rows)
        if envelope.adjust is not None:
            for index, event in enumerate(events):
                envelope.adjust(event, value, index, self.keyed)
        return events

    def _operation(self, message: Any, root: str) -> Any:
        """Return the operation; None if no operation of the format has its type."""
        try:
            operation = self.operation(message)
        except AttributeError:
            raise MissingFieldError(
                f"`{self.outer[-1]}` is missing or null", _json_path(root, self.outer)
            ) from None
        return operation if type(operation) in self.operation_types else None

    def _unknown(self, message: Any, root: str) -> DecodeError:
        operation, path = self.operation(message), _json_path(root, (*self.outer, self.label))
        if self.envelope.codes.are_text and not isinstance(operation, str):
            return MissingFieldError(f"`{self.label}` is missing or not a string", path)
        names = sorted({*map(str, self.envelope.kinds), *self.envelope.codes.without_table})
        reason = f"is none of {', '.join(names)}{self.envelope.codes.or_else}"
        return unknown_operation(self.label, operation, reason, path)

    def _events(
        self,
        message: Any,
        value: bytes,
        kind: RowKind,
        operation: Any,
        root: str,
        rows: RowConverter | None,
    ) -> list[Event]:
        envelope = self.envelope
        if kind is DELETE or kind is UPDATE_BEFORE:
            field = envelope.deleted
            if envelope.images.deleted_in_either and self.rows_in[field](message) is None:
                field = envelope.before
            images = self._images(message, value, field, operation, root)
            return [
                Event(kind, image, None, message, path, "", rows=rows) for image, path in images
            ]
        images = self._images(message, value, envelope.after, operation, root)
        if kind is INSERT or self.single:
            return [
                Event(kind, None, image, message, "", path, rows=rows, single=self.single)
                for image, path in images
            ]
        return [
            Event(
                kind,
                before,
                after,
                message,
                before_path,
                path,
                self.changed_only,
                self.sparse,
                rows,
            )
            for (after, path), (before, before_path) in zip(
                images, self._befores(message, value, images, operation, root), strict=True
            )
        ]

    def _images(
        self, message: Any, text: bytes, field: str, operation: Any, root: str
    ) -> list[tuple[Any, str]]:
        """Return the rows in a field and their paths."""
        if self.row is not None and not field:
            return [(self.row(text), root)]
        of_field, many = self.paths[field], self.envelope.images.many
        value, name, path = self.rows_in[field](message), of_field[-1], _json_path(root, of_field)
        if value is None and field == self.envelope.before:
            raise MissingBeforeImageError(
                f"`{name}` of a delete is null. {self.envelope.images.remedy}", path
            )
        if value is None:
            raise MissingFieldError(
                f"`{name}` is missing or null, and {self.label} is {operation!r}", path
            )
        if many == "array of one" and (len(value) != 1 or value[0] is None):
            raise MissingFieldError(
                f"`{name}` must be an array of one row when {self.label} is {operation!r}", path
            )
        if many == "one":
            return [(value, path)]
        if None in value:
            raise MissingFieldError("a row is null", f"{path}[{value.index(None)}]")
        return [(row, f"{path}[{index}]") for index, row in enumerate(value)]

    def _befores(
        self, message: Any, text: bytes, images: list[tuple[Any, str]], operation: Any, root: str
    ) -> list[tuple[Any, str]]:
        """Return the rows before updates and their paths.

        Without a field of them, it is the path of the row after.
        """
        if self.row_before is not None:
            return [(self.row_before(text), path) for _, path in images]
        if not self.before:
            return [(None, path) for _, path in images]
        befores, name, path = (
            self.rows_in[self.before](message),
            self.paths[self.before][-1],
            _json_path(root, self.paths[self.before]),
        )
        if self.envelope.images.many == "one":
            return [(befores, path)]
        if befores is None or len(befores) != len(images):
            reason = (
                f"`{name}` must have an element for each of `{self.envelope.after}` when "
                f"{self.label} is {operation!r}"
            )
            raise MissingFieldError(reason, path)
        return self._images(message, text, self.before, operation, root)


def _row_before_reader(
    envelope: Envelope, rows: RowConverter
) -> Callable[[bytes], Image | None] | None:
    """Return the function from a message to the row before an update.

    The result is None without a prefix. Otherwise, the function reads the columns with the prefix.

    It returns None for a message without such a column.
    """
    if not envelope.images.before_prefix:
        return None
    prefix = envelope.images.before_prefix
    shape: Any = rows.shape if rows.untyped else row_shape([prefix + name for name in rows.names])
    shape = (
        message_shape(envelope.fields, {envelope.after: shape | None}, envelope.images.names)
        if envelope.after
        else shape
    )
    read, row_of = (
        json_reader(shape, spelled=rows.spelled),
        attrgetter(envelope.after) if envelope.after else None,
    )

    def row_before(text: bytes) -> Image | None:
        image: Any = read(text) if row_of is None else row_of(read(text))
        if isinstance(image, msgspec.Struct):
            return None if all(value is ABSENT for value in rows.raw(image)) else image
        # No struct has the names of these columns.
        return {
            name.removeprefix(prefix): value
            for name, value in image.items()
            if name.startswith(prefix)
        } or None

    return row_before


def _json_path(root: str, path: Sequence[str]) -> str:
    return ".".join((root, *path))


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

Names = Callable[[str], Collection[str]]
"""A function from a field of the message, ``data`` or ``old``, to all names in it, declared or not.
It parses the message again."""


class PartialRows:
    """Recognises rows whose missing columns are unchanged, not NULL.

    Parameters
    ----------
    rows : RowConverter
    row_image : str or None
        The server's ``binlog_row_image``; None if it is not declared.
    """

    def __init__(self, rows: RowConverter, row_image: str | None) -> None:
        self.rows, self.row_image = rows, row_image

    def mark(self, event: Event, key: Collection[str], names: Names, *, changed: bool) -> None:
        """Mark an event whose missing columns are unchanged, not NULL.

        Parameters
        ----------
        event : Event
        key : collection of str
            The primary key's columns; empty if unknown.
        names : callable
        changed : bool
            Whether an update names a column that changed, declared or not.
        """
        if event.kind is INSERT:
            return
        present = self._present(event.before if event.kind is DELETE else event.after)
        if present is None or self.row_image is not None:
            event.sparse = present is not None
        elif event.kind is UPDATE_AFTER and not changed:
            event.sparse = True
        elif key or event.kind is DELETE:
            event.sparse = _within(present, key) and _within(names("data"), key)
        else:
            # If the key is unknown, a single changed column is treated as the key.
            event.sparse = len(present) == 1 and set(names("data")) == set(names("old"))

    def nulls(self, kind: Any, image: Any, old: Any, key: Collection[str]) -> bool:
        """Return whether a row's missing columns are certainly NULL, from declared columns only.

        Parameters
        ----------
        kind : RowKind
        image, old : Struct or mapping
            The row, and the columns of it that changed; None: `old` is missing.
        key : collection of str
            The primary key's columns; empty if unknown.
        """
        present = self._present(image)
        if present is None or kind is INSERT:
            return present is None or bool(present)
        changed = kind is DELETE or (
            old is not None and any(value is not ABSENT for value in self.rows.raw(old))
        )
        other = not _within(present, (*key, *self.rows.unique_key))
        return self.row_image is None and changed and other and len(present) > 1

    def _present(self, image: Any) -> set[str] | None:
        """Return an image's declared columns; None if it has all, or if every image is whole."""
        if self.row_image == "FULL":
            return None
        present = {
            name
            for name, value in zip(self.rows.names, self.rows.raw(image), strict=True)
            if value is not ABSENT
        }
        return None if len(present) == len(self.rows.names) else present


def require_same_key(
    what: str, unique_key: Collection[str], key: Collection[Any], path: str
) -> None:
    """Raise for an update if a column of the declared key is not in the table's primary key.

    Raises
    ------
    MissingBeforeImageError
    """
    if other := next((name for name in unique_key if name not in key), None):
        raise MissingBeforeImageError(
            f"{what}, and `{other}` is not in the table's primary key, so it may have changed: "
            f"{WHOLE_ROWS}",
            path,
        )


def _within(names: Collection[str], key: Collection[Any]) -> bool:
    # A message's key can have any JSON values, which a set could not have.
    return all(name in key for name in names)
