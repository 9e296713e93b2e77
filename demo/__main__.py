"""``python -m demo`` (``make demo``): replays recorded topics through a real Kafka and compares the tables.

Each recording is loaded into the broker byte for byte and read with `from_kafka_changelog` as a streaming query. The demo prints the
changelog and its final table, and compares that with the source database's table. Two small examples follow: a sum that is updated
with its rows, and a changelog that is written to Kafka and read back.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time

from normalize import SPARK_PACKAGES, LocalKafka

from . import recordings, stories


def main() -> int:
    """Run the demo; return exit code 1 if a table differs from the database's."""
    begin = time.monotonic()
    say("Starting Spark (the first start downloads its Kafka source) ...")
    spark = session()
    say("Starting Kafka ...")
    with LocalKafka() as kafka:
        say(f"Kafka is at {kafka.bootstrap_servers}.")
        equal = [recordings.replay(spark, kafka, recording, say) for recording in recordings.RECORDINGS]
        equal += [stories.product(spark, kafka, say), stories.demo_orders(spark, kafka, say)]
    spark.stop()
    say(f"\n{sum(equal)} of {len(equal)} results are exactly the source's rows; {time.monotonic() - begin:.0f} s.")
    return 0 if all(equal) else 1


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


def session():
    """Return a local Spark session with few partitions and little output."""
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
