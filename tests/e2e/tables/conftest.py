"""Target tables of each kind and queries with new topics, for each test, in databases that all tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka
from tests.support.databases import Tables, new_tables
from tests.support.sink_kinds import KINDS
from tests.support.sinking import Sink, database_sink, lake_sink, table_name
from tests.support.syncing import BoundedSync, NewBoundedSync, NewSync, Sync


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


# --------------------------------------------------------------------------------------------------
# Queries of `sync_database`, with new topics and tables for each test
@pytest.fixture
def tables_of(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path
) -> Callable[[str], Tables]:
    """A function from a kind of target to tables that do not exist yet."""

    def new(kind: str) -> Tables:
        server = {"postgresql": "postgres", "mariadb": "mariadb"}.get(kind)
        return new_tables(spark, kind, tmp_path, server and request.getfixturevalue(server))

    return new


@pytest.fixture
def new_sync(
    spark: SparkSession, kafka: LocalKafka, tables_of: Callable[[str], Tables], tmp_path: Path
) -> NewSync:
    """A function from a kind of target to a query."""
    return lambda kind: Sync(spark, kafka, tables_of(kind), tmp_path)


@pytest.fixture
def new_bounded_sync(
    spark: SparkSession, tables_of: Callable[[str], Tables], tmp_path: Path
) -> NewBoundedSync:
    """A function from a kind of target to the function of a query."""
    return lambda kind: BoundedSync(spark, tables_of(kind), tmp_path)


@pytest.fixture
def sync(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Sync:
    """A query into Delta tables."""
    return Sync(spark, kafka, new_tables(spark, "delta-rs", tmp_path), tmp_path)
