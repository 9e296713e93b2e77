"""Settings of a session that are checked without starting Spark."""

import sys
from pathlib import Path

import pytest

from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize import local_session
from normalize.spark.files import local_checkpoint_settings
from normalize.spark_versions import check_files, worker_problem


def test_an_unknown_package_is_refused() -> None:
    with pytest.raises(
        ArgumentError,
        match=r"no package of 'hudi' is known: use delta, iceberg, .* or Maven coordinates",
    ):
        local_session(packages=["hudi"])


@pytest.mark.parametrize("name", ["pandas", "pyarrow"])
def test_a_missing_package_of_spark_is_named_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=f"requires {name} on Spark: pip install"):
        local_session()


def test_a_wheel_among_the_files_of_a_session_is_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check_files(["spark://driver:7077/files/package.zip", "file:/tmp/job.py"])
    assert caplog.messages == []
    check_files(["spark://driver:7077/files/package-0.2.0-py3-none-any.whl"])
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("package-0.2.0-py3-none-any.whl is a wheel, from which")


def test_an_interpreter_for_workers_that_cannot_run_this_package_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert worker_problem(sys.executable, "") == ""
    assert (
        worker_problem("/nowhere/python", "")
        == "Spark's workers would run '/nowhere/python', which does not exist."
    )
    base = Path(sys.executable).resolve()
    if base == Path(sys.executable):
        pytest.skip("this is no virtual environment")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir("/")
    assert (
        f"Spark's workers run {base}, which cannot import this package (ModuleNotFoundError"
        in worker_problem(str(base), "")
    )


HDFS = {"spark.hadoop.fs.defaultFS": "hdfs://lake:8020"}


@pytest.mark.parametrize(
    ("location", "settings", "is_local"),
    [
        ("/data/checkpoint", {}, True),
        ("file:///data/checkpoint", HDFS, True),
        ("/data/checkpoint", HDFS, False),
        ("s3a://lake/checkpoint", {}, False),
        ("dbfs:/checkpoint", {}, False),
    ],
)
def test_only_a_local_checkpoint_is_written_without_processes(
    monkeypatch: pytest.MonkeyPatch, location: str, settings: dict[str, str], is_local: bool
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    assert bool(local_checkpoint_settings(location, settings)) == is_local
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    assert bool(local_checkpoint_settings(location, {})) == location.startswith("file:")
