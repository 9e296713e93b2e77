"""The metrics of each table of `sync_database`, as Prometheus reads them."""

import time
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import SparkSession

from normalize import DeltaDatabase, LocalKafka, sync_database
from normalize.checkpoint.status import TableWriter, checkpoint_status
from normalize.monitoring.metrics_listener import MetricsListener
from tests.support.databases import Message, maxwell


@pytest.fixture
def listener(spark: SparkSession) -> Iterator[MetricsListener]:
    """A listener that serves its metrics."""
    metrics_listener = MetricsListener(port=0)
    spark.streams.addListener(metrics_listener)
    yield metrics_listener
    spark.streams.removeListener(metrics_listener)
    metrics_listener.close()


def served(listener: MetricsListener) -> dict[tuple[str, ...], float]:
    """The metrics of tables: their values by name and labels, without the query's label."""
    with urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
        text = answer.read().decode()
    samples = [
        sample for metric in text_string_to_metric_families(text) for sample in metric.samples
    ]
    of_tables = [
        each
        for each in samples
        if each.name.startswith("changelog_table_") and not each.name.endswith("_created")
    ]
    assert {each.labels.pop("query") for each in of_tables} <= {"shop"}
    return {
        (
            each.name.removeprefix("changelog_table_"),
            *dict(sorted(each.labels.items())).values(),
        ): each.value
        for each in of_tables
    }


def test_metrics_of_tables(
    spark: SparkSession, kafka: LocalKafka, listener: MetricsListener, tmp_path: Path
) -> None:
    topic = f"metrics-{tmp_path.name}"
    kafka.create_topic(topic)

    def run(*messages: Message) -> dict[tuple[str, ...], float]:
        kafka.produce(topic, messages)
        writer = sync_database(
            spark,
            topic,
            format="maxwell-json",
            target=DeltaDatabase(str(tmp_path / "lake"), only_writer=True),
            schema_location=str(tmp_path / "schemas"),
            options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
            on_table_error="stop_table",
            mode="DROPMALFORMED",
            check=False,
        )
        writer = writer.queryName("shop").option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()
        return served(listener)

    began = time.time()
    bike, car = {"id": 1, "name": "bike"}, {"id": 2, "name": "car"}
    messages = [
        maxwell("orders", "insert", bike),
        maxwell("orders", "update", bike, {}),
        maxwell("items", "insert", car),
    ]
    metrics = run(*messages, (None, b"not a message"))
    lags = {name: metrics.pop(name) for name in list(metrics) if name[0] == "lag_seconds"}
    assert set(lags) == {
        ("lag_seconds", of, table)
        for of in ("oldest", "newest")
        for table in ("shop.orders", "shop.items")
    }
    assert all(0 < lag <= time.time() - began for lag in lags.values())
    assert (
        lags["lag_seconds", "oldest", "shop.orders"] >= lags["lag_seconds", "newest", "shop.orders"]
    )
    reason = "it can write the table, and the changes are small"
    assert checkpoint_status(str(tmp_path / "checkpoint")).writers == tuple(
        TableWriter(f"`delta`.`{tmp_path}/lake/{name}`", "delta-rs", reason)
        for name in ("items", "orders")
    )
    assert metrics == {
        ("records_total", "shop.orders"): 2,
        ("rows_total", "shop.orders"): 1,
        ("schema_changes_total", "shop.orders"): 1,
        ("missed_records_total", "shop.orders"): 0,
        ("stopped", "shop.orders"): 0,
        ("torn_keys_total", "shop.orders"): 0,
        ("records_total", "shop.items"): 1,
        ("rows_total", "shop.items"): 1,
        ("schema_changes_total", "shop.items"): 1,
        ("missed_records_total", "shop.items"): 0,
        ("stopped", "shop.items"): 0,
        ("torn_keys_total", "shop.items"): 0,
        ("bad_records_total", "MALFORMED_MESSAGE", ""): 1,
        ("open_questions", "shop.orders"): 0,
        ("open_questions", "shop.items"): 0,
        ("writer", reason, "shop.orders", "delta-rs"): 1,
        ("writer", reason, "shop.items", "delta-rs"): 1,
    }

    longer, wrong = {"id": 3, "name": "boat", "length": 5}, {"id": "x", "name": "train"}
    without_key = (None, maxwell("logs", "insert", {"id": 1})[1])
    metrics = run(
        maxwell("orders", "insert", longer), maxwell("orders", "insert", wrong), without_key
    )
    expected = {
        ("schema_changes_total", "shop.orders"): 2,
        ("records_total", "shop.orders"): 4,
        ("rows_total", "shop.orders"): 2,
        ("bad_records_total", "TYPE_CONVERSION", "shop.orders"): 1,
        ("records_total", "shop.items"): 1,
        ("stopped", "shop.logs"): 1,
        ("missed_records_total", "shop.logs"): 1,
        ("records_total", "shop.logs"): 0,
    }
    assert {name: metrics[name] for name in expected} == expected
