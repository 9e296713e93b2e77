"""Wrong arguments for control events fail at the call."""

import pytest

from cdc_formats.errors import ChangelogError
from normalize import from_kafka_changelog

TABLE = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            {"control_events": ["DLL"]},
            "control_events has 'DLL': use TOMBSTONE, DDL, ",
            id="no reason",
        ),
        pytest.param(
            {"schema": "id INT, _control_event STRING"},
            "_control_event would be in the result twice",
            id="a reserved column",
        ),
        pytest.param(
            {"metadata": ["leader-epoch"]},
            "no metadata column 'leader-epoch'.*does not provide it",
            id="what Spark does not provide",
        ),
    ],
)
def test_wrong_arguments_fail_at_the_call(spark, change, text):
    with pytest.raises(ChangelogError, match=text):
        from_kafka_changelog(
            spark,
            "orders",
            **{**TABLE, **change},
            options={"kafka.bootstrap.servers": "localhost:1"},
        )
