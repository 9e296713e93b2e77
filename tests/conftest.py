"""Shared fixtures: one Spark session, one local broker, one schema registry; and the settings of hypothesis."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import quick_java
from hypothesis import settings

# Spark's workers must be this interpreter and see this repository.
REPOSITORY = Path(__file__).parents[1]
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join([str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])])

# A background job ignores Ctrl-C, and its child processes inherit that. Some tests interrupt theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update({**quick_java.options(), **os.environ})

# No deadline: a slow example on a busy machine is not a failure.
settings.register_profile("dev", deadline=None)
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the longest files, so that the processes end together: slow ones first, then those with Java."""
    weights: dict[Path, int] = {}
    for item in items:
        weight = 2 if item.get_closest_marker("slow") else 1 if any(map(item.get_closest_marker, ("spark", "kafka", "registry"))) else 0
        weights[item.path] = max(weight, weights.get(item.path, 0))
    items.sort(key=lambda item: -weights[item.path])


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Spark session with the Kafka source, Delta, Iceberg (the catalog ``lake``), and JDBC drivers."""
    from pyspark.sql import SparkSession
    from spark_packages import PACKAGES

    folder = tmp_path_factory.mktemp("tables")
    extensions = "io.delta.sql.DeltaSparkSessionExtension,org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("tests")
        .config("spark.jars.packages", PACKAGES)
        .config("spark.sql.extensions", extensions)
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.databricks.delta.snapshotPartitions", 1)
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(folder / "lake"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", False)
        .config("spark.driver.memory", "2g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[object]:
    """A real local broker; its data is removed at the end."""
    from normalize import LocalKafka

    with LocalKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def registry() -> Iterator[object]:
    """A real local schema registry."""
    from local_registry import LocalRegistry

    with LocalRegistry() as server:
        yield server
