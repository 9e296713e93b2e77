"""Fetch what the tests need into the user's cache: Kafka, other servers, and the jars of Spark.

It also archives the classes that Spark and Kafka load, for later starts (`quick_java`).
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from demo import recordings
from normalize import LocalKafka
from normalize.local_kafka import broker_jars
from normalize.spark_versions import KINDS, has_package, installed_version
from tests.support import quick_java, row_level_catalog
from tests.support.servers.local_databases import mariadb_home, postgres_home
from tests.support.servers.local_registry import registry_home
from tests.support.spark_packages import jars


def archive_classes() -> None:
    """Let Spark read a topic from Kafka, and archive the classes that they load."""
    from pyspark.sql import SparkSession

    os.environ.update(quick_java.archiving())
    settings = {
        "spark.jars": jars(),
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    gateway = spark.sparkContext._gateway
    with LocalKafka() as kafka:
        recordings.replay(spark, kafka, recordings.RECORDINGS[0], lambda line: None)
    spark.stop()
    gateway.shutdown()
    # Spark's JVM ends with its input, and writes the archive then.
    gateway.proc.stdin.close()
    gateway.proc.wait()
    for name in quick_java.VARIABLES.values():
        if quick_java.unfinished(name).exists():  # not every Java can write one
            quick_java.unfinished(name).replace(quick_java.archive(name))


def main() -> None:
    """Fetch what the cache does not have; write the class archives if they are missing."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Kafka's source alone and with Delta Lake: those of the notebooks.
    kinds_of_tables = [(), ("delta",), filter(has_package, KINDS)]
    downloads = [
        broker_jars,
        registry_home,
        postgres_home,
        mariadb_home,
        *(partial(jars, *kinds) for kinds in kinds_of_tables),
    ]
    # Side by side: they wait for the network, and each has an Ivy cache of its own.
    with ThreadPoolExecutor(len(downloads)) as pool:
        for download in [pool.submit(each) for each in downloads]:
            download.result()
    if installed_version() >= "4.2":
        row_level_catalog.jars()
    if not all(quick_java.archive(name).exists() for name in quick_java.VARIABLES.values()):
        archive_classes()


if __name__ == "__main__":
    main()
