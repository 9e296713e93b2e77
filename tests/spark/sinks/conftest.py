"""Target tables in Delta and Iceberg, new for each test."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.sinking import Sink, lake_sink


@pytest.fixture
def new_sink(spark: SparkSession, tmp_path: Path) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""
    return lambda kind: lake_sink(spark, kind, tmp_path)
