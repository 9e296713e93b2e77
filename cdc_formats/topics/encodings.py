"""Encoding of a key or value in any format: null, JSON, schema registry framing, text or bytes."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

from cdc_formats.decoding.frames import read_id
from cdc_formats.decoding.json_reader import read_json
from cdc_formats.decoding.wrappers import is_wrapped
from cdc_formats.errors import MalformedMessageError
from cdc_formats.events import Headers

NULL, EMPTY = "null", "empty"
JSON_OBJECT, JSON_BLOCK, JSON_VALUE, JSON_NULL = (
    "JSON object",
    "JSON with a schema block",
    "JSON value",
    "JSON null",
)
JSON_PAYLOAD = "JSON with a payload and no schema block"
CONFLUENT, CONFLUENT_JSON = "Confluent framing (Avro or Protobuf)", "Confluent framing, then JSON"
TEXT, BYTES = "text", "bytes"


class Encoded(NamedTuple):
    """The encoding and content of a key or value.

    Attributes
    ----------
    encoding : str
        One of this module's constants.
    value : Any
        The JSON value without its schema block, or the text; otherwise None.
    schema_id : str
        The id of a schema in a registry; empty if there is no id.
    """

    encoding: str
    value: Any = None
    schema_id: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON object; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}


class SampledRecord(NamedTuple):
    """A Kafka record.

    Attributes
    ----------
    topic : str
    partition, offset : int
    timestamp : int
        Milliseconds since 1970-01-01 UTC; -1 if there is none.
    key, value : bytes or None
    headers : tuple of (str, bytes or None)
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def where(self) -> str:
        """``topic[partition]@offset``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


class InspectedRecord(NamedTuple):
    """A record with the encodings of its key and value."""

    record: SampledRecord
    key: Encoded
    value: Encoded


def inspect_part(part: str, data: bytes | None, headers: Headers = ()) -> Encoded:
    """Return the encoding and content of a key or value.

    Parameters
    ----------
    part : str
        ``key`` or ``value``.
    data : bytes or None
    headers : sequence of (str, bytes or None)
        A header may have the schema's id.

    Examples
    --------
    >>> inspect_part("key", b'{"id": 1}')
    Encoded(encoding='JSON object', value={'id': 1}, schema_id='')
    """
    if data is None:
        return Encoded(NULL)
    if not data:
        return Encoded(EMPTY)
    data = bytes(data)
    if any(name == f"__{part}_schema_id" and value for name, value in headers):
        return Encoded(CONFLUENT, schema_id="in a header")
    if (framed := _framed(data)) is not None:
        return framed
    try:
        return _of_json(read_json(data))
    except (MalformedMessageError, RecursionError):
        return Encoded(TEXT, data.decode()) if _is_text(data) else Encoded(BYTES)


def _framed(data: bytes) -> Encoded | None:
    """Return data that begins with a schema id: 0x00 and a number from 1, or 0x01 and 16 bytes."""
    identified = read_id(data)
    if identified is None or not identified[0] or len(data) == identified[1]:
        return None
    number, content = identified[0], data[identified[1] :]
    name = str(number) if isinstance(number, int) else number.hex
    if content[:1] in (b"{", b"["):
        with suppress(MalformedMessageError, RecursionError):
            return Encoded(CONFLUENT_JSON, read_json(content), name)
    # Text may begin with 0x01.
    return None if data[0] == 1 and _is_text(data) else Encoded(CONFLUENT, schema_id=name)


def _of_json(value: Any) -> Encoded:
    if value is None:
        return Encoded(JSON_NULL)
    if not isinstance(value, dict):
        return Encoded(JSON_VALUE, value)
    if is_wrapped(value) and isinstance(value.get("schema"), (dict, type(None))):
        return Encoded(JSON_BLOCK if "schema" in value else JSON_PAYLOAD, value["payload"])
    return Encoded(JSON_OBJECT, value)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
