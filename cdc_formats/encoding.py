"""What the formats' encoders share: the envelope, and pairs of update images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from operator import ne
from typing import Any

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter, key_indices
from cdc_formats.values.equality import equal
from cdc_formats.values.json_reader import fields_of, json_bytes
from cdc_formats.values.numbers import FLOAT_TYPES
from cdc_formats.values.schema import (
    Column,
    ConversionError,
    Converter,
    Handling,
    SqlType,
    columns as to_columns,
    leaves,
)
from cdc_formats.values.types import writer

from .errors import EncodeError, FormatOptionError
from .events import KeyValue, RowKind
from .format import Encoder, Format

# --------------------------------------------------------------------------------------------------
# Encoders made from a format's declaration: the operation, the images, and the Kafka key


class RowWriter:
    """Writes the rows of one table as objects: the inverse of `decoding.rows.RowConverter`.

    Parameters
    ----------
    columns : sequence of Column
        The columns, in the order of a row's values.
    handling : Handling or sequence of Handling
        One for all columns, or one for each.
    unique_key : sequence of str
        The columns that `key` writes.
    iso : bool
        As in `types.writer`.
    excerpt : bool
        Whether an error shows the invalid value (`Format.error_excerpt`).
    write : callable or None
        The factory of a column's writer, if it is not `types.writer`, which is for JSON.

    Raises
    ------
    SchemaError
        When the key is not declared, or a column's type cannot be written.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        handling: Handling | Sequence[Handling],
        unique_key: Sequence[str] = (),
        *,
        iso: bool = False,
        excerpt: bool = True,
        write: Callable[[SqlType, Handling], Converter | None] | None = None,
    ) -> None:
        of = write or partial(writer, iso=iso)
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.names = tuple(column.name for column in columns)
        self.writers = tuple(
            of(column.type, how) for column, how in zip(columns, each, strict=True)
        )
        self.key_names = tuple(unique_key)
        self.key_indices = key_indices(columns, unique_key)
        self.excerpt = excerpt
        self._differ = tuple(
            # 0.0 and -0.0 are equal, but written differently.
            (lambda was, now: repr(was) != repr(now))
            if any(leaf.name in FLOAT_TYPES for leaf in leaves(column.type))
            else ne
            for column in columns
        )

    def image(self, row: Sequence[Any], path: str = "$") -> dict[str, Any]:
        """Return a row as an object, for `json_reader.json_bytes` or `avro.records.avro_bytes`.

        Parameters
        ----------
        row : sequence
            Canonical values, or None.
        path : str
            The object's path in the message, for errors.

        Raises
        ------
        EncodeError
            When a value cannot be written so that it is read as the same value.
        """
        return self._object(zip(self.names, self.writers, row, strict=True), path)

    def changed(
        self, before: Sequence[Any], row: Sequence[Any], path: str = "$.old"
    ) -> dict[str, Any]:
        """Return an object of `before` columns that differ in `row` (``old`` in Canal and Maxwell).

        Raises
        ------
        EncodeError
            As `image`.
        """
        cells = zip(self.names, self.writers, self._differ, before, row, strict=True)
        return self._object(
            ((name, write, was) for name, write, differ, was, now in cells if differ(was, now)),
            path,
        )

    def key(self, row: Sequence[Any]) -> dict[str, Any] | None:
        """Return the key's columns of a row as an object, or None if there is no key.

        Raises
        ------
        EncodeError
            As `image`.
        """
        cells = [(self.names[i], self.writers[i], row[i]) for i in self.key_indices]
        return self._object(cells, "$") if cells else None

    def _object(
        self, cells: Iterable[tuple[str, Converter | None, Any]], path: str
    ) -> dict[str, Any]:
        """Return columns as an object, from their names, writers and values."""
        written: dict[str, Any] = {}
        for name, write, value in cells:
            try:
                written[name] = value if write is None or value is None else write(value)
            except ConversionError as error:
                reason = str(error) if self.excerpt or not error.bare else error.bare
                raise EncodeError(f"{reason} - at `{path}.{name}`") from None
        return written


Row = tuple[Any, ...]


class ImageWriter:
    """Writes the operation and the images of changes, in the fields that an `Envelope` declares."""

    def __init__(self, envelope: Envelope | None) -> None:
        assert envelope is not None
        self.envelope = envelope
        self.operations = {
            kind: operation for operation, kind in reversed([*envelope.kinds.items()])
        }
        self.item = "" if envelope.images.many == "one" else "[0]"

    def write(
        self, rows: RowWriter, kind: RowKind, row: Row, before: Row | None
    ) -> tuple[str, Any, Any]:
        """Return the operation, and the images before and after a change; None: there is none.

        Parameters
        ----------
        rows : RowWriter
        kind : RowKind
            A lone ``UPDATE_BEFORE`` is a delete, a lone ``UPDATE_AFTER`` an insert.
        row : tuple
        before : tuple or None
            The row before an ``UPDATE_AFTER``.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """
        envelope = self.envelope
        before_path, after_path = (
            f"$.{field}{self.item}" for field in (envelope.before, envelope.after)
        )
        if RowKind.UPDATE_BEFORE in self.operations:
            return self.operations[kind], None, rows.image(row, after_path)
        if kind is RowKind.DELETE or kind is RowKind.UPDATE_BEFORE:
            operation = self.operations[RowKind.DELETE]
            if envelope.deleted == envelope.before:
                return operation, rows.image(row, before_path), None
            return operation, None, rows.image(row, after_path)
        if kind is RowKind.INSERT or before is None:
            return self.operations[RowKind.INSERT], None, rows.image(row, after_path)
        after = rows.image(row, after_path)
        if envelope.images.before_has == "changed columns":
            return (
                self.operations[RowKind.UPDATE_AFTER],
                rows.changed(before, row, before_path),
                after,
            )
        return self.operations[RowKind.UPDATE_AFTER], rows.image(before, before_path), after


class EnvelopeEncoder(Encoder):
    """Encodes rows as JSON objects with an operation and images, as the `Envelope` declares.

    An update is one message if the row before it is known. A lone ``-U`` is written as a delete and
    a lone ``+U`` as an insert, as Flink does for all updates. A format with an operation for ``-U``
    has a message for each row. The Kafka key is a JSON object of the
    unique key's columns.

    Parameters
    ----------
    format : Format
    columns : str or sequence of Column
    unique_key : sequence of str
        Empty: records have no key.
    handling : sequence of Handling or None
        The handling of each column; None: the format's.

    Raises
    ------
    SchemaError, FormatOptionError
        When the format could not read the written messages: it rejects the columns, or it has
        filters (rows do not contain their table's name).
    """

    def __init__(
        self,
        format: Format,
        columns: str | Sequence[Column],
        unique_key: Sequence[str],
        handling: Sequence[Handling] | None = None,
    ) -> None:
        declared = to_columns(columns)
        format.check(declared, unique_key)
        refuse_filters(format)
        handlings, iso = handling or format.handling, writes_iso(format)
        self.images = ImageWriter(format.envelope(RowConverter(declared, handlings, unique_key)))
        self.pairs_updates = RowKind.UPDATE_BEFORE not in self.images.operations
        envelope, key_names = self.images.envelope, format.traits.key_names
        self.writes_source = any(field.name == "source" for field in fields_of(envelope.fields))
        self.fixed = {
            **{
                envelope.path(name)[0]: of[0]
                for name, of in envelope.columnar.plain.items()
                if "." not in name
            },
            **({key_names: list(unique_key)} if key_names and unique_key else {}),
        }
        self.rows = RowWriter(
            declared, handlings, unique_key, iso=iso, excerpt=format.error_excerpt
        )

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> KeyValue:
        """Return the key and value of one change's record.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """
        envelope, many = self.images.envelope, self.images.item
        operation, *images = self.images.write(self.rows, kind, row, before)
        has_nulls = envelope.images.before_has == "all columns"
        message = {
            **{
                name: image if image is None or not many else [image]
                for name, image in zip((envelope.before, envelope.after), images, strict=True)
                if name and (image is not None or has_nulls)
            },
            envelope.operation[0]: operation,
            **self.fixed,
        }
        if self.source is not None:
            message["source"] = self.source
        key = self.rows.key(row)
        return None if key is None else json_bytes(key), json_bytes(message)


def writes_iso(format: Format) -> bool:
    """Return whether a format's options require a ``T`` between date and time."""
    return getattr(format, "timestamp_format_standard", "SQL") == "ISO-8601"


def refuse_filters(format: Format) -> None:
    """Raise if the format has filters: written messages would not match them.

    Raises
    ------
    FormatOptionError
    """
    for option in format.traits.table_identity.values():
        if option and getattr(format, option) is not None:
            raise FormatOptionError(
                f"{format.identifier} cannot be written with {option}: rows do not contain their "
                "table's name, so the filter would exclude the written messages"
            )


# --------------------------------------------------------------------------------------------------
# Pairing of an update's two rows, ``-U`` and ``+U``, to one update with the row before it


def pair_updates(
    rows: Iterable[tuple[RowKind, Row]], key_indices: Sequence[int] = ()
) -> Iterator[tuple[RowKind, Row, Row | None]]:
    """Yield each ``-U`` and directly following ``+U`` as one update, if they have the same key.

    A ``-U`` waits for the next row or the end: chain batches to one iterable. No other row waits, and the order is kept.

    Parameters
    ----------
    rows : iterable of (RowKind, tuple)
        A changelog whose rows are canonical values.
    key_indices : sequence of int
        The indices of the unique key's columns; if empty, any such neighbours are one update.

    Yields
    ------
    (RowKind, tuple, tuple or None)
        ``+U`` with the row before it; every other row unchanged, with None.

    Examples
    --------
    >>> rows = [(RowKind.UPDATE_BEFORE, (1, "scooter")), (RowKind.UPDATE_AFTER, (1, "bike")), (RowKind.DELETE, (1, "bike"))]
    >>> for kind, row, before in pair_updates(rows, key_indices=[0]):
    ...     print(kind.short_string, row, before)
    +U (1, 'bike') (1, 'scooter')
    -D (1, 'bike') None
    """
    waiting: Row | None = None
    for kind, row in rows:
        before, waiting = waiting, None
        if before is not None:
            if kind is RowKind.UPDATE_AFTER and all(
                equal(before[index], row[index]) for index in key_indices
            ):
                yield kind, row, before
                continue
            yield RowKind.UPDATE_BEFORE, before, None
        if kind is RowKind.UPDATE_BEFORE:
            waiting = row
        else:
            yield kind, row, None
    if waiting is not None:
        yield RowKind.UPDATE_BEFORE, waiting, None
