"""The jars of the tests' Spark session; ``python tests/spark_packages.py --fetch`` fetches them beforehand.

Ivy has one cache for all processes and no lock on it: test processes that begin side by side must find it filled. As Spark has to start
for it, it reads a topic, and the classes that it and Kafka load are archived for all who start them later (`quick_java`).
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# Before this folder, where `normalize` is the tests'.
sys.path.insert(0, str(Path(__file__).parents[1]))

import quick_java

from demo import recordings
from normalize import LocalKafka
from normalize.kafka import SPARK_PACKAGES
from normalize.sinks.tables import SINK_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ",".join([SPARK_PACKAGES, *SINK_PACKAGES.values()])


def session() -> SparkSession:
    """Start a Spark with the jars."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars.packages": PACKAGES,
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    return SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()


def end(spark: SparkSession) -> None:
    """Stop Spark and wait for its JVM to end."""
    gateway = spark.sparkContext._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


def archive_classes() -> None:
    """Let a Spark read a topic of a Kafka, and keep which classes they loaded."""
    os.environ.update(quick_java.archiving())
    spark = session()
    with LocalKafka() as kafka:
        recordings.replay(spark, kafka, recordings.RECORDINGS[0], lambda line: None)
    end(spark)
    for name in quick_java.VARIABLES.values():
        if quick_java.unfinished(name).exists():  # not every Java can write one
            quick_java.unfinished(name).replace(quick_java.archive(name))


def main() -> None:
    """Start Spark with the jars once, and more of it where there are no archives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", action="store_true", required=True, help="fetch the jars into Ivy's cache")
    parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if all(quick_java.archive(name).exists() for name in quick_java.VARIABLES.values()):
        os.environ.update(quick_java.options())
        end(session())
    else:
        archive_classes()


if __name__ == "__main__":
    main()
