"""What differs between Spark versions: ``availableNow``, ``once``, and older checkpoints."""

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

import capture
from capture.source import HAS_READ_LIMITS
from tests.support.jobs import capture_checkpoint_job
from tests.support.servers.local_source import SMALL, LocalSource, Replica, Stream

pytestmark = [pytest.mark.spark, pytest.mark.cross_section]
MOST = 240.0  # seconds, for a busy machine


def run(
    spark: SparkSession,
    options: dict[str, str],
    checkpoint: Path,
    while_it_runs: Any = None,
    **trigger: Any,
) -> list[list[Any]]:
    """Return the rows of each micro-batch of a run."""
    batches: list[list[Any]] = []

    def keep(batch: Any, _: int) -> None:
        batches.append([row.asDict(recursive=True) for row in batch.collect()])
        if while_it_runs:
            while_it_runs()

    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**options).load()
    writer = changes.writeStream.foreachBatch(keep).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(**(trigger or {"availableNow": True})).start()
    assert query.awaitTermination(MOST)
    return batches


def test_available_now_reads_up_to_the_start_of_the_run(
    spark: SparkSession, source: LocalSource, tmp_path: Path
) -> None:
    source.run(
        "CREATE TABLE ended (id INT PRIMARY KEY, v INT)",
        "INSERT INTO ended SELECT seq, 0 FROM seq_1_to_60",
        "ANALYZE TABLE ended",
    )
    options, replica, before = (
        source.options("ended", **SMALL),
        Replica("id"),
        set(source.rows("ended")),
    )

    def write() -> None:
        source.run(
            "UPDATE ended SET v = v + 1 WHERE id % 4 = 0",
            "DELETE FROM ended WHERE id % 11 = 0",
            "REPLACE INTO ended VALUES (61, 0)",
        )

    batches = run(spark, options, tmp_path, write)
    assert len(batches) > 3 if HAS_READ_LIMITS else len(batches) == 1
    for batch in batches:
        replica.apply(batch)
    assert replica.contents() == (
        before if HAS_READ_LIMITS else {row for row in before if row[0] <= 15}
    )
    for batch in run(spark, options | {"scan.snapshot.chunks-per-batch": "20"}, tmp_path):
        replica.apply(batch)
    assert replica.contents() == set(source.rows("ended"))


def test_once_is_one_batch(spark: SparkSession, source: LocalSource, tmp_path: Path) -> None:
    source.run(
        "CREATE TABLE once (id INT PRIMARY KEY)",
        "INSERT INTO once SELECT seq FROM seq_1_to_60",
        "ANALYZE TABLE once",
    )
    batches = run(spark, source.options("once", **SMALL), tmp_path, once=True)
    assert [len(batch) for batch in batches] == [60 if HAS_READ_LIMITS else 15]


@pytest.mark.parametrize(
    "written_by", [version for version in ("4.0", "4.1") if version <= pyspark.__version__]
)
def test_checkpoint_of_another_version_continues(
    spark: SparkSession, source: LocalSource, tmp_path: Path, written_by: str
) -> None:
    source.run(
        f"DROP TABLE IF EXISTS {capture_checkpoint_job.TABLE}", *capture_checkpoint_job.CREATED
    )
    options = source.options(
        capture_checkpoint_job.TABLE, **SMALL | {"scan.snapshot.chunks-per-batch": "20"}
    )
    now = Stream(options).start
    capture_checkpoint_job.unpack(written_by, tmp_path, now)
    source.run(f"UPDATE {capture_checkpoint_job.TABLE} SET v = 1 WHERE id IN (1, 60)")
    rows = [row for batch in run(spark, options, tmp_path) for row in batch]
    assert sorted((row["row_kind"], row["id"], row["v"]) for row in rows) == [
        *(("+I", number, int(number == 60)) for number in range(16, 61)),
        ("+U", 1, 1),
        ("-U", 1, 0),
    ]
