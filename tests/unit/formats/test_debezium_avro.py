"""debezium-avro-confluent rules: header ids, schema changes, sources, filters, metadata, writes."""

import json
import uuid
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pytest

from cdc_formats import Change, ControlEvent, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.avro.schema_registry import Registry, framed
from cdc_formats.errors import (
    MalformedMessageError,
    MissingBeforeImageError,
    PartialImageError,
    SchemaRegistryError,
    TypeConversionError,
    WriterSchemaError,
)
from cdc_formats.testing import check_record, damaged
from cdc_formats.topics.inference import infer_schema
from cdc_formats.values.schema import ABSENT
from tests.support.avro import message_of, record, registered
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import error_test

NAME = "debezium-avro-confluent"
URL = "mock://debezium"
C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
TOAST = "__debezium_unavailable_value"


def optional(avro: Any) -> list[Any]:
    return ["null", avro]


def envelope(columns: dict[str, Any], connector: str = "mysql", **more: Any) -> dict[str, Any]:
    source = record(
        "Source",
        {"connector": "string", "db": "string", "table": optional("string"), "ts_ms": "long"},
    )
    source["namespace"] = f"io.debezium.connector.{connector}"
    images = {"before": optional(record("Value", columns)), "after": optional("Value")}
    rest = {"source": source, "op": "string", "ts_ms": optional("long"), **more}
    return record("Envelope", {**images, **rest})


def message(
    schema: Any, op: str, before: Any = None, after: Any = None, table: str = "parts", **more: Any
) -> bytes:
    source = {"connector": "x", "db": "shop", "table": table, "ts_ms": 1_700_000_000_000}
    message = {
        "before": before,
        "after": after,
        "source": source,
        "op": op,
        "ts_ms": 1_700_000_000_123,
        **more,
    }
    return message_of(URL, schema, message)


PARTS = envelope({"id": "int", "name": optional("string")})
POSTGRES = envelope(
    {"id": "int", "name": optional("string"), "blob": optional("bytes")}, "postgresql"
)


def decoder(
    ddl: str = "id INT, name STRING",
    key: tuple[str, ...] = ("id",),
    metadata: tuple[str, ...] = (),
    **options: Any,
) -> Any:
    return get_format(NAME, url=URL, **options).decoder(ddl, unique_key=key, metadata=metadata)


def test_an_id_in_a_header_takes_precedence_over_one_in_the_value() -> None:
    number, guid = registered(URL, PARTS).schema_id, registered(URL, PARTS).guid
    framed_row = message(PARTS, "c", None, {"id": 1, "name": "fork"})
    bare = framed_row[5:]
    expected = [Change(C, (1, "fork"))]
    assert decoder().decode(None, framed_row) == expected
    for header in (b"\1" + uuid.UUID(guid).bytes, b"\0" + number.to_bytes(4, "big")):
        assert (
            decoder().decode(None, bare, [("__op", b"c"), ("__value_schema_id", header)])
            == expected
        )
    assert decoder().upserts(None, framed_row, [("__key_schema_id", b"x")]) == [
        KeyedChange((1,), (1, "fork"))
    ]
    with pytest.raises(MalformedMessageError):
        decoder().decode(None, framed_row, [("__value_schema_id", b"x")])


def test_each_message_is_read_by_its_own_schema() -> None:
    wide = envelope(
        {
            "name": {"type": "enum", "name": "Names", "symbols": ["fork", "knife"]},
            "gone": "bytes",
            "id": "long",
            "price": "double",
        }
    )
    narrow = envelope({"id": "int"})
    reader = decoder("id INT, name STRING, price DOUBLE")
    first = message(PARTS, "c", None, {"id": 1, "name": "fork"})
    second = message(
        wide,
        "u",
        {"id": 1, "name": "fork", "gone": b"", "price": 1.5},
        {"id": 1, "name": "knife", "gone": b"x", "price": 2.5},
    )
    third = message(narrow, "c", None, {"id": 2})
    assert [
        reader.decode(None, value)[-1].row for value in (first, second, third, second, first)
    ] == [
        (1, "fork", None),
        (1, "knife", 2.5),
        (2, None, None),
        (1, "knife", 2.5),
        (1, "fork", None),
    ]


def test_a_key_that_changes_is_a_delete_and_an_upsert() -> None:
    value = message(PARTS, "u", {"id": 1, "name": "fork"}, {"id": 2, "name": "fork"})
    assert decoder().upserts(None, value) == [
        KeyedChange((1,), None),
        KeyedChange((2,), (2, "fork")),
    ]
    value = message(PARTS, "u", {"id": 1, "name": "fork"}, {"id": 1, "name": "knife"})
    assert decoder().upserts(None, value) == [KeyedChange((1,), (1, "knife"))]


def test_the_placeholder_is_completed_from_the_message_or_the_state() -> None:
    ddl = "id INT, name STRING, blob BINARY"
    after = {"id": 1, "name": TOAST, "blob": TOAST.encode()}
    without = message(POSTGRES, "u", None, after)
    with pytest.raises(MissingBeforeImageError):
        decoder(ddl).decode(None, message(POSTGRES, "u", None, {**after, "name": "x", "blob": b""}))
    with pytest.raises(PartialImageError, match="left out name, blob"):
        decoder(ddl).decode(None, without)
    (change,) = decoder(ddl).upserts(None, without)
    assert (change.key, change.partial, repr(change.row)) == ((1,), True, "(1, ABSENT, ABSENT)")
    whole = message(POSTGRES, "u", {"id": 1, "name": "fork", "blob": b"\1"}, after)
    assert decoder(ddl).upserts(None, whole) == [KeyedChange((1,), (1, "fork", b"\1"))]
    assert [change.row for change in decoder(ddl).decode(None, whole)] == [(1, "fork", b"\1")] * 2
    assert decoder(ddl, unavailable_value_placeholder="other").upserts(None, without) == [
        KeyedChange((1,), (1, TOAST, TOAST.encode()))
    ]


def test_the_placeholder_is_plain_text_for_connectors_that_never_write_it() -> None:
    versioned = record("Source", {"version": optional("string"), "connector": "string"})
    versioned["namespace"] = "io.debezium.connector.mysql"
    schema = envelope({"id": "int", "name": optional("string")}, source=versioned)

    def of_mysql(version: str | None, op: str, before: Any, after: Any) -> bytes:
        source = {"version": version, "connector": "mysql"}
        return message(schema, op, before, after, source=source)

    row = {"id": 1, "name": TOAST}
    value = of_mysql("3.6.1.Final", "c", None, row)
    assert decoder().decode(None, value) == [Change(C, (1, TOAST))]
    for version in ("3.7.1.Final", None):
        values = [
            of_mysql(version, "u", None, row),
            of_mysql(version, "u", row, {**row, "name": "x"}),
            of_mysql(version, "d", row, None),
        ]
        assert decoder().upserts(None, values[0]) == [KeyedChange((1,), (1, ABSENT), (), True)]
        for value in values:
            with pytest.raises(PartialImageError, match="left out name"):
                decoder().decode(None, value)
        plan = source_of(get_format(NAME, url=URL), "id INT, name STRING", ["id"])
        assert not differences(plan, [(None, value) for value in values])


def test_a_value_that_the_log_may_lack_completes_no_unavailable_one() -> None:
    ddl = "id INT, name STRING, blob BINARY"
    after = {"id": 1, "name": TOAST, "blob": TOAST.encode()}
    unknown = KeyedChange((1,), (1, ABSENT, ABSENT), (), True)
    for name, blob in ((None, None), ("", b"")):
        value = message(POSTGRES, "u", {"id": 1, "name": name, "blob": blob}, after)
        assert decoder(ddl).upserts(None, value) == [unknown]
        with pytest.raises(PartialImageError, match="left out name, blob"):
            decoder(ddl).decode(None, value)


def test_structured_times_are_columns_and_inferred() -> None:
    table, row, expected = {"id": "int"}, {"id": 1}, [1]
    values = {
        "Date": ({"year": 2025, "month": 1, "day": 2}, 20090),
        "Time": ({"hour": 0, "minute": 0, "second": 1, "nanos": 2000}, 1_000_002),
        "Timestamp": (
            {"year": 1970, "month": 1, "day": 1, "hour": 0, "minute": 0, "second": 0, "nanos": 0},
            0,
        ),
    }
    for name, (parts, canonical) in values.items():
        made = record(f"Structured{name}", dict.fromkeys(parts, optional("int")))
        made |= {"namespace": "io.debezium.time"}
        made |= {"connect.name": f"io.debezium.time.Structured{name}"}
        table[name], row[name] = optional(made), parts
        expected.append(canonical)
    value = message(envelope(table), "c", None, row)
    inferred = infer_schema([(None, value)], format=NAME, url=URL)
    assert inferred.ddl == "id INT NOT NULL, Date DATE, Time TIME, Timestamp TIMESTAMP_NTZ"
    assert decoder(inferred.ddl).decode(None, value) == [Change(C, tuple(expected))]
    plan = source_of(get_format(NAME, url=URL), inferred.ddl, ["id"])
    assert not differences(plan, [(None, value)])


def test_metadata_has_flinks_names() -> None:
    names = (
        "ingestion-timestamp",
        "source.timestamp",
        "source.database",
        "source.schema",
        "source.table",
        "source.properties",
    )
    value = message(PARTS, "c", None, {"id": 1, "name": None})
    (change,) = decoder(metadata=names).decode(None, value)
    properties = [
        ["connector", "x"],
        ["db", "shop"],
        ["table", "parts"],
        ["ts_ms", "1700000000000"],
    ]
    assert change.metadata == (
        1_700_000_000_123_000,
        1_700_000_000_000_000,
        "shop",
        None,
        "parts",
        properties,
    )
    bare = record(
        "Bare",
        {
            "before": optional(record("Value", {"id": "int"})),
            "after": optional("Value"),
            "op": "string",
        },
    )
    (change,) = decoder(metadata=names).decode(
        None, message_of(URL, bare, {"before": None, "after": {"id": 1}, "op": "c"})
    )
    assert change.metadata == (None,) * 6


@pytest.mark.parametrize("options", [{}, {"table_include": "parts"}], ids=["", "with a filter"])
def test_damage_in_lazily_read_parts_raises_only_decode_errors(options: dict[str, str]) -> None:
    reader = decoder(metadata=tuple(sorted(get_format(NAME).metadata)), **options)
    value, draw = (
        message(PARTS, "u", {"id": 1, "name": "fork"}, {"id": 1, "name": "knife"}),
        Random(5),
    )
    for _ in range(1500):
        check_record(reader, None, value[:5] + damaged(value[5:], draw))


def test_a_filter_by_table() -> None:
    reader = decoder(table_include="parts|tools", database_include="shop")
    assert reader.decode(None, message(PARTS, "c", None, {"id": 1, "name": None})) == [
        Change(C, (1, None))
    ]
    assert (
        reader.decode(None, message(PARTS, "c", None, {"id": 1, "name": None}, table="orders"))
        is Ignored.OTHER_TABLE
    )


def test_records_without_rows() -> None:
    ddl = record(
        "SchemaChangeValue",
        {"source": record("Source", {"db": "string"}), "databaseName": "string", "ddl": "string"},
    )
    mark = record(
        "TransactionMetadataValue",
        {"status": "string", "id": "string", "event_count": optional("long")},
    )
    beat = record("Heartbeat", {"ts_ms": "long"})
    logical = envelope(
        {"id": "int"},
        "postgresql",
        message=optional(record("Message", {"prefix": "string", "content": "bytes"})),
    )
    source = {"db": "shop"}
    values = {
        Ignored.DDL: message_of(
            URL, ddl, {"source": source, "databaseName": "shop", "ddl": "DROP TABLE x"}
        ),
        Ignored.TRANSACTION: message_of(
            URL, mark, {"status": "BEGIN", "id": "7", "event_count": None}
        ),
        Ignored.HEARTBEAT: message_of(URL, beat, {"ts_ms": 1}),
        Ignored.TRUNCATE: message(PARTS, "t"),
        Ignored.MESSAGE: message(logical, "m", message={"prefix": "audit", "content": b"who"}),
    }
    for reason, value in values.items():
        assert decoder().decode(None, value) is reason
        assert decoder().upserts(None, value) is reason
    format = get_format(NAME, url=URL)
    assert format.control_event(None, values[Ignored.DDL], Ignored.DDL) == ControlEvent(
        Ignored.DDL, "shop", None, None, "DROP TABLE x"
    )
    assert format.control_event(None, values[Ignored.TRUNCATE], Ignored.TRUNCATE).table == "parts"
    bare = values[Ignored.TRUNCATE][5:]
    assert format.control_event(None, bare, Ignored.TRUNCATE) == ControlEvent(Ignored.TRUNCATE)
    header = ("__value_schema_id", values[Ignored.TRUNCATE][:5])
    assert format.control_event(None, bare, Ignored.TRUNCATE, [header]).table == "parts"
    with pytest.raises(MalformedMessageError, match="the bytes end"):
        decoder().decode(None, values[Ignored.DDL][:-1])


def test_a_logical_message_is_a_control_event() -> None:
    logical = envelope(
        {"id": "int"},
        "postgresql",
        message=optional(record("Message", {"prefix": "string", "content": "bytes"})),
    )
    value = message(logical, "m", message={"prefix": "audit", "content": b"who"})
    event = get_format(NAME, url=URL).control_event(None, value, Ignored.MESSAGE)
    assert event.statement == '{"prefix":"audit","content":"who"}'


def test_without_excerpt_an_error_shows_nothing_of_the_message() -> None:
    value = message(PARTS, "c", None, {"id": 1, "name": "Ada-Lovelace"})
    for shown in (True, False):
        with pytest.raises(TypeConversionError) as caught:
            decoder("id INT, name INT", error_excerpt=shown).decode(None, value)
        assert ("Ada-Lovelace" in str(caught.value)) is shown


# --------------------------------------------------------------------------------------------------
# writing

DDL = "id INT NOT NULL, name STRING, price DECIMAL(6,2), at TIMESTAMP(3), tags ARRAY<STRING>"
OLD, NEW = (1, "fork", "2.50", 1_500_000, ["a", None]), (1, "knife", None, None, None)


def written(**options: Any) -> Any:
    return get_format(NAME, **{"url": URL, "subject": "rows-value", **options})


def test_an_update_is_one_message_and_half_an_update_a_delete_or_an_insert() -> None:
    format = written()
    encoder, reader = format.encoder(DDL), format.decoder(DDL)
    cases = [
        ((C, OLD), [(C, OLD)]),
        ((D, OLD), [(D, OLD)]),
        ((U, NEW), [(C, NEW)]),
        ((RowKind.UPDATE_BEFORE, OLD), [(D, OLD)]),
        ((U, NEW, OLD), [(RowKind.UPDATE_BEFORE, OLD), (U, NEW)]),
    ]
    for change, expected in cases:
        key, value = encoder.encode(*change)
        assert key is None
        assert [(change.kind, change.row) for change in reader.decode(None, value)] == expected


def test_the_schema_is_flinks_and_registered_under_the_subject() -> None:
    written(subject="flink-value").encoder("id INT NOT NULL, name STRING").encode(C, (1, "x"))
    confluent = Registry(url=URL).client.confluent
    null, schema = json.loads(confluent.get_latest_version("flink-value").schema.schema_str)
    assert null == "null"
    assert [field["name"] for field in schema["fields"]] == ["before", "after", "op"]
    assert [field["type"][0] for field in schema["fields"]] == ["null"] * 3
    assert schema["name"] == "org.apache.flink.avro.generated.record"
    assert schema["fields"][0]["type"][1]["name"] == "org.apache.flink.avro.generated.record_before"


def test_a_key_is_written_if_it_has_a_subject() -> None:
    format = written(key_subject="rows-key")
    key, value = format.encoder(
        "id INT NOT NULL, name STRING, part INT", unique_key=["part", "id"]
    ).encode(C, (1, "x", 7))
    number = int.from_bytes(key[1:5], "big")
    schema = json.loads(Registry(url=URL).client.confluent.get_schema(number).schema_str)
    assert fastavro.schemaless_reader(BytesIO(key[5:]), fastavro.parse_schema(schema), None) == {
        "part": 7,
        "id": 1,
    }
    assert format.decoder("id INT, name STRING, part INT").decode(key, value) == [
        Change(C, (1, "x", 7))
    ]


def test_a_topic_has_its_subjects() -> None:
    format = get_format(NAME, url=URL).for_topic("orders")
    assert (format.subject, format.key_subject) == ("orders-value", "orders-key")
    assert written(key_subject="k").for_topic("orders") == written(key_subject="k")
    upsert = get_format("upsert-kafka").for_topic("orders")
    assert (upsert.key_avro_confluent_subject, upsert.value_avro_confluent_subject) == (
        "orders-key",
        "orders-value",
    )


def test_without_auto_registration_the_schema_must_be_registered() -> None:
    with pytest.raises(SchemaRegistryError, match="does not have the schema under strict-value"):
        written(subject="strict-value", auto_register_schemas=False).encoder("id INT").encode(
            C, (1,)
        )
    written(subject="strict-value").encoder("id INT").encode(C, (1,))
    _, value = (
        written(subject="strict-value", auto_register_schemas="false")
        .encoder("id INT")
        .encode(C, (1,))
    )
    assert decoder("id INT").decode(None, value) == [Change(C, (1,))]


def test_a_connector_that_writes_cells_is_named() -> None:
    cell = {
        "type": "record",
        "name": "Cell",
        "fields": [{"name": "value", "type": "string"}, {"name": "set", "type": "boolean"}],
    }
    schema = envelope({"id": cell, "name": optional("string")}, "cassandra")
    value = message(schema, "c", None, {"id": {"value": "1", "set": True}, "name": None})
    with pytest.raises(MalformedMessageError, match="the connector cassandra writes cells"):
        decoder("id STRING").upserts(None, value)
    source = source_of(get_format(NAME, url=URL), "id STRING, name STRING", ["id"])
    assert not differences(source, [(None, value)] * 100)


def test_a_schema_that_is_not_an_envelope_is_an_error() -> None:
    text = registered(URL, "string").schema_id
    strange = record("Envelope", {"before": "string", "after": "string", "op": "string"})
    with pytest.raises(
        WriterSchemaError, match=f"schema {text}: its writer's schema is not a record"
    ):
        decoder().decode(None, framed(text, b"\2x"))
    with pytest.raises(
        WriterSchemaError, match=r"`\$.before` is not a record in its writer's schema"
    ):
        decoder().decode(None, framed(registered(URL, strange).schema_id, b"\2x\2x\2c"))


test_error_texts = error_test(
    __file__,
    {
        "metadata has flinks names": lambda: decoder(metadata=("schema",)),
        **{
            f"a value that cannot be written is an error with the reason, {number}": lambda options=options: (
                written(**options).encoder("id INT")
            )
            for number, options in enumerate(
                [
                    {"subject": None},
                    {"url": ""},
                    {"table_include": "x"},
                ],
                1,
            )
        },
        "a value that would be read back differently is refused, 1": lambda: (
            written().encoder("id INT, name STRING").encode(C, (1, TOAST))
        ),
        "a value that would be read back differently is refused, 2": lambda: (
            written().encoder("id INT, at TIMESTAMP(0)").encode(D, (1, 1))
        ),
    },
)
