"""Settings of a session that are checked without starting Spark."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cdc_formats.errors import ArgumentError
from normalize import SPARK_PACKAGES, local_session
from normalize.session import kafka_package
from normalize.session_check import _worker_problem


@pytest.mark.parametrize(
    ("spark_version", "package"),
    [("3.5.1", "4.0.0"), ("4.0.0", "4.0.0"), ("4.0.5", "4.0.0"), ("4.1.0", "4.1.1"), ("4.2.0.dev1", "4.2.0"), ("5.0.0", "4.2.0")],
)
def test_the_kafka_package_is_that_of_the_spark_version_or_the_nearest(spark_version: str, package: str) -> None:
    assert kafka_package(spark_version) == f"org.apache.spark:spark-sql-kafka-0-10_2.13:{package}"


def test_the_installed_pyspark_chooses_the_package() -> None:
    import pyspark

    assert kafka_package(pyspark.__version__) == SPARK_PACKAGES


def test_an_unknown_package_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"packages has 'hudi': use delta, iceberg, .* or Maven coordinates"):
        local_session(packages=["hudi"])


def test_an_interpreter_for_workers_that_cannot_run_this_package_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _worker_problem(sys.executable, "") == ""
    assert _worker_problem("/nowhere/python", "") == "Spark's workers would run '/nowhere/python', which does not exist."
    base = Path(sys.executable).resolve()
    if base == Path(sys.executable):
        pytest.skip("this is no virtual environment")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir("/")
    assert f"Spark's workers run {base}, which cannot import this package (ModuleNotFoundError" in _worker_problem(str(base), "")
