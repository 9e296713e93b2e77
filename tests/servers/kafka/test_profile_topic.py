"""Profiles, samples and schemas of real topics: no side effects, progress and errors."""

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from cdc_formats.errors import ArgumentError, InferenceError, UnknownTopicError
from cdc_formats.topics.kafka import infer_topic, profile_topic, sample_topic
from normalize.local_kafka import ProducerRecord
from tests.support.commands import quick
from tests.support.job_file import job_file
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
    profile = profile_topic(kafka.bootstrap_servers, topics[MAXWELL], progress=False)
    assert (profile.topic, profile.format, profile.records) == (
        topics[MAXWELL],
        "maxwell-json",
        1000,
    )
    (partition,) = profile.partitions
    assert (partition.begin, partition.records, partition.missing) == (0, 1000, 0)
    assert partition.end > 1000
    # Consumer groups of other tests may end at the same time.
    assert {group.group_id for group in admin.list_consumer_groups().result().valid} <= before


def test_sample_format_and_options_are_used(kafka: Any, topics: dict[str, str]) -> None:
    options = {"table_include": "customers", "config": {"client.id": "me"}}
    profile = profile_topic(
        kafka.bootstrap_servers,
        topics[MAXWELL],
        sample=100,
        format="maxwell-json",
        progress=False,
        **options,
    )
    assert (profile.records, profile.reason, profile.connection) == (
        100,
        "as given",
        ("client.id",),
    )
    assert {each.name for each in profile.tables} <= {"inventory.customers"}


def test_a_progress_bar_names_the_topic(
    kafka: Any, topics: dict[str, str], capfd: pytest.CaptureFixture[str]
) -> None:
    profile_topic(kafka.bootstrap_servers, topics[UPSERT], sample=50, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert topics[UPSERT] in err
    assert "50/50" in err


def test_the_doctor_sees_aborted_transactions_and_compaction(kafka: Any, tmp_path: Path) -> None:
    def message(op: str, after: Any) -> bytes:
        row = {"id": 1, "name": "a"}
        return json.dumps({"op": op, "before": None if after else row, "after": after}).encode()

    topic = new_topic(kafka, [])
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": f"writer-of-{topic}"}
    )
    producer.init_transactions()
    for op, end in (
        ("c", producer.commit_transaction),
        ("u", producer.abort_transaction),
        ("u", producer.commit_transaction),
    ):
        producer.begin_transaction()
        producer.produce(topic, message(op, {"id": 1, "name": op}), b'{"id": 1}')
        producer.flush()
        end()
    broker = "-b", kafka.bootstrap_servers
    done = quick("doctor", topic, *broker)
    assert (done.code, done.lines[1]) == (1, f"  seen: {topic}[0]@2")
    assert done.out.startswith("aborted transactions: records are of transactions")
    compacted = f"{topic}-compacted"
    kafka.create_topic(compacted, config={"cleanup.policy": "compact,delete"})
    kafka.produce(compacted, [(b'{"id": 1}', message("c", {"id": 1, "name": "a"}))])
    kafka.produce(compacted, [(b'{"id": 1}', message("d", None))])
    job = job_file(kafka, tmp_path, compacted, format="debezium-json")
    done = quick("doctor", str(job), "--json")
    found = [json.loads(line) for line in done.lines]
    assert [(each["topic"], each["name"]) for each in found] == [
        (compacted, "no tombstones"),
        (compacted, "compacted"),
    ]


@pytest.mark.soak
def test_every_sample_is_complete(kafka: Any, topics: dict[str, str]) -> None:
    # A partition that librdkafka kept paused cost one in 200 samples its records, after 30 s.
    for _ in range(1000):
        records = sample_topic(
            kafka.bootstrap_servers, topics[UPSERT], sample=50, timeout_seconds=10
        )
        assert len(records) == 50


def test_offsets_without_a_record_are_counted(kafka: Any) -> None:
    topic = new_topic(kafka, [])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.produce(topic, key=b"%d" % number, value=json.dumps({"id": number}))
        producer.commit_transaction()
    profile = profile_topic(kafka.bootstrap_servers, topic, progress=False)
    (partition,) = profile.partitions
    assert (partition.begin, partition.end, partition.records, partition.missing) == (0, 8, 4, 4)


def test_a_topic_that_cannot_be_sampled_is_an_error(kafka: Any) -> None:
    with pytest.raises(
        UnknownTopicError,
        match=r"^\[UNKNOWN_TOPIC\] topic 'nowhere' does not exist, or this user may not see it",
    ):
        profile_topic(kafka.bootstrap_servers, "nowhere", progress=False)
    with pytest.raises(ArgumentError, match=r"enable\.auto\.commit"):
        profile_topic(kafka.bootstrap_servers, "nowhere", config={"enable.auto.commit": True})


# --------------------------------------------------------------------------------------------------
# samples and schemas


def test_a_sample_is_the_beginning_and_the_end_of_each_partition(kafka) -> None:
    topic = f"{new_topic(kafka, [])}-parts"
    kafka.create_topic(topic, partitions=3)
    kafka.produce(
        topic,
        [ProducerRecord(b"k", str(n).encode(), n % 2, 1_700_000_000_000 + n) for n in range(2000)],
    )
    records = sample_topic(kafka.bootstrap_servers, topic, sample=40)
    offsets = {
        partition: [record.offset for record in records if record.partition == partition]
        for partition in range(3)
    }
    assert offsets == {
        0: [*range(10), *range(990, 1000)],
        1: [*range(10), *range(990, 1000)],
        2: [],
    }
    assert [(record.value, record.timestamp - 1_700_000_000_000) for record in records[:3]] == [
        (b"0", 0),
        (b"2", 2),
        (b"4", 4),
    ]


def test_a_topic_shorter_than_the_sample_is_read_completely(kafka) -> None:
    topic = new_topic(kafka, [(b"1", b"a"), (b"2", None), (None, b"")])
    kafka.produce(
        topic, [ProducerRecord(b"3", b"c", 0, 1_500_000_000_000, (("h", b"x"), ("h", None)))]
    )
    records = sample_topic(kafka.bootstrap_servers, topic)
    assert [
        (record.topic, record.partition, record.offset, record.key, record.value, record.headers)
        for record in records
    ] == [
        (topic, 0, 0, b"1", b"a", ()),
        (topic, 0, 1, b"2", None, ()),
        (topic, 0, 2, None, b"", ()),
        (topic, 0, 3, b"3", b"c", (("h", b"x"), ("h", None))),
    ]


def test_an_empty_topic_gives_no_records_and_no_schema(kafka) -> None:
    topic = new_topic(kafka, [])
    assert sample_topic(kafka.bootstrap_servers, topic) == []
    with pytest.raises(
        InferenceError, match=r"the sample has no row of maxwell-json .* or pass schema"
    ):
        infer_topic(kafka.bootstrap_servers, topic, format="maxwell-json")
