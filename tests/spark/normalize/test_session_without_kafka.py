"""A session without the Kafka source, and one with that of another version of Spark."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize.spark_versions import check_kafka_source, kafka_source, spark_packages

pytestmark = pytest.mark.cross_section

SCRIPT = """
import sys
from pyspark.sql import SparkSession
from normalize import from_kafka_changelog
settings = {"spark.ui.enabled": "false", "spark.jars": sys.argv[1]}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
from_kafka_changelog(spark, "t", format="debezium-json", schema="id INT", options=options, primary_key="id", bounded=True, check=False)
"""


def last_line_with(jars: str) -> str:
    """Return the last line that the script prints in a session with these jars."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, jars],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stderr.splitlines()[-1]


@pytest.mark.spark
def test_a_session_without_the_kafka_source_is_one_sentence() -> None:
    assert last_line_with("") == (
        "cdc_formats.errors.MissingDependencyError: [MISSING_DEPENDENCY] Spark has no Kafka "
        f"source: start the session with spark.jars.packages={spark_packages()}, or with "
        "normalize.local_session()"
    )


def test_a_kafka_source_of_another_version_is_one_sentence(
    spark: SparkSession, tmp_path: Path
) -> None:
    check_kafka_source(spark)
    other = tmp_path / "spark-sql-kafka-0-10_2.13-4.9.0.jar"
    shutil.copy(kafka_source(spark).removeprefix("file:"), other)
    assert last_line_with(str(other)) == (
        "cdc_formats.errors.MissingDependencyError: [MISSING_DEPENDENCY] this session runs Spark "
        f"{spark.version}, but its Kafka source is of Spark 4.9: start it with "
        f"spark.jars.packages={spark_packages()}, or with normalize.local_session()"
    )
