"""A user's job that reads a topic and logs nothing itself, so that its log has only the library's messages."""

import json
import sys
from typing import Any

from normalize import SPARK_PACKAGES, from_kafka_changelog


def main(servers: str, topic: str, bounded: str, checkpoint: str, options: str) -> None:
    """Read the topic until its end, and print the counts."""
    from pyspark.sql import Observation, SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", SPARK_PACKAGES)
    spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.ui.enabled", False).getOrCreate()
    read: dict[str, Any] = {
        "format": "debezium-json",
        "primary_key": "id",
        "options": {"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": 10},
        **json.loads(options),
    }
    if bounded == "True":
        del read["options"]["maxOffsetsPerTrigger"]
        observed = Observation()
        rows = from_kafka_changelog(spark, topic, bounded=True, observation=observed, **read).count()
        counts = [observed.get]
    else:
        writer = from_kafka_changelog(spark, topic, **read).writeStream.format("memory").queryName("rows")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = spark.table("rows").count()
        counts = [json.loads(batch.json)["observedMetrics"]["changelog_decode"] for batch in query.recentProgress]
    print(json.dumps({"rows": rows, "counts": counts}))


if __name__ == "__main__":
    main(*sys.argv[1:])
