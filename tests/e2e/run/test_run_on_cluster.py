"""A job file on a cluster, as docs/tasks/job-file.md submits it.

The package comes as a zip.
"""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka, run
from tests.support.databases import maxwell
from tests.support.job_file import job_file
from tests.support.pages import PAGES
from tests.support.servers.standalone_cluster import OneExecutor
from tests.support.streams import new_topic


@pytest.mark.slow(40)
def test_a_job_file_runs_on_a_cluster(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path
) -> None:
    page = PAGES["docs/tasks/job-file.md"]
    assert "spark-submit --master spark://" in page
    assert '/__main__.py" job.yaml' in page
    topic = new_topic(kafka, [maxwell("orders", "insert", {"id": 1, "name": "a"})])
    job = job_file(
        kafka,
        tmp_path,
        topic,
        trigger={"available_now": True},
        restart={"limit": 0},
        packages=[],
        check=True,
    )
    with OneExecutor(tmp_path) as cluster:
        submitted = cluster.submit(tmp_path, Path(run.__file__).with_name("__main__.py"), str(job))
        output = submitted.communicate(timeout=300)[0]
    assert submitted.returncode == 0, (
        output[-4000:] + (tmp_path / "driver.log").read_text(errors="replace")[-4000:]
    )
    rows = spark.read.format("delta").load(str(tmp_path / "lake" / "orders")).collect()
    assert [tuple(row) for row in rows] == [(1, "a")]
