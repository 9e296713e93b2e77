"""Table to topic and back: a failing job writes batches twice, the reader returns changes once."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import capture
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.api import encode_changelog
from tests.support.servers.local_source import LocalSource
from tests.support.streams import new_topic, servers, spell

FORMATS = ("changelog-json", "debezium-json")
ORDERS = "order_number INT, purchaser STRING, quantity INT, price DECIMAL(10,2)"


def test_orders_written_twice_are_read_once(
    spark: SparkSession, kafka: Any, source: LocalSource, tmp_path: Path
) -> None:
    source.run(
        (
            "CREATE TABLE demo_orders (order_number INT PRIMARY KEY, purchaser VARCHAR(20), "
            "quantity INT, price DECIMAL(10,2))"
        ),
        (
            "INSERT INTO demo_orders SELECT seq, CONCAT('purchaser ', seq), 1, seq / 100 FROM "
            "seq_1000_to_1010"
        ),
    )
    capture.register(spark)
    changes = (
        spark.readStream.format("mysql-changelog").options(**source.options("demo_orders")).load()
    )
    topics = {name: new_topic(kafka, []) for name in FORMATS}

    failed: set[int] = set()

    def write(batch: DataFrame, number: int) -> None:
        """Write the new changes to one topic per format, and fail after that the first time."""
        batch.persist()  # otherwise each format would read the batch from the server again
        for name, topic in topics.items():
            records = encode_changelog(
                batch, format=name, primary_key="order_number", source=capture.SOURCE
            )
            records.write.format("kafka").options(**servers(kafka, topic=topic)).save()
        batch.unpersist()
        if number not in failed:
            failed.add(number)
            raise RuntimeError("the job dies")

    def run() -> None:
        writer = changes.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="the job dies"):
        run()
    with source.connect() as connection, connection.cursor() as cursor:
        connection.begin()
        cursor.execute("UPDATE demo_orders SET quantity = 9 WHERE order_number = 1005")
        cursor.execute("DELETE FROM demo_orders WHERE order_number = 1000")
        connection.commit()
    with pytest.raises(Exception, match="the job dies"):
        run()
    run()

    written = kafka_values(spark, kafka, topics["changelog-json"])
    assert len(written) == 2 * 14, "each batch was written twice"
    assert sorted((m["op"], m["data"]["order_number"]) for m in written[22:25]) == [
        ("+U", 1005),
        ("-D", 1000),
        ("-U", 1005),
    ]
    assert {m["source"]["snapshot"] for m in written[:22]} == {True}
    assert {
        (m["source"]["db"], m["source"]["table"], m["source"]["server_id"]) for m in written
    } == {("test", "demo_orders", 7)}
    for name, topic in topics.items():
        changelog = from_kafka_changelog(
            spark, topic, format=name, schema=ORDERS, primary_key="order_number", options=servers(kafka),
            format_options={"decimal_handling_mode": "string"} if name == "debezium-json" else {}, bounded=True,
            normalize=ChangelogNormalize(order="source", key_groups=2),
        )  # fmt: skip
        assert sorted(map(spell, changelog.collect())) == EXPECTED, name


EXPECTED = sorted(
    [
        *(f"+I({number},purchaser {number},1,{number / 100:.2f})" for number in range(1000, 1011)),
        "-U(1005,purchaser 1005,1,10.05)",
        "+U(1005,purchaser 1005,9,10.05)",
        "-D(1000,purchaser 1000,1,10.00)",
    ]
)


def kafka_values(spark: SparkSession, kafka: Any, topic: str) -> list[dict[str, Any]]:
    records = (
        spark.read.format("kafka")
        .options(**servers(kafka, subscribe=topic, startingOffsets="earliest"))
        .load()
    )
    return [json.loads(row["value"]) for row in records.orderBy("offset").collect()]
