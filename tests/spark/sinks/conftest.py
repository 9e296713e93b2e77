"""Target tables in Delta and Iceberg, new for each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.sinking import Sink, lake_sink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def new_sink(spark: SparkSession, tmp_path: Path) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""
    return lambda kind: lake_sink(spark, kind, tmp_path)
