"""A job file is run: until a signal, and again after failures."""

import json
import logging
import os
import signal
from urllib.request import urlopen

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import LocalKafka
from normalize.run import Event, Job, check_job, maintain_job, read_job, run_job
from tests.support.databases import maxwell
from tests.support.job_file import job_file
from tests.support.servers.processes import free_port
from tests.support.streams import new_topic


def test_a_failed_query_starts_again_and_fails_at_the_limit(
    spark: SparkSession, kafka: LocalKafka, tmp_path, caplog
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = new_topic(kafka, [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    port = free_port()
    until_signal = {
        "trigger": {"processing_time": "1 second"},
        "metrics": {"port": port, "address": "127.0.0.1"},
    }
    events, metrics = list[Event](), list[str]()

    def stop_at_the_end(event: Event) -> None:
        events.append(event)
        if event.kind == "caught up":
            with urlopen(f"http://127.0.0.1:{port}/metrics") as served:
                metrics.append(served.read().decode())
            os.kill(os.getpid(), signal.SIGTERM)

    job = read_job(job_file(kafka, tmp_path, topic, **until_signal))
    run_job(job, spark, report=stop_at_the_end)
    assert not spark.streams.active
    assert 'changelog_query_running{query="shop"} 1.0' in metrics[0]
    table = str(tmp_path / "lake" / "orders")
    assert [tuple(row) for row in spark.read.format("delta").load(table).collect()] == [(1, "a")]
    assert [each.kind for each in events][:3] == ["started", "micro-batch", "caught up"]
    assert events[-1].kind == "stopped"
    batch = json.loads(events[1].to_json())
    assert (batch["event"], batch["batch"], batch["records"]) == ("micro-batch", 0, 1)
    assert batch["offsets_left"] == 0
    assert batch["tables"]["shop.orders"]["rows"] == 1
    maintained: list[str] = []
    assert maintain_job(job, maintained.append, spark, stopped=False) == 0
    assert maintain_job(job, maintained.append, spark, stopped=False, check=True) == 0
    assert maintained == [
        "shop.orders: 0 files compacted into 0; old files removed",
        "shop.orders: no damage found",
    ]
    assert [str(each) for each in check_job(job)] == [
        "ok: the file, whose questions have answers",
        "ok: the format maxwell-json, and the types of 0 tables",
        f"ok: the broker and the login; topics: {topic}; 1 records read",
        f"ok: the target {tmp_path / 'lake'}",
        f"ok: schema_location {tmp_path / 'schemas'}",
        f"ok: checkpoint_location {tmp_path / 'checkpoint'}",
        "not checked: what Spark reads: settings, expressions (where, select), existing tables and "
        "files, databases. With --spark it is checked",
    ]

    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    kafka.produce(topic, [(None, b"no message")])
    once = {"trigger": {"available_now": True}, "restart": {"limit": 2, "first_pause": 0.01}}
    job = read_job(job_file(kafka, tmp_path, topic, **once))
    with (
        _without_kafka_at_the_first_restart(job),
        caplog.at_level(logging.WARNING, "normalize"),
        pytest.raises(StreamingQueryException),
    ):
        run_job(job, spark)
    restarts = [each for each in caplog.messages if "starts again" in each]
    assert len(restarts) == 2
    assert restarts[0].startswith(
        "the query failed, 1 of at most 2 times in a row, and starts again in 0.01 s: [MALFORMED"
    )
    assert restarts[1].startswith(
        "the query failed, 2 of at most 2 times in a row, and starts again in 0.02 s: "
        "[KAFKA_UNAVAILABLE] "
    )
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers

    # A key that no column has is the same after each restart.
    caplog.clear()
    topic = new_topic(kafka, [maxwell("items", "insert", {"id": 1})])
    (tmp_path / "new").mkdir()
    wrong = {"shop.items": {"primary_key": "no"}}
    job = read_job(job_file(kafka, tmp_path / "new", topic, tables=wrong, **once))
    with (
        caplog.at_level(logging.WARNING, "normalize"),
        pytest.raises(StreamingQueryException, match="has no, which is not one of its columns"),
    ):
        run_job(job, spark)
    assert not [each for each in caplog.messages if "starts again" in each]


def test_ctrl_c_stops_a_job_whose_session_sets_its_own_handler(
    spark: SparkSession, kafka: LocalKafka, tmp_path, monkeypatch
) -> None:
    def session(*_: object, **__: object) -> SparkSession:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # as a SparkContext does
        return spark

    def stop_at_the_end(event: Event) -> None:
        events.append(event.kind)
        if event.kind == "caught up":
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("normalize.session.local_session", session)
    topic, events = new_topic(kafka, [maxwell("orders", "insert", {"id": 1})]), list[str]()
    run_job(
        read_job(job_file(kafka, tmp_path, topic, trigger={"processing_time": "1 second"})),
        report=stop_at_the_end,
    )
    assert events[-1] == "stopped"


class _without_kafka_at_the_first_restart(logging.Filter):  # noqa: N801 - a context
    """Connects a job to a port without a broker, from its first restart to its second one."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.options, self.arguments = dict(job.arguments["options"]), job.arguments
        self.down = {**self.options, "kafka.bootstrap.servers": f"127.0.0.1:{free_port()}"}

    def __enter__(self) -> None:
        logging.getLogger("normalize.run").addFilter(self)

    def __exit__(self, *exc_info: object) -> None:
        logging.getLogger("normalize.run").removeFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        if "starts again" in record.getMessage():
            down = ", 1 of" in record.getMessage()
            self.arguments["options"] = self.down if down else self.options
            self.arguments["check"] = down
        return True


def test_a_check_finds_what_a_sample_and_spark_show(
    spark: SparkSession, kafka: LocalKafka, tmp_path
) -> None:
    names = ("tags", "items", "lines", "orders")
    topic = new_topic(kafka, [maxwell(name, "insert", {"id": 1, "tag": "a"}) for name in names])
    tables = {
        "shop.tags": {"primary_key": "nosuch"},
        "shop.itemz": {},
        "shop.items": {"types": {"idd": "INT"}, "select": {"x": "uper(tag)"}},
        "shop.lines": {"partition_by": ["nocol"]},
        "shop.orders": {"primary_key": ["id", "tag"]},
    }
    target = {"delta": {"name": str(tmp_path / "lake"), "cluster_by": ["tagg"]}}
    wrong = {"tables": tables, "target": target, "mode": {"topic": "no.such.topic"}}
    job = read_job(job_file(kafka, tmp_path, topic, **wrong))
    found = [str(each) for each in check_job(job, spark)]
    expected = [
        "error: the topic of dead letters, 'no.such.topic', does not exist: create it",
        "not checked: tables.shop.itemz: no sampled record is of it (is it 'shop.items'?)",
        "not checked: tables.shop.items.types has 'idd', which no sampled record has (is it 'id'?)",
        "error: shop.items: [ARGUMENT] select of 'x' is not an expression of a row: [UNRESOLVED_ROUTINE]",
        "error: shop.lines: [ARGUMENT] partition_by has 'nocol', which is not one of the columns",
        "not checked: shop.orders: its records name the key (id), and its primary key is (id, tag)",
        "ok: shop.orders: its expressions and its target",
        "error: shop.tags: [SYNC] its primary key has nosuch, which is not one of its columns",
        "not checked: the target is laid out by 'tagg', which no sampled table has (is it 'tag'?)",
    ]
    of_tables = [line for line in found if "shop." in line or "tagg" in line or "letters" in line]
    assert [line[: len(of)] for line, of in zip(of_tables, expected, strict=True)] == expected
    job = read_job(job_file(kafka, tmp_path, topic, packages=["foo"]))
    with pytest.raises(ArgumentError, match="no package of 'foo' is known"):
        list(check_job(job))
