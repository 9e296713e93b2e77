"""Invalid values of options of Spark's Kafka source are refused at the call."""

import re
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize.kafka.reader_options import READER_DEFAULTS, reader_options

SERVERS = {"kafka.bootstrap.servers": "a:1"}
COUNT = f"an integer from 1 to {2**63 - 1}"


@pytest.mark.parametrize(
    ("option", "value", "use"),
    [
        ("maxOffsetsPerTrigger", -1, COUNT),
        ("maxOffsetsPerTrigger", 0, COUNT),
        ("MAXOFFSETSPERTRIGGER", 10**30, COUNT),
        ("maxOffsetsPerTrigger", 1e6, COUNT),
        ("minPartitions", "many", "an integer from 1 to 2147483647"),
        ("startingOffsets", "soon", "'earliest', 'latest', or offsets as JSON, as in {"),
        ("startingOffsets", '{"orders": 5}', "'earliest', 'latest', or offsets as JSON"),
        ("startingOffsets", '{"orders": {"a": 5}}', "'earliest', 'latest', or offsets as JSON"),
        ("startingOffsets", '{"orders": {"0": -3}}', "'earliest', 'latest', or offsets as JSON"),
        ("endingOffsets", "earliest", "'latest', or offsets as JSON"),
        ("startingOffsetsByTimestamp", "latest", "milliseconds as JSON"),
        ("startingOffsetsByTimestampStrategy", "earliest", "'error' or 'latest'"),
        ("failOnDataLoss", "no", "'true' or 'false'"),
        ("maxTriggerDelay", "soon", "a number with a unit, as in '15m'"),
    ],
)
def test_an_invalid_value_is_refused(option: str, value: Any, use: str) -> None:
    with pytest.raises(
        ArgumentError, match=re.escape(f"the option {option} is {value!r}: use {use}")
    ):
        reader_options("orders", {**SERVERS, option: value})


def test_values_that_spark_reads_pass() -> None:
    values = {
        "startingOffsets": '{"orders": {"0": 23, "1": -2}, "items": {"0": -1}}',
        "maxOffsetsPerTrigger": "+100",
        "minPartitions": 7,
        "failOnDataLoss": False,
        "maxTriggerDelay": "15M",
        "startingOffsetsByTimestampStrategy": "Latest",
        "kafka.max.poll.records": "none of Spark's",
    }
    read = {name: str(value) for name, value in values.items()}
    assert reader_options("orders", {**SERVERS, **values}).items() >= read.items()
    assert reader_options("orders", {**SERVERS, "startingOffsets": "Latest"})
    assert reader_options("orders", SERVERS).items() >= READER_DEFAULTS.items()
    # Kafka's default of 500 ms is a wait of each task at the end of its partition.
    waits = {"kafka.fetch.max.wait.ms": "1"}
    assert reader_options("orders", SERVERS).items() >= waits.items()
    own = {"kafka.fetch.max.wait.ms": 20}
    assert reader_options("orders", {**SERVERS, **own})["kafka.fetch.max.wait.ms"] == "20"
