"""Parsing of command-line values; secrets are never shown."""

from pathlib import Path

import pytest
import typer

from cdc_cli.arguments import FileError, connection, make_format, pairs
from cdc_cli.topic import Start
from cdc_formats.errors import ArgumentError, FormatOptionError
from tests.support.commands import cdc, quick

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
    assert broker.servers == "file:1"
    assert broker.config == {"sasl.password": SECRET, "client.id": "line", "sasl.username": "a=b"}
    assert connection("b:1", file).servers == "b:1"
    assert connection("", file, ["bootstrap.servers=line:1"]).servers == "line:1"


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


def test_unreadable_properties_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="No such file"):
        connection("b:1", tmp_path / "nosuch")
    (tmp_path / "latin").write_bytes(b"client.id=\xff")
    with pytest.raises(FileError, match="UTF-8"):
        connection("b:1", tmp_path / "latin")


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
    assert "Traceback" in done.err
    assert SECRET not in done.err


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


def test_options_are_read_as_the_format_declares_them() -> None:
    upsert = make_format(
        "upsert-kafka",
        {"value-fields-include": "EXCEPT_KEY", "avro_confluent_retry_seconds": "2.5"},
    )
    assert (upsert.value_fields_include, upsert.avro_confluent_retry_seconds) == ("EXCEPT_KEY", 2.5)
    assert (
        make_format(
            "debezium-json", {"schema-include": "true", "error_excerpt": "false"}
        ).schema_include
        is True
    )
    avro = make_format("debezium-avro-confluent", {"url": "http://r", "properties": '{"a": "b"}'})
    assert avro.properties == (("a", "b"),)
    with pytest.raises(FormatOptionError, match="properties must be JSON"):
        make_format("debezium-avro-confluent", {"url": "http://r", "properties": "a=b"})


def test_pairs_require_an_equals_sign() -> None:
    with pytest.raises(typer.BadParameter):
        pairs(["=x"], "-X")
