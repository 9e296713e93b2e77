"""The Spark Connect session, whose tests run alone: a classic session cannot be in its process."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Spark Connect server with the jars and settings of the fixture ``spark``."""
    from tests.support.servers.connect_server import ConnectServer
    from tests.support.spark_packages import settings

    with ConnectServer(
        {"spark.master": "local[2]", **settings(tmp_path_factory.mktemp("tables"))}
    ) as server:
        yield server


@pytest.fixture(scope="session")
def connect(connect_server) -> Iterator[object]:
    """A remote session."""
    from pyspark.sql import SparkSession

    session = SparkSession.builder.remote(connect_server.url).getOrCreate()
    yield session
    session.stop()
