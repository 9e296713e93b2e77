"""``cdc convert`` from files to files: every format that can hold the rows keeps them."""

from __future__ import annotations

import gzip
import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from cdc_cli.files import Lines, read_records
from cdc_cli.view import text_of
from cdc_formats import Ignored, columns, get_format
from cdc_formats.testing import render
from tests.support.commands import CDC, Terminal, cdc, environment, quick
from tests.support.distributions import install
from tests.support.paths import PRODUCT, RECORDS

STORY = json.loads((PRODUCT / "schema.json").read_text())
FORMATS = sorted(path.stem for path in PRODUCT.glob("*.jsonl") if path.stem != "debezium-avro-confluent")
UPSERTS = ("upsert-kafka", "debezium-flat-json")
KEYED = ("--primary-key", "id")
MADE = {"debezium-json": {"decimal_handling_mode": "string"}, "debezium-flat-json": {"decimal_handling_mode": "string"}}
CUSTOMERS = "id INT, name STRING, email STRING, balance DECIMAL(20,4), updated TIMESTAMP_NTZ(6)"


def option(name: str, values: dict[str, Any]) -> list[str]:
    return [part for key, value in values.items() for part in (name, f"{key}={value}")]


def rows_of(path: Path, format: str, options: dict[str, Any], schema: str, key: str = "id", lines: Lines = Lines.RECORDS) -> Iterator[str]:
    """Return the changelog of a file, decoded by `cdc_formats` without ``cdc``."""
    decoder = get_format(format, **options).decoder(schema, unique_key=[key])
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for record in read_records(file, path.name, lines):
            found = decoder.decode(record.key, record.value, record.headers)
            if not isinstance(found, Ignored):
                yield from render(found, decoder.columns)


def table_of(lines: Iterator[str]) -> dict[str, str]:
    """Return the final table of a changelog: each row's text by its first column."""
    table: dict[str, str] = {}
    for line in lines:
        key = line[3:-1].split(",")[0]
        if line[:2] in ("+I", "+U"):
            table[key] = line[2:]
        elif line[:2] == "-D":
            del table[key]
    return table


def keys_apart(lines: list[str]) -> list[str]:
    """Return a changelog in which an update that changes the key is a delete and an insert, as it is written."""
    apart = list(lines)
    for index, (line, following) in enumerate(pairwise(lines)):
        if line.startswith("-U") and line.split(",")[0][2:] != following.split(",")[0][2:]:
            apart[index : index + 2] = ["-D" + line[2:], "+I" + following[2:]]
    return apart


@pytest.mark.parametrize("written", FORMATS)
@pytest.mark.parametrize("read", FORMATS)
def test_product_changes_convert_from_each_format_to_each(tmp_path: Path, read: str, written: str) -> None:
    source, target = PRODUCT / f"{read}.jsonl", tmp_path / "out.jsonl"
    options, made = STORY["options"].get(read, {}), MADE.get(written, {})
    if written == "dms-json":
        made = STORY["options"][written]
    done = quick(
        "convert", "--from", read, "--to", written, "--from-file", source, "--to-file", target, "--from-lines", "records", "--to-lines",
        "records", "--schema", STORY["columns"], *KEYED, *option("--from-option", options), *option("--to-option", made),
    )  # fmt: skip
    assert done.code == 0, done.err
    found = list(rows_of(target, written, made, STORY["columns"]))
    expected = [line for line in (PRODUCT / "expected.changelog").read_text().splitlines() if not line.startswith("Ignored")]
    if written in UPSERTS:
        assert table_of(iter(found)) == table_of(iter(expected))
    else:
        assert found == expected


def test_recorded_maxwell_topic_converts_to_debezium_with_the_same_rows(tmp_path: Path) -> None:
    source, target = RECORDS / "maxwell-mariadb.jsonl.gz", tmp_path / "customers.jsonl.gz"
    options = {"decimal_handling_mode": "precise", "time_precision_mode": "microseconds", "unavailable_value_placeholder": "-"}
    done = quick(
        "convert", "--from", "maxwell-json", "--to", "debezium-json", "--from-file", source, "--from-lines", "records", "--to-file", target,
        "--from-option", "table_include=customers", *option("--to-option", options), "--schema", CUSTOMERS, *KEYED,
    )  # fmt: skip
    assert done.code == 0, done.err
    expected = keys_apart(list(rows_of(source, "maxwell-json", {"table_include": "customers"}, CUSTOMERS)))
    found = list(rows_of(target, "debezium-json", options, CUSTOMERS, lines=Lines.VALUES))
    assert len(expected) > 3000
    assert found == expected
    assert sum(line.startswith("-U") for line in expected) > 300
    assert re.search(rf"^{len(expected):,} rows \(.*\) of 6,432 records", done.err)
    assert "ignored (OTHER_TABLE)" in done.err


INSERT = b'{"type": "insert", "data": {"id": 1, "name": "a"}}\n'
UPDATE = b'{"type": "update", "data": {"id": 1, "name": "b"}, "old": {"name": "a"}}\n'
DELETE = b'{"type": "delete", "data": {"id": 1, "name": "b"}}\n'
TO_OGG = ("convert", "--from", "maxwell-json", "--to", "ogg-json")
DECLARED = ("--schema", "id INT, name STRING", *KEYED)


def test_values_are_converted_from_standard_input_to_standard_output() -> None:
    done = cdc(*TO_OGG, *DECLARED, stdin=INSERT + b"\n" + UPDATE + DELETE)
    assert done.code == 0
    assert [json.loads(line) for line in done.lines] == [
        {"op_type": "I", "primary_keys": ["id"], "before": None, "after": {"id": 1, "name": "a"}},
        {"op_type": "U", "primary_keys": ["id"], "before": {"id": 1, "name": "a"}, "after": {"id": 1, "name": "b"}},
        {"op_type": "D", "primary_keys": ["id"], "before": {"id": 1, "name": "b"}, "after": None},
    ]
    assert done.err == "4 rows (1 +I, 1 -U, 1 +U, 1 -D) of 3 records; 3 records written to standard output\n"


def test_schema_is_inferred_from_the_first_lines_which_are_converted_too() -> None:
    done = quick(*TO_OGG, "--sample", "2", stdin=INSERT + UPDATE + DELETE)
    assert done.code == 0
    assert len(done.lines) == 3
    assert "--schema 'id BIGINT, name STRING'" in done.err


def test_printed_options_of_an_inferred_schema_can_be_pasted(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    key = '{"database": "d", "table": "it\'s", "pk.id": 1}'
    value = '{"database": "d", "table": "it\'s", "type": "insert", "data": {"id": 1, "it\'s": "a"}}'
    file.write_text(json.dumps({"key": json.loads(key), "value": json.loads(value)}) + "\n")
    first = quick(*TO_OGG, "--from-file", file, "--from-lines", "records")
    pasted = shlex.split(" ".join(line for line in first.err.splitlines() if line.startswith("  --")))
    assert pasted == ["--schema", "id BIGINT NOT NULL, `it's` STRING", "--primary-key", "id"]
    second = quick(*TO_OGG, "--from-file", file, "--from-lines", "records", *pasted)
    assert (second.code, second.out) == (0, first.out)
    assert "inferred" not in second.err


def test_upserts_become_a_changelog_by_their_key() -> None:
    lines = b'{"key": {"id": 1}, "value": {"id": 1, "name": "a"}}\n' * 2
    lines += b'{"key": {"id": 1}, "value": {"id": 1, "name": "b"}}\n{"key": {"id": 1}, "value": null}\n{"key": {"id": 7}, "value": null}\n'
    done = quick("convert", "--from", "upsert-kafka", "--to", "changelog-json", *DECLARED, stdin=lines)
    assert done.code == 0
    assert [(json.loads(line)["op"], json.loads(line)["data"]["name"]) for line in done.lines] == [
        ("+I", "a"), ("-U", "a"), ("+U", "b"), ("-D", "b"),
    ]  # fmt: skip
    assert "upsert-kafka has no -U: rows are normalised by id" in done.err


def test_a_float_keeps_its_digits() -> None:
    line = b'{"type":"insert","data":{"id":1,"f":3.14,"a":[0.1]}}'
    schema = ("--schema", "id INT, f FLOAT, a ARRAY<FLOAT>")
    done = quick("convert", "--from", "maxwell-json", "--to", "ogg-json", *schema, stdin=line)
    assert (done.code, json.loads(done.out)["after"]) == (0, {"id": 1, "f": 3.14, "a": [0.1]})
    to_text = text_of(columns("s STRUCT<f: FLOAT>")[0].type)
    assert to_text([3.140000104904175]) == "{f: 3.14}"


def test_delete_in_an_upsert_format_requires_lines_of_records() -> None:
    done = quick("convert", "--from", "maxwell-json", "--to", "upsert-kafka", *DECLARED, stdin=INSERT + UPDATE + DELETE)
    assert done.lines == [
        '{"key": {"id":1}, "value": {"id":1,"name":"a"}}',
        '{"key": {"id":1}, "value": {"id":1,"name":"b"}}',
        '{"key": {"id":1}, "value": null}',
    ]
    done = quick("convert", "--from", "maxwell-json", "--to", "upsert-kafka", *DECLARED, "--to-lines", "values", stdin=INSERT + DELETE)
    assert done.code == 1
    assert "error: [LINE] a null value" in done.err
    assert "1 records written" in done.err


@pytest.mark.parametrize("value_format", ["csv", "raw"])
def test_values_other_than_json_are_text_in_records(value_format: str) -> None:
    schema = ("--schema", "id INT, name STRING", *KEYED)
    more = ["--to-option", f"value_format={value_format}"]
    if value_format == "raw":
        more += ["--to-option", "value_fields_include=EXCEPT_KEY"]
    line = '{"type": "insert", "data": {"id": 1, "name": "{tab\\tq\\"é"}}\n'.encode()
    done = quick("convert", "--from", "maxwell-json", "--to", "upsert-kafka", *schema, *more, stdin=line)
    assert done.code == 0, done.err
    same = [part.replace("--to-option", "--from-option") for part in more]
    back = quick("convert", "--from", "upsert-kafka", "--to", "maxwell-json", *schema, *same, stdin=done.out.encode())
    assert json.loads(back.out)["data"] == {"id": 1, "name": '{tab\tq"é'}


def test_rows_of_an_update_are_paired_within_their_partition() -> None:
    def line(partition: int, op: str, id: int, name: str) -> str:
        return json.dumps({"key": None, "value": {"op": op, "data": {"id": id, "name": name}}, "partition": partition}) + "\n"

    lines = [line(0, "-U", 1, "a"), line(1, "-U", 2, "x"), line(0, "+U", 1, "b"), line(1, "+U", 2, "y"), line(0, "-U", 1, "b")]
    done = quick(
        "convert", "--from", "changelog-json", "--to", "ogg-json", "--from-lines", "records", *DECLARED, stdin="".join(lines).encode()
    )
    assert [json.loads(each)["op_type"] for each in done.lines] == ["U", "U", "D"]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"{", "[MALFORMED_MESSAGE]"),
        (b'{"type": "nosuch", "data": {"id": 2}}', "[UNKNOWN_OPERATION]"),
        (b'{"type": "insert", "data": {"id": "x"}}', "[TYPE_CONVERSION]"),
    ],
)
def test_undecodable_line_fails_is_skipped_or_is_shown(tmp_path: Path, line: bytes, error: str) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(INSERT + line + b"\n" + DELETE)
    run = (*TO_OGG, *DECLARED, "--from-file", file)
    failed = quick(*run)
    assert (failed.code, len(failed.lines)) == (1, 1)
    assert f"error: {error}" in failed.err
    assert f"the value in {file}:2" in failed.err
    skipped = quick(*run, "--errors", "skip")
    assert (skipped.code, len(skipped.lines)) == (0, 2)
    assert skipped.err.startswith(f"2 rows (1 +I, 1 -D) of 3 records, 1 corrupt ({error[1:-1]})")
    shown = quick(*run, "--errors", "show")
    assert shown.code == 0
    assert shown.err.startswith(error)


def test_decimal_with_too_many_digits_is_refused_or_rounded_and_an_inferred_type_is_wide() -> None:
    lines = b'{"type": "insert", "data": {"id": 1, "p": 1.5}}\n{"type": "insert", "data": {"id": 2, "p": 9.995}}\n'
    run = ("convert", "--from", "maxwell-json", "--to", "changelog-json")
    declared = ("--schema", "id INT, p DECIMAL(10,2)")
    failed = quick(*run, *declared, stdin=lines)
    assert (failed.code, len(failed.lines)) == (1, 1)
    assert "set rounding='half_up' - at `$.data.p` of the value in standard input:2" in failed.err
    rounded = quick(*run, *declared, "--from-option", "rounding=half_up", stdin=lines)
    assert rounded.code == 0
    assert rounded.lines == ['{"data":{"id":1,"p":1.50},"op":"+I"}', '{"data":{"id":2,"p":10.00},"op":"+I"}']
    guessed = quick(*run, "--sample", "1", stdin=lines)
    assert guessed.code == 0
    assert "p DECIMAL(38,18)" in guessed.err
    assert "declare the source's DECIMAL(p,s), or DOUBLE" in guessed.err
    assert '"p":9.995000000000000000' in guessed.out


def test_truncated_table_fails_unless_ignored() -> None:
    line = b'{"op_type": "T", "table": "orders"}\n'
    run = ("convert", "--from", "ogg-json", "--to", "maxwell-json", *DECLARED)
    failed = quick(*run, stdin=line)
    assert failed.code == 1
    assert "error: [TRUNCATE] the source table was truncated - in standard input:1" in failed.err
    assert "1 ignored (TRUNCATE)" in quick(*run, "--on-truncate", "ignore", stdin=line).err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"[1]", "is not a record"),
        (b'{"key": 1}', "it has neither value nor value_base64"),
        (b'{"value_base64": "*"}', "is not a record"),
        (INSERT, "For lines of values: --from-lines values"),
    ],
)
def test_line_that_is_not_a_record_is_an_error_with_its_number(line: bytes, error: str) -> None:
    done = quick(*TO_OGG, *DECLARED, "--from-lines", "records", stdin=b'{"value": null}\n' + line)
    assert done.code == 1
    assert "error: [LINE] standard input:2" in done.err
    assert error in done.err


def test_value_that_a_format_cannot_hold_is_an_error_that_names_column_and_record() -> None:
    line = b'{"type": "insert", "data": {"id": 1, "at": "2026-01-01 00:00:00.000001"}}\n'
    done = quick(
        "convert", "--from", "maxwell-json", "--to", "debezium-json", "--to-option", "time_precision_mode=connect", "--schema",
        "id INT, at TIMESTAMP_NTZ(6)", stdin=line,
    )  # fmt: skip
    assert done.code == 1
    assert "error: [ENCODE]" in done.err
    assert "`$.after.at`" in done.err
    assert done.err.endswith("row of standard input:1\n")


def test_update_without_a_before_image_is_an_error_that_names_the_normalize_option() -> None:
    lines = b'{"op": "c", "before": null, "after": {"id": 1, "name": "a"}}\n{"op": "u", "before": null, "after": {"id": 1, "name": "b"}}\n'
    run = ("convert", "--from", "debezium-json", "--to", "changelog-json", *DECLARED)
    failed = quick(*run, stdin=lines)
    assert failed.code == 1
    assert "[MISSING_BEFORE_IMAGE]" in failed.err
    assert "--normalize" in failed.err
    assert [json.loads(line)["op"] for line in quick(*run, "--normalize", stdin=lines).lines] == ["+I", "-U", "+U"]


def test_unusable_files_are_errors(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(INSERT)
    assert "cannot be read: No such file" in quick(*TO_OGG, "--from-file", tmp_path / "nosuch").err
    done = quick(*TO_OGG, *DECLARED, "--from-file", file, "--to-file", tmp_path / "no" / "such")
    assert done.code == 1
    assert "cannot be written: No such file" in done.err
    assert quick(*TO_OGG, "--from-file", file, "--to-file", file).code == 2
    assert file.read_bytes() == INSERT


def test_closed_pipe_ends_the_conversion_without_an_error(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(INSERT * 200_000)
    command = " ".join([*CDC, *TO_OGG, "--schema", "'id INT, name STRING'", "--from-file", str(file)])
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -1; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.splitlines()[1:] == ["141"]
    assert done.stderr == ""


PRESSED = '''
import os, signal
from cdc_formats.formats.maxwell import MaxwellJson

class Pressed(MaxwellJson):
    """Maxwell's format that sends Ctrl-C at the second record."""

    identifier = "pressed-json"

    def reader(self, rows, *, keyed=False):
        read, records = super().reader(rows, keyed=keyed), []

        def pressing(key, value):
            records.append(value)
            if len(records) == 2:
                for _ in range(int(os.environ["PRESSES"])):
                    os.kill(os.getpid(), signal.SIGINT)
            return read(key, value)

        return pressing
'''


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(("presses", "rows", "records"), [(1, 3, 3), (2, 1, 2)])
def test_ctrl_c_ends_after_the_batch_and_a_second_one_at_once(
    tmp_path: Path, presses: int, rows: int, records: int, unbuffered: str
) -> None:
    install(tmp_path, {"pressed-json": "pressed:Pressed"}, "pressed", {"pressed": PRESSED})
    lines = [json.dumps({"type": "insert", "data": {"id": id}}).encode() for id in range(3)]
    done = cdc(
        "convert", "--from", "pressed-json", "--to", "changelog-json", "--schema", "id INT", stdin=b"\n".join(lines),
        PYTHONPATH=str(tmp_path), PRESSES=str(presses), PYTHONUNBUFFERED=unbuffered,
    )  # fmt: skip
    assert done.code == 130, done.err
    assert done.err == f"{rows} rows ({rows} +I) of {records} records; {rows} records written to standard output\n"
    assert [json.loads(line)["data"]["id"] for line in done.lines] == list(range(rows))


def test_terminal_shows_progress(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_bytes(INSERT * 3000)
    with Terminal(*TO_OGG, *DECLARED, "--from-file", file, "--to-file", tmp_path / "out.jsonl") as terminal:
        code, text = terminal.end()
    assert code == 0
    assert "converting" in text
    assert "3,000 rows (3,000 +I) of 3,000 records; 3,000 records written to" in text


HOSTILE = "\x1b]0;owned\x07\x1b[31m\u202e\u009b2J[bold]x[/bold]"


def test_output_cannot_control_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"type": "insert", "data": {"id": 1, "name": HOSTILE}}, ensure_ascii=False) + "\n")
    run = (*TO_OGG, *DECLARED, "--from-file", file)
    with Terminal(*run, columns=400) as terminal:
        code, text = terminal.end()
    assert code == 0
    line = text.splitlines()[0]
    assert not set(line) & set("\x1b\x07\u202e\u009b")
    assert json.loads(line)["after"]["name"] == HOSTILE
    assert json.loads(quick(*run).out)["after"]["name"] == HOSTILE


def test_errors_about_a_hostile_message_cannot_control_a_terminal(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    file.write_text(json.dumps({"type": HOSTILE, "data": {HOSTILE: 1}}, ensure_ascii=False) + "\n")
    for arguments in ([*DECLARED], ["--schema", "id INT", "--errors", "show"]):
        with Terminal(*TO_OGG, *arguments, "--from-file", file, columns=400) as terminal:
            _, text = terminal.end()
        assert "UNKNOWN_OPERATION" in text
        assert not set(text) & set("\x07\u202e\u009b")
        assert "\x1b]" not in text
