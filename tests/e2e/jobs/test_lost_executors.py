"""On a standalone cluster, a table stays equal to its source while executors die.

The package is shipped to the executors as a zip. The query does not end.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.histories import random_history, records_of
from tests.support.jobs import lost_executors_job
from tests.support.servers.standalone_cluster import StandaloneCluster
from tests.support.strategies import last_rows
from tests.support.streams import new_topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow(80)]
JOB = lost_executors_job.__file__
WAYS = ("apply_changes", "sync_database")


def run(
    cluster: StandaloneCluster, folder: Path, arguments: dict[str, Any], kills: int
) -> tuple[dict[str, Any], dict[str, int]]:
    """Run the job; while executors hold rows to write, kill one, or each third time a Worker.

    Return the tables and the number of kills, by the way of writing. Each executor must have its
    own copy of the package and its data.
    """
    job, killed, lines = (
        cluster.submit(folder, JOB, json.dumps(arguments)),
        dict.fromkeys(WAYS, 0),
        list[str](),
    )
    with job.stdout:
        for line in job.stdout:
            lines.append(line)
            event, _, way = line.strip().partition(" ")
            if event == "stored" and killed[way] < kills:
                worker = killed[way] % 2
                if killed[way] % 3 == 2:
                    cluster.kill_worker(worker)
                    cluster.start_worker(worker)
                    killed[way] += 1
                else:
                    killed[way] += cluster.kill_executor(worker)
    # spark-submit writes Python's errors to its standard output.
    log = (folder / "driver.log").read_text(errors="replace")
    assert job.wait() == 0, f"{''.join(lines)[-8000:]}\n{log[-4000:]}"
    files, has_data = map(set, zip(*json.loads(lines[0]), strict=True))
    assert has_data == {True}
    assert len(files) == 2
    assert all(file.endswith("/package.zip/normalize/__init__.py") for file in files)
    assert str(folder / "package.zip") not in "".join(files)
    return json.loads(lines[-1]), killed


@pytest.mark.parametrize(
    ("kind", "kills", "batches"),
    [
        ("delta", 1, 1),
        *(
            pytest.param(kind, 5, 10, marks=pytest.mark.soak)
            for kind in ("delta", "delta-rs", "iceberg", "postgresql")
        ),
    ],
)
def test_a_query_goes_on_without_the_executors_that_held_its_rows(
    kafka, request, tmp_path, kind, kills, batches
):
    server = request.getfixturevalue("postgres") if kind == "postgresql" else None
    login = (
        {}
        if server is None
        else {"url": server.url, "user": server.user, "password": server.password}
    )
    history = random_history(20)
    records = records_of(history)
    topic = new_topic(kafka, records, partitions=2)
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "maxOffsetsPerTrigger": -(-len(records) // batches),
    }
    arguments = {
        "kind": kind,
        "topic": topic,
        "folder": str(tmp_path),
        "options": options,
        "login": login,
    }
    with StandaloneCluster(tmp_path) as cluster:
        tables, killed = run(cluster, tmp_path, arguments, kills)
    assert killed == dict.fromkeys(WAYS, kills)
    expected = sorted((list(row) for row in last_rows(history).values()), key=repr)
    assert tables == dict.fromkeys(WAYS, expected)
