"""Start `local_session` with another SPARK_HOME, read a topic, and print the findings as JSON."""

import json
import os
import sys
from contextlib import suppress

from pyspark.errors import AnalysisException

from normalize import from_kafka_changelog, local_session


def main(servers: str, topic: str) -> None:
    """Read the topic; the workers must find this package with this interpreter."""
    os.environ.update(SPARK_HOME="/nowhere/spark", PYSPARK_PYTHON="/nowhere/python")
    spark = local_session(**{"spark.ui.enabled": "false", "spark.master": "local[1]"})
    again = local_session()
    options = {"kafka.bootstrap.servers": servers}
    changes = from_kafka_changelog(
        spark,
        topic,
        format="debezium-json",
        schema="id INT",
        primary_key="id",
        options=options,
        bounded=True,
    )
    results = {
        "rows": [list(row) for row in changes.collect()],
        "same": again is spark,
        "partitions": spark.conf.get("spark.sql.shuffle.partitions"),
        "master": spark.sparkContext.master,
        "name": spark.sparkContext.appName,
        "SPARK_HOME": os.environ["SPARK_HOME"],
    }
    with suppress(AnalysisException):
        spark.sql("DESCRIBE TABLE missing")  # an error that is caught is not logged
    spark.stop()
    del os.environ["SPARK_HOME"]
    loader = local_session(packages=["delta"])._jvm.Thread.currentThread().getContextClassLoader()
    results["delta"] = loader.loadClass("io.delta.sql.DeltaSparkSessionExtension").getSimpleName()
    print(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
