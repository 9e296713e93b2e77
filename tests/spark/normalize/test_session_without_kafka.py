"""A session without the Kafka source."""

from __future__ import annotations

import subprocess
import sys

import pytest

from normalize import spark_packages


@pytest.mark.cross_section
@pytest.mark.spark
def test_a_session_without_the_kafka_source_is_one_sentence() -> None:
    script = """
from pyspark.sql import SparkSession
from normalize import from_kafka_changelog
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", False).getOrCreate()
options = {"kafka.bootstrap.servers": "127.0.0.1:1"}
from_kafka_changelog(spark, "t", format="debezium-json", schema="id INT", options=options, primary_key="id", bounded=True, check=False)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr.splitlines()[-1] == (
        "cdc_formats.errors.MissingDependencyError: [MISSING_DEPENDENCY] Spark has no Kafka source: start the session with "
        f"spark.jars.packages={spark_packages()}, or with normalize.local_session()"
    )
