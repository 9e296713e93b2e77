"""Sampling a topic of a real broker, and inferring a schema from it."""

from __future__ import annotations

import pytest

from cdc_formats.errors import InferenceError
from cdc_formats.topics.kafka import infer_topic, sample_topic
from normalize.local_kafka import ProducerRecord
from tests.support.paths import RECORDS as TOPICS
from tests.support.streams import new_topic


def test_a_sample_is_the_beginning_and_the_end_of_each_partition(kafka) -> None:
    topic = f"{new_topic(kafka, [])}-parts"
    kafka.create_topic(topic, partitions=3)
    kafka.produce(topic, [ProducerRecord(b"k", str(n).encode(), n % 2, 1_700_000_000_000 + n) for n in range(2000)])
    found = sample_topic(kafka.bootstrap_servers, topic, sample=40)
    offsets = {partition: [record.offset for record in found if record.partition == partition] for partition in range(3)}
    assert offsets == {0: [*range(10), *range(990, 1000)], 1: [*range(10), *range(990, 1000)], 2: []}
    assert [record.value for record in found[:3]] == [b"0", b"2", b"4"]
    assert found[0].timestamp == 1_700_000_000_000


def test_a_topic_shorter_than_the_sample_is_read_completely(kafka) -> None:
    topic = new_topic(kafka, [(b"1", b"a"), (b"2", None), (None, b"")])
    kafka.produce(topic, [ProducerRecord(b"3", b"c", 0, 1_500_000_000_000, (("h", b"x"), ("h", None)))])
    found = sample_topic(kafka.bootstrap_servers, topic)
    assert [(record.key, record.value) for record in found] == [(b"1", b"a"), (b"2", None), (None, b""), (b"3", b"c")]
    assert found[3].headers == (("h", b"x"), ("h", None))
    assert (found[3].topic, found[3].partition, found[3].offset) == (topic, 0, 3)


def test_an_empty_topic_gives_no_records_and_no_schema(kafka) -> None:
    topic = new_topic(kafka, [])
    assert sample_topic(kafka.bootstrap_servers, topic) == []
    with pytest.raises(InferenceError, match=r"the sample has no row of maxwell-json .* or pass schema"):
        infer_topic(kafka.bootstrap_servers, topic, format="maxwell-json")


def test_a_recorded_topic_gives_the_schema_of_its_table(kafka) -> None:
    topic = f"{new_topic(kafka, [])}-recorded"
    kafka.load_recording(TOPICS / "canal-mariadb-flat.jsonl.gz", topic)
    found = infer_topic(kafka.bootstrap_servers, topic, format="canal-json", sample=4000, table_include="customers", time_zone="UTC")
    assert found.ddl == (
        "id INT NOT NULL, name STRING, email STRING, balance DECIMAL(20,4), created TIMESTAMP(3), updated TIMESTAMP_NTZ(6)"
    )
    assert found.primary_key == ("id",)
    with pytest.raises(InferenceError, match=r"several tables: .*inventory\.customers \(2357 changes\), .*; choose one with table_include"):
        infer_topic(kafka.bootstrap_servers, topic, format="canal-json", sample=4000)
