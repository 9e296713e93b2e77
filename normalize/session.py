"""`local_session`: a Spark session on this machine, ready for the first read of a topic."""

from __future__ import annotations

import logging
import os
import sys
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import MissingDependencyError

from .local_kafka import fetch_jars, find_java
from .spark.files import local_checkpoint_settings
from .spark.sessions import end_java, running_gateway, start_java
from .spark_versions import installed_version, package

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_log = logging.getLogger("normalize")

_SETTINGS = {
    "spark.master": "local[*]",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.execution.arrow.maxBytesPerBatch": "2147483647",
    "spark.sql.codegen.cache.maxEntries": "1000",
    "spark.buffer.pageSize": "4m",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
}
_SINK_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
    },
}
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
# Excluded: what Spark itself has.
_IVY_MODULE = """\
<ivy-module version="2.0">
  <info organisation="local" module="spark-packages"/>
  <dependencies>
{dependencies}
    <exclude org="org.apache.hadoop"/><exclude org="org.scala-lang"/><exclude org="org.slf4j"/><exclude module="spark-tags_2.13"/>
  </dependencies>
</ivy-module>
"""


def local_session(
    app_name: str = "changelog", *, packages: Sequence[str] = (), **conf: Any
) -> SparkSession:
    """Return a Spark session on this machine that can read Kafka topics.

    It differs from Spark's defaults in these settings; `conf` overrides them:

    - the jars of Spark's Kafka source for the installed PySpark. The first call fetches them into
      the user's cache folder, from Maven Central or from the repository that the environment
      variable ``DEFAULT_ARTIFACT_REPOSITORY`` names. Later calls need no network.
    - Python workers run this interpreter, which has this package. The environment variable
      ``PYSPARK_PYTHON`` is set to it.
    - ``spark.sql.shuffle.partitions`` is 2: Spark's default of 200 starts 200 tasks in each
      micro-batch. So does ``spark.databricks.delta.snapshotPartitions``, by default 50, with each
      commit.
    - ``spark.sql.execution.arrow.maxBytesPerBatch`` is 2147483647: otherwise Spark computes a
      batch's size after each row that Python reads.
    - ``spark.sql.codegen.cache.maxEntries`` is 1000: with the default of 100, Spark compiles the
      MERGEs of many tables again and again.
    - ``spark.buffer.pageSize`` is 4m: a sort and a broadcast table take at least a page each, by
      default up to 64 MB. The MERGEs of nine Iceberg tables in a micro-batch ended a JVM of 4 GB.
    - ``spark.sql.streaming.checkpointFileManagerClass``: Spark starts no processes for files of a
      checkpoint on a local disk, which took 0.1 to 0.2 s of each micro-batch. Not with a default file
      system of Hadoop. For a checkpoint on HDFS, pass Spark's own class.
    - With ``"delta"``, ``spark.sql.parquet.outputTimestampType`` is TIMESTAMP_MICROS: delta-rs does
      not merge into files with Spark's default, INT96.
    - ``spark.driver.host`` is ``localhost``: no other machine can connect.
    - Spark logs errors only, and shows no progress bar.

    The session's time zone is Spark's default, the machine's. Pass
    ``**{"spark.sql.session.timeZone": "UTC"}`` to show timestamps in UTC.

    Parameters
    ----------
    app_name : str
    packages : sequence of str
        Further jars: kinds of tables as in `spark_packages` (``"delta"``), or Maven coordinates
        (``"group:artifact:version"``). ``"delta"`` and ``"iceberg"`` also set what their
        documentation requires: Spark's extensions and, for Delta, the catalog.
    **conf
        Settings of Spark, such as ``**{"spark.driver.memory": "4g"}``.

    Returns
    -------
    SparkSession
        If a session is already running, that one. A warning lists the settings in which it differs.

    Raises
    ------
    ArgumentError
        When a package is neither a known name nor Maven coordinates.
    MissingDependencyError
        When the installed PySpark is not supported, has no such package, or is only a client of
        Spark Connect.
    LocalKafkaError
        When Java is missing or too old, or the jars cannot be fetched.
    """
    try:
        from pyspark import SparkConf, SparkContext
    except ImportError:
        raise MissingDependencyError(
            "local_session starts Spark, which pyspark-client does not have: pip install pyspark, "
            "or connect to a server with SparkSession.builder.remote('sc://...')"
        ) from None
    from pyspark.logger import PySparkLogger
    from pyspark.sql import SparkSession

    for name in ("pandas", "pyarrow"):
        if find_spec(name) is None:
            raise MissingDependencyError(
                f"this package requires {name} on Spark: pip install "
                "'pyspark-kafka-changelog[spark]'"
            )
    if SparkContext._active_spark_context is None:
        find_java()  # PySpark says JAVA_GATEWAY_EXITED without it
    jars = _jars(coordinates(packages))
    settings: dict[str, Any] = {
        **_SETTINGS,
        **_sink_settings(packages),
        **local_checkpoint_settings("/", conf),
        **{name: str(value) for name, value in conf.items()},
    }
    if SparkContext._active_spark_context is not None:
        running = SparkSession.builder.getOrCreate()
        _compare(running, settings)
        return running
    settings["spark.jars"] = ",".join(
        [*filter(None, [settings.get("spark.jars")]), *map(str, jars)]
    )
    log_settings = Path(__file__).with_name("log4j2.properties").as_uri()
    settings[_JAVA_OPTIONS] = (
        f"-Dlog4j2.configurationFile={log_settings} {settings.get(_JAVA_OPTIONS, '')}".strip()
    )
    os.environ["PYSPARK_PYTHON"] = sys.executable
    end_java()
    with _own_spark():
        spark_conf = SparkConf().setAppName(app_name).setAll(list(settings.items()))
        SparkContext(
            conf=spark_conf, gateway=None if running_gateway() else _start_java(spark_conf)
        )
    # It repeats each error of Spark as JSON, also those that are caught, as of a table's first look-up.
    PySparkLogger.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    return SparkSession.builder.appName(app_name).config(map=settings).getOrCreate()


def _sink_settings(packages: Sequence[str]) -> dict[str, str]:
    chosen = [_SINK_SETTINGS[each] for each in packages if each in _SINK_SETTINGS]
    settings = {name: value for each in chosen for name, value in each.items()}
    if extensions := [each["spark.sql.extensions"] for each in chosen]:
        settings["spark.sql.extensions"] = ",".join(extensions)
    return settings


def package_jars(packages: Sequence[str]) -> list[Path]:
    """Return the jars with which `local_session` starts Spark, fetching them if the cache has none.

    Parameters
    ----------
    packages : sequence of str
        Same as `local_session`.
    """
    return _jars(coordinates(packages))


def coordinates(packages: Sequence[str]) -> list[str]:
    """Return the Maven coordinates of Spark's Kafka source and of packages.

    Raises
    ------
    ArgumentError
        When a package is neither a known name nor Maven coordinates.
    MissingDependencyError
        When there is none for this version of Spark.
    """
    return [each if each.count(":") == 2 else package(each) for each in ("kafka", *packages)]


def _jars(coordinates: Sequence[str]) -> list[Path]:
    """Return the jars of packages and of their dependencies.

    Spark's own resolution prints 40 lines, and takes seconds at each start.
    """
    parts = [each.split(":") for each in coordinates]
    dependencies = "\n".join(
        f'    <dependency org="{org}" name="{name}" rev="{rev}" conf="default"/>'
        for org, name, rev in parts
    )
    module = _IVY_MODULE.format(dependencies=dependencies)
    names = ", ".join(name for _, name, _ in parts)
    folder = fetch_jars(
        f"spark-{zlib.crc32(module.encode()):08x}", module, f"the jars of {names}", "once"
    )
    return sorted(folder.glob("*.jar"))


def _start_java(conf: SparkConf) -> Any:
    """Start Spark's JVM without Java's line about a Spark module, which no option suppresses."""
    read, write = os.pipe()
    threading.Thread(
        target=_pass_on, args=(read,), name="stderr of Spark's JVM", daemon=True
    ).start()
    try:
        return start_java(conf, write)
    finally:
        os.close(write)


def _pass_on(stderr: int) -> None:
    """Write the JVM's stderr to this process's."""
    with open(stderr, "rb") as lines:
        for line in lines:
            if not line.startswith(b"WARNING: Using incubator modules: jdk.incubator.vector"):
                os.write(2, line)


@contextmanager
def _own_spark() -> Iterator[None]:
    """Start the Spark inside the installed PySpark, also if SPARK_HOME names another one."""
    import pyspark

    own, other = Path(pyspark.__file__).parent, os.environ.get("SPARK_HOME")
    if other is None or not (own / "jars").is_dir() or Path(other).resolve() == own.resolve():
        yield
        return
    _log.warning(
        (
            "SPARK_HOME is %s, which local_session ignores: it starts the Spark of the installed "
            "PySpark %s"
        ),
        other,
        installed_version(),
    )
    os.environ["SPARK_HOME"] = str(own)
    try:
        yield
    finally:
        os.environ["SPARK_HOME"] = other


def _compare(running: SparkSession, settings: Mapping[str, str]) -> None:
    differing = [
        f"{name}={running.conf.get(name, None)}"
        for name, value in settings.items()
        if running.conf.get(name, None) != value
    ]
    if differing:
        _log.warning(
            "a Spark session is already running, and local_session returns it with its settings "
            "(%s): to start another, call spark.stop() first",
            ", ".join(differing),
        )
