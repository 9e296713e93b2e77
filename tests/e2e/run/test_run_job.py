"""A job file is run: to the end, and again after failures."""

from __future__ import annotations

import logging
import signal
from typing import TYPE_CHECKING

import pytest

from normalize.run import read_job, run_job
from tests.support.databases import maxwell
from tests.support.job_file import job_file
from tests.support.streams import new_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from normalize import LocalKafka


def test_a_failed_query_starts_again_and_fails_at_the_limit(
    spark: SparkSession, kafka: LocalKafka, tmp_path, caplog
) -> None:
    from pyspark.errors import StreamingQueryException

    topic = new_topic(kafka, [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    once = {"trigger": {"available_now": True}, "restart": {"limit": 2, "first_pause": 0.01}}
    run_job(read_job(job_file(kafka, tmp_path, topic, **once)), spark)
    table = str(tmp_path / "lake" / "orders")
    assert [tuple(row) for row in spark.read.format("delta").load(table).collect()] == [(1, "a")]
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    kafka.produce(topic, [(None, b"no message")])
    with caplog.at_level(logging.WARNING, "normalize"), pytest.raises(StreamingQueryException):
        run_job(read_job(job_file(kafka, tmp_path, topic, **once)), spark)
    restarts = [each for each in caplog.messages if "starts again" in each]
    assert len(restarts) == 2
    assert restarts[1].startswith(
        "the query failed, 2 of at most 2 times in a row, and starts again in 0.02 s: ["
    )
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
