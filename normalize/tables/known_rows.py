"""Recognizes messages in JSON whose table and columns are known, many at a time.

Most messages of a topic have a table and columns that were seen before. For these, two reads by
msgspec say which table it is, and that no other column has a value: the first skips the rows, and
the second has a struct with the known columns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import compress
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
from normalize.decode.columnar.messages import names_reader, operation_reader

Names = tuple[str | None, ...]
"""The names of a message's table (`Traits.table_identity`)."""
Table = tuple[str, Names]
"""A topic, and the names of a table in its messages."""
_WITH_ROW = (RowKind.INSERT, RowKind.UPDATE_AFTER)


class KnownRows:
    """The tables and columns of a task's messages, and the readers of such messages.

    Parameters
    ----------
    envelope : Envelope
    names : callable
        From a message to the names of its table.
    """

    def __init__(self, envelope: Envelope, names: Callable[[Any], Names]) -> None:
        self.envelope, self._names = envelope, names
        self._fields = batch_reader(envelope.strict_fields)
        self._operation = operation_reader(envelope)
        self._has_row = {
            operation: kind in _WITH_ROW
            for operation, kind in envelope.plain_kinds.items()
            if isinstance(kind, RowKind)
        }
        self._image = attrgetter(envelope.after)
        # By table, whether each column had a value.
        self._columns = dict[Table, dict[str, bool]]()
        self._readers = dict[Table, BatchReader | None]()

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
        # Another type than text is converted.
        attributes = [envelope.attributes.get(name, ("", str)) for name in identity]
        if not all(convert is None for _, convert in attributes):
            return None
        return cls(envelope, names_reader(format, envelope, identity) or (lambda message: ()))

    def learn(self, table: Table, columns: Collection[str], with_value: Collection[str]) -> None:
        """Add the columns of a table's row, and which of them have a value."""
        of_table = self._columns.setdefault(table, {})
        news = {name: name in with_value for name in columns if not of_table.get(name)}
        if news != {name: of_table.get(name) for name in news}:
            of_table |= news
            self._readers.pop(table, None)

    def exclude(self, table: Table) -> None:
        """Add a table whose rows are not read."""
        self._columns.setdefault(table, {})
        self._readers[table] = None

    def read(
        self, topic: str, values: Sequence[bytes | None]
    ) -> dict[Table, tuple[list[int], list[int]]]:
        """Return the indexes of the messages of each known table, and their numbers of rows.

        A message is left out if it is of another table, another column has a value, or its reader
        has to say what it is.
        """
        messages, unread = self._fields(values)
        plain, with_row = dict[Names, list[int]](), dict[Names, list[int]]()
        operation, read_names, has_row = self._operation, self._names, self._has_row
        of_topic = {names for each, names in self._columns if each == topic}
        for index, message in zip(_without(range(len(values)), unread), messages, strict=True):
            kind = has_row.get(operation(message))
            if kind is not None and (names := read_names(message)) in of_topic:
                (with_row if kind else plain).setdefault(names, []).append(index)
        result = {(topic, names): (indexes, [0] * len(indexes)) for names, indexes in plain.items()}
        for names, indexes in with_row.items():
            rows, counts = self._rows((topic, names), values, indexes)
            of_table = result.setdefault((topic, names), ([], []))
            of_table[0].extend(rows)
            of_table[1].extend(counts)
        return result

    def _rows(
        self, table: Table, values: Sequence[bytes | None], indexes: Sequence[int]
    ) -> tuple[Sequence[int], list[int]]:
        """Return which messages have only known columns, and how many rows each has."""
        if table not in self._readers:
            self._readers[table] = self._reader(self._columns[table])
        read = self._readers[table]
        if read is None:
            return indexes, [0] * len(indexes)
        messages, unread = read([values[index] for index in indexes])
        images, indexes = list(map(self._image, messages)), _without(indexes, unread)
        if self.envelope.images.many == "one":
            counts = [int(image is not None) for image in images]
        else:
            counts = [len(image or ()) for image in images]
        if 0 in counts:
            indexes = list(compress(indexes, counts))
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
    together, framing, images = envelope.columnar, envelope.framing, envelope.images
    is_json = framing.bare and not framing.frame and envelope.keys.shape is None
    return (
        is_json
        and together.possible
        and together.message is None
        and bool(envelope.after)
        and not images.before_prefix
    )


def _without(indexes: Sequence[int], unread: Sequence[int]) -> Sequence[int]:
    """Return the indexes of the messages that were read."""
    if not unread:
        return indexes
    skipped = set(unread)
    return [index for position, index in enumerate(indexes) if position not in skipped]
