"""What a job reports of its micro-batches, and the checks of a file without Spark."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from cdc_formats.errors import ArgumentError, KafkaUnavailableError
from normalize.monitoring.progress import TableProgress
from normalize.run import Event, check_job, read_job
from normalize.run.events import BatchReporter, micro_batch


def progress(batch: int, end: int, latest: int) -> dict[str, Any]:
    source = {
        "description": "KafkaV2",
        "endOffset": {"t": {"0": end}},
        "latestOffset": {"t": {"0": latest}},
    }
    return {
        "id": "q",
        "batchId": batch,
        "timestamp": "2026-11-24T01:00:00.000Z",
        "numInputRows": 5,
        "durationMs": {"triggerExecution": 1500},
        "sources": [source],
    }


def test_caught_up_is_reported_when_the_query_was_behind() -> None:
    events = list[Event]()
    reporter = BatchReporter(events.append)
    for batch, (end, latest) in enumerate([(5, 20), (20, 20), (21, 21), (22, 30), (30, 30)]):
        reporter.take(progress(batch, end, latest))
    assert [each.kind for each in events if each.kind != "micro-batch"] == ["caught up"] * 2
    assert [each.kind for each in events][:3] == ["micro-batch", "micro-batch", "caught up"]
    assert events[0].text == "micro-batch 0, 5 records, 1.5 s, 15 offsets left"


def test_a_line_of_a_micro_batch_names_the_largest_tables() -> None:
    tables = {
        name: TableProgress(
            query="q",
            batch=1,
            table=name,
            records=9,
            rows=rows,
            lag={"newest": lag},
            writer=writer,
            reason=writer and "so",
        )
        for name, rows, lag, writer in (
            ("b", 2, 0.5, "spark"),
            ("a", 1234, 2.0, "delta-rs"),
            ("c", 0, 1.0, ""),
        )
    } | {"d": TableProgress(query="q", table="d", missed=3, stopped=True)}
    tables |= {name: TableProgress(query="q", table=name) for name in "ef"}
    event = micro_batch(7, 12345, 2.54, 0, tables)
    assert event.text == (
        "micro-batch 7, 12,345 records, 2.5 s, a 1,234 rows by delta-rs, b 2 rows by Spark, "
        "c 0 rows, "
        "d 0 rows (stopped), e 0 rows, 1 more tables, lag 2.0 s"
    )
    line = json.loads(event.to_json())
    assert (line["event"], line["batch"], line["offsets_left"]) == ("micro-batch", 7, 0)
    assert line["tables"]["d"]["missed"] == 3
    assert [line["tables"][name]["writer"] for name in "abc"] == ["delta-rs", "spark", ""]
    assert line["tables"]["a"]["reason"] == "so"


@pytest.fixture
def check(tmp_path: Path):
    def check(**changes: Any) -> list[str]:
        path = tmp_path / "job.yaml"
        job = {
            "topic": "shop",
            "format": "maxwell-json",
            "options": {"kafka.bootstrap.servers": "127.0.0.1:1"},
            "target": {"delta": {"name": str(tmp_path / "lake")}},
            "schema_location": str(tmp_path / "schemas"),
            "checkpoint_location": str(tmp_path / "checkpoint"),
        }
        path.write_text(yaml.safe_dump({**job, **changes}))
        return [str(each) for each in check_job(read_job(path))]

    return check


def test_a_check_ends_at_the_first_part_that_cannot_work(check) -> None:
    with pytest.raises(KafkaUnavailableError):
        check()
    at = {"shop.a": {"types": {"at": "TIMESTAMP_NTZ"}}}
    options = {"time_precision_mode": "adaptive_time_microseconds"}
    with pytest.raises(ArgumentError, match=r"tables\.shop\.a: debezium-json .* at TIMESTAMP_NTZ"):
        check(format="debezium-json", format_options=options, tables=at)
