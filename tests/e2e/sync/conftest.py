"""Queries of `sync_database`, with new topics and tables for each test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from normalize import LocalKafka
from tests.support.databases import Tables, new_tables
from tests.support.syncing import BoundedSync, NewBoundedSync, NewSync, Sync


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
