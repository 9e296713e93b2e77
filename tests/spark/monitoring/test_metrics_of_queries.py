"""`MetricsListener` and `observe_lag` in running queries."""

import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget, apply_changes, decode_changelog
from normalize.monitoring.metrics_listener import MetricsListener
from normalize.monitoring.progress import observe_lag

COMMITTED = 1_700_000_000.5  # seconds
MESSAGE = '{"op": "c", "before": null, "after": {"id": %d}, "source": {"ts_ms": %d}}'


def run(spark: SparkSession, folder: Path, lines: list[str], *, fails: bool = False) -> Any:
    """Apply messages to a table, and return the listener's registry after the query's end."""
    listener = MetricsListener()
    spark.streams.addListener(listener)
    try:
        (folder / "files").mkdir()
        (folder / "files" / "1.json").write_text("\n".join(lines))
        records = spark.readStream.text(str(folder / "files")).selectExpr(
            "CAST(NULL AS BINARY) AS key", "CAST(value AS BINARY) AS value"
        )
        changes = decode_changelog(
            records,
            format="debezium-json",
            schema="id INT",
            primary_key="id",
            metadata={"at": "source.timestamp"},
            mode="FAILFAST" if fails else "DROPMALFORMED",
        )
        writer = apply_changes(
            observe_lag(changes, "at", name="orders"),
            DeltaTarget(str(folder / "table")),
            keys="id",
            order_by="at",
        )
        query = (
            writer.queryName("of_orders")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except StreamingQueryException:
            assert fails
        while (
            listener.registry.get_sample_value("changelog_query_running", {"query": "of_orders"})
            != 0
        ):
            time.sleep(0.05)  # Spark calls listeners in a thread of its own
        return listener.registry
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.cross_section
def test_lag_and_counts_of_a_query(spark: SparkSession, tmp_path: Path) -> None:
    lines = [MESSAGE % (number, COMMITTED * 1000 + number * 1000) for number in range(3)]
    before = time.time()
    registry = run(spark, tmp_path, [*lines, "not a message"])
    after = time.time()

    def value(name: str, **labels: str) -> float:
        sample: float | None = registry.get_sample_value(
            f"changelog_{name}", {"query": "of_orders", **labels}
        )
        assert sample is not None, name
        return sample

    oldest, newest = (
        value("lag_seconds", observation="orders", of=which) for which in ("oldest", "newest")
    )
    assert (
        before <= COMMITTED + oldest <= after + 1
    )  # the progress has milliseconds, and its duration is rounded
    assert oldest - newest == pytest.approx(2)
    assert value("records_total") == 4
    assert value("counts_total", observation="changelog_decode", count="RECORDS") == 4
    assert (
        value("bad_records_total", observation="changelog_decode", condition="MALFORMED_MESSAGE")
        == 1
    )
    assert value("batch") == 0
    assert value("state_rows", operator="0 applyInPandasWithState") >= 1
    assert (
        registry.get_sample_value("changelog_query_failures_total", {"query": "of_orders"}) is None
    )


def test_a_failed_query_is_counted_and_logged(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    registry = run(spark, tmp_path, ["not a message"], fails=True)
    assert registry.get_sample_value("changelog_query_failures_total", {"query": "of_orders"}) == 1
    assert any(
        text.startswith("query of_orders failed: [MALFORMED_MESSAGE]") for text in caplog.messages
    )


def test_a_column_without_times_is_refused(spark: SparkSession) -> None:
    changes = spark.range(1)
    for column, text in (("id", "'id' is BIGINT"), ("at", "'at' does not exist")):
        with pytest.raises(ArgumentError, match=text):
            observe_lag(changes, column)
