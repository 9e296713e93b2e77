"""Wrong arguments of `from_kafka_changelog` fail at the call and name the fix."""

import logging
import sys
from datetime import timedelta

import pytest

from cdc_formats import get_format
from cdc_formats.errors import ChangelogError
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from normalize import ChangelogNormalize, from_kafka_changelog
from tests.support.histories import TABLE

NOWHERE = {"kafka.bootstrap.servers": "localhost:1"}


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
    ],
)
def test_wrong_arguments_fail_at_the_call_and_name_the_fix(spark, change, text):
    arguments = {**TABLE, "options": NOWHERE, **change}
    with pytest.raises(ChangelogError, match=text):
        from_kafka_changelog(spark, "topic", **arguments)


def test_a_check_that_is_left_out_is_a_warning(spark, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with caplog.at_level(logging.WARNING, "normalize"):
        from_kafka_changelog(spark, "topic", **{**TABLE, "options": NOWHERE})
    skipped = [
        text for text in caplog.messages if "are not checked before the query starts" in text
    ]
    assert len(skipped) == 1
    assert "pip install" in skipped[0]
