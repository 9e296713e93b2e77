"""Run `sync_database` into Delta tables until it has read all records: ``python -m tests.support.jobs.sync_job SERVERS TOPIC FOLDER``.

It prints a line for each table of a micro-batch that is merged.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path


class Merged(logging.Handler):
    """Prints ``merged`` for each table that is merged."""

    def emit(self, record: logging.LogRecord) -> None:
        if "records applied in" in record.getMessage():
            print("merged", record.getMessage(), flush=True)


def main() -> None:
    """Run the query."""
    from pyspark.sql import SparkSession

    from normalize import DeltaDatabase, sync_database
    from tests.support.spark_packages import settings

    servers, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=settings(folder)).getOrCreate()
    log = logging.getLogger("normalize")
    log.setLevel(logging.INFO)
    log.addHandler(Merged())
    writer = sync_database(
        spark,
        topic,
        format="maxwell-json",
        target=DeltaDatabase(str(folder / "lake")),
        schema_location=str(folder / "schemas"),
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 60},
        parallel=2,
    )
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main()
