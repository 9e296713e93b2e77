"""Convert rows to columns: the third of the four steps that decode many records together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.events import RowKind
from cdc_formats.values.equality import row_unifier
from cdc_formats.values.schema import ABSENT, Column
from normalize.core.arrow import to_stored
from normalize.core.fold_columns import Bools, Ints
from normalize.decode.canonical import uncanonical_finder
from normalize.decode.plan import DecodePlan

from .messages import Encoding, Read, names_reader, read_each
from .rows import Needs, Rows

_UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE
_EXACT = (str, int, type(None))
"""The types of key values that are equal if, and only if, the values of their column are equal."""
_Cells = dict[int, list[Any]]
"""Values of rows by the index of their column."""
_Refused = Iterable[int]
"""The indexes of rows that have to be decoded alone."""


class ConvertedRows(NamedTuple):
    """Rows of messages as columns.

    Attributes
    ----------
    rows : Rows
    removed : array of bool
        Whether each is a row before its change: of a delete, or a separate ``-U``.
    keys : list of tuple
        The key after each change; empty without a key.
    moved : dict of int to tuple
        The key before an update that changed it, by the update's index.
    arrays : list of pyarrow.Array
        The columns of the rows. Of a deleted row only the key is needed, and other columns are
        null, unless rows before are needed.
    before : array of int
        The place of the row before each change in `arrays` and `befores` together; -1 if there is
        none or none is needed.
    befores : list of pyarrow.Array
        The columns of the rows before updates.
    metadata : list of pyarrow.Array
    positions : list of (Position or None)
        Empty unless requested.
    tables : list of tuple
        The names of each row's table; empty if tables are not compared.
    """

    rows: Rows
    removed: Bools
    keys: list[tuple[Any, ...]]
    moved: dict[int, tuple[Any, ...]]
    arrays: list[pa.Array]
    before: Ints
    befores: list[pa.Array]
    metadata: list[pa.Array]
    positions: list[Any]
    tables: list[tuple[Any, ...]]


class ColumnConverter:
    """Converts rows to columns.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    rows : RowConverter
    needs : Needs
    """

    def __init__(
        self, plan: DecodePlan, envelope: Envelope, rows: RowConverter, needs: Needs
    ) -> None:
        self.envelope, self.needs = envelope, needs
        self.key_indices = rows.key_indices if needs.key else ()
        self.unique_indices = rows.key_indices
        self.required = rows.required
        self.types = [column.type for column in rows.results]
        self.unify = row_unifier([rows.results[index] for index in self.key_indices])
        self.missing_before_is_null = (
            envelope.images.missing_is_null and envelope.images.before_has == "all columns"
        )
        self.metadata = MetadataReader(plan, envelope)
        self.key_places = [list(plan.metadata).index(name) for name in plan.key_metadata]
        self.table = names_reader(plan.format, envelope, plan.identity.columns)

    def convert(
        self, encoding: Encoding, rows: Rows, kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[ConvertedRows, set[int]]:
        """Return rows as columns, and the records that have to be decoded alone.

        Parameters
        ----------
        encoding : Encoding
        rows : Rows
        kafka : sequence of tuple
            The metadata of each Kafka record.
        """
        removed = [kind is _DELETE or kind is _UPDATE_BEFORE for kind in rows.kinds]
        cells, lacking = self._cells(encoding, rows, removed)
        of_key, keyless = self._keys(encoding, rows, cells)
        arrays, unconverted = self._arrays(encoding, cells, of_key, removed)
        metadata, without_metadata = self.metadata.columns(
            rows.messages, [kafka[place] for place in rows.places] if kafka else kafka
        )
        key_metadata = list(zip(*(metadata[place] for place in self.key_places), strict=True))
        incomplete = [row for row, values in enumerate(key_metadata) if None in values]
        keys = self._tuples(list(of_key.values()), key_metadata)
        updates = [
            row
            for row, kind in enumerate(rows.kinds)
            if kind is _UPDATE_AFTER and rows.befores[row] is not None
        ]
        moved, without_old_key = self._moved(encoding, rows, updates, keys, key_metadata)
        before = self._before(rows, removed, updates)
        befores, without_before = self._befores(encoding, rows, updates, arrays)
        positions, misplaced = self.metadata.positions(rows.messages)
        tables, without_table = (
            ([], []) if self.table is None else read_each(self.table, rows.messages)
        )
        stored = self.metadata.stored(metadata)
        converted = ConvertedRows(
            rows,
            np.array(removed, bool),
            keys,
            moved,
            arrays,
            before,
            befores,
            stored,
            positions,
            tables,
        )
        of_values = chain(lacking, keyless, unconverted, without_old_key, without_before)
        of_metadata = chain(without_metadata, incomplete, misplaced, without_table)
        return converted, {rows.places[row] for row in chain(of_values, of_metadata)}

    def _cells(
        self, encoding: Encoding, rows: Rows, removed: list[bool]
    ) -> tuple[_Cells, _Refused]:
        """Return the values of the rows by the index of their column."""
        if self.needs.keyed:
            # Of a deleted row only the key is read.
            cells = encoding.cells(
                [
                    encoding.nothing if out else image
                    for out, image in zip(removed, rows.images, strict=True)
                ]
            )
            for index in cells.keys() & self.key_indices:
                cells[index] = list(map(encoding.getters[index], rows.images))
            return cells, []
        cells, lacking = encoding.cells(rows.images), list[int]()
        for index, values in cells.items():
            if ABSENT in values:
                if not self.missing_before_is_null:
                    lacking += [
                        row
                        for row, (value, out) in enumerate(zip(values, removed, strict=True))
                        if out and value is ABSENT
                    ]
                cells[index] = _absent_as_null(values)
        return cells, lacking

    def _keys(self, encoding: Encoding, rows: Rows, cells: _Cells) -> tuple[_Cells, _Refused]:
        """Return the canonical values of the key's columns, by their index."""
        keys, refused, of_rows = _Cells(), list[int](), self.envelope.keys.of_rows
        nameless = set(range(len(rows.keys)))
        for index in self.key_indices:
            column = encoding.columns[index]
            values, unconverted = (
                column.canonical(cells[index])
                if index in cells
                else ([None] * len(rows.places), [])
            )
            if of_rows:
                parts, unread = column.canonical(list(map(attrgetter(f"c{index}"), rows.keys)))
                nameless &= set(_null_rows(parts))
                values, different = self._with_parts(encoding, index, rows, values, parts)
                unconverted = [*unconverted, *unread, *different]
            refused += [*unconverted, *_null_rows(values)]
            keys[index] = values
        # A key without any of its columns is decoded alone.
        refused += nameless
        if of_rows or not keys:
            # A row without any of the declared columns is an error, although its key is known or
            # not needed.
            empty = _empty(cells, len(rows.places))
            refused += [row for row in empty if not of_rows or rows.kinds[row] is not _DELETE]
        return keys, refused

    def _with_parts(
        self, encoding: Encoding, index: int, rows: Rows, values: list[Any], parts: list[Any]
    ) -> tuple[list[Any], _Refused]:
        """Return a key's column with the Kafka keys' values for missing ones, and rows that differ.

        `values` are those of the rows, and `parts` those of the Kafka keys.
        """
        is_compared = self.envelope.keys.is_compared
        if None in values:
            # In a format that compares the two, a NULL in the row is not the key's value. In others,
            # the row may not have the column at all.
            get = encoding.getters[index] if is_compared else None
            values = [
                part if value is None and not (get and get(image) is None) else value
                for value, part, image in zip(values, parts, rows.images, strict=True)
            ]
        if not is_compared or values == parts:
            return values, []
        pairs = enumerate(zip(values, parts, strict=True))
        return values, [row for row, (own, part) in pairs if own != part]

    def _arrays(
        self, encoding: Encoding, cells: _Cells, keys: _Cells, removed: list[bool]
    ) -> tuple[list[pa.Array], _Refused]:
        """Return the columns of the rows."""
        arrays, refused = [], list[int]()
        nulls = sum(removed) if self.needs.keyed else 0
        for index, sql_type in enumerate(self.types):
            if index in keys:
                values = (
                    [
                        None if out else value
                        for out, value in zip(removed, keys[index], strict=True)
                    ]
                    if nulls
                    else keys[index]
                )
                array = to_stored(sql_type, values)
            else:
                array, unconverted = encoding.columns[index].array(cells[index])
                refused += unconverted
            if index in self.required and array.null_count > nulls:
                valid = array.is_valid().to_pylist()
                refused += [
                    row
                    for row, (there, out) in enumerate(zip(valid, removed, strict=True))
                    if not there and not out
                ]
            arrays.append(array)
        return arrays, refused

    def _tuples(
        self, columns: Sequence[list[Any]], key_metadata: Sequence[tuple[Any, ...]]
    ) -> list[tuple[Any, ...]]:
        """Return keys from their columns."""
        keys = list(zip(*columns, strict=True))
        if self.unify is not None:
            keys = list(map(self.unify, keys))
        return (
            [key + part for key, part in zip(keys, key_metadata, strict=True)]
            if key_metadata
            else keys
        )

    def _moved(
        self,
        encoding: Encoding,
        rows: Rows,
        updates: list[int],
        keys: list[tuple[Any, ...]],
        key_metadata: list[tuple[Any, ...]],
    ) -> tuple[dict[int, tuple[Any, ...]], _Refused]:
        """Return the key before each update that changed it."""
        changed = self._with_other_key(encoding, rows, updates) if keys else []
        if not changed:
            return {}, []
        columns, refused = list[list[Any]](), list[int]()
        for index in self.key_indices:
            get = encoding.getters[index]
            # A part of the key that is not in the row before did not change.
            olds = [get(rows.befores[row]) for row in changed]
            values = [
                get(rows.images[row]) if old is ABSENT else old
                for row, old in zip(changed, olds, strict=True)
            ]
            canonical, unconverted = encoding.columns[index].canonical(values)
            refused += [changed[at] for at in (*unconverted, *_null_rows(canonical))]
            columns.append(canonical)
        old_keys = self._tuples(
            columns, [key_metadata[row] for row in changed] if key_metadata else []
        )
        return {
            row: key for row, key in zip(changed, old_keys, strict=True) if key != keys[row]
        }, refused

    def _with_other_key(self, encoding: Encoding, rows: Rows, updates: list[int]) -> list[int]:
        """Return the updates whose row before may have another key."""
        if not updates:
            return []
        olds, news = ([images[row] for row in updates] for images in (rows.befores, rows.images))
        changed: set[int] = set()
        for index in self.key_indices:
            get = encoding.getters[index]
            pairs = zip(updates, map(get, olds), map(get, news), strict=True)
            changed.update(
                row
                for row, old, new in pairs
                if old is not ABSENT and not (old == new and type(old) is type(new) in _EXACT)
            )
        return sorted(changed)

    def _before(self, rows: Rows, removed: list[bool], updates: list[int]) -> Ints:
        """Return the place of the row before each change; -1 if there is none.

        The places are those of the rows, followed by the rows before updates.
        """
        before = np.full(len(rows.places), -1)
        if not self.needs.keyed:
            before[removed] = np.flatnonzero(removed)
            before[updates] = len(before) + np.arange(len(updates))
        return before

    def _befores(
        self, encoding: Encoding, rows: Rows, updates: list[int], arrays: list[pa.Array]
    ) -> tuple[list[pa.Array], _Refused]:
        """Return the columns of the rows before updates."""
        if self.needs.keyed:
            return [], []
        if not updates:
            return [array[:0] for array in arrays], []
        cells = encoding.cells([rows.befores[row] for row in updates])
        refused = (
            list[int]()
            if self.envelope.images.before_has == "changed columns" and not self.envelope.adjust
            else _empty(cells, len(updates))
        )
        befores = []
        for index, values in cells.items():
            if ABSENT in values:
                array, unconverted = self._partial_before(
                    encoding, index, values, arrays[index], updates
                )
            else:
                array, unconverted = encoding.columns[index].array(values)
            refused += unconverted
            befores.append(array)
        return befores, [updates[at] for at in refused]

    def _partial_before(
        self, encoding: Encoding, index: int, values: list[Any], after: pa.Array, updates: list[int]
    ) -> tuple[pa.Array, list[int]]:
        """Return a column of the rows before updates, some of which lack it.

        `after` is the column of all rows after their changes.
        """
        array, refused = encoding.columns[index].array(_absent_as_null(values))
        absent = np.array([value is ABSENT for value in values], bool)
        before_has, is_key = self.envelope.images.before_has, index in self.unique_indices
        # A before-image with all columns has the key: what lacks it is not whole.
        if before_has == "changed columns" or (is_key and before_has != "all columns"):
            return pc.if_else(
                pa.array(absent), after.take(pa.array(updates, pa.int64())), array
            ), refused
        may_be_null = self.missing_before_is_null and not is_key
        return array, refused if may_be_null else [*refused, *np.flatnonzero(absent)]


class MetadataReader:
    """Reads the metadata and the positions of messages.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    """

    def __init__(self, plan: DecodePlan, envelope: Envelope) -> None:
        self.readers = [
            (
                _reader(plan, envelope, name),
                uncanonical_finder(Column(name, plan.format.metadata[name].sql_type)),
            )
            for name in plan.format_metadata
        ]
        names = plan.format_metadata + plan.kafka_metadata
        self.kafka = range(len(plan.kafka_metadata))
        self.order = [names.index(name) for name in plan.metadata.values()]
        self.types = [column.type for column in plan.shape.metadata]
        self.position = (
            (envelope.position or plan.format.traits.position) if plan.positions else None
        )

    def columns(
        self, messages: Sequence[Any], kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[list[list[Any]], _Refused]:
        """Return the metadata's columns in the requested order, and the messages in doubt.

        Parameters
        ----------
        messages : sequence
            Empty if no metadata is the format's.
        kafka : sequence of tuple
            Of the record of each message; empty if none is requested.
        """
        columns, refused = list[list[Any]](), list[int]()
        for read, find_uncanonical in self.readers:
            values, unread = read_each(read, messages)
            for row in (wrong := find_uncanonical(values)):
                values[row] = None
            columns.append(values)
            refused += [*unread, *wrong]
        columns += [[values[index] for values in kafka] for index in self.kafka]
        return [columns[index] for index in self.order], refused

    def stored(self, columns: Sequence[list[Any]]) -> list[pa.Array]:
        """Return the metadata's columns as they are stored."""
        return [to_stored(of, values) for of, values in zip(self.types, columns, strict=True)]

    def positions(self, messages: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """Return the messages' positions, empty unless requested, and the messages in doubt."""
        return ([], []) if self.position is None else read_each(self.position, messages)


def _reader(plan: DecodePlan, envelope: Envelope, name: str) -> Read:
    """Return the reader of a metadata column of the format."""
    field, convert = envelope.attributes.get(name, ("", None))
    read = attrgetter(field) if field else plan.format.metadata[name].read
    return read if convert is None else lambda message: convert(read(message))


def _absent_as_null(values: Sequence[Any]) -> list[Any]:
    return [None if value is ABSENT else value for value in values]


def _null_rows(values: Sequence[Any]) -> list[int]:
    return [row for row, value in enumerate(values) if value is None] if None in values else []


def _empty(cells: _Cells, count: int) -> list[int]:
    """Return the rows without any value."""
    first = next(iter(cells.values()), [None] * count)
    missing = [row for row, value in enumerate(first) if value is None or value is ABSENT]
    return [
        row
        for row in missing
        if all(each[row] is None or each[row] is ABSENT for each in cells.values())
    ]
