"""A query that is killed in a micro-batch and restarted ends in the right table, and has written every dead letter.

Its short form is a query that fails, in `test_dead_letter`; `test_killed_sync` kills one in each run of the tests.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from pathlib import Path

import pytest

from tests.support.histories import random_history, records_of
from tests.support.strategies import last_rows, table_of
from tests.support.streams import letters, new_topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.soak]

IN_NO_MICRO_BATCH, IN_THE_SECOND = "0", "2"


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "tests.support.jobs.changelog_job", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)


def kill_after_two(job: subprocess.Popen) -> list[str]:
    """Kill a job that has read two micro-batches, and return the lines that it printed."""
    lines: list[str] = []
    while sum(line.startswith("read") for line in lines) < 2:
        lines.append(job.stdout.readline())
        assert lines[-1], "the job ended before its second micro-batch"
    os.killpg(job.pid, signal.SIGKILL)  # Python and the JVM
    return lines + job.communicate()[0].splitlines()


def micro_batches(folder: Path, topic: str, places: set[str]) -> dict[str, int]:
    """Return the number of the micro-batch of each record, ``topic[partition]@offset``, by the checkpoint's offsets."""
    logs = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    ends = [json.loads(file.read_text().splitlines()[-1])[topic] for file in logs]
    found = {}
    for place in places:
        partition, offset = place.removeprefix(f"{topic}[").split("]@")
        found[place] = int(logs[bisect_right([end[partition] for end in ends], int(offset))].name)
    return found


def test_sigkill_in_a_micro_batch_and_restart_loses_no_row_and_no_dead_letter(kafka, tmp_path):
    history = random_history(11, changes=6000)
    records = records_of(history)
    bad = {b"poison %d" % number for number in range(0, len(records), 10)}
    for number, value in enumerate(sorted(bad)):
        records.insert(number * 11, (value, value))
    topic, dead = new_topic(kafka, records, partitions=2), new_topic(kafka, [])
    printed: list[str] = []
    # Without a wait the kill comes at any time: the trigger runs without a pause.
    for waits_in in [IN_THE_SECOND, IN_NO_MICRO_BATCH] * 4:
        printed += kill_after_two(start(kafka.bootstrap_servers, topic, dead, str(tmp_path), waits_in))
    job = start(kafka.bootstrap_servers, topic, dead, str(tmp_path), IN_NO_MICRO_BATCH)
    printed += job.communicate()[0].splitlines()
    assert job.returncode == 0
    changelog = [row for part in sorted(tmp_path.glob("*.json")) for row in json.loads(part.read_text())]
    assert table_of(changelog) == last_rows(history)

    written = [(letter.key().decode(), letter.value()) for letter in letters(kafka, dead)]
    assert {value for _, value in written} == bad
    copies = Counter(place for place, _ in written)
    assert len(copies) == len(bad), "copies of a record have equal keys"
    runs = Counter(line.strip() for line in printed)
    for place, number in micro_batches(tmp_path, topic, set(copies)).items():
        # A run that read its micro-batch had confirmed the dead letters. One that was killed earlier had perhaps written them.
        assert 1 <= runs[f"read {number}"] <= copies[place] <= runs[f"begun {number}"], (place, number)
    assert max(copies.values()) > 1, "the micro-batch that was killed after it was read is repeated"
