"""``cdc status`` with a broker: how far each partition is behind."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from normalize import LocalKafka
from tests.support.commands import cdc
from tests.support.job_file import job_file
from tests.support.streams import new_topic


def test_status_says_how_far_each_partition_is_behind(kafka: LocalKafka, tmp_path: Path) -> None:
    topic = new_topic(kafka, [(b"k", b"v")] * 7, partitions=2)
    for folder, text in (
        ("offsets", f'v1\n{{"batchTimestampMs":1700000000000}}\n{{"{topic}":{{"0":0}}}}'),
        ("commits", "v1\n{}"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    (tmp_path / "metadata").write_text('{"id":"0f"}')
    done = cdc("status", tmp_path, "-b", kafka.bootstrap_servers)
    assert done.code == 0, done.err
    assert f"{topic}, 7 behind" in done.out
    assert "partition 1: not read yet" in done.out
    behind = json.loads(cdc("status", tmp_path, "-b", kafka.bootstrap_servers, "--json").out)[
        "behind"
    ][topic]
    assert sum(behind.values()) == 7
    assert set(behind) == {"0", "1"}


# --------------------------------------------------------------------------------------------------
# A job that runs in a process of its own, until SIGTERM
@pytest.mark.kafka
@pytest.mark.slow(15)
def test_sigterm_to_the_process_group_ends_the_command(kafka: LocalKafka, tmp_path: Path) -> None:
    # No row: the first MERGE of a JVM takes half of the time that its start takes.
    event = {"database": "shop", "table": "orders", "type": "bootstrap-start", "ts": 1, "data": {}}
    topic = new_topic(kafka, [(None, json.dumps(event).encode())])
    path = job_file(
        kafka,
        tmp_path,
        topic,
        trigger={"processing_time": "1 second"},
        spark={"spark.master": "local[1]"},
    )
    command = [sys.executable, "-m", "normalize.run", str(path)]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as job:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "checkpoint").glob("commits/0")):
            assert job.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        # As systemd and `timeout` do. Java ends at once, and each call of Py4J is an error.
        os.killpg(job.pid, signal.SIGTERM)
        _, log = job.communicate(timeout=60)
    assert job.returncode == 0, log
    assert "py4j" not in log
    assert log.splitlines()[-1].endswith("INFO the query is stopped"), log
