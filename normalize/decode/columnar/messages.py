"""Read messages: the first of the four steps that decode many records together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from itertools import compress, zip_longest
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import pyarrow.compute as pc

from cdc_formats.avro.records import AvroSchema
from cdc_formats.decoding.envelope import Envelope, TableFilter
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import DecodeError
from cdc_formats.events import Ignored, RowKind
from cdc_formats.message_format import MessageFormat, table_filter, table_reader
from cdc_formats.values.json_reader import BatchReader, batch_reader, fields_of
from cdc_formats.values.schema import ABSENT
from normalize.core.message_columns import MessageColumn
from normalize.core.records import Records, header_lists
from normalize.decode.plan import DecodePlan

BLOCKS_KEPT = 1000
"""The schema blocks and frames whose compiled readers a task keeps."""
_REFUSALS = (DecodeError, RecursionError)
Read = Callable[[Any], Any]
"""A function that reads metadata of a message."""


def read_each(read: Read, messages: Sequence[Any]) -> tuple[list[Any], list[int]]:
    """Return a value read from each message, and the indexes where the format raises an error."""
    try:
        return list(map(read, messages)), []
    except _REFUSALS:
        pass
    values, refused = [], []
    for index, message in enumerate(messages):
        try:
            values.append(read(message))
        except _REFUSALS:
            values.append(None)
            refused.append(index)
    return values, refused


def read_at(
    read: BatchReader, values: Sequence[bytes | None], places: list[int]
) -> tuple[list[Any], list[int], list[int]]:
    """Return the messages of some records, their records, and the records that cannot be read.

    Parameters
    ----------
    read : BatchReader
    values : sequence of bytes or None
        Those of all records.
    places : list of int
        The records to read, in their order.
    """
    is_all = len(places) == len(values)
    messages, unread = read(values if is_all else [values[place] for place in places])
    if not unread:
        return messages, places, []
    failed = [places[index] for index in unread]
    refused = set(failed)
    return messages, [place for place in places if place not in refused], failed


def names_reader(format: MessageFormat, envelope: Envelope, names: Sequence[str]) -> Read | None:
    """Return the reader of columns of `Traits.table_identity`, as a tuple; None without names."""
    if not names:
        return None
    fields = [envelope.attributes[name][0] for name in names if name in envelope.attributes]
    if len(fields) < len(names):
        return table_reader(format, names)
    read = attrgetter(*fields)
    return read if len(fields) > 1 else lambda message: (read(message),)


def unwrapping(envelope: Envelope, read: BatchReader) -> BatchReader:
    """Return `read` for the messages in records' values, which an envelope may unwrap."""
    unwrap = envelope.framing.unwrap
    return read if unwrap is None else lambda values: read(read_each(unwrap, values)[0])


class TableMatcher:
    """Compares the tables of messages with the format's filter.

    Parameters
    ----------
    tables : TableFilter
    read : callable
        The reader of the names that the filter compares.
    only_counted : bool
        Whether a message of another table is only counted; otherwise it is decoded alone.
    """

    def __init__(self, tables: TableFilter, read: Read, *, only_counted: bool) -> None:
        self.tables, self.read, self.only_counted = tables, read, only_counted

    @classmethod
    def of(cls, plan: DecodePlan, envelope: Envelope) -> TableMatcher | None:
        """Return the matcher of a plan; None if its format has no filter."""
        tables = table_filter(plan.format)
        if not tables.set:
            return None
        read = names_reader(plan.format, envelope, tables.columns)
        only_counted = Ignored.OTHER_TABLE not in plan.handled_reasons
        return None if read is None else cls(tables, read, only_counted=only_counted)

    def matches(self, messages: Sequence[Any]) -> list[bool | None]:
        """Return for each message whether the filter includes its table; None: decode it alone."""
        tables, _ = read_each(self.read, messages)
        by_table = {table: self._match(table) for table in set(tables)}
        return [by_table[table] for table in tables]

    def _match(self, table: tuple[Any, ...] | None) -> bool | None:
        if table is None:
            return None
        try:
            included = self.tables.match_names(table, "$")
        except DecodeError:
            return None
        return included or (False if self.only_counted else None)


class Encoding:
    """The compiled shapes and columns of one encoding of the table's rows.

    Parameters
    ----------
    envelope : Envelope
    rows : RowConverter
    whole : bool
        Whether all columns of a row before its change are read.
    fewest : int
        Fewer messages in Avro are decoded one by one.
    frame : bytes
        The frame in front of the messages.
    """

    def __init__(
        self,
        envelope: Envelope,
        rows: RowConverter,
        *,
        whole: bool,
        fewest: int,
        frame: bytes = b"",
    ) -> None:
        missing = ABSENT if whole else None
        image = envelope.image(
            rows, missing if envelope.images.missing_is_null else msgspec.NODEFAULT
        )
        shape = envelope.shape(rows, image, whole=whole)
        schema = (
            None
            if envelope.framing.writer_schema is None
            else envelope.framing.writer_schema(frame)
        )
        if schema is not None:
            self.read = _avro_reader(schema, shape, fewest)
        elif envelope.framing.row_reader is not None:
            self.read = envelope.framing.row_reader(image)
        else:
            self.read = unwrapping(envelope, batch_reader(shape, spelled=rows.spelled))
        self.read_befores = _reader_of_befores(envelope, rows)
        self.read_lacking = _reader_of_lacking(envelope, rows, whole=whole)
        indices = (
            range(len(rows.columns)) if envelope.images.columns is None else envelope.images.columns
        )
        self.getters = {index: attrgetter(f"c{index}") for index in indices}
        required = [field for field in fields_of(image) if field.required]
        self.nothing = msgspec.convert({field.encode_name: None for field in required}, image)
        self.columns = [
            MessageColumn(*each)
            for each in zip(rows.results, rows.handlings, rows.converters, rows.direct, strict=True)
        ]

    def cells(self, images: Sequence[Any]) -> dict[int, list[Any]]:
        """Return the values of images by the index of their column."""
        return {index: list(map(get, images)) for index, get in self.getters.items()}


def _reader_of_befores(envelope: Envelope, rows: RowConverter) -> BatchReader | None:
    """Return the reader of rows before an update that are next to those after.

    None without such rows.
    """
    if not envelope.images.before_prefix:
        return None
    return batch_reader(envelope.prefixed_shape(rows), spelled=rows.spelled)


def _reader_of_lacking(
    envelope: Envelope, rows: RowConverter, *, whole: bool
) -> BatchReader | None:
    """Return the reader of rows that lack columns; None if all are read alike.

    Such rows are rare: looking for them among all rows would slow those that are whole.
    """
    if envelope.images.missing_is_null or envelope.images.partial is None:
        return None
    return batch_reader(
        envelope.shape(rows, envelope.image(rows, ABSENT), whole=whole), spelled=rows.spelled
    )


class Encodings:
    """A plan's encodings for bare messages, and, compiled when needed, frames and schema blocks."""

    def __init__(self, envelope: Envelope, rows: RowConverter, *, whole: bool, fewest: int) -> None:
        self.envelope = envelope
        self.compile = partial(Encoding, envelope, whole=whole, fewest=fewest)
        self.bare = None if envelope.framing.frame else self.compile(rows)
        self.of = lru_cache(BLOCKS_KEPT)(self._of)

    def _of(self, block: bytes) -> Encoding | None:
        """Return the encoding of a schema block or frame; None to decode messages one by one."""
        try:
            rows = self.envelope.framing.by_block(block)
        except DecodeError:
            rows = None
        frame = block if self.envelope.framing.frame else b""
        return None if rows is None else self.compile(rows, frame=frame)


class Messages(NamedTuple):
    """Messages of one encoding, and their records.

    Attributes
    ----------
    encoding : Encoding
    places : list of int
        The index of each message's record.
    messages : list
    deletes : list of int
        The records without a message that delete the row of their key.
    """

    encoding: Encoding
    places: list[int]
    messages: list[Any]
    deletes: Sequence[int] = ()


MessagesRead = tuple[list[Messages], Counter[str], set[int]]
"""Messages, the number of records that are only counted, by their `Ignored` value, and the records
that have to be decoded alone."""


class MessageReader:
    """Reads the messages of records.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    encodings : Encodings
    matcher : TableMatcher or None
    """

    def __init__(
        self,
        plan: DecodePlan,
        envelope: Envelope,
        encodings: Encodings,
        matcher: TableMatcher | None,
    ) -> None:
        self.envelope, self.encodings, self.matcher = envelope, encodings, matcher
        self.read_fields = unwrapping(envelope, batch_reader(envelope.strict_fields))
        self.reads_tombstones = (
            plan.format.traits.reads_tombstones or Ignored.TOMBSTONE in plan.handled_reasons
        )

    def read(self, records: Records) -> MessagesRead:
        """Return the messages of records."""
        present, empty, deletes = self._sorted(records.values)
        bare = self.encodings.bare
        parts, ignored, refused = (
            self._framed(records, present)
            if bare is None
            else self._bare(bare, records.values, present, deletes)
        )
        if self.envelope.operation_header:
            headers = header_lists(records.headers) if records.headers is not None else []
            for part in parts:
                for place, message in zip(part.places, part.messages, strict=True):
                    self.envelope.set_operation(message, headers[place] if headers else ())
        if self.reads_tombstones:
            refused.update(empty)
        else:
            ignored[Ignored.TOMBSTONE.value] += len(empty)
        return parts, ignored, refused

    def _sorted(self, values: Sequence[bytes | None]) -> tuple[list[int], list[int], list[int]]:
        """Return the records with a message, those without, and those that delete their key's row."""
        keys = self.envelope.keys
        deletes = (
            []
            if keys.shape is None
            else [place for place, value in enumerate(values) if value in keys.deletes]
        )
        if all(values) and not deletes:
            return list(range(len(values))), [], []
        deleting = set(deletes)
        # A pass over the values costs less than to look single ones up.
        others = [each for each in enumerate(values) if each[0] not in deleting]
        present = [place for place, value in others if value]
        return present, [place for place, value in others if not value], deletes

    def _bare(
        self,
        encoding: Encoding,
        values: Sequence[bytes | None],
        present: list[int],
        deletes: Sequence[int],
    ) -> MessagesRead:
        """Read messages without frames: in JSON, CSV or raw bytes."""
        messages, places, failed = read_at(encoding.read, values, present)
        refused, ignored, parts = set(failed), Counter[str](), list[Messages]()
        if self.envelope.framing.block:
            messages, places, by_block = self._without_blocks(messages, places)
            parts, unread_in_blocks = self._blocks(by_block)
            refused |= unread_in_blocks
        if not self.envelope.framing.bare:
            refused.update(places)
            messages, places = [], []
        if self.matcher is not None and failed:
            excluded = self._of_other_tables(self.matcher, values, failed)
            ignored[Ignored.OTHER_TABLE.value] += len(excluded)
            failed = [place for place in failed if place not in excluded]
            refused -= excluded
        if encoding.read_lacking is not None and failed:
            more, of_more = self._with_nulls(encoding.read_lacking, values, failed)
            messages, places = messages + more, places + of_more
            refused.difference_update(of_more)
        return [*parts, Messages(encoding, places, messages, deletes)], ignored, refused

    def _framed(self, records: Records, present: list[int]) -> MessagesRead:
        """Read messages behind frames."""
        size, values = self.envelope.framing.frame, records.values
        without_frame = _with_header(records, self.envelope.framing.header)
        by_frame: dict[bytes, list[tuple[int, bytes]]] = {}
        for place in present:
            value = values[place]
            if value and place not in without_frame:
                by_frame.setdefault(value[:size], []).append((place, value[size:]))
        parts, refused = self._blocks(by_frame)
        return parts, Counter(), refused | without_frame.intersection(present)

    def _without_blocks(
        self, messages: list[Any], places: list[int]
    ) -> tuple[list[Any], list[int], dict[bytes, list[tuple[int, bytes]]]]:
        """Return messages outside schema blocks with their records, and other texts by block."""
        schema, payload = map(attrgetter, self.envelope.framing.block)
        if not any(map(payload, messages)):
            return messages, places, {}
        by_block: dict[bytes, list[tuple[int, bytes]]] = {}
        bare = []
        kinds = self.envelope.kinds_of(messages)
        for place, message, kind in zip(places, messages, kinds, strict=True):
            wrapped = payload(message) and kind is None
            bare.append(not wrapped)
            if wrapped:
                by_block.setdefault(bytes(schema(message)), []).append(
                    (place, bytes(payload(message)))
                )
        return list(compress(messages, bare)), list(compress(places, bare)), by_block

    def _blocks(
        self, by_block: dict[bytes, list[tuple[int, bytes]]]
    ) -> tuple[list[Messages], set[int]]:
        """Read messages in schema blocks or behind frames; also return the records not read."""
        parts, refused = list[Messages](), set[int]()
        for block, texts in by_block.items():
            encoding = self.encodings.of(block)
            if encoding is None:
                refused.update(place for place, _ in texts)
                continue
            messages, failed = encoding.read([text for _, text in texts])
            unread = {texts[index][0] for index in failed}
            for message in messages if self.envelope.framing.block else ():
                setattr(message, self.envelope.framing.block[0], msgspec.Raw(block))
            parts.append(
                Messages(encoding, [place for place, _ in texts if place not in unread], messages)
            )
            refused |= unread
        return parts, refused

    def _of_other_tables(
        self, matcher: TableMatcher, values: Sequence[bytes | None], failed: list[int]
    ) -> set[int]:
        """Return the failed records that belong to other tables: their rows have other columns."""
        # A reader of some fields would not notice bytes that are not UTF-8 in the name of another
        # field, which is an error.
        failed = [place for place in failed if _is_utf8(values[place])]
        messages, places, _ = read_at(self.read_fields, values, failed)
        operations = [kind is not None for kind in self.envelope.kinds_of(messages)]
        if self.envelope.columnar.message is not None:
            messages = [self.envelope.columnar.message(message, None) for message in messages]
        matches = matcher.matches(list(compress(messages, operations)))
        return {
            place
            for place, match in zip(compress(places, operations), matches, strict=True)
            if match is False
        }

    def _with_nulls(
        self, read: BatchReader, values: Sequence[bytes | None], failed: list[int]
    ) -> tuple[list[Any], list[int]]:
        """Return messages whose rows lack only NULL columns, with these set, and their records."""
        messages, places, _ = read_at(read, values, failed)
        filled = list(map(self._fill, messages))
        return list(compress(messages, filled)), list(compress(places, filled))

    def _fill(self, message: Any) -> bool:
        """Set the columns that a message's rows lack to NULL; return whether all are NULL."""
        envelope, [kind] = self.envelope, self.envelope.kinds_of([message])
        images, befores = (getattr(message, field) for field in (envelope.after, envelope.before))
        if envelope.images.many == "one":
            images, befores = [images], [befores]
        assert envelope.images.partial is not None
        updated = befores or () if kind is RowKind.UPDATE_AFTER else ()
        for image, before in zip_longest(images or [None], updated):
            try:
                if image is None or not envelope.images.partial.nulls(message, kind, image, before):
                    return False
            except _REFUSALS:
                return False
            for name in image.__struct_fields__:
                if getattr(image, name) is ABSENT:
                    setattr(image, name, None)
        return True


def _avro_reader(schema: AvroSchema, shape: Any, fewest: int) -> BatchReader:
    # Loads polars, which only Avro needs.
    from normalize.decode.avro_batches import avro_reader

    return avro_reader(schema, shape, fewest=fewest) or (
        lambda messages: ([], list(range(len(messages))))
    )


def _with_header(records: Records, name: str) -> set[int]:
    """Return the records that have a Kafka header with this name."""
    headers = records.headers
    if headers is None or headers.null_count == len(headers):
        return set()
    named = pc.equal(headers.flatten().field(0), name)
    return set(pc.list_parent_indices(headers).filter(named).to_pylist())


def _is_utf8(value: bytes | None) -> bool:
    try:
        str(value or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True
