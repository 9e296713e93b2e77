"""What type checkers say about programs with `cdc_formats`. Nothing here runs.

Each line with ignore comments must be an error: an ignore comment that is not needed is an error,
too. `assert_type` states the type of a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from typing_extensions import assert_type

from cdc_formats import (
    Change,
    ChangelogMode,
    Column,
    Decoder,
    Encoder,
    Event,
    Format,
    Ignored,
    KeyedChange,
    RowKind,
    columns,
    get_format,
    list_formats,
    read_object,
    register_format,
    to_ddl,
    to_python,
)
from cdc_formats.errors import ChangelogError, DecodeError
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.topics.kafka import infer_topic, sample_topic


def decode(key: bytes | None, value: bytes | None) -> None:
    decoder = get_format("canal-json").decoder(
        "id INT, name STRING", unique_key=["id"], metadata=["source.table"]
    )
    assert_type(decoder, Decoder)
    changes = decoder.decode(key, value, headers=[("trace", b"1")])
    assert_type(changes, list[Change] | Ignored)
    if isinstance(changes, Ignored):
        return
    for change in changes:
        assert_type(change.kind, RowKind)
        assert_type(change.kind.short_string, str)
        assert_type(change.row, tuple[Any, ...])
        change.row = ()  # type: ignore[misc] # pyright: ignore[reportAttributeAccessIssue]
    for keyed in decoder.upserts(key, value) or ():  # type: ignore[union-attr] # pyright: ignore[reportGeneralTypeIssues]
        print(keyed)
    decoder.decode("text", value)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    decoder.decode(value)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def upserts(decoder: Decoder, value: bytes) -> KeyedChange | None:
    changes = decoder.upserts(None, value)
    assert_type(changes, list[KeyedChange] | Ignored)
    return changes[0] if isinstance(changes, list) else None


def encode() -> None:
    encoder = get_format("maxwell-json").encoder("id INT, name STRING", unique_key=["id"])
    assert_type(encoder, Encoder)
    assert_type(
        encoder.encode(RowKind.INSERT, (1, "bike")), tuple[bytes | None, bytes | None] | None
    )
    encoder.encode("+I", (1, "bike"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def options() -> None:
    DebeziumJson(decimal_handling_mode="string", rounding="half_up")
    assert_type(list_formats(), list[str])
    DebeziumJson(decimal_handling_mode="text")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    DebeziumJson(decimal_handling="string")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def schemas() -> None:
    schema = columns("id INT NOT NULL, price DECIMAL(5,2)")
    assert_type(schema, tuple[Column, ...])
    assert_type(schema[0].nullable, bool)
    assert_type(schema[1].type.scale, int | None)
    assert_type(to_ddl(schema), str)
    assert_type(to_python(schema, (1, "9.50")), tuple[Any, ...])
    assert_type(ChangelogMode.upsert().contains(RowKind.UPDATE_BEFORE), bool)
    columns(b"id INT")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def topics() -> None:
    inferred = infer_topic("localhost:9092", "shop.orders", format="debezium-json")
    assert_type(inferred.ddl, str)
    records = sample_topic("localhost:9092", "shop.orders", sample=100)
    assert_type(records[0].value, bytes | None)


@register_format
@dataclass(frozen=True, kw_only=True)
class Tool(Format):
    """A format of another package."""

    identifier = "tool"

    old_rows: bool = True

    def read(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        message = read_object(value or b"")
        assert_type(message, dict[str, Any])
        if message.get("what") == "ping":
            return Ignored.HEARTBEAT
        return [Event.insert(message["row"], path="$.row")]


assert_type(Tool(old_rows=False), Tool)


def errors(value: bytes) -> str:
    try:
        Tool().decoder("id INT").decode(None, value)
    except DecodeError as error:
        assert_type(error.path, str)
        return str(error.at(where="orders[3]@1042"))
    except ChangelogError as error:
        return error.condition
    return ""
