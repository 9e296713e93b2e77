"""Avro messages decoded together give the rows and errors that each gives alone.

The tests cover types, schema ids, headers and the registry.
"""

import sys
from random import Random
from typing import Any
from uuid import UUID

import pytest

from cdc_formats import get_format
from cdc_formats.avro.records import avro_bytes
from cdc_formats.avro.schema_registry import framed
from cdc_formats.errors import SchemaRegistryError
from cdc_formats.values.connect_schema import EPOCH_UNITS
from cdc_formats.values.times import LOGICAL_TIMES
from normalize.decode.collectors import Blocks, TypedRows
from normalize.decode.columnar import ColumnarDecoder, one_by_one
from tests.support.avro import record, registered
from tests.support.both_decoders import (
    all_metadata,
    differences,
    odd_share,
    outcome,
    source_of,
    together,
)
from tests.support.examples import examples

NAME, URL = "debezium-avro-confluent", "mock://columnar"
TOAST = "__debezium_unavailable_value"
SILENT: dict[str, Any] = {"control_events": frozenset(), "on_truncate": "ignore"}


def envelope(columns: dict[str, Any], connector: str = "postgresql") -> dict[str, Any]:
    types = {
        "connector": "string",
        "db": "string",
        "schema": "string",
        "table": ["null", "string"],
        "ts_ms": "long",
        "lsn": ["null", "long"],
    }
    images = {"before": ["null", record("Value", columns)], "after": ["null", "Value"]}
    source = record("Source", types, namespace=f"io.debezium.connector.{connector}")
    return record(
        "Envelope", {**images, "source": source, "op": "string", "ts_ms": ["null", "long"]}
    )


def number_of(schema: Any) -> int:
    return int(registered(URL, schema).schema_id)


def writer(schema: Any) -> Any:
    """Return the function from an operation and its images to a message."""
    number, write = number_of(schema), avro_bytes(schema)
    source = {
        "connector": "postgresql",
        "db": "shop",
        "schema": "public",
        "table": "parts",
        "ts_ms": 1_700_000_000_000,
        "lsn": 77,
    }

    def message(op: str, before: Any, after: Any, **more: Any) -> bytes:
        return framed(
            number,
            write(
                {
                    "before": before,
                    "after": after,
                    "source": {**source, **more},
                    "op": op,
                    "ts_ms": 1_700_000_000_123,
                }
            ),
        )

    return message


def image(key: int, name: str | None = "bolt") -> dict[str, Any]:
    return {"id": key, "name": name}


PARTS = envelope({"id": "int", "name": ["null", "string"]})
WIDE = envelope({"name": ["string", "null"], "gone": "bytes", "id": "long"})
NARROW = envelope({"id": "long"})
LISTS = envelope(
    {"id": "long", "name": ["null", "string"], "tags": {"type": "array", "items": "string"}}
)
SCHEMA = "id INT NOT NULL, name STRING"


def avro_source(schema: str = SCHEMA, metadata: Any = None, **arguments: Any) -> Any:
    options = arguments.pop("options", {})
    return source_of(
        get_format(NAME, url=URL, **options), schema, ["id"], metadata, **{**SILENT, **arguments}
    )


def test_messages_of_several_schemas_are_decoded_together() -> None:
    parts, wide, narrow, lists = map(writer, (PARTS, WIDE, NARROW, LISTS))
    records: list[Any] = []
    for key in range(40):
        records.append((None, parts("c", None, image(key))))
        records.append(
            (None, wide("u", {**image(key), "gone": b""}, {**image(key, None), "gone": b"x"}))
        )
        records.append((None, narrow("u", {"id": key}, {"id": key + 1})))
        records.append((None, parts("d", image(key), None)))
    sound = len(records)
    for metadata in (
        None,
        all_metadata(get_format(NAME, url=URL)),
        {"table": "source.table", "at": "source.timestamp"},
    ):
        for positions in (False, True):
            source = avro_source(metadata=metadata, positions=positions)
            assert odd_share(source, records)[0] == 0
            assert not differences(source, records)
    assert not differences(avro_source(drop_update_before=True), records, TypedRows)
    records.insert(11, (None, lists("c", None, {**image(99), "tags": ["a"]})))
    records.insert(50, (None, framed(999_999, b"x")))
    records.insert(60, (None, framed(number_of("string"), b"\2x")))
    records.insert(70, (None, framed(number_of(record("Heartbeat", {"ts_ms": "long"})), b"\2")))
    records.insert(80, (None, None))
    assert odd_share(avro_source(), records)[0] == len(records) - sound - 1
    assert not differences(avro_source(), records)
    assert not differences(source_of(get_format(NAME, url=URL), SCHEMA, ["id"]), records)


def test_a_message_without_a_frame_or_with_its_schema_in_a_header_is_decoded_alone() -> None:
    parts, number = writer(PARTS), number_of(PARTS)
    guid = registered(URL, PARTS).guid
    records: list[Any] = [
        (None, parts("c", None, image(key)), [("trace", b"1"), ("empty", None)])
        for key in range(30)
    ]
    bare = parts("c", None, image(31))[5:]
    in_doubt = [
        (None, bare, [("trace", b"1"), ("__value_schema_id", b"\1" + UUID(guid).bytes)]),
        (None, bare, [("__value_schema_id", b"\0" + number.to_bytes(4, "big"))]),
        (None, parts("c", None, image(32)), [("__value_schema_id", None)]),
        (None, parts("c", None, image(33)), [("__value_schema_id", b"strange")]),
        (None, bare),
        (None, b"\1" + UUID(guid).bytes + bare),
        (None, b"\0\0"),
        (None, b"\0"),
    ]
    for place, other in enumerate(in_doubt):
        records.insert(3 * place, other)
    assert odd_share(avro_source(), records)[0] == len(in_doubt)
    assert not differences(avro_source(), records)
    with_keys = [
        (framed(number, b"x"), value, [("__key_schema_id", b"x")]) for _, value, *_ in records[30:]
    ]
    assert odd_share(avro_source(), with_keys)[0] == 0
    assert not differences(avro_source(), with_keys)


def test_messages_of_other_tables_are_counted() -> None:
    parts = writer(PARTS)
    tables = ["parts", "tools", None, "parts"] * 10
    records = [
        (None, parts("c", None, image(key), table=table)) for key, table in enumerate(tables)
    ]
    source = avro_source(options={"table_include": "parts"})
    assert (
        odd_share(source, [record for record, table in zip(records, tables, strict=True) if table])[
            0
        ]
        == 0
    )
    assert not differences(source, records)


def test_an_error_of_the_registry_stops_the_pass() -> None:
    records = [(None, writer(PARTS)("c", None, image(1)))]
    format = get_format(NAME, url="http://localhost:1", retry_seconds=0)
    source = source_of(format, SCHEMA, ["id"], **SILENT)
    for columnar in (together, one_by_one):
        with pytest.raises(SchemaRegistryError, match="does not answer"):
            outcome(source, records, columnar=columnar)


def test_without_polars_each_message_is_decoded_alone(monkeypatch) -> None:
    assert ColumnarDecoder.of(avro_source()) is not None
    monkeypatch.setitem(sys.modules, "polars", None)  # Python's mark for a package that is missing
    assert ColumnarDecoder.of(avro_source()) is None
    assert ColumnarDecoder.of(source_of(get_format("debezium-json"), SCHEMA, ["id"])) is not None


NUMBERS = [0, 1, -1, 7, 1000, 2**31 - 1, -(2**31)]
LONGS = [
    *NUMBERS,
    1_700_000_000_123,
    1_700_000_000_123_456,
    1_700_000_000_123_456_789,
    2**63 - 1,
    -(2**63),
]
FLOATS = [0.0, -0.0, 1.5, -3.25, float("inf"), float("nan")]
BYTES = [b"", b"\0", b"\xff", b"abc", b"\x7f" * 9, TOAST.encode()]
TEXTS = [
    "",
    "1",
    "-2.50",
    "true",
    "2026-11-21",
    "2026-11-21 14:00:02.434",
    "2026-11-21T14:00:02Z",
    "14:00:02",
    "YWJj",
    "é",
    TOAST,
]
RAW = {
    "boolean": [True, False],
    "int": NUMBERS,
    "long": LONGS,
    "float": FLOATS,
    "double": [*FLOATS, 0.1, 1e300],
    "bytes": BYTES,
    "string": TEXTS,
}
VARIABLE = "io.debezium.data.VariableScaleDecimal"
AVRO: list[tuple[Any, list[Any]]] = [
    *RAW.items(),
    *(({"type": kind, "logicalType": name}, RAW[kind]) for name in LOGICAL_TIMES for kind in ("int", "long")),
    *(({"type": "long", "connect.name": name}, LONGS) for name in EPOCH_UNITS),
    ({"type": "int", "logicalType": "date"}, NUMBERS),
    ({"type": "int", "connect.name": "io.debezium.time.Date"}, NUMBERS),
    ({"type": "int", "connect.name": "io.debezium.time.Year"}, NUMBERS),
    *(({"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": scale}, BYTES) for scale in (0, 2, 5)),
    ({"type": "bytes", "connect.name": "org.apache.kafka.connect.data.Decimal", "connect.parameters": {"scale": "2"}}, BYTES),
    ({"type": "fixed", "name": "F", "size": 16}, [bytes(16), bytes(range(16))]),
    ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, [bytes(16), bytes(range(16))]),
    ({"type": "fixed", "name": "F", "size": 12, "logicalType": "duration"}, [bytes(12), bytes(4) + bytes(range(8)), bytes(range(12))]),
    ({"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}, [b"\0\1\2", b"\xff" * 3]),
    ({"type": "string", "logicalType": "uuid"}, TEXTS),
    (record(VARIABLE, {"scale": "int", "value": "bytes"}, **{"connect.name": VARIABLE}), [{"scale": at, "value": b"abc"} for at in (0, 2)]),
    (record("Point", {"x": "double", "wkb": ["null", "bytes"], "srid": ["null", "int"]}), [{"x": 1.5, "wkb": b"a", "srid": None}]),
    (record("Flags", {"on": "boolean", "text": ["string", "null"]}), [{"on": True, "text": None}, {"on": False, "text": "a"}]),
    (record("Date", {"year": ["null", "int"], "month": "int", "day": "int", "specialValue": ["null", "string"]}),
     [{"year": 2025, "month": 1, "day": 2, "specialValue": special} for special in (None, "POSITIVE_INFINITY")]),
    ({"type": "enum", "name": "E", "symbols": ["a", "b"]}, ["a", "b"]),
    ({"type": "array", "items": ["null", "string"]}, [[], ["a", None]]),
    ({"type": "map", "values": "long"}, [{}, {"a": 1}]),
    (["null", "long", "string"], [1, "a"]),
]  # fmt: skip
COLUMNS = (
    "BOOLEAN", "TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(12,2)", "DECIMAL(20,0)", "STRING", "BINARY", "DATE", "TIME(6)",
    "TIMESTAMP(6)", "TIMESTAMP_NTZ(3)", "INTERVAL DAY TO SECOND", "ARRAY<STRING>", "MAP<STRING, BIGINT>", "STRUCT<x: DOUBLE, srid: INT>",
)  # fmt: skip


@pytest.mark.parametrize(
    ("avro", "values"),
    AVRO,
    ids=[str(avro if isinstance(avro, str) else list(avro)) for avro, _ in AVRO],
)
def test_every_avro_type_in_every_column_gives_the_same(avro: Any, values: list[Any]) -> None:
    draw = Random(repr(avro))
    union = avro if isinstance(avro, list) else draw.choice([["null", avro], [avro, "null"]])
    images = [{"id": key, "x": value} for key, value in enumerate([None, *values, *values, None])]
    # MySQL's connector never writes the placeholder.
    messages = [
        writer(envelope({"id": "long", "x": union}, connector))
        for connector in ("postgresql", "mysql")
    ]
    for number, column in enumerate(draw.sample(COLUMNS, examples(len(COLUMNS)))):
        message, target = draw.choice(messages), (Blocks, TypedRows)[number % 2]
        changes = [
            draw.choice(
                [("c", None, one), ("u", {**one, "x": draw.choice(values)}, one), ("d", one, None)]
            )
            for one in images
        ]
        records = [(None, message(*change)) for change in changes]
        assert not differences(avro_source(f"id BIGINT, x {column}"), records, target)
    key = [
        (None, messages[0]("u", {"id": 1, "x": draw.choice(values)}, {"id": 1, "x": value}))
        for value in values
    ]
    for column in ("BIGINT", "STRING", "DECIMAL(12,2)", "BINARY"):
        assert not differences(
            source_of(get_format(NAME, url=URL), f"id BIGINT, x {column}", ["x"], **SILENT), key
        )


def test_an_int_of_more_than_32_bits_is_an_error_of_its_message() -> None:
    wide = writer(envelope({"id": "long", "name": ["null", "string"]}))
    damaged = framed(number_of(PARTS), wide("c", None, image(2**33))[5:])
    records = [(None, writer(PARTS)("c", None, image(key))) for key in range(20)]
    records.insert(5, (None, damaged))
    for schema in (SCHEMA, "id BIGINT, name STRING", "id SMALLINT, name STRING"):
        assert not differences(avro_source(schema), records)
    result = outcome(avro_source(), records, columnar=together)
    assert len(result.side_outputs) == 1
