"""The public functions: parameters, options of the stage, and arguments checked without Spark."""

import inspect
import re
from datetime import timedelta
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, DeadLetter, decode_changelog, from_kafka_changelog
from normalize.api import explain_changelog
from normalize.kafka.reader_options import reader_options
from normalize.tables.table_options import TableOptions
from tests.support.public_names import PUBLIC

MOST_PARAMETERS = 16
# The record that keeps a table's options out of the parameters of each call.
MOST_OPTIONS_OF_A_TABLE = 20
SERVERS = {"kafka.bootstrap.servers": "localhost:1"}


@pytest.mark.parametrize(
    "function", [each for each in PUBLIC.values() if callable(each)], ids=lambda each: each.__name__
)
def test_no_public_function_has_too_many_parameters(function):
    most = MOST_OPTIONS_OF_A_TABLE if function is TableOptions else MOST_PARAMETERS
    assert len(inspect.signature(function).parameters) <= most


def test_the_readers_have_the_same_parameters():
    kafka, frame, plan = (
        set(inspect.signature(each).parameters)
        for each in (from_kafka_changelog, decode_changelog, explain_changelog)
    )
    assert frame - kafka == {"df"}
    assert plan <= kafka


def test_the_docstring_describes_every_option_of_the_stage():
    documented = re.findall(r"^(\w+) : ", inspect.getdoc(ChangelogNormalize) or "", re.M)
    assert documented == list(inspect.signature(ChangelogNormalize).parameters)


# --------------------------------------------------------------------------------------------------
# ChangelogNormalize


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"changelog_mode": "retract"}, "changelog_mode is 'retract': use 'all' or 'upsert'"),
        ({"order": "offset"}, "order is 'offset': use 'arrival' or 'source'"),
        ({"key_groups": 0}, "key_groups is 0: it must be an integer of at least 1"),
        ({"state_ttl": 5}, "state_ttl is 5: it must be None or a datetime.timedelta"),
        (
            {"delete_retention": timedelta(-1), "order": "source"},
            "must be a non-negative datetime.timedelta",
        ),
        ({"delete_retention": timedelta(1)}, "delete_retention requires order='source'"),
        ({"on_expiry": "retract"}, "on_expiry='retract' requires state_ttl"),
    ],
)
def test_options_are_checked_where_they_are_written(options: dict[str, Any], text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        ChangelogNormalize(**options)


def test_the_options_are_completed_by_the_readers_arguments():
    stage = ChangelogNormalize(order="source").for_reader(("id",), "upsert", ("at",))
    assert (stage.primary_key, stage.changelog_mode, stage.metadata, stage.order) == (
        ("id",),
        "upsert",
        ("at",),
        "source",
    )
    own = ChangelogNormalize("id", changelog_mode="upsert").for_reader((), "all", ())
    assert (own.primary_key, own.changelog_mode) == (("id",), "upsert")
    assert ChangelogNormalize("id").for_reader(("id",), "all", ()).primary_key == ("id",)
    with pytest.raises(ArgumentError, match="remove primary_key from ChangelogNormalize"):
        ChangelogNormalize("id").for_reader(("nr",), "all", ())
    with pytest.raises(ArgumentError, match="remove metadata from ChangelogNormalize"):
        ChangelogNormalize(metadata="at").for_reader(("id",), "all", ("topic",))


# --------------------------------------------------------------------------------------------------
# topics


def test_a_pattern_is_a_pattern_of_topics():
    assert reader_options(re.compile("shop[.].*"), SERVERS)["subscribePattern"] == "shop[.].*"
    assert (
        reader_options(re.compile("(?i)shop[.].*"), SERVERS)["subscribePattern"] == "(?i)shop[.].*"
    )
    assert reader_options(["a", "b"], SERVERS)["subscribe"] == "a,b"


@pytest.mark.parametrize(
    ("topic", "options", "text"),
    [
        (re.compile("a", re.IGNORECASE), {}, r"flags that Kafka would not see.*\(\?i\)a"),
        (re.compile(b"a"), {}, "pattern of bytes"),
        (
            re.compile("a"),
            {"subscribePattern": "b"},
            "topic and the option subscribePattern cannot be combined",
        ),
        ("a", {"subscribe": "b"}, "topic and the option subscribe cannot be combined"),
        ("a", {"assign": "{}"}, "got subscribe and assign"),
        (None, {}, "got none"),
    ],
)
def test_topics_that_contradict_each_other_are_refused(
    topic: Any, options: dict[str, str], text: str
) -> None:
    with pytest.raises(ArgumentError, match=text):
        reader_options(topic, {**SERVERS, **options})


# --------------------------------------------------------------------------------------------------
# the readers


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"normalize": "yes"},
            r"normalize is 'yes': use None, False or ChangelogNormalize\(\.\.\.\)",
        ),
        (
            {"normalize": False, "metadata": ["topic"], "primary_key": ["topic", "id"]},
            "Remove 'topic' from primary_key",
        ),
        (
            {"normalize": ChangelogNormalize(source_duplicates=False, order="source")},
            "order='source' requires ChangelogNormalize, which",
        ),
        (
            {"mode": DeadLetter("orders")},
            "'orders' is also a topic that is read.*choose another topic",
        ),
        (
            {"mode": "FAIL"},
            r"use one of FAILFAST, DROPMALFORMED, PERMISSIVE, or DeadLetter\(topic\)",
        ),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    change: dict[str, Any], text: str
) -> None:
    arguments: dict[str, Any] = {
        "format": "debezium-json",
        "schema": "id INT",
        "primary_key": "id",
        "options": SERVERS,
        **change,
    }
    with pytest.raises(ArgumentError, match=text):
        from_kafka_changelog(None, "orders", **arguments)  # type: ignore[arg-type]


def test_a_plan_without_the_stage_says_why():
    assert explain_changelog("a", format="debezium-json", normalize=False).startswith(
        "no ChangelogNormalize: normalize=False excludes it"
    )
    upserts = explain_changelog(
        re.compile("a.*"),
        format="upsert-kafka",
        primary_key="id",
        normalize=False,
        changelog_mode="upsert",
    )
    assert upserts.splitlines()[0] == "no ChangelogNormalize: normalize=False excludes it"
    assert upserts.endswith("Kafka(a.*)")
    dropped = explain_changelog(
        "a", format="debezium-json", primary_key="id", normalize=False, changelog_mode="upsert"
    )
    assert dropped.startswith(
        "DropUpdateBefore(changelogMode=[+I, +U, -D]): normalize=False excludes ChangelogNormalize"
    )
    with pytest.raises(
        ArgumentError, match=r"remove normalize=False, or pass changelog_mode='upsert'"
    ):
        explain_changelog("a", format="upsert-kafka", primary_key="id", normalize=False)


def test_the_options_of_a_dead_letter_are_not_shown():
    assert "secret" not in repr(DeadLetter("orders.dead", {"sasl.password": "secret"}))
