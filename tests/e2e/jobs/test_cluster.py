"""A job on a standalone Spark cluster: executors are separate processes, and the package is shipped as a zip."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from normalize.spark_versions import spark_packages
from tests.support.distributions import without_the_package, zipped
from tests.support.histories import random_history, records_of
from tests.support.jobs import cluster_job
from tests.support.quick_java import QUICK
from tests.support.strategies import last_rows, table_of
from tests.support.streams import new_topic

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow]


JOB = Path(cluster_job.__file__)


def submit(python: Path, folder: Path, kafka, topic: str, *options: str, environment: dict[str, str]) -> dict:
    """Submit the job to a cluster of two workers, and return what it printed."""
    # A cluster's workers write their logs to Spark's home; this home has only Spark.
    home = folder / "spark"
    home.mkdir()
    for part in Path(pyspark.__file__).parent.iterdir():
        (home / part.name).symlink_to(part)
    settings = {
        "spark.jars.packages": spark_packages(),
        "spark.driver.extraJavaOptions": QUICK,
        "spark.executor.extraJavaOptions": QUICK,
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    conf = [argument for pair in settings.items() for argument in ("--conf", "=".join(pair))]
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]", *conf, *options]
    inherited = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_DRIVER_PYTHON")}
    job = subprocess.run(
        [*command, str(JOB), kafka.bootstrap_servers, topic, str(folder)],
        cwd=folder,
        env={**inherited, "SPARK_HOME": str(home), "PYSPARK_PYTHON": str(python), **environment},
        capture_output=True,
        text=True,
    )
    assert job.returncode == 0, job.stderr[-5000:]
    assert len(list(home.glob("work/app-*/[01]"))) == 2
    return json.loads(job.stdout.splitlines()[-1])


def changelog_in(folder: Path) -> list:
    return [row for part in sorted(folder.glob("*.json")) for row in json.loads(part.read_text())]


def test_a_cluster_job_with_the_package_as_a_zip_ends_in_the_right_table(kafka, tmp_path):
    python = without_the_package(tmp_path / "environment")
    look = "import pyspark; from importlib.util import find_spec; print(find_spec('normalize'), find_spec('cdc_formats'))"
    environment = subprocess.run([str(python), "-c", look], cwd=tmp_path, capture_output=True, text=True, env={})
    assert environment.stdout == "None None\n", environment.stderr
    history = random_history(22, 400)
    topic = new_topic(kafka, records_of(history), partitions=2)
    package = zipped(tmp_path / "package.zip")
    printed = submit(python, tmp_path, kafka, topic, "--py-files", str(package), environment={})
    assert printed["data"]
    assert all(file.endswith("/package.zip/normalize/__init__.py") for file in printed["files"])
    # Each executor has its own copy.
    assert len(printed["files"]) == 2
    assert str(package) not in "".join(printed["files"])
    assert table_of(changelog_in(tmp_path)) == last_rows(history)
