"""The fuzzer finds broken formats, prints how to reproduce a failure, and is repeatable by seed."""

import random
import subprocess
import sys
from ast import literal_eval
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cdc_formats import Event, Format, Ignored, read_object
from normalize.decode.columnar import ColumnarDecoder, Decoded, Refused
from tests.support.scenarios import OF_FORMAT
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
    assert error in problem
    assert bool(problem) == bool(error)


def test_a_finding_reproduces_itself() -> None:
    decoder = fuzz.get_format("maxwell-json", table_include="t").decoder(
        "id INT, `a b` DECIMAL(5,2)", unique_key=["id"], metadata=["table"]
    )
    text = str(fuzz.Finding(decoder, b"\xff", None, "it broke"))
    assert text.startswith("it broke\n")
    names: dict = {}
    exec(text.partition("\n\n")[2].replace("check_record(decoder", "same = (decoder"), names)
    assert names["format"] == decoder.format
    assert (names["decoder"].columns, names["decoder"].unique_key) == (
        decoder.columns,
        decoder.unique_key,
    )
    assert (names["key"], names["value"]) == (b"\xff", None)


def test_the_same_seed_gives_the_same_messages() -> None:
    record = (b'{"id": 1}', b'{"op": "+I", "data": {"id": 1}}')
    first, again, other = (
        [fuzz.mutated(record, random.Random(seed + n)) for n in range(50)] for seed in (1, 1, 1000)
    )
    assert first == again != other


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


def test_messages_are_compared_and_the_sound_ones_are_decoded_together() -> None:
    compared = fuzz_together.compare("changelog-json", 400, seed=1)
    assert compared.messages >= 400
    assert 0 < compared.sound < compared.messages
    assert OF_FORMAT["changelog-json"].together < compared.share <= 1


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
