"""The data source in Spark: from a snapshot to changes, stopped and started again from its checkpoint."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from local_source import SMALL, LocalSource, Replica

import capture

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
MOST = 240.0  # seconds, on a machine that has other work


class Copy:
    """A replica that a query writes to, once for each batch however often Spark writes it, and that may fail."""

    def __init__(self, *primary_key: str) -> None:
        self.replica = Replica(*primary_key)
        self.batches: dict[int, list[dict[str, Any]]] = {}
        self.fail_at: int | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        rows = [row.asDict() for row in batch.collect()]
        if number in self.batches:
            assert sorted(map(str, rows)) == sorted(map(str, self.batches[number]))
            return
        self.batches[number] = rows
        self.replica.apply(rows)
        if number == self.fail_at:
            raise RuntimeError("the job dies after it wrote a batch")


def start(spark: SparkSession, options: dict[str, str], copy: Copy, checkpoint: Path, **trigger: Any) -> Any:
    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**options).load()
    return (
        changes.writeStream.foreachBatch(copy)
        .option("checkpointLocation", str(checkpoint))
        .trigger(**(trigger or {"processingTime": "0 seconds"}))
        .start()
    )


def test_query_started_again_in_the_middle_goes_on_with_the_same_rows(spark: SparkSession, source: LocalSource, tmp_path: Path) -> None:
    source.run(
        "CREATE TABLE spark_t (id INT PRIMARY KEY, v INT)", "INSERT INTO spark_t SELECT seq, 0 FROM seq_1_to_60", "ANALYZE TABLE spark_t"
    )
    copy, options, done = Copy("id"), source.options("spark_t", **SMALL), threading.Event()
    copy.fail_at = 0

    def write() -> None:
        number = 0
        while not done.is_set():
            number += 1
            source.run(
                f"UPDATE spark_t SET v = v + 1 WHERE id % 7 = {number % 7}",
                f"DELETE FROM spark_t WHERE id = {number % 60}",
                f"INSERT INTO spark_t VALUES ({60 + number}, 1)",
            )
            time.sleep(0.2)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        dying = start(spark, options, copy, tmp_path)
        with pytest.raises(Exception, match="the job dies"):
            dying.awaitTermination(MOST)
        assert set(copy.batches) == {0}
        assert 0 < len(copy.batches[0]) < 30, "the snapshot is not done"
        again = start(spark, options, copy, tmp_path)
        deadline = time.monotonic() + MOST
        while len(copy.batches) < 5 and time.monotonic() < deadline and again.isActive:
            time.sleep(0.1)
    finally:
        done.set()
        writer.join()
    try:
        while copy.replica.contents() != set(source.rows("spark_t")) and time.monotonic() < deadline and again.isActive:
            time.sleep(0.1)
        assert again.exception() is None
        assert copy.replica.contents() == set(source.rows("spark_t"))
    finally:
        again.stop()
    # What is available now is one batch; the query goes on from where it was.
    source.run("INSERT INTO spark_t VALUES (-1, 5)")
    start(spark, options, copy, tmp_path, availableNow=True).awaitTermination(MOST)
    assert copy.replica.contents() == set(source.rows("spark_t"))


def test_password_is_in_no_plan_and_no_error(spark: SparkSession, source: LocalSource, capsys: pytest.CaptureFixture[str]) -> None:
    source.run("CREATE TABLE secret_t (id INT PRIMARY KEY)")
    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**source.options("secret_t")).load()
    changes.explain(True)
    assert "s3cret" not in capsys.readouterr().out
    wrong = source.options("secret_t") | {"password": "wr0ng-s3cret"}
    with pytest.raises(Exception, match=r"\[SERVER_UNAVAILABLE\].*Access denied") as caught:
        spark.readStream.format("mysql-changelog").options(**wrong).load()
    assert "s3cret" not in str(caught.value)
