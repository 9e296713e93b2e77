"""A user's job for a cluster: it writes a topic's changelog, one file of rows per micro-batch, and where it ran."""

import json
import os
import sys

from normalize import ChangelogNormalize, from_kafka_changelog


def loaded(_: int) -> tuple[str, bool]:
    """Return the file from which a worker imports the package, and whether the package's data is included."""
    import normalize
    from cdc_formats.decoding.validation import packaged_schema

    return os.path.abspath(normalize.__file__), packaged_schema("debezium-json") is not None


def main(servers: str, topic: str, folder: str) -> None:
    """Read the topic until its end."""
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()

    def write(batch, number: int) -> None:
        rows = [[row.row_kind, [row.id, row.name, row.qty]] for row in batch.collect()]
        with open(f"{folder}/{number:05d}.json", "w") as part:
            json.dump(rows, part)

    changes = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        format_options={"validate": True},
        schema="id INT, name STRING, qty INT",
        primary_key=["id"],
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 300},
        normalize=ChangelogNormalize(key_groups=4),
    )
    writer = changes.writeStream.foreachBatch(write).option("checkpointLocation", f"{folder}/checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    files, data = zip(*spark.sparkContext.parallelize(range(4), 4).map(loaded).collect(), strict=True)
    print(json.dumps({"files": sorted(set(files)), "data": all(data)}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
