"""Avro bytes: fastavro's output is read, damage is a bad record, and unsafe schemas are refused."""

from contextlib import suppress
from io import BytesIO
from typing import Any

import fastavro
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats.avro.reader import AvroSchema, column_converter, plain
from cdc_formats.errors import DecodeError, MalformedMessageError, WriterSchemaError
from cdc_formats.values.handling import Handling, null_or
from cdc_formats.values.schema import SqlType
from tests.support.avro import schemas, written
from tests.support.examples import examples


def reader(schema: Any) -> Any:
    parsed = AvroSchema(schema)
    to_plain = null_or(plain(parsed, parsed.top))
    return lambda data: to_plain(parsed.read(data))


readable = settings(
    deadline=None, max_examples=examples(150), suppress_health_check=list(HealthCheck)
)


@readable
@given(data=st.data(), pair=schemas())
def test_fastavros_bytes_are_read_as_fastavro_reads_them(data: Any, pair: tuple[Any, Any]) -> None:
    schema, values = pair
    read, avro = reader(schema), written(schema, data.draw(values))
    expected = fastavro.schemaless_reader(BytesIO(avro), fastavro.parse_schema(schema), None)
    assert repr(read(avro)) == repr(expected)


@readable
@given(
    data=st.data(),
    pair=schemas(),
    damage=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 255)), max_size=3),
    cut=st.integers(0, 30),
)
def test_damaged_bytes_raise_only_decode_errors(
    data: Any, pair: tuple[Any, Any], damage: list, cut: int
) -> None:
    schema, values = pair
    read, avro = reader(schema), bytearray(written(schema, data.draw(values)))
    for at, byte in damage:
        avro[at % (len(avro) + 1) : at % (len(avro) + 1) + 1] = bytes([byte])
    with suppress(DecodeError):
        read(bytes(avro[: len(avro) - cut]))


def of(avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": avro}]}


MOST = b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"
"""A number of 62 bits, used as a hostile length or count."""
ENUM = {"type": "enum", "name": "E", "symbols": ["x", "y"]}


@pytest.mark.parametrize(
    ("avro", "data", "reason"),
    [
        pytest.param("string", b"\x20abc", "end before", id="a string is cut"),
        pytest.param("string", MOST + b"abc", "not Avro of this schema", id="a string of 4 EB"),
        pytest.param("string", b"\x05abc", "end before", id="a string of -3 bytes"),
        pytest.param("bytes", b"\x20abc", "end before", id="bytes are cut"),
        pytest.param("string", b"\x04\xff\xfe", "not UTF-8", id="a string is not UTF-8"),
        pytest.param("string", b"\x02ab", "1 bytes are left over", id="bytes are left over"),
        pytest.param("boolean", b"", "not Avro of this schema", id="no boolean"),
        pytest.param("long", b"\xff" * 100_000, "not Avro of this schema", id="a long without end"),
        pytest.param("long", b"\xff", "not Avro of this schema", id="a long is cut"),
        pytest.param("float", b"\0\0\0", "not Avro of this schema", id="a float is cut"),
        pytest.param("double", b"\0" * 7, "not Avro of this schema", id="a double is cut"),
        pytest.param(
            {"type": "fixed", "name": "F", "size": 4}, b"abc", "end before", id="a fixed is cut"
        ),
        pytest.param(ENUM, b"\x04", "not Avro of this schema", id="an enum's third symbol of two"),
        pytest.param(
            ["null", "string"],
            b"\x04",
            "not Avro of this schema",
            id="a union's third branch of two",
        ),
        pytest.param(
            {"type": "array", "items": "long"},
            MOST,
            "not Avro of this schema",
            id="an array of 4 E items",
        ),
        pytest.param(
            {"type": "array", "items": "long"},
            b"\x02\0",
            "not Avro of this schema",
            id="an array without an end",
        ),
        pytest.param(
            {"type": "map", "values": "null"}, MOST, "end before", id="a map of 4 E entries"
        ),
    ],
)
def test_bytes_that_are_not_of_the_schema_are_malformed(
    avro: Any, data: bytes, reason: str
) -> None:
    with pytest.raises(MalformedMessageError, match=reason):
        reader(of(avro))(data)


@pytest.mark.parametrize("index", [b"\x82\x00", b"\x82\x80\x00"])
def test_an_index_in_a_longer_encoding_is_read(index: bytes) -> None:
    assert reader(of(["null", "string"]))(index + b"\x02a") == {"a": "a"}


def test_an_array_in_blocks_with_their_sizes_is_read() -> None:
    assert reader(of({"type": "array", "items": "int"}))(
        b"\x03\x04\x02\x04" + b"\x02\x06" + b"\0"
    ) == {"a": [1, 2, 3]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        (
            {"type": "record", "name": "N", "fields": [{"name": "next", "type": ["null", "N"]}]},
            r"contains itself \(N\)",
        ),
        ({"type": "map", "values": {"type": "array", "items": "null"}}, "zero-byte values"),
        (
            of({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}),
            "zero-byte values",
        ),
        (
            of({"type": "array", "items": {"type": "record", "name": "E", "fields": []}}),
            "zero-byte values",
        ),
        ({"type": "strange"}, "not an Avro schema"),
        ("nope", "not an Avro schema"),
        (5, "not an Avro schema"),
        (None, "not an Avro schema"),
    ],
)
def test_a_schema_that_cannot_be_read_raises_an_error_with_the_reason(
    schema: Any, reason: str
) -> None:
    with pytest.raises(WriterSchemaError, match=reason):
        AvroSchema(schema)


def named_twice(levels: int, leaf: Any) -> Any:
    """Return a small record type that uses each lower level twice: values have 2**levels leaves."""
    schema: Any = {"type": "record", "name": "R0", "fields": [{"name": "a", "type": leaf}]}
    for level in range(levels):
        fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{level}"}]
        schema = {"type": "record", "name": f"R{level + 1}", "fields": fields}
    return schema


class CountedSchema(AvroSchema):
    """A schema that counts how many types are read."""

    looks = 0

    def resolve(self, schema: Any) -> Any:
        self.looks += 1
        assert self.looks < 1000, "each of its few types is looked at again and again"
        return super().resolve(schema)


def test_checking_and_compiling_a_schema_is_linear_in_its_size() -> None:
    parsed = CountedSchema(named_twice(25, "int"))
    plain(parsed, parsed.top)
    with pytest.raises(WriterSchemaError, match=r"contains itself \(R7\)"):
        CountedSchema(named_twice(25, ["null", "R7"]))
    with pytest.raises(
        WriterSchemaError, match=r"a record \(R12\) with more than 10000 zero-byte values"
    ):
        CountedSchema(named_twice(25, "null"))


def test_a_record_type_that_is_used_twice_is_read_in_both_places() -> None:
    parsed = AvroSchema(named_twice(2, "int"))
    assert plain(parsed, parsed.top)(parsed.read(b"\x02\x04\x06\x08")) == {
        "a": {"a": {"a": 1}, "b": {"a": 2}},
        "b": {"a": {"a": 3}, "b": {"a": 4}},
    }
    empty = AvroSchema(named_twice(11, "null"))
    assert empty.read(b"")["b"]["b"]["a"]["a"] == empty.read(b"")["a"]["a"]["b"]["b"]
    with pytest.raises(WriterSchemaError, match="an array of zero-byte values"):
        AvroSchema(of({"type": "array", "items": named_twice(3, "null")}))


def test_ambiguous_union_branches_are_refused_when_their_values_differ() -> None:
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    parsed = AvroSchema(of(["null", "int", millis]))
    with pytest.raises(WriterSchemaError, match="a union of types that cannot be distinguished"):
        column_converter(parsed, parsed.fields(parsed.top)["a"], SqlType("TIMESTAMP"), Handling())
