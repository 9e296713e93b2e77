"""The optional native decoder: many messages together, at once from their bytes to columns.

The package ``pyspark-kafka-changelog-native`` has it (the folder ``native``). It is compiled from
the same envelope as `ColumnarDecoder`, which uses it if it is installed and knows all that the plan
needs. Of each message it returns exactly the change that `decoder.Decoder.upserts` returns, or says
that the message is in doubt.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import NoneType
from typing import Any, Literal, get_args, get_origin
from warnings import warn

import msgspec
import numpy as np
import pyarrow as pa

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.events import RowKind
from cdc_formats.values.handling import Handling
from cdc_formats.values.json_reader import batch_reader, fields_of
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import SqlType
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import TIMESTAMP_TYPES, epoch_unit
from cdc_formats.values.types import placeholder_forms
from normalize.core.arrow import stored_type, to_stored
from normalize.core.changes import ChangeBatch, ChangeColumns
from normalize.core.fold_columns import Ints
from normalize.core.message_columns import MessageColumn
from normalize.core.records import Records, Values
from normalize.decode.plan import DecodePlan

MODULE, INTERFACE = "kafka_changelog_native", 1
"""The module, and the number of its interface that this package knows."""
SWITCH = "CDC_NATIVE"
"""The environment variable: ``0`` leaves an installed module unused, for comparisons."""
_Path = tuple[str, ...]


@cache
def native_module() -> Any:
    """Return the installed module; None without one, or with one of another interface."""
    try:
        module = import_module(MODULE)
    except ModuleNotFoundError:
        return None
    if module.INTERFACE == INTERFACE:
        return module
    # Not an error: all messages are decoded without it, only slower.
    warn(
        f"{MODULE} is not used: it has the interface {module.INTERFACE}, and {INTERFACE} is "
        "needed. Install the version of this release",
        stacklevel=2,
    )
    return None


class NativeDecoder:
    """Decodes the messages of a keyed plan.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    rows : RowConverter

    Raises
    ------
    ValueError
        When a field, a column or the key is of a kind that the native decoder does not know.
    """

    def __init__(self, plan: DecodePlan, envelope: Envelope, rows: RowConverter) -> None:
        columns = list(zip(rows.results, rows.handlings, rows.converters, rows.direct, strict=True))
        kinds = [
            _KINDS.get(column.type.name, _raw)(column.type, how) if direct else ("raw",)
            for column, how, _, direct in columns
        ]
        mark, required = (
            envelope.images.missing_mark,
            [i in rows.required for i in range(len(kinds))],
        )
        self.decoder = native_module().Decoder(
            fields=_fields(envelope.strict_fields, *_special(plan, envelope)),
            columns=list(zip(rows.names, kinds, required, strict=True)),
            null_names=[name + mark for name in rows.names] if mark else [],
            keys=list(rows.key_indices),
            deleted_is_before=envelope.deleted == envelope.before,
            missing_is_null=envelope.images.missing_is_null,
            needs_before=envelope.together.needs_before,
            ignores_deletes=plan.ignore_deletes,
        )
        self.shape = plan.shape
        # The requested metadata is Kafka's alone, in its order.
        self.kafka = [(column.type, at) for at, column in enumerate(plan.shape.metadata)]
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
        cls, plan: DecodePlan, envelope: Envelope, rows: RowConverter, *, keyed: bool
    ) -> NativeDecoder | None:
        """Return the decoder of a plan; None without the module, or if it cannot have one."""
        is_used = os.environ.get(SWITCH) != "0" and native_module() is not None
        if not (keyed and is_used and _is_known(plan, envelope)):
            return None
        try:
            return cls(plan, envelope, rows)
        except ValueError:
            return None

    def decode(
        self, records: Records, kafka: Sequence[tuple[Any, ...]]
    ) -> tuple[ChangeColumns, Ints, dict[tuple[Any, ...], int]]:
        """Decode records; the parameters are those of `ColumnarDecoder.decode`.

        Returns
        -------
        (changes, doubtful, tables) : (ChangeColumns, array of int, dict)
            The changes of the records that are not in doubt, the indexes of those in doubt, and the
            table of all others (`Identity.columns`) with the index of the first of them.
        """
        values = records.values
        made = self.decoder.decode(
            values.array if isinstance(values, Values) else pa.array(values, pa.binary())
        )
        places, doubtful = (
            np.frombuffer(made[name], np.int32).astype(np.int64) for name in ("places", "doubtful")
        )
        hashes, count = np.frombuffer(made["hashes"], np.uint32).astype(np.int64), len(places)
        rows = [
            _array(of, count, *parts) for of, parts in zip(self.types, made["columns"], strict=True)
        ]
        refused = self._convert_raw(rows)
        arrays = [
            _array(pa.binary(), count, 0, None, made["key_offsets"], made["keys"]),
            pa.array(records.stamps[places]),
            _array(pa.bool_(), count, 0, None, None, made["deleted"]),
            *rows,
            *(to_stored(of, [kafka[place][at] for place in places]) for of, at in self.kafka),
            *([pa.array(records.offsets[places])] if self.shape.offsets else []),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.shape.schema)
        first = [made["first"]]
        if refused:
            kept = np.setdiff1d(np.arange(count), refused)
            doubtful = np.union1d(doubtful, places[refused])
            batch, places, hashes = batch.take(pa.array(kept)), places[kept], hashes[kept]
            # Also a record without a change has a table.
            first = np.setdiff1d(np.arange(len(values)), doubtful)[:1].tolist()
        tables = {tuple(made["same"]): first[0]} if made["same"] and first else {}
        return ChangeColumns(ChangeBatch(batch, [], []), places, hashes), doubtful, tables

    def _convert_raw(self, rows: list[pa.Array]) -> list[int]:
        """Convert the columns that are JSON texts; return the rows that a converter refuses."""
        refused = set[int]()
        for index, column in self.raw.items():
            texts = [text or b"null" for text in rows[index].to_pylist()]
            values, unread = self.read(texts)
            # The texts are valid JSON. If one cannot be read, all rows are in doubt.
            rows[index], unconverted = column.array([None] * len(texts) if unread else values)
            refused.update(range(len(texts)) if unread else unconverted)
        return sorted(refused)


def _array(
    of: pa.DataType, length: int, nulls: int, valid: Any, offsets: Any, values: Any
) -> pa.Array:
    """Return an array of its parts, as bytes."""
    parts = [valid, values] if offsets is None else [valid, offsets, values]
    buffers = [None if part is None else pa.py_buffer(part) for part in parts]
    return pa.Array.from_buffers(of, length, buffers, nulls)


# --------------------------------------------------------------------------------------------------
# what the native decoder knows


def _is_known(plan: DecodePlan, envelope: Envelope) -> bool:
    """Whether it can decode the plan, and messages with this envelope."""
    images, together, framing = envelope.images, envelope.together, envelope.framing
    unknown = (
        plan.positions or plan.format_metadata or plan.key_metadata,
        framing.frame or not framing.bare or envelope.keys.shape is not None,
        images.columns is not None or images.before_prefix or images.deleted_in_either,
        together.message is not None or not envelope.after or len(envelope.operation) != 1,
        not all(isinstance(text, str) for text in envelope.kinds),
        not all(map(envelope.attributes.get, plan.identity.columns)),
    )
    return not any(unknown)


def _special(plan: DecodePlan, envelope: Envelope) -> tuple[dict[_Path, Any], dict[_Path, int]]:
    """Return what is read of fields by their paths, and the numbers of those with the table."""
    many, kinds = envelope.images.many != "one", envelope.kinds.items()
    operations = [(text, kind.short_string) for text, kind in kinds if isinstance(kind, RowKind)]
    plain = envelope.together.plain.items()
    special: dict[_Path, Any] = {
        **{envelope.path(name): ("one of", list(values)) for name, values in plain},
        **{(name,): ("null", None) for name in envelope.framing.block},
        envelope.path(envelope.operation[0]): ("operation", operations),
        **({envelope.place(envelope.before): ("before", many)} if envelope.before else {}),
        envelope.place(envelope.after): ("after", many),
    }
    paths = [envelope.path(envelope.attributes[name][0]) for name in plan.identity.columns]
    return special, {path: number for number, path in enumerate(paths)}


def _fields(
    struct: type[msgspec.Struct],
    special: Mapping[_Path, Any],
    same: Mapping[_Path, int],
    outer: _Path = (),
) -> list[tuple[str, str, Any, int | None]]:
    """Return the fields of a message, or of an object in it.

    Each is its name, what is read of it, an argument of that, and its number if its text has to be
    the same in all messages.
    """
    types = {(*outer, field.encode_name): field.type for field in fields_of(struct)}
    # The struct of the fields other than the rows need not declare those of the rows.
    paths = dict.fromkeys([*(path for path in special if path[:-1] == outer), *types])
    return [
        (
            path[-1],
            *(special.get(path) or _content(types[path], special, same, path)),
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
    of: Any, special: Mapping[_Path, Any], same: Mapping[_Path, int], path: _Path
) -> tuple[str, Any]:
    """Return what a field of this type accepts."""
    options = frozenset({of} if get_origin(of) is Literal else get_args(of) or {of})
    inner = next(iter(options - {NoneType}), None)
    if isinstance(inner, type(msgspec.Struct)) and options <= {inner, NoneType}:
        return "object", (_fields(inner, special, same, path), NoneType in options)
    texts = get_args(inner) if get_origin(inner) is Literal else ()
    if options == {inner, NoneType} and texts and all(isinstance(text, str) for text in texts):
        return "one of", [None, *texts]
    return _CONTENTS.get(options, ("unknown", None))


def _raw(sql_type: SqlType, handling: Handling) -> tuple[Any, ...]:
    return ("raw",)


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
