"""The way back to Kafka, and `ChangelogNormalize` on DataFrames that come from elsewhere."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal

import pytest
from confluent_kafka import Consumer
from pyspark.sql import Row
from streams import debezium, new_topic, run_stream, servers, spell

from cdc_formats.errors import ArgumentError, FormatOptionError
from normalize import ChangelogNormalize, from_kafka_changelog, to_kafka_changelog

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

ORDERS = {"schema": "id INT, item STRING, price DECIMAL(10,2)", "primary_key": ["id"]}


def order_messages() -> list[tuple[None, bytes]]:
    """Orders 1000 to 1010 are inserted, 1005 is updated, 1000 is deleted."""
    rows = {number: {"id": number, "item": f"item {number}", "price": 5.0} for number in range(1000, 1011)}
    dearer = {**rows[1005], "price": 9.99}
    return [
        *((None, debezium("c", None, row)) for row in rows.values()),
        (None, debezium("u", rows[1005], dearer)),
        (None, debezium("d", rows[1000])),
    ]


EXPECTED = [
    *(f"+I({number},item {number},5.00)" for number in range(1000, 1011)),
    "-U(1005,item 1005,5.00)",
    "+U(1005,item 1005,9.99)",
    "-D(1000,item 1000,5.00)",
]


def test_demo_orders_rewritten_as_changelog_json_reads_back(spark, kafka, tmp_path):
    source, written = new_topic(kafka, order_messages()), new_topic(kafka, [])
    orders = from_kafka_changelog(spark, source, format="debezium-json", **ORDERS, options=servers(kafka), key_groups=2)
    writer = to_kafka_changelog(orders, written, primary_key=["id"], options=servers(kafka))
    writer.option("checkpointLocation", str(tmp_path / "write")).trigger(availableNow=True).start().awaitTermination()
    again = from_kafka_changelog(spark, written, format="changelog-json", **ORDERS, options=servers(kafka), key_groups=2)
    assert sorted(run_stream(again, tmp_path / "read").changelog) == sorted(EXPECTED)
    straight = from_kafka_changelog(
        spark, written, format="changelog-json", **ORDERS, options=servers(kafka), source_duplicates=False, bounded=True
    )
    assert sorted(spell(row) for row in straight.collect()) == sorted(EXPECTED)


def test_a_bounded_changelog_is_written_at_once_with_its_keys(spark, kafka):
    topic = new_topic(kafka, [])
    df = spark.createDataFrame([Row(row_kind="-D", id=7, price=Decimal("1.50"))], "row_kind STRING, id INT, price DECIMAL(10,2)")
    assert to_kafka_changelog(df, topic, primary_key="id", options=servers(kafka)) is None
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(20)
    consumer.close()
    assert (message.key(), message.value()) == (b'{"id":7}', b'{"data":{"id":7,"price":1.50},"op":"-D"}')


def test_what_cannot_be_written_is_refused_at_the_call(spark, kafka):
    df = spark.createDataFrame([Row(row_kind="+I", id=1)])
    with pytest.raises(FormatOptionError, match="changelog-json can"):
        to_kafka_changelog(df, "t", format="canal-json", options=servers(kafka))
    with pytest.raises(ArgumentError, match="no column row_kind"):
        to_kafka_changelog(df.drop("row_kind"), "t", options=servers(kafka))
    with pytest.raises(ArgumentError, match=r"kafka\.bootstrap\.servers"):
        to_kafka_changelog(df, "t", options={})


# ------------------------------------------------------------------------------------- ChangelogNormalize on a DataFrame

DIRTY = [("+I", 1, "a", 10), ("+I", 1, "a", 11), ("-U", 1, "a", 12), ("+U", 1, "b", 12), ("-D", 9, "x", 13), ("-U", 1, "b", 14),
         ("+U", 2, "b", 14), ("-D", 2, None, 15)]  # fmt: skip
CLEAN = ["+I(1,a,10)", "-U(1,a,12)", "+U(1,b,12)", "-D(1,b,14)", "+I(2,b,14)", "-D(2,b,15)"]
DDL = "row_kind STRING, id INT, name STRING, position INT"


def test_any_changelog_dataframe_is_made_clean(spark):
    df = spark.createDataFrame(DIRTY, DDL).coalesce(1)
    clean = df.transform(ChangelogNormalize(primary_key="id", metadata=["position"]))
    assert clean.columns == df.columns
    assert sorted(map(spell, clean.collect())) == sorted(CLEAN)


def test_a_stream_of_any_changelog_is_made_clean(spark, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    names = [column.split()[0] for column in DDL.split(", ")]
    for part, rows in enumerate((DIRTY[:3], DIRTY[3:])):
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        (source / f"{part}.json").write_text("\n".join(lines))
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(source))
    run = run_stream(stream.transform(ChangelogNormalize(primary_key=["id"], metadata=["position"], key_groups=3)), tmp_path / "c")
    # The files' border parts a -U from its +U: the -U is a delete then, and the table the same.
    assert sorted(run.changelog) == sorted(["+I(1,a,10)", "-D(1,a,12)", "+I(1,b,12)", "-D(1,b,14)", "+I(2,b,14)", "-D(2,b,15)"])


def test_wrong_arguments_of_changelog_normalize_fail_at_the_call(spark):
    df = spark.createDataFrame(DIRTY, DDL)
    with pytest.raises(ArgumentError, match="no column row_kind"):
        df.drop("row_kind").transform(ChangelogNormalize(primary_key="id"))
    with pytest.raises(ArgumentError, match="a bounded read has no state"):
        df.transform(ChangelogNormalize(primary_key="id", state_ttl=timedelta(hours=1)))
    with pytest.raises(ArgumentError, match="metadata column nope"):
        df.transform(ChangelogNormalize(primary_key="id", metadata=["nope"]))
    with pytest.raises(ArgumentError, match="needs primary_key"):
        df.transform(ChangelogNormalize(primary_key=[]))
