"""The tables and columns of messages that were seen before, read without decoding the rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter, row_struct
from cdc_formats.events import RowKind
from cdc_formats.format import Format
from cdc_formats.message_format import names_in_row
from cdc_formats.values.json_reader import BatchReader, batch_reader
from cdc_formats.values.schema import Column, SqlType

from . import reads_as_declared
from .messages import names_reader, read_at
from .native import IN_DOUBT, binary_of, row_counter

Names = tuple[str | None, ...]
"""The names of a message's table (`Traits.table_identity`)."""
Table = tuple[str, Names]
"""A topic, and the names of a table in its messages."""
_WITH_ROW = (RowKind.INSERT, RowKind.UPDATE_AFTER)


class KnownRows:
    """The tables and columns of a task's messages in JSON, and the readers of such messages.

    Most messages of a topic have a table and columns that were seen before. For these, two reads by
    msgspec say which table it is, and that no other column has a value: the first skips the rows,
    and the second has a struct with the known columns alone. If a topic has one table, the native
    decoder reads its messages first, and msgspec those in doubt.

    Parameters
    ----------
    envelope : Envelope
    identity : sequence of str
        The attributes that name a message's table.
    names : callable
        From a message to the names of its table.
    native : bool
        Whether the native decoder may read.
    """

    def __init__(
        self,
        envelope: Envelope,
        identity: Sequence[str],
        names: Callable[[Any], Names],
        *,
        native: bool,
    ) -> None:
        self.envelope, self._identity, self._names = envelope, identity, names
        self._uses_native = native
        self._fields = batch_reader(envelope.strict_fields)
        self._image = attrgetter(envelope.after)
        # By table, whether each column had a value.
        self._columns = dict[Table, dict[str, bool]]()
        self._readers = dict[Table, BatchReader | None]()
        self._counters = dict[Table, Any]()

    @classmethod
    def of(cls, format: Format, *, native: bool = True) -> KnownRows | None:
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
        if envelope is None or not (
            envelope.has_row_field and envelope.framing.bare and envelope.columnar.possible
        ):
            return None
        # Another type than text is converted.
        attributes = [envelope.attributes.get(name, ("", str)) for name in identity]
        if not all(convert is None for _, convert in attributes):
            return None
        names = names_reader(format, envelope, identity)
        return cls(
            envelope, identity if names else (), names or (lambda message: ()), native=native
        )

    def learn(self, table: Table, columns: Collection[str], with_value: Collection[str]) -> None:
        """Add the columns of a table's row, and which of them have a value."""
        of_table = self._columns.setdefault(table, {})
        news = {name: name in with_value for name in columns if not of_table.get(name)}
        if news != {name: of_table.get(name) for name in news}:
            of_table |= news
            self._readers.pop(table, None)
            self._counters.pop(table, None)

    def exclude(self, table: Table) -> None:
        """Add a table whose rows are not read."""
        self._columns.setdefault(table, {})
        self._readers[table] = self._counters[table] = None

    def read(self, topic: str, values: Sequence[bytes | None]) -> dict[Table, dict[int, int]]:
        """Return the messages of each known table: their indexes, and how many rows each has.

        A message is left out if it is of another table, another column has a value, or its reader
        has to say what it is.
        """
        of_topic = {names for each, names in self._columns if each == topic}
        result = {(topic, names): dict[int, int]() for names in of_topic}
        indexes = list(range(len(values)))
        if len(of_topic) == 1:
            # Most topics have one table: one read says all of most messages.
            [table] = result
            result[table] = rows = self._counted(table, values)
            indexes = [index for index in indexes if index not in rows]
            if indexes:
                values = list(values)  # many of them are read
                rows |= self._rows(table, values, indexes)
                indexes = [index for index in indexes if index not in rows]
        messages, indexes, _ = read_at(self._fields, values, indexes)
        with_row, kinds = dict[Table, list[int]](), self.envelope.kinds_of(messages)
        for index, message, kind in zip(indexes, messages, kinds, strict=True):
            if type(kind) is RowKind and (table := (topic, self._names(message))) in result:
                if kind in _WITH_ROW and self._reader(table) is not None:
                    with_row.setdefault(table, []).append(index)
                else:
                    result[table][index] = 0
        for table, of_table in with_row.items():
            result[table] |= self._rows(table, values, of_table)
        return {table: rows for table, rows in result.items() if rows}

    def _counted(self, table: Table, values: Sequence[bytes | None]) -> dict[int, int]:
        """Return the messages of a table of which the native decoder is certain, with their rows."""
        if not self._uses_native:
            return {}
        if table not in self._counters:
            names = dict(zip(self._identity, table[1], strict=True))
            self._counters[table] = row_counter(self.envelope, names, self._columns[table])
        if (counter := self._counters[table]) is None:
            return {}
        counts = np.frombuffer(counter.counts(binary_of(values)), np.uint8)
        certain = np.flatnonzero(counts != IN_DOUBT)
        return dict(zip(certain.tolist(), counts[certain].tolist(), strict=True))

    def _rows(
        self, table: Table, values: Sequence[bytes | None], indexes: list[int]
    ) -> dict[int, int]:
        """Return the messages of a table that have only known columns, with their numbers of rows."""
        read, rows = self._reader(table), dict[int, int]()
        if read is None:
            return rows
        messages, indexes, _ = read_at(read, values, indexes)
        kinds, is_one = self.envelope.kinds_of(messages), self.envelope.images.many == "one"
        for index, message, kind in zip(indexes, messages, kinds, strict=True):
            if type(kind) is RowKind and self._names(message) == table[1]:
                if kind not in _WITH_ROW:
                    rows[index] = 0
                elif image := self._image(message):
                    rows[index] = 1 if is_one else len(image)
        return rows

    def _reader(self, table: Table) -> BatchReader | None:
        """Return the reader of messages whose rows have only the known columns of a table."""
        if table not in self._readers:
            columns = self._columns[table]
            types = {at: msgspec.Raw if has else None for at, has in enumerate(columns.values())}
            row = row_struct(dict(enumerate(columns)), types, None, forbid_unknown_fields=True)
            message = self.envelope.struct(self.envelope.strict_fields, row)
            self._readers[table] = batch_reader(message)
        return self._readers[table]
