"""Conversion of canonical columns (`cdc_formats.values.types`) to Arrow, Spark types and bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.values.equality import equal, sorted_entries, unifier
from cdc_formats.values.nested import NESTED_TYPES
from cdc_formats.values.schema import ABSENT, ARROW_TYPES, Column, Handling, SqlType, backquoted
from cdc_formats.values.times import time_text
from cdc_formats.values.types import converter

# --------------------------------------------------------------------------------------------------
# Canonical values as MessagePack: keys, and other values that are sent as one.
#
# Equal keys have the same bytes, since decoders return the same values for equal keys
# (`cdc_formats.values.equality`).

_ABSENT_CODE = 1


def _enc_hook(value: Any) -> Any:
    if value is ABSENT:
        return msgspec.msgpack.Ext(_ABSENT_CODE, b"")
    raise NotImplementedError(f"no canonical value: {type(value)}")


pack = msgspec.msgpack.Encoder(enc_hook=_enc_hook).encode
"""Encodes a row or key (a tuple of canonical values)."""
_unpack = msgspec.msgpack.Decoder(ext_hook=lambda code, data: ABSENT).decode


def unpack(row: bytes) -> list[Any]:
    """Return the canonical values of a row or key."""
    values: list[Any] = _unpack(row)
    return values


encode = msgspec.msgpack.Encoder().encode
"""Encodes a struct or list of plain values."""


def key_group_of(key: bytes, key_groups: int) -> int:
    """Return the key group of a packed key.

    It must never change, since it determines the layout of the state.
    """
    return crc32(key) % key_groups


def hashes(keys: Sequence[bytes]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the hash of each packed key: modulo ``key_groups`` it is the key group."""
    return np.fromiter(map(crc32, keys), np.int64, len(keys))


_TYPES = {name: getattr(pa, of)(*arguments) for name, (of, *arguments) in ARROW_TYPES.items()}
"""The Arrow types of a DataFrame's columns. A DECIMAL's has parameters, and a nested type's has
parts: see `arrow_type`."""
_STORED_AS = {
    name: pa.int32() if of.bit_width == 32 else pa.int64()
    for name, of in _TYPES.items()
    if pa.types.is_temporal(of)
}
"""The types whose canonical value is the number that Arrow stores."""
_BATCH_ROWS = 10_000
_FEW_PAIRS = 64
_TO_TIME = converter(SqlType("TIME"), Handling())


def arrow_type(sql_type: SqlType) -> pa.DataType:
    """Return the Arrow type of a column."""
    if sql_type.name == "DECIMAL":
        return pa.decimal128(sql_type.precision or 10, sql_type.scale or 0)
    inner = [arrow_type(field.type) for field in sql_type.fields]
    if sql_type.name == "ARRAY":
        return pa.list_(inner[0])
    if sql_type.name == "MAP":
        return pa.map_(inner[0], inner[1])
    if sql_type.name == "STRUCT":
        return pa.struct(
            [pa.field(field.name, of) for field, of in zip(sql_type.fields, inner, strict=True)]
        )
    return _TYPES[sql_type.name]


def stored_type(sql_type: SqlType) -> pa.DataType:
    """Return the Arrow type of a column between the passes and in the state.

    It is `arrow_type`, except that ARRAY, MAP and STRUCT are packed, since Arrow does not compare
    nested arrays.
    """
    return pa.binary() if sql_type.name in NESTED_TYPES else arrow_type(sql_type)


def spark_type(sql_type: SqlType) -> str:
    """Return a column type's Spark DDL, without time precisions and lengths, which Spark lacks."""
    inner = [spark_type(field.type) for field in sql_type.fields]
    if sql_type.name == "STRUCT":
        return f"STRUCT<{', '.join(f'{backquoted(field.name)}: {of}' for field, of in zip(sql_type.fields, inner, strict=True))}>"
    if inner:
        return f"{sql_type.name}<{', '.join(inner)}>"
    if sql_type.name == "DECIMAL":
        return str(sql_type)
    return "STRING" if pa.types.is_string(_TYPES[sql_type.name]) else sql_type.name


def frame_type(sql_type: SqlType) -> str:
    """Return the Spark DDL of a column in the user's DataFrame.

    It is `spark_type`, but for a VARIANT and Spark's TIME, which are text in the passes.
    """
    if sql_type.is_spark_time:
        return f"TIME({6 if sql_type.precision is None else sql_type.precision})"
    return "VARIANT" if sql_type.name == "VARIANT" else spark_type(sql_type)


def spark_ddl(schema: Sequence[Column]) -> str:
    """Return the DDL of the passes' DataFrame with these columns."""
    return ", ".join(f"{backquoted(column.name)} {spark_type(column.type)}" for column in schema)


def slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Split a batch into batches for Spark, with at most Spark's default number of rows."""
    for start in range(0, batch.num_rows, _BATCH_ROWS):
        yield batch.slice(start, _BATCH_ROWS)


# --------------------------------------------------------------------------------------------------
# canonical to Arrow


def to_arrow(sql_type: SqlType, values: Sequence[Any]) -> pa.Array:
    """Return a column of canonical values as an Arrow array.

    Parameters
    ----------
    sql_type : SqlType
    values : sequence
        Canonical values or None, one for each row.
    """
    name = sql_type.name
    if name in _STORED_AS:
        return pa.array(values, _STORED_AS[name]).view(_TYPES[name])
    if name == "DECIMAL":
        return pa.array(values, pa.string()).cast(arrow_type(sql_type))
    if name == "TIME":
        return pa.array(
            [None if value is None else time_text(value) for value in values], pa.string()
        )
    if name in ("ARRAY", "MAP"):
        return _lists(sql_type, values)
    if name == "STRUCT":
        return _structs(sql_type, values)
    return pa.array(values, _TYPES[name])


def _lists(sql_type: SqlType, values: Sequence[Any]) -> pa.Array:
    lengths = [0 if value is None else len(value) for value in values]
    ends = list(accumulate(lengths, initial=0))
    # A null offset is a null list.
    offsets = pa.array(
        [None if value is None else start for value, start in zip(values, ends, strict=False)]
        + ends[-1:],
        pa.int32(),
    )
    items = list(chain.from_iterable(value for value in values if value is not None))
    if sql_type.name == "ARRAY":
        return pa.ListArray.from_arrays(offsets, to_arrow(sql_type.fields[0].type, items))
    keys, entries = ([item[i] for item in items] for i in (0, 1))
    return pa.MapArray.from_arrays(
        offsets, to_arrow(sql_type.fields[0].type, keys), to_arrow(sql_type.fields[1].type, entries)
    )


def _structs(sql_type: SqlType, values: Sequence[Any]) -> pa.Array:
    children = [
        to_arrow(field.type, [None if value is None else value[index] for value in values])
        for index, field in enumerate(sql_type.fields)
    ]
    return pa.StructArray.from_arrays(
        children,
        fields=list(arrow_type(sql_type)),
        mask=pa.array([value is None for value in values], pa.bool_()),
    )


def to_stored(sql_type: SqlType, values: Sequence[Any]) -> pa.Array:
    """Return a column of canonical values with its `stored_type`."""
    if sql_type.name in NESTED_TYPES:
        return pa.array([None if value is None else pack(value) for value in values], pa.binary())
    return to_arrow(sql_type, values)


_UNITS = {19: "s", 23: "ms", 26: "us"}
_FIRST, _LAST = "0001-01-01", "9999-12-31"


def parse_texts(sql_type: SqlType, texts: pa.Array) -> pa.Array | None:
    """Return the values of texts, with their `stored_type`.

    Parameters
    ----------
    sql_type : SqlType
        An integer, a DECIMAL, a DATE or a TIMESTAMP_NTZ.
    texts : pyarrow.Array
        Strings and nulls.

    Returns
    -------
    pyarrow.Array or None
        None if a text is not in Arrow's notation, so that the texts require the column's converter.

    Raises
    ------
    pyarrow.ArrowInvalid
        When a text is not a value of the type.
    """
    to = arrow_type(sql_type)
    if pa.types.is_timestamp(to):
        return _times(sql_type, texts)
    if (
        pa.types.is_decimal(to)
        and (pc.max(pc.binary_length(texts)).as_py() or 0) > to.precision + 2
    ):
        return (
            None  # Arrow does not check the size of a decimal with more digits than its type holds
        )
    values = texts.cast(to)
    if pa.types.is_date(to) and not _plain_years(texts):
        return None
    return values if values.cast(pa.string()).equals(texts) else None


def _times(sql_type: SqlType, texts: pa.Array) -> pa.Array | None:
    length = pc.max(pc.binary_length(texts)).as_py()
    digits = 6 if sql_type.precision is None else sql_type.precision
    if length not in _UNITS or max(length - 20, 0) > digits or not _plain_years(texts):
        return None
    spelled = (
        pc.replace_substring(texts, "T", " ")
        if pc.any(pc.match_substring(texts, "T")).as_py()
        else texts
    )
    values = spelled.cast(pa.timestamp(_UNITS[length]))
    return values.cast(arrow_type(sql_type)) if values.cast(pa.string()).equals(spelled) else None


def _plain_years(texts: pa.Array) -> bool:
    ends = pc.min_max(texts)
    return bool(
        ends["min"].is_valid and ends["min"].as_py() >= _FIRST and ends["max"].as_py()[:10] <= _LAST
    )


def of_stored(sql_type: SqlType, array: pa.Array) -> pa.Array:
    """Return a stored column with its `arrow_type`."""
    if sql_type.name in NESTED_TYPES:
        return to_arrow(sql_type, from_stored(sql_type, array))
    return array


def equal_at(
    sql_types: Sequence[SqlType], batch: pa.RecordBatch, left: Any, right: Any
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return where all stored columns of two rows are equal (`cdc_formats.values.equality`).

    Parameters
    ----------
    sql_types : sequence of SqlType
        The types of the columns.
    batch : pyarrow.RecordBatch
        The columns.
    left, right : arrays of int
        The indexes of the rows that are compared.

    Returns
    -------
    array of int
        The indexes in `left` and `right`.
    """
    pairs: np.ndarray[Any, np.dtype[np.int64]] = np.arange(len(left))
    for index, sql_type in enumerate(sql_types):
        if not len(pairs):
            break
        column = batch.column(index)
        if _is_number(column.type) and not column.null_count:
            numbers = column.to_numpy()
            equals = numbers[left[pairs]] == numbers[right[pairs]]
        elif len(pairs) <= _FEW_PAIRS:
            # A call for all columns is cheaper than three for each.
            rest = batch.select(range(index, batch.num_columns))
            pairs = pairs[_equal_rows(sql_types[index:], rest, left[pairs], right[pairs])]
            break
        else:
            equals = _same(
                sql_type, *(column.take(pa.array(each[pairs])) for each in (left, right))
            )
        pairs = pairs[equals]
    return pairs


def by_cost(sql_types: Sequence[SqlType]) -> list[int]:
    """Return the indexes of columns, with those first whose values are compared the fastest."""
    return sorted(
        range(len(sql_types)), key=lambda index: not _is_number(stored_type(sql_types[index]))
    )


def _is_number(of: pa.DataType) -> bool:
    """Whether numpy has the values without a copy, and compares them exactly."""
    return bool(pa.types.is_integer(of) or pa.types.is_timestamp(of))


def _equal_rows(sql_types: Sequence[SqlType], batch: pa.RecordBatch, left: Any, right: Any) -> Any:
    equals = np.ones(len(left), bool)
    both = batch.take(pa.array(np.concatenate([left, right])))
    one, other = both.slice(0, len(left)), both.slice(len(left))
    # Most rows with equal numbers are equal.
    if not one.equals(other):
        for sql_type, *columns in zip(sql_types, one.columns, other.columns, strict=True):
            equals &= _same(sql_type, *columns)
    return equals


def _same(
    sql_type: SqlType, left: pa.Array, right: pa.Array
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    matching = pc.equal(left, right)
    if matching.null_count:
        matching = pc.or_(matching.fill_null(False), pc.and_(left.is_null(), right.is_null()))
    if pa.types.is_floating(left.type):
        matching = pc.or_(
            matching, pc.and_(*(pc.is_nan(array).fill_null(False) for array in (left, right)))
        )
    equals: np.ndarray[Any, np.dtype[np.bool_]] = matching.to_numpy(zero_copy_only=False)
    if (
        pa.types.is_binary(left.type)
        and sql_type.name in NESTED_TYPES
        and unifier(sql_type) is not None
    ):
        # Equal floats may have different bytes: compare the values of unequal bytes.
        equals = equals.copy()
        for index in np.flatnonzero(~equals):
            values = [array[int(index)].as_py() for array in (left, right)]
            equals[index] = None not in values and equal(*map(unpack, values))
    return equals


# --------------------------------------------------------------------------------------------------
# Arrow to canonical


def from_stored(sql_type: SqlType, array: pa.Array) -> list[Any]:
    """Return the canonical values of a stored column."""
    if sql_type.name in NESTED_TYPES:
        return [None if value is None else unpack(value) for value in array.to_pylist()]
    return from_arrow(sql_type, array)


def from_arrow(sql_type: SqlType, array: pa.Array) -> list[Any]:
    """Return the canonical values of an Arrow array from Spark.

    Parameters
    ----------
    sql_type : SqlType
        The column's type; a TIME is text in a DataFrame.
    array : pyarrow.Array

    Raises
    ------
    ConversionError
        When the text of a TIME is not a time.
    """
    name = sql_type.name
    if name in _STORED_AS:
        array = array.cast(_TYPES[name]).view(_STORED_AS[name])
    if name in _NESTED:
        return _NESTED[name](sql_type, array)
    values: list[Any] = array.to_pylist()
    if name in _FROM_PYTHON:
        read = _FROM_PYTHON[name]
        return [None if value is None else read(value) for value in values]
    return values


def _list_values(sql_type: SqlType, array: pa.Array) -> list[Any]:
    items = from_arrow(sql_type.fields[0].type, array.flatten())
    lengths = array.value_lengths().to_pylist()
    ends = accumulate(length or 0 for length in lengths)
    return [
        None if length is None else items[end - length : end]
        for length, end in zip(lengths, ends, strict=True)
    ]


def _map_values(sql_type: SqlType, array: pa.Array) -> list[Any]:
    # The rows of a map are read through lists, since a sliced map's keys and items ignore the
    # slice.
    maps = array.to_pylist()
    flat = [entry for entries in maps for entry in entries or ()]
    keys, items = (
        from_arrow(field.type, pa.array([entry[index] for entry in flat], arrow_type(field.type)))
        for index, field in enumerate(sql_type.fields)
    )
    pairs = map(list, zip(keys, items, strict=True))
    return [
        None if entries is None else sorted_entries(islice(pairs, len(entries))) for entries in maps
    ]


def _struct_values(sql_type: SqlType, array: pa.Array) -> list[Any]:
    children = [
        from_arrow(field.type, array.field(index)) for index, field in enumerate(sql_type.fields)
    ]
    rows = zip(array.is_valid().to_pylist(), *children, strict=True)
    return [row if valid else None for valid, *row in rows]


_NESTED: dict[str, Callable[[SqlType, pa.Array], list[Any]]] = {
    "ARRAY": _list_values,
    "MAP": _map_values,
    "STRUCT": _struct_values,
}
_FROM_PYTHON: dict[str, Callable[[Any], Any]] = {"DECIMAL": "{:f}".format, "TIME": _TO_TIME}
