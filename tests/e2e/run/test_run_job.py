"""A job file is run: to the end, again after failures, and until SIGTERM."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from normalize.run import read_job, run_job
from tests.support.databases import maxwell
from tests.support.streams import new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from normalize import LocalKafka


@pytest.fixture
def job_file(kafka: LocalKafka, tmp_path: Path):
    def write(topic: str, **changes: Any) -> Path:
        path = tmp_path / "job.yaml"
        content = {
            "topic": topic,
            "format": "maxwell-json",
            "options": {"kafka.bootstrap.servers": kafka.bootstrap_servers},
            "target": {"delta": {"name": str(tmp_path / "lake")}},
            "schema_location": str(tmp_path / "schemas"),
            "checkpoint_location": str(tmp_path / "checkpoint"),
            "name": "shop",
            "packages": ["delta"],
            "check": False,
            **changes,
        }
        path.write_text(yaml.safe_dump(content))
        return path

    return write


def test_a_failed_query_starts_again_and_fails_at_the_limit(spark: SparkSession, kafka: LocalKafka, tmp_path, job_file, caplog) -> None:
    from pyspark.errors import StreamingQueryException

    topic = new_topic(kafka, [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    once = {"trigger": {"available_now": True}, "restart": {"limit": 2, "first_pause": 0.01}}
    run_job(read_job(job_file(topic, **once)), spark)
    table = str(tmp_path / "lake" / "orders")
    assert [tuple(row) for row in spark.read.format("delta").load(table).collect()] == [(1, "a")]
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    kafka.produce(topic, [(None, b"no message")])
    with caplog.at_level(logging.WARNING, "normalize"), pytest.raises(StreamingQueryException):
        run_job(read_job(job_file(topic, **once)), spark)
    restarts = [each for each in caplog.messages if "starts again" in each]
    assert len(restarts) == 2
    assert restarts[1].startswith("the query failed, 2 of at most 2 times in a row, and starts again in 0.02 s: [")
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers


@pytest.mark.slow
def test_sigterm_ends_the_command(kafka: LocalKafka, tmp_path: Path, job_file) -> None:
    topic = new_topic(kafka, [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    path = job_file(topic, trigger={"processing_time": "1 second"}, spark={"spark.master": "local[1]"})
    command = [sys.executable, "-m", "normalize.run", str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as job:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "checkpoint").glob("commits/0")):
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        job.send_signal(signal.SIGTERM)
        assert job.wait(60) == 0, job.stderr.read()
