"""The data source in Spark: a job killed at random moments and restarted from its checkpoint."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import capture
from tests.support.servers.local_source import SMALL, LocalSource, Replica, repeating

pytestmark = pytest.mark.spark
MOST = 240.0  # seconds, for a busy machine


@contextmanager
def job(options: dict[str, str], folder: Path) -> Iterator[Iterator[str]]:
    """Run the job and yield the lines that it prints; finally kill it with all its processes."""
    command = [
        sys.executable,
        "-m",
        "tests.support.jobs.capture_job",
        json.dumps(options),
        str(folder / "checkpoint"),
        str(folder),
    ]
    with (folder / "job.log").open("ab") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True
        )
    try:
        yield iter(process.stdout.readline, "")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def replayed(folder: Path) -> Replica:
    """Apply the job's files to a replica; repeated changes and changes of missing rows fail."""
    replica = Replica("id")
    for path in sorted(folder.glob("??????.json")):
        replica.apply(json.loads(line) for line in path.read_text().splitlines())
    return replica


# The snapshot has about four batches: of two kills, the first is during the snapshot, the second
# mostly after it.
SHORT, LONG = ((1, 5),), ((1, 2), (3, 5)) * 10


@pytest.mark.parametrize(
    "kills", [pytest.param(SHORT, id="1"), pytest.param(LONG, id="20", marks=pytest.mark.soak)]
)
def test_changelog_of_a_killed_and_restarted_job_equals_the_table(
    source: LocalSource, tmp_path: Path, kills: tuple[tuple[int, int], ...]
) -> None:
    source.run(
        "CREATE OR REPLACE TABLE killed (id INT PRIMARY KEY, v INT)",
        "INSERT INTO killed SELECT seq, 0 FROM seq_1_to_60",
    )
    source.run("ANALYZE TABLE killed")
    dice, options, numbers = random.Random(), source.options("killed", **SMALL), count(1)

    def write() -> None:
        number = next(numbers)
        source.run(
            f"UPDATE killed SET v = v + 1 WHERE id % 7 = {number % 7}",
            # so that the table does not grow
            f"DELETE FROM killed WHERE id IN ({number * 11 % 60}, {number + 50})",
            f"INSERT INTO killed VALUES ({60 + number}, 1)",
        )

    with repeating(write, pause=0.1):
        for least, most in kills:
            with job(options, tmp_path) as lines:
                for _ in range(dice.randint(least, most)):
                    assert next(lines, ""), (tmp_path / "job.log").read_text()
                time.sleep(dice.random() / 2)
    assert len(replayed(tmp_path).rows) > 5
    with job(options, tmp_path) as lines:
        deadline = time.monotonic() + MOST
        while (
            replayed(tmp_path).contents() != set(source.rows("killed"))
            and time.monotonic() < deadline
        ):
            next(lines)
    assert replayed(tmp_path).contents() == set(source.rows("killed"))


def test_plans_and_errors_omit_the_password(
    spark: SparkSession, source: LocalSource, capsys: pytest.CaptureFixture[str]
) -> None:
    source.run("CREATE TABLE secret_t (id INT PRIMARY KEY)")
    capture.register(spark)
    changes = (
        spark.readStream.format("mysql-changelog").options(**source.options("secret_t")).load()
    )
    changes.explain(True)
    assert "s3cret" not in capsys.readouterr().out
    wrong = source.options("secret_t") | {"password": "wr0ng-s3cret"}
    with pytest.raises(Exception, match=r"\[SERVER_UNAVAILABLE\].*Access denied") as caught:
        spark.readStream.format("mysql-changelog").options(**wrong).load()
    assert "s3cret" not in str(caught.value)
