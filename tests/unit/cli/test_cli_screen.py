"""What ``cdc run`` prints of a job's events, and of warnings."""

import json
import logging
import re

import pytest

from cdc_cli.job import screen
from normalize.run import Event
from normalize.run.events import micro_batch

BATCH = micro_batch(3, 1200, 2.0, 50, {})


def test_events_and_warnings_are_lines_with_a_time_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with screen(json=False) as report:
        report(Event("started", "the query has started"))
        logging.getLogger("normalize").warning("%s: a warning", "shop.orders")
        report(BATCH)
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = printed.err.splitlines()
    assert all(re.match(r"\d\d:\d\d:\d\d ", line) for line in lines)
    assert [line[9:] for line in lines] == [
        "the query has started",
        "shop.orders: a warning",
        "micro-batch 3, 1,200 records, 2.0 s, 50 offsets left",
    ]
    logging.getLogger("normalize").warning("after the job")
    assert "after the job" not in capsys.readouterr().out


def test_events_are_lines_of_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with screen(json=True) as report:
        report(BATCH)
        report(Event("failed", "a text", {"failures": 1, "error": "why"}))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["event"] for each in events] == ["micro-batch", "failed"]
    assert (events[0]["offsets_left"], events[1]["error"]) == (50, "why")
