"""Run `sync_database`, or `sync_table` for one table, until it has read all records.

Usage: ``python -m tests.support.jobs.sync_job SERVERS TOPIC DEAD FOLDER TABLES``.

The target is the pickled database or table in the file ``target`` of FOLDER. TABLES is the folder
of the session's catalogs. It prints a line for each table of a micro-batch that is merged.
"""

import logging
import os
import pickle
import sys
from pathlib import Path

from pyspark.sql import SparkSession

TABLE = "id INT, v INT, note STRING"


class Merged(logging.Handler):
    """Prints ``merged`` for each table that is merged."""

    def emit(self, record: logging.LogRecord) -> None:
        if "records applied in" in record.getMessage():
            print("merged", record.getMessage(), flush=True)


def run(spark: SparkSession, servers: str, topic: str, dead: str, folder: Path) -> None:
    """Run the query in a session until it has read all records."""
    from pyspark.errors import StreamingQueryException

    from normalize import DeadLetter, sync_database, sync_table
    from normalize.tables.targets import TableTarget
    from tests.support.sinking import fails_after_repeating

    target = pickle.loads((folder / "target").read_bytes())
    one_table = isinstance(target, TableTarget)
    of_kind = {"schema": TABLE, "primary_key": "id"} if one_table else {"parallel": 2}
    writer = (sync_table if one_table else sync_database)(
        spark,
        topic,
        format="maxwell-json",
        target=target,
        schema_location=str(folder / "schemas"),
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 62},
        mode=DeadLetter(dead),
        **of_kind,
    )
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(
        availableNow=True
    )
    try:
        writer.start().awaitTermination()
    except StreamingQueryException as error:
        if not fails_after_repeating(spark, error):
            raise
        writer.start().awaitTermination()


def main() -> None:
    """Run the query in a session of its own."""
    from pyspark.sql import SparkSession

    from tests.support.spark_packages import settings

    servers, topic, dead, folder, tables = *sys.argv[1:4], *map(Path, sys.argv[4:])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[2]").config(map=settings(tables)).getOrCreate()
    log = logging.getLogger("normalize")
    log.setLevel(logging.INFO)
    log.addHandler(Merged())
    run(spark, servers, topic, dead, folder)


if __name__ == "__main__":
    main()
