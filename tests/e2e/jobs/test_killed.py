"""A query that is killed in a micro-batch and restarted ends in the right table."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.histories import random_history, records_of
from tests.support.strategies import last_rows, table_of
from tests.support.streams import new_topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


def start(kafka, topic: str, folder: Path) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.support.jobs.changelog_job", kafka.bootstrap_servers, topic, str(folder)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


@pytest.mark.parametrize(("changes", "kills"), [(400, 1), pytest.param(6000, 8, marks=pytest.mark.soak)])
def test_sigkill_in_a_micro_batch_and_restart_ends_in_the_right_table(kafka, tmp_path, changes, kills):
    history = random_history(11, changes)
    topic = new_topic(kafka, records_of(history), partitions=2)
    for _ in range(kills):
        job = start(kafka, topic, tmp_path)
        for _ in range(2):
            assert job.stdout.readline().startswith("batch")
        # The next batch has started: the trigger runs without a pause.
        os.killpg(job.pid, signal.SIGKILL)  # Python and the JVM
        job.communicate()
    job = start(kafka, topic, tmp_path)
    printed = job.communicate()[0]
    assert job.returncode == 0
    assert printed.count("batch") > 2
    changelog = [row for part in sorted(tmp_path.glob("*.json")) for row in json.loads(part.read_text())]
    assert table_of(changelog) == last_rows(history)
