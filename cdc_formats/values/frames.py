"""The frame of a schema registry: the id of its writer's schema in front of a key or a value.

::

    0x00 <id: 4 bytes, big-endian> <content>
    0x01 <GUID: 16 bytes> <content>
    0x03 0x00 <schema version's UUID: 16 bytes> <content>
    0x03 0x05 <schema version's UUID: 16 bytes> <content, compressed with zlib>

Confluent's serializers write the first two, and those of Apicurio, Karapace and Redpanda that are
compatible with them. AWS Glue's serializers write the others. No JSON text begins with these bytes,
so that JSON readers skip the frame.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple
from uuid import UUID

from cdc_formats.errors import MalformedMessageError


class GlueVersion(NamedTuple):
    """The id of a schema's version in AWS Glue."""

    uuid: UUID

    def __str__(self) -> str:
        return str(self.uuid)


SchemaId = int | UUID | GlueVersion

FRAME_SIZE = 5
"""The size of a 0x00 and a schema id."""
GLUE_FRAME_SIZE = 18
"""The size of AWS Glue's frame."""
_GUID_SIZE = 17
_PLAIN, _COMPRESSED = b"\3\0", b"\3\5"
MOST_CONTENT_BYTES = 64 * 2**20
"""The most bytes of a content, decompressed. Messages of Kafka are far smaller."""


class Frame(NamedTuple):
    """A frame in front of data.

    Attributes
    ----------
    schema : SchemaId
    size : int
        The offset of the content.
    compressed : bool
    """

    schema: SchemaId
    size: int
    compressed: bool = False

    def content(self, data: bytes) -> bytes:
        """Return the content of the data that begins with this frame.

        Raises
        ------
        MalformedMessageError
            When it cannot be decompressed.
        """
        return _decompressed(data[self.size :]) if self.compressed else data[self.size :]


def read_frame(data: bytes) -> Frame | None:
    """Return the frame in front of data; None if there is none."""
    if data[:1] == b"\0" and len(data) >= FRAME_SIZE:
        return Frame(int.from_bytes(data[1:FRAME_SIZE], "big"), FRAME_SIZE)
    if data[:1] == b"\1" and len(data) >= _GUID_SIZE:
        return Frame(UUID(bytes=data[1:_GUID_SIZE]), _GUID_SIZE)
    if data[:2] in (_PLAIN, _COMPRESSED) and len(data) >= GLUE_FRAME_SIZE:
        version = GlueVersion(UUID(bytes=data[2:GLUE_FRAME_SIZE]))
        return Frame(version, GLUE_FRAME_SIZE, data[:2] == _COMPRESSED)
    return None


def id_of(frame: bytes) -> SchemaId | None:
    """Return the schema id of a frame; None if the bytes are not one whose content is plain."""
    read = read_frame(frame)
    return read.schema if read and read.size == len(frame) and not read.compressed else None


def without_frame(data: bytes) -> bytes:
    r"""Return the content of data, which may be in a frame.

    Raises
    ------
    MalformedMessageError
        When the content cannot be decompressed.

    Examples
    --------
    >>> without_frame(b'\x00\x00\x00\x00\x07{"id": 1}'), without_frame(b'{"id": 1}')
    (b'{"id": 1}', b'{"id": 1}')
    """
    frame = read_frame(data)
    return data if frame is None else frame.content(data)


def _decompressed(data: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, MOST_CONTENT_BYTES)
    except zlib.error as error:
        raise MalformedMessageError(
            f"the content of AWS Glue's frame cannot be decompressed: {error}"
        ) from None
    if inflater.eof and not inflater.unused_data:
        return content
    if inflater.eof:
        reason = f"{len(inflater.unused_data)} bytes are left over after it"
    elif inflater.unconsumed_tail:
        reason = f"it has more than {MOST_CONTENT_BYTES >> 20} MiB"
    else:
        reason = "the bytes end before it does"
    raise MalformedMessageError(f"the content of AWS Glue's frame cannot be decompressed: {reason}")
