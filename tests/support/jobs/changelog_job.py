"""A user's job that a test kills: it writes a topic's changelog, one file of rows per micro-batch, and its bad records as dead letters."""

import json
import os
import sys
import time

from normalize import ChangelogNormalize, DeadLetter, from_kafka_changelog
from tests.support.spark_packages import jars


def main(servers: str, topic: str, dead: str, folder: str, waits_in: str) -> None:
    """Read the topic until its end, or wait for a kill in the micro-batch `waits_in` of this start, before its rows are written."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars())
    spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.ui.enabled", False).getOrCreate()
    batches = 0

    def write(batch, number: int) -> None:
        nonlocal batches
        batches += 1
        print("begun", number, flush=True)
        rows = [[row.row_kind, [row.id, row.name, row.qty]] for row in batch.collect()]
        print("read", number, flush=True)
        if batches == int(waits_in):
            time.sleep(600)
        with open(f"{folder}/part", "w") as part:
            json.dump(rows, part)
        # A batch that is repeated after a crash writes the same file again.
        os.replace(f"{folder}/part", f"{folder}/{number:05d}.json")

    changes = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        schema="id INT, name STRING, qty INT",
        primary_key=["id"],
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 150},
        mode=DeadLetter(dead),
        normalize=ChangelogNormalize(key_groups=4),
    )
    writer = changes.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
