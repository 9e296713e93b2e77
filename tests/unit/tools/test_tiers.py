"""A test's folder and what it needs agree; a test in the wrong folder ends the collection."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tests.support.tiers import TIERS, misplaced, mixed, needs


@pytest.mark.parametrize(
    ("markers", "fixtures", "target", "tier"),
    [
        ((), ("tmp_path", "recorded_registry"), None, "unit"),
        ((), ("spark", "new_sink"), "delta", "spark"),
        (("slow", "kafka"), (), None, "servers"),
        ((), ("source",), None, "servers"),
        ((), ("spark", "new_sink"), "mysql-driver", "e2e"),
        (("spark",), ("secured",), None, "e2e"),
        (("postgres",), ("spark",), "iceberg", "e2e"),
        ((), ("connect",), None, "connect"),
        (("connect",), ("kafka",), None, "connect"),
    ],
)
def test_a_test_belongs_to_one_folder(
    markers: tuple[str, ...], fixtures: tuple[str, ...], target: str | None, tier: str
) -> None:
    requirements = needs(markers, fixtures, target)
    assert [each for each in TIERS if misplaced(each, requirements) is None] == [tier]


WRONG = [
    ("unit", "def test_1(spark): ...", "it needs spark: move it to tests/spark"),
    (
        "unit",
        "import pytest\n@pytest.mark.kafka\ndef test_2(): ...",
        "it needs kafka: move it to tests/servers",
    ),
    ("spark", "def test_3(): ...", "it needs neither Spark nor servers: move it to tests/unit"),
    ("servers", "def test_4(spark, kafka): ...", "it needs kafka, spark: move it to tests/e2e"),
    (
        "e2e",
        "import pytest\n@pytest.mark.parametrize('kind', ['delta'])\ndef test_5(spark, kind): ...",
        "it needs spark: move it to tests/spark",
    ),
    (
        "formats",
        "def test_6(): ...",
        "it is in none of tests/unit, tests/spark, tests/servers, tests/e2e, tests/connect",
    ),
    ("e2e", "def test_7(connect): ...", "it needs connect: move it to tests/connect"),
    ("connect", "def test_8(spark, connect): ...", "which cannot share a process: split it"),
]


def test_tests_in_wrong_folders_end_the_collection(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    for number, (tier, test, _) in enumerate(WRONG, 1):
        (tmp_path / "tests" / tier).mkdir(exist_ok=True)
        (tmp_path / "tests" / tier / f"test_{number}.py").write_text(test)
    for name in ("setup.cfg", "tests/conftest.py", "tests/__init__.py"):
        (tmp_path / name).write_text((REPOSITORY / name).read_text())
    (tmp_path / "tests" / "support").symlink_to(REPOSITORY / "tests" / "support")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        *sorted({f"tests/{tier}" for tier, *_ in WRONG}),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    for number, (tier, _, text) in enumerate(WRONG, 1):
        assert re.search(
            rf"tests/{tier}/test_{number}.py::test_{number}: .*{re.escape(text)}", done.stderr
        )


def test_a_run_with_classic_and_remote_sessions_ends_with_a_sentence() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "--quiet",
        "tests/spark/normalize/test_aggregates.py",
        "tests/connect",
    ]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR, done.stdout
    assert "run pytest tests/connect alone" in done.stderr
    assert mixed([{"connect", "kafka"}, {"kafka"}]) is None


def test_a_function_with_tables_of_several_kinds_is_one_test() -> None:
    """Its Delta table alone would need no server."""
    assert (
        misplaced("e2e", needs((), ("spark",), "delta") | needs((), ("spark",), "postgresql"))
        is None
    )


def test_the_names_of_test_modules_are_unique() -> None:
    names = [path.name for path in (REPOSITORY / "tests").rglob("test_*.py")]
    assert [name for name in names if names.count(name) > 1] == []
