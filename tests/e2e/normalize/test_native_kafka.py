"""`ChangelogNormalize(engine="native")` on Kafka: tasks, partitions, topics, writing to Kafka."""

import json
import re
import sqlite3
import subprocess
import sys
from decimal import Decimal
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from normalize import (
    ChangelogNormalize,
    DeadLetter,
    aggregate_changes,
    from_kafka_changelog,
    signed_count,
    signed_sum,
    to_kafka_changelog,
)
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from normalize.spark_versions import installed_version
from normalize.stage_options import NativeEngine
from tests.support.histories import TABLE, random_history, records_of
from tests.support.paths import PRODUCT
from tests.support.strategies import last_rows, table_of
from tests.support.streams import debezium, letters, new_topic, recreate_topic, run_stream, servers

BEGIN = 1_700_000_000_000
pytestmark = pytest.mark.skipif(
    installed_version() < "4.2", reason="Spark 4.1 and older have no max_by with a number of rows"
)


def read(
    spark,
    kafka,
    topic: Any,
    *,
    options: dict | None = None,
    repartition: bool | None = None,
    **arguments: Any,
):
    normalize = ChangelogNormalize(engine=NativeEngine(repartition))
    return from_kafka_changelog(
        spark,
        topic,
        options=servers(kafka, **(options or {})),
        normalize=normalize,
        **{**TABLE, **arguments},
    )


def repartitions(df) -> bool:
    return "RepartitionByExpression" in df._jdf.queryExecution().analyzed().toString()


@pytest.mark.parametrize(
    "options",
    [{}, {"minPartitions": 4}],
    ids=["a task for each partition", "several tasks for a partition"],
)
def test_a_topic_is_read_in_micro_batches_over_restarts(spark, kafka, tmp_path, options):
    history, rows = random_history(9, changes=600), []
    topic = new_topic(kafka, [], partitions=2)
    for part in (history[:300], history[300:]):
        # The timestamps go back: within a partition, only the offsets give the order.
        records = [
            ProducerRecord(key, value, int(re.sub(rb"\D", b"", key)) % 2, BEGIN - number)
            for number, (key, value) in enumerate(records_of(part))
        ]
        kafka.produce(topic, records)
        stream = read(spark, kafka, topic, options={"maxOffsetsPerTrigger": 300, **options})
        assert repartitions(stream) == bool(options)
        rows += run_stream(stream, tmp_path, "update").rows
    assert table_of((row.row_kind, tuple(row)[1:]) for row in rows) == last_rows(history)


def test_a_pattern_of_topics_is_repartitioned_by_key(spark, kafka):
    topic = new_topic(kafka, [])
    assert repartitions(read(spark, kafka, re.compile(f"{topic}.*")))
    assert not repartitions(read(spark, kafka, re.compile(f"{topic}.*"), repartition=False))


def test_a_key_in_two_partitions_is_an_error_with_its_remedy(spark, kafka, tmp_path):
    messages = [debezium("c", None, {"id": 1, "name": name, "qty": 0}) for name in ("old", "new")]
    records = [
        ProducerRecord(b"1", messages[1], 0, 1_700_000_000_002),
        ProducerRecord(b"1", messages[0], 1, 1_700_000_000_001),
    ]
    topic = new_topic(kafka, records, partitions=2)
    with pytest.raises(StreamingQueryException) as failed:
        run_stream(read(spark, kafka, topic), tmp_path, "update")
    assert explain_error(failed.value) == (
        "[ROW_ORDER] two tasks of one micro-batch have changes of one key, and their order is "
        "unknown: set engine=NativeEngine(repartition=True), which repartitions changes by key"
    )
    # The checkpoint of the failed query goes on with the remedy.
    assert run_stream(
        read(spark, kafka, topic, repartition=True), tmp_path, "update"
    ).changelog == ["+I(1,new,0)"]


def test_a_topic_that_was_replaced_is_an_error(spark, kafka, tmp_path):
    message = debezium("c", None, {"id": 1, "name": "a", "qty": 0})
    topic = new_topic(kafka, [(b"1", message)])
    run_stream(read(spark, kafka, topic), tmp_path, "update")
    recreate_topic(kafka, topic, [(b"1", message)] * 3)
    with pytest.raises(StreamingQueryException) as failed:
        run_stream(
            read(spark, kafka, topic, options={"failOnDataLoss": "false"}), tmp_path, "update"
        )
    assert explain_error(failed.value).startswith(
        f"[TOPIC_REPLACED] the topic id of {topic} was another one"
    )


def test_a_bad_record_is_a_dead_letter_and_the_others_are_rows_that_are_written_to_kafka(
    spark, kafka, tmp_path
):
    records = [*records_of([(1, (1, "a", 0))]), (b"1", b"no json"), *records_of([(2, (2, "b", 0))])]
    topic, out, dead = (new_topic(kafka, content) for content in (records, [], []))
    changes = read(spark, kafka, topic, mode=DeadLetter(dead), check=False)
    writer = to_kafka_changelog(
        changes, out, options=servers(kafka), format="upsert-kafka", primary_key="id"
    )
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    query.awaitTermination()
    assert explain_error(query) == ""
    observed = query.recentProgress[0]["observedMetrics"]["changelog_decode"]
    assert (observed["MALFORMED_MESSAGE"], observed["DEAD_LETTERS"]) == (1, 1)
    assert sorted(each.value() for each in letters(kafka, out)) == [
        b'{"id":1,"name":"a","qty":0}',
        b'{"id":2,"name":"b","qty":0}',
    ]
    assert [(each.key(), each.value()) for each in letters(kafka, dead)] == [
        (f"{topic}[0]@1".encode(), b"no json")
    ]


# --------------------------------------------------------------------------------------------------
# The products scenario: a sum by name over micro-batches, in an upsert topic with tombstones
STORY = json.loads((PRODUCT / "schema.json").read_text())
QUERY = "SELECT name, SUM(weight) AS weight, COUNT(*) AS products FROM product GROUP BY name"


def records(identifier: str) -> list[tuple[bytes | None, bytes | None]]:
    def raw(part):
        return (
            None if part is None else (part if isinstance(part, str) else json.dumps(part)).encode()
        )

    lines = map(json.loads, (PRODUCT / f"{identifier}.jsonl").read_text().splitlines())
    return [(raw(line.get("key")), raw(line["value"])) for line in lines]


def database_answer() -> dict[str, tuple[Decimal, int]]:
    database = sqlite3.connect(":memory:")
    database.executescript((PRODUCT / "statements.sql").read_text())
    rows = database.execute(QUERY).fetchall()
    database.close()
    return {
        name: (Decimal(str(weight)).quantize(Decimal("0.001")), products)
        for name, weight, products in rows
    }


@pytest.mark.cross_section
def test_the_sum_by_name_equals_the_databases_after_every_retraction(spark, kafka, tmp_path):
    identifier = "upsert-kafka"  # every -U comes from the stage
    history = records(identifier)
    source, totals = new_topic(kafka, []), new_topic(kafka, [])
    products = from_kafka_changelog(
        spark,
        source,
        format=identifier,
        format_options=STORY["options"].get(identifier),
        schema=STORY["columns"],
        primary_key=STORY["primary_key"],
        options=servers(kafka),
        normalize=ChangelogNormalize(key_groups=2),
    )
    sums = aggregate_changes(
        products, "name", signed_sum("weight").alias("weight"), signed_count("*").alias("products")
    )
    writer = to_kafka_changelog(
        sums, totals, format="upsert-kafka", primary_key="name", options=servers(kafka)
    )
    query = (
        writer.outputMode("update").option("checkpointLocation", str(tmp_path / "totals")).start()
    )
    for begin in range(0, len(history), 20):
        kafka.produce(source, history[begin : begin + 20])
        query.processAllAvailable()
    query.stop()

    written = from_kafka_changelog(
        spark,
        totals,
        format="upsert-kafka",
        schema="name STRING, weight DECIMAL(20,3), products BIGINT",
        primary_key="name",
        options=servers(kafka),
        bounded=True,
    )
    rows = written.collect()
    table = {}
    for row in rows:
        if row.row_kind in ("+I", "+U"):
            table[row.name] = (row.weight, row.products)
        elif row.row_kind == "-D":
            del table[row.name]
    assert table == database_answer()
    # The last product of a name was renamed or deleted.
    assert {row.name for row in rows if row.row_kind == "-D"}


# --------------------------------------------------------------------------------------------------
# `local_session` and the warnings about a session's settings
@pytest.mark.cross_section
@pytest.mark.spark
@pytest.mark.kafka
def test_a_local_session_reads_a_topic_without_noise(kafka) -> None:
    topic = new_topic(kafka, [(None, debezium("c", None, {"id": 1}))])
    job = [
        sys.executable,
        "-m",
        "tests.support.jobs.local_session_job",
        kafka.bootstrap_servers,
        topic,
    ]
    done = subprocess.run(job, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "rows": [["+I", 1]],
        "same": True,
        "partitions": "2",
        "master": "local[1]",
        "name": "changelog",
        "SPARK_HOME": "/nowhere/spark",
        "delta": "DeltaSparkSessionExtension",
    }
    # The first session of a machine prints what it fetched.
    spark_home, running = (
        line for line in done.stderr.splitlines() if not line.startswith("Fetched ")
    )
    assert spark_home.startswith(
        "SPARK_HOME is /nowhere/spark, which local_session ignores: it starts the Spark of the "
        "installed PySpark"
    )
    assert running == (
        "a Spark session is already running, and local_session returns it with its settings "
        "(spark.master=local[1]): to start another, call spark.stop() first"
    )
