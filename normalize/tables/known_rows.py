"""Recognizes messages in JSON whose table and columns are known, many at a time.

Most messages of a topic have a table and columns that were seen before. For these, two reads by
msgspec say which table it is, and that no other column has a value: the first skips the rows, and
the second has a struct with the known columns alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.events import RowKind
from cdc_formats.format import Format
from cdc_formats.message_format import names_in_row
from cdc_formats.values.json_reader import BatchReader, batch_reader, fields_of, message_shape
from cdc_formats.values.schema import Column, SqlType
from normalize.decode.columnar import reads_as_declared
from normalize.decode.columnar.messages import operation_reader

Names = tuple[str | None, ...]
"""The names of a message's table (`Traits.table_identity`)."""
_WITH_ROW = (RowKind.INSERT, RowKind.UPDATE_AFTER)


class KnownRows:
    """The tables and columns of one topic, and the readers of their messages.

    Parameters
    ----------
    envelope : Envelope
    names : sequence of str
        The fields with the names of the table.
    """

    def __init__(self, envelope: Envelope, names: Sequence[str]) -> None:
        self.envelope = envelope
        self._fields = batch_reader(envelope.strict_fields)
        self._operation = operation_reader(envelope)
        self._names = _names_reader(names)
        self._has_row = {
            operation: kind in _WITH_ROW
            for operation, kind in envelope.plain_kinds.items()
            if isinstance(kind, RowKind)
        }
        self._image = attrgetter(envelope.after)
        # By table, whether each column had a value.
        self._columns = dict[Names, dict[str, bool]]()
        self._readers = dict[Names, BatchReader | None]()

    @classmethod
    def of(cls, format: Format) -> KnownRows | None:
        """Return those of a format, without tables; None if its messages are read one by one."""
        traits = format.traits
        # Where records without a value are deletes, rows may have columns of the Kafka key.
        if traits.row_names is not names_in_row or traits.reads_tombstones:
            return None
        if not reads_as_declared(type(format)):
            return None
        rows = RowConverter((Column('"', SqlType("STRING")),), format.handling)
        identity = list(traits.table_identity)
        envelope = format.envelope(rows, identity)
        if envelope is None or not _is_read(envelope):
            return None
        fields = [envelope.attributes.get(name, ("", str)) for name in identity]
        # Another type than text is converted.
        is_text = all(convert is None for _, convert in fields)
        return cls(envelope, [name for name, _ in fields]) if is_text else None

    def learn(self, table: Names, columns: Collection[str], with_value: Collection[str]) -> None:
        """Add the columns of a table's row, and which of them have a value."""
        known = self._columns.setdefault(table, {})
        news = {name: name in with_value for name in columns if not known.get(name)}
        if news != {name: known.get(name) for name in news}:
            known |= news
            self._readers.pop(table, None)

    def exclude(self, table: Names) -> None:
        """Add a table whose rows are not read."""
        self._columns.setdefault(table, {})
        self._readers[table] = None

    def read(self, values: Sequence[bytes | None]) -> dict[Names, tuple[list[int], list[int]]]:
        """Return the indexes of the messages of each known table, and their numbers of rows.

        A message is left out if it is of another table, another column has a value, or its reader
        has to say what it is.
        """
        messages, unread = self._fields(values)
        skipped = set(unread)
        indexes = (
            [index for index in range(len(values)) if index not in skipped]
            if skipped
            else range(len(values))
        )
        plain = dict[Names, list[int]]()
        with_row = dict[Names, list[int]]()
        operation, names, has_row = self._operation, self._names, self._has_row
        for index, message in zip(indexes, messages, strict=True):
            kind = has_row.get(operation(message))
            if kind is not None and (table := names(message)) in self._columns:
                (with_row if kind else plain).setdefault(table, []).append(index)
        known = {table: (found, [0] * len(found)) for table, found in plain.items()}
        for table, found in with_row.items():
            rows, counts = self._rows(table, values, found)
            of_table = known.setdefault(table, ([], []))
            of_table[0].extend(rows)
            of_table[1].extend(counts)
        return known

    def _rows(
        self, table: Names, values: Sequence[bytes | None], indexes: list[int]
    ) -> tuple[list[int], list[int]]:
        """Return which messages have only known columns, and how many rows each has."""
        if table not in self._readers:
            self._readers[table] = self._reader(self._columns[table])
        read = self._readers[table]
        if read is None:
            return indexes, [0] * len(indexes)
        messages, unread = read([values[index] for index in indexes])
        if unread:
            skipped = set(unread)
            indexes = [index for at, index in enumerate(indexes) if at not in skipped]
        images = list(map(self._image, messages))
        if self.envelope.images.many == "one":
            counts = [int(image is not None) for image in images]
        else:
            counts = [len(image or ()) for image in images]
        if 0 in counts:
            indexes = [index for index, count in zip(indexes, counts, strict=True) if count]
            counts = list(filter(None, counts))
        return indexes, counts

    def _reader(self, columns: dict[str, bool]) -> BatchReader:
        """Return the reader of messages whose rows have only these columns."""
        images, strict = self.envelope.images, self.envelope.strict_fields
        fields: list[Any] = [
            (f"c{index}", msgspec.Raw if has_value else None, None)
            for index, has_value in enumerate(columns.values())
        ]
        row = msgspec.defstruct(
            "Row",
            fields,
            rename={f"c{index}": name for index, name in enumerate(columns)},
            forbid_unknown_fields=True,
            gc=False,
        )
        of = row | None if images.many == "one" else list[row] | None  # type: ignore[valid-type]
        outer = self.envelope.after.partition(".")[0]
        is_declared = any(field.name == outer for field in fields_of(strict))
        base = strict if is_declared else msgspec.Struct
        return batch_reader(message_shape(base, {self.envelope.after: of}, images.names))


def _is_read(envelope: Envelope) -> bool:
    """Whether messages with this envelope are JSON objects with rows that have names."""
    together, framing, images = envelope.together, envelope.framing, envelope.images
    is_json = framing.bare and not framing.frame and envelope.keys.shape is None
    return (
        is_json
        and together.possible
        and together.message is None
        and bool(envelope.after)
        and not images.before_prefix
    )


def _names_reader(fields: Sequence[str]) -> Any:
    """Return the function from a message to the names of its table."""
    if not fields:
        return lambda message: ()
    read = attrgetter(*fields)
    return read if len(fields) > 1 else lambda message: (read(message),)
