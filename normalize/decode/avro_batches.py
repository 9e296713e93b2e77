"""Read many Avro messages of one writer's schema together, with polars.

polars reads Avro object container files. The messages become one such file in memory: a header with
the schema, and one block with all messages. fastavro (`AvroSchema.read`) remains the specification.
A message is left to it unless this module proves that both read the same:

- Each message is followed by a mark: random bytes and its number. If the marks of a message and of
  all messages before it are right, the reader read exactly the message's bytes.
- The bytes are those that the values have in Avro's shortest encoding. So each index of a union and
  each boolean is valid, which polars does not check.

Schemas with an array, a map, an enum, a null outside of a union, or another union than null and one
type are left to fastavro, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from itertools import chain, count, repeat
from tempfile import TemporaryFile
from threading import Lock
from typing import Any

import fastavro
import msgspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
from polars.exceptions import PanicException, PolarsError

from cdc_formats.avro.reader import AvroSchema, Type
from cdc_formats.decoding.json_reader import BatchReader
from cdc_formats.decoding.message_shape import fields_of
from normalize.core.fold_columns import Bools

_Lists = Callable[[pl.Series], Iterable[Any]]
_MOST_TYPES = 5_000
PARTS = 8
"""Messages that cannot be read together are tried again in so many parts."""
_RANDOM_SIZE, _NUMBER_SIZE = 12, 4
_SYNC = bytes(16)
_PLAIN = {
    "boolean": "boolean",
    "int": "long",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
"""polars cuts an int of more than 32 bits: it is read as a long, which has the same bytes."""
_TYPES: dict[type, str] = {
    msgspec.inspect.IntType: "long",
    msgspec.inspect.StrType: "string",
    msgspec.inspect.BoolType: "boolean",
}
_SIZES = {"float": 4, "double": 8}
_VARINT_LIMITS = np.array([1 << 7 * size for size in range(1, 10)], np.uint64)


class _UnreadableError(Exception):
    """A schema whose messages are read one by one."""


def avro_reader(schema: AvroSchema, shape: Any, *, fewest: int) -> BatchReader | None:
    """Return a schema's reader of messages without frames; None if they must be read one by one.

    Parameters
    ----------
    schema : AvroSchema
    shape : type
        The msgspec struct of a message. Its fields are found by name in the schema's records. A
        field that is a struct is a record; others have the values of `AvroSchema.read`. A field
        that the schema lacks has its default.
    fewest : int
        Fewer messages are read one by one.
    """
    try:
        return _Reader(_header_type(schema, schema.top, count()), shape, fewest).read
    except _UnreadableError:
        return None


def _header_type(schema: AvroSchema, avro: Type, numbers: Iterator[int]) -> Any:
    """Return a type without names of other types and without logical types."""
    kind, number = avro["type"], next(numbers)
    if number > _MOST_TYPES:
        raise _UnreadableError
    if kind == "union":
        branches = schema.branches(avro)
        if [branch["type"] == "null" for branch in branches] not in ([True, False], [False, True]):
            raise _UnreadableError
        return [
            "null" if branch["type"] == "null" else _header_type(schema, branch, numbers)
            for branch in branches
        ]
    if kind == "record" and avro["fields"]:
        types = schema.fields(avro).items()
        fields = [{"name": name, "type": _header_type(schema, of, numbers)} for name, of in types]
        return {"type": "record", "name": f"r{number}", "fields": fields}
    if kind == "fixed" and avro["size"]:
        return {"type": "fixed", "name": f"f{number}", "size": avro["size"]}
    if kind not in _PLAIN:
        raise _UnreadableError
    return _PLAIN[kind]


class _Reader:
    def __init__(self, top: Any, shape: Any, fewest: int) -> None:
        mark = {"type": "fixed", "name": "mark", "size": _RANDOM_SIZE + _NUMBER_SIZE}
        fields = [{"name": "message", "type": top}, {"name": "mark", "type": mark}]
        out = BytesIO()
        fastavro.writer(
            out, {"type": "record", "name": "file", "fields": fields}, [], sync_marker=_SYNC
        )
        self.top, self.fewest, self.header = top, fewest, out.getvalue()
        self.to_list = _lists(top, shape | None)
        if self.table([], []) is None:
            raise _UnreadableError

    def read(self, messages: Sequence[bytes]) -> tuple[list[Any], list[int]]:
        """Return the values of messages, and the indexes of those that must be read one by one."""
        values: list[Any] = []
        alone: list[int] = []
        parts = [(0, len(messages))]
        while parts:
            start, end = parts.pop()
            if end - start < self.fewest:
                alone += range(start, end)
                continue
            part, marks = messages[start:end], marks_of(end - start)
            decoded = self.table(part, marks)
            if decoded is not None:
                start += self._take(decoded, part, marks, start, values, alone)
            if decoded is None and end - start == 1:
                alone.append(start)
            elif start < end:
                # A read that fails does not say at which message. After a wrong mark, each later
                # one is in doubt.
                parts += reversed(_parts(start, end))
        return values, sorted(alone)

    def _take(
        self,
        table: pl.DataFrame,
        messages: Sequence[bytes],
        marks: Sequence[bytes],
        start: int,
        values: list[Any],
        alone: list[int],
    ) -> int:
        """Add the values up to the first wrong mark, and return the number of messages done."""
        found_marks = table["mark"].to_list()
        sound, done = len(messages), len(messages)
        if found_marks != marks:
            sound = next(index for index, mark in enumerate(found_marks) if mark != marks[index])
            done = sound + 1
        column = table["message"].head(sound)
        checked = _Bytes(messages[:sound]).check(
            self.top, column.to_arrow(compat_level=pl.CompatLevel.oldest())
        )
        decoded = [
            value if right else None
            for value, right in zip(self.to_list(column), checked.tolist(), strict=True)
        ]
        values += [value for value in decoded if value is not None]
        alone += [start + index for index, value in enumerate(decoded) if value is None]
        alone += range(start + sound, start + done)
        return done

    def table(self, messages: Sequence[bytes], marks: Sequence[bytes]) -> pl.DataFrame | None:
        """Return the columns of messages and marks; None if polars cannot read them."""
        block = b"".join(chain.from_iterable(zip(messages, marks, strict=True)))
        file = BytesIO(
            b"".join([self.header, _long(len(messages)), _long(len(block)), block, _SYNC])
        )
        try:
            with _held_errors():
                return pl.read_avro(file)
        except (PolarsError, OSError, PanicException):
            return None


_one_at_a_time = Lock()


@contextmanager
def _held_errors() -> Iterator[None]:
    """Hold back what the process writes to stderr, and write it at the end unless polars panics.

    A panic is an exception here, but polars also writes its text and a trace of 200 lines for each
    damaged message.
    """
    with _one_at_a_time, TemporaryFile() as held:
        try:
            error = os.dup(2)
        except OSError:  # there is no standard error
            yield
            return
        os.dup2(held.fileno(), 2)
        try:
            yield
        except PanicException:
            held.truncate(0)
            raise
        finally:
            os.dup2(error, 2)
            os.close(error)
            held.seek(0)
            if text := held.read():
                os.write(2, text)


def marks_of(count: int) -> list[bytes]:
    """Return the marks that follow messages: in one process, the same ones for the same count."""
    return _most_marks(1 << count.bit_length())[:count]


@lru_cache(maxsize=4)
def _most_marks(count: int) -> list[bytes]:
    # Random: a producer cannot know the bytes of a mark, and write a message that contains one.
    random = os.urandom(_RANDOM_SIZE)
    return [random + number.to_bytes(_NUMBER_SIZE, "big") for number in range(count)]


def _parts(start: int, end: int) -> list[tuple[int, int]]:
    step = -(-(end - start) // PARTS)
    return [(at, min(at + step, end)) for at in range(start, end, step)]


def _long(number: int) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, "long", number)
    return out.getvalue()


# --------------------------------------------------------------------------------------------------
# values


def _lists(avro: Any, of: Any) -> _Lists:
    """Return the function that reads a column's values; `of` is their type in the result."""
    info = msgspec.inspect.type_info(of)
    types = info.types if isinstance(info, msgspec.inspect.UnionType) else (info,)
    struct = next(
        (each.cls for each in types if isinstance(each, msgspec.inspect.StructType)), None
    )
    value = _value_type(avro)
    if struct is None:
        if not any(
            isinstance(each, msgspec.inspect.AnyType) or _TYPES.get(type(each)) == value
            for each in types
        ):
            raise _UnreadableError
        return lambda column: column.to_list()
    if (
        not isinstance(value, dict)
        or value["type"] != "record"
        or (isinstance(avro, list) and len(types) == 1)
    ):
        raise _UnreadableError
    return _structs(value, struct)


def _structs(record: Any, struct: Any) -> _Lists:
    types = {field["name"]: field["type"] for field in record["fields"]}
    fields = [(field, types.get(field.encode_name)) for field in fields_of(struct)]
    readers = [
        (field.encode_name, _lists(avro, field.type)) if avro else (None, _default(field))
        for field, avro in fields
    ]
    if all(name is None for name, _ in readers):
        raise _UnreadableError

    def to_list(column: pl.Series) -> list[Any]:
        table = column.struct.unnest()
        structs = list(
            map(
                struct,
                *(repeat(read) if name is None else read(table[name]) for name, read in readers),
            )
        )
        if column.null_count():
            return [
                None if null else value
                for value, null in zip(structs, column.is_null().to_list(), strict=True)
            ]
        return structs

    return to_list


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default is not msgspec.NODEFAULT else field.default_factory()


def _value_type(avro: Any) -> Any:
    return next(of for of in avro if of != "null") if isinstance(avro, list) else avro


# --------------------------------------------------------------------------------------------------
# proof


class _Bytes:
    """The bytes of messages, each compared with the encoding of the values read from it."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.bytes = np.frombuffer(b"".join([*messages, b"\0"]), np.uint8)
        ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        self.ends = ends
        self.at = np.append(0, ends[:-1]) if len(ends) else ends.copy()
        self.right = np.ones(len(messages), bool)

    def check(self, avro: Any, column: pa.Array) -> Bools:
        """Return which messages have valid union indexes and booleans and the shortest encoding."""
        self._skip(avro, column, np.ones(len(self.right), bool))
        whole: Bools = self.right & (self.at == self.ends)
        return whole

    def _skip(self, avro: Any, column: pa.Array, there: Bools) -> None:
        """Move behind a value of each message that has one."""
        if isinstance(avro, list):
            valid, null_at = column.is_valid().to_numpy(zero_copy_only=False), avro.index("null")
            self._expect(np.where(valid, 2 * (1 - null_at), 2 * null_at), there)
            self._skip(_value_type(avro), column, there & valid)
        elif isinstance(avro, dict) and avro["type"] == "record":
            for index, field in enumerate(avro["fields"]):
                self._skip(field["type"], column.field(index), there)
        elif avro == "boolean":
            self._expect(column.fill_null(False).to_numpy(zero_copy_only=False), there)
        else:
            self.at += there * _sizes(avro, column)

    def _expect(self, byte: Any, there: Bools) -> None:
        self.right &= ~there | (self.bytes[np.minimum(self.at, len(self.bytes) - 1)] == byte)
        self.at += there


def _sizes(avro: Any, column: pa.Array) -> Any:
    """Return the sizes of values in their shortest encoding."""
    if avro == "long":
        return _varint_sizes(column.fill_null(0).to_numpy())
    if avro in ("string", "bytes"):
        sizes = pc.binary_length(column).fill_null(0).to_numpy().astype(np.int64)
        return sizes + _varint_sizes(sizes)
    return _SIZES[avro] if isinstance(avro, str) else avro["size"]


def _varint_sizes(numbers: Any) -> Any:
    zigzag = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    return np.searchsorted(_VARINT_LIMITS, zigzag, "right") + 1
