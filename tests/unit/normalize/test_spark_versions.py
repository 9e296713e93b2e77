"""The packages of each version of Spark."""

from types import SimpleNamespace

import pyspark
import pytest

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize.spark_versions import KINDS, check_version, has_package, package, spark_packages


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
