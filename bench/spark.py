"""The benchmark's Spark: the session, the state stores, and one run of a stream."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from typing import Any

from normalize import spark_packages
from normalize.api import READER_DEFAULTS

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    # Otherwise Spark computes a batch's size after each row that it writes for Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state"
STATES = {
    "heap": {_PROVIDER: f"{_STORES}.HDFSBackedStateStoreProvider"},  # Spark's default
    "rocksdb": {
        _PROVIDER: f"{_STORES}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
}


def start_session() -> Any:
    """Return a Spark session on 2 cores, and print its settings."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", spark_packages())
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print("Spark settings other than the defaults: local[2]", *_pairs(SETTINGS), *_pairs(READER_DEFAULTS), sep=", ")
    print("and with rocksdb state:", ", ".join(_pairs(STATES["rocksdb"])), flush=True)
    return spark


def _pairs(settings: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def use_state(spark: Any, state: str) -> None:
    """Set the state store of the streams that are started afterwards."""
    for name, value in STATES[state].items():
        spark.conf.set(name, value)


def run_stream(writer: Any) -> list[dict[str, Any]]:
    """Run a stream over all available records from an empty checkpoint; return the progress of the micro-batches with rows."""
    folder = tempfile.mkdtemp(prefix="bench-checkpoint-")
    try:
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        return [batch for batch in query.recentProgress if batch["numInputRows"]]
    finally:
        shutil.rmtree(folder)
