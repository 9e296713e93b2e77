"""``cdc tail`` on a real broker: recorded and live topics, in pipes and in terminals."""

import json
import re
import shlex
import subprocess
from typing import Any

import pytest

from cdc_formats import Ignored, get_format
from cdc_formats.testing import render
from normalize.local_kafka import LocalKafka, ProducerRecord
from tests.support.commands import CDC, Terminal, cdc, environment, interrupted, quick, running
from tests.support.databases import maxwell
from tests.support.paths import RECORDS
from tests.support.replay.replaying import read_recording
from tests.support.streams import new_topic

pytestmark = pytest.mark.kafka

DECLARED = ("-f", "maxwell-json", "--schema", "id INT, name STRING", "--primary-key", "id")
CUSTOMERS = "dbz34-mariadb-json.inventory.customers"
PRODUCER = {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive_time_microseconds"}
SCHEMA = (
    "id INT, name STRING, email STRING, balance DECIMAL(20,4), created TIMESTAMP(3), updated "
    "TIMESTAMP_NTZ(6)"
)


def message(kind: str, id: int, name: str, old: str | None = None) -> bytes:
    changed = {} if old is None else {"old": {"name": old}}
    return json.dumps(
        {"type": kind, "data": {"id": id, "name": name}, **changed}, ensure_ascii=False
    ).encode()


def story(count: int) -> list[tuple[bytes, bytes]]:
    """Return the records of `count` rows; each row is inserted and renamed."""
    return [
        (str(id).encode(), value)
        for id in range(count)
        for value in (
            message("insert", id, f"name {id}"),
            message("update", id, f"renamed {id}", f"name {id}"),
        )
    ]


@pytest.fixture
def topic(kafka: Any) -> str:
    """An empty topic of one partition."""
    return new_topic(kafka, [])


@pytest.fixture
def run(kafka: Any, topic: str) -> tuple[str, ...]:
    """The command that prints the rows of the topic."""
    return ("tail", topic, "-b", kafka.bootstrap_servers, *DECLARED, "--no-follow")


@pytest.fixture(scope="module")
def customers(kafka: Any) -> str:
    """A topic recorded from Debezium."""
    name = f"cli-{CUSTOMERS}"
    kafka.load_recording(RECORDS / f"{CUSTOMERS}.jsonl.gz", name)
    return name


def options() -> list[str]:
    return [part for name, value in PRODUCER.items() for part in ("-o", f"{name}={value}")]


def test_recorded_topic_shows_the_same_rows_as_the_library(kafka: Any, customers: str) -> None:
    done = cdc(
        "tail", customers, "-b", kafka.bootstrap_servers, "-f", "debezium-json", *options(), "--schema", SCHEMA, "--primary-key", "id",
        "--from", "beginning", "--no-follow", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    decoder = get_format("debezium-json", **PRODUCER).decoder(SCHEMA)
    expected: list[tuple[int, str]] = []
    for record in read_recording(RECORDS / f"{CUSTOMERS}.jsonl.gz"):
        decoded = decoder.decode(record.key, record.value)
        expected += (
            []
            if isinstance(decoded, Ignored)
            else [(0, line) for line in render(decoded, decoder.columns)]
        )
    again = get_format("changelog-json").decoder(SCHEMA)
    shown = [
        (json.loads(line)["partition"], render(again.decode(None, line.encode()), again.columns)[0])
        for line in done.lines
    ]
    assert len(shown) > 3000
    assert shown == expected
    assert re.search(
        rf"^{len(shown):,} rows .* of 3,828 records, \d+ ignored \(TOMBSTONE\)$",
        done.err,
        re.MULTILINE,
    )
    assert "ignored TOMBSTONE in" not in done.err, "they are counted, and not listed"


def test_rows_in_a_pipe_are_tab_separated_and_the_schema_is_inferred(
    kafka: Any, customers: str
) -> None:
    done = cdc(
        "tail",
        customers,
        "-b",
        kafka.bootstrap_servers,
        "-f",
        "debezium-json",
        "--from",
        "2",
        "--max",
        "3",
    )
    assert done.code == 0, done.err
    assert done.lines[0] == "op\tid\tname\temail\tbalance\tcreated\tupdated"
    assert [line.split("\t")[:2] for line in done.lines[1:]] == [
        ["+I", "754"],
        ["+I", "756"],
        ["+I", "758"],
    ]
    assert "--schema 'id BIGINT NOT NULL, name STRING" in done.err
    assert "3 rows (3 +I) of 3 records" in done.err
    assert "\x1b" not in done.out + done.err


def test_printed_options_of_an_inferred_schema_can_be_pasted(kafka: Any, topic: str) -> None:
    value = {"database": "d", "table": "it's", "type": "insert", "data": {"id": 1, "it's": "a"}}
    kafka.produce(
        topic, [(b'{"database": "d", "table": "it\'s", "pk.id": 1}', json.dumps(value).encode())]
    )
    run = ("tail", topic, "-b", kafka.bootstrap_servers, "-f", "maxwell-json", "--no-follow")
    first = quick(*run)
    pasted = shlex.split(
        " ".join(line for line in first.err.splitlines() if line.startswith("  --"))
    )
    assert pasted == ["--schema", "id BIGINT NOT NULL, `it's` STRING", "--primary-key", "id"]
    second = quick(*run, *pasted)
    assert (second.code, second.out) == (0, first.out)
    assert "inferred" not in second.err


def test_an_update_without_a_before_image_is_an_error_that_names_the_normalize_option(
    kafka: Any, topic: str
) -> None:
    values = [
        {"op": "c", "before": None, "after": {"id": 1}},
        {"op": "u", "before": None, "after": {"id": 1}},
    ]
    kafka.produce(topic, [(None, json.dumps(value).encode()) for value in values])
    done = quick(
        "tail",
        topic,
        "-b",
        kafka.bootstrap_servers,
        "-f",
        "debezium-json",
        "--schema",
        "id INT",
        "--no-follow",
        "--errors",
        "fail",
    )
    assert done.code == 1
    assert "[MISSING_BEFORE_IMAGE]" in done.err
    assert "--normalize" in done.err


def test_start_and_end_positions(kafka: Any, topic: str) -> None:
    kafka.produce(
        topic,
        [
            ProducerRecord(None, message("insert", id, "x"), 0, 1_700_000_000_000 + id * 1000)
            for id in range(100)
        ],
    )

    def ids(*arguments: object) -> list[int]:
        done = quick(
            "tail",
            topic,
            "-b",
            kafka.bootstrap_servers,
            *DECLARED,
            "--no-follow",
            "--json",
            *arguments,
        )
        assert done.code == 0, done.err
        return [json.loads(line)["data"]["id"] for line in done.lines]

    expected: dict[str, list[int]] = {
        "": list(range(90, 100)),
        "--from beginning": list(range(100)),
        "--from 97": [97, 98, 99],
        "--from -2": [98, 99],
        "--from 2023-11-14T22:14:55Z": [95, 96, 97, 98, 99],
        "--from 2030-01-01T00:00:00Z": [],
        "--from end": [],
        "--from 3 --max 2": [3, 4],
        "--from beginning --where-key id=42": [42],
    }
    assert {arguments: ids(*arguments.split()) for arguments in expected} == expected


def test_partition_and_key_filters(kafka: Any) -> None:
    topic = new_topic(
        kafka,
        [ProducerRecord(None, message("insert", id, "x"), id % 3) for id in range(9)],
        partitions=3,
    )
    run = ("tail", topic, "-b", kafka.bootstrap_servers, *DECLARED, "--no-follow")
    assert [line.split("\t")[1] for line in quick(*run, "--partition", "1").lines[1:]] == [
        "1",
        "4",
        "7",
    ]
    assert sorted(quick(*run, "--partition", "0", "--partition", "2").lines[1:]) == [
        f"+I\t{id}\tx" for id in (0, 2, 3, 5, 6, 8)
    ]
    assert "has no partition 7; it has 0, 1, 2" in quick(*run, "--partition", "7").err
    assert quick(*run, "--where-key", "name=x").code == 2


def test_normalized_changelog_has_no_duplicates(kafka: Any, topic: str) -> None:
    values = [
        *[message("insert", 1, "a")] * 2,
        message("insert", 1, "b"),
        message("delete", 7, "z"),
    ]
    kafka.produce(topic, [(b"1", value) for value in values])
    done = quick(
        "tail", topic, "-b", kafka.bootstrap_servers, *DECLARED, "--no-follow", "--normalize"
    )
    assert done.lines[1:] == ["+I\t1\ta", "-U\t1\ta", "+U\t1\tb"]


def test_the_format_is_detected_from_a_sample(kafka: Any, customers: str, topic: str) -> None:
    run = (
        "tail",
        customers,
        "-b",
        kafka.bootstrap_servers,
        "--no-follow",
        *options(),
        "--schema",
        SCHEMA,
        "--primary-key",
        "id",
    )
    done = quick(*run)
    assert done.code == 0, done.err
    assert done.err.startswith(
        "detected -f debezium-json: 842 of 842 values have before, after, op"
    )
    assert len(done.lines) > 1
    assert done.out == quick(*run, "-f", "debezium-json").out
    kafka.produce(topic, [(None, b"plain text")])
    failed = quick("tail", topic, "-b", kafka.bootstrap_servers, "--no-follow")
    assert failed.code == 1
    assert f"the format of {topic} is not known: no format reads most of the 1 values" in failed.err
    assert f"Pass -f, or see `cdc profile {topic}`" in failed.err


def test_all_tables_of_a_topic_are_shown_with_their_names(kafka: Any, topic: str) -> None:
    messages = [
        maxwell("orders", "insert", {"id": 1, "qty": 5}),
        maxwell("items", "insert", {"id": 7, "name": "pen"}),
        maxwell("orders", "delete", {"id": 1, "qty": 5}),
    ]
    kafka.produce(topic, messages)
    run = ("tail", topic, "-b", kafka.bootstrap_servers, "--no-follow")
    done = quick(*run)
    assert done.code == 0, done.err
    assert [line.split("\t") for line in done.lines] == [
        ["op", "table", "id", "qty", "name"],
        ["+I", "shop.orders", "1", "5", ""],
        ["+I", "shop.items", "7", "", "pen"],
        ["-D", "shop.orders", "1", "5", ""],
    ]
    assert f"{topic} has 2 tables (shop.orders, shop.items)" in done.err
    one = quick(*run, "-o", "table_include=items")
    assert [line.split("\t") for line in one.lines][1:] == [["+I", "7", "pen"]]
    as_json = quick(*run, "--json")
    assert as_json.code == 1
    assert "the topic has several tables" in as_json.err


def test_a_wrong_format_is_an_error_that_names_the_right_one(kafka: Any, topic: str) -> None:
    kafka.produce(topic, [maxwell("orders", "insert", {"id": 1})])
    done = quick("tail", topic, "-b", kafka.bootstrap_servers, "--no-follow", "-f", "canal-json")
    assert done.code == 1
    assert "The records look like maxwell-json: " in done.err


def test_topics_are_listed_with_their_formats_and_tables(kafka: Any, topic: str) -> None:
    kafka.produce(topic, [maxwell("orders", "insert", {"id": 1})])
    empty = new_topic(kafka, [], partitions=3)
    avro = new_topic(kafka, [])
    kafka.produce(avro, [(None, b"\0\0\0\0\7\2\4ab")])
    plain = new_topic(kafka, [(b'{"id": 1}', b'{"id": 1, "name": "a"}')])
    done = quick("topics", f"{topic}|{empty}|{avro}|{plain}", "-b", kafka.bootstrap_servers)
    assert done.code == 0, done.err
    rows = sorted(line.split("\t") for line in done.lines[1:])
    framed = "Confluent framing (Avro or Protobuf): see cdc profile"
    assert rows == sorted(
        [
            [topic, "1", "1", "maxwell-json", "shop.orders"],
            [empty, "3", "0", "empty", ""],
            [avro, "1", "1", framed, ""],
            [plain, "1", "1", "upsert-kafka?", ""],  # any JSON object could be one
        ]
    )
    listed = json.loads(quick("topics", topic, "-b", kafka.bootstrap_servers, "--json").out)
    assert [each["tables"] for each in listed] == [["shop.orders"]]


def test_a_long_read_shows_its_rate_and_what_is_left(kafka: Any, topic: str) -> None:
    kafka.produce(topic, story(30_000))
    run = (
        "tail",
        topic,
        "-b",
        kafka.bootstrap_servers,
        *DECLARED,
        "--no-follow",
        "--from",
        "beginning",
        "--where-key",
        "id=29999",
    )
    with Terminal(*run) as terminal:
        code, text = terminal.end()
    assert code == 0
    assert re.search(rf"{topic}: [\d,]+ of 60,000 records, [\d,]+/s, [\d,]+ behind\r\x1b\[2K", text)
    # The table stands alone.
    assert [
        line for line in re.sub(r".*\r\x1b\[2K", "", text).splitlines() if "behind" in line
    ] == []
    assert cdc(*run).err == "3 rows (1 +I, 1 -U, 1 +U) of 60,000 records\n"


def test_ignored_and_corrupt_records_are_reported_in_order(kafka: Any, topic: str) -> None:
    values = [
        message("insert", 1, "a"),
        b'{"type": "table-create"}',
        b"{",
        message("insert", 2, "b"),
    ]
    kafka.produce(topic, [(None, value) for value in values])
    run = (
        "tail",
        topic,
        "-b",
        kafka.bootstrap_servers,
        *DECLARED,
        "--no-follow",
        "--from",
        "beginning",
    )
    both = subprocess.run(
        [*CDC, *run],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(),
        check=True,
    )
    lines = both.stdout.splitlines()
    assert lines[:3] == ["op\tid\tname", "+I\t1\ta", f"ignored DDL in {topic}[0]@1"]
    assert lines[3].startswith("[MALFORMED_MESSAGE]")
    assert f"the value in {topic}[0]@2" in lines[3]
    assert lines[4:] == [
        "+I\t2\tb",
        "2 rows (2 +I) of 4 records, 1 corrupt (MALFORMED_MESSAGE), 1 ignored (DDL)",
    ]
    skipped = quick(*run, "--errors", "skip")
    assert (skipped.code, skipped.err) == (
        0,
        "2 rows (2 +I) of 4 records, 1 corrupt (MALFORMED_MESSAGE), 1 ignored (DDL)\n",
    )
    failed = quick(*run, "--errors", "fail")
    assert (failed.code, failed.lines[1:]) == (1, ["+I\t1\ta"])
    assert failed.err.splitlines()[-1].startswith("error: [MALFORMED_MESSAGE]")


def test_live_topic_is_followed_until_ctrl_c(kafka: Any, topic: str) -> None:
    kafka.produce(topic, [(b"1", message("insert", 1, "a"))])
    with running("tail", topic, "-b", kafka.bootstrap_servers, *DECLARED) as process:
        assert process.stdout.readline() == b"op\tid\tname\n"
        assert process.stdout.readline() == b"+I\t1\ta\n"
        kafka.produce(topic, [(b"1", message("update", 1, "b", "a"))])
        assert process.stdout.readline() == b"-U\t1\ta\n"
        assert process.stdout.readline() == b"+U\t1\tb\n"
        done = interrupted(process)
    assert done.code == 130
    assert done.err.splitlines()[-1] == "3 rows (1 +I, 1 -U, 1 +U) of 2 records"
    assert "Traceback" not in done.err


def test_closed_pipe_ends_tail_without_an_error(kafka: Any, topic: str) -> None:
    kafka.produce(topic, story(3000))
    command = " ".join(
        [
            *CDC,
            "tail",
            topic,
            "-b",
            kafka.bootstrap_servers,
            "-f",
            "maxwell-json",
            "--schema",
            "'id INT, name STRING'",
        ]
    )
    line = f"{command} --from beginning | head -2; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, env=environment(), check=True
    )
    assert done.stdout.splitlines() == ["op\tid\tname", "+I\t0\tname 0", "141"]
    assert done.stderr == ""


def test_rows_in_a_terminal_are_a_table_with_a_colour_for_each_kind_unless_turned_off(
    kafka: Any, topic: str, run: tuple[str, ...]
) -> None:
    kafka.produce(topic, [*story(1), (b"0", message("delete", 0, "renamed 0"))])
    with Terminal(*run, columns=60) as terminal:
        code, text = terminal.end()
    assert code == 0
    colours = {kind: code for code, kind in re.findall(r"\x1b\[(\d+)m ([+-][IUD]) ", text)}
    assert colours == {"+I": "32", "-U": "33", "+U": "93", "-D": "31"}
    assert "| op |" in re.sub(r"\x1b\[[\d;]*m", "", text)
    off: list[tuple[tuple[str, ...], dict[str, str]]] = [
        ((), {"NO_COLOR": "1"}),
        (("--color", "never"), {}),
        ((), {"TERM": "dumb"}),
    ]
    for more, env in off:
        with Terminal(*run, *more, **env) as terminal:
            _, text = terminal.end()
        assert "+I" in text
        assert not re.search(r"\x1b\[(?:\d+;)*(?:3|4|9)\d", text)
    assert "\x1b[32m +I " in cdc(*run, "--color", "always").out
    assert "\x1b" not in cdc(*run).out


def test_rows_that_do_not_fit_a_terminal_are_shown_column_by_column(kafka: Any, topic: str) -> None:
    names = [f"column {n}" for n in range(12)]
    wide = json.dumps(
        {"type": "insert", "data": {name: f"日本語 value {name} " * 9 for name in names}},
        ensure_ascii=False,
    )
    kafka.produce(topic, [(None, wide.encode())])
    run = (
        "tail",
        topic,
        "-b",
        kafka.bootstrap_servers,
        "-f",
        "maxwell-json",
        "--no-follow",
        "--color",
        "never",
    )
    for columns, more in ((30, ()), (80, ()), (400, ("-x",)), (400, ())):
        with Terminal(*run, *more, columns=columns) as terminal:
            code, text = terminal.end()
        assert code == 0
        lines = text[
            text.index("-[ +I ]") if columns < 400 or more else text.index("+--") :
        ].splitlines()[:-1]
        assert max(len(line) + len(re.findall("[日本語]", line)) for line in lines) <= columns
        if columns < 400 or more:
            assert [
                line.partition("|")[0].strip() for line in lines[1:] if line.startswith("column")
            ] == names
            assert "…" not in text
        else:
            assert len(lines) == 5


def test_table_fits_again_after_the_terminal_is_resized(kafka: Any, topic: str) -> None:
    kafka.produce(topic, [(None, message("insert", 1, "x" * 60))])
    with Terminal("tail", topic, "-b", kafka.bootstrap_servers, *DECLARED, columns=100) as terminal:
        terminal.read_until("x…")
        terminal.resize(30)
        kafka.produce(topic, [(None, message("insert", 2, "y" * 60))])
        text = terminal.read_until("y…")
    assert text.count(" name ") == 2


HOSTILE = "\x1b]0;owned\x07\x1b[2J\u202e\u009b31m[red]x[/red]\r\n\t:smile:"


def test_hostile_message_cannot_control_a_terminal(
    kafka: Any, topic: str, run: tuple[str, ...]
) -> None:
    kafka.produce(
        topic,
        [
            (None, message("insert", 1, HOSTILE)),
            (None, message(HOSTILE, 1, "x")),
            (None, message("insert", 2, "plain")),
        ],
    )
    for more in ((), ("--json",)):
        with Terminal(*run, *more, columns=300) as terminal:
            code, text = terminal.end()
        assert code == 0
        assert not set(text) & set("\x07\u202e\u009b\t")
        assert not re.search(r"\x1b(?!\[[\d;]*m)", text)
        assert "[red]x[/red]" in text
        assert ":smile:" in text
    piped = cdc(*run)
    assert (
        piped.lines[1]
        == "+I\t1\t\\x1b]0;owned\\x07\\x1b[2J\\u202e\\x9b31m[red]x[/red]\\r\\n\\t:smile:"
    )
    assert len(piped.lines) == 3


def test_lost_broker_is_reported_and_waited_for() -> None:
    with LocalKafka() as kafka:
        kafka.create_topic("orders")
        kafka.produce("orders", [(b"1", message("insert", 1, "a"))])
        with running("tail", "orders", "-b", kafka.bootstrap_servers, *DECLARED) as process:
            assert [process.stdout.readline(), process.stdout.readline()] == [
                b"op\tid\tname\n",
                b"+I\t1\ta\n",
            ]
            assert process.stderr.readline().startswith(b"starting with the last 10 records")
            kafka.stop()
            assert process.stderr.readline() == b"no Kafka broker answers: waiting for one\n"
            assert interrupted(process).code == 130


def test_a_profile_is_shown_as_text_as_json_and_in_a_terminal(kafka: Any, customers: str) -> None:
    run = ("profile", customers, "-b", kafka.bootstrap_servers, "--sample", "100")
    text = quick(*run)
    assert text.code == 0
    assert "debezium-json" in text.out
    assert "\x1b" not in text.out
    assert (
        json.loads(quick(*run, "--json", "-f", "upsert-kafka", "-o", "json_null=delete").out)[
            "format"
        ]
        == "upsert-kafka"
    )
    with Terminal(*run, columns=80) as terminal:
        code, shown = terminal.end()
    assert code == 0
    assert "debezium-json" in shown
    assert "\x1b[" in shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(
        line.strip() in plain for line in text.out.splitlines() if line.startswith("  # ")
    )  # the open questions, not cut


@pytest.mark.parametrize("command", [["tail"], ["tail", *DECLARED], ["profile"]])
def test_a_topic_that_does_not_exist_is_an_error_with_the_nearest_name(
    kafka: Any, customers: str, command: list[str]
) -> None:
    name = customers.replace("customers", "custmers")
    done = quick(*command, name, "-b", kafka.bootstrap_servers)
    assert done.code == 1
    last = done.err.splitlines()[-1]
    assert last.startswith(f"error: [UNKNOWN_TOPIC] topic '{name}' does not exist")
    assert f"Did you mean '{customers}'" in done.err
