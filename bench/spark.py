"""The benchmark's Spark: the session, the state stores, and one run of a stream."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from datetime import datetime
from typing import Any, NamedTuple

from normalize.decode.columnar.native import SWITCH
from normalize.kafka.reader_options import READER_DEFAULTS
from normalize.spark.files import local_checkpoint_settings
from normalize.spark_versions import spark_packages

SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    # Otherwise Spark computes a batch's size after each row that it writes for Python.
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    # Otherwise Spark compiles the classes of many tables' MERGEs again and again.
    "spark.sql.codegen.cache.maxEntries": "1000",
    # Otherwise Spark keeps the progress of 100 micro-batches.
    "spark.sql.streaming.numRecentProgressUpdates": "10000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
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


class MicroBatch(NamedTuple):
    """A micro-batch: its number, messages, and begin and end in seconds since 1970-01-01 UTC."""

    number: int
    messages: int
    begin: float
    end: float


def start_session(*, delta: bool = False, iceberg: str = "") -> Any:
    """Return a Spark session on 2 cores, with Delta or Iceberg if requested; print its settings.

    Iceberg's catalog is ``lake``, in the folder `iceberg`.
    """
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    kinds = ["delta"] * delta + ["iceberg"] * bool(iceberg)
    builder = SparkSession.builder.master("local[2]").config(
        "spark.jars.packages", spark_packages(*kinds)
    )
    # All checkpoints of the benchmarks are on a local disk.
    settings = SETTINGS | local_checkpoint_settings("/", {}) | (DELTA if delta else {})
    if iceberg:
        extensions = (
            "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            DELTA["spark.sql.extensions"],
        )
        catalog = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "hadoop",
            ".warehouse": iceberg,
        }
        settings |= {"spark.sql.extensions": ",".join(extensions)} | {
            f"spark.sql.catalog.lake{name}": value for name, value in catalog.items()
        }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(
        "Spark settings other than the defaults: local[2]",
        *_pairs(settings),
        *_pairs(READER_DEFAULTS),
        sep=", ",
    )
    print("and with rocksdb state:", ", ".join(_pairs(STATES["rocksdb"])), flush=True)
    return spark


def _pairs(settings: dict[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in settings.items()]


def use_native(spark: Any, *, native: bool) -> None:
    """Set whether the workers of the next queries use an installed native decoder.

    The workers of both kinds are different processes.
    """
    spark.sparkContext.environment[SWITCH] = str(int(native))


def use_state(spark: Any, state: str) -> None:
    """Set the state store of the streams that are started afterwards."""
    for name, value in STATES[state].items():
        spark.conf.set(name, value)


def run_stream(writer: Any) -> list[MicroBatch]:
    """Stream all available records from an empty checkpoint; return micro-batches with messages."""
    folder = tempfile.mkdtemp(prefix="bench-checkpoint-")
    try:
        query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
        query.awaitTermination()
        return [
            micro_batch(progress) for progress in query.recentProgress if progress["numInputRows"]
        ]
    finally:
        shutil.rmtree(folder)


def micro_batch(progress: Any) -> MicroBatch:
    """Return the micro-batch of a query's progress."""
    begin = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp()
    return MicroBatch(
        progress["batchId"],
        _messages(progress),
        begin,
        begin + progress["durationMs"]["triggerExecution"] / 1000,
    )


def _messages(progress: Any) -> int:
    """Return the messages of a micro-batch by its offsets.

    Spark's ``numInputRows`` counts twice what a MERGE reads twice.
    """
    begin, end = (
        sum(sum(each.values()) for each in offsets_of(progress, which).values())
        for which in ("startOffset", "endOffset")
    )
    return end - begin


def offsets_of(progress: Any, which: str) -> dict[str, dict[str, int]]:
    """Return offsets of a micro-batch by topic and partition.

    Parameters
    ----------
    progress : StreamingQueryProgress
    which : {"startOffset", "endOffset"}
        The begin is empty for the first micro-batch.
    """
    # Not by `sources`: Spark 4.1 has the offsets there in a dict's own text.
    offsets: dict[str, dict[str, int]] | None = json.loads(progress.json)["sources"][0][which]
    return offsets or {}
