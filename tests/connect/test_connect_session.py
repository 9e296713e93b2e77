"""The session of these tests is a remote one, in a process without a JVM."""

from __future__ import annotations

from pyspark import SparkContext
from pyspark.sql.connect.session import SparkSession


def test_the_session_is_remote(connect: SparkSession) -> None:
    assert isinstance(connect, SparkSession)
    assert SparkContext._gateway is None
    assert connect.range(3).count() == 3
