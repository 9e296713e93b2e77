"""Avro's binary encoding to values: readers that are put together once for a schema, from one `Part` for each of its types.

A part reads one value (and converts it where it is told to), or skips it; it takes the data and where the value begins, and returns
where the next one does. A record's part is compiled to straight Python code, without a call for what most fields are; for
``{id: long, name: null or string, balance: bytes}`` without its ``id``::

    while data[at] > 127: at += 1
    at += 1
    i = data[at]; at += 1
    if i == 2:
        n = LENGTHS[data[at]]; at += 1
        if n < 0: n, at = length(data, at - 1)
        v0 = data[at : at + n].decode(); at += n
    elif i == 0: v0 = None
    else: v0, at = read1(data, at - 1)
    ...

Nothing of a schema but its shape gets into that code: no name, no text.

This is not fastavro, which parses the schemas and writes: fastavro reads at less than half the speed, takes a negative index of a union
or an enum for its last branch and a number of too many bits for another number, never ends over an array of nulls, and ends the
process over a schema that contains itself. Here bytes that are not of the schema are always an error, found before anything is
allocated by a length that they claim: what is read past the end is an ``IndexError``, or seen by `whole`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .errors import MalformedMessageError, TypeConversionError
from .handling import Converter, Unfit

Read = Callable[[bytes, int], tuple[Any, int]]
Skip = Callable[[bytes, int], int]

_LENGTHS = [byte >> 1 if byte < 128 and not byte & 1 else -1 for byte in range(256)]
"""A length of one byte, by that byte; -1: it has more, or is negative."""
_SHIFTS = range(7, 70, 7)
_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")


class Part(NamedTuple):
    """How one value of a type is read and skipped.

    Parameters
    ----------
    read : callable
        From the data and a place to the converted value and the next place.
    skip : callable
        From the data and a place to the next place.
    kind : str
        What a record's code does in line: a key of `_READS`; empty for a call.
    convert : callable or None
        What `read` does to each value (never None), where it does anything.
    null : int or None
        The index of the null branch, where this is a union of null and one other type.
    other : Part or None
        The part of that other type.
    """

    read: Read
    skip: Skip
    kind: str = ""
    convert: Converter | None = None
    null: int | None = None
    other: Part | None = None


# ------------------------------------------------------------------------------------------------------------- primitives


def _unsigned(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    if byte < 128:
        return byte, at + 1
    number = byte & 127
    for shift in _SHIFTS:
        at += 1
        byte = data[at]
        if byte < 128:
            number |= byte << shift
            if number >> 64:
                break
            return number, at + 1
        number |= (byte & 127) << shift
    raise MalformedMessageError("not Avro: a number of more than 64 bits")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    return number >> 1 ^ -(number & 1), at


def _unsigned_int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned(data, at)
    if number >> 32:
        raise MalformedMessageError("not Avro: an int of more than 32 bits")
    return number, at


def _int(data: bytes, at: int) -> tuple[int, int]:
    number, at = _unsigned_int(data, at)
    return number >> 1 ^ -(number & 1), at


def _length(data: bytes, at: int) -> tuple[int, int]:
    length, at = _varint(data, at)
    if length < 0:
        raise MalformedMessageError("not Avro: a negative length")
    return length, at


def _skip_varint(data: bytes, at: int) -> int:
    while data[at] > 127:
        at += 1
    return at + 1


def _bytes(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _length(data, at)
    return data[at : at + length], at + length


def _string(data: bytes, at: int) -> tuple[str, int]:
    length, at = _length(data, at)
    return data[at : at + length].decode(), at + length


def _skip_bytes(data: bytes, at: int) -> int:
    length, at = _length(data, at)
    return at + length


def _boolean(data: bytes, at: int) -> tuple[bool, int]:
    byte = data[at]
    if byte > 1:
        raise MalformedMessageError("not Avro: a boolean that is neither 0 nor 1")
    return byte == 1, at + 1


def _float(data: bytes, at: int) -> tuple[float, int]:
    number: float = _FLOAT.unpack_from(data, at)[0]
    return number, at + 4


def _double(data: bytes, at: int) -> tuple[float, int]:
    number: float = _DOUBLE.unpack_from(data, at)[0]
    return number, at + 8


_PRIMITIVES: dict[str, Part] = {
    "null": Part(lambda data, at: (None, at), lambda data, at: at),
    "boolean": Part(_boolean, lambda data, at: at + 1, "boolean"),
    "int": Part(_int, _skip_varint, "int"),
    "long": Part(_varint, _skip_varint, "long"),
    "float": Part(_float, lambda data, at: at + 4, "float"),
    "double": Part(_double, lambda data, at: at + 8, "double"),
    "bytes": Part(_bytes, _skip_bytes, "bytes"),
    "string": Part(_string, _skip_bytes, "string"),
}
PRIMITIVES = frozenset(_PRIMITIVES)
"""Avro's types that are no composition of others."""


def primitive(kind: str, convert: Converter | None = None) -> Part:
    """Return the part of one of Avro's primitive types."""
    return converted(_PRIMITIVES[kind], convert)


def converted(part: Part, convert: Converter | None) -> Part:
    """Return a part whose values, which are never None, are converted."""
    if convert is None:
        return part
    of, to = part.read, convert

    def read(data: bytes, at: int) -> tuple[Any, int]:
        value, at = of(data, at)
        return to(value), at

    return part._replace(read=read, convert=convert)


def fixed(size: int, convert: Converter | None = None) -> Part:
    """Return the part of ``size`` bytes."""
    return converted(Part(lambda data, at: (data[at : at + size], at + size), lambda data, at: at + size), convert)


def enum(symbols: Sequence[str], convert: Converter | None = None) -> Part:
    """Return the part of an enum, whose values are its symbols."""

    def read(data: bytes, at: int) -> tuple[str, int]:
        index, at = _varint(data, at)
        if not 0 <= index < len(symbols):
            raise MalformedMessageError(f"not Avro of this schema: symbol {index} of an enum of {len(symbols)}")
        return symbols[index], at

    return converted(Part(read, _skip_varint), convert)


# ---------------------------------------------------------------------------------------------------------- compositions


def union(branches: Sequence[Part]) -> Part:
    """Return the part of a union; its nulls stay None."""

    def branch(data: bytes, at: int) -> tuple[Part, int]:
        index, at = _varint(data, at)
        if not 0 <= index < len(branches):
            raise MalformedMessageError(f"not Avro of this schema: branch {index} of a union of {len(branches)}")
        return branches[index], at

    def read(data: bytes, at: int) -> tuple[Any, int]:
        part, at = branch(data, at)
        return part.read(data, at)

    def skip(data: bytes, at: int) -> int:
        part, at = branch(data, at)
        return part.skip(data, at)

    nulls = [index for index, part in enumerate(branches) if part is _PRIMITIVES["null"]]
    if len(branches) == 2 and len(nulls) == 1:
        return Part(read, skip, null=nulls[0], other=branches[1 - nulls[0]])
    return Part(read, skip)


def _items(data: bytes, at: int, one: Callable[[int], int]) -> int:
    """Call `one` for each item of an array's or a map's blocks; return the place after the last block."""
    while True:
        count, at = _varint(data, at)
        if count == 0:
            return at
        if count < 0:  # with the block's size in bytes, which nothing here needs
            count, (_, at) = -count, _length(data, at)
        if count > len(data) - at:  # every item has a byte at least
            raise MalformedMessageError("not Avro of this schema: more items than bytes")
        for _ in range(count):
            at = one(at)


def array(item: Part, convert: Converter | None = None) -> Part:
    """Return the part of an array, a list; an item must have at least one byte."""
    of, over = item.read, item.skip

    def read(data: bytes, at: int) -> tuple[list[Any], int]:
        values: list[Any] = []

        def one(at: int) -> int:
            value, at = of(data, at)
            values.append(value)
            return at

        return values, _items(data, at, one)

    return converted(Part(read, lambda data, at: _items(data, at, lambda at: over(data, at))), convert)


def mapping(value: Part, convert: Converter | None = None) -> Part:
    """Return the part of a map, a dict."""
    of, over = value.read, value.skip

    def read(data: bytes, at: int) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}

        def one(at: int) -> int:
            key, at = _string(data, at)
            entries[key], at = of(data, at)
            return at

        return entries, _items(data, at, one)

    return converted(Part(read, lambda data, at: _items(data, at, lambda at: over(data, _skip_bytes(data, at)))), convert)


class Field(NamedTuple):
    """A field of a record that is read.

    Parameters
    ----------
    part : Part
    slot : int or None
        Where its value stands in the record that is returned; None: it is skipped.
    path : str
        Where it is in the message, for errors.
    mark : bool
        Whether the value is skipped, and its place taken instead, for those who may read it later.
    """

    part: Part
    slot: int | None = None
    path: str = ""
    mark: bool = False


_LENGTH = "n = LENGTHS[data[at]]; at += 1\nif n < 0: n, at = length(data, at - 1)\n"
_NUMBER = """n = data[at]; at += 1
if n > 127:
  if data[at] < 128: n += (data[at] << 7) - 128; at += 1
  else: n, at = {unsigned}(data, at - 1)
{{v}} = n >> 1 ^ -(n & 1)"""
_READS = {
    "boolean": "if data[at] > 1: read{n}(data, at)\n{v} = data[at] == 1; at += 1",
    "int": _NUMBER.format(unsigned="unsigned_int"),
    "long": _NUMBER.format(unsigned="unsigned"),
    "float": "{v} = float_at(data, at)[0]; at += 4",
    "double": "{v} = double_at(data, at)[0]; at += 8",
    "bytes": _LENGTH + "{v} = data[at : at + n]; at += n",
    "string": _LENGTH + "{v} = data[at : at + n].decode(); at += n",
    "": "{v}, at = read{n}(data, at)",
}
_SKIPS = {
    "boolean": "at += 1",
    "int": "while data[at] > 127: at += 1\nat += 1",
    "long": "while data[at] > 127: at += 1\nat += 1",
    "float": "at += 4",
    "double": "at += 8",
    "bytes": _LENGTH + "at += n",
    "string": _LENGTH + "at += n",
    "": "at = skip{n}(data, at)",
}
_NAMES = {
    "LENGTHS": _LENGTHS,
    "length": _length,
    "unsigned_int": _unsigned_int,
    "unsigned": _unsigned,
    "float_at": _FLOAT.unpack_from,
    "double_at": _DOUBLE.unpack_from,
    "Unfit": Unfit,
    "TypeConversionError": TypeConversionError,
}


def record(fields: Sequence[Field], width: int | None = None, *, as_list: bool = False) -> Part:
    """Return the part of a record: a tuple (or a list) of its fields' values by their slots, None where no field has a slot.

    Parameters
    ----------
    fields : sequence of Field
        In the order of the schema.
    width : int or None
        How many slots there are; None: as many as fields.

    Raises
    ------
    TypeConversionError
        From the part, when a field's value does not convert.
    """
    names: dict[str, Any] = {**_NAMES, "PATHS": [field.path for field in fields]}
    for number, part in enumerate(field.part for field in fields):
        of = part.other or part
        names |= {f"read{number}": of.read, f"skip{number}": of.skip, f"convert{number}": of.convert}
        names |= {f"union_read{number}": part.read, f"union_skip{number}": part.skip}
    slots = {field.slot: f"v{number}" for number, field in enumerate(fields) if field.slot is not None}
    values = "".join(slots.get(slot, "None") + ", " for slot in range(len(fields) if width is None else width))
    lines = [
        "def read(data, at):",
        "  field = 0",
        "  try:",
        *(f"    {line}" for line in _code(fields, names)),
        f"    return {f'[{values}]' if as_list else f'({values})'}, at",
        "  except Unfit as error:",
        "    raise TypeConversionError(str(error), PATHS[field], bare=error.bare) from None",
        "def skip(data, at):",
        *(f"  {line}" for line in _code([Field(field.part) for field in fields], names)),
        "  return at",
    ]
    # Made of the templates above and of numbers alone.
    exec("\n".join(lines), names)
    return Part(names["read"], names["skip"])


def _code(fields: Sequence[Field], names: dict[str, Any]) -> list[str]:
    """Return the lines that read and skip fields, one after the other; what they need goes into `names`."""
    lines, number = [], 0
    while number < len(fields):
        if fields[number].mark:
            lines.append(f"v{number} = at")
        run = _run_of_numbers(fields, number)
        if run > 1:
            parts = [field.part for field in fields[number : number + run]]
            names[f"run{number}_{run}"] = re.compile(b"".join(map(_number_bytes, parts))).match
            lines += [f"m = run{number}_{run}(data, at)", "if m: at = m.end()"]
            lines += ["else: " + "; ".join(f"at = union_skip{n}(data, at)" for n in range(number, number + run))]
        else:
            lines += _part_code(number, fields[number].part, fields[number].slot is not None and not fields[number].mark)
        number += max(run, 1)
    return lines


def _run_of_numbers(fields: Sequence[Field], start: int) -> int:
    """Return how many fields from one on are numbers that are skipped: a regular expression goes over all of them at once."""
    run = 0
    for place, field in enumerate(fields[start:]):
        marked = field.mark and place == 0
        if (field.part.other or field.part).kind not in ("int", "long") or not (field.slot is None or marked) or (field.mark and place):
            break
        run += 1
    return run


def _number_bytes(part: Part) -> bytes:
    number = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
    if part.null is None:
        return number
    null, other = (b"\\x00", b"\\x02") if part.null == 0 else (b"\\x02", b"\\x00")
    return b"(?:" + other + number + b"|" + null + b")"


def _part_code(number: int, part: Part, wanted: bool) -> list[str]:
    """Return the lines that read a field into its variable, or skip it."""
    of = part.other or part
    lines = (_READS if wanted else _SKIPS)[of.kind].format(v=f"v{number}", n=number).split("\n")
    if wanted and of.kind and of.convert is not None:
        lines.append(f"v{number} = convert{number}(v{number})")
    if wanted and (of.convert is not None or not of.kind):
        lines.insert(0, f"field = {number}")
    if part.null is None:
        return lines
    nothing = f"v{number} = None" if wanted else "pass"
    # An index that is not written in its one byte is left to the union.
    otherwise = f"v{number}, at = union_read{number}(data, at - 1)" if wanted else f"at = union_skip{number}(data, at - 1)"
    head = ["i = data[at]; at += 1", f"if i == {2 - 2 * part.null}:", *(f"  {line}" for line in lines)]
    return [*head, f"elif i == {2 * part.null}: {nothing}", f"else: {otherwise}"]


# ----------------------------------------------------------------------------------------------------------------- whole


def whole(part: Part) -> Callable[[bytes, int], Any]:
    """Return the function from data, and the place where Avro begins in it, to its one value.

    Raises
    ------
    MalformedMessageError
        From the function, when the bytes are not of the schema, end too early, or are left over.
    TypeConversionError
        From the function, when a value does not convert.
    """
    read = part.read

    def read_whole(data: bytes, at: int) -> Any:
        try:
            value, end = read(data, at)
        except _FAILURES as error:
            raise _malformed(error) from None
        if end == len(data):
            return value
        raise _cut() if end > len(data) else MalformedMessageError(f"{len(data) - end} bytes are left over after the Avro of this schema")

    return read_whole


def marked(part: Part) -> Callable[[bytes, int], Any]:
    """Return the function from data, and a place that was marked in it, to the value there; it raises as that of `whole`."""
    read = part.read

    def read_marked(data: bytes, at: int) -> Any:
        try:
            return read(data, at)[0]
        except _FAILURES as error:
            raise _malformed(error) from None

    return read_marked


_FAILURES = (IndexError, struct.error, UnicodeDecodeError)


def _malformed(error: Exception) -> MalformedMessageError:
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessageError(f"not Avro of this schema: a string is not UTF-8 ({error.reason} at its byte {error.start})")
    return _cut()


def _cut() -> MalformedMessageError:
    return MalformedMessageError("not Avro of this schema: the bytes end before the value does")
