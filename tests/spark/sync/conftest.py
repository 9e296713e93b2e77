"""The function of `sync_database`, with new tables for each test."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.databases import new_tables
from tests.support.syncing import BoundedSync, NewBoundedSync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def new_sync(spark: SparkSession, tmp_path: Path) -> NewBoundedSync:
    """A function from a kind of table, Delta or Iceberg, to the function of a query."""
    return lambda kind: BoundedSync(spark, new_tables(spark, kind, tmp_path), tmp_path)


@pytest.fixture
def sync(new_sync: NewBoundedSync) -> BoundedSync:
    """The function of a query into Delta tables."""
    return new_sync("delta-rs")
