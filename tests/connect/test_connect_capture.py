"""A table's changelog is read through Spark Connect."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

import capture
from tests.support.servers.local_source import SMALL, LocalSource


def test_the_stream_is_read(connect: SparkSession, source: LocalSource, tmp_path: Path) -> None:
    source.run("CREATE TABLE connected (id INT PRIMARY KEY, at TIMESTAMP(3) NOT NULL)")
    rows = "INSERT INTO connected SELECT seq, '2020-01-01 00:00:00.5' FROM seq_1_to_60"
    source.run("SET time_zone = '+00:00'", rows, "ANALYZE TABLE connected")
    options = source.options("connected", **SMALL | {"scan.snapshot.chunks-per-batch": "20"})
    capture.register(connect)
    writer = connect.readStream.format("mysql-changelog").options(**options).load().writeStream.format("parquet")
    writer = writer.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    read = connect.read.parquet(str(tmp_path / "rows")).selectExpr("row_kind", "id", "CAST(at AS STRING)").orderBy("id")
    assert [tuple(row) for row in read.collect()] == [("+I", number, "2020-01-01 00:00:00.5") for number in range(1, 61)]
