"""The query guard: stored tables, options and topics, compared before a micro-batch commits.

The checkpoint stores those of the query.
"""

import json
import re
import time
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.kafka.topics import INTERVAL
from normalize.local_kafka import ProducerRecord
from normalize.monitoring.explain_error import explain_error
from normalize.spark_versions import installed_version
from normalize.stage_options import NativeEngine
from tests.support.streams import new_topic, recreate_topic, run_stream, servers, spelled

SCHEMA = "id INT, name STRING"
KEY_GROUPS = 64


def message(key: int, name: str | None, table: str | None = "t", database: str = "shop") -> bytes:
    row = {"id": key, "name": name}
    source = {"db": database, "table": table} if table else None
    images = (
        {"before": None, "after": row, "op": "c"}
        if name
        else {"before": row, "after": None, "op": "d"}
    )
    return json.dumps({**images, "source": source}).encode()


def read(spark, kafka, topic: Any, *, options: dict | None = None, **arguments):
    defaults = {
        "format": "debezium-json",
        "schema": SCHEMA,
        "primary_key": "id",
        "normalize": ChangelogNormalize(key_groups=KEY_GROUPS),
        "check": False,
    }
    return from_kafka_changelog(
        spark, topic, options=servers(kafka, **(options or {})), **{**defaults, **arguments}
    )


def refuses(df, checkpoint, condition: str, text: str) -> None:
    """Assert that a query or bounded read fails with this error and emits no row."""
    with pytest.raises(Exception, match=rf"\[{condition}\].*{text}"):
        run_stream(df, checkpoint) if df.isStreaming else df.collect()


# --------------------------------------------------------------------------------------------------
# tables


CUSTOMER, PRODUCT = (b"1", message(1, "Ann", "customers")), (b"1", message(1, "bike", "products"))
TWO_TABLES = re.escape("shop.customers") + ".*" + re.escape("shop.products")


@pytest.mark.parametrize(
    ("bounded", "arguments"),
    [
        (False, {"normalize": ChangelogNormalize(key_groups=KEY_GROUPS, where="id > 0")}),
        (True, {"normalize": False, "mode": "PERMISSIVE"}),
        (False, {"mode": "DROPMALFORMED"}),
    ],
    ids=["where, stream", "bad record, no stage, bounded", "bad record, stream"],
)
def test_a_second_table_in_a_topic_is_an_error_in_every_mode_that_names_both_and_the_option(
    spark, kafka, tmp_path, bounded, arguments
):
    second = (
        PRODUCT
        if "mode" not in arguments
        else (b"1", message(1, "bike", "products").replace(b'"id": 1', b'"id": "x"'))
    )
    topic = new_topic(kafka, [CUSTOMER, second])
    text = rf"{TWO_TABLES}.*table_include.*primary_key=\['source.table', 'id'\]"
    refuses(
        read(spark, kafka, topic, bounded=bounded, **arguments), tmp_path, "SEVERAL_TABLES", text
    )


@pytest.mark.parametrize("bounded", [False, True])
def test_tables_are_compared_across_tasks(spark, kafka, tmp_path, bounded):
    topics = [new_topic(kafka, [record]) for record in (CUSTOMER, PRODUCT)]
    refuses(
        read(spark, kafka, topics, bounded=bounded),
        tmp_path,
        "SEVERAL_TABLES",
        "shop.(products|customers).*table_include",
    )


def test_a_filter_or_the_key_resolves_several_tables(spark, kafka, tmp_path):
    delete = (b"1", message(1, None, "customers"))
    topic = new_topic(kafka, [CUSTOMER, PRODUCT, delete])
    one = read(spark, kafka, topic, format_options={"table_include": "products"}, bounded=True)
    assert spelled(one) == ["+I(1,bike)"]
    merged = read(spark, kafka, topic, format_options={"table_include": "products|customers"})
    assert run_stream(merged, tmp_path / "2").changelog == [
        "+I(1,Ann)",
        "-U(1,Ann)",
        "+U(1,bike)",
        "-D(1,bike)",
    ]
    apart = {"metadata": ["source.table"], "primary_key": ["id", "source.table"]}
    expected = ["+I(1,Ann,customers)", "+I(1,bike,products)", "-D(1,Ann,customers)"]
    assert (
        sorted(run_stream(read(spark, kafka, topic, **apart), tmp_path / "3").changelog) == expected
    )
    assert sorted(spelled(read(spark, kafka, topic, **apart, bounded=True))) == expected
    databases = new_topic(kafka, [CUSTOMER, (b"1", message(1, "x", "customers", "other"))])
    customers = read(
        spark, kafka, databases, format_options={"table_include": "customers"}, bounded=True
    )
    refuses(customers, tmp_path / "4", "SEVERAL_TABLES", "shop.*other.*database_include")


def test_a_table_in_the_key_must_be_named(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", message(1, "a", None))])
    df = read(spark, kafka, topic, metadata=["source.table"], primary_key=["source.table", "id"])
    refuses(
        df, tmp_path, "MISSING_FIELD", r"source\.table.*is part of the primary key and is null.*@0"
    )


# --------------------------------------------------------------------------------------------------
# options


def test_what_a_checkpoint_fixes_is_compared_before_anything_is_committed(spark, kafka, tmp_path):
    """Options, and tables across micro-batches and restarts."""
    topic = new_topic(kafka, [CUSTOMER])
    where, same, other = (
        {"normalize": ChangelogNormalize(key_groups=KEY_GROUPS, where=condition)}
        for condition in ("id  >  0", F.col("id") > 0, "id > 1")
    )
    assert run_stream(read(spark, kafka, topic, **where), tmp_path).changelog == ["+I(1,Ann)"]
    kafka.produce(topic, [(b"1", message(1, "Eve", "customers"))])
    other_groups = read(spark, kafka, topic, normalize=ChangelogNormalize(key_groups=512))
    refuses(
        other_groups,
        tmp_path,
        "STATE_VERSION",
        r"has 64 key groups, and key_groups is 512",
    )
    refuses(
        read(spark, kafka, topic, primary_key="name"),
        tmp_path,
        "STATE_VERSION",
        r"has the primary key \(id\)",
    )
    refuses(
        read(spark, kafka, topic, **other),
        tmp_path,
        "STATE_VERSION",
        r"where= is \(id > 1\), and was \(id > 0\) when the checkpoint was written",
    )
    assert run_stream(read(spark, kafka, topic, **same), tmp_path).changelog == [
        "-U(1,Ann)",
        "+U(1,Eve)",
    ]
    kafka.produce(topic, [PRODUCT])
    refuses(read(spark, kafka, topic, **same), tmp_path, "SEVERAL_TABLES", TWO_TABLES)


# --------------------------------------------------------------------------------------------------
# topics


def test_a_recreated_topic_is_not_read_from_the_old_offsets(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", message(key, "old")) for key in range(20)])
    assert len(run_stream(read(spark, kafka, topic), tmp_path).rows) == 20
    recreate_topic(kafka, topic, [(b"1", message(key, "new")) for key in range(60)])
    refuses(
        read(spark, kafka, topic),
        tmp_path,
        "TOPIC_REPLACED",
        f"topic {topic} was deleted and created again",
    )


def test_a_topic_that_is_recreated_while_the_query_runs_ends_it(spark, kafka, tmp_path):
    topic = new_topic(kafka, [(b"1", message(key, "old")) for key in range(20)])
    names = []

    def write(batch, number):
        names.extend(row["name"] for row in batch.collect())
        if number == 0:
            recreate_topic(kafka, topic, [(b"1", message(key, "new")) for key in range(60)])
            time.sleep(INTERVAL)

    # Without a stage, too, whose checkpoint has no ids.
    changes = read(spark, kafka, topic, normalize=False, primary_key=(), check=True)
    query = changes.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
    with pytest.raises(StreamingQueryException) as failed:
        query.start().awaitTermination(120)
    assert explain_error(failed.value).startswith(
        f"[TOPIC_REPLACED] topic {topic} was deleted and created again"
    )
    assert names == ["old"] * 20


NOW = time.time_ns() // 1_000_000


def record(key: int, name: str, partition: int, after: int) -> ProducerRecord:
    return ProducerRecord(
        key=b"k", value=message(key, name), partition=partition, timestamp=NOW + after
    )


def move(kafka, topic: str) -> None:
    """Write key 1 to partition 0, add a partition, and write key 1 to that one."""
    kafka.produce(topic, [record(1, f"old {n}", 0, 1_000 + n) for n in range(40)])
    client = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    client.create_partitions([NewPartitions(topic, 2)])[topic].result()
    deadline = time.monotonic() + 60
    while (
        len(client.list_topics(topic, timeout=10).topics[topic].partitions) < 2
        and time.monotonic() < deadline
    ):
        time.sleep(0.1)
    kafka.produce(topic, [record(1, f"new {n}", 1, 2_000 + n) for n in range(40)])


def test_old_changes_after_those_of_an_added_partition_stop_the_query(spark, kafka, tmp_path):
    topic = new_topic(kafka, [record(2, "a", 0, 1)])
    slow = read(spark, kafka, topic, options={"maxOffsetsPerTrigger": 20})
    run_stream(slow, tmp_path)
    move(kafka, topic)
    slow = read(spark, kafka, topic, options={"maxOffsetsPerTrigger": 20})
    text = rf"{topic}\[1\] was added to the topic.*older ones of {topic}\[0\].*order='source'"
    refuses(slow, tmp_path, "PARTITIONS_ADDED", text)


@pytest.mark.skipif(installed_version() < "4.2", reason="the native engine requires Spark 4.2")
def test_old_changes_after_those_of_an_added_partition_stop_the_native_engine(
    spark, kafka, tmp_path
):
    topic = new_topic(kafka, [record(2, "a", 0, 1)])
    native = ChangelogNormalize(engine=NativeEngine(repartition=True))

    def run():
        options = {"maxOffsetsPerTrigger": 20}
        changes = read(spark, kafka, topic, options=options, normalize=native)
        run_stream(changes, tmp_path, "update")

    run()
    move(kafka, topic)
    with pytest.raises(StreamingQueryException) as failed:
        run()
    assert explain_error(failed.value).startswith(
        f"[PARTITIONS_ADDED] partition {topic}[1] was added to the topic, and its first record was "
        "read before older"
    )
