"""Profiles of topics on a real broker: no side effects, samples, progress and errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from cdc_formats.errors import ArgumentError, UnknownTopicError
from cdc_formats.topics.kafka import profile_topic
from normalize.local_kafka import ProducerRecord
from tests.support.paths import RECORDS
from tests.support.streams import new_topic

UPSERT, MAXWELL = "flink-upsert.tags", "maxwell-mariadb"


@pytest.fixture(scope="module")
def topics(kafka: Any) -> dict[str, str]:
    """Recorded topics on the broker."""
    names = {name: f"profile-{name}" for name in (UPSERT, MAXWELL)}
    for name, topic in names.items():
        kafka.load_recording(RECORDS / f"{name}.jsonl.gz", topic)
    return names


def test_a_topic_is_profiled_and_nothing_is_left_behind(kafka: Any, topics: dict[str, str]) -> None:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    before = {group.group_id for group in admin.list_consumer_groups().result().valid}
    found = profile_topic(kafka.bootstrap_servers, topics[MAXWELL], progress=False)
    assert (found.topic, found.format, found.records) == (topics[MAXWELL], "maxwell-json", 1000)
    (partition,) = found.partitions
    assert (partition.begin, partition.records) == (0, 1000)
    assert partition.end > 1000
    assert partition.missing == 0
    # Consumer groups of other tests may end at the same time.
    assert {group.group_id for group in admin.list_consumer_groups().result().valid} <= before


def test_sample_format_and_options_are_used(kafka: Any, topics: dict[str, str]) -> None:
    options = {"table_include": "customers", "config": {"client.id": "me"}}
    found = profile_topic(kafka.bootstrap_servers, topics[MAXWELL], sample=100, format="maxwell-json", progress=False, **options)
    assert (found.records, found.reason, found.connection) == (100, "as given", ("client.id",))
    assert {each.name for each in found.tables} <= {"inventory.customers"}


def test_a_progress_bar_names_the_topic(kafka: Any, topics: dict[str, str], capfd: pytest.CaptureFixture[str]) -> None:
    profile_topic(kafka.bootstrap_servers, topics[UPSERT], sample=50, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert topics[UPSERT] in err
    assert "50/50" in err


def test_offsets_without_a_record_are_counted(kafka: Any) -> None:
    from confluent_kafka import Producer

    topic = new_topic(kafka, [])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, key=b"%d" % number, value=json.dumps({"id": number}))
        producer.commit_transaction()
    found = profile_topic(kafka.bootstrap_servers, topic, progress=False)
    (partition,) = found.partitions
    assert (partition.begin, partition.end, partition.records, partition.missing) == (0, 8, 4, 4)


def test_a_topic_that_cannot_be_sampled_is_an_error(kafka: Any) -> None:
    with pytest.raises(UnknownTopicError, match=r"^\[UNKNOWN_TOPIC\] topic 'nowhere' does not exist, or this user may not see it"):
        profile_topic(kafka.bootstrap_servers, "nowhere", progress=False)
    with pytest.raises(ArgumentError, match=r"enable\.auto\.commit"):
        profile_topic(kafka.bootstrap_servers, "nowhere", config={"enable.auto.commit": True})


def test_hostile_bytes_of_a_real_record_are_text(kafka: Any) -> None:
    topic = new_topic(kafka, [])
    value = b'{"type": "insert", "database": "<b>", "table": "\\u001b[31m", "data": {"</td><script>": 1}}'
    kafka.produce(topic, [ProducerRecord(b"\xff\x1b[2J", value, 0, 1_700_000_000_000, (("<i>\u202e", b"\x1b"),))])
    found = profile_topic(kafka.bootstrap_servers, topic, progress=False)
    assert found.headers == {"<i>\u202e": 1}
    assert not any(bad in found._repr_html_() for bad in ("<b>", "<script", "<i>", "\x1b", "\u202e"))
    assert "\x1b" not in str(found)
