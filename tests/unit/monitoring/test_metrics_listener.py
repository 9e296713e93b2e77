"""`MetricsListener` without Spark: progress becomes metrics and log lines.

The dashboard uses metrics that exist.
"""

import json
import logging
import re
import time
from types import SimpleNamespace
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client import CollectorRegistry
from ruamel.yaml import YAML

from normalize.monitoring.metrics_listener import MetricsListener
from normalize.monitoring.progress import TableProgress, publish, read_progress
from tests.support.paths import REPOSITORY

PROGRESS: dict[str, Any] = {
    "id": "0f",
    "runId": "1f",
    "name": "orders",
    "timestamp": "2026-11-24T00:00:00.000Z",
    "batchId": 7,
    "numInputRows": 1000,
    "durationMs": {"triggerExecution": 2500},
    "observedMetrics": {
        "changelog_decode": {
            "RECORDS": 1000,
            "TOMBSTONE": 10,
            "MALFORMED_MESSAGE": 3,
            "TYPE_CONVERSION": None,
        },
        "orders_lag": {"oldest_micros": 1795478340000000, "newest_micros": 1795478400000000},
        "mine": {"average": 1.5, "is_late": True},
    },
    "sources": [
        {"description": "KafkaV2[Subscribe[orders]]", "metrics": {"maxOffsetsBehindLatest": "42"}},
        {"description": "FileStreamSource[/files]", "metrics": None},
    ],
    "stateOperators": [
        {"operatorName": "applyInPandasWithState", "numRowsTotal": 64, "memoryUsedBytes": 4096}
    ],
}


TABLE = TableProgress(
    query="0f",
    table="shop.orders",
    records=7,
    rows=5,
    bad={"TYPE_CONVERSION": 3},
    schema_changes=1,
    lag={"oldest": 2.5, "newest": 0.5},
)


def progress_event(**changes: Any) -> Any:
    return SimpleNamespace(progress=SimpleNamespace(json=json.dumps(PROGRESS | changes)))


def values(registry: CollectorRegistry) -> dict[str, float]:
    return {
        f"{sample.name}{json.dumps(sample.labels)}": sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if not sample.name.endswith("_created")
    }


def test_a_micro_batch_becomes_metrics(caplog: pytest.LogCaptureFixture) -> None:
    listener = MetricsListener()
    listener.onQueryStarted(SimpleNamespace(id="0f", runId="1f", name="orders"))
    with caplog.at_level(logging.INFO, "normalize"):
        listener.onQueryProgress(progress_event())
        listener.onQueryProgress(
            progress_event(batchId=8, observedMetrics={"changelog_decode": {"RECORDS": 5}})
        )
    assert values(listener.registry) == {
        'changelog_records_total{"query": "orders"}': 2000,
        (
            'changelog_counts_total{"query": "orders", "observation": "changelog_decode", "count": '
            '"RECORDS"}'
        ): 1005,
        (
            'changelog_counts_total{"query": "orders", "observation": "changelog_decode", "count": '
            '"TOMBSTONE"}'
        ): 10,
        (
            'changelog_bad_records_total{"query": "orders", "observation": "changelog_decode", '
            '"condition": "MALFORMED_MESSAGE"}'
        ): 3,
        # Both changes of the last micro-batch with rows were written 2.5 s after 00:00.
        'changelog_lag_seconds{"query": "orders", "observation": "orders", "of": "oldest"}': 62.5,
        'changelog_lag_seconds{"query": "orders", "observation": "orders", "of": "newest"}': 2.5,
        'changelog_offsets_behind{"query": "orders", "source": "KafkaV2[Subscribe[orders]]"}': 42,
        'changelog_batch{"query": "orders"}': 8,
        'changelog_batch_seconds{"query": "orders"}': 2.5,
        'changelog_batch_ended_timestamp_seconds{"query": "orders"}': 1795478402.5,
        'changelog_state_rows{"query": "orders", "operator": "0 applyInPandasWithState"}': 64,
        'changelog_state_bytes{"query": "orders", "operator": "0 applyInPandasWithState"}': 4096,
        'changelog_query_running{"query": "orders"}': 1,
        'changelog_alive_timestamp_seconds{"query": "orders"}': pytest.approx(time.time(), abs=600),
    }
    assert caplog.messages[0] == (
        "query orders: micro-batch 7, 1,000 records, 2.5 s, 3 bad records, oldest of orders is "
        "62.5 s old, newest of orders is 2.5 s old, 42 offsets behind"
    )


def test_tables_of_a_query_become_metrics() -> None:
    listener, other = MetricsListener(), MetricsListener()
    listener.onQueryStarted(SimpleNamespace(id="0f", runId="1f", name="shop"))
    gauges = {"table_differences": 3.0, "table_verified_timestamp_seconds": 1795478400.0}
    publish(TABLE)
    for table, facts in (
        (
            "shop.orders",
            {"records": 2, "missed": 4, "stopped": True, "open_questions": 3, "torn": 1},
        ),
        ("", {"bad": {"MALFORMED_MESSAGE": 1}}),
        ("shop.orders", {"writer": "delta-rs", "reason": "it can"}),
        ("shop.orders", {"writer": "spark", "reason": "too large"}),
        ("", {"unused_masks": 2}),
        ("shop.orders", {"resync": "reading", "resync_left": 9}),
        ("shop.orders", {"resync": "replaced"}),
        ("shop.orders", {"proof": gauges}),
    ):
        publish(TableProgress(query="0f", table=table, **facts))
    publish(TableProgress(query="another", table="shop.orders", records=1))
    orders = '{"query": "shop", "table": "shop.orders"'
    assert values(listener.registry) == {
        'changelog_alive_timestamp_seconds{"query": "shop"}': pytest.approx(time.time(), abs=600),
        'changelog_query_running{"query": "shop"}': 1,
        'changelog_unused_masks{"query": "shop"}': 2,
        f"changelog_table_records_total{orders}}}": 9,
        f"changelog_table_rows_total{orders}}}": 5,
        f'changelog_table_bad_records_total{orders}, "condition": "TYPE_CONVERSION"}}': 3,
        (
            'changelog_table_bad_records_total{"query": "shop", "table": "", "condition": '
            '"MALFORMED_MESSAGE"}'
        ): 1,
        f"changelog_table_schema_changes_total{orders}}}": 1,
        f"changelog_table_missed_records_total{orders}}}": 4,
        f"changelog_table_torn_keys_total{orders}}}": 1,
        f"changelog_table_stopped{orders}}}": 0,
        f"changelog_table_open_questions{orders}}}": 0,
        # One writer at a time, so that a sum over tables counts them.
        f'changelog_table_writer{orders}, "writer": "spark", "reason": "too large"}}': 1,
        f'changelog_table_resync{orders}, "phase": "replaced"}}': 0,
        f"changelog_table_differences{orders}}}": 3,
        f"changelog_table_verified_timestamp_seconds{orders}}}": 1795478400,
        f'changelog_table_lag_seconds{orders}, "of": "oldest"}}': 2.5,
        f'changelog_table_lag_seconds{orders}, "of": "newest"}}': 0.5,
    }
    # Spark does not send it the query's events.
    assert values(other.registry) == {}


@pytest.mark.parametrize(
    ("exception", "failures"),
    [(None, 0), ("Job aborted\n  errors.TypeConversionError: [TYPE_CONVERSION] wrong", 1)],
)
def test_the_end_of_a_query(
    exception: str | None, failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    listener = MetricsListener()
    listener.onQueryStarted(SimpleNamespace(id="0f", runId="1f", name=None))
    listener.onQueryTerminated(SimpleNamespace(id="0f", runId="1f", exception=exception))
    metrics = values(listener.registry)
    assert metrics['changelog_query_running{"query": "0f"}'] == 0
    assert metrics.get('changelog_query_failures_total{"query": "0f"}', 0) == failures
    assert caplog.messages == ["query 0f failed: [TYPE_CONVERSION] wrong"] * failures


def test_metrics_are_served_over_http() -> None:
    listener = MetricsListener(port=0)
    try:
        listener.take(read_progress(PROGRESS))
        with urlopen(f"http://127.0.0.1:{listener.port}/metrics") as answer:
            assert 'changelog_batch{query="orders"} 7.0' in answer.read().decode()
    finally:
        listener.close()
    assert listener.port is None


def test_the_dashboard_uses_every_metric_and_no_other() -> None:
    listener = MetricsListener()
    listener.onQueryStarted(SimpleNamespace(id="0f", runId="1f", name="orders"))
    listener.take(read_progress(PROGRESS))
    listener.take_table(TABLE)
    listener.take_table(TableProgress(query=TABLE.query, table="", unused_masks=1))
    proof = {"table_differences": 0.0, "table_verified_timestamp_seconds": 0.0}
    listener.take_table(TableProgress(query=TABLE.query, table="shop.orders", proof=proof))
    listener.onQueryTerminated(SimpleNamespace(id="0f", runId="1f", exception="wrong"))
    exposed = {name.partition("{")[0] for name in values(listener.registry)}
    text = (REPOSITORY / "grafana" / "changelog.json").read_text("utf-8")
    dashboard = json.loads(text)
    assert set(re.findall(r"\bchangelog_\w+", text)) == exposed
    alerts = (REPOSITORY / "grafana" / "alerts.yaml").read_text("utf-8")
    (group,) = YAML(typ="safe").load(alerts)["groups"]
    assert len(group["rules"]) == 6
    assert set(re.findall(r"\bchangelog_\w+", alerts)) <= exposed
    labels = {
        label
        for panel in dashboard["panels"]
        for label in re.findall(r"{{(\w+)}}", panel["targets"][0]["legendFormat"])
    }
    labels |= set(re.findall(r"\$labels\.(\w+)", alerts))
    assert labels <= set(re.findall(r'"(\w+)": ', " ".join(values(listener.registry))))
