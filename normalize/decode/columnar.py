"""Decode many messages of a JSON format together, column by column, for the keyed stage.

The result is that of `base.Decoder.upserts` for each message. A format declares its messages as an `Envelope`. Messages in doubt are left
to that decoder, which returns their rows or their error: a null value, a message that is not JSON of the declared shape, one without
rows, an unavailable value, a value that its column's converter refuses, NULL where it is not allowed, and a change of the primary key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, compress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from cdc_formats.base import Ignored
from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.images import ABSENT
from cdc_formats.decoding.json_reader import batch_reader
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import ChangelogError, DecodeError
from cdc_formats.position import Position
from cdc_formats.row_kind import RowKind
from cdc_formats.values.equality import row_unifier
from normalize.core.arrow import to_stored
from normalize.core.changes import ChangeBatch
from normalize.core.fold_columns import Ints
from normalize.core.message_columns import MessageColumn
from normalize.core.packing import pack
from normalize.core.records import Records

if TYPE_CHECKING:
    from .decode_pass import Source

_BLOCKS_KEPT = 1000
_REFUSALS = (DecodeError, RecursionError)
_UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


class KeyedColumns(NamedTuple):
    """Changes as columns.

    Attributes
    ----------
    changes : ChangeBatch
    keys : list of bytes
        The packed key of each change.
    places : array of int
        The index of each change's record.
    """

    changes: ChangeBatch
    keys: list[bytes]
    places: Ints


class Decoded(NamedTuple):
    """The result for records of one Kafka partition.

    Attributes
    ----------
    parts : list of KeyedColumns
        Their changes are not in the order of the records.
    ignored : Counter
        The number of records that are only counted, by their `Ignored` value: null values, and tables that the format's filter excludes.
    odd : list of int
        The indexes of the records that are to be decoded one by one, in order.
    """

    parts: list[KeyedColumns]
    ignored: Counter[str]
    odd: list[int]


class _Reader(NamedTuple):
    """Reads metadata of a message."""

    read: Callable[[Any], Any]
    convert: Callable[[Any], Any] | None = None


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

    def __init__(self, envelope: Envelope, rows: RowConverter) -> None:
        image = envelope.image(rows)
        self.read = batch_reader(envelope.shape(rows, image), spelled=rows.spelled)
        indices = range(len(rows.columns)) if envelope.columns is None else envelope.columns
        self.getters = {index: attrgetter(f"c{index}") for index in indices}
        required = [field for field in msgspec.structs.fields(image) if field.required]
        self.nothing = msgspec.convert({field.encode_name: None for field in required}, image)
        self.columns = [MessageColumn(*each) for each in zip(rows.columns, rows.handlings, rows.converters, strict=True)]

    def cells(self, images: Sequence[Any]) -> dict[int, list[Any]]:
        """Return the values of images by the index of their column."""
        return {index: list(map(get, images)) for index, get in self.getters.items()}


class ColumnarDecoder:
    """Decodes the records of one task.

    Parameters
    ----------
    source : Source
    envelope : Envelope
    rows : RowConverter

    Attributes
    ----------
    tables : dict
        As of `base.Decoder`.
    """

    def __init__(self, source: Source, envelope: Envelope, rows: RowConverter) -> None:
        self.source, self.envelope, self.shape = source, envelope, source.shape
        self.table, self.tables_by_block = _Table(envelope, rows), dict[bytes, _Table | None]()
        self.key_indices, self.required = rows.key_indices, rows.required
        self.types = [column.type for column in rows.columns]
        self.unify = row_unifier([rows.columns[index] for index in rows.key_indices])
        self.key_of = attrgetter(*(f"c{index}" for index in rows.key_indices))
        self.no_key = ABSENT if len(rows.key_indices) == 1 else (ABSENT,) * len(rows.key_indices)
        self.operation = attrgetter(*envelope.operation) if envelope.operation else lambda message: ()
        self.read_fields = batch_reader(envelope.fields)
        self.read_key = None if envelope.key is None else batch_reader(envelope.key, spelled=rows.spelled)
        format = source.format
        self.metadata = [self._reader(name) for name in source.format_metadata]
        names = source.format_metadata + source.kafka_metadata
        self.metadata_order = [names.index(name) for name in source.metadata.values()]
        self.key_places = [list(source.metadata).index(name) for name in source.key_metadata]
        self.identity = self._table_reader(source.identity.columns)
        filters = envelope.tables is not None and envelope.tables.set
        self.filtered = self._table_reader([name for name, option in format.table_identity.items() if option and filters])
        self.tables: dict[tuple[Any, ...], None] = {}

    def _table_reader(self, names: Sequence[str]) -> _Reader | None:
        """Return the reader of columns of `Format.table_identity`, as a tuple."""
        fields = [self.envelope.attributes[name][0] for name in names if name in self.envelope.attributes]
        if not names:
            return None
        if len(fields) < len(names):
            return _Reader(self.source.format.table_reader(names))
        read = attrgetter(*fields)
        return _Reader(read if len(fields) > 1 else lambda message: (read(message),))

    def _reader(self, name: str) -> _Reader:
        field, convert = self.envelope.attributes.get(name, ("", None))
        return _Reader(attrgetter(field), convert) if field else _Reader(self.source.format.metadata[name].read)

    @classmethod
    def of(cls, source: Source) -> ColumnarDecoder | None:
        """Return the decoder of a plan; None if all its messages have to be decoded one by one."""
        format = source.format
        # A subclass of another package may read messages differently than the envelope that it inherits.
        ours = type(format).__module__.startswith("cdc_formats.")
        if source.compact or format.validate or format.unknown_columns == "fail" or not ours:
            return None
        rows = RowConverter(source.columns, format.handling, source.unique_key)
        envelope = format.envelope(rows, source.format_metadata, positions=source.positions)
        return None if envelope is None or not envelope.can_hold(rows) else cls(source, envelope, rows)

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
        """Return the table of a schema block; None if the block's messages have to be decoded one by one."""
        if block not in self.tables_by_block:
            if len(self.tables_by_block) >= _BLOCKS_KEPT:
                self.tables_by_block.clear()
            try:
                rows = self.envelope.by_block(block) if self.envelope.by_block is not None else None
            except ChangelogError:
                rows = None
            self.tables_by_block[block] = None if rows is None else _Table(self.envelope, rows)
        return self.tables_by_block[block]


class _Decoding:
    """The decoding of some records."""

    def __init__(self, decoder: ColumnarDecoder, records: Records, kafka: Sequence[tuple[Any, ...]]) -> None:
        self.decoder, self.records, self.kafka = decoder, records, kafka
        self.envelope, self.source = decoder.envelope, decoder.source
        self.odd: set[int] = set()
        self.ignored = Counter[str]()
        self.parts: list[KeyedColumns] = []
        self.kafka_keys = dict[int, Any]()

    def result(self) -> Decoded:
        values = self.records.values
        present = list(range(len(values))) if all(values) else self._present()
        messages, unread = self.decoder.table.read(values if len(present) == len(values) else [values[place] for place in present])
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
        rows = self._rows(messages, places)
        if self.decoder.read_key is not None:
            rows = self._with_keys(rows, self.decoder.read_key)
        self._take(self.decoder.table, rows)
        return Decoded(self.parts, self.ignored, sorted(self.odd))

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

    def _without_blocks(self, messages: list[Any], places: list[int]) -> tuple[list[Any], list[int]]:
        """Decode the messages in a schema block, and return the others."""
        schema, payload = map(attrgetter, self.envelope.block)
        if not any(map(payload, messages)):
            return messages, places
        by_block: dict[bytes, list[tuple[int, bytes]]] = {}
        bare = []
        for place, message in zip(places, messages, strict=True):
            wrapped = payload(message) and schema(message) and self.envelope.kinds.get(self.decoder.operation(message)) is None
            bare.append(not wrapped)
            if wrapped:
                by_block.setdefault(bytes(schema(message)), []).append((place, bytes(payload(message))))
        for block, texts in by_block.items():
            self._take_block(block, texts)
        return list(compress(messages, bare)), list(compress(places, bare))

    def _take_block(self, block: bytes, texts: list[tuple[int, bytes]]) -> None:
        table = self.decoder.compiled(block)
        if table is None:
            self.odd.update(place for place, _ in texts)
            return
        messages, failed = table.read([text for _, text in texts])
        refused = {texts[index][0] for index in failed}
        self.odd |= refused
        for message in messages:
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
        if envelope.rows != "one":
            rows = self._exploded(rows)
        if envelope.before and envelope.deleted == envelope.before:
            chosen = zip(rows.kinds, rows.images, rows.befores, strict=True)
            rows = rows._replace(images=[before if kind is _DELETE else image for kind, image, before in chosen])
        doubted = {place for place, image in zip(rows.places, rows.images, strict=True) if image is None}
        if envelope.before:
            doubted |= self._moved(rows)
        if doubted:
            self.odd |= doubted
            rows = rows.without(doubted)
        if _UPDATE_BEFORE in rows.kinds:
            rows = rows.where([kind is not _UPDATE_BEFORE for kind in rows.kinds])
        return rows

    def _moved(self, rows: _Rows) -> set[int]:
        """Return the records with an update whose key may have changed, or that lacks a row before it that it needs."""
        key_of, no_key, needed = self.decoder.key_of, self.decoder.no_key, self.envelope.needs_before
        return {
            place
            for place, kind, image, before in zip(rows.places, rows.kinds, rows.images, rows.befores, strict=True)
            if kind is _UPDATE_AFTER
            and image is not None
            and (needed if before is None else (key := key_of(before)) != key_of(image) and key != no_key)
        }

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
        deleted = [kind is _DELETE for kind in rows.kinds]
        gone = sum(deleted)
        cells = table.cells(
            [table.nothing if out else image for out, image in zip(deleted, rows.images, strict=True)] if gone else rows.images
        )
        keys = self._keys(table, rows, cells, deleted if gone else None, doubted)
        arrays = []
        for index, sql_type in enumerate(self.decoder.types):
            if index in keys:
                values = [None if out else value for out, value in zip(deleted, keys[index], strict=True)] if gone else keys[index]
                array = to_stored(sql_type, values)
            else:
                array, refused = table.columns[index].array(cells[index])
                doubted.update(rows.places[row] for row in refused)
            if index in self.decoder.required and array.null_count > gone:
                doubted.update(
                    row for row, there, out in zip(rows.places, array.is_valid().to_pylist(), deleted, strict=True) if not there and not out
                )
            arrays.append(array)
        metadata = self._metadata(rows, doubted)
        tuples = list(zip(*keys.values(), strict=True))
        if self.decoder.unify is not None:
            tuples = list(map(self.decoder.unify, tuples))
        if self.decoder.key_places:
            tuples = [key + part for key, part in zip(tuples, self._key_metadata(metadata, rows, doubted), strict=True)]
        positions = self._positions(rows, doubted)
        stored = [to_stored(column.type, values) for column, values in zip(self.decoder.shape.metadata, metadata, strict=True)]
        self._add(rows, deleted, tuples, [*arrays, *stored], positions, doubted)

    def _add(
        self, rows: _Rows, deleted: list[bool], keys: list[tuple[Any, ...]], arrays: list[pa.Array], positions: list[Any], doubted: set[int]
    ) -> None:
        records, shape = self.records, self.decoder.shape
        tables = [] if self.decoder.identity is None else self._each(self.decoder.identity, rows, doubted)
        self.odd |= doubted
        if doubted:
            tables = list(compress(tables, [place not in doubted for place in rows.places]))
        self.decoder.tables.update(dict.fromkeys(tables))
        dropped = self.source.ignore_deletes and any(deleted)
        if doubted or dropped:
            kept = [place not in doubted and not (dropped and out) for place, out in zip(rows.places, deleted, strict=True)]
            arrays = [array.filter(pa.array(kept, pa.bool_())) for array in arrays]
            keys, deleted, positions = (list(compress(each, kept)) for each in (keys, deleted, positions))
            rows = rows.where(kept)
        if not rows.places:
            return
        places = np.array(rows.places)
        packed = list(map(pack, keys))
        columns = [pa.array(packed, pa.binary()), pa.array(records.stamps[places]), pa.array(deleted, pa.bool_()), *arrays]
        if shape.offsets:
            columns.append(pa.array(records.offsets[places]))
        batch = pa.RecordBatch.from_arrays(columns, schema=shape.schema)
        self.parts.append(KeyedColumns(ChangeBatch(batch, [], [(records.source, position) for position in positions]), packed, places))

    def _keys(
        self, table: _Table, rows: _Rows, cells: dict[int, list[Any]], deleted: list[bool] | None, doubted: set[int]
    ) -> dict[int, list[Any]]:
        """Return the canonical values of the key's columns, by their index."""
        found = {}
        for index in self.decoder.key_indices:
            column = table.columns[index]
            values, refused = column.canonical(cells[index]) if index in cells else ([None] * len(rows.places), [])
            name = f"c{index}"
            if self.envelope.key_of_rows:
                parts, bad = column.canonical([getattr(self.kafka_keys[place], name) for place in rows.places])
                refused += bad
                values = [part if value is None else value for value, part in zip(values, parts, strict=True)]
            elif deleted is not None:
                places = [row for row, out in enumerate(deleted) if out]
                parts, bad = column.canonical([getattr(rows.images[row], name) for row in places])
                refused += [places[row] for row in bad]
                for row, part in zip(places, parts, strict=True):
                    values[row] = part
            if None in values:
                refused += [row for row, value in enumerate(values) if value is None]
            doubted.update(rows.places[row] for row in refused)
            found[index] = values
        if self.envelope.key_of_rows:
            # A row without any of the declared columns is an error, although its key is known.
            first = next(iter(cells.values()), [None] * len(rows.places))
            missing = [row for row, value in enumerate(first) if value is None and rows.kinds[row] is not _DELETE]
            doubted.update(rows.places[row] for row in missing if all(each[row] is None for each in cells.values()))
        return found

    def _metadata(self, rows: _Rows, doubted: set[int]) -> list[list[Any]]:
        """Return the metadata's columns, in the requested order."""
        if not self.source.metadata:
            return []
        columns = [self._each(reader, rows, doubted) for reader in self.decoder.metadata]
        columns += [[self.kafka[place][index] for place in rows.places] for index in range(len(self.source.kafka_metadata))]
        return [columns[index] for index in self.decoder.metadata_order]

    def _each(self, reader: _Reader, rows: _Rows, doubted: set[int]) -> list[Any]:
        """Return a value read from each row's message."""
        if reader.convert is None:
            return self._converted(reader.read, rows.messages, rows, doubted)
        return self._converted(reader.convert, list(map(reader.read, rows.messages)), rows, doubted)

    def _converted(self, convert: Callable[[Any], Any], values: list[Any], rows: _Rows, doubted: set[int]) -> list[Any]:
        try:
            return list(map(convert, values))
        except _REFUSALS:
            pass
        found = []
        for place, value in zip(rows.places, values, strict=True):
            try:
                found.append(convert(value))
            except _REFUSALS:
                found.append(None)
                doubted.add(place)
        return found

    def _key_metadata(self, metadata: list[list[Any]], rows: _Rows, doubted: set[int]) -> list[tuple[Any, ...]]:
        found = list(zip(*(metadata[place] for place in self.decoder.key_places), strict=True))
        doubted.update(place for place, values in zip(rows.places, found, strict=True) if None in values)
        return found

    def _positions(self, rows: _Rows, doubted: set[int]) -> list[Position | None]:
        if not self.source.positions:
            return []
        return self._converted(self.envelope.position or self.source.format.position, rows.messages, rows, doubted)


def _is_single(kind: RowKind, images: list[Any] | None, befores: list[Any] | None) -> bool:
    """Whether a message's arrays have one row."""
    return images is not None and len(images) == 1 and (kind is not _UPDATE_AFTER or (befores is not None and len(befores) == 1))
