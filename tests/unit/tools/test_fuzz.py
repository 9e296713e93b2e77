"""The fuzzer finds broken formats, prints how to reproduce a failure, and repeats itself with the same seed."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from cdc_formats import Event, Format, Ignored, read_object
from tools import fuzz

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
    found = fuzz.broken(Broken().decoder("id INT"), None, value)
    assert error in found
    assert bool(found) == bool(error)


def test_a_finding_reproduces_itself() -> None:
    decoder = fuzz.get_format("maxwell-json", table_include="t").decoder(
        "id INT, `a b` DECIMAL(5,2)", unique_key=["id"], metadata=["table"]
    )
    text = str(fuzz.Finding(decoder, b"\xff", None, "it broke"))
    assert text.startswith("it broke\n")
    names: dict = {}
    exec(text.partition("\n\n")[2].replace("check_record(decoder", "same = (decoder"), names)
    assert names["format"] == decoder.format
    assert (names["decoder"].columns, names["decoder"].unique_key) == (decoder.columns, decoder.unique_key)
    assert (names["key"], names["value"]) == (b"\xff", None)


def test_the_same_seed_gives_the_same_messages() -> None:
    record = (b'{"id": 1}', b'{"op": "+I", "data": {"id": 1}}')
    first, again, other = ([fuzz.mutated(record, random.Random(seed + n)) for n in range(50)] for seed in (1, 1, 1000))
    assert first == again != other


def test_fuzzer_runs_and_counts_messages() -> None:
    command = [sys.executable, str(SCRIPT), "--format", "changelog-json", "--messages", "300", "--processes", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("changelog-json: 300 messages, ")
