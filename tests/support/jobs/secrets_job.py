"""A job with a secret in every option, which records everything that Spark shows.

It records plans, progress, events, pages, errors and checkpoints.

``python -m tests.support.jobs.secrets_job FOLDER OPTIONS.json``; the log goes to stderr.
"""

import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from normalize import DeadLetter, from_kafka_changelog, to_kafka_changelog
from normalize.api import encode_changelog
from tests.support.spark_packages import jars

TABLE: dict[str, Any] = {"schema": "id INT, name STRING", "primary_key": ["id"]}
MODES = ("simple", "extended", "codegen", "cost", "formatted")
PAGES = (
    "api/v1/applications/{id}/environment",
    "api/v1/applications/{id}/sql?details=true&length=100",
    "environment",
    "SQL",
    "StreamingQuery",
)


def session(folder: Path, redaction: dict[str, str]) -> SparkSession:
    """Return a session that logs its events, serves its UI, and logs Kafka in detail."""
    (folder / "events").mkdir()
    (folder.parent / "log4j2.properties").write_text(
        "rootLogger.level = info\nrootLogger.appenderRef.stderr.ref = console\n"
        "appender.console.type = Console\nappender.console.name = console\nappender.console.target "
        "= SYSTEM_ERR\nappender.console.layout.type = PatternLayout\n"
        "appender.console.layout.pattern = %d %p %c: %m%n%ex\nlogger.kafka.name = "
        "org.apache.spark.sql.kafka010\nlogger.kafka.level = debug\nlogger.clients.name = "
        "org.apache.kafka.clients\nlogger.clients.level = info\nlogger.python.name = "
        "org.apache.spark.sql.execution.python\nlogger.python.level = debug\n"
    )
    builder = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", jars())
        .config("spark.sql.shuffle.partitions", 1)
        .config(
            "spark.driver.extraJavaOptions",
            f"-Dlog4j2.configurationFile={folder.parent}/log4j2.properties",
        )
        .config("spark.eventLog.enabled", True)
        .config("spark.eventLog.compress", False)
        .config("spark.eventLog.dir", (folder / "events").as_uri())
        .config("spark.ui.port", 0)
        .config("spark.ui.showConsoleProgress", False)
    )
    return builder.config(map=redaction).getOrCreate()


def show_plans(df: DataFrame, folder: Path, name: str) -> None:
    """Write a DataFrame's plans in every mode."""
    plan = df._jdf.queryExecution()
    texts = [df._sc._jvm.PythonSQLUtils.explainString(plan, mode) for mode in MODES]  # type: ignore[union-attr]
    (folder / f"{name}.plan").write_text("\n".join([*texts, plan.toString(), repr(df)]))


def run(df: DataFrame, folder: Path, name: str) -> None:
    """Run a stream until it has read all records, and write its plan and progress, or its error."""
    writer = (
        df.writeStream.format("noop")
        .option("checkpointLocation", str(folder / f"{name}.checkpoint"))
        .trigger(availableNow=True)
    )
    query = writer.start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        (folder / f"{name}.error").write_text(f"{error}\n{error!r}\n{query.exception()}")
    shown = [batch.json for batch in query.recentProgress] + [
        str(query.lastProgress),
        str(query.status),
    ]
    plan = query._jsq.explainInternal(True)
    (folder / f"{name}.progress").write_text("\n".join([*shown, plan]))


def pages(spark: SparkSession, folder: Path) -> None:
    """Write the pages of Spark's UI that show options."""
    address = spark.sparkContext.uiWebUrl
    for number, page in enumerate(PAGES):
        with urlopen(f"{address}/{page.format(id=spark.sparkContext.applicationId)}") as answer:
            (folder / f"{number}.page").write_bytes(answer.read())


def main(folder: Path, options: dict[str, Any]) -> None:
    """Read and write with every kind of secret."""
    spark = session(folder, options["redaction"])
    topic, copy, dead = options["topics"]
    login, mtls = options["login"], options["mtls"]
    read: dict[str, Any] = {**TABLE, "format": "debezium-json", "mode": DeadLetter(dead)}
    stream = from_kafka_changelog(
        spark, topic, **{**read, "mode": DeadLetter(dead, options["dead_letter"])}, options=login
    )
    show_plans(stream, folder, "stream")
    run(stream, folder, "stream")
    read["normalize"] = False  # one plan with the stage is enough
    bounded = from_kafka_changelog(spark, topic, **read, options=mtls, bounded=True)
    show_plans(bounded, folder, "bounded")
    (folder / "rows").write_text(str(sorted(bounded.collect())))
    encode_changelog(bounded, format="debezium-json", primary_key="id").write.format(
        "kafka"
    ).options(**mtls, topic=copy).save()
    again = from_kafka_changelog(spark, topic, **read, options=login)
    writer = to_kafka_changelog(again, copy, format="debezium-json", primary_key="id", options=mtls)
    written = (
        writer.option("checkpointLocation", str(folder / "written.checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    written.awaitTermination()
    (folder / "written.progress").write_text(written._jsq.explainInternal(True) + repr(writer))
    avro = {
        **TABLE,
        "normalize": False,
        "format": "debezium-avro-confluent",
        "format_options": options["registry"],
    }
    failing = from_kafka_changelog(spark, options["avro"], **avro, options=login, check=False)
    show_plans(failing, folder, "registry")
    run(failing, folder, "registry")
    refused = {**login, "kafka.sasl.jaas.config": options["wrong"], "fetchOffset.numRetries": "1"}
    run(
        from_kafka_changelog(
            spark, topic, **TABLE, format="debezium-json", options=refused, check=False
        ),
        folder,
        "refused",
    )
    pages(spark, folder)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_text()))
