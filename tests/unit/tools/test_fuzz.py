"""The fuzzer finds broken formats, prints how to reproduce a failure, and is repeatable by seed."""

import subprocess
import sys
from ast import literal_eval
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cdc_formats import Event, Format, Ignored, read_object
from normalize.decode.columnar import ColumnarDecoder, Decoded, Refused
from tools import fuzz, fuzz_together

SCRIPT = Path(fuzz.__file__)


class Broken(Format):
    """A format that raises KeyError for unexpected messages."""

    identifier = "broken-of-fuzz"

    def read(self, key, value):
        row = read_object(value)
        return Ignored.DDL if "ddl" in row else [Event.insert(row["row"])]

    def control_event(self, key, value, reason, headers=()):
        raise KeyError("table")


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (b'{"row": {"id": 1}}', ""),
        (b"{", ""),
        (b'{"rows": 1}', "raises KeyError, which is not a DecodeError"),
        (b'{"ddl": 1}', "KeyError, which is not a DecodeError: 'table'"),
    ],
)
def test_errors_other_than_decode_errors_are_found(value: bytes, error: str) -> None:
    problem = fuzz.broken(Broken().decoder("id INT"), None, value)
    assert error in problem if error else problem == ""


def test_a_finding_reproduces_itself() -> None:
    decoder = fuzz.get_format("maxwell-json", table_include="t").decoder(
        "id INT, `a b` DECIMAL(5,2)", unique_key=["id"], metadata=["table"]
    )
    text = str(fuzz.Finding(decoder, b"\xff", None, "it broke"))
    found, _, code = text.partition("\n\n")
    names: dict = {}
    exec(code.replace("check_record(decoder", "same = (decoder"), names)
    made = names["decoder"]
    assert (made.format, made.columns, made.unique_key) == (
        decoder.format,
        decoder.columns,
        decoder.unique_key,
    )
    assert (names["key"], names["value"]) == (b"\xff", None)
    assert found.startswith("it broke")


def test_fuzzer_runs_and_counts_messages() -> None:
    command = [
        sys.executable,
        str(SCRIPT),
        "--format",
        "changelog-json",
        "--messages",
        "300",
        "--processes",
        "1",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("changelog-json: 300 messages, ")


class Lossy(ColumnarDecoder):
    """A decoder that loses every message."""

    def decode(self, records, kafka):
        return Decoded([], Counter())


class Doubtful(ColumnarDecoder):
    """A decoder that leaves every message to be decoded alone."""

    def decode(self, records, kafka):
        return Decoded([Refused(list(range(len(records.values))))], Counter())


def test_a_difference_is_printed_with_the_message_that_has_it(capsys) -> None:
    lossy = partial(Lossy.of, fewest=1)
    assert fuzz_together.main(["--format", "changelog-json", "--messages", "400"], lossy) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("changelog-json, seed 1:\n\nplan = DecodePlan(format=ChangelogJson(")
    (records,) = [line for line in printed.splitlines() if line.startswith("records = ")]
    assert len(literal_eval(records.removeprefix("records = "))) == 1


def test_too_few_messages_that_are_decoded_together_are_an_error(capsys) -> None:
    assert fuzz_together.main(["--format", "changelog-json", "--messages", "100"], Doubtful.of) == 1
    assert "messages are the same, 0.0% of" in capsys.readouterr().out
