"""Wrong arguments for dead letters fail at the call."""

import re

import pytest

from cdc_formats.errors import ChangelogError
from normalize import DeadLetter, from_kafka_changelog

TABLE = {"format": "debezium-json", "schema": "id INT, name STRING, qty INT", "primary_key": ["id"]}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            {"mode": DeadLetter("orders")},
            "'orders' is also a topic that is read",
            id="the topic read",
        ),
        pytest.param(
            {"topic": re.compile("de.*")},
            "'dead' is also a topic that is read",
            id="a pattern that has it",
        ),
        pytest.param(
            {"topic": None, "options": {"assign": '{"dead": [0]}'}},
            "'dead' is also a topic that is read",
            id="an assignment that has it",
        ),
        pytest.param(
            {"mode": DeadLetter("dead", {"linger.sm": 5})},
            "No such configuration property",
            id="no option of librdkafka's",
        ),
        pytest.param(
            {"options": {"kafka.security.protocol": "SASL_SSL"}},
            "GSSAPI has no counterpart",
            id="Kerberos",
        ),
    ],
)
def test_wrong_arguments_fail_at_the_call(spark, change, text):
    arguments = {"topic": "orders", "mode": DeadLetter("dead"), **TABLE, **change}
    arguments["options"] = {"kafka.bootstrap.servers": "localhost:1", **change.get("options", {})}
    with pytest.raises(ChangelogError, match=text):
        from_kafka_changelog(spark, **arguments)
