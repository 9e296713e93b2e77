"""The page `docs/restarts.md`: what `apply_changes` does when something happened to the log of its target."""

from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from normalize import IcebergTarget
from tests.support.restarts import (
    ON_SNAPSHOTS,
    cells,
    cells_of,
    check_cell,
    happened_to_apply,
    target_outcome,
)


@cells_of("apply_changes", on_log=True)
def test_cell(spark: SparkSession, tmp_path: Path, section: str, change: str, content: str) -> None:
    check_cell(happened_to_apply(spark, change, tmp_path), content)


@pytest.mark.iceberg
@pytest.mark.parametrize(
    ("change", "content"),
    [
        # `test_commits` has the others, without Spark.
        pytest.param(change, content, marks=[pytest.mark.soak] * ("accepts it" in change))
        for _, change, function, content in cells()
        if change in ON_SNAPSHOTS and function == "apply_changes"
    ],
)
def test_cell_of_iceberg(spark: SparkSession, tmp_path: Path, change: str, content: str) -> None:
    table = IcebergTarget(f"lake.d{uuid4().hex[:8]}.orders")
    check_cell(target_outcome(spark, tmp_path, {}, {}, *ON_SNAPSHOTS[change], table), content)
