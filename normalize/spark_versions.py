"""The Spark versions that this package runs on, the packages of each, and the check of a session."""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError, MissingDependencyError
from cdc_formats.values.schema import Column

from .spark.sessions import analyze, is_connect, location_of

_log = logging.getLogger("normalize")

_KAFKA = "org.apache.spark:spark-sql-kafka-0-10_2.13"
_OF_SPARK: dict[tuple[int, int], dict[str, str]] = {
    (4, 0): {
        "kafka": f"{_KAFKA}:4.0.0",
        "delta": "io.delta:delta-spark_4.0_2.13:4.4.0",
        "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    },
    (4, 1): {
        "kafka": f"{_KAFKA}:4.1.1",
        "delta": "io.delta:delta-spark_4.1_2.13:4.4.0",
        "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    },
    # Iceberg has no release for it; the one for Spark 4.1 fails in it with
    # IncompatibleClassChangeError.
    (4, 2): {"kafka": f"{_KAFKA}:4.2.0", "delta": "io.delta:delta-spark_4.2_2.13:4.4.0"},
}
"""Packages by version of Spark. Spark's Kafka source and its token provider are not published for
every release of Spark."""
_OF_DATABASES = {
    "postgresql": "org.postgresql:postgresql:42.7.14",
    # Not 3.5.11 or 4.0.0: with them a FLOAT is read with six digits.
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.5",
    "mysql": "com.mysql:mysql-connector-j:26.10.0",
}
KINDS = ("delta", "iceberg", *_OF_DATABASES)
"""The kinds of tables with packages."""


def _text(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


_SUPPORTED = f"{_text(min(_OF_SPARK))} to {_text(max(_OF_SPARK))}"
_JAR = re.compile(r"spark-sql-kafka-0-10_2\.\d+[-:](\d+\.\d+)")


def spark_packages(*kinds: str, spark_version: str | None = None) -> str:
    """Return the value of ``spark.jars.packages`` for Spark's Kafka source and for tables.

    Parameters
    ----------
    *kinds : str
        The kinds of tables that the session writes: ``delta``, ``iceberg``, ``postgresql``,
        ``mariadb`` or ``mysql``.
    spark_version : str or None
        By default the version of the installed PySpark.

    Returns
    -------
    str
        Maven coordinates, with commas.

    Raises
    ------
    ArgumentError
        When a kind is unknown.
    MissingDependencyError
        When this version of Spark is not supported, or has no package of this kind.

    Examples
    --------
    >>> spark_packages(spark_version="4.1.3")
    'org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1'
    >>> spark_packages("delta", spark_version="4.2.1").split(",")
    ['org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0', 'io.delta:delta-spark_4.2_2.13:4.4.0']
    """
    return ",".join(package(kind, spark_version) for kind in ("kafka", *kinds))


def package(kind: str, spark_version: str | None = None) -> str:
    """Return the package of Spark's ``kafka`` source or a kind of table, as `spark_packages` does.

    Examples
    --------
    >>> package("iceberg", "4.2.1")
    Traceback (most recent call last):
    cdc_formats.errors.MissingDependencyError: [MISSING_DEPENDENCY] there is no iceberg package for Spark 4.2: pip install "pyspark==4.1.*"
    """
    nearest = _nearest(spark_version or installed_version())
    if kind in _OF_DATABASES:
        return _OF_DATABASES[kind]
    supporting = [_text(spark) for spark in sorted(_OF_SPARK) if kind in _OF_SPARK[spark]]
    if not supporting:
        raise ArgumentError(
            f"no package of {kind!r} is known: use {', '.join(KINDS)}, or Maven coordinates as "
            "'group:artifact:version'"
        )
    if kind not in _OF_SPARK[nearest]:
        raise MissingDependencyError(
            f"there is no {kind} package for Spark {_text(nearest)}: pip install "
            f'"pyspark=={supporting[-1]}.*"'
        )
    return _OF_SPARK[nearest][kind]


def has_package(kind: str, spark_version: str | None = None) -> bool:
    """Return whether a version of Spark has a package of this kind."""
    return kind in {**_OF_SPARK[_nearest(spark_version or installed_version())], **_OF_DATABASES}


def installed_version() -> str:
    """Return the installed PySpark's version; the newest supported one if it is not a package."""
    for name in ("pyspark", "pyspark-client"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    try:
        from pyspark.version import __version__  # a Spark distribution's own PySpark
    except ImportError:
        return _text(max(_OF_SPARK))
    return str(__version__)


def check_version(spark: SparkSession, *, tables: bool = False) -> None:
    """Raise an error for an unsupported Spark version; log a warning for one after those tested.

    Parameters
    ----------
    spark : SparkSession
    tables : bool
        Whether the query writes tables, which needs a tested version: the writers call functions
        that are private to Spark, and so do the packages of Delta and Iceberg.

    Raises
    ------
    MissingDependencyError
    """
    tested = _nearest(spark.version)
    if _numbers(spark.version) != tested:
        if tables:
            raise MissingDependencyError(
                f"this release writes tables with Spark {_SUPPORTED}, and this is Spark "
                f'{spark.version}: pip install "pyspark=={_text(tested)}.*", or install a newer '
                "release of pyspark-kafka-changelog"
            )
        _log.warning(
            "Spark %s was not tested with this release, which supports Spark %s",
            spark.version,
            _SUPPORTED,
        )


_TIME_TYPE = "spark.sql.timeType.enabled"


def require_time_type(spark: SparkSession, column: Column) -> None:
    """Raise an error for a session that has no TIME, which a column is declared as.

    Raises
    ------
    MissingDependencyError
        When Spark is older than 4.1.
    ArgumentError
        When the session does not enable the type.
    """
    if _numbers(spark.version) < (4, 1):
        raise MissingDependencyError(
            f"column {column} requires Spark 4.1, and this is Spark {spark.version}: declare "
            f"{replace(column.type, is_spark_time=False)}, which is text in the DataFrame"
        )
    if spark.conf.get(_TIME_TYPE, "true") != "true":
        raise ArgumentError(
            f"column {column} requires {_TIME_TYPE}=true, which is false in this session: set it, "
            f"or declare {replace(column.type, is_spark_time=False)}, which is text in the "
            "DataFrame"
        )


def check_kafka_source(spark: SparkSession) -> None:
    """Raise an error for a session whose Kafka source is of another version of Spark.

    Such a source fails later, in a task or in the running stream, with Java's ``NoSuchMethodError``
    or ``NoClassDefFoundError``.

    Raises
    ------
    MissingDependencyError
    """
    jar = _JAR.search(kafka_source(spark))
    if jar and _numbers(jar[1]) not in (_nearest(spark.version), _numbers(spark.version)):
        raise MissingDependencyError(
            f"this session runs Spark {spark.version}, but its Kafka source is of Spark {jar[1]}: "
            f"start it with spark.jars.packages={spark_packages(spark_version=spark.version)}, or "
            "with normalize.local_session()"
        )


def _nearest(spark_version: str) -> tuple[int, int]:
    """Return the version, or the newest for a later version: PySpark 4.3 uses 4.2's packages."""
    numbers, newest = _numbers(spark_version), max(_OF_SPARK)
    if numbers < min(_OF_SPARK) or numbers[0] > newest[0]:
        raise MissingDependencyError(
            f"Spark {spark_version} is not supported: use a version from {_SUPPORTED}"
        )
    return min(numbers, newest)


def _numbers(spark_version: str) -> tuple[int, int]:
    major, minor = spark_version.split(".")[:2]
    return int(major), int(minor)


def kafka_source(spark: SparkSession) -> str:
    """Return text with the file name of the session's Kafka source, or without it if unknown."""
    location = location_of(spark, "org.apache.spark.sql.kafka010.KafkaSourceProvider")
    if location is None:  # Spark Connect
        return " ".join(
            spark.conf.get(name, "") or "" for name in ("spark.jars.packages", "spark.jars")
        )
    return location


# --------------------------------------------------------------------------------------------------
# Checks of a Spark session at the call: what would fail or be slow later fails immediately with a one-line error.

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
