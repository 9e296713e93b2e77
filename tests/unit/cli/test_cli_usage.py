"""The command line: help, version, usage errors, exit codes, completion, imports at start."""

import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cdc_cli.app import EXAMPLES
from tests.support.commands import cdc, environment, interrupted, quick, running
from tests.support.distributions import install
from tests.support.paths import REPOSITORY

HEAVY = {"confluent_kafka", "numpy", "pandas", "pyarrow", "pyspark", "fastavro", "jsonschema"}


def test_help_names_the_commands_and_imports_no_heavy_package() -> None:
    code = (
        "import sys; sys.argv = ['cdc', '--help']\n"
        "import cdc_cli\n"
        "try: cdc_cli.main()\n"
        "except SystemExit as end: assert not end.code\n"
        f"print('LOADED', sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment(), check=True
    )
    assert all(
        name in done.stdout
        for name in ("formats", "profile", "tail", "verify", "status", "init", "run")
    )
    assert done.stdout.strip().endswith("LOADED []")


def test_version_is_the_version_of_the_package() -> None:
    assert cdc("--version") == (0, f"cdc {version('pyspark-kafka-changelog')}\n", "")


def test_a_package_that_overwrites_this_one_is_noticed(tmp_path: Path) -> None:
    install(tmp_path, {}, "normalize")
    done = cdc("formats", PYTHONPATH=f"{tmp_path}{os.pathsep}{REPOSITORY}")
    assert done.code == 1
    assert done.err.startswith(
        "error: the package normalize 1.0 of PyPI is installed, and overwrites the folder "
        "normalize of pyspark"
    )
    run = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "tests/unit/cli",
        "--collect-only",
    ]
    env = environment(PYTHONPATH=str(tmp_path))
    tests = subprocess.run(
        run, cwd=REPOSITORY, capture_output=True, text=True, env=env, check=False
    )
    assert tests.returncode == 4
    assert (
        "pip uninstall normalize, then pip install --force-reinstall --no-deps "
        "pyspark-kafka-changelog"
    ) in tests.stderr


@pytest.mark.parametrize(
    "command", ["formats", "profile", "tail", "verify", "status", "init", "run"]
)
def test_every_command_has_help_without_a_broker(command: str) -> None:
    done = quick(command, "-h")
    assert done.code == 0
    assert f"cdc {command}" in done.out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["nosuch"], "No such command"),
        (["tail"], "TOPIC"),
        (["tail", "t", "-f", "maxwell-json"], "CDC_BOOTSTRAP_SERVERS"),
        (["tail", "t", "-b", "x:1", "-f", "maxwell-json", "--max", "0"], "--max"),
        (["tail", "t", "-b", "x:1", "-f", "maxwell-json", "--from", "yesterday"], "beginning"),
        (["tail", "t", "-b", "x:1", "-f", "maxwell-json", "--from", "2026-11-21T10:00:00"], "zone"),
        (["tail", "t", "-b", "x:1", "-f", "maxwell-json", "-o", "table_include"], "name=value"),
        (["tail", "t", "-b", "x:1", "-f", "maxwell-json", "--errors", "nosuch"], "fail"),
        (["verify", "jdbc:mysql://db/shop", "products"], "TARGET"),
        (["verify", "jdbc:mysql://db/shop", "products", "copy", "--kind", "jdbc"], "--target-url"),
        (["status"], "CHECKPOINT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_exits_with_two(arguments: list[str], error: str) -> None:
    done = quick(*arguments)
    assert done.code == 2
    assert error in done.err
    assert done.out == ""


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            ["-f", "maxwel-json"],
            "[UNKNOWN_FORMAT] no format 'maxwel-json'; did you mean 'maxwell-json'?",
        ),
        (
            ["-f", "maxwell-json", "-o", "tabel_include=x"],
            "Did you mean table_include for tabel_include?",
        ),
        (
            ["-f", "debezium-json", "-o", "decimal_handling_mode=text"],
            "decimal_handling_mode is 'text'; it is one of",
        ),
        (["-f", "maxwell-json", "--schema", "id NUMBR"], "[SCHEMA]"),
        (
            ["-f", "maxwell-json", "--schema", "id INT", "--primary-key", "key"],
            "primary key column key is not declared",
        ),
        (["-f", "maxwell-json", "--schema", "id INT", "--normalize"], "--primary-key"),
        (
            ["-f", "upsert-kafka", "-o", "avro_confluent_retry_seconds=soon", "--schema", "id INT"],
            "must be a number (float)",
        ),
        (
            ["-f", "maxwell-json", "--schema", "id INT", "-X", "no.such.property=1"],
            "refuses a property: no.such.property",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_value_is_a_one_line_error_without_contacting_kafka(
    arguments: list[str], error: str
) -> None:
    done = quick("tail", "t", "-b", "127.0.0.1:1", *arguments)
    assert done.code == 1
    assert done.err.startswith("error: [")
    assert done.err.count("\n") == 1
    assert error in done.err


def test_traceback_is_shown_on_request() -> None:
    done = cdc("formats", "nosuch", "--traceback")
    assert done.code == 1
    assert "Traceback" in done.err
    assert "UnknownFormatError" in done.err


def test_unreachable_broker_is_an_error_after_the_timeout() -> None:
    done = cdc("tail", "t", "-b", "127.0.0.1:1", "-f", "maxwell-json", "--timeout", "1", "-v")
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: [KAFKA_UNAVAILABLE]")
    assert done.err.count("Connection refused") == 1


def test_ctrl_c_works_while_no_broker_answers() -> None:
    with running(
        "tail", "t", "-b", "127.0.0.1:1", "-f", "maxwell-json", "--timeout", "60", "-v"
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"connecting with bootstrap.servers=127.0.0.1:1\n"
        done = interrupted(process)
    assert (done.code, done.out) == (130, "")
    assert "Traceback" not in done.err


def test_shell_completes_format_names() -> None:
    completed = cdc(_CDC_COMPLETE="complete_bash", COMP_WORDS="cdc tail -f ma", COMP_CWORD="3")
    assert completed.lines == ["maxwell-json"]


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_the_examples_of_the_help_have_the_options_of_the_command(line: str) -> None:
    program, command, *arguments = shlex.split(line)
    done = quick(command, *arguments, "--help", COLUMNS="200")
    assert (program, done.code) == ("cdc", 0), done.err
    assert line in done.out
