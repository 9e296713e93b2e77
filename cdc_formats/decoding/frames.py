"""The frame of a schema registry: the id of its writer's schema in front of a key or a value.

::

    0x00 <id: 4 bytes, big-endian> <content>
    0x01 <GUID: 16 bytes> <content>

Confluent's serializers write it, and those of Apicurio, Karapace and Redpanda that are compatible
with them. No JSON text begins with these bytes, so that JSON readers skip the frame.
"""

from __future__ import annotations

from uuid import UUID

SchemaId = int | UUID

FRAME_SIZE = 5
"""The size of a 0x00 and a schema id."""
_GUID_SIZE = 17


def number_of(frame: bytes) -> int | None:
    """Return the schema id in a value's first `FRAME_SIZE` bytes; None if they are no frame."""
    return int.from_bytes(frame[1:], "big") if len(frame) == FRAME_SIZE and frame[0] == 0 else None


def read_id(data: bytes) -> tuple[SchemaId, int] | None:
    """Return the schema id in front of data, and the offset of its content.

    It returns None if there is no id.
    """
    number = number_of(data[:FRAME_SIZE])
    if number is not None:
        return number, FRAME_SIZE
    if len(data) >= _GUID_SIZE and data[0] == 1:
        return UUID(bytes=data[1:_GUID_SIZE]), _GUID_SIZE
    return None


def without_frame(data: bytes) -> bytes:
    r"""Return the content of data, which may be in a frame.

    Examples
    --------
    >>> without_frame(b'\x00\x00\x00\x00\x07{"id": 1}'), without_frame(b'{"id": 1}')
    (b'{"id": 1}', b'{"id": 1}')
    """
    identified = read_id(data)
    return data if identified is None else data[identified[1] :]
