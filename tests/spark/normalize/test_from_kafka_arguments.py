"""Wrong arguments of `from_kafka_changelog` fail at the call and name the fix."""

import logging
import re
import sys
from datetime import timedelta

import pytest

from cdc_formats import get_format
from cdc_formats.errors import ChangelogError
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from normalize import ChangelogNormalize, DeadLetter, from_kafka_changelog
from tests.support.histories import TABLE

NOWHERE = {"kafka.bootstrap.servers": "localhost:1"}
DEAD = DeadLetter("dead")


@pytest.mark.parametrize(
    ("change", "text"),
    [
        pytest.param(
            {"format": "debezium-jsom"}, "did you mean 'debezium-json'", id="unknown format"
        ),
        pytest.param({"format": 5}, "identifier such as", id="no format"),
        pytest.param(
            {"format_options": {"schema.inclde": "true"}},
            "has no option schema_inclde",
            id="unknown option",
        ),
        pytest.param(
            {"format": get_format("debezium-json"), "format_options": {"a": 1}},
            "pass the options to DebeziumJson",
            id="options twice",
        ),
        pytest.param({"schema": "id INTT"}, "unknown type 'INTT'", id="unknown type"),
        pytest.param(
            {"schema": "id INT, ID INT"}, "be in the result twice", id="columns that differ in case"
        ),
        pytest.param(
            {"schema": "id INT, row_kind INT"},
            "row_kind would be in the result twice",
            id="a reserved column",
        ),
        pytest.param(
            {"primary_key": ["nr"]},
            "primary key column nr is not declared",
            id="unknown key column",
        ),
        pytest.param({"primary_key": ()}, "set normalize=False", id="no key"),
        pytest.param({"mode": "fast"}, "FAILFAST, DROPMALFORMED, PERMISSIVE", id="mode"),
        pytest.param(
            {"changelog_mode": "retract"},
            "changelog_mode is 'retract': use 'all' or 'upsert'",
            id="changelog mode",
        ),
        pytest.param(
            {"metadata": ["source.tabel"]},
            "no metadata column 'source.tabel'; it has .*source.table",
            id="metadata",
        ),
        pytest.param({"options": {}}, "kafka.bootstrap.servers", id="no servers"),
        pytest.param(
            {"options": {**NOWHERE, "subscribePattern": "a.*"}},
            "got subscribe and subscribePattern",
            id="topic and pattern",
        ),
        pytest.param(
            {"normalize": ChangelogNormalize(state_ttl=timedelta(hours=1)), "bounded": True},
            "a bounded read has no state",
            id="ttl of a bounded read",
        ),
        pytest.param(
            {"normalize": ChangelogNormalize(mini_batch=True, source_duplicates=False)},
            "requires ChangelogNormalize, which the plan does not have",
            id="mini-batch without the stage",
        ),
        pytest.param({"on_truncate": "delete"}, "'fail' or 'ignore'", id="truncate"),
        pytest.param(
            {"observation": "x", "bounded": True}, "pyspark.sql.Observation", id="observation"
        ),
        pytest.param(
            {"format": UpsertKafka(key_format="raw"), "primary_key": ["id", "qty"]},
            "holds exactly one column",
            id="raw key",
        ),
        pytest.param(
            {
                "schema": "id INT, at TIMESTAMP_NTZ",
                "format_options": {"time_precision_mode": "adaptive"},
            },
            r"TIMESTAMP_NTZ\(3\)",
            id="no unit",
        ),
        pytest.param(
            {"control_events": ["DLL"]},
            "control_events has 'DLL': use TOMBSTONE, DDL, ",
            id="no reason",
        ),
        pytest.param(
            {"schema": "id INT, _control_event STRING"},
            "_control_event would be in the result twice",
            id="a reserved column of control events",
        ),
        pytest.param(
            {"metadata": ["leader-epoch"]},
            "no metadata column 'leader-epoch'.*does not provide it",
            id="what Spark does not provide",
        ),
        pytest.param(
            {"mode": DeadLetter("topic")},
            "'topic' is also a topic that is read",
            id="the topic read",
        ),
        pytest.param(
            {"mode": DEAD, "topic": re.compile("de.*")},
            "'dead' is also a topic that is read",
            id="a pattern that has it",
        ),
        pytest.param(
            {"mode": DEAD, "topic": None, "options": {**NOWHERE, "assign": '{"dead": [0]}'}},
            "'dead' is also a topic that is read",
            id="an assignment that has it",
        ),
        pytest.param(
            {"mode": DeadLetter("dead", {"linger.sm": 5})},
            "No such configuration property",
            id="no option of librdkafka's",
        ),
        pytest.param(
            {"mode": DEAD, "options": {**NOWHERE, "kafka.security.protocol": "SASL_SSL"}},
            "GSSAPI has no counterpart",
            id="Kerberos",
        ),
        # Options of the stage
        *(
            pytest.param({"normalize": ChangelogNormalize(**stage), **more}, text, id=text)
            for stage, more, text in [
                (
                    {"ignore_columns": ["id"]},
                    {},
                    "ignore_columns has 'id', which is part of the primary key",
                ),
                (
                    {"ignore_columns": ["x"]},
                    {},
                    "ignore_columns has 'x', which is not one of id, name, qty",
                ),
                ({"order": "source"}, {"format": "canal-json"}, "canal-json has no positions"),
                ({"where": "nowhere > 1"}, {"check": False}, "where is not a condition"),
                (
                    {"where": "qty > 1", "source_duplicates": False},
                    {},
                    "where requires ChangelogNormalize, which the plan does not have",
                ),
                (
                    {"order": "source", "source_duplicates": False},
                    {},
                    "order='source' requires ChangelogNormalize, which the plan does not have",
                ),
            ]
        ),
    ],
)
def test_wrong_arguments_fail_at_the_call_and_name_the_fix(spark, change, text):
    arguments = {"topic": "topic", **TABLE, "options": NOWHERE, **change}
    with pytest.raises(ChangelogError, match=text):
        from_kafka_changelog(spark, **arguments)


def test_a_check_that_is_left_out_is_a_warning(spark, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with caplog.at_level(logging.WARNING, "normalize"):
        from_kafka_changelog(spark, "topic", **{**TABLE, "options": NOWHERE})
    skipped = [
        text for text in caplog.messages if "are not checked before the query starts" in text
    ]
    assert len(skipped) == 1
    assert "pip install" in skipped[0]
