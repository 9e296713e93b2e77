"""The native decoder: many messages together, at once from their bytes to columns.

Its library is a part of this package that may be missing (the folder ``native``). It is compiled
from the same envelope as `ColumnarDecoder`, which uses it if it knows all that the plan needs. Of
each message it returns exactly the change that `decoder.Decoder.upserts` returns, or says that the
message is in doubt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from importlib import import_module
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from warnings import warn

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import DecodeError
from cdc_formats.events import RowKind
from cdc_formats.values.json_reader import batch_reader, fields_of
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import Handling, SqlType
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import TIMESTAMP_TYPES, epoch_unit
from cdc_formats.values.types import placeholder_forms
from normalize.core.arrow import stored_type
from normalize.core.changes import ChangeBatch, ChangeColumns
from normalize.core.fold_columns import Bools, Ints
from normalize.core.message_columns import MessageColumn
from normalize.core.records import Records, Values
from normalize.decode.plan import DecodePlan

from .columns import MetadataReader
from .messages import BLOCKS_KEPT

MODULE, INTERFACE = "normalize._native", 3
"""The module, and the number of its interface that this package knows."""
SWITCH = "CDC_NATIVE"
"""The environment variable: with ``0``, Python decodes."""
IN_DOUBT = 2
"""In place of a message's number of rows."""
_Path = tuple[str, ...]


@cache
def native_module() -> Any:
    """Return the module; None without one, or with one of another platform or interface."""
    try:
        module = import_module(MODULE)
        if module.INTERFACE == INTERFACE:
            return module
        problem = f"it has the interface {module.INTERFACE}, and {INTERFACE} is needed"
    except ModuleNotFoundError:
        return None
    except ImportError as error:
        problem = str(error)
    # Not an error: all messages are decoded without it, only slower.
    text = "%s is not used: %s. Install this package again on this platform"
    warn(text % (MODULE, problem), stacklevel=2)
    return None


def is_switched_off() -> bool:
    """Return whether the environment variable leaves messages to Python."""
    return os.environ.get(SWITCH) == "0"


class NativeDecoder:
    """Decodes the messages of a keyed plan.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    rows : RowConverter
    fewest : int
        Fewer messages in one schema block are in doubt.
    block : bytes or None
        The schema block of all messages, which are without it; None for bare messages.

    Raises
    ------
    ValueError
        When a field, a column or the key is of a kind that the native decoder does not know.
    """

    def __init__(
        self,
        plan: DecodePlan,
        envelope: Envelope,
        rows: RowConverter,
        fewest: int,
        block: bytes | None = None,
    ) -> None:
        columns = list(zip(rows.results, rows.handlings, rows.converters, rows.direct, strict=True))
        kinds = [
            _KINDS[column.type.name](column.type, how)
            if direct and how.json != "extended" and column.type.name in _KINDS
            else ("raw",)
            for column, how, _, direct in columns
        ]
        mark, required = (
            envelope.images.missing_mark,
            [i in rows.required for i in range(len(kinds))],
        )
        # The fields of metadata and positions are read again: the native decoder keeps no field.
        reads_fields = bool(plan.format_metadata or plan.positions)
        attributes = [envelope.attributes[name][0] for name in plan.identity.columns]
        same = {envelope.path(name): number for number, name in enumerate(attributes)}
        self.decoder = native_module().Decoder(
            fields=_fields(
                envelope.strict_fields,
                _special(envelope),
                same,
                others="any" if reads_fields else "unknown",
            ),
            columns=list(zip(rows.names, kinds, required, strict=True)),
            null_names=[name + mark for name in rows.names] if mark else [],
            keys=list(rows.key_indices),
            deleted_is_before=envelope.deleted == envelope.before,
            missing_is_null=envelope.images.missing_is_null,
            needs_before=envelope.columnar.needs_before,
            ignores_deletes=plan.ignore_deletes,
        )
        self.shape = plan.shape
        self.metadata = MetadataReader(plan, envelope)
        self.read_fields = batch_reader(envelope.strict_fields) if reads_fields else None
        self.no_fields = envelope.strict_fields
        self.block, self.block_fields = block, envelope.framing.block
        self.of_block = (
            lru_cache(BLOCKS_KEPT)(partial(_of_block, plan, envelope, fewest))
            if self.block_fields and block is None
            else None
        )
        # Others are refused where all messages have to be in blocks.
        self.reads_bare = envelope.framing.bare
        self.fewest = fewest
        self.raw = {
            at: MessageColumn(*columns[at]) for at, kind in enumerate(kinds) if kind == ("raw",)
        }
        self.types = [
            pa.binary() if at in self.raw else stored_type(column.type)
            for at, (column, *_) in enumerate(columns)
        ]
        self.read = batch_reader(Any, spelled=rows.spelled)

    @classmethod
    def of(
        cls, plan: DecodePlan, envelope: Envelope, rows: RowConverter, *, keyed: bool, fewest: int
    ) -> NativeDecoder | None:
        """Return the decoder of a plan; None without the module, or if it cannot have one."""
        is_used = plan.native and not is_switched_off() and native_module() is not None
        if not (keyed and is_used and _is_known(plan, envelope)):
            return None
        try:
            return cls(plan, envelope, rows, fewest)
        except ValueError:
            return None

    def decode(
        self, records: Records, kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[list[ChangeColumns], Ints, dict[tuple[Any, ...], int]]:
        """Decode records; the parameters are those of `ColumnarDecoder.decode`.

        Returns
        -------
        (parts, doubtful, tables) : (list of ChangeColumns, array of int, dict)
            The changes of the records that are not in doubt, the indexes of those in doubt, and the
            tables of all others (`Identity.columns`), each with the index of its first record.
        """
        parts, doubtful = list[ChangeColumns](), np.arange(len(records.values))
        tables = dict[tuple[Any, ...], int]()
        if self.reads_bare:
            changes, doubtful, tables = self._decode(records, kafka)
            parts.append(changes)
        for decoder, indexes, payloads in self._in_blocks(records, doubtful):
            of_block, left, more = decoder._decode(
                payloads, [kafka[index] for index in indexes] if kafka else kafka
            )
            parts.append(of_block._replace(places=indexes[of_block.places]))
            doubtful = np.setdiff1d(doubtful, np.delete(indexes, left))
            for table, index in more.items():
                first = int(indexes[index])
                tables[table] = min(first, tables.get(table, first))
        return parts, doubtful, tables

    def _in_blocks(
        self, records: Records, doubtful: Ints
    ) -> Iterator[tuple[NativeDecoder, Ints, Records]]:
        """Yield the messages in each schema block without it, their decoder and their indexes."""
        if self.of_block is None or not len(doubtful):
            return
        texts = binary_of(records.values).take(pa.array(doubtful))
        begin, end = f'{{"{self.block_fields[0]}":'.encode(), b"}"
        wrapped = pc.and_(pc.starts_with(texts, begin), pc.ends_with(texts, end))
        texts, indexes = texts.filter(wrapped), doubtful[_mask(wrapped)]
        while len(texts) >= self.fewest:
            prefix, block = _prefix_of(texts[0].as_py(), self.block_fields)
            decoder, inside = (
                self.of_block(block) if prefix else None,
                pc.starts_with(texts, prefix),
            )
            chosen = indexes[_mask(inside)]
            if decoder is None or len(chosen) < self.fewest:
                return
            payloads = pc.binary_slice(texts.filter(inside), len(prefix), -len(end))
            yield decoder, chosen, records.only(chosen.tolist())._replace(values=Values(payloads))
            texts, indexes = texts.filter(pc.invert(inside)), indexes[~_mask(inside)]

    def _decode(
        self, records: Records, kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[ChangeColumns, Ints, dict[tuple[Any, ...], int]]:
        """Decode messages that are all in the same block, or in none."""
        values = records.values
        made = self.decoder.decode(binary_of(values))
        places, doubtful = (
            np.frombuffer(made[name], np.int32).astype(np.int64) for name in ("places", "doubtful")
        )
        hashes, count = np.frombuffer(made["hashes"], np.uint32).astype(np.int64), len(places)
        rows = [
            _array(of, count, *parts) for of, parts in zip(self.types, made["columns"], strict=True)
        ]
        metadata, positions, doubted = self._fields(
            records, places, [kafka[at] for at in places] if kafka else kafka
        )
        refused = sorted(self._convert_raw(rows) | doubted)
        silent = self._silent(records, places, doubtful)
        doubtful = np.union1d(doubtful, silent) if len(silent) else doubtful
        arrays = [
            _array(pa.binary(), count, 0, None, made["key_offsets"], made["keys"]),
            pa.array(records.stamps[places]),
            _array(pa.bool_(), count, 0, None, None, made["deleted"]),
            *rows,
            *self.metadata.stored(metadata),
            *([pa.array(records.offsets[places])] if self.shape.offsets else []),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.shape.schema)
        first = [made["first"]]
        if refused or len(silent):
            kept = np.setdiff1d(np.arange(count), refused)
            doubtful = np.union1d(doubtful, places[refused])
            batch, places, hashes = batch.take(pa.array(kept)), places[kept], hashes[kept]
            positions = positions and [positions[row] for row in kept]
            # Also a record without a change has a table.
            first = np.setdiff1d(np.arange(len(values)), doubtful)[:1].tolist()
        tables = {tuple(made["same"]): first[0]} if made["same"] and first else {}
        source = records.source
        of_source = [(source, position) for position in positions]
        return ChangeColumns(ChangeBatch(batch, [], of_source), places, hashes), doubtful, tables

    def _silent(self, records: Records, places: Ints, doubtful: Ints) -> Ints:
        """Return the messages without a change whose metadata or position is in doubt."""
        if self.read_fields is None or len(places) + len(doubtful) == len(records.values):
            return np.zeros(0, np.int64)
        silent = np.delete(np.arange(len(records.values)), np.append(places, doubtful))
        return silent[sorted(self._fields(records, silent, [])[2])]

    def _fields(
        self, records: Records, places: Ints, kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[list[list[Any]], list[Any], set[int]]:
        """Return the metadata's columns, the positions, and the indexes of messages in doubt.

        The messages are read again without their rows, if this needs any of their fields.
        """
        messages, unread, values = list[Any](), list[int](), records.values
        if self.read_fields is not None:
            texts = values if len(places) == len(values) else [values[place] for place in places]
            messages, unread = self.read_fields(texts)
            for row in unread:
                messages.insert(row, self.no_fields())
        if self.block is not None:
            block = msgspec.Raw(self.block)
            for message in messages:
                setattr(message, self.block_fields[0], block)
        metadata, doubted = self.metadata.columns(messages, kafka)
        positions, misplaced = self.metadata.positions(messages)
        return metadata, positions, {*unread, *doubted, *misplaced}

    def _convert_raw(self, rows: list[pa.Array]) -> set[int]:
        """Convert the columns that are JSON texts; return the rows that a converter refuses."""
        refused = set[int]()
        for index, column in self.raw.items():
            texts = [text or b"null" for text in rows[index].to_pylist()]
            values, unread = self.read(texts)
            # The texts are valid JSON. If one cannot be read, all rows are in doubt.
            rows[index], unconverted = column.array([None] * len(texts) if unread else values)
            refused.update(range(len(texts)) if unread else unconverted)
        return refused


def binary_of(values: Sequence[bytes | None]) -> pa.Array:
    """Return values of records as an array."""
    return values.array if isinstance(values, Values) else pa.array(values, pa.binary())


def _mask(flags: pa.Array) -> Bools:
    return np.asarray(pc.fill_null(flags, False))


def _prefix_of(text: bytes, names: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Return what is in front of a message in a schema block, and the block.

    Both are empty if the message is not written as Kafka Connect does.
    """
    try:
        members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return b"", b""
    if tuple(members) != names:
        return b"", b""
    block, payload = map(bytes, members.values())
    prefix = f'{{"{names[0]}":'.encode() + block + f',"{names[1]}":'.encode()
    return (prefix, block) if text == prefix + payload + b"}" else (b"", b"")


def _of_block(
    plan: DecodePlan, envelope: Envelope, fewest: int, block: bytes
) -> NativeDecoder | None:
    """Return the decoder of messages in a schema block; None if Python has to decode them."""
    try:
        rows = envelope.framing.by_block(block)
        return None if rows is None else NativeDecoder(plan, envelope, rows, fewest, block)
    except (DecodeError, ValueError):
        return None


def _array(
    of: pa.DataType, length: int, nulls: int, valid: Any, offsets: Any, values: Any
) -> pa.Array:
    """Return an array of its parts, as bytes."""
    parts = [valid, values] if offsets is None else [valid, offsets, values]
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(of, length, buffers, nulls)


# --------------------------------------------------------------------------------------------------
# what the native decoder knows


def row_counter(
    envelope: Envelope, names: Mapping[str, str | None], columns: Mapping[str, bool]
) -> Any:
    """Return what counts the rows of a table's messages that have no other columns with a value.

    Parameters
    ----------
    envelope : Envelope
    names : mapping
        The text of each attribute that names the table.
    columns : mapping
        Whether each column may have a value.

    Returns
    -------
    KnownRows or None
        Its method `counts` returns a byte for each message: 0, 1, or 2 if it is in doubt. None
        without the module, or for an envelope that it does not know.
    """
    is_usable = _is_readable(envelope) and all(map(envelope.attributes.get, names))
    if is_switched_off() or native_module() is None or not is_usable:
        return None
    special = {path: what for path, what in _special(envelope).items() if what[0] != "before"}
    of_table = {envelope.path(envelope.attributes[name][0]): names[name] for name in names}
    special |= {path: ("one of", [name]) for path, name in of_table.items()}
    valued, nulls = (
        [name for name, has in columns.items() if has is each] for each in (True, False)
    )
    try:
        fields = _fields(envelope.strict_fields, special, {}, others="unknown")
        return native_module().KnownRows(fields=fields, columns=valued, nulls=nulls)
    except ValueError:
        return None


def _is_known(plan: DecodePlan, envelope: Envelope) -> bool:
    """Whether it can decode the plan, and messages with this envelope."""
    has_attributes = all(map(envelope.attributes.get, plan.identity.columns))
    return _is_readable(envelope) and has_attributes and not plan.key_metadata


def _is_readable(envelope: Envelope) -> bool:
    """Whether it can read the operation and the rows of messages with this envelope."""
    images = envelope.images
    return envelope.has_row_field and not any(
        (
            images.columns is not None,
            # It leaves a delete without its array to Python.
            images.deleted_in_either and images.many == "one",
            len(envelope.operation) != 1,
            not all(isinstance(text, str) for text in envelope.kinds),
        )
    )


def _special(envelope: Envelope) -> dict[_Path, Any]:
    """Return what is read of fields by their paths."""
    many, kinds = envelope.images.many != "one", envelope.kinds.items()
    operations = [(text, kind.short_string) for text, kind in kinds if isinstance(kind, RowKind)]
    plain = envelope.columnar.plain.items()
    return {
        **{envelope.path(name): ("one of", list(values)) for name, values in plain},
        **{(name,): ("null", None) for name in envelope.framing.block},
        envelope.path(envelope.operation[0]): ("operation", operations),
        **({envelope.image_path(envelope.before): ("before", many)} if envelope.before else {}),
        envelope.image_path(envelope.after): ("after", many),
    }


def _fields(
    struct: type[msgspec.Struct],
    special: Mapping[_Path, Any],
    same: Mapping[_Path, int],
    outer: _Path = (),
    *,
    others: str,
) -> list[tuple[str, str, Any, int | None]]:
    """Return the fields of a message, or of an object in it.

    Each is its name, what is read of it, an argument of that, and its number if its text has to be
    the same in all messages. `others` is what is read of a field of a type that is not known.
    """
    types = {(*outer, field.encode_name): field.type for field in fields_of(struct)}
    # The struct of the fields other than the rows need not declare those of the rows.
    paths = dict.fromkeys([*(path for path in special if path[:-1] == outer), *types])
    return [
        (
            path[-1],
            *(special.get(path) or _content(types[path], special, same, path, others)),
            same.get(path),
        )
        for path in paths
    ]


_CONTENTS: Mapping[frozenset[Any], tuple[str, Any]] = {
    frozenset({Any}): ("any", None),
    frozenset({msgspec.Raw}): ("any", None),
    frozenset({str, NoneType}): ("text", None),
    frozenset({int, NoneType}): ("integer", None),
    frozenset({bool, NoneType}): ("one of", [None, True, False]),
}
"""What a field accepts, by the types that it may have."""


def _content(
    of: Any, special: Mapping[_Path, Any], same: Mapping[_Path, int], path: _Path, others: str
) -> tuple[str, Any]:
    """Return what a field of this type accepts."""
    options = frozenset({of} if get_origin(of) is Literal else get_args(of) or {of})
    inner = next(iter(options - {NoneType}), None)
    if isinstance(inner, type(msgspec.Struct)) and options <= {inner, NoneType}:
        fields = _fields(inner, special, same, path, others=others)
        return "object", (fields, NoneType in options)
    texts = get_args(inner) if get_origin(inner) is Literal else ()
    if options == {inner, NoneType} and texts and all(isinstance(text, str) for text in texts):
        return "one of", [None, *texts]
    return _CONTENTS.get(options, (others, None))


def _decimal(sql_type: SqlType, handling: Handling) -> tuple[Any, ...]:
    precision, scale = sql_type.precision or 10, sql_type.scale or 0
    by_mode = {"precise": "unscaled", "text": "digits", "string": "digits", "double": "digits"}
    text = by_mode.get(handling.decimal or "", "")
    is_scaled = text == "unscaled" and handling.decimal_scale not in (None, scale)
    return "decimal", precision, scale, "" if is_scaled else text


_KINDS: Mapping[str, Callable[[SqlType, Handling], tuple[Any, ...]]] = {
    **dict.fromkeys(TEXT_TYPES, lambda of, how: ("text", list(placeholder_forms(of, how)))),
    **dict.fromkeys(INTEGER_BITS, lambda of, how: ("integer", (INTEGER_BITS[of.name] + 1) // 8)),
    **dict.fromkeys(
        TIMESTAMP_TYPES,
        lambda of, how: ("timestamp", of.name == "TIMESTAMP", epoch_unit(of, how)[0]),
    ),
    "BOOLEAN": lambda of, how: ("boolean",),
    "DOUBLE": lambda of, how: ("double",),
    "DATE": lambda of, how: ("date", how.time != "text"),
    "DECIMAL": _decimal,
}
"""The kind of a column, and what it needs to know of its values; other types are JSON text."""
