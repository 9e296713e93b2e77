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


@pytest.fixture(scope="module")
def orders(kafka: Any) -> str:
    return new_topic(kafka, GOOD, partitions=3)


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


def test_a_good_an_empty_and_an_unchecked_topic_are_no_word(call, kafka, orders, warnings):
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


def test_an_unreachable_broker_is_an_error_in_seconds(call):
    begin = time.monotonic()
    with pytest.raises(
        KafkaUnavailableError, match=r"the connection was refused.*check bootstrap\.servers"
    ):
        call("orders", options={"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert time.monotonic() - begin < 12


def test_an_unknown_topic_is_an_error_with_similar_names(call, orders):
    with pytest.raises(
        UnknownTopicError, match=rf"topic '{orders}x' does not exist, .*Did you mean .*'{orders}'"
    ):
        call(f"{orders}x")


def test_another_format_is_an_error_with_the_records_format(call, kafka):
    topic = new_topic(kafka, MAXWELL)
    with pytest.raises(
        ArgumentError,
        match=(
            r"format is 'debezium-json', but the records look like 'maxwell-json' \(20 of 20 .*: "
            r"pass format"
        ),
    ):
        call(topic)


def test_another_format_is_a_warning_in_other_modes(call, kafka, warnings):
    topic = new_topic(kafka, MAXWELL)
    call(topic, mode="DROPMALFORMED")
    bad, format = warnings()
    assert (
        f"topic {topic}: every record that a task read is bad (20 of 20: MISSING_FIELD 20)" in bad
    )
    assert "Format 'debezium-json' may be wrong: the records look like 'maxwell-json'" in format


def test_a_second_table_is_the_querys_error(call, kafka):
    topic = new_topic(
        kafka,
        [
            (None, debezium("c", None, {"id": 1}).replace(b'"t"', name))
            for name in (b'"parts"', b'"orders"')
        ],
    )
    with pytest.raises(SeveralTablesError, match=r"parts.*orders.*table_include"):
        call(topic)


def test_a_schema_registry_that_does_not_answer_is_an_error_in_seconds(call, kafka):
    topic, begin = new_topic(kafka, [(None, b"\0\0\0\0\1\0")]), time.monotonic()
    with pytest.raises(
        SchemaRegistryError, match=r"the schema registry at http://127\.0\.0\.1:9 does not answer"
    ):
        call(topic, format="debezium-avro-confluent", format_options={"url": "http://127.0.0.1:9"})
    assert time.monotonic() - begin < 12


@pytest.mark.parametrize("bounded", [True, False])
def test_a_wrong_type_is_the_querys_error(call, orders, bounded):
    error = (
        r"^\[TYPE_CONVERSION\] expected `INT`, got `str` 'bike' - at `\$.after.name` of the value "
        rf"in {orders}\[\d\]@\d+"
    )
    with pytest.raises(TypeConversionError, match=error):
        call(orders, schema="id INT, name INT", bounded=bounded)


def test_a_misspelt_column_is_a_warning(call, orders, warnings):
    call(orders, schema="id INT, nmae STRING")
    absent, unknown = warnings()
    assert f"topic {orders}: declared but missing from" in absent
    assert "not declared: `name`" in unknown


def with_schema_block(*names: str) -> tuple[None, bytes]:
    """A message of Debezium whose schema block and row have these columns."""
    columns = [
        {"field": name, "type": "int32" if name == "id" else "string", "optional": name != "id"}
        for name in names
    ]
    images = [
        {"field": image, "type": "struct", "optional": True, "fields": columns}
        for image in ("before", "after")
    ]
    payload = json.loads(debezium("c", None, {name: 1 if name == "id" else "x" for name in names}))
    return None, json.dumps(
        {"schema": {"type": "struct", "fields": images}, "payload": payload}
    ).encode()


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


def test_an_old_bad_record_is_an_error_of_a_bounded_read_and_a_warning_of_a_stream(
    call, kafka, warnings
):
    topic = new_topic(kafka, [MALFORMED, *GOOD])
    with pytest.raises(MalformedMessageError):
        call(topic, bounded=True)
    assert warnings() == []
    call(topic)
    (warning,) = warnings()
    assert warning.startswith("[MALFORMED_MESSAGE]")
    assert warning.endswith(
        f"in {topic}[0]@0; it begins b'no JSON'. The query fails at this old record, unless its "
        "checkpoint is past it"
    )


def test_a_new_bad_record_is_an_error_of_a_stream(call, kafka):
    with pytest.raises(MalformedMessageError):
        call(new_topic(kafka, [*GOOD, MALFORMED]))


def test_a_pattern_without_a_topic_is_a_warning(call, kafka, warnings):
    call(None, options=servers(kafka, subscribePattern="no-such-topic-.*"), primary_key="id")
    assert warnings() == ["no topic matches the pattern 'no-such-topic-.*' yet"]


def test_filters_that_select_no_table_are_a_warning(call, orders, warnings):
    call(orders, format_options={"table_include": "parts"})
    (warning,) = warnings()
    assert re.fullmatch(
        (
            r"none of (\d+) sampled records has a row \(OTHER_TABLE \1\)\. Check the format's "
            r"table filters"
        ),
        warning,
    )


def test_options_that_librdkafka_cannot_use_skip_the_check(call, orders, warnings):
    options = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "AWS_MSK_IAM"}
    call(orders, options={"kafka.bootstrap.servers": "127.0.0.1:1", **options}, bounded=True)
    assert warnings() == [
        "broker, login, topic and records are not checked before the query starts: "
        "kafka.sasl.mechanism=AWS_MSK_IAM has no counterpart in librdkafka"
    ]


def test_200_shuffle_partitions_on_one_machine_are_a_warning(spark, call, orders, warnings):
    with settings(spark, {"spark.sql.shuffle.partitions": 200}):
        call(orders)
        call(orders, bounded=True)
    assert warnings() == [
        "spark.sql.shuffle.partitions is 200, and Spark runs on 2 cores of this machine: each "
        "micro-batch will start 200 tasks. Set it before the first start of the query: "
        "spark.conf.set('spark.sql.shuffle.partitions', 2)"
    ]
