"""Read many Avro messages of one writer's schema together, with polars.

polars reads Avro object container files. The messages become one such file in memory: a header with
the schema, and one block with all messages. fastavro (`AvroSchema.read`) remains the specification.
A message is left to it unless this module proves that both read the same:

- The bytes are one value of the schema, in Avro's shortest encoding (`MessageBytes`). So each index of a
  union and each boolean is valid, which polars does not check, and no length makes it panic, of
  which it prints a trace.
- Each message is followed by a mark: random bytes and its number. If the marks of a message and of
  all messages before it are right, the reader read exactly the message's bytes.

Schemas with an array, a map, an enum, a null outside of a union, or another union than null and one
type are left to fastavro, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from io import BytesIO
from itertools import chain, count, repeat
from typing import Any

import fastavro
import msgspec
import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from cdc_formats.avro.records import AvroSchema, Type
from cdc_formats.values.json_reader import BatchReader, fields_of
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
_LONGEST_VARINT = 10


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
        sound = MessageBytes(messages).check(self.top)
        if not sound.all():
            whole = np.flatnonzero(sound).tolist()
            values, alone = self._read([messages[index] for index in whole])
            doubtful = np.flatnonzero(~sound).tolist()
            return values, sorted([*doubtful, *(whole[index] for index in alone)])
        return self._read(messages)

    def _read(self, messages: Sequence[bytes]) -> tuple[list[Any], list[int]]:
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
                step = -(-(end - start) // PARTS)
                parts += [(at, min(at + step, end)) for at in reversed(range(start, end, step))]
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
        decoded = self.to_list(table["message"].head(sound))
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
            return pl.read_avro(file)
        except (PolarsError, OSError, PanicException):
            return None


def marks_of(count: int) -> list[bytes]:
    """Return the marks that follow messages: in one process, the same ones for the same count."""
    return _most_marks(1 << count.bit_length())[:count]


@lru_cache(maxsize=4)
def _most_marks(count: int) -> list[bytes]:
    # Random: a producer cannot know the bytes of a mark, and write a message that contains one.
    random = os.urandom(_RANDOM_SIZE)
    return [random + number.to_bytes(_NUMBER_SIZE, "big") for number in range(count)]


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
        (field.encode_name, _lists(avro, field.type))
        if avro
        else (
            None,
            field.default_factory() if field.default is msgspec.NODEFAULT else field.default,
        )
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


def _value_type(avro: Any) -> Any:
    return next(of for of in avro if of != "null") if isinstance(avro, list) else avro


# --------------------------------------------------------------------------------------------------
# proof


class MessageBytes:
    """The bytes of messages, and how far each was compared with its schema."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        self.bytes = np.frombuffer(b"".join([*messages, b"\0"]), np.uint8)
        self.ends = np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)))
        self.at = np.append(0, self.ends[:-1]) if len(messages) else self.ends.copy()
        self.right = np.ones(len(messages), bool)

    def check(self, avro: Any) -> Bools:
        """Return which messages are values of a type, whole and in the shortest encoding."""
        self._skip(avro, np.ones(len(self.right), bool))
        whole: Bools = self.right & (self.at == self.ends)
        return whole

    def _skip(self, avro: Any, there: Bools) -> None:
        """Move behind a value of each message that has one."""
        if isinstance(avro, list):
            branch = self._byte()
            null = 2 * avro.index("null")
            self._require((branch == 0) | (branch == 2), there)
            self._move(1, there)
            self._skip(_value_type(avro), there & (branch != null))
        elif isinstance(avro, dict) and avro["type"] == "record":
            for field in avro["fields"]:
                self._skip(field["type"], there)
        elif avro == "boolean":
            self._require(self._byte() <= 1, there)
            self._move(1, there)
        elif avro in ("long", "string", "bytes"):
            number = self._varint(there)
            if avro != "long":
                self._require(number & 1 == 0, there)  # a negative length
                self._move(number >> 1, there)
        else:
            self._move(_SIZES[avro] if isinstance(avro, str) else avro["size"], there)

    def _byte(self) -> Any:
        return self.bytes[np.minimum(self.at, len(self.bytes) - 1)]

    def _require(self, true: Bools, there: Bools) -> None:
        self.right &= ~there | true

    def _move(self, size: Any, there: Bools) -> None:
        left = (self.ends - self.at).astype(np.uint64)
        self._require(left >= size, there)
        self.at += there * np.minimum(left, np.asarray(size, np.uint64)).astype(np.int64)

    def _varint(self, there: Bools) -> Any:
        """Return the numbers at this point as they are encoded, and move behind them."""
        number, more = np.zeros(len(there), np.uint64), there
        for place in range(_LONGEST_VARINT):
            byte = self._byte()
            number |= np.where(more, (byte & 0x7F).astype(np.uint64) << np.uint64(7 * place), 0)
            self._move(1, more)
            last = more & (byte < 0x80)
            # The shortest encoding has no last byte without bits, and 64 bits at most.
            self._require((byte > 0) | (place == 0), last)
            if place == _LONGEST_VARINT - 1:
                self._require(byte <= 1, more)
            more = more & ~last
            if not more.any():
                break
        return number
