"""Sessions, their JVM, the errors of it, and what differs under Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError

_MOST_COLLECTED = 1 << 30

if TYPE_CHECKING:
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import DataFrame, SparkSession


def jvm_of(spark: SparkSession) -> Any:
    """Return the JVM of a classic session."""
    return spark._jvm


def copy_of(spark: SparkSession) -> SparkSession:
    """Return a session with the settings, functions and views of another one, and its own from now on."""
    session: Any = spark
    copy: SparkSession = type(spark)(spark.sparkContext, session._jsparkSession.cloneSession())
    return copy


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """Let Java's methods in the block use the settings of this session.

    Spark's own calls do so for their session. A method of a connector uses the thread's active
    session: in ``foreachBatch`` that of the query.
    """
    session = jvm_of(spark).org.apache.spark.sql.classic.SparkSession
    before = session.getActiveSession()
    session.setActiveSession(spark._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            session.setActiveSession(before.get())
        else:
            session.clearActiveSession()


def hadoop_conf(spark: SparkSession) -> Any:
    """Return Hadoop's settings, with those of the session."""
    return spark._jsparkSession.sessionState().newHadoopConf()


def most_collected(spark: SparkSession) -> int:
    """Return how many bytes of results a job may safely return to the driver.

    Spark fails a job whose results have more than ``spark.driver.maxResultSize``, and they have
    more bytes than their values. No value of Arrow has more than 2 GiB.
    """
    most = _most_results(spark.sparkContext, jvm_of(spark))
    return min(most // 2 or _MOST_COLLECTED, _MOST_COLLECTED)


@lru_cache(1)  # a context's settings do not change, and each is a call of the JVM
def _most_results(context: SparkContext, jvm: Any) -> int:
    """Return ``spark.driver.maxResultSize`` in bytes."""
    text = context.getConf().get("spark.driver.maxResultSize", "1g")
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


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


# --------------------------------------------------------------------------------------------------
# Spark Connect: a session whose client has no JVM, and whose server has the plans.


def is_connect(spark: SparkSession | DataFrame) -> bool:
    """Return whether a session or DataFrame is one of Spark Connect.

    Its type shows it. PySpark's ``is_remote`` looks at environment variables, and a process of the
    server may have them too.
    """
    return any(each.__module__.startswith("pyspark.sql.connect.") for each in type(spark).__mro__)


def require_jvm(spark: SparkSession, function: str, instead: str) -> None:
    """Raise an error for a session of Spark Connect.

    Parameters
    ----------
    spark : SparkSession
    function : str
        The function that needs the JVM.
    instead : str
        What to do, as an imperative.

    Raises
    ------
    ArgumentError
    """
    if is_connect(spark):
        raise ArgumentError(
            f"{function} needs the JVM of a classic session, and this one is of Spark Connect: "
            f"{instead}"
        )


def analyze(df: DataFrame) -> DataFrame:
    """Return a DataFrame that the server has analyzed.

    With Spark Connect, a wrong query would otherwise fail at its first action.

    Raises
    ------
    AnalysisException
    """
    _ = df.schema
    return df


# --------------------------------------------------------------------------------------------------
# The errors of Spark's JVM in Python, and their causes.


@cache
def java_error_types(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the types of an error of Java that PySpark does not convert, and more ones.

    The client of Spark Connect may have no py4j.
    """
    try:
        from py4j.protocol import Py4JError
    except ImportError:
        return more
    return (*more, Py4JError)


def spark_error_types(*more: type[Exception]) -> tuple[type[Exception], ...]:
    """Return the types of an error of Spark or its JVM, and more ones."""
    from pyspark.errors import PySparkException

    return (*more, PySparkException, *java_error_types())


def java_causes(error: Any) -> Iterator[Any]:
    """Yield the exception of Java that an error of py4j or Spark has, and its causes."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        yield java
        java = java.getCause()


def root_cause(error: Any) -> Any:
    """Return the first cause in Java that has a text, of an error of py4j; None for another error."""
    causes = [each for each in java_causes(error) if each.getMessage()]
    return causes[-1] if causes and hasattr(error, "java_exception") else None


def is_java(value: Any, class_name: str) -> bool:
    """Return whether a Java object is one of a class."""
    from py4j.java_gateway import is_instance_of

    return bool(is_instance_of(running_gateway(), value, class_name))


def java_text(error: Any) -> str:
    """Return the message of an error, without Java's stack trace."""
    java = getattr(error, "java_exception", None)
    return str(java.getMessage() if java is not None else error).split("\n\nJVM stacktrace:")[0]
