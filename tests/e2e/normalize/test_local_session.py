"""`local_session` and the warnings about a session's settings."""

import json
import subprocess
import sys

import pytest

from tests.support.streams import debezium, new_topic


@pytest.mark.cross_section
@pytest.mark.spark
@pytest.mark.kafka
def test_a_local_session_reads_a_topic_without_noise(kafka) -> None:
    topic = new_topic(kafka, [(None, debezium("c", None, {"id": 1}))])
    job = [
        sys.executable,
        "-m",
        "tests.support.jobs.local_session_job",
        kafka.bootstrap_servers,
        topic,
    ]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "rows": [["+I", 1]],
        "same": True,
        "partitions": "2",
        "master": "local[1]",
        "name": "changelog",
        "SPARK_HOME": "/nowhere/spark",
        "delta": "DeltaSparkSessionExtension",
    }
    # The first session of a machine prints what it fetched.
    spark_home, running = (
        line for line in done.stderr.splitlines() if not line.startswith("Fetched ")
    )
    assert spark_home.startswith(
        "SPARK_HOME is /nowhere/spark, which local_session ignores: it starts the Spark of the "
        "installed PySpark"
    )
    assert running == (
        "a Spark session is already running, and local_session returns it with its settings "
        "(spark.master=local[1]): to start another, call spark.stop() first"
    )
