"""Names of messages that no format reads, but that resemble those of a format.

A format that refuses such a message would blame a field.

A message is looked at only after a format refused it, or before a sample's message is read as a row
without an operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from cdc_formats.errors import DecodeError, MalformedMessageError, WriterSchemaError

from .frames import FRAME_SIZE, read_frame
from .json_reader import read_json
from .protobuf import SENTENCE as PROTOBUF, is_framed_protobuf, is_protobuf

_LENGTH = 8


def _is_goldengate_row(message: Mapping[str, Any]) -> bool:
    if not {"op_type", "op_ts", "pos"} <= set(message) or message["op_type"] == "T":
        return False
    return "before" not in message and "after" not in message


def _is_seatunnel_maxwell(message: Mapping[str, Any]) -> bool:
    return (
        set(message) == {"data", "type"}
        and message["type"] in ("INSERT", "DELETE")
        and isinstance(message["data"], dict)
    )


def _is_seatunnel_delete(message: Mapping[str, Any]) -> bool:
    return (
        message.get("op_type") == "D"
        and message.get("before") is None
        and isinstance(message.get("after"), dict)
    )


def _is_encrypted(message: Mapping[str, Any]) -> bool:
    encrypted = message.get("encrypted")
    return isinstance(encrypted, dict) and {"iv", "bytes"} <= set(encrypted)


def _connector(message: Mapping[str, Any]) -> Any:
    source = message.get("source")
    return source.get("connector") if isinstance(source, dict) else None


_OBJECTS: tuple[tuple[Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        _is_encrypted,
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
        lambda message: {"version", "type", "commitTs", "buildTs"} <= set(message),
        (
            "the message is of TiCDC's simple protocol, which no format reads: set the "
            "changefeed's protocol=canal-json"
        ),
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
    (
        lambda message: message.get("op_type") == "K" and "table" in message,
        (
            "GoldenGate writes this update of a primary key as op_type K, which no format reads: "
            "set its pkUpdateHandling=delete-insert"
        ),
    ),
    (
        _is_goldengate_row,
        "GoldenGate wrote the message in row mode, which this format does not read: set its format "
        "to json (operation mode), or read it as op-json with op_field='op_type'",
    ),
    (
        _is_seatunnel_maxwell,
        (
            "the message is of SeaTunnel's maxwell_json, which differs from Maxwell's: set its "
            "sink's format to debezium_json or canal_json"
        ),
    ),
    (
        _is_seatunnel_delete,
        (
            "the delete is of SeaTunnel's ogg_json, with the row in `after`: set its sink's format "
            "to debezium_json or canal_json"
        ),
    ),
)
"""Whether a JSON object is another message, and the sentence about it."""
_PROTOBUF = f"the message looks like Protobuf. {PROTOBUF}"
_OPEN_PROTOCOL = (
    "the message is a batch of TiCDC's open protocol, which no format reads: set the changefeed's "
    "protocol=canal-json"
)


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
        return _behind_bytes(data)
    frame = read_frame(data)  # one that begins with another byte
    if frame is not None and is_framed_protobuf(data, frame.size):
        return _PROTOBUF
    if is_protobuf(data):
        return _PROTOBUF
    return _of_json(_json(data))


def _of_json(message: Any) -> str:
    return (
        next((sentence for is_other, sentence in _OBJECTS if is_other(message)), "")
        if isinstance(message, dict)
        else ""
    )


def _behind_bytes(data: bytes) -> str:
    size = int.from_bytes(data[:_LENGTH], "big")
    if 0 < size <= len(data) - _LENGTH and isinstance(_json(data[_LENGTH : _LENGTH + size]), dict):
        return _OPEN_PROTOCOL
    return _PROTOBUF if is_framed_protobuf(data, FRAME_SIZE) else _of_json(_json(data))


def _json(data: bytes) -> Any:
    try:
        return read_json(data)
    except (MalformedMessageError, RecursionError):
        return None


def named(error: DecodeError, value: bytes | None) -> DecodeError:
    """Return a refused message's error, which begins with what the message is, if that is known.

    Parameters
    ----------
    error : DecodeError
    value : bytes or None
    """
    sentence = other_message(value)
    if not sentence or isinstance(error, WriterSchemaError):  # the schema registry knows what it is
        return error
    bare = f"{sentence} ({error.bare or error.reason})"
    return type(error)(
        f"{sentence} ({error.reason})", error.path, error.field, error.where, error.excerpt, bare
    )


def refuse_other(value: bytes | None) -> None:
    """Raise if a message is one that no format reads.

    Raises
    ------
    MalformedMessageError
    """
    if sentence := other_message(value):
        raise MalformedMessageError(sentence)
