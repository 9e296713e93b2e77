"""Jars for the tests' Spark, which `tests.support.fetch` downloads, and its settings.

They are in folders of the user's cache, as those of `local_session`. With ``spark.jars.packages``
each session would resolve them with Ivy, whose cache has no lock, and each task of a Python worker
would look for modules in them.
"""

from pathlib import Path

from normalize.session import package_jars
from normalize.spark_versions import KINDS, has_package, installed_version

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
