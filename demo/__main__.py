"""``python -m demo`` (``make demo``): a real Kafka, recorded real topics, and what becomes of them.

For each recording: load it into the broker byte for byte, read it with `from_kafka_changelog` as a streaming query, print the changelog
and the table that it ends in, and hold that to the source database's own table. Then the two small stories: a sum that follows its rows,
and a changelog that is written to Kafka and read back.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

from normalize import SPARK_PACKAGES, LocalKafka

from . import recordings, stories


def main() -> int:
    """Run the demo; the exit status is 1 where a table is not the database's."""
    begin = time.monotonic()
    say("Starting Spark (the first time it fetches its Kafka source) ...")
    spark = session()
    say("Starting Kafka ...")
    with LocalKafka() as kafka:
        say(f"Kafka is at {kafka.bootstrap_servers}.")
        equal = [recordings.replay(spark, kafka, recording, say) for recording in recordings.RECORDINGS]
        equal += [stories.product(spark, kafka, say), stories.demo_orders(spark, kafka, say)]
    spark.stop()
    say(f"\n{sum(equal)} of {len(equal)} end in exactly the source's own rows; {time.monotonic() - begin:.0f} s.")
    return 0 if all(equal) else 1


def say(line: str) -> None:
    """Print a line now."""
    print(line, flush=True)


def session():
    """Start a local Spark; a demo needs few partitions and no noise."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.jars.packages": SPARK_PACKAGES,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": tempfile.gettempdir(),
    }
    builder = SparkSession.builder.master("local[2]").appName("demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


if __name__ == "__main__":
    sys.exit(main())
