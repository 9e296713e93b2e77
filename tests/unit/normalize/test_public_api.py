"""The public functions: parameters, options of the stage, and arguments checked without Spark."""

import inspect
import re
import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize import ChangelogNormalize, DeadLetter, decode_changelog, from_kafka_changelog
from normalize.api import explain_changelog
from normalize.kafka.reader_options import reader_options
from normalize.spark_versions import KINDS, check_version, has_package, package, spark_packages
from normalize.tables.table_options import TableOptions
from tests.support.error_texts import error_test
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


def test_the_options_are_completed_by_the_readers_arguments():
    stage = ChangelogNormalize(order="source").for_reader(("id",), "upsert", ("at",))
    assert (stage.primary_key, stage.changelog_mode, stage.metadata, stage.order) == (
        ("id",),
        "upsert",
        ("at",),
        "source",
    )
    own = ChangelogNormalize("id", changelog_mode="upsert")
    completed = (own.for_reader((), "all", ()), own.for_reader(("id",), "all", ()))
    assert [(each.primary_key, each.changelog_mode) for each in completed] == [
        (("id",), "upsert")
    ] * 2


# --------------------------------------------------------------------------------------------------
# topics


@pytest.mark.parametrize(
    ("topics", "name", "value"),
    [
        (re.compile("shop[.].*"), "subscribePattern", "shop[.].*"),
        (re.compile("(?i)shop[.].*"), "subscribePattern", "(?i)shop[.].*"),
        (["a", "b"], "subscribe", "a,b"),
    ],
)
def test_topics_are_names_or_a_pattern(topics: Any, name: str, value: str) -> None:
    assert reader_options(topics, SERVERS)[name] == value


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


# --------------------------------------------------------------------------------------------------
# Importing `normalize` loads no Spark; `cdc_formats` never imports `normalize`
def loaded_by(statement: str) -> set[str]:
    code = (
        f"import sys; {statement}; print(' '.join(sorted({{name.partition('.')[0] for name in "
        "sys.modules})))"
    )
    return set(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout.split()
    )


def test_importing_normalize_loads_no_spark():
    assert not loaded_by("import normalize") & {"pyspark", "pyarrow", "pandas", "confluent_kafka"}


def test_the_public_names_exist():
    names = loaded_by("import normalize; [getattr(normalize, name) for name in normalize.__all__]")
    assert {"pyarrow", "pyspark"} <= names


def test_without_spark_the_import_says_what_to_install():
    code = (
        "import sys; sys.modules['pyspark'] = None\n"
        "try: from normalize import from_kafka_changelog\n"
        "except ImportError as error: print(error)\n"
        "from normalize.checkpoint.status import checkpoint_status"  # cdc status needs no Spark
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == (
        "[MISSING_DEPENDENCY] pyspark is not installed: pip install 'pyspark-kafka-changelog[spark]'"
    )


# --------------------------------------------------------------------------------------------------
# The packages of each version of Spark
@pytest.mark.parametrize(
    ("spark_version", "kafka"),
    [
        ("4.0.0", "4.0.0"),
        ("4.0.5", "4.0.0"),
        ("4.1.0", "4.1.1"),
        ("4.1.1-amzn-0", "4.1.1"),
        ("4.2.0.dev1", "4.2.0"),
        ("4.2.1", "4.2.0"),
    ],
)
def test_the_kafka_package_has_the_major_and_minor_version_of_spark(
    spark_version: str, kafka: str
) -> None:
    assert (
        spark_packages(spark_version=spark_version)
        == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{kafka}"
    )


def test_the_installed_pyspark_chooses_the_packages() -> None:
    for kind in filter(has_package, KINDS):
        assert spark_packages(kind) == spark_packages(kind, spark_version=pyspark.__version__)


def test_an_unknown_kind_is_refused_and_a_missing_one_names_the_versions_that_have_it() -> None:
    assert not has_package("iceberg", "4.2.0")


def test_a_newer_version_takes_the_newest_packages_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    newer, newest = (spark_packages("delta", spark_version=each) for each in ("4.3.0", "4.2.0"))
    assert newer == newest
    for version in ("4.2.1", "4.3.0"):
        check_version(SimpleNamespace(version=version))  # type: ignore[arg-type]
    assert caplog.messages == [
        "Spark 4.3.0 was not tested with this release, which supports Spark 4.0 to 4.2"
    ]


def test_tables_are_not_written_with_a_version_that_was_not_tested() -> None:
    check_version(SimpleNamespace(version="4.2.1"), tables=True)  # type: ignore[arg-type]
    with pytest.raises(
        MissingDependencyError,
        match=r'writes tables with Spark 4\.0 to 4\.2, and this is Spark 4\.3\.0: pip install "pyspark==4\.2',
    ):
        check_version(SimpleNamespace(version="4.3.0"), tables=True)  # type: ignore[arg-type]


test_error_texts = error_test(
    __file__,
    {
        **{
            f"options are checked where they are written, {number}": lambda options=options: (
                ChangelogNormalize(**options)
            )
            for number, options in enumerate(
                [
                    {"changelog_mode": "retract"},
                    {"order": "offset"},
                    {"key_groups": 0},
                    {"state_ttl": 5},
                    {"delete_retention": timedelta(-1), "order": "source"},
                    {"delete_retention": timedelta(1)},
                    {"on_expiry": "retract"},
                ],
                1,
            )
        },
        "the options are completed by the readers arguments, 1": lambda: ChangelogNormalize(
            "id"
        ).for_reader(("nr",), "all", ()),
        "the options are completed by the readers arguments, 2": lambda: ChangelogNormalize(
            metadata="at"
        ).for_reader(("id",), "all", ("topic",)),
        **{
            f"topics that contradict each other are refused, {number}": lambda topic=topic, options=options: (
                reader_options(topic, {**SERVERS, **options})
            )
            for number, (topic, options) in enumerate(
                [
                    (re.compile("a", re.IGNORECASE), {}),
                    (re.compile(b"a"), {}),
                    (re.compile("a"), {"subscribePattern": "b"}),
                    ("a", {"subscribe": "b"}),
                    ("a", {"assign": "{}"}),
                    (None, {}),
                ],
                1,
            )
        },
        "a plan without the stage says why": lambda: explain_changelog(
            "a", format="upsert-kafka", primary_key="id", normalize=False
        ),
        **{
            f"an older version or another major version is refused, {number}": lambda spark_version=spark_version: (
                spark_packages(spark_version=spark_version)
            )
            for number, spark_version in enumerate(["3.5.9", "5.0.0"], 1)
        },
        "an unknown kind is refused and a missing one names the versions that have it, 1": lambda: (
            spark_packages("hudi")
        ),
        "an unknown kind is refused and a missing one names the versions that have it, 2": lambda: (
            package("iceberg", "4.2.0")
        ),
    },
)
