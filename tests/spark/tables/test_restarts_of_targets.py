"""The page `docs/restarts.md`: the cells of `apply_changes`, but for those of `test_restarts_of_logs`."""

from pathlib import Path

from pyspark.sql import SparkSession

from tests.support.restarts import cells_of, check_cell, happened_to_apply


@cells_of("apply_changes", on_log=False)
def test_cell(spark: SparkSession, tmp_path: Path, section: str, change: str, content: str) -> None:
    check_cell(happened_to_apply(spark, change, tmp_path), content)
