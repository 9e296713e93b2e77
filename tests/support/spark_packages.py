"""Jars for the tests' Spark; ``python -m tests.support.spark_packages --fetch`` downloads them.

They are in folders of the user's cache, as those of `local_session`. With ``spark.jars.packages``
each session would resolve them with Ivy, whose cache has no lock, and each task of a Python worker
would look for modules in them.

The classes that Spark and Kafka load are archived for later starts (`quick_java`). The session that
does so has the setting ``spark.jars.packages``, as users have.
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from demo import recordings
from normalize import LocalKafka
from normalize.session import package_jars
from normalize.spark_versions import KINDS, has_package, installed_version, spark_packages
from tests.support import quick_java, row_level_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


_INTERPRETED = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": False,
}
"""Spark interprets its plans: for a few rows, generating and compiling classes takes a fifth of the
CPU."""
_COMPILING = "4.1"
"""The version of Spark on which the tests run compiled plans, as users do."""


def jars(*kinds: str) -> str:
    """Return the value of ``spark.jars`` for Spark's Kafka source and for tables of these kinds."""
    return ",".join(map(str, package_jars(kinds)))


def settings(folder: Path) -> dict[str, object]:
    """Return test session settings: jars, Delta, Iceberg (catalog ``lake``), tables in `folder`."""
    return {
        "spark.jars": jars(*filter(has_package, KINDS)),
        "spark.sql.extensions": ",".join(
            name for kind, name in EXTENSIONS.items() if has_package(kind)
        ),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": 1,
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": 2,
        # Spark keeps 100 compiled classes by default. A MERGE of one table needs some 50, which
        # each test would compile again.
        "spark.sql.codegen.cache.maxEntries": 1000,
        **({} if installed_version().startswith(_COMPILING) else _INTERPRETED),
        "spark.sql.session.timeZone": "UTC",
        "spark.python.daemon.module": "tests.support.worker_daemon",
        # Each broadcast table, however small, takes two pages, of 32 MB each by default.
        "spark.buffer.pageSize": "1m",
        "spark.ui.enabled": False,
        "spark.driver.memory": "2g",
        # A heap that begins small is collected all the time, which takes a tenth of the CPU.
        "spark.driver.extraJavaOptions": "-Xms2g",
    }


def session() -> SparkSession:
    """Return a Spark session with the jars."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars.packages": spark_packages(),
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
    """Let Spark read a topic from Kafka, and archive the classes that they load."""
    os.environ.update(quick_java.archiving())
    spark = session()
    with LocalKafka() as kafka:
        recordings.replay(spark, kafka, recordings.RECORDINGS[0], lambda line: None)
    end(spark)
    for name in quick_java.VARIABLES.values():
        if quick_java.unfinished(name).exists():  # not every Java can write one
            quick_java.unfinished(name).replace(quick_java.archive(name))


def main() -> None:
    """Fetch the jars, also those of the notebooks; write the class archives if they are missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--fetch",
        action="store_true",
        required=True,
        help="download the jars into the user's cache",
    )
    parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Side by side: they wait for the network, and each has an Ivy cache of its own.
    with ThreadPoolExecutor() as pool:
        list(pool.map(package_jars, [(), ("delta",), tuple(filter(has_package, KINDS))]))
    if installed_version() >= "4.2":
        row_level_catalog.jars()
    if not all(quick_java.archive(name).exists() for name in quick_java.VARIABLES.values()):
        archive_classes()


if __name__ == "__main__":
    main()
