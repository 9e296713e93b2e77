"""What Java refuses while a table is written is one sentence."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from normalize.monitoring.explain_error import explain_error
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from tests.support.sinking import apply_stream, changelog, lake_sink

VIOLATED = (
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint positive (qty > 0) violated by row "
    "with values:"
)


def a_stream(spark: SparkSession, folder: Path) -> DataFrame:
    """A stream of one row, which no CHECK allows."""
    changelog(spark, "id INT, qty INT", [("+I", 1, -5)]).coalesce(1).write.json(str(folder))
    return spark.readStream.schema("row_kind STRING, id INT, qty INT").json(str(folder))


def test_a_check_that_a_row_violates(spark: SparkSession, tmp_path: Path) -> None:
    sink = lake_sink(spark, "delta", tmp_path)
    apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, 1)]), sink.table, keys="id")
    sink.execute(f"ALTER TABLE {sink.sql_name} ADD CONSTRAINT positive CHECK (qty > 0)")
    with pytest.raises(TargetError) as refused:
        apply_batch(changelog(spark, "id INT, qty INT", [("+I", 1, -5)]), sink.table, keys="id")
    assert VIOLATED in str(refused.value)
    assert "- qty : -5" in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(StreamingQueryException) as failed:
        apply_stream(
            a_stream(spark, tmp_path / "in"),
            sink.table,
            tmp_path / "checkpoint",
            keys="id",
            order_by="qty",
        )
    assert VIOLATED in explain_error(failed.value)
    assert sink.rows() == [(1, 1)]


def test_a_folder_that_cannot_be_written(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    def write(batch: Any, number: int) -> None:
        batch.write.parquet(str(tmp_path / "file" / "table"))

    writer = a_stream(spark, tmp_path / "in").writeStream.foreachBatch(write)
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    sentence = explain_error(failed.value)
    assert sentence.startswith("org.apache.hadoop.fs.ParentNotDirectoryException: ")
    assert str(tmp_path / "file") in sentence
