"""What encoders of envelopes share: which of a message's images a change has, the Kafka key, and what they refuse."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

from .base import Encoder, Format, Record
from .errors import FormatOptionError
from .handling import Handling
from .json_reader import json_bytes
from .row_kind import RowKind
from .schema import Column, columns as to_columns
from .values import RowWriter

Row = tuple[Any, ...]
TIMESTAMP_STANDARDS = ("SQL", "ISO-8601")
"""The values of Flink's option ``timestamp-format.standard``."""


class EnvelopeEncoder(Encoder):
    """An encoder of a format whose messages are JSON objects with a row's images in them: subclass it and say what they are.

    An update is one message where the row before it is given. A lone ``-U`` is written as a delete and a lone ``+U`` as an insert, as
    Flink writes all of them. The Kafka key is a JSON object of the unique key's columns.

    Parameters
    ----------
    format : Format
    columns : str or sequence of Column
    unique_key : sequence of str
        None: records have no key.
    handling : sequence of Handling or None
        How each column is written; None: as the format declares.

    Raises
    ------
    SchemaError, FormatOptionError
        When the format could not read what it would write: columns that it refuses, and filters (a row does not say its table).
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
        """Return the message of a row that is new."""

    @abstractmethod
    def update(self, before: Row, row: Row) -> dict[str, Any]:
        """Return the message of a row that was another one before."""

    @abstractmethod
    def delete(self, row: Row) -> dict[str, Any]:
        """Return the message of a row that is gone."""

    def encode(self, kind: RowKind, row: Row, before: Row | None = None) -> Record:
        """Return the key and the value of the record of one change.

        Raises
        ------
        EncodeError
            When a value cannot be written so that it is read as the same value.
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
    """Return whether a format's options ask for a ``T`` between date and time."""
    return getattr(format, "timestamp_format_standard", "SQL") == "ISO-8601"


def refuse_filters(format: Format) -> None:
    """Refuse to write for a format that reads some tables alone.

    Raises
    ------
    FormatOptionError
    """
    for option in ("database_include", "table_include"):
        if getattr(format, option, None) is not None:
            raise FormatOptionError(
                f"{format.identifier} cannot be written with {option}: a row does not say its table, and what is written would be left out "
                "when it is read"
            )
