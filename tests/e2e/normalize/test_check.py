"""The check at the call: a wrong broker, topic, format, type or column is one sentence.

It appears before a query starts.
"""

import json
import logging
import re
import time
from typing import Any

import pytest

from cdc_formats.errors import (
    ArgumentError,
    KafkaUnavailableError,
    MalformedMessageError,
    SchemaError,
    SchemaRegistryError,
    SeveralTablesError,
    TypeConversionError,
    UnknownTopicError,
)
from normalize import from_kafka_changelog
from tests.support import databases
from tests.support.databases import Message
from tests.support.streams import debezium, new_topic, servers, settings

GOOD = [(None, debezium("c", None, {"id": i, "name": "bike"})) for i in range(200)]
MAXWELL = [
    (
        None,
        json.dumps(
            {
                "database": "d",
                "table": "t",
                "type": "insert",
                "ts": 1,
                "data": {"id": i, "name": "bike"},
            }
        ).encode(),
    )
    for i in range(20)
]
MALFORMED = (None, b"no JSON")


TWO_TABLES = [
    (None, debezium("c", None, {"id": 1}).replace(b'"t"', name)) for name in (b'"a"', b'"b"')
]
TYPE = {"schema": "id INT, name INT"}
BAD_RECORD = r"{topic}\[0\]@\d"
WRONG_TYPE = (
    r"^\[TYPE_CONVERSION\] expected `INT`, got `str` 'bike' - at `\$.after.name` of the value in "
    r"{topic}\[0\]@\d+"
)
REGISTRY = {"format": "debezium-avro-confluent", "format_options": {"url": "http://127.0.0.1:9"}}
NOWHERE = {"kafka.bootstrap.servers": "127.0.0.1:1"}


@pytest.fixture
def warnings(caplog: Any) -> Any:
    caplog.set_level(logging.WARNING, "normalize")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def call(spark: Any, kafka: Any) -> Any:
    def call(topic: str | None, **arguments: Any) -> Any:
        read = {
            "format": "debezium-json",
            "schema": "id INT, name STRING",
            "primary_key": "id",
            "options": servers(kafka),
            **arguments,
        }
        return from_kafka_changelog(spark, topic, **read)

    return call


def test_a_good_an_empty_and_an_unchecked_topic_are_no_word(call, kafka, warnings):
    orders = new_topic(kafka, GOOD, partitions=3)
    call(orders)
    call(orders, bounded=True)
    call(new_topic(kafka, []))
    call(new_topic(kafka, [(b"1", None)]))
    malformed = new_topic(kafka, [MALFORMED])
    call(malformed, check=False)
    call(malformed, options=servers(kafka, startingOffsets="latest"))
    later = new_topic(kafka, [MALFORMED, *GOOD])
    call(later, bounded=True, options=servers(kafka, startingOffsets=json.dumps({later: {"0": 1}})))
    assert warnings() == []


@pytest.mark.parametrize(
    ("records", "arguments", "error", "text"),
    [
        pytest.param(
            [],
            {"options": NOWHERE},
            KafkaUnavailableError,
            r"the connection was refused.*check bootstrap\.servers",
            id="an unreachable broker",
        ),
        pytest.param(
            [(None, b"\0\0\0\0\1\0")],
            REGISTRY,
            SchemaRegistryError,
            r"the schema registry at http://127\.0\.0\.1:9 does not answer",
            id="a schema registry that does not answer",
        ),
        pytest.param(
            MAXWELL,
            {},
            ArgumentError,
            r"format is 'debezium-json', but the records look like 'maxwell-json' \(20 of 20 .*: "
            r"pass format",
            id="another format",
        ),
        pytest.param(
            TWO_TABLES, {}, SeveralTablesError, "a.*b.*table_include", id="a second table"
        ),
        pytest.param(GOOD, TYPE, TypeConversionError, WRONG_TYPE, id="a wrong type"),
        pytest.param(
            GOOD, TYPE | {"bounded": True}, TypeConversionError, WRONG_TYPE, id="of a bounded read"
        ),
        pytest.param(
            [*GOOD, MALFORMED], {}, MalformedMessageError, BAD_RECORD, id="a new bad record"
        ),
        pytest.param(
            [MALFORMED, *GOOD],
            {"bounded": True},
            MalformedMessageError,
            BAD_RECORD,
            id="an old bad record of a bounded read",
        ),
    ],
)
def test_a_call_that_cannot_work_is_an_error_in_seconds(
    call, kafka, warnings, records, arguments, error, text
):
    topic, begin = new_topic(kafka, records), time.monotonic()
    with pytest.raises(error, match=text.replace("{topic}", topic)):
        call(topic, **arguments)
    assert time.monotonic() - begin < 12
    assert warnings() == []


def test_an_unknown_topic_is_an_error_with_similar_names(call, kafka):
    topic = new_topic(kafka, [])
    similar = rf"topic '{topic}x' does not exist, .*Did you mean .*'{topic}'"
    with pytest.raises(UnknownTopicError, match=similar):
        call(f"{topic}x")


@pytest.mark.parametrize(
    ("records", "arguments", "texts"),
    [
        pytest.param(
            MAXWELL,
            {"mode": "DROPMALFORMED"},
            [
                r"topic {topic}: every record that a task read is bad \(20 of 20: MISSING_FIELD 20\)",
                "Format 'debezium-json' may be wrong: the records look like 'maxwell-json'",
            ],
            id="another format",
        ),
        pytest.param(
            GOOD,
            {"schema": "id INT, nmae STRING"},
            ["topic {topic}: declared but missing from", "not declared: `name`"],
            id="a misspelt column",
        ),
        pytest.param(
            [MALFORMED, *GOOD],
            {},
            [
                r"^\[MALFORMED_MESSAGE\].* in {topic}\[0\]@0; it begins b'no JSON'. The query fails "
                r"at this old record, unless its checkpoint is past it$"
            ],
            id="an old bad record",
        ),
        pytest.param(
            GOOD,
            {"format_options": {"table_include": "parts"}},
            [
                r"^none of (\d+) sampled records has a row \(OTHER_TABLE \1\)\. Check the format's "
                r"table filters$"
            ],
            id="filters that select no table",
        ),
        pytest.param(
            [],
            {
                "options": {
                    **NOWHERE,
                    "kafka.security.protocol": "SASL_SSL",
                    "kafka.sasl.mechanism": "AWS_MSK_IAM",
                },
                "bounded": True,
            },
            [
                "^broker, login, topic and records are not checked before the query starts: "
                "kafka.sasl.mechanism=AWS_MSK_IAM has no counterpart in librdkafka$"
            ],
            id="options that librdkafka cannot use",
        ),
    ],
)
def test_a_call_that_may_not_work_is_a_warning(call, kafka, warnings, records, arguments, texts):
    topic = new_topic(kafka, records)
    call(topic, **arguments)
    for text, warning in zip(texts, warnings(), strict=True):
        assert re.search(text.replace("{topic}", topic), warning)


def test_a_pattern_without_a_topic_is_a_warning(call, kafka, warnings):
    call(None, options=servers(kafka, subscribePattern="no-such-topic-.*"), primary_key="id")
    assert warnings() == ["no topic matches the pattern 'no-such-topic-.*' yet"]


def with_schema_block(*names: str) -> Message:
    """A message of Debezium whose schema block and row have these columns."""
    types = {name: "int32" if name == "id" else "string" for name in names}
    row = {name: 1 if name == "id" else "x" for name in names}
    return databases.debezium("t", "c", None, row, types)


@pytest.mark.parametrize(
    ("declared", "nearest"), [("nmae", "name"), ("NAME", "name"), ("custmer_id", "customer_id")]
)
def test_a_column_that_the_schema_block_spells_otherwise_is_an_error(
    call, kafka, declared, nearest
):
    topic = new_topic(kafka, [with_schema_block("id", "name", "customer_id")])
    error = (
        rf"schema has the column `{declared}`, and the schema block of {topic}\[0\]@0 has "
        rf"`{nearest}`: did you mean this one"
    )
    with pytest.raises(SchemaError, match=error):
        call(topic, schema=f"id INT, {declared} STRING")
    call(topic, schema=f"id INT, {declared} STRING", check=False)


def test_a_column_of_only_some_schema_blocks_or_of_none_is_no_error(call, kafka, warnings):
    renamed = new_topic(
        kafka, [with_schema_block("id", "stats"), with_schema_block("id", "status")]
    )
    call(renamed, schema="id INT, status STRING")
    call(renamed, schema="id INT, stats STRING")
    call(renamed, schema="id INT, added_later STRING")
    assert all("not declared" in text or "declared but missing" in text for text in warnings())


def test_200_shuffle_partitions_on_one_machine_are_a_warning(spark, call, kafka, warnings):
    orders = new_topic(kafka, [])
    with settings(spark, {"spark.sql.shuffle.partitions": 200}):
        call(orders)
        call(orders, bounded=True)
    assert warnings() == [
        "spark.sql.shuffle.partitions is 200, and Spark runs on 2 cores of this machine: each "
        "micro-batch will start 200 tasks. Set it before the first start of the query: "
        "spark.conf.set('spark.sql.shuffle.partitions', 2)"
    ]
