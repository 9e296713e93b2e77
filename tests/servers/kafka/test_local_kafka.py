"""The local broker: every test uses a real Kafka."""

import base64
import gzip
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from confluent_kafka.admin import AdminClient

from cdc_formats.errors import TopicReplacedError
from cdc_formats.topics.kafka import sample_topic
from normalize.kafka.topics import INTERVAL, TopicIds, TopicMonitor
from normalize.local_kafka import (
    KAFKA_VERSION,
    LocalKafka,
    LocalKafkaError,
    ProducerRecord,
    broker_jars,
)
from tests.support.paths import REPOSITORY
from tests.support.servers.processes import free_port, listens
from tests.support.streams import new_topic, recreate_topic

pytestmark = pytest.mark.kafka


# Details that a careless copy loses: nulls instead of empty values, bytes that are not text, past
# timestamps.
RECORDED = [
    ProducerRecord(b"1", b'{"id": 1}', 0, 1_500_000_000_000),
    ProducerRecord(
        b"2",
        b'{"id": 2}',
        2,
        1_500_000_000_001,
        (("__op", b"c"), ("__op", b"u"), ("trace", None), ("empty", b"")),
    ),
    ProducerRecord(b"1", None, 0, 1_499_999_999_999),
    ProducerRecord(None, b"no key", 2, 1),
    ProducerRecord(b"", b"", 0, 4_102_444_800_000),
    ProducerRecord(b"\x00\x00\x00\x00\x07\xff", bytes(range(256)), 0, 1_500_000_000_002),
    ProducerRecord("schlüssel".encode(), "値".encode(), 2, 1_500_000_000_003),
]


@pytest.fixture
def recording(tmp_path):
    return write_recording(tmp_path / "orders.jsonl.gz", "shop.orders", RECORDED)


def write_recording(path, topic, records):
    with gzip.open(path, "wt") as file:
        for offset, record in enumerate(records):
            entry = {
                "topic": topic,
                "partition": record.partition,
                "offset": offset,
                "timestamp": record.timestamp,
                "timestamp_type": TIMESTAMP_CREATE_TIME,
                "key_base64": to_base64(record.key),
                "value_base64": to_base64(record.value),
                "headers": [[name, to_base64(value)] for name, value in record.headers],
            }
            file.write(json.dumps(entry) + "\n")
    return path


def to_base64(data):
    return None if data is None else base64.b64encode(data).decode()


def read(servers, topic):
    """Return the records of a topic, by partition and offset."""
    records = sample_topic(servers, topic, sample=20_000)
    return by_partition(
        ProducerRecord(each.key, each.value, each.partition, each.timestamp, each.headers)
        for each in records
    )


def by_partition(records):
    return sorted(records, key=lambda record: record.partition)


def test_a_recording_is_loaded_byte_for_byte_also_into_another_topic(kafka, recording):
    kafka.create_topic("copy", partitions=3)
    for topic in (None, "copy", "copy"):
        assert kafka.load_recording(recording, topic=topic) == len(RECORDED)
    assert read(kafka.bootstrap_servers, "shop.orders") == by_partition(RECORDED)
    assert read(kafka.bootstrap_servers, "copy") == by_partition(RECORDED + RECORDED)


def test_partitions_that_a_topic_lacks_and_a_topic_that_exists_are_refused(kafka, recording):
    kafka.create_topic("narrow", partitions=2)
    with pytest.raises(
        LocalKafkaError, match=r"'narrow' has 2 partition\(s\), the recording needs 3"
    ):
        kafka.load_recording(recording, topic="narrow")
    with pytest.raises(LocalKafkaError, match=r"to 'narrow': .*[Uu]nknown partition"):
        kafka.produce("narrow", [ProducerRecord("k", "v", partition=5)])
    with pytest.raises(LocalKafkaError, match=r"cannot create topic 'narrow': .*already exists"):
        kafka.create_topic("narrow")


def test_load_recording_of_several_topics_keeps_them_apart(kafka, tmp_path):
    path = tmp_path / "all.jsonl"
    parts = [
        write_recording(tmp_path / f"{topic}.gz", topic, RECORDED[:1])
        for topic in ("left", "right")
    ]
    path.write_bytes(b"".join(gzip.decompress(part.read_bytes()) for part in parts))
    assert kafka.load_recording(path) == 2
    assert (
        read(kafka.bootstrap_servers, "left")
        == read(kafka.bootstrap_servers, "right")
        == RECORDED[:1]
    )
    with pytest.raises(LocalKafkaError, match=r"several topics \(left, right\)"):
        kafka.load_recording(path, topic="both")
    path.write_bytes(b"")
    assert kafka.load_recording(path) == 0


def test_produce_pairs_keeps_the_order_of_each_key(kafka):
    kafka.create_topic("pairs", partitions=3)
    pairs = [(f"key {i % 10}", f"value {i}") for i in range(5000)]
    assert kafka.produce("pairs", pairs) == 5000
    records = [
        (record.key.decode(), record.value.decode())
        for record in read(kafka.bootstrap_servers, "pairs")
    ]
    for key in {key for key, _ in pairs}:
        assert [pair for pair in records if pair[0] == key] == [
            pair for pair in pairs if pair[0] == key
        ]


def test_produce_of_a_large_message_is_accepted(kafka):
    kafka.create_topic("large")
    large = os.urandom(19 * 1024 * 1024)
    kafka.produce("large", [(None, large)])
    assert read(kafka.bootstrap_servers, "large")[0].value == large


def test_produce_to_an_unknown_topic_is_refused_and_creates_none(kafka):
    with pytest.raises(
        LocalKafkaError, match=r"cannot write 1 record\(s\) to 'typo': .*[Uu]nknown topic"
    ):
        kafka.produce("typo", [("k", "v")])
    assert (
        "typo"
        not in AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        .list_topics(timeout=30)
        .topics
    )


def test_start_twice_is_one_broker_and_a_taken_port_is_refused(kafka):
    address = kafka.bootstrap_servers
    assert kafka.start() is kafka
    assert kafka.bootstrap_servers == address
    port = address.split(":")[1]
    with pytest.raises(LocalKafkaError, match=f"cannot use port {port} .*in use"):
        LocalKafka(port=int(port)).start()
    # In a terminal that is one line.
    command = [sys.executable, "-m", "normalize.local_kafka", "--port", port]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 1
    assert done.stderr.startswith(f"cannot use port {port}")
    assert done.stderr.count("\n") == 1


def test_broker_that_ends_at_start_shows_the_end_of_its_log(tmp_path):
    (tmp_path / "data").mkdir()
    meta = (
        "version=1\nnode.id=9\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\n"
        "directory.id=Cr2Or7-WplW0BrnPbdDbYg\n"
    )
    (tmp_path / "data" / "meta.properties").write_text(meta)
    kafka = LocalKafka(data_dir=tmp_path)
    with pytest.raises(
        LocalKafkaError, match=r"(?s)Kafka ended at start; the end of its log:.*node id.* 9"
    ):
        kafka.start()
    with pytest.raises(LocalKafkaError, match="Kafka does not run"):
        kafka.wait()


@pytest.mark.parametrize(
    "end",
    [
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", id="killed"),
        pytest.param("sys.exit()", id="ended without stop", marks=pytest.mark.soak),
    ],
)
def test_broker_and_data_are_removed_when_the_parent_ends(end, tmp_path):
    program = f"""
import os, signal, sys
from normalize.local_kafka import LocalKafka
kafka = LocalKafka().start()
print(kafka.bootstrap_servers, flush=True)
sys.stdin.readline()
{end}
"""
    process = {"cwd": REPOSITORY, "env": {**os.environ, "TMPDIR": str(tmp_path)}}
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **process
    ) as parent:
        port = int(parent.stdout.readline().rpartition(":")[2])
        assert listens(port)
        (home,) = tmp_path.glob("local-kafka-*")
        parent.stdin.write("\n")
    deadline = time.monotonic() + 30
    while listens(port) or home.exists():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


def test_data_dir_keeps_topics_between_a_stopped_broker_and_one_in_a_terminal(tmp_path):
    program = f"""
import os, time
from normalize.local_kafka import LocalKafka
with LocalKafka(data_dir={str(tmp_path / "data")!r}) as kafka:
    print(kafka.bootstrap_servers, flush=True)
    kafka.create_topic("kept")
    kafka.produce("kept", [(b"1", b"x")])
    child = os.fork()
    if child == 0:  # stopping does not wait for it, although it has the pipe to the guard
        time.sleep(60)
        os._exit(0)
os.kill(child, 9)
print("stopped")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=REPOSITORY, timeout=50
    )
    address, stopped = done.stdout.splitlines()
    assert stopped == "stopped", done.stderr
    assert not listens(int(address.rpartition(":")[2]))
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "normalize.local_kafka",
        "--port",
        str(port),
        "--data-dir",
        str(tmp_path / "data"),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as terminal:
        try:
            assert (
                terminal.stdout.readline()
                == f"Kafka {KAFKA_VERSION} runs at 127.0.0.1:{port}; Ctrl-C stops it\n"
            )
            assert [(record.key, record.value) for record in read(f"127.0.0.1:{port}", "kept")] == [
                (b"1", b"x")
            ]
        finally:
            terminal.send_signal(signal.SIGINT)
    assert terminal.returncode == 0
    assert not listens(port)


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        (
            "JAVA_HOME",
            "/no/such/folder",
            "need Java 17 or 21, and /no/such/folder/bin/java is not Java: .* install ",
        ),
        (
            "KAFKA_JVM_PERFORMANCE_OPTS",
            "-XX:+UseSerialGC -XX:+NoSuchOption",
            "Unrecognized VM option 'NoSuchOption'",
        ),
    ],
)
def test_java_is_found_and_gets_its_options_by_environment_variables(
    monkeypatch, variable, value, reason
):
    monkeypatch.setenv(variable, value)
    with pytest.raises(LocalKafkaError, match=reason):
        LocalKafka().start()


TINY = """\
import sys
from normalize.local_kafka import fetch_jars
module = '<ivy-module version="2.0"><info organisation="local" module="m"/><dependencies>'
module += '<dependency org="org.example" name="tiny" rev="1.0" conf="default"/></dependencies></ivy-module>'
print(sorted(path.name for path in fetch_jars("tiny", module, "Tiny 1.0", "2 MB, once").iterdir()))
"""


def test_a_download_is_one_line_that_a_terminal_rewrites_and_a_log_gets_at_the_end(tmp_path):
    artifact = tmp_path / "repository" / "org" / "example" / "tiny" / "1.0"
    artifact.mkdir(parents=True)
    (artifact / "tiny-1.0.jar").write_bytes(bytes(2_000_000))
    (artifact / "tiny-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId><artifactId>tiny</artifactId><version>1.0</version></project>"
    )
    environment = {
        **os.environ,
        "DEFAULT_ARTIFACT_REPOSITORY": (tmp_path / "repository").as_uri(),
        "COLUMNS": "80",
    }
    run = {
        "cwd": REPOSITORY,
        "env": environment | {"XDG_CACHE_HOME": str(tmp_path / "log")},
        "text": True,
    }
    done = subprocess.run([sys.executable, "-c", TINY], capture_output=True, **run)
    assert done.stdout == "['tiny-1.0.jar']\n"
    into = tmp_path / "log" / "pyspark-kafka-changelog" / "tiny"
    assert re.fullmatch(rf"Fetched Tiny 1\.0: 1 files, 2 MB, in \d+ s, into {into}\n", done.stderr)
    screen, inner = pty.openpty()
    run["env"]["XDG_CACHE_HOME"] = str(tmp_path / "terminal")
    subprocess.run(
        [sys.executable, "-c", TINY], stdout=subprocess.DEVNULL, stderr=inner, check=True, **run
    )
    os.close(inner)
    shown = os.read(screen, 65536).decode()
    os.close(screen)
    texts = [text.strip() for text in shown.split("\r")]
    assert texts[1:3] == ["Fetching Tiny 1.0 (2 MB, once)", "Fetching Tiny 1.0: 1 found"]
    assert "Fetching Tiny 1.0: 1 of 1 files, 2 MB: tiny.jar" in texts
    assert shown.count("\n") == 1


def test_failed_downloads_leave_no_partial_cache(monkeypatch, tmp_path, capfd):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", (tmp_path / "nothing & empty").as_uri())
    with pytest.raises(
        LocalKafkaError,
        match=rf"(?s)^cannot fetch Kafka {KAFKA_VERSION}:\n:::: WARNINGS\n.*module not found",
    ):
        broker_jars()
    assert list((tmp_path / "pyspark-kafka-changelog").iterdir()) == []
    assert capfd.readouterr() == ("", "")


# --------------------------------------------------------------------------------------------------
# The ids of topics while a query runs: compared at an interval, over one connection
@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_ids_are_compared_at_an_interval_over_one_connection(kafka: Any, option: str) -> None:
    topic, now = new_topic(kafka, []), [0.0]
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, option: topic}
    monitor = TopicMonitor(options, clock=lambda: now[0])
    ids = TopicIds.of(options, monitor())
    threads = threading.active_count()
    for _ in range(3):
        now[0] += INTERVAL
        ids.compare(monitor)
    assert threading.active_count() == threads
    recreate_topic(kafka, topic, [])
    ids.compare(monitor)  # asks no broker
    now[0] += INTERVAL
    with pytest.raises(TopicReplacedError, match=f"topic {topic} was deleted and created again"):
        ids.compare(monitor)
    # The first id counts of a topic that appears later.
    of_none = TopicIds.of(options, {})
    of_none.compare(monitor)
