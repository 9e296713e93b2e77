"""Checks of a Spark session at the call: what would fail or be slow later is one sentence now."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import MissingDependencyError

from .spark.connect import analyze, is_connect
from .spark_versions import spark_packages

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("normalize")

_MOST_TASKS_PER_CORE = 8
_PROBE_SECONDS = 20
_PROBE = (
    "import sys, json; print(json.dumps(sys.version_info[:2])); import msgspec, pyarrow, normalize"
)


def check_session(spark: SparkSession, *, keyed_stream: bool) -> None:
    """Log a warning if a session on this machine has bad settings.

    These are far too many shuffle partitions, or workers that cannot run this package.

    Parameters
    ----------
    spark : SparkSession
    keyed_stream : bool
        Whether the query is a stream with a keyed stage, whose shuffle partitions are fixed by its
        first start.
    """
    if is_connect(spark):
        return
    check_files(spark.sparkContext.listFiles)
    if not (spark.sparkContext.master or "").startswith("local"):
        return
    cores, partitions = (
        spark.sparkContext.defaultParallelism,
        int(spark.conf.get("spark.sql.shuffle.partitions") or 0),
    )
    if keyed_stream and partitions > cores * _MOST_TASKS_PER_CORE:
        _log.warning(
            "spark.sql.shuffle.partitions is %s, and Spark runs on %s cores of this machine: each "
            "micro-batch will start %s tasks. Set it before the first start of the query: "
            "spark.conf.set('spark.sql.shuffle.partitions', %s)",
            partitions,
            cores,
            partitions,
            cores,
        )
    if problem := worker_problem(
        str(spark.sparkContext.pythonExec), os.environ.get("PYTHONPATH", "")
    ):
        _log.warning(
            (
                "%s Set os.environ['PYSPARK_PYTHON'] = sys.executable before Spark starts, or "
                "start Spark with normalize.local_session()"
            ),
            problem,
        )


def check_files(files: Iterable[str]) -> None:
    """Log a warning of wheels among a session's files.

    Spark's driver imports from them, and its workers do not.
    """
    wheels = [each.rpartition("/")[2] for each in files if each.endswith(".whl")]
    if wheels:
        _log.warning(
            "%s is a wheel, from which Spark's workers cannot import: pass a .zip to --py-files, "
            "as docs/versions.md shows, unless the workers have the package installed",
            ", ".join(wheels),
        )


@lru_cache(maxsize=4)
def worker_problem(python: str, path: str) -> str:
    """Return why Spark's workers cannot run this package with an interpreter; empty if they can.

    `path` is part of the cache's key.
    """
    executable = shutil.which(python)
    if executable is None:
        return f"Spark's workers would run {python!r}, which does not exist."
    if os.path.abspath(executable) == os.path.abspath(sys.executable):
        return ""
    done = subprocess.run(
        [executable, "-c", _PROBE],
        capture_output=True,
        text=True,
        timeout=_PROBE_SECONDS,
        check=False,
    )
    version = tuple(json.loads(done.stdout)) if done.stdout else ()
    if version != sys.version_info[:2]:
        spelled = ".".join(map(str, version)) or "unknown"
        return (
            f"Spark's workers run {executable} (Python {spelled}), but this is Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}."
        )
    if done.returncode != 0:
        return (
            f"Spark's workers run {executable}, which cannot import this package "
            f"({done.stderr.strip().splitlines()[-1]})."
        )
    return ""


def load_kafka(reader: Any) -> DataFrame:
    """Return the records of a reader with all options.

    Parameters
    ----------
    reader : DataFrameReader or DataStreamReader

    Raises
    ------
    MissingDependencyError
        When Spark has no Kafka source.
    """
    from pyspark.errors import AnalysisException

    try:
        records: DataFrame = analyze(reader.load())
    except AnalysisException as error:
        if "data source: kafka" not in str(error):
            raise
    else:
        return records
    raise MissingDependencyError(
        "Spark has no Kafka source: start the session with "
        f"spark.jars.packages={spark_packages()}, or with normalize.local_session()"
    )
