"""Decode many messages of a format together, column by column.

The result is that of `base.Decoder.upserts` for each message, or of `base.Decoder.decode` in a plan without a stage. A format declares its
messages as an `Envelope`. Messages in doubt are left to that decoder, which returns their rows or their error: a null value, a message
that is not of the declared shape, one without rows, an unavailable value, a value that its column's converter refuses, NULL where it
is not allowed, and a before-image that is not whole where it has to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import chain, compress, zip_longest
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.base import Ignored
from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.images import ABSENT
from cdc_formats.decoding.json_reader import BatchReader, batch_reader
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import DecodeError
from cdc_formats.position import Position
from cdc_formats.row_kind import RowKind
from cdc_formats.values.equality import row_unifier
from normalize.core.arrow import to_stored
from normalize.core.changes import ChangeBatch
from normalize.core.fold_columns import Bools, Ints
from normalize.core.message_columns import MessageColumn
from normalize.core.packing import pack
from normalize.core.records import Records

if TYPE_CHECKING:
    from cdc_formats.avro.reader import AvroSchema

    from .decode_pass import Source

_BLOCKS_KEPT = 1000
FEWEST_IN_AVRO = 64
"""Fewer messages in Avro are read faster one by one."""
_Read = Callable[[Any], Any]
"""A function that reads metadata of a message."""
_REFUSALS = (DecodeError, RecursionError)
_UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
_EXACT = (str, int, type(None))
"""The types of key values that are equal if, and only if, the values of their column are equal."""


class ChangeColumns(NamedTuple):
    """Changes as columns.

    Attributes
    ----------
    changes : ChangeBatch
        In a plan without a stage, its rows are those of the topic's changelog (`Shape.changelog_schema`).
    places : array of int
        The index of each change's record.
    keys : list of bytes
        The packed key of each change; empty in a plan without a stage.
    """

    changes: ChangeBatch
    places: Ints
    keys: list[bytes]


class Decoded(NamedTuple):
    """The result for records of one Kafka partition.

    Attributes
    ----------
    parts : list of ChangeColumns
        Their changes are not in the order of the records; those of a record are adjacent, and in their order.
    ignored : Counter
        The number of records that are only counted, by their `Ignored` value: null values, and tables that the format's filter excludes.
    odd : list of int
        The indexes of the records that are to be decoded one by one, in order.
    tables : list of (int, tuple)
        The tables that were not found before (`base.Decoder.tables`), each with the index of its
        first record, in order.
    """

    parts: list[ChangeColumns]
    ignored: Counter[str]
    odd: list[int]
    tables: list[tuple[int, tuple[Any, ...]]]


class _Rows(NamedTuple):
    """Rows of messages, as parallel lists.

    Attributes
    ----------
    places : list of int
        The index of the record.
    messages : list
    kinds : list of RowKind
    images : list
        The row after the change; of a delete the deleted row.
    befores : list
        The row before an update, or None.
    """

    places: list[int]
    messages: list[Any]
    kinds: list[Any]
    images: list[Any]
    befores: list[Any]

    def where(self, kept: Sequence[Any]) -> _Rows:
        """Return the rows whose element of `kept` is true."""
        return _Rows(*(list(compress(each, kept)) for each in self))

    def without(self, odd: set[int]) -> _Rows:
        """Return the rows of other records than `odd`."""
        return self.where([place not in odd for place in self.places])


class _Table:
    """The compiled shapes and columns of one encoding of the table's rows."""

    def __init__(self, envelope: Envelope, rows: RowConverter, *, whole: bool, fewest: int, frame: bytes = b"") -> None:
        missing = ABSENT if whole else None
        image = envelope.image(rows, missing if envelope.missing_is_null else msgspec.NODEFAULT)
        shape = envelope.shape(rows, image, whole=whole)
        schema = None if envelope.writer_schema is None else envelope.writer_schema(frame)
        if schema is not None:
            self.read = _avro_reader(schema, shape, fewest)
        else:
            self.read = envelope.row_reader(image) if envelope.row_reader is not None else batch_reader(shape, spelled=rows.spelled)
        # Rows that lack columns are rare: looking for them among all rows would slow those that are whole.
        lenient = envelope.lacks_nulls is not None and not envelope.missing_is_null
        lacking = envelope.shape(rows, envelope.image(rows, ABSENT), whole=whole) if lenient else None
        self.read_lacking = None if lacking is None else batch_reader(lacking, spelled=rows.spelled)
        indices = range(len(rows.columns)) if envelope.columns is None else envelope.columns
        self.getters = {index: attrgetter(f"c{index}") for index in indices}
        required = [field for field in msgspec.structs.fields(image) if field.required]
        self.nothing = msgspec.convert({field.encode_name: None for field in required}, image)
        self.columns = [MessageColumn(*each) for each in zip(rows.columns, rows.handlings, rows.converters, rows.direct, strict=True)]

    def cells(self, images: Sequence[Any]) -> dict[int, list[Any]]:
        """Return the values of images by the index of their column."""
        return {index: list(map(get, images)) for index, get in self.getters.items()}


class _Events(NamedTuple):
    """The converted rows of messages.

    Attributes
    ----------
    rows : _Rows
    gone : array of bool
        Whether each is a row before its change: of a delete, or a separate ``-U``.
    keys : list of tuple
        The key after each change; empty without a key.
    moved : dict of int to tuple
        The key before an update that changed it, by the update's index.
    arrays : list of pyarrow.Array
        The columns of the rows. Of a deleted row only the key is needed, and other columns are null, unless rows before are needed.
    before : array of int
        The place of the row before each change in `arrays` and `befores` together; -1 if there is none or none is needed.
    befores : list of pyarrow.Array
        The columns of the rows before updates.
    metadata : list of pyarrow.Array
    positions : list of (Position or None)
        Empty unless requested.
    """

    rows: _Rows
    gone: Bools
    keys: list[tuple[Any, ...]]
    moved: dict[int, tuple[Any, ...]]
    arrays: list[pa.Array]
    before: Ints
    befores: list[pa.Array]
    metadata: list[pa.Array]
    positions: list[Any]


class ColumnarDecoder:
    """Decodes the records of one task.

    Parameters
    ----------
    source : Source
    envelope : Envelope
    rows : RowConverter
    keyed : bool
        Whether the result is the newest row or the delete of each key; otherwise it is the topic's changelog.
    fewest : int
        Fewer messages in Avro are decoded one by one.

    Attributes
    ----------
    tables : set
        As of `base.Decoder`.
    """

    def __init__(self, source: Source, envelope: Envelope, rows: RowConverter, *, keyed: bool, fewest: int) -> None:
        self.source, self.envelope, self.shape, self.keyed = source, envelope, source.shape, keyed
        self.fewest = fewest
        self.table = None if envelope.frame else _Table(envelope, rows, whole=not keyed, fewest=fewest)
        self.tables_by_block = dict[bytes, _Table | None]()
        self.key_indices = rows.key_indices if self._needs_key() else ()
        self.unique_indices = rows.key_indices
        self.required = rows.required
        self.types = [column.type for column in rows.columns]
        self.unify = row_unifier([rows.columns[index] for index in self.key_indices])
        self.pairs = self._has_pairs()
        self.missing_before_is_null = envelope.missing_is_null and envelope.before_has == "all columns"
        self.operation = attrgetter(*envelope.operation) if envelope.operation else lambda message: ()
        self.read_fields = batch_reader(envelope.fields)
        read_keys = envelope.key_reader or partial(batch_reader, spelled=rows.spelled)
        self.read_key = None if envelope.key is None else read_keys(envelope.key)
        self.metadata = [self._reader(name) for name in source.format_metadata]
        names = source.format_metadata + source.kafka_metadata
        self.metadata_order = [names.index(name) for name in source.metadata.values()]
        self.key_places = [list(source.metadata).index(name) for name in source.key_metadata]
        self.identity = self._table_reader(source.identity.columns)
        self.filtered = self._table_reader(self._filtered_columns())
        self.tables: set[tuple[Any, ...]] = set()

    def _needs_key(self) -> bool:
        """Whether the key of each row is needed."""
        return self.keyed or self.source.by_key or self.source.ignore_deletes or self.envelope.key is not None

    def _has_pairs(self) -> bool:
        """Whether an update is a ``-U`` and a ``+U``. Where each ``-U`` is a message of its own, it is not."""
        with_before = self.source.format.changelog_mode.contains(_UPDATE_BEFORE)
        return not self.keyed and with_before and _UPDATE_BEFORE not in self.envelope.kinds.values()

    def _filtered_columns(self) -> list[str]:
        """Return the columns of `Format.table_identity` by which the format's options select tables."""
        filters = self.envelope.tables is not None and self.envelope.tables.set
        return [name for name, option in self.source.format.table_identity.items() if option] if filters else []

    def _table_reader(self, names: Sequence[str]) -> _Read | None:
        """Return the reader of columns of `Format.table_identity`, as a tuple."""
        fields = [self.envelope.attributes[name][0] for name in names if name in self.envelope.attributes]
        if not names:
            return None
        if len(fields) < len(names):
            return self.source.format.table_reader(names)
        read = attrgetter(*fields)
        return read if len(fields) > 1 else lambda message: (read(message),)

    def _reader(self, name: str) -> _Read:
        field, convert = self.envelope.attributes.get(name, ("", None))
        read = attrgetter(field) if field else self.source.format.metadata[name].read
        return read if convert is None else lambda message: convert(read(message))

    @classmethod
    def of(cls, source: Source, *, keyed: bool = True, fewest: int = FEWEST_IN_AVRO) -> ColumnarDecoder | None:
        """Return the decoder of a plan; None if all its messages have to be decoded one by one."""
        format = source.format
        # A subclass of another package may read messages differently than the envelope that it inherits.
        ours = type(format).__module__.startswith("cdc_formats.")
        if format.validate or format.unknown_columns == "fail" or not ours:
            return None
        rows = RowConverter(source.columns, format.handling, source.unique_key)
        if not isinstance(rows.shape, type(msgspec.Struct)):  # a struct cannot have all names that JSON can have
            return None
        envelope = format.envelope(rows, source.format_metadata, positions=source.positions)
        if envelope is None or not envelope.can_hold(rows) or (envelope.frame and find_spec("polars") is None):
            return None
        # A delete that has only a key is no row of a changelog.
        known = keyed or envelope.before_has != "some columns"
        return cls(source, envelope, rows, keyed=keyed, fewest=fewest) if known else None

    def decode(self, records: Records, kafka: Sequence[tuple[Any, ...]]) -> Decoded:
        """Decode records.

        Parameters
        ----------
        records : Records
        kafka : sequence of tuple
            The metadata of each Kafka record, in the order of `Source.kafka_metadata`; empty if none is requested.
        """
        return _Decoding(self, records, kafka).result()

    def compiled(self, block: bytes) -> _Table | None:
        """Return the table of a schema block or of a frame; None if its messages have to be decoded one by one."""
        if block not in self.tables_by_block:
            if len(self.tables_by_block) >= _BLOCKS_KEPT:
                self.tables_by_block.clear()
            try:
                rows = self.envelope.by_block(block) if self.envelope.by_block is not None else None
            except DecodeError:
                rows = None
            frame = block if self.envelope.frame else b""
            self.tables_by_block[block] = (
                None if rows is None else _Table(self.envelope, rows, whole=not self.keyed, fewest=self.fewest, frame=frame)
            )
        return self.tables_by_block[block]


ColumnarMaker = Callable[..., ColumnarDecoder | None]
"""Called as `ColumnarDecoder.of`."""


def one_by_one(source: Source, *, keyed: bool = True) -> None:
    """Return no decoder: each message is decoded alone."""


class _Decoding:
    """The decoding of some records."""

    def __init__(self, decoder: ColumnarDecoder, records: Records, kafka: Sequence[tuple[Any, ...]]) -> None:
        self.decoder, self.records, self.kafka = decoder, records, kafka
        self.envelope, self.source = decoder.envelope, decoder.source
        self.odd: set[int] = set()
        self.ignored = Counter[str]()
        self.parts: list[ChangeColumns] = []
        self.kafka_keys = dict[int, Any]()
        self.tables: dict[tuple[Any, ...], int] = {}

    def result(self) -> Decoded:
        values = self.records.values
        present = list(range(len(values))) if all(values) else self._present()
        if self.decoder.table is None:
            self._take_framed(present)
        else:
            self._take_json(self.decoder.table, present)
        self.decoder.tables.update(self.tables)
        tables = sorted(((place, table) for table, place in self.tables.items()), key=itemgetter(0))
        return Decoded(self.parts, self.ignored, sorted(self.odd), tables)

    def _take_json(self, table: _Table, present: list[int]) -> None:
        """Decode messages without frames: in JSON, CSV or raw bytes."""
        values = self.records.values
        messages, unread = table.read(values if len(present) == len(values) else [values[place] for place in present])
        failed = [present[index] for index in unread]
        self.odd.update(failed)
        places = [place for place in present if place not in self.odd] if self.odd else present
        if self.envelope.block:
            messages, places = self._without_blocks(messages, places)
        if not self.envelope.bare:
            self.odd.update(places)
            messages, places = [], []
        if self.decoder.filtered is not None and failed:
            self._exclude_other_tables(failed)
        if table.read_lacking is not None and failed:
            more = self._with_nulls(table.read_lacking, [place for place in failed if place in self.odd])
            messages, places = messages + more[0], places + more[1]
        rows = self._rows(messages, places)
        if self.decoder.read_key is not None:
            rows = self._with_keys(rows, self.decoder.read_key)
        self._take(table, rows)

    def _present(self) -> list[int]:
        """Return the records with a value; the others are counted, or decoded alone."""
        values = self.records.values
        empty = [place for place, value in enumerate(values) if not value]
        if self.source.format.reads_tombstones or Ignored.TOMBSTONE in self.source.handled_reasons:
            self.odd.update(empty)
        else:
            self.ignored[Ignored.TOMBSTONE.value] += len(empty)
        return [place for place, value in enumerate(values) if value]

    # ---------------------------------------------------------------------------------------------------------- messages

    def _with_nulls(self, read: BatchReader, failed: list[int]) -> tuple[list[Any], list[int]]:
        """Return the messages whose rows lack only columns that are NULL, with these columns, and their records."""
        messages, unread = read([self.records.values[place] for place in failed])
        filled = list(map(self._fill, messages))
        others = {failed[index] for index in unread}
        places = list(compress([place for place in failed if place not in others], filled))
        self.odd.difference_update(places)
        return list(compress(messages, filled)), places

    def _fill(self, message: Any) -> bool:
        """Set the columns that a message's rows lack to NULL; return whether all of them are NULL."""
        envelope, kind = self.envelope, self.envelope.kinds.get(self.decoder.operation(message))
        images, befores = (getattr(message, field) for field in (envelope.after, envelope.before))
        if envelope.rows == "one":
            images, befores = [images], [befores]
        assert envelope.lacks_nulls is not None
        for image, before in zip_longest(images or [None], befores or () if kind is _UPDATE_AFTER else ()):
            try:
                if image is None or not envelope.lacks_nulls(message, kind, image, before):
                    return False
            except _REFUSALS:
                return False
            for name in image.__struct_fields__:
                if getattr(image, name) is ABSENT:
                    setattr(image, name, None)
        return True

    def _without_blocks(self, messages: list[Any], places: list[int]) -> tuple[list[Any], list[int]]:
        """Decode the messages in a schema block, and return the others."""
        schema, payload = map(attrgetter, self.envelope.block)
        if not any(map(payload, messages)):
            return messages, places
        by_block: dict[bytes, list[tuple[int, bytes]]] = {}
        bare = []
        for place, message in zip(places, messages, strict=True):
            wrapped = payload(message) and self.envelope.kinds.get(self.decoder.operation(message)) is None
            bare.append(not wrapped)
            if wrapped:
                by_block.setdefault(bytes(schema(message)), []).append((place, bytes(payload(message))))
        for block, texts in by_block.items():
            self._take_block(block, texts)
        return list(compress(messages, bare)), list(compress(places, bare))

    def _take_framed(self, places: list[int]) -> None:
        """Decode messages behind frames."""
        size, values, without_frame = self.envelope.frame, self.records.values, self._with_header(self.envelope.frame_header)
        by_frame: dict[bytes, list[tuple[int, bytes]]] = {}
        for place in places:
            value = values[place]
            if value and place not in without_frame:
                by_frame.setdefault(value[:size], []).append((place, value[size:]))
        self.odd |= without_frame.intersection(places)
        for frame, messages in by_frame.items():
            self._take_block(frame, messages)

    def _with_header(self, name: str) -> set[int]:
        """Return the records that have a Kafka header with this name."""
        headers = self.records.headers
        if headers is None or headers.null_count == len(headers):
            return set()
        found = pc.equal(headers.flatten().field(0), name)
        return set(pc.list_parent_indices(headers).filter(found).to_pylist())

    def _take_block(self, block: bytes, texts: list[tuple[int, bytes]]) -> None:
        table = self.decoder.compiled(block)
        if table is None:
            self.odd.update(place for place, _ in texts)
            return
        messages, failed = table.read([text for _, text in texts])
        refused = {texts[index][0] for index in failed}
        self.odd |= refused
        for message in messages if self.envelope.block else ():
            setattr(message, self.envelope.block[0], msgspec.Raw(block))
        self._take(table, self._rows(messages, [place for place, _ in texts if place not in refused]))

    def _rows(self, messages: list[Any], places: list[int]) -> _Rows:
        """Return the rows of messages."""
        envelope = self.envelope
        kinds = list(map(envelope.kinds.get, map(self.decoder.operation, messages)))
        images = list(map(attrgetter(envelope.after), messages)) if envelope.after else messages
        befores = list(map(attrgetter(envelope.before), messages)) if envelope.before else [None] * len(messages)
        if envelope.message is not None:
            texts = self.records.values
            messages = [envelope.message(message, texts[place]) for message, place in zip(messages, places, strict=True)]
        rows = _Rows(places, messages, kinds, images, befores)
        if None in kinds:
            self.odd |= {place for place, kind in zip(places, kinds, strict=True) if kind is None}
            rows = rows.without(self.odd)
        if self.decoder.filtered is not None:
            rows = self._of_this_table(rows)
        rows = self._with_rows(rows)
        if envelope.rows != "one":
            rows = self._exploded(rows)
        if envelope.before and envelope.deleted == envelope.before:
            chosen = zip(rows.kinds, rows.images, rows.befores, strict=True)
            rows = rows._replace(images=[before if kind is _DELETE else image for kind, image, before in chosen])
        doubted = {place for place, image in zip(rows.places, rows.images, strict=True) if image is None}
        if envelope.needs_before or self.decoder.pairs:
            updates = zip(rows.places, rows.kinds, rows.befores, strict=True)
            doubted |= {place for place, kind, before in updates if before is None and kind is _UPDATE_AFTER}
        if doubted:
            self.odd |= doubted
            rows = rows.without(doubted)
        if _UPDATE_BEFORE in rows.kinds and self.decoder.keyed:
            rows = rows.where([kind is not _UPDATE_BEFORE for kind in rows.kinds])
        return rows

    def _with_rows(self, rows: _Rows) -> _Rows:
        """Count the messages that have no rows, and return the others."""
        if not any(type(kind) is Ignored for kind in set(rows.kinds)):
            return rows
        for place, kind in zip(rows.places, rows.kinds, strict=True):
            if kind in self.source.handled_reasons:
                self.odd.add(place)
            elif type(kind) is Ignored:
                self.ignored[kind.value] += 1
        return rows.where([type(kind) is not Ignored for kind in rows.kinds])

    def _exploded(self, rows: _Rows) -> _Rows:
        """Return a row for each element of the messages' arrays."""
        # Most messages have one row: this takes a sixth of the decoder's time less than the general case below.
        if all(map(_is_single, rows.kinds, rows.images, rows.befores)):
            befores = [old[0] if old else None for old in rows.befores]
            return rows._replace(images=[images[0] for images in rows.images], befores=befores)
        one = self.envelope.rows == "array of one"
        found = []
        for place, message, kind, images, old in zip(*rows, strict=True):
            befores = old if kind is _UPDATE_AFTER else [None] * len(images or ())
            if images is None or befores is None or len(befores) != len(images) or (one and len(images) != 1):
                self.odd.add(place)
            else:
                found += [(place, message, kind, image, before) for image, before in zip(images, befores, strict=True)]
        return _Rows(*map(list, zip(*found, strict=True))) if found else _Rows([], [], [], [], [])

    def _of_this_table(self, rows: _Rows) -> _Rows:
        """Return the rows of messages of the tables that the format's filter includes."""
        matches = self._matches(rows)
        self.odd |= {place for place, match in zip(rows.places, matches, strict=True) if match is None}
        self.ignored[Ignored.OTHER_TABLE.value] += matches.count(False)
        return rows if all(matches) else rows.where(matches)

    def _exclude_other_tables(self, failed: list[int]) -> None:
        """Count the messages of other tables among those that could not be read: their rows have other columns."""
        # A reader of some fields would not notice bytes that are not UTF-8 in the name of another field, which is an error.
        failed = [place for place in failed if _is_utf8(self.records.values[place])]
        messages, unread = self.decoder.read_fields([self.records.values[place] for place in failed])
        places = list(compress(failed, [index not in unread for index in range(len(failed))])) if unread else failed
        kinds = list(map(self.envelope.kinds.get, map(self.decoder.operation, messages)))
        if self.envelope.message is not None:
            messages = [self.envelope.message(message, None) for message in messages]
        rows = _Rows(places, messages, kinds, messages, messages).where([kind is not None for kind in kinds])
        others = {place for place, match in zip(rows.places, self._matches(rows), strict=True) if match is False}
        self.ignored[Ignored.OTHER_TABLE.value] += len(others)
        self.odd -= others

    def _matches(self, rows: _Rows) -> list[bool | None]:
        """Return for each row whether the format's filter includes its message's table; None if it has to be decoded alone."""
        assert self.decoder.filtered is not None
        tables = self._each(self.decoder.filtered, rows, set())
        known = {table: self._match(table) for table in set(tables)}
        return [known[table] for table in tables]

    def _match(self, table: tuple[Any, ...]) -> bool | None:
        assert self.envelope.tables is not None
        database, name = (None, *table)[-2:]
        try:
            found = self.envelope.tables.match(database, name, "$")
        except DecodeError:
            return None
        # An excluded record that becomes a row is not only counted.
        return found or (None if Ignored.OTHER_TABLE in self.source.handled_reasons else False)

    def _with_keys(self, rows: _Rows, read: Callable[[Sequence[bytes | None]], tuple[list[Any], list[int]]]) -> _Rows:
        """Add the deletes of records without a row, and read the keys of rows if they can be part of them."""
        records, of_rows, deletes = self.records, self.envelope.key_of_rows, self.envelope.deletes
        deleted = [place for place, value in enumerate(records.values) if value in deletes]
        wanted = [*rows.places, *deleted] if of_rows else deleted
        keys, failed = read([records.keys[place] for place in wanted])
        refused = {wanted[index] for index in failed}
        self.kafka_keys = dict(zip([place for place in wanted if place not in refused], keys, strict=True))
        self.odd = self.odd.difference(deleted) | refused
        found = [place for place in deleted if place not in refused]
        if refused:
            rows = rows.without(refused)
        images, nothing = [self.kafka_keys[place] for place in found], self.envelope.fields()
        if self.envelope.message is not None:
            nothing = self.envelope.message(nothing, None)
        added = _Rows(found, [nothing] * len(found), [_DELETE] * len(found), images, [None] * len(found))
        return _Rows(*(list(chain(*each)) for each in zip(rows, added, strict=True))) if found else rows

    # ----------------------------------------------------------------------------------------------------------- columns

    def _take(self, table: _Table, rows: _Rows) -> None:
        """Convert rows to columns."""
        doubted: set[int] = set()
        gone = [kind is _DELETE or kind is _UPDATE_BEFORE for kind in rows.kinds]
        cells = self._cells(table, rows, gone, doubted)
        of_key = self._keys(table, rows, cells, gone, doubted)
        arrays = self._arrays(table, rows, cells, of_key, gone, doubted)
        metadata = self._metadata(rows, doubted)
        key_metadata = self._key_metadata(metadata, rows, doubted)
        keys = self._tuples(list(of_key.values()), key_metadata)
        moved = self._moved(table, rows, keys, key_metadata, doubted)
        before, befores = self._befores(table, rows, arrays, gone, doubted)
        positions = self._positions(rows, doubted)
        stored = [to_stored(column.type, values) for column, values in zip(self.decoder.shape.metadata, metadata, strict=True)]
        tables = [] if self.decoder.identity is None else self._each(self.decoder.identity, rows, doubted)
        self.odd |= doubted
        self._collect_tables(tables, rows.places, doubted)
        self._add(_Events(rows, np.array(gone, bool), keys, moved, arrays, before, befores, stored, positions), doubted)

    def _collect_tables(self, tables: list[tuple[Any, ...]], places: list[int], doubted: set[int]) -> None:
        """Add the tables that are new, with the first record of each."""
        for new in set(tables) - self.decoder.tables:
            pairs = zip(places, tables, strict=True)
            sound = (place for place, table in pairs if table == new and place not in doubted)
            first = min(sound, default=None)
            if first is not None:
                self.tables[new] = min(first, self.tables.get(new, first))

    def _add(self, events: _Events, doubted: set[int]) -> None:
        """Add the changes of events."""
        places = np.array(events.rows.places, np.int64)
        kept = np.ones(len(places), bool)
        if doubted:
            kept &= ~np.isin(places, list(doubted))
        for kind, dropped in ((_DELETE, self.source.ignore_deletes), (_UPDATE_BEFORE, self.source.drop_update_before)):
            if dropped:
                kept &= np.array([each is not kind for each in events.rows.kinds], bool)
        # An update with two changes is there twice.
        of = np.flatnonzero(kept)
        of = np.repeat(of, 1 + self._twice(events)[of])
        if not len(of):
            return
        first = np.append(of[1:] == of[:-1], False)
        self.parts.append(self._keyed(events, of, first, places) if self.decoder.keyed else self._changelog(events, of, first, places))

    def _twice(self, events: _Events) -> Bools:
        """Whether each event has two changes."""
        twice = np.zeros(len(events.gone), bool)
        if self.decoder.pairs and not self.source.drop_update_before:
            twice |= np.array([kind is _UPDATE_AFTER for kind in events.rows.kinds], bool)
        if self.decoder.pairs or self.decoder.keyed:
            # The first change of an update that changed the key removes the old key's row.
            twice[list(events.moved)] = not self.source.ignore_deletes
        return twice

    def _keyed(self, events: _Events, of: Ints, first: Bools, places: Ints) -> ChangeColumns:
        """Return the newest row or the delete of each key; the first change of two is the delete of the old key."""
        records, shape = self.records, self.decoder.shape
        deleted = first | events.gone[of]
        packed = [pack(events.moved[row] if old else events.keys[row]) for row, old in zip(of.tolist(), first.tolist(), strict=True)]
        columns = [pa.array(packed, pa.binary()), pa.array(records.stamps[places[of]]), pa.array(deleted)]
        columns += [*_taken(events.arrays, of, first), *_taken(events.metadata, of)]
        if shape.offsets:
            columns.append(pa.array(records.offsets[places[of]]))
        batch = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
        positions = [(records.source, events.positions[row]) for row in of] if events.positions else []
        return ChangeColumns(ChangeBatch(batch, [], positions), places[of], packed)

    def _changelog(self, events: _Events, of: Ints, first: Bools, places: Ints) -> ChangeColumns:
        """Return the rows of the topic's changelog; the first change of two is the row before."""
        kinds = np.array(events.rows.kinds, np.int8)[of]
        kinds[first] = _DELETE if self.source.drop_update_before else _UPDATE_BEFORE
        arrays = [*_taken(_joined(events), np.where(first, events.before[of], of)), *_taken(events.metadata, of)]
        schema = self.decoder.shape.changelog_schema
        batch = pa.RecordBatch.from_arrays([pa.array(kinds), *arrays], schema=schema)
        return ChangeColumns(ChangeBatch(batch, [], []), places[of], [])

    def _cells(self, table: _Table, rows: _Rows, gone: list[bool], doubted: set[int]) -> dict[int, list[Any]]:
        """Return the values of the rows by the index of their column."""
        if self.decoder.keyed:
            # Of a deleted row only the key is read.
            cells = table.cells([table.nothing if out else image for out, image in zip(gone, rows.images, strict=True)])
            for index in cells.keys() & self.decoder.key_indices:
                cells[index] = list(map(table.getters[index], rows.images))
            return cells
        cells = table.cells(rows.images)
        for index, values in cells.items():
            if ABSENT in values:
                if not self.decoder.missing_before_is_null:
                    doubted.update(place for place, value, out in zip(rows.places, values, gone, strict=True) if out and value is ABSENT)
                cells[index] = [None if value is ABSENT else value for value in values]
        return cells

    def _arrays(
        self, table: _Table, rows: _Rows, cells: dict[int, list[Any]], keys: dict[int, list[Any]], gone: list[bool], doubted: set[int]
    ) -> list[pa.Array]:
        """Return the columns of the rows."""
        arrays = []
        nulls = sum(gone) if self.decoder.keyed else 0
        for index, sql_type in enumerate(self.decoder.types):
            if index in keys:
                values = [None if out else value for out, value in zip(gone, keys[index], strict=True)] if nulls else keys[index]
                array = to_stored(sql_type, values)
            else:
                array, refused = table.columns[index].array(cells[index])
                doubted.update(rows.places[row] for row in refused)
            if index in self.decoder.required and array.null_count > nulls:
                valid = array.is_valid().to_pylist()
                doubted.update(place for place, there, out in zip(rows.places, valid, gone, strict=True) if not there and not out)
            arrays.append(array)
        return arrays

    def _keys(self, table: _Table, rows: _Rows, cells: dict[int, list[Any]], gone: list[bool], doubted: set[int]) -> dict[int, list[Any]]:
        """Return the canonical values of the key's columns, by their index."""
        found, nameless = {}, set(range(len(rows.places)) if self.envelope.key_of_rows else ())
        for index in self.decoder.key_indices:
            column = table.columns[index]
            values, refused = column.canonical(cells[index]) if index in cells else ([None] * len(rows.places), [])
            if self.envelope.key_of_rows:
                parts, bad = column.canonical([getattr(self.kafka_keys[place], f"c{index}") for place in rows.places])
                refused += bad
                # A key without any of its columns is decoded alone.
                nameless &= {row for row, part in enumerate(parts) if part is None}
                values = [part if value is None else value for value, part in zip(values, parts, strict=True)]
            if None in values:
                refused += [row for row, value in enumerate(values) if value is None]
            doubted.update(rows.places[row] for row in refused)
            found[index] = values
        doubted.update(rows.places[row] for row in nameless)
        if self.envelope.key_of_rows or not found:
            # A row without any of the declared columns is an error, although its key is known or not needed.
            only_key = self.envelope.key_of_rows
            doubted.update(rows.places[row] for row in _empty(cells, len(rows.places)) if not only_key or rows.kinds[row] is not _DELETE)
        return found

    def _tuples(self, columns: Sequence[list[Any]], key_metadata: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Return keys from their columns."""
        keys = list(zip(*columns, strict=True))
        if self.decoder.unify is not None:
            keys = list(map(self.decoder.unify, keys))
        return [key + part for key, part in zip(keys, key_metadata, strict=True)] if key_metadata else keys

    def _moved(
        self, table: _Table, rows: _Rows, keys: list[tuple[Any, ...]], key_metadata: list[tuple[Any, ...]], doubted: set[int]
    ) -> dict[int, tuple[Any, ...]]:
        """Return the key before each update that changed it."""
        updates = [row for row, kind in enumerate(rows.kinds) if kind is _UPDATE_AFTER and rows.befores[row] is not None] if keys else []
        changed: set[int] = set()
        for index in self.decoder.key_indices if updates else ():
            olds, news = ([table.getters[index](each[row]) for row in updates] for each in (rows.befores, rows.images))
            pairs = zip(updates, olds, news, strict=True)
            changed.update(row for row, old, new in pairs if old is not ABSENT and not (old == new and type(old) is type(new) in _EXACT))
        if not changed:
            return {}
        order, columns = sorted(changed), []
        for index in self.decoder.key_indices:
            get = table.getters[index]
            # A part of the key that is not in the row before did not change.
            olds = [get(rows.befores[row]) for row in order]
            values = [get(rows.images[row]) if old is ABSENT else old for row, old in zip(order, olds, strict=True)]
            canonical, refused = table.columns[index].canonical(values)
            refused += [at for at, value in enumerate(canonical) if value is None]
            doubted.update(rows.places[order[at]] for at in refused)
            columns.append(canonical)
        found = self._tuples(columns, [key_metadata[row] for row in order] if key_metadata else [])
        return {row: key for row, key in zip(order, found, strict=True) if key != keys[row]}

    def _befores(
        self, table: _Table, rows: _Rows, arrays: list[pa.Array], gone: list[bool], doubted: set[int]
    ) -> tuple[Ints, list[pa.Array]]:
        """Return the place of the row before each change (-1: none) among the rows and the rows before updates, and the latter."""
        before = np.full(len(rows.places), -1)
        if self.decoder.keyed:
            return before, []
        updates = [row for row, kind in enumerate(rows.kinds) if kind is _UPDATE_AFTER and rows.befores[row] is not None]
        before[gone] = np.flatnonzero(gone)
        before[updates] = len(before) + np.arange(len(updates))
        befores = []
        if not updates:
            return before, [array[:0] for array in arrays]
        cells = table.cells([rows.befores[row] for row in updates])
        if self.envelope.before_has != "changed columns":
            doubted.update(rows.places[updates[at]] for at in _empty(cells, len(updates)))
        for index, values in cells.items():
            array, refused = self._before_column(table.columns[index], index, values, arrays[index], updates)
            doubted.update(rows.places[updates[at]] for at in refused)
            befores.append(array)
        return before, befores

    def _before_column(
        self, column: MessageColumn, index: int, values: list[Any], after: pa.Array, updates: list[int]
    ) -> tuple[pa.Array, list[int]]:
        """Return a column of the rows before updates, and the indexes of those that have to be decoded alone."""
        if ABSENT not in values:
            return column.array(values)
        absent = [value is ABSENT for value in values]
        array, refused = column.array([None if value is ABSENT else value for value in values])
        if index in self.decoder.unique_indices or self.envelope.before_has == "changed columns":
            return pc.if_else(pa.array(absent), after.take(pa.array(updates, pa.int64())), array), refused
        return array, refused if self.decoder.missing_before_is_null else [*refused, *np.flatnonzero(absent)]

    def _metadata(self, rows: _Rows, doubted: set[int]) -> list[list[Any]]:
        """Return the metadata's columns, in the requested order."""
        if not self.source.metadata:
            return []
        columns = [self._each(reader, rows, doubted) for reader in self.decoder.metadata]
        columns += [[self.kafka[place][index] for place in rows.places] for index in range(len(self.source.kafka_metadata))]
        return [columns[index] for index in self.decoder.metadata_order]

    def _each(self, read: _Read, rows: _Rows, doubted: set[int]) -> list[Any]:
        """Return a value read from each row's message."""
        try:
            return list(map(read, rows.messages))
        except _REFUSALS:
            pass
        found = []
        for place, message in zip(rows.places, rows.messages, strict=True):
            try:
                found.append(read(message))
            except _REFUSALS:
                found.append(None)
                doubted.add(place)
        return found

    def _key_metadata(self, metadata: list[list[Any]], rows: _Rows, doubted: set[int]) -> list[tuple[Any, ...]]:
        if not self.decoder.key_places:
            return []
        found = list(zip(*(metadata[place] for place in self.decoder.key_places), strict=True))
        doubted.update(place for place, values in zip(rows.places, found, strict=True) if None in values)
        return found

    def _positions(self, rows: _Rows, doubted: set[int]) -> list[Position | None]:
        if not self.source.positions:
            return []
        return self._each(self.envelope.position or self.source.format.position, rows, doubted)


def _avro_reader(schema: AvroSchema, shape: Any, fewest: int) -> BatchReader:
    # Loads polars, which only Avro needs.
    from .avro_batches import avro_reader

    return avro_reader(schema, shape, fewest=fewest) or (lambda messages: ([], list(range(len(messages)))))


def _is_utf8(value: bytes | None) -> bool:
    try:
        str(value or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _taken(arrays: Sequence[pa.Array], places: Ints, missing: Bools | None = None) -> list[pa.Array]:
    """Return the values at places, null where they are missing."""
    if missing is not None and not missing.any():
        missing = None
    if missing is None and arrays and len(places) == len(arrays[0]) and np.array_equal(places, np.arange(len(places))):
        return list(arrays)
    chosen = pa.array(places, pa.int64(), mask=missing)
    return [array.take(chosen) for array in arrays]


def _empty(cells: dict[int, list[Any]], count: int) -> list[int]:
    """Return the rows without any value."""
    first = next(iter(cells.values()), [None] * count)
    missing = [row for row, value in enumerate(first) if value is None or value is ABSENT]
    return [row for row in missing if all(each[row] is None or each[row] is ABSENT for each in cells.values())]


def _joined(events: _Events) -> list[pa.Array]:
    """Return the columns of the rows, followed by those of the rows before updates."""
    return [pa.concat_arrays(both) for both in zip(events.arrays, events.befores, strict=True)]


def _is_single(kind: RowKind, images: list[Any] | None, befores: list[Any] | None) -> bool:
    """Whether a message's arrays have one row."""
    return images is not None and len(images) == 1 and (kind is not _UPDATE_AFTER or (befores is not None and len(befores) == 1))
