"""Queries of `sync_database`, with new topics and tables for each test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from normalize import LocalKafka
from tests.support.databases import new_tables
from tests.support.syncing import NewSync, Sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def new_sync(spark: SparkSession, kafka: LocalKafka, request: pytest.FixtureRequest, tmp_path: Path) -> NewSync:
    """A function from a kind of target to a query."""

    def new(kind: str) -> Sync:
        server = {"postgresql": "postgres", "mariadb": "mariadb"}.get(kind)
        tables = new_tables(spark, kind, tmp_path, server and request.getfixturevalue(server))
        return Sync(spark, kafka, tables, tmp_path)

    return new


@pytest.fixture
def sync(spark: SparkSession, kafka: LocalKafka, tmp_path: Path) -> Sync:
    """A query into Delta tables."""
    return Sync(spark, kafka, new_tables(spark, "delta", tmp_path), tmp_path)
