"""debezium-avro-confluent: what its records give to all decoders, and what it writes."""

import json
import uuid
from functools import partial
from io import BytesIO
from random import Random
from typing import Any

import fastavro
import pytest

from cdc_formats import Ignored, RowKind, get_format
from cdc_formats.avro.schema_registry import Registry, framed
from cdc_formats.events import Headers
from cdc_formats.testing import check_encoder, check_record, damaged
from cdc_formats.topics.inference import infer_schema
from tests.support.avro import message_of, record, registered
from tests.support.error_texts import error_test, text_test
from tests.support.rules import results_of
from tests.support.scenarios import SCENARIOS, Scenario

NAME, URL = "debezium-avro-confluent", "mock://debezium"
TOAST = "__debezium_unavailable_value"


def optional(avro: Any) -> list[Any]:
    return ["null", avro]


def envelope(columns: dict[str, Any], connector: str = "mysql", **more: Any) -> dict[str, Any]:
    fields = {"connector": "string", "db": "string", "table": optional("string"), "ts_ms": "long"}
    source = record("Source", fields, namespace=f"io.debezium.connector.{connector}")
    images = {"before": optional(record("Value", columns)), "after": optional("Value")}
    rest = {"source": source, "op": "string", "ts_ms": optional("long"), **more}
    return record("Envelope", {**images, **rest})


def message(
    schema: Any, op: str, before: Any = None, after: Any = None, table: str = "parts", **more: Any
) -> bytes:
    source = {"connector": "x", "db": "shop", "table": table, "ts_ms": 1_700_000_000_000}
    images = {"before": before, "after": after, "source": source, "op": op}
    return message_of(URL, schema, {**images, "ts_ms": 1_700_000_000_123, **more})


def read(
    *records: bytes | tuple[bytes, Headers],
    ddl: str = "id INT, name STRING",
    metadata: tuple[str, ...] = (),
    **options: Any,
) -> str:
    """Return the rows and the changes of values, some with headers, for all decoders."""
    pairs = [(each, ()) if isinstance(each, bytes) else each for each in records]
    results = results_of(
        get_format(NAME, url=URL, **options),
        [(None, value, headers) for value, headers in pairs],
        ddl,
        ["id"],
        metadata,
    )
    return "\n".join(f"{name}: {each}" for name, part in results._asdict().items() for each in part)


def control_event(value: bytes, reason: Ignored, headers: Headers = ()) -> str:
    return str(get_format(NAME, url=URL).control_event(None, value, reason, headers))


# The ids of schemas are in the texts of errors: all are registered here, in this order.
COLUMNS = {"id": "int", "name": optional("string")}
PARTS = envelope(COLUMNS)
POSTGRES = envelope({**COLUMNS, "blob": optional("bytes")}, "postgresql")
NAMES = {"type": "enum", "name": "Names", "symbols": ["fork", "knife"]}
WIDE = envelope({"name": NAMES, "gone": "bytes", "id": "long", "price": "double"})
FORK, KNIFE = {"id": 1, "name": "fork"}, {"id": 1, "name": "knife"}
CREATED = message(PARTS, "c", None, FORK)
BARE = CREATED[5:]
GUID = b"\1" + uuid.UUID(registered(URL, PARTS).guid).bytes
NUMBER = b"\0" + registered(URL, PARTS).schema_id.to_bytes(4, "big")
OF_OWN_SCHEMAS = [
    CREATED,
    message(WIDE, "u", {**FORK, "gone": b"", "price": 1.5}, {**KNIFE, "gone": b"x", "price": 2.5}),
    message(envelope({"id": "int"}), "c", None, {"id": 2}),
]
AFTER = {"id": 1, "name": TOAST, "blob": TOAST.encode()}
TOASTED = message(POSTGRES, "u", None, AFTER)
VERSIONED = record(
    "Source",
    {"version": optional("string"), "connector": "string"},
    namespace="io.debezium.connector.mysql",
)
OF_MYSQL = partial(message, envelope(COLUMNS, source=VERSIONED))


def by_mysql(version: str | None) -> list[bytes]:
    source = {"version": version, "connector": "mysql"}
    row = {"id": 1, "name": TOAST}
    changes = [("c", None, row), ("u", None, row), ("u", row, KNIFE), ("d", row, None)]
    return [OF_MYSQL(*change, source=source) for change in changes]


TIMES = {
    "Date": {"year": 2025, "month": 1, "day": 2},
    "Time": {"hour": 0, "minute": 0, "second": 1, "nanos": 2000},
    "Timestamp": {
        **{"year": 1970, "month": 1, "day": 1},
        **{"hour": 0, "minute": 0, "second": 0, "nanos": 0},
    },
}
OF_TIMES = {
    name: optional(
        record(
            f"Structured{name}",
            dict.fromkeys(parts, optional("int")),
            **{
                "namespace": "io.debezium.time",
                "connect.name": f"io.debezium.time.Structured{name}",
            },
        )
    )
    for name, parts in TIMES.items()
}
STRUCTURED = message(envelope({"id": "int", **OF_TIMES}), "c", None, {"id": 1, **TIMES})
METADATA = (
    "ingestion-timestamp",
    *(f"source.{name}" for name in ("timestamp", "database", "schema", "table", "properties")),
)
IMAGES_ALONE = record(
    "Bare",
    {
        "before": optional(record("Value", {"id": "int"})),
        "after": optional("Value"),
        "op": "string",
    },
)
SCHEMA_CHANGE = record(
    "SchemaChangeValue",
    {"source": record("Source", {"db": "string"}), "databaseName": "string", "ddl": "string"},
)
TRANSACTION = record(
    "TransactionMetadataValue",
    {"status": "string", "id": "string", "event_count": optional("long")},
)
LOGICAL = envelope(
    {"id": "int"},
    "postgresql",
    message=optional(record("Message", {"prefix": "string", "content": "bytes"})),
)
DROPPED = {"source": {"db": "shop"}, "databaseName": "shop", "ddl": "DROP TABLE x"}
WITHOUT_ROWS = [
    message_of(URL, SCHEMA_CHANGE, DROPPED),
    message_of(URL, TRANSACTION, {"status": "BEGIN", "id": "7", "event_count": None}),
    message_of(URL, record("Heartbeat", {"ts_ms": "long"}), {"ts_ms": 1}),
    message(PARTS, "t"),
    message(LOGICAL, "m", message={"prefix": "audit", "content": b"who"}),
]
TRUNCATED = WITHOUT_ROWS[3]
CELL = record("Cell", {"value": "string", "set": "boolean"})
CELLS = message(
    envelope({"id": CELL, "name": optional("string")}, "cassandra"),
    *("c", None, {"id": {"value": "1", "set": True}, "name": None}),
)
STRANGE = record("Envelope", {"before": "string", "after": "string", "op": "string"})
TEXT = framed(registered(URL, "string").schema_id, b"\2x")


# --------------------------------------------------------------------------------------------------
# writing


def written(**options: Any) -> Any:
    return get_format(NAME, **{"url": URL, "subject": "rows-value", **options})


def schema_under(subject: str) -> str:
    """Return the schema of written rows, as it is registered."""
    written(subject=subject).encoder("id INT NOT NULL, name STRING").encode(
        RowKind.INSERT, (1, "x")
    )
    return str(Registry(url=URL).client.confluent.get_latest_version(subject).schema.schema_str)


def key_under(subject: str) -> str:
    """Return the schema and the content of a written key."""
    format = written(key_subject=subject)
    encoder = format.encoder("id INT NOT NULL, name STRING, part INT", unique_key=["part", "id"])
    key, _ = encoder.encode(RowKind.INSERT, (1, "x", 7))
    number = int.from_bytes(key[1:5], "big")
    text = Registry(url=URL).client.confluent.get_schema(number).schema_str
    schema = fastavro.parse_schema(json.loads(text))
    return f"{text}\n{fastavro.schemaless_reader(BytesIO(key[5:]), schema, None)}"


def written_under(subject: str, ddl: str, *row: Any, **options: Any) -> bytes:
    encoder = written(subject=subject, **options).encoder(ddl)
    return bytes(encoder.encode(RowKind.INSERT, row)[1])


written_under("known-value", "id INT", 1)
test_texts = text_test(
    __file__,
    {
        "the header of the key before": lambda: get_format(NAME, url=URL).traits.old_key_header,
        "an id in a header takes precedence over one in the value": partial(
            read,
            *(CREATED, (BARE, [("__op", b"c"), ("__value_schema_id", GUID)])),
            *((BARE, [("__value_schema_id", NUMBER)]), (CREATED, [("__key_schema_id", b"x")])),
            (CREATED, [("__value_schema_id", b"x")]),
        ),
        "each message is read by its own schema": partial(
            read,
            *(*OF_OWN_SCHEMAS, *OF_OWN_SCHEMAS[1::-1]),
            ddl="id INT, name STRING, price DOUBLE",
        ),
        "a key that changes, and one that does not": partial(
            read, message(PARTS, "u", FORK, {**FORK, "id": 2}), message(PARTS, "u", FORK, KNIFE)
        ),
        "the placeholder is completed from the message or the state": partial(
            read,
            message(POSTGRES, "u", None, {**KNIFE, "blob": b""}),
            TOASTED,
            message(POSTGRES, "u", {**FORK, "blob": b"\1"}, AFTER),
            ddl="id INT, name STRING, blob BINARY",
        ),
        "the text of another placeholder": partial(
            read,
            TOASTED,
            ddl="id INT, name STRING, blob BINARY",
            unavailable_value_placeholder="other",
        ),
        "a value that the log may lack completes no unavailable one": partial(
            read,
            message(POSTGRES, "u", {"id": 1, "name": None, "blob": None}, AFTER),
            message(POSTGRES, "u", {"id": 1, "name": "", "blob": b""}, AFTER),
            ddl="id INT, name STRING, blob BINARY",
        ),
        **{
            f"the text of the placeholder by MySQL's connector {version}": partial(
                read, *by_mysql(version)
            )
            for version in ("3.6.1.Final", "3.7.1.Final", None)
        },
        "columns of structured times": partial(
            infer_schema, [(None, STRUCTURED)], format=NAME, url=URL
        ),
        "structured times": partial(
            read, STRUCTURED, ddl="id INT, Date DATE, Time TIME, Timestamp TIMESTAMP_NTZ"
        ),
        "metadata has Flink's names": partial(
            read, message(PARTS, "c", None, {"id": 1, "name": None}), metadata=METADATA
        ),
        "a message without metadata": partial(
            read,
            message_of(URL, IMAGES_ALONE, {"before": None, "after": {"id": 1}, "op": "c"}),
            metadata=METADATA,
        ),
        "a filter by table": partial(
            read,
            *(CREATED, message(PARTS, "c", None, FORK, table="orders")),
            table_include="parts|tools",
            database_include="shop",
        ),
        "records without rows, and one whose bytes end": partial(
            read, *WITHOUT_ROWS, WITHOUT_ROWS[0][:-1]
        ),
        "a schema change": partial(control_event, WITHOUT_ROWS[0], Ignored.DDL),
        "a truncate": partial(control_event, TRUNCATED, Ignored.TRUNCATE),
        "a truncate without its schema": partial(control_event, TRUNCATED[5:], Ignored.TRUNCATE),
        "a truncate with its schema in a header": partial(
            control_event,
            *(TRUNCATED[5:], Ignored.TRUNCATE, [("__value_schema_id", TRUNCATED[:5])]),
        ),
        "a logical message": partial(control_event, WITHOUT_ROWS[4], Ignored.MESSAGE),
        "a text for a number": partial(read, CREATED, ddl="id INT, name INT"),
        "a text for a number, without an excerpt": partial(
            read, CREATED, ddl="id INT, name INT", error_excerpt=False
        ),
        "a connector that writes cells": partial(read, *[CELLS] * 2, ddl="id STRING, name STRING"),
        "schemas that are no envelopes": partial(
            read, TEXT, framed(registered(URL, STRANGE).schema_id, b"\2x\2x\2c")
        ),
        "Flink's schema": partial(schema_under, "flink-value"),
        "a key that has a subject": partial(key_under, "rows-key"),
        "a registered schema is found without registration": lambda: read(
            written_under("known-value", "id INT", 1, auto_register_schemas="false"), ddl="id INT"
        ),
        "a topic has its subjects": partial(get_format(NAME, url=URL).for_topic, "orders"),
        "a topic leaves given subjects": partial(written(key_subject="k").for_topic, "orders"),
        "a topic of upserts has its subjects": partial(
            get_format("upsert-kafka").for_topic, "orders"
        ),
    },
)


@pytest.mark.parametrize("options", [{}, {"table_include": "parts"}], ids=["", "with a filter"])
def test_damage_in_lazily_read_parts_raises_only_decode_errors(options: dict[str, str]) -> None:
    reader = get_format(NAME, url=URL, **options).decoder(
        "id INT, name STRING", unique_key=["id"], metadata=METADATA
    )
    value, draw = message(PARTS, "u", FORK, KNIFE), Random(5)
    for _ in range(1500):
        check_record(reader, None, value[:5] + damaged(value[5:], draw))


@pytest.mark.parametrize(
    "scenario", [each for each in SCENARIOS if NAME in each.identifiers], ids=lambda each: each.name
)
def test_rows_of_every_scenario_are_written_and_read_back(scenario: Scenario) -> None:
    format = get_format(NAME, url="mock://vectors", subject=f"{scenario.name}-rows")
    assert format.encoder(scenario.columns), "the check passes over formats that do not write"
    check_encoder(format, scenario.vector(NAME))


test_error_texts = error_test(
    __file__,
    {
        "metadata has flinks names": lambda: read(CREATED, metadata=("schema",)),
        **{
            f"a value that cannot be written is an error with the reason, {number}": partial(
                written_under, "rows-value", "id INT", 1, **options
            )
            for number, options in enumerate([{"url": ""}, {"table_include": "x"}], 1)
        },
        "a value without a subject": lambda: written(subject=None).encoder("id INT"),
        "a value that would be read back differently is refused, 1": partial(
            written_under, "rows-value", "id INT, name STRING", 1, TOAST
        ),
        "a value that would be read back differently is refused, 2": partial(
            written_under, "rows-value", "id INT, at TIMESTAMP(0)", 1, 1
        ),
        "without auto registration the schema must be registered": partial(
            written_under, "strict-value", "id INT", 1, auto_register_schemas=False
        ),
    },
)
