"""``cdc convert`` from topic to topic, on a real broker."""

from __future__ import annotations

import json
import time
from typing import Any
from uuid import uuid4

import pytest

from cdc_formats import Ignored, get_format
from cdc_formats.testing import render
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.kafka import sample_topic
from normalize.local_kafka import ProducerRecord
from tests.support.commands import cdc, interrupted, quick, running
from tests.support.paths import RECORDS

SCHEMA = "id INT, name STRING, email STRING, balance DECIMAL(20,4), updated TIMESTAMP_NTZ(6)"
TO = {"decimal_handling_mode": "precise", "time_precision_mode": "microseconds", "unavailable_value_placeholder": "-"}
DECLARED = ("--schema", "id INT, name STRING")


def new_topic(kafka: Any, partitions: int = 1, **config: str) -> str:
    name = f"cli-{uuid4().hex[:12]}"
    kafka.create_topic(name, partitions, config)
    return name


def records(kafka: Any, topic: str) -> list[SampledRecord]:
    return sample_topic(kafka.bootstrap_servers, topic, sample=100_000)


def rows(found: list[SampledRecord], format: str, options: dict[str, Any], schema: str = SCHEMA) -> list[str]:
    decoder, lines = get_format(format, **options).decoder(schema), []
    for record in found:
        changes = decoder.decode(record.key, record.value)
        lines += [] if isinstance(changes, Ignored) else render(changes, decoder.columns)
    return lines


def by_key(lines: list[str]) -> dict[str, list[str]]:
    """Return the rows of each key; an update that changes the key is a delete and an insert, as it is written."""
    kept: dict[str, list[str]] = {}
    for before, line, after in zip(["", *lines], lines, [*lines[1:], ""], strict=False):
        key = line[2:].split(",")[0]
        if line[:2] == "-U" and after[2:].split(",")[0] != key:
            line = f"-D{line[2:]}"
        if line[:2] == "+U" and before[2:].split(",")[0] != key:
            line = f"+I{line[2:]}"
        kept.setdefault(key, []).append(line)
    return kept


def message(kind: str, id: int, name: str, **more: Any) -> bytes:
    return json.dumps({"type": kind, "data": {"id": id, "name": name}, **more}).encode()


def test_maxwell_topic_converts_to_debezium_with_the_same_rows_per_key(kafka: Any) -> None:
    source, target = f"cli-maxwell-{uuid4().hex[:6]}", new_topic(kafka, 3)
    kafka.load_recording(RECORDS / "maxwell-mariadb.jsonl.gz", source)
    options = [part for name, value in TO.items() for part in ("--to-option", f"{name}={value}")]
    done = cdc(
        "convert", "--from", "maxwell-json", "--to", "debezium-json", "--from-topic", source, "--to-topic", target, "-b",
        kafka.bootstrap_servers, "--from-option", "table_include=customers", *options, "--schema", SCHEMA, "--primary-key", "id",
    )  # fmt: skip
    assert done.code == 0, done.err
    written = records(kafka, target)
    expected = by_key(rows(records(kafka, source), "maxwell-json", {"table_include": "customers"}))
    assert len(expected) > 1000
    assert by_key(rows(written, "debezium-json", TO)) == expected
    assert done.err.endswith(f"; {len(written):,} records written to {target}\n")
    partitions: dict[bytes | None, set[int]] = {}
    for record in written:
        partitions.setdefault(record.key, set()).add(record.partition)
    assert all(len(each) == 1 for each in partitions.values())
    assert {record.partition for record in written} == {0, 1, 2}


def test_records_without_a_key_keep_their_order_within_a_partition(kafka: Any) -> None:
    source, target = new_topic(kafka, 3), new_topic(kafka, 2)
    kafka.produce(source, [ProducerRecord(None, message("insert", id, str(id % 3)), id % 3) for id in range(90)])
    run = ("convert", "--from", "maxwell-json", "--to", "ogg-json", "-b", kafka.bootstrap_servers, *DECLARED)
    done = quick(*run, "--from-topic", source, "--to-topic", target)
    assert done.code == 0, done.err
    written = records(kafka, target)
    found = [(record.partition, json.loads(record.value or b"")["after"]) for record in written]
    for of in range(3):
        ids = [(partition, row["id"]) for partition, row in found if row["name"] == str(of)]
        assert [id for _, id in ids] == list(range(of, 90, 3))
        assert {partition for partition, _ in ids} == {of % 2}


def test_upserts_are_written_with_tombstones_and_read_back_as_a_changelog(kafka: Any) -> None:
    source, upserts, target = new_topic(kafka, 2), new_topic(kafka, 2), new_topic(kafka, 2)
    values = [message("insert", 1, "a"), message("update", 1, "b", old={"name": "a"}), message("delete", 1, "b")]
    kafka.produce(source, [(b"1", value) for value in values])
    keyed = ("convert", *DECLARED, "--primary-key", "id", "-b", kafka.bootstrap_servers)
    assert quick(*keyed, "--from", "maxwell-json", "--to", "upsert-kafka", "--from-topic", source, "--to-topic", upserts).code == 0
    assert [record.value for record in records(kafka, upserts)] == [b'{"id":1,"name":"a"}', b'{"id":1,"name":"b"}', None]
    assert quick(*keyed, "--from", "upsert-kafka", "--to", "maxwell-json", "--from-topic", upserts, "--to-topic", target).code == 0
    assert rows(records(kafka, target), "maxwell-json", {}, DECLARED[1]) == ["+I(1,a)", "-U(1,a)", "+U(1,b)", "-D(1,b)"]


def test_conversion_stops_at_the_end_of_the_topic_or_follows_it_until_ctrl_c(kafka: Any) -> None:
    source, target = new_topic(kafka), new_topic(kafka)
    kafka.produce(source, [(None, message("insert", 1, "a"))])
    run = ("convert", "--from", "maxwell-json", "--to", "changelog-json", "--from-topic", source, *DECLARED, "-b", kafka.bootstrap_servers)
    assert [json.loads(line)["data"]["id"] for line in quick(*run).lines] == [1]
    with running(*run, "--follow") as process:
        assert process.stdout is not None
        assert b'"id":1' in process.stdout.readline()
        kafka.produce(source, [(None, message("insert", 2, "b"))])
        assert b'"id":2' in process.stdout.readline()
        done = interrupted(process)
    assert (done.code, done.out) == (130, "")
    assert done.err == "2 rows (2 +I) of 2 records; 2 records written to standard output\n"
    with running(*run, "--follow", "--to-topic", target) as process:
        for id in range(3, 6):
            kafka.produce(source, [(None, message("insert", id, "c"))])
        _wait_for(lambda: len(records(kafka, target)) == 5)
        done = interrupted(process)
    assert done.code == 130
    assert done.err == f"5 rows (5 +I) of 5 records; 5 records written to {target}\n"
    assert [json.loads(record.value or b"")["data"]["id"] for record in records(kafka, target)] == [1, 2, 3, 4, 5]


def _wait_for(condition: Any, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_conversion_stops_when_the_last_offsets_hold_no_record(kafka: Any) -> None:
    from confluent_kafka import Producer

    source = new_topic(kafka)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": source})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(source, value=message("insert", 1, "a"))
    producer.commit_transaction()
    run = ("convert", "--from", "maxwell-json", "--to", "changelog-json", "--from-topic", source, *DECLARED, "-b", kafka.bootstrap_servers)
    assert len(quick(*run).lines) == 1


def test_lines_of_a_file_are_written_to_a_topic_and_read_back(kafka: Any) -> None:
    target = new_topic(kafka)
    lines = b"".join(message("insert", id, "é") + b"\n" for id in range(500))
    keyed = (*DECLARED, "--primary-key", "id", "-b", kafka.bootstrap_servers)
    done = quick("convert", "--from", "maxwell-json", "--to", "canal-json", "--to-topic", target, *keyed, stdin=lines)
    assert done.code == 0, done.err
    back = quick("convert", "--from", "canal-json", "--to", "maxwell-json", "--from-topic", target, *keyed)
    assert [json.loads(line)["data"]["id"] for line in back.lines] == list(range(500))


def test_missing_topic_is_an_error(kafka: Any) -> None:
    source = new_topic(kafka)
    kafka.produce(source, [(None, message("insert", 1, "a"))])
    run = ("convert", "--from", "maxwell-json", "--to", "ogg-json", "-b", kafka.bootstrap_servers, *DECLARED)
    for more in (("--from-topic", source, "--to-topic", "nosuch"), ("--from-topic", "nosuch")):
        done = quick(*run, *more)
        assert done.code == 1
        assert "error: [UNKNOWN_TOPIC] topic 'nosuch' does not exist" in done.err


def test_record_that_kafka_rejects_fails_the_conversion(kafka: Any) -> None:
    source, target = new_topic(kafka), new_topic(kafka, **{"max.message.bytes": "2000"})
    kafka.produce(source, [(None, message("insert", id, "x" * (5000 if id == 2 else 1))) for id in range(4)])
    run = ("convert", "--from", "maxwell-json", "--to", "ogg-json", "-b", kafka.bootstrap_servers, *DECLARED)
    done = quick(*run, "--from-topic", source, "--to-topic", target)
    assert done.code == 1
    assert f"error: [DELIVERY] {target} did not accept a record: MSG_SIZE_TOO_LARGE: raise max.message.bytes of the topic" in done.err


@pytest.mark.parametrize("given", ["acks=1", "enable.idempotence=false", "request.required.acks=0"])
def test_property_that_weakens_delivery_is_refused(kafka: Any, given: str) -> None:
    target = new_topic(kafka)
    run = ("convert", "--from", "maxwell-json", "--to", "ogg-json", "--to-topic", target, "-b", kafka.bootstrap_servers, *DECLARED)
    done = quick(*run, "-X", given, stdin=message("insert", 1, "a"))
    assert done.code == 1
    assert f"error: [ARGUMENT] {given.partition('=')[0]} must be" in done.err
    assert records(kafka, target) == []
