"""A user's job that reads topics and logs nothing itself, so that its log has only the library's messages."""

import json
import sys
from typing import Any

from normalize import from_kafka_changelog
from tests.support.spark_packages import jars


def read(spark: Any, servers: str, topic: str, bounded: bool, checkpoint: str, options: dict[str, Any]) -> dict[str, Any]:
    """Read the topic until its end, and return the counts."""
    from pyspark.sql import Observation

    source: dict[str, Any] = {"kafka.bootstrap.servers": servers, **({} if bounded else {"maxOffsetsPerTrigger": 20})}
    arguments: dict[str, Any] = {"format": "debezium-json", "primary_key": "id", "options": source, "check": False, **options}
    if bounded:
        observed = Observation()
        rows = from_kafka_changelog(spark, topic, bounded=True, observation=observed, **arguments).count()
        counts = [observed.get]
    else:
        writer = from_kafka_changelog(spark, topic, **arguments).writeStream.format("memory").queryName("rows")
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        rows = spark.table("rows").count()
        counts = [json.loads(batch.json)["observedMetrics"]["changelog_decode"] for batch in query.recentProgress]
    return {"rows": rows, "counts": counts}


def main(servers: str, reads: str) -> None:
    """Read the topics one after the other, and print the counts of each."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars())
    spark = builder.config("spark.sql.shuffle.partitions", 2).config("spark.ui.enabled", False).getOrCreate()
    print(json.dumps([read(spark, servers, **each) for each in json.loads(reads)]))


if __name__ == "__main__":
    main(*sys.argv[1:])
