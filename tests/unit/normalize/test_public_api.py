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


@pytest.mark.parametrize("spark_version", ["3.5.9", "5.0.0"])
def test_an_older_version_or_another_major_version_is_refused(spark_version: str) -> None:
    with pytest.raises(
        MissingDependencyError,
        match=rf"Spark {spark_version} is not supported: use a version from 4\.0 to 4\.2",
    ):
        spark_packages(spark_version=spark_version)


def test_an_unknown_kind_is_refused_and_a_missing_one_names_the_versions_that_have_it() -> None:
    with pytest.raises(
        ArgumentError,
        match=(
            "no package of 'hudi' is known: use delta, iceberg, postgresql, mariadb, mysql, or "
            "Maven"
        ),
    ):
        spark_packages("hudi")
    assert not has_package("iceberg", "4.2.0")
    with pytest.raises(
        MissingDependencyError,
        match=r'no iceberg package for Spark 4\.2: pip install "pyspark==4\.1\.\*"',
    ):
        package("iceberg", "4.2.0")


def test_a_newer_version_takes_the_newest_packages_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert spark_packages("delta", spark_version="4.3.0") == spark_packages(
        "delta", spark_version="4.2.0"
    )
    check_version(SimpleNamespace(version="4.2.1"))  # type: ignore[arg-type]
    assert not caplog.messages
    check_version(SimpleNamespace(version="4.3.0"))  # type: ignore[arg-type]
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
