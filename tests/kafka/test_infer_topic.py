"""Sampling a topic of a real broker, and inferring a schema from it."""

from __future__ import annotations

import json
import socket
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from streams import new_topic, servers

from cdc_formats import columns
from cdc_formats.errors import ArgumentError, InferenceError, KafkaUnavailableError, UnknownTopicError
from cdc_formats.kafka import infer_topic, sample_topic
from normalize import from_kafka_changelog
from normalize.local_kafka import Record

pytestmark = pytest.mark.kafka

TOPICS = Path(__file__).parents[2] / "demo" / "topics" / "records"


def test_a_sample_is_the_beginning_and_the_end_of_each_partition(kafka) -> None:
    topic = f"{new_topic(kafka, [])}-parts"
    kafka.create_topic(topic, partitions=3)
    kafka.produce(topic, [Record(b"k", str(n).encode(), n % 2, 1_700_000_000_000 + n) for n in range(2000)])
    found = sample_topic(kafka.bootstrap_servers, topic, sample=40)
    offsets = {partition: [record.offset for record in found if record.partition == partition] for partition in range(3)}
    assert offsets == {0: [*range(10), *range(990, 1000)], 1: [*range(10), *range(990, 1000)], 2: []}
    assert [record.value for record in found[:3]] == [b"0", b"2", b"4"]
    assert found[0].timestamp == 1_700_000_000_000


def test_a_topic_shorter_than_the_sample_is_read_completely(kafka) -> None:
    topic = new_topic(kafka, [(b"1", b"a"), (b"2", None), (None, b"")])
    kafka.produce(topic, [Record(b"3", b"c", 0, 1_500_000_000_000, (("h", b"x"), ("h", None)))])
    found = sample_topic(kafka.bootstrap_servers, topic)
    assert [(record.key, record.value) for record in found] == [(b"1", b"a"), (b"2", None), (None, b""), (b"3", b"c")]
    assert found[3].headers == (("h", b"x"), ("h", None))
    assert (found[3].topic, found[3].partition, found[3].offset) == (topic, 0, 3)


def test_a_topic_that_was_compacted_or_written_in_transactions_ends(kafka) -> None:
    from confluent_kafka import Producer

    topic = new_topic(kafka, [])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for n in range(3):
        producer.begin_transaction()
        producer.produce(topic, value=str(n))
        producer.commit_transaction()
    # Every second offset is a commit marker, and so is the last offset of the topic.
    assert [record.value for record in sample_topic(kafka.bootstrap_servers, topic, timeout_seconds=20)] == [b"0", b"1", b"2"]


def test_an_empty_topic_gives_no_records_and_no_schema(kafka) -> None:
    topic = new_topic(kafka, [])
    assert sample_topic(kafka.bootstrap_servers, topic) == []
    with pytest.raises(InferenceError, match=r"the sample has no row of maxwell-json .* or pass schema"):
        infer_topic(kafka.bootstrap_servers, topic, format="maxwell-json")


def test_nothing_is_committed_and_no_group_is_left(kafka) -> None:
    topic = new_topic(kafka, [(None, b"x")] * 10)
    sample_topic(kafka.bootstrap_servers, topic)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    groups = [group.group_id for group in admin.list_consumer_groups().result().valid]
    assert [group for group in groups if "sample" in group] == []


def test_a_missing_topic_is_an_error(kafka) -> None:
    with pytest.raises(UnknownTopicError, match=r"^\[UNKNOWN_TOPIC\] topic 'nowhere' does not exist, or this user may not see it"):
        sample_topic(kafka.bootstrap_servers, "nowhere")


def test_an_unreachable_broker_is_an_error_without_secrets() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ada", "sasl.password": "lovelace"}
    with pytest.raises(KafkaUnavailableError, match="no Kafka broker answered") as caught:
        sample_topic(f"127.0.0.1:{port}", "orders", config=config, timeout_seconds=2)
    assert "lovelace" not in str(caught.value)


@pytest.mark.parametrize("config", [{"no.such": "lovelace"}, {"security.protocol": "lovelace"}, {"enable.auto.commit": True}])
def test_an_invalid_option_is_named_without_its_value(config: dict) -> None:
    with pytest.raises(ArgumentError) as caught:
        sample_topic("localhost:1", "orders", config=config)
    (name,) = config
    assert name in str(caught.value)
    assert "lovelace" not in str(caught.value)


def test_a_recorded_topic_gives_the_schema_of_its_table(kafka) -> None:
    topic = f"{new_topic(kafka, [])}-recorded"
    kafka.load_recording(TOPICS / "canal-mariadb-flat.jsonl.gz", topic)
    found = infer_topic(kafka.bootstrap_servers, topic, format="canal-json", sample=4000, table_include="customers", time_zone="UTC")
    assert found.ddl == (
        "id INT NOT NULL, name STRING, email STRING, balance DECIMAL(20,4), created TIMESTAMP(3), updated TIMESTAMP_NTZ(6)"
    )
    assert found.primary_key == ("id",)
    with pytest.raises(InferenceError, match=r"several tables: .*inventory\.customers \(1893 rows\), .*; choose one with table_include"):
        infer_topic(kafka.bootstrap_servers, topic, format="canal-json", sample=4000)


# --------------------------------------------------------------------------------------- from_kafka_changelog(schema=None)


def block(**row: object) -> bytes:
    fields = [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "field": "price", "parameters": PRICE},
        {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "field": "at"},
    ]
    image = {"type": "struct", "fields": fields, "optional": True}
    schema = {"type": "struct", "fields": [{**image, "field": "before"}, {**image, "field": "after"}, {"type": "string", "field": "op"}]}
    payload = {"before": None, "after": row, "op": "c", "source": {"connector": "postgresql", "db": "d", "table": "t"}}
    return json.dumps({"schema": schema, "payload": payload}).encode()


PRICE = {"scale": "2", "connect.decimal.precision": "8"}


@pytest.mark.spark
def test_without_a_schema_it_is_inferred_and_printed(spark, kafka, capsys) -> None:
    records = [(json.dumps({"id": n}).encode(), block(id=n, price="A7Y=", at=1735787045123456)) for n in range(3)]
    topic = new_topic(kafka, records)
    changes = from_kafka_changelog(spark, topic, format="debezium-json", options=servers(kafka), bounded=True)
    assert changes.schema.simpleString() == "struct<row_kind:string,id:int,price:decimal(8,2),at:timestamp_ntz>"
    assert [tuple(row) for row in changes.orderBy("id").limit(1).collect()] == [
        ("+I", 0, Decimal("9.50"), datetime(2025, 1, 2, 3, 4, 5, 123456))
    ]
    said = capsys.readouterr().out
    assert said == (
        f"Inferred from 3 records of {topic}, 3 rows:\n"
        'schema="""\n    id INT NOT NULL,\n    price DECIMAL(8,2),\n    at TIMESTAMP_NTZ(6)\n"""\n'
        "primary_key=['id']  # the fields of the Kafka key, in 3 records\n"
        "format_options={'schema_include': True, 'decimal_handling_mode': 'precise'}\n"
        "# schema_include: all 3 messages have a schema block\n"
        "# decimal_handling_mode: the schema block has Connect's Decimal\n"
        "Pass these arguments to pin them: another sample may lead to other results.\n"
    )
    assert [str(column) for column in columns(said.split('"""')[1])] == ["id INT NOT NULL", "price DECIMAL(8,2)", "at TIMESTAMP_NTZ(6)"]


@pytest.mark.spark
def test_passed_arguments_take_precedence_over_inferred_ones(spark, kafka, capsys) -> None:
    topics = [
        new_topic(kafka, [(b'{"id": 1}', b'{"type": "insert", "database": "d", "table": "t", "data": {"id": 1, "n": %d}}' % n)])
        for n in (1, 2)
    ]
    changes = from_kafka_changelog(
        spark, topics, format="maxwell-json", primary_key=["n"], format_options={"table-include": "t"}, options=servers(kafka), bounded=True
    )
    assert sorted(tuple(row) for row in changes.collect()) == [("+I", 1, 1), ("+I", 1, 2)]
    said = capsys.readouterr().out
    assert "primary_key=['n']  # as given" in said
    assert "# id, n: guessed from its values" in said


@pytest.mark.spark
def test_a_topic_without_rows_needs_a_schema(spark, kafka) -> None:
    with pytest.raises(InferenceError, match="the sample has no row of canal-json"):
        from_kafka_changelog(spark, new_topic(kafka, []), format="canal-json", options=servers(kafka), primary_key="id")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"subscribePattern": "a.*"}, "only named topics can be sampled: pass schema, or the topics"),
        ({"assign": "{"}, "the option assign is not JSON"),
        (
            {"subscribe": "a", "kafka.sasl.mechanism": "GSSAPI", "kafka.security.protocol": "SASL_SSL"},
            "librdkafka samples the topic, but .*GSSAPI.*: pass schema",
        ),
    ],
)
def test_a_source_that_cannot_be_sampled_needs_a_schema(more: dict, said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        from_kafka_changelog(None, format="canal-json", options={"kafka.bootstrap.servers": "localhost:1", **more})
