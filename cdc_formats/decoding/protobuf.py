"""Recognizes Protobuf, which no format reads.

Its bytes have no mark of their own, so that only a clear case is recognized.
"""

from __future__ import annotations

SENTENCE = (
    "Protobuf is not read: write Avro or JSON instead (Kafka Connect: value.converter), or parse "
    "the values with Spark's from_protobuf and pass the rows to ChangelogNormalize"
)
"""What to do with Protobuf."""
OF_REGISTRY = f"it is a PROTOBUF schema. {SENTENCE}"
"""The error of a schema that a registry has."""

_VARINT, _FIXED_64, _LENGTH, _FIXED_32 = 0, 1, 2, 5
_MOST_FIELD = 1_000
_LONGEST_VARINT = 10
_FEWEST_FIELDS = 2
_SHORTEST_TEXT = 3


def is_protobuf(data: bytes) -> bool:
    """Whether bytes are clearly a Protobuf message.

    They are fields in the order of their numbers, at least two, one of which is text; and there is
    a control character, which text has not.

    Examples
    --------
    >>> is_protobuf(bytes([8, 1, 18, 4]) + b"bike"), is_protobuf(b"bike"), is_protobuf(b'{"id": 1}')
    (True, False, False)
    """
    fields = _fields(data)
    if len(fields) < _FEWEST_FIELDS or [number for number, _ in fields] != sorted(
        number for number, _ in fields
    ):
        return False
    return any(map(_is_word, (value for _, value in fields))) and any(
        byte < 32 and byte not in b"\t\n\r" for byte in data
    )


def is_framed_protobuf(data: bytes, start: int) -> bool:
    """Whether bytes from `start` are clearly a Protobuf message behind its type's indexes.

    A registry's serializers write it in this way.
    """
    count, place = _varint(data, start)
    for _ in range(count // 2 if count < 16 else 0):  # zigzag
        _, place = _varint(data, place) if place else (0, 0)
    return 0 < place < len(data) and is_protobuf(data[place:])


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Return the numbers of the fields and the bytes of those with a length.

    The result is empty if the bytes are no message.
    """
    fields: list[tuple[int, bytes]] = []
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if not place:
            return []
        number, kind = tag >> 3, tag & 7
        value = b""
        if kind == _VARINT:
            _, place = _varint(data, place)
        elif kind == _LENGTH:
            size, begin = _varint(data, place)
            place = begin + size if begin else 0
            value = data[begin:place]
        else:
            place = {_FIXED_64: place + 8, _FIXED_32: place + 4}.get(kind, 0)
        if not 0 < number <= _MOST_FIELD or not 0 < place <= len(data):
            return []
        fields.append((number, value))
    return fields


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Return a number and the place after it; 0 if there is none."""
    number = 0
    for index, byte in enumerate(data[place : place + _LONGEST_VARINT]):
        number |= (byte & 127) << (7 * index)
        if byte < 128:
            return number, place + index + 1
    return 0, 0


def _is_word(value: bytes) -> bool:
    try:
        return len(value) >= _SHORTEST_TEXT and value.decode().isprintable()
    except UnicodeDecodeError:
        return False
