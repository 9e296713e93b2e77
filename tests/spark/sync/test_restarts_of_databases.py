"""The page `docs/restarts.md`: each cell of `sync_database` is run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.support.restarts import Query, cells_of, check_cell, happened_to_sync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def query(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Query]:
    made = Query(spark, "sync_database", tmp_path_factory.mktemp("sync_database"))
    yield made
    made.idle.stop()


@cells_of("sync_database")
def test_cell(
    query: Query, caplog: pytest.LogCaptureFixture, section: str, change: str, content: str
) -> None:
    check_cell(happened_to_sync(query, section, change, caplog), content)
