"""Sessions, their JVM, and the queries that run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return the JVM of a classic session."""
    return spark._jvm


def copy_of(spark: SparkSession) -> SparkSession:
    """Return a session with the settings, functions and views of another one, and its own from now on."""
    session: Any = spark
    copy: SparkSession = type(spark)(spark.sparkContext, session._jsparkSession.cloneSession())
    return copy


def hadoop_conf(spark: SparkSession) -> Any:
    """Return Hadoop's settings, with those of the session."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def is_stopped(spark: SparkSession) -> bool:
    """Return whether Spark has stopped, so that no query can start."""
    return bool(spark._jsc.sc().isStopped())


def running_query(spark: SparkSession, query: str) -> Any:
    """Return Spark's object of a running query, by its id; None if it is not running.

    A ``foreachBatch`` function has its own session, whose `streams` do not list the query.
    """
    queries = spark._jsparkSession.sharedState().activeStreamingQueries()
    return queries.get(jvm_of(spark).java.util.UUID.fromString(query))


def location_of(spark: SparkSession, class_name: str) -> str | None:
    """Return where a class was loaded from: empty if it is missing, None on Spark Connect."""
    jvm: Any = getattr(spark, "_jvm", None)
    if jvm is None:
        return None
    try:
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        source = loader.loadClass(class_name).getProtectionDomain().getCodeSource()
        return str(source.getLocation())
    except Exception:  # no such class, or a class loader of a platform
        return ""


def jdbc_connection(spark: SparkSession, options: dict[str, str]) -> Any:
    """Return a ``java.sql.Connection`` that is opened as by Spark's JDBC writer."""
    jvm = jvm_of(spark)
    parsed = jvm.org.apache.spark.sql.execution.datasources.jdbc.JDBCOptions(
        jvm.PythonUtils.toScalaMap(options)
    )
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])
    return dialect.createConnectionFactory(parsed).apply(-1)


@contextmanager
def java_stream(spark: SparkSession, path: str) -> Iterator[Any]:
    """Yield a ``java.io.InputStream`` of a local file."""
    stream = jvm_of(spark).java.io.FileInputStream(path)
    try:
        yield stream
    finally:
        stream.close()


def running_gateway() -> Any:
    """Return py4j's connection to the JVM of this process; None without one."""
    from pyspark import SparkContext

    return SparkContext._gateway


def start_java(conf: SparkConf, stderr: int) -> Any:
    """Start Spark's JVM with a file descriptor as its stderr."""
    from pyspark.java_gateway import launch_gateway

    launch: Callable[..., Any] = launch_gateway
    return launch(conf, {"stderr": stderr})


def end_java() -> None:
    """End the JVM of a stopped session: another session in it would not find further jars."""
    from pyspark import SparkContext

    gateway = running_gateway()
    process = getattr(gateway, "proc", None)  # None if Spark started this Python
    if gateway is None or process is None:
        return
    gateway.shutdown()
    process.stdin.close()
    process.wait()
    SparkContext._gateway = SparkContext._jvm = None
