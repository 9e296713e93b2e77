"""Misspelt options of Spark's Kafka source and of Kafka are refused; unknown ones pass."""

import logging
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize.kafka.reader_options import READER_DEFAULTS, SINK_OPTIONS, check_option_names


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataloss ", "failOnDataLoss"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.bootstrap_servers", "kafka.bootstrap.servers"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("kafka.sasl.mechanisms", "kafka.sasl.mechanism"),
        ("kafka.ssl.trustore.location", "kafka.ssl.truststore.location"),
    ],
)
def test_a_misspelt_option_is_refused(written: str, meant: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"which (Spark|Kafka) would ignore: did you mean '{meant}'"
    ):
        check_option_names({written: "x"})


def test_known_options_pass_in_any_case(caplog: Any) -> None:
    check_option_names(
        {
            **READER_DEFAULTS,
            "STARTINGOFFSETS": "latest",
            "Kafka.Group.Id": "a",
            "kafka.bootstrap.servers": "a:1",
        }
    )
    check_option_names(
        {"includeHeaders": True, "checkpointLocation": "/c", "kafka.acks": "all"},
        supported=SINK_OPTIONS,
    )
    assert caplog.records == []


def test_unknown_options_pass(caplog: Any) -> None:
    caplog.set_level(logging.WARNING, "normalize")
    check_option_names(
        {
            "kafka.my.plugin.setting": "x",
            "kafka.ssl.fips.mode": "on",
            "databricks.serviceCredential": "c",
        }
    )
    assert [record.getMessage() for record in caplog.records] == [
        (
            "options has 'databricks.serviceCredential', which is not an option of Spark's Kafka "
            "source or sink: Spark ignores it"
        )
    ]
