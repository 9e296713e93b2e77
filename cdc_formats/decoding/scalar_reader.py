"""The reader of one message, made from its format's declaration: the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    UPDATE_BEFORE,
    Event,
    Headers,
    Ignored,
    Reader,
    RowKind,
    unknown_operation,
)
from cdc_formats.values.json_reader import json_reader
from cdc_formats.values.schema import ABSENT

from .envelope import Envelope, Path, TableFilter
from .rows import Image, RowConverter


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
        self.sparse = not envelope.images.missing_is_null and envelope.images.partial is None
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
        """Return the function from JSON text to a message with row images.

        A keyed reader reads only the key of the row before, except where a column of the row after
        is unknown, which the row before may have.
        """
        envelope, rows = self.envelope, self.rows

        def reader(before: Any) -> Callable[[bytes], Any]:
            after, before = (
                of | None if name else None
                for name, of in ((envelope.after, rows.shape), (self.before, before))
            )
            read = json_reader(
                envelope.struct(envelope.fields, after, before), spelled=rows.spelled
            )
            unwrap = envelope.framing.unwrap
            return read if unwrap is None else lambda value: read(unwrap(value))

        whole = reader(rows.shape)
        if not (self.keyed and envelope.after and self.before) or self.changed_only:
            return whole
        key_only, row_of = reader(rows.key_shape), attrgetter(envelope.after)

        def read(text: bytes) -> Any:
            message = key_only(text)
            image = row_of(message)
            unknown = image is not None and (
                rows.has_placeholder(image) or (self.sparse and ABSENT in rows.raw(image))
            )
            return whole(text) if unknown else message

        return read

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
        if value is None:
            return Ignored.TOMBSTONE
        message = self.message(value)
        if self.envelope.operation_header:
            self.envelope.set_operation(message, headers)
        return self.events(message, value)

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
        partial = envelope.images.partial
        adjust = envelope.adjust if partial is None else partial.mark
        if adjust is not None:
            for index, event in enumerate(events):
                adjust(event, value, index, self.keyed)
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
        are_text = self.envelope.codes.are_text
        if operation is None or (are_text and not isinstance(operation, str)):
            reason = "not a string" if are_text else "null"
            return MissingFieldError(f"`{self.label}` is missing or {reason}", path)
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
            raise MissingFieldError(
                f"`{name}` must have an element for each of `{self.envelope.after}` when "
                f"{self.label} is {operation!r}",
                path,
            )
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
    shape = rows.image_type(range(len(rows.names)), prefix)
    shape = envelope.struct(envelope.fields, shape | None) if envelope.after else shape
    read = json_reader(shape, spelled=rows.spelled)

    def row_before(text: bytes) -> Image | None:
        image: Any = attrgetter(envelope.after)(read(text)) if envelope.after else read(text)
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
