"""The parts of a conversion: sources of records, the encoding of rows as records, and sinks."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from itertools import chain, islice
from typing import Any, Protocol

from cdc_formats.decoding.rows import key_indices
from cdc_formats.encoding.pairing import pair_updates
from cdc_formats.errors import EncodeError
from cdc_formats.events import KeyValue
from cdc_formats.format import Encoder
from cdc_formats.row_kind import RowKind

from .changelog import Changelog, Rows
from .connection import Connection
from .files import STANDARD, STANDARD_OUTPUT, Lines, batched, open_file, read_records
from .reading import Start, Topic
from .records import Record
from .table import Sampled, TableSchema, sample_of_topic
from .terminal import delay_interrupt, status_line

# ------------------------------------------------------------------------------------------------------------- sources


class Source(Protocol):
    """Where records are read from."""

    def sample(self, count: int) -> list[Sampled]:
        """Return up to `count` records, to infer the columns from."""

    def batches(self) -> Iterator[list[Record]]:
        """Return all records."""


class TopicSource:
    """A topic, from its beginning."""

    def __init__(self, broker: Connection, topic: str, follow: bool) -> None:
        self.broker, self.topic, self.follow = broker, topic, follow

    def sample(self, count: int) -> list[Sampled]:
        """Return a sample of its records."""
        return sample_of_topic(self.broker, self.topic, count)

    def batches(self) -> Iterator[list[Record]]:
        """Return its records."""
        with Topic(self.broker, self.topic) as opened_topic:
            yield from opened_topic.batches(Start(), follow=self.follow)


class FileSource:
    """A file, or standard input."""

    def __init__(self, stack: ExitStack, path: str, lines: Lines) -> None:
        file = stack.enter_context(open_file(path, "rb"))
        self._records: Iterable[Record] = read_records(file, "standard input" if path == STANDARD else path, lines)

    def sample(self, count: int) -> list[Sampled]:
        """Return its first records; `batches` returns them again."""
        records = iter(self._records)
        first = list(islice(records, count))
        self._records = chain(first, records)
        return [(record.key, record.value, record.headers) for record in first]

    def batches(self) -> Iterator[list[Record]]:
        """Return its records."""
        return batched(self._records)


# ---------------------------------------------------------------------------------------------------------- conversion


class Sink(Protocol):
    """Where records are written to, inside a ``with`` block."""

    written: int
    """How many records are certainly written."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exc_info: Any) -> None: ...

    def write(self, key: bytes | None, value: bytes | None, partition: int) -> None:
        """Write a record that was converted from a record of `partition`."""

    def flush(self) -> None:
        """Pass buffered records on."""


class Encoding:
    """Encodes rows as records; a ``-U`` is held until the next row of its partition."""

    def __init__(self, encoder: Encoder, table: TableSchema) -> None:
        self.encoder, self.key = encoder, key_indices(table.columns, table.primary_key)
        self.held: dict[int, Rows] = {}

    def records(self, rows: Rows, partition: int) -> list[KeyValue]:
        """Return the records for the next rows of a partition.

        Raises
        ------
        EncodeError
            When the format cannot hold a value.
        """
        if not self.encoder.pairs_updates:
            return [record for kind, row in rows if (record := self.encoder.encode(kind, row)) is not None]
        if partition in self.held:
            rows = self.held.pop(partition) + rows
        if rows and rows[-1][0] is RowKind.UPDATE_BEFORE:
            self.held[partition] = rows[-1:]
            rows = rows[:-1]
        return self._paired(rows)

    def rest(self) -> Iterator[tuple[int, list[KeyValue]]]:
        """Return the records of the ``-U`` rows that are still held."""
        held, self.held = self.held, {}
        for partition, rows in held.items():
            yield partition, self._paired(rows)

    def _paired(self, rows: Rows) -> list[KeyValue]:
        records = []
        for kind, row, before in pair_updates(rows, self.key):
            # If the key changed, the old key's row becomes a delete: upsert formats have no record for a -U.
            record = self.encoder.encode(RowKind.DELETE if kind is RowKind.UPDATE_BEFORE else kind, row, before)
            if record is not None:
                records.append(record)
        return records


class Conversion:
    """Reads, decodes, encodes and writes."""

    def __init__(self, changelog: Changelog, encoded: Encoding, sink: Sink) -> None:
        self.changelog, self.encoded, self.sink = changelog, encoded, sink

    def run(self, batches: Iterable[list[Record]]) -> None:
        """Convert all records. After Ctrl-C, too, the records that were read are written and counted."""
        try:
            with status_line("converting", quiet=sys.stdout.isatty() and str(self.sink) == STANDARD_OUTPUT) as show_status:
                for batch in batches:
                    with delay_interrupt():
                        for record in batch:
                            self._convert(record)
                        self.sink.flush()
                    show_status(f"converting: {self.changelog.summary()}")
        except KeyboardInterrupt:
            self._finish()
            raise
        self._finish()

    def _convert(self, record: Record) -> None:
        rows = self.changelog.rows(record)
        try:
            records = self.encoded.records(rows, record.partition)
        except EncodeError as error:
            raise EncodeError(f"{error.args[0]} - row of {record.where}") from None
        for key, value in records:
            self.sink.write(key, value, record.partition)
        self.changelog.seen(rows)

    def _finish(self) -> None:
        with delay_interrupt():
            for partition, records in self.encoded.rest():
                for key, value in records:
                    self.sink.write(key, value, partition)
