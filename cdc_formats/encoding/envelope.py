"""The common part of envelope encoders: the images of each change, the Kafka key, and the checks of columns and options."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from cdc_formats.decoding.json_reader import json_bytes
from cdc_formats.encoding.rows import RowWriter
from cdc_formats.errors import FormatOptionError
from cdc_formats.events import KeyValue
from cdc_formats.format import Encoder, Format
from cdc_formats.row_kind import RowKind
from cdc_formats.values.handling import Handling
from cdc_formats.values.schema import Column, columns as to_columns

Row = tuple[Any, ...]


class EnvelopeEncoder(Encoder):
    """The base class of encoders whose messages are JSON objects with row images; subclasses build the messages.

    An update is one message if the row before it is known. A lone ``-U`` is written as a delete and a lone ``+U`` as an insert, as Flink
    does for all updates. The Kafka key is a JSON object of the unique key's columns.

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
        When the format could not read the written messages: it rejects the columns, or it has filters (rows do not contain their table's
        name).
    """

    def __init__(
        self, format: Format, columns: str | Sequence[Column], unique_key: Sequence[str], handling: Sequence[Handling] | None = None
    ) -> None:
        declared = to_columns(columns)
        format.check(declared, unique_key)
        refuse_filters(format)
        iso = writes_iso(format)
        self.rows = RowWriter(declared, handling or format.handling, unique_key, iso=iso, excerpt=format.error_excerpt)

    @abstractmethod
    def insert(self, row: Row) -> dict[str, Any]:
        """Return the message of an inserted row."""

    @abstractmethod
    def update(self, before: Row, row: Row) -> dict[str, Any]:
        """Return the message of an updated row."""

    @abstractmethod
    def delete(self, row: Row) -> dict[str, Any]:
        """Return the message of a deleted row."""

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> KeyValue:
        """Return the key and value of one change's record.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """
        if kind is RowKind.DELETE or kind is RowKind.UPDATE_BEFORE:
            message = self.delete(row)
        elif kind is RowKind.INSERT or before is None:
            message = self.insert(row)
        else:
            message = self.update(before, row)
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
                f"{format.identifier} cannot be written with {option}: rows do not contain their table's name, so the filter would exclude "
                "the written messages"
            )
