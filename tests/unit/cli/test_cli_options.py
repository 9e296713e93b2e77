"""Parsing of command-line values; secrets are never shown."""

import json
import logging
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from cdc_cli.app import EXAMPLES
from cdc_cli.arguments import FileError, connection, make_format, pairs
from cdc_cli.job import screen
from cdc_cli.topic import Start
from cdc_cli.view import text_of
from cdc_formats import columns, get_format
from cdc_formats.errors import ArgumentError
from normalize.run import Event
from normalize.run.events import micro_batch
from tests.support.commands import cdc, environment, interrupted, quick, running
from tests.support.distributions import install
from tests.support.error_texts import error_test
from tests.support.paths import REPOSITORY

SECRET = "kept-9f2c"


def test_properties_come_from_a_file_the_command_line_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORDERS_PASSWORD", SECRET)
    file = tmp_path / "client.properties"
    file.write_text(
        "# ours\nbootstrap.servers = file:1\n\nsasl.password = env:ORDERS_PASSWORD\n"
        "client.id=file\n"
    )
    broker = connection("", file, ["client.id=line", "sasl.username=a=b"])
    assert broker.config == {"sasl.password": SECRET, "client.id": "line", "sasl.username": "a=b"}
    others = (connection("b:1", file), connection("", file, ["bootstrap.servers=line:1"]))
    assert [each.servers for each in (broker, *others)] == ["file:1", "b:1", "line:1"]


def test_connection_text_and_repr_mask_secrets() -> None:
    broker = connection(
        "b:1",
        None,
        [f"sasl.password={SECRET}", f"ssl.key.pem={SECRET}", "security.protocol=SASL_SSL"],
    )
    assert (
        str(broker)
        == "bootstrap.servers=b:1, sasl.password=***, security.protocol=SASL_SSL, ssl.key.pem=***"
    )
    assert SECRET not in repr(broker)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (f"{SECRET}\n", "line 1 of {file} is not a property: write name=value"),
        (f"client.id=x\n={SECRET}\n", "line 2 of {file} is not a property: write name=value"),
        (
            "sasl.password=env:NO_SUCH_VARIABLE\n",
            "sasl.password refers to the environment variable NO_SUCH_VARIABLE, which is not set",
        ),
    ],
)
def test_malformed_properties_file_is_an_error_without_its_content(
    tmp_path: Path, text: str, error: str
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(text)
    with pytest.raises(ArgumentError) as caught:
        connection("b:1", file)
    assert caught.value.args[0] == error.format(file=file)


@pytest.mark.parametrize(("name", "text"), [("nosuch", "No such file"), ("latin", "UTF-8")])
def test_unreadable_properties_file_is_an_error(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "latin").write_bytes(b"client.id=\xff")
    with pytest.raises(FileError, match=text):
        connection("b:1", tmp_path / name)


LOGIN = (
    "-X",
    f"sasl.password={SECRET}",
    "-X",
    "security.protocol=SASL_PLAINTEXT",
    "-X",
    "sasl.mechanism=PLAIN",
    "-X",
    "sasl.username=u",
)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-X", SECRET),
        ("-X", f"security.protocol={SECRET}"),
        ("-X", f"sasl.pasword={SECRET}", "-v"),
        ("-o", SECRET, "-v"),
        (*LOGIN, "-v"),
    ],
    ids=lambda arguments: " ".join(arguments).replace(SECRET, "..."),
)
@pytest.mark.parametrize("command", ["tail", "profile"])
def test_output_contains_no_secret(command: str, arguments: tuple[str, ...]) -> None:
    format = ["-f", "maxwell-json"] if command == "tail" else []
    done = quick(command, "t", *format, "-b", "127.0.0.1:1", "--timeout", "0.5", *arguments)
    assert done.code in (1, 2)
    assert done.err
    assert SECRET not in done.out + done.err


def test_traceback_contains_no_secret() -> None:
    done = cdc(
        "tail",
        "t",
        "-f",
        "maxwell-json",
        "-b",
        "127.0.0.1:1",
        "-X",
        f"security.protocol={SECRET}",
        "--traceback",
    )
    assert (done.code, "Traceback" in done.err, SECRET in done.err) == (1, True, False)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("beginning", Start()),
        ("end", Start(end=True)),
        ("17", Start(17)),
        ("-17", Start(-17)),
        ("2026-11-21T10:00:00Z", Start(timestamp_ms=1_795_255_200_000)),
        ("2026-11-21 11:00:00.5+01:00", Start(timestamp_ms=1_795_255_200_500)),
    ],
)
def test_start_position_is_parsed(text: str, start: Start) -> None:
    assert Start.parse(text) == start


@pytest.mark.parametrize(
    ("start", "offset"),
    [
        (Start(), 5),
        (Start(end=True), 9),
        (Start(7), 7),
        (Start(99), 9),
        (Start(-3), 6),
        (Start(-99), 5),
    ],
)
def test_start_offset_is_limited_to_the_offsets_of_the_partition(start: Start, offset: int) -> None:
    assert start.among(5, 9) == offset


@pytest.mark.parametrize(
    ("format", "texts", "options"),
    [
        (
            "upsert-kafka",
            {"value-fields-include": "EXCEPT_KEY", "avro_confluent_retry_seconds": "2.5"},
            {"value_fields_include": "EXCEPT_KEY", "avro_confluent_retry_seconds": 2.5},
        ),
        (
            "debezium-json",
            {"schema-include": "true", "error_excerpt": "false"},
            {"schema_include": True, "error_excerpt": False},
        ),
        (
            "debezium-avro-confluent",
            {"url": "http://r", "properties": '{"a": "b"}'},
            {"url": "http://r", "properties": {"a": "b"}},
        ),
    ],
)
def test_options_are_read_as_the_format_declares_them(
    format: str, texts: dict[str, str], options: dict[str, object]
) -> None:
    assert make_format(format, texts) == get_format(format, **options)


# --------------------------------------------------------------------------------------------------
# The command line: help, version, usage errors, exit codes, completion, imports at start
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
    assert (done.code, done.out) == (2, "")
    assert error in done.err


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
    assert (done.code, done.err[:8], done.err.count("\n")) == (1, "error: [", 1)
    assert error in done.err


def test_unreachable_broker_is_an_error_after_the_timeout() -> None:
    done = cdc("tail", "t", "-b", "127.0.0.1:1", "-f", "maxwell-json", "--timeout", "1", "-v")
    assert (done.code, done.err.count("Connection refused")) == (1, 1)
    assert done.err.splitlines()[-1].startswith("error: [KAFKA_UNAVAILABLE]")


def test_ctrl_c_works_while_no_broker_answers() -> None:
    with running(
        "tail", "t", "-b", "127.0.0.1:1", "-f", "maxwell-json", "--timeout", "60", "-v"
    ) as process:
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
    done = quick(command, *arguments, "-h", COLUMNS="200")
    assert (program, done.code) == ("cdc", 0), done.err
    assert line in done.out


# --------------------------------------------------------------------------------------------------
# What ``cdc run`` prints of a job's events, and of warnings
BATCH = micro_batch(3, 1200, 2.0, 50, {})


def test_events_and_warnings_are_lines_with_a_time_on_standard_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with screen(json=False) as report:
        report(Event("started", "the query has started"))
        logging.getLogger("normalize").warning("%s: a warning", "shop.orders")
        report(BATCH)
    printed = capsys.readouterr()
    times, texts = zip(*(line.split(" ", 1) for line in printed.err.splitlines()), strict=True)
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", each) for each in times)
    assert (printed.out, texts) == (
        "",
        (
            "the query has started",
            "shop.orders: a warning",
            "micro-batch 3, 1,200 records, 2.0 s, 50 offsets left",
        ),
    )
    logging.getLogger("normalize").warning("after the job")
    assert "after the job" not in capsys.readouterr().out


def test_events_are_lines_of_json_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    with screen(json=True) as report:
        report(BATCH)
        report(Event("failed", "a text", {"failures": 1, "error": "why"}))
        logging.getLogger("normalize").warning("%s: a warning", "shop.orders")
    printed = capsys.readouterr()
    expected = [
        {"event": "micro-batch", "offsets_left": 50},
        {"event": "failed", "error": "why"},
        {"event": "warning", "text": "shop.orders: a warning"},
    ]
    for line, least in zip(printed.out.splitlines(), expected, strict=True):
        assert json.loads(line).items() >= least.items()
    assert printed.err == ""


# --------------------------------------------------------------------------------------------------
# The text of values
def test_a_float_is_shown_with_its_own_digits() -> None:
    assert text_of(columns("s STRUCT<f: FLOAT>")[0].type)([3.140000104904175]) == "{f: 3.14}"


test_error_texts = error_test(
    __file__,
    {
        "options are read as the format declares them": lambda: make_format(
            "debezium-avro-confluent", {"url": "http://r", "properties": "a=b"}
        ),
        "pairs require an equals sign": lambda: pairs(["=x"], "-X"),
    },
)
