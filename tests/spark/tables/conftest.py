"""Target tables in Delta and Iceberg, new for each test; the function of a query, and a query that is restarted."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.databases import new_tables
from tests.support.restarts import Query
from tests.support.sinking import Sink, lake_sink
from tests.support.syncing import BoundedSync, NewBoundedSync


@pytest.fixture
def new_sink(spark: SparkSession, tmp_path: Path) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""
    return lambda kind: lake_sink(spark, kind, tmp_path)


# --------------------------------------------------------------------------------------------------
# The function of `sync_database`, with new tables for each test, and a query that is restarted
@pytest.fixture
def new_sync(spark: SparkSession, tmp_path: Path) -> NewBoundedSync:
    """A function from a kind of table, Delta or Iceberg, to the function of a query."""
    return lambda kind: BoundedSync(spark, new_tables(spark, kind, tmp_path), tmp_path)


@pytest.fixture
def sync(new_sync: NewBoundedSync) -> BoundedSync:
    """The function of a query into Delta tables."""
    return new_sync("delta-rs")


@pytest.fixture(scope="module")
def restarted(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Query]:
    """A query of the function that the module names, which has written the first rows."""
    name = request.module.FUNCTION
    query = Query(spark, name, tmp_path_factory.mktemp(name))
    yield query
    query.idle.stop()
