"""Target tables of each kind: new for each test, in databases that all tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.sink_kinds import KINDS
from tests.support.sinking import Sink, database_sink, lake_sink, table_name


@pytest.fixture
def new_sink(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""

    def new(kind: str) -> Sink:
        if kind in ("delta", "delta-rs", "iceberg"):
            return lake_sink(spark, kind, tmp_path)
        server = request.getfixturevalue("postgres" if kind == "postgresql" else "mariadb")
        return database_sink(
            spark,
            server,
            table_name(),
            scheme={"mariadb": "mariadb", "mysql-driver": "mysql"}.get(kind, ""),
        )

    return new


@pytest.fixture(params=KINDS)
def sink(request: pytest.FixtureRequest, new_sink: Callable[[str], Sink]) -> Sink:
    """A table of each kind that does not exist yet."""
    return new_sink(request.param)
