"""Encoders made from a format's declaration: the operation, the images, and the Kafka key."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.json_reader import json_bytes
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.encoding.rows import RowWriter
from cdc_formats.errors import FormatOptionError
from cdc_formats.events import KeyValue
from cdc_formats.format import Encoder, Format
from cdc_formats.row_kind import RowKind
from cdc_formats.values.handling import Handling
from cdc_formats.values.schema import Column, columns as to_columns

Row = tuple[Any, ...]


class ImageWriter:
    """Writes the operation and the images of changes, in the places that an `Envelope` declares."""

    def __init__(self, envelope: Envelope | None) -> None:
        assert envelope is not None
        self.envelope = envelope
        self.operations = {
            kind: operation for operation, kind in reversed([*envelope.kinds.items()])
        }
        self.item = "" if envelope.rows == "one" else "[0]"

    def write(self, rows: Any, kind: RowKind, row: Row, before: Row | None) -> tuple[str, Any, Any]:
        """Return the operation, and the images before and after a change; None: there is none.

        Parameters
        ----------
        rows : RowWriter or AvroRows
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
        if kind is RowKind.DELETE or kind is RowKind.UPDATE_BEFORE:
            operation = self.operations[RowKind.DELETE]
            if envelope.deleted == envelope.before:
                return operation, rows.image(row, before_path), None
            return operation, None, rows.image(row, after_path)
        if kind is RowKind.INSERT or before is None:
            return self.operations[RowKind.INSERT], None, rows.image(row, after_path)
        after = rows.image(row, after_path)
        if envelope.before_has == "changed columns":
            return (
                self.operations[RowKind.UPDATE_AFTER],
                rows.changed(before, row, before_path),
                after,
            )
        return self.operations[RowKind.UPDATE_AFTER], rows.image(before, before_path), after


class EnvelopeEncoder(Encoder):
    """Encodes rows as JSON objects with an operation and images, as the `Envelope` declares.

    An update is one message if the row before it is known. A lone ``-U`` is written as a delete and
    a lone ``+U`` as an insert, as Flink does for all updates. The Kafka key is a JSON object of the
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
        self.rows = RowWriter(
            declared, handlings, unique_key, iso=iso, excerpt=format.error_excerpt
        )

    @abstractmethod
    def message(self, operation: str, before: Any, after: Any) -> dict[str, Any]:
        """Return the message of an operation and its images; None: there is none."""

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> KeyValue:
        """Return the key and value of one change's record.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """
        message = self.message(*self.images.write(self.rows, kind, row, before))
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
    for option in format.table_identity.values():
        if option and getattr(format, option) is not None:
            raise FormatOptionError(
                f"{format.identifier} cannot be written with {option}: rows do not contain their "
                "table's name, so the filter would exclude the written messages"
            )
