"""Spark Connect: a session whose client has no JVM, and whose server has the plans."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


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
