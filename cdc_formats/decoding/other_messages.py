"""Names of messages that no format reads, but that resemble those of a format.

A format that refuses such a message would blame a field.

A message is looked at only after a format refused it, or before a sample's message is read as a row
without an operation.

Recognizes Protobuf, which no format reads.

Its bytes have no mark of their own, so that only a clear case is recognized.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cdc_formats.errors import DecodeError, MalformedMessageError, WriterSchemaError
from cdc_formats.values.frames import FRAME_SIZE, read_frame
from cdc_formats.values.json_reader import read_json

SENTENCE = (
    "Protobuf is not read: write Avro or JSON instead (Kafka Connect: value.converter), or parse "
    "the values with Spark's from_protobuf and pass the rows to ChangelogNormalize"
)
"""What to do with Protobuf."""
OF_REGISTRY = f"it is a PROTOBUF schema. {SENTENCE}"
"""The error of a schema that a registry has."""

_VARINT, _FIXED_64, _LENGTH_DELIMITED, _FIXED_32 = 0, 1, 2, 5


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
    if len(fields) < 2 or [number for number, _ in fields] != sorted(
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
    count, offset = _varint(data, start)
    for _ in range(count // 2 if count < 16 else 0):  # zigzag
        _, offset = _varint(data, offset) if offset else (0, 0)
    return 0 < offset < len(data) and is_protobuf(data[offset:])


def _fields(data: bytes) -> list[tuple[int, bytes]]:
    """Return the numbers of the fields and the bytes of those with a length.

    The result is empty if the bytes are no message.
    """
    fields: list[tuple[int, bytes]] = []
    offset = 0
    while offset < len(data):
        tag, offset = _varint(data, offset)
        if not offset:
            return []
        number, kind = tag >> 3, tag & 7
        value = b""
        if kind == _VARINT:
            _, offset = _varint(data, offset)
        elif kind == _LENGTH_DELIMITED:
            size, begin = _varint(data, offset)
            offset = begin + size if begin else 0
            value = data[begin:offset]
        else:
            offset = {_FIXED_64: offset + 8, _FIXED_32: offset + 4}.get(kind, 0)
        if not 0 < number <= 1_000 or not 0 < offset <= len(data):
            return []
        fields.append((number, value))
    return fields


def _varint(data: bytes, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it; 0 if there is none."""
    number = 0
    for index, byte in enumerate(data[offset : offset + 10]):
        number |= (byte & 127) << (7 * index)
        if byte < 128:
            return number, offset + index + 1
    return 0, 0


def _is_word(value: bytes) -> bool:
    try:
        return len(value) >= 3 and value.decode().isprintable()
    except UnicodeDecodeError:
        return False


_LENGTH = 8


def _connector(message: Mapping[str, Any]) -> Any:
    source = message.get("source")
    return source.get("connector", source.get("origin")) if isinstance(source, dict) else None


WRAPPED = (
    "the row is in `after`, without an operation, as in CockroachDB's envelope=wrapped (its "
    "default): read it as cockroachdb-json"
)


def is_wrapped_row(names: Collection[str]) -> bool:
    """Whether a message's fields are those of CockroachDB's wrapped envelope."""
    return "after" in names and {
        "after",
        "before",
        "key",
        "mvcc_timestamp",
        "topic",
        "updated",
    }.issuperset(names)


_TEXT_OF_MONGODB = (
    "MongoDB's connector wrote the message, or its documents, as text in JSON: set its "
    "output.format.value=json and value.converter=org.apache.kafka.connect.storage.StringConverter"
)
_OBJECTS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        lambda message: (
            isinstance(encrypted := message.get("encrypted"), dict)
            and {"iv", "bytes"} <= set(encrypted)
        ),
        "Maxwell encrypted the message, and no format decrypts it: set Maxwell's encrypt=none",
    ),
    (
        lambda message: (
            "specversion" in message and str(message.get("type")).startswith("io.debezium.")
        ),
        "the message is a CloudEvent around Debezium's, which no format reads: set the connector's "
        "value.converter to org.apache.kafka.connect.json.JsonConverter",
    ),
    (
        lambda message: (
            "specversion" in message
            and str(message.get("type")).startswith("com.microsoft.SQL.CES.")
        ),
        "the message is of SQL Server's change event streaming: read it as sqlserver-ces-json",
    ),
    (
        lambda message: {"version", "type", "commitTs", "buildTs"} <= set(message),
        "the message is of TiCDC's simple protocol: read it as ticdc-simple-json",
    ),
    (
        lambda message: _connector(message) == "cassandra",
        "the message is of Debezium's connector for Cassandra, whose rows have cells instead of "
        "values, and which no format reads: write the values with a transform of yours",
    ),
    (
        lambda message: (
            _connector(message) == "cockroachdb"
            and message.get("op") == "d"
            and message.get("before") is None
        ),
        "CockroachDB wrote the delete without its row, which no format reads: create the changefeed "
        "with the option diff",
    ),
    (is_wrapped_row, WRAPPED),
    (
        lambda message: isinstance(message.get("__crdb__"), dict),
        "the message is of CockroachDB's envelope=bare: read it as cockroachdb-json",
    ),
    (
        lambda message: (
            {"operationType", "ns"} <= set(message)
            and any(isinstance(message.get(name), str) for name in ("fullDocument", "documentKey"))
        ),
        _TEXT_OF_MONGODB,
    ),
    (
        lambda message: {"operationType", "ns", "documentKey"} <= set(message),
        "the message is a change event of MongoDB: read it as mongodb-json",
    ),
    (
        lambda message: message.get("op_type") == "K" and "table" in message,
        (
            "GoldenGate writes this update of a primary key as op_type K, which no format reads: "
            "set its pkUpdateHandling=delete-insert"
        ),
    ),
    (
        lambda message: (
            {"op_type", "op_ts", "pos"} <= set(message)
            and message["op_type"] != "T"
            and {"before", "after"}.isdisjoint(message)
        ),
        "GoldenGate wrote the message in row mode, which this format does not read: set its format "
        "to json (operation mode), or read it as op-json with op_field='op_type'",
    ),
    (
        lambda message: (
            set(message) == {"data", "type"}
            and message["type"] in ("INSERT", "DELETE")
            and isinstance(message["data"], dict)
        ),
        (
            "the message is of SeaTunnel's maxwell_json, which differs from Maxwell's: set its "
            "sink's format to debezium_json or canal_json"
        ),
    ),
    (
        lambda message: (
            message.get("op_type") == "D"
            and message.get("before") is None
            and isinstance(message.get("after"), dict)
        ),
        (
            "the delete is of SeaTunnel's ogg_json, with the row in `after`: set its sink's format "
            "to debezium_json or canal_json"
        ),
    ),
)
"""Whether a JSON object is another message, and the sentence about it."""
_PROTOBUF = f"the message looks like Protobuf. {SENTENCE}"


def other_message(value: bytes | None) -> str:
    """Return what a message is that no format reads, and what to do; empty for all others.

    Parameters
    ----------
    value : bytes or None

    Examples
    --------
    >>> other_message(b'{"encrypted": {"iv": "aXY=", "bytes": "eA=="}}')
    "Maxwell encrypted the message, and no format decrypts it: set Maxwell's encrypt=none"
    """
    if not value:
        return ""
    data = bytes(value)
    if data[0] == 0:
        size = int.from_bytes(data[:_LENGTH], "big")
        if 0 < size <= len(data) - _LENGTH and isinstance(
            _json(data[_LENGTH : _LENGTH + size]), dict
        ):
            return (
                "the message is a batch of TiCDC's open protocol, which no format reads: set the changefeed's "
                "protocol=canal-json"
            )
        return _PROTOBUF if is_framed_protobuf(data, FRAME_SIZE) else _of_json(_json(data))
    frame = read_frame(data)  # one that begins with another byte
    if frame is not None and is_framed_protobuf(data, frame.size):
        return _PROTOBUF
    return _PROTOBUF if is_protobuf(data) else _of_json(_json(data))


def _of_json(message: Any) -> str:
    text = message.get("payload") if isinstance(message, dict) else message
    if isinstance(text, str) and '"operationType"' in text:
        return _TEXT_OF_MONGODB
    return (
        next((sentence for is_other, sentence in _OBJECTS if is_other(message)), "")
        if isinstance(message, dict)
        else ""
    )


def _json(data: bytes) -> Any:
    try:
        return read_json(data)
    except (MalformedMessageError, RecursionError):
        return None


def named(error: DecodeError, value: bytes | None, identifier: str) -> DecodeError:
    """Return a refused message's error, which begins with what the message is, if that is known.

    Parameters
    ----------
    error : DecodeError
    value : bytes or None
    identifier : str
        The format that refused it.
    """
    sentence = other_message(value)
    # The schema registry knows what it is, and a format is not its own remedy.
    if (
        not sentence
        or isinstance(error, WriterSchemaError)
        or f"read it as {identifier}" in sentence
    ):
        return error
    return type(error)(
        f"{sentence} ({error.reason})",
        error.path,
        error.field,
        error.where,
        error.excerpt,
        f"{sentence} ({error.bare or error.reason})",
    )


def refuse_other(value: bytes | None) -> None:
    """Raise if a message is one that no format reads.

    Raises
    ------
    MalformedMessageError
    """
    if sentence := other_message(value):
        raise MalformedMessageError(sentence)
