"""Reads a changelog through Spark Connect: ``python -m tests.support.jobs.capture_connect_job OPTIONS FOLDER``.

It prints the rows as JSON.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import capture


def main(options: str, folder: str) -> None:
    """Run the query with availableNow into files."""
    spark = SparkSession.builder.remote("local[2]").getOrCreate()
    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**json.loads(options)).load()
    writer = changes.writeStream.format("parquet").option("path", f"{folder}/rows").option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows").selectExpr("row_kind", "id", "CAST(CAST(at AS DECIMAL(20,3)) AS DOUBLE)").collect()
    print(json.dumps(sorted((list(row) for row in rows), key=lambda row: row[1])))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
