"""A job that writes a table's changelog to one file per batch.

The command is ``python -m tests.support.jobs.capture_job OPTIONS CHECKPOINT FOLDER``.

It prints a line for each batch, and ends when its output is closed.
"""

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

import capture


def main(options: str, checkpoint: str, folder: str) -> None:
    """Run the query until the process is killed."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", False)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.driver.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    capture.register(spark)

    def keep(batch: DataFrame, number: int) -> None:
        lines = [json.dumps(row.asDict(recursive=True), default=str) for row in batch.collect()]
        whole, part = (
            Path(folder, f"{number:06d}.json"),
            Path(folder, f"{number:06d}.{os.getpid()}"),
        )
        part.write_text("\n".join(lines))
        part.rename(whole)
        print(number, len(lines), flush=True)

    changes = spark.readStream.format("mysql-changelog").options(**json.loads(options)).load()
    query = (
        changes.writeStream.foreachBatch(keep)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
