"""The benchmarks: their arithmetic, the records that they make, and the damage that they find."""

import json
import sqlite3
from functools import partial
from operator import attrgetter
from pathlib import Path

import pytest

from bench import by_hand, capture, costs, flink, whole
from bench.__main__ import parse
from bench.capture_runs import JVM, PYTHON, Run as CaptureRun, Usage, Watch
from bench.capture_source import Source as CaptureSource
from bench.cpu import Process, cpu_seconds, interpolated, microseconds, parsed, spent
from bench.flink_cdc import ivy_module
from bench.history import SCHEMA, Expected
from bench.settings import settings_of
from bench.soak import Sample, peaks_of_quarters, require_flat
from bench.spark import MicroBatch
from bench.steady import KindCounter, Run, Side, boundary, require_counts
from bench.tables import Source
from bench.topics import FORMATS, PARTITIONS, producer_of, records
from bench.tpcc.__main__ import folder_of, parse as parse_tpcc
from bench.tpcc.conditions import CONDITIONS, violations
from bench.tpcc.flink_copy import statements
from bench.tpcc.live import Outcome, committed
from bench.tpcc.results import (
    Differences,
    Lag,
    Readable,
    Result,
    Trial,
    grows,
    lags_of,
    next_rate,
    percentiles,
    quarters_of,
    report,
    require_flat_lag,
    sustained_rate,
    verdict,
)
from bench.tpcc.tables import TABLES
from cdc_formats import get_format
from demo.report import aligned
from tests.support.error_texts import text_test

MB = 1 << 20
RIGHT = {"stock": Differences(100, 0, 0), "orders": Differences(20, 0, 0)}
OURS = Side(750, [1.5, 0.75, 3.0], {"Spark JVM": 30.0, "Python workers": 10.5, "broker": 2.0})
THEIRS = Side(750, [0.75, 0.75, 0.75], {"Flink JVM": 15.0})
SAMPLES = [(10.0, {"broker": 1.0}), (12.0, {"broker": 2.0, "Flink JVM": 8.0})]
PROCESSES = {
    1: Process(0, "init", 99.0),
    10: Process(1, "python -m bench", 1.0),
    11: Process(10, "python local_kafka.py --guard java kafka.Kafka", 0.5),
    12: Process(11, "java kafka.Kafka", 2.0),
    13: Process(10, "java org.apache.spark.deploy.SparkSubmit", 4.0),
    14: Process(13, "python -m pyspark.daemon", 0.25),
    15: Process(14, "python -m pyspark.daemon", 8.0),
    20: Process(1, "java kafka.Kafka", 50.0),
}
# Started at 0, running at 2 s with 100 rows; then 300 rows in 3 s, 600 in 2 s.
CAPTURED = CaptureRun(
    0, (2_000, 100), [(2_000, 100), (5_000, 400), (7_000, 1_000)], {"+I": (1000, 1, 1)}
)
USAGE = Usage({JVM: 1.0}, {JVM: 3 * MB, PYTHON: MB}, (MB, 2 * MB))
SAWTOOTH = [(float(when), 2 + when % 5) for when in range(60)]
KILLS = {"driver": 2, "broker": 0}
DELTA = Result(
    name="delta",
    snapshot_seconds=40.2,
    trials=[Trial(500, True), Trial(1000, True)],
    exhausted=True,
    rate=500,
    lag=Lag(4.06, 5, 6),
    cpu={"Spark JVM": 1234.5},
    memory={"Python workers": 100 * MB, "Spark JVM": 3 << 30},
    files=12,
    written=5000,
    changes=100,
    differences=RIGHT,
    violations={"3.3.2.1": 1},
)
READABLE = [
    Readable(0, 5, 9.0),  # before
    Readable(0, 6, 13.0),
    Readable(1, 99, 14.0),  # another table
    Readable(2, 8, 15.0),
    Readable(0, 9, 16.0),  # more than were sent now
]


def cells(lines, first=-1, last=None):
    """Return the cells of a table's last lines."""
    return [line.split() for line in list(lines)[first:last]]


EIGHT = Run([MicroBatch(number, 100, 10.0 * number, 10.0 * number + 9) for number in range(8)], {})
COUNTER = KindCounter()
COUNTER.rows_until = {number: 150 * (number + 1) for number in range(8)}
TIMES = "100 20 3 4"
STAT = f"77 (a (b) c) S 5 77 77 0 -1 4194304 1 2 3 4 {TIMES} 20 0 1 0 123"
JAVA = parsed(STAT, "java\0kafka.Kafka\0")


FIGURES = {
    "half is the nearest to a quarter": (boundary([100, 100]), 1),
    "a quarter of one micro-batch": (boundary([100]), 0),
    "a few messages more than a quarter": (boundary([250_004] * 15 + [249_940]), 4),
    "a few messages less than a quarter": (boundary([249_996] * 16 + [64]), 4),
    "cpu between two samples": (
        interpolated(SAMPLES, 10.5),
        {"broker": 1.25, "Flink JVM": 2.0},
    ),
    "cpu before the samples": (interpolated(SAMPLES, 9.0), {"broker": 1.0}),
    "cpu after the samples": (interpolated(SAMPLES, 13.0), {"broker": 2.0, "Flink JVM": 8.0}),
    "cpu of the descendants": (
        cpu_seconds(10, PROCESSES),
        {"broker": 2.5, "Spark JVM": 4.0, "Python workers": 8.25},
    ),
    "cpu of a message is the median of the runs": (
        microseconds([spent({"a": 1.0}, {"a": each}) for each in (2.0, 3.0, 9.0)], 1_000_000),
        {"a": 2.0},
    ),
    "cpu of a process that ends is not subtracted": (
        spent({"JVM": 5.0, "Python": 7.0}, {"JVM": 6.5}, {"JVM": 7.0, "Python": 1.5, "a": 1.0}),
        {"JVM": 2.0, "Python": 1.5, "a": 1.0},
    ),
    "costs that each step adds": (
        cells(
            costs.table({"read": costs.Cost(10.0, 0.0), "decode": costs.Cost(12.5, 8.0)}), first=1
        ),
        [
            ["read", "10.0", "0.0", "10.0"],
            ["decode", "2.5", "8.0", "10.5"],
            ["all", "12.5", "8.0", "20.5"],
        ],
    ),
    "a table without Flink and without cpu": (
        cells(
            whole.table(
                [whole.Comparison("ogg-json", "heap", "a+b", 1, Side(1000, [2.0], {}), None)]
            )
        ),
        [["ogg-json", "heap", "a+b", "500", "-", "-", "500"]],
    ),
    "a table of recipes": (
        cells(
            whole.recipe_table(
                [by_hand.Recipe("MERGE", 1000, Side(750, [1.5], {"Spark JVM": 30.0}))]
            )
        ),
        [["MERGE", "1,000", "500", "30.0", "-", "-", "30.0", "500"]],
    ),
    "no recipes": (list(whole.recipe_table([])), []),
    "a table of captures counts events of several rows": (
        cells(capture.table_lines("log", [capture.Line("ours", 1, [CAPTURED], USAGE)], rows=2)),
        [["ours", "1", "71", "90", "2,000.0", "-", "-", "3", "1", "50", "150", "1", "2"]],
    ),
    "usage of a run shorter than a sample": (
        Watch(None).usage(CAPTURED),
        Usage({}, {}, (0.0, 0.0)),
    ),
    "peaks of quarters, with what comes after the time in the last": (
        peaks_of_quarters(
            [
                *(Sample(0, 5, 1), Sample(9, 7, 3), Sample(11, 2, 2), Sample(19, 1, 4)),
                *(Sample(20, 6, 0), Sample(31, 1, 1), Sample(55, 9, 2)),
            ],
            40,
        ),
        [(7, 3), (2, 4), (6, 0), (9, 2)],
    ),
    "a rate above one that failed": (
        sustained_rate([Trial(100, True), Trial(200, False), Trial(400, True)]),
        100,
    ),
    "no rate": (sustained_rate([Trial(100, False)]), 0),
    "a lag like a sawtooth": (grows(SAWTOOTH), False),
    "a lag to which a fifth is added": (
        grows([(at, lag + 0.2 * at) for at, lag in SAWTOOTH]),
        True,
    ),
    "a lag until micro-batches have their size": (
        grows([(at, min(at, 15) + lag) for at, lag in SAWTOOTH]),
        False,
    ),
    "one lag": (grows([(1.0, 5.0)]), False),
    "a lag ends when its record is readable": (
        lags_of({0: [10.0, 11.0, 12.0], 2: [10.5]}, {0: 5, 2: 7}, READABLE),
        [(10.0, 3.0), (10.5, 4.5), (11.0, 5.0), (12.0, 4.0)],
    ),
    "percentiles": (percentiles(range(100)), Lag(50, 95, 99)),
    "percentiles of one lag": (percentiles([3.0]), Lag(3, 3, 3)),
    "quarters": (
        [each.p50 for each in quarters_of([(float(at), float(at // 25)) for at in range(100)])],
        [0, 1, 2, 3],
    ),
    "equal tables": (
        verdict(RIGHT, {"3.3.2.1": 0}),
        "right: 120 rows of 2 tables equal the source's, 1 conditions hold",
    ),
    "rows that differ": (
        verdict(RIGHT | {"stock": Differences(100, 2, 1)}, {"3.3.2.1": 0}),
        "WRONG: stock: 2 rows of the source are missing or different, 1 rows are not of the source",
    ),
    "a violated condition": (
        verdict(RIGHT, {"3.3.2.1": 3}),
        "WRONG: condition 3.3.2.1: 3 rows violate it",
    ),
    "an outcome": (
        Outcome(KILLS, {"stock": True}, {"3.3.2.1": 0}, "").sentence,
        "right after 2 kills (driver 2): verify_table found 1 tables equal, 1 conditions hold",
    ),
    "wrong outcomes": (
        [
            Outcome(KILLS, {"stock": equal}, {"3.3.2.1": count}, "").sentence.partition(": ")[0]
            for equal, count in ((None, 0), (False, 0), (True, 1))
        ],
        ["WRONG after 2 kills (driver 2)"] * 3,
    ),
    "a report of a copy": (
        [*report([DELTA])][2:],
        [
            "| delta | 40 s | at least 1,000 | 500 | 4.1 s | 5.0 s | 6.0 s | Spark JVM 1,234 "
            "| Python workers 100, Spark JVM 3,072 | 12 | 50 | WRONG |"
        ],
    ),
    "columns of a report": ({line.count("|") for line in report([DELTA])}, {13}),
    "numbers on the right, and control codes": (
        cells(aligned([["name", "rows"], ["a\x1b[31m", 5], [None, "1,234"], ["x" * 100, 12]]), 0),
        [["name", "rows"], [r"a\x1b[31m", "5"], ["NULL", "1,234"], ["x" * 57 + "...", "12"]],
    ),
    "rates with the start and without": (
        [round(rate, 3) for rate in (CAPTURED.whole_rate, CAPTURED.running_rate)],
        [142.857, 180],
    ),
    "rates between shares": (
        [round(CAPTURED.rate_between(*each)) for each in ((0.0, 0.1), (0.9, 1.0), (0.0, 1.0))],
        [100, 300, 180],
    ),
    "a table of both sides and their ratio": (
        [
            " ".join(line)
            for line in cells(
                whole.table([whole.Comparison("canal-json", "heap", "plain", 1000, OURS, THEIRS)]),
                0,
            )
            if line[:1] == ["canal-json"]
        ],
        [
            "canal-json heap plain 500 1,000 0.50 500 1,000 250 | 1,000 1,000 1,000",
            "canal-json heap plain 30.0 10.5 2.0 42.5 15.0 - 15.0",
        ],
    ),
    "the measured part begins at the boundary": (
        (EIGHT.messages, EIGHT.measured, COUNTER.rows_before(EIGHT)),
        (800, EIGHT.batches[2:], 300),
    ),
    "a run of one micro-batch is measured whole": (
        COUNTER.rows_before(Run(EIGHT.batches[:1], {})),
        0,
    ),
    "a process whose name has spaces and parentheses": (
        (JAVA.parent, JAVA.command, JAVA.seconds > 0),
        (5, "java kafka.Kafka ", True),
    ),
    "the times of a process are added": (
        round(parsed(STAT.replace(TIMES, "0 0 0 127"), "").seconds, 3),
        round(JAVA.seconds, 3),
    ),
    "plain settings": (
        settings_of("plain", "debezium-json"),
        ({"decimal_handling_mode": "string"}, {}, "arrival"),
    ),
    "settings are the arguments of the reader": (
        settings_of("metadata+validate+source", "debezium-json"),
        (
            {"decimal_handling_mode": "string", "validate": True},
            {
                "event_time": "source.timestamp",
                "source_table": "source.table",
                "kafka_partition": "partition",
                "kafka_offset": "offset",
            },
            "source",
        ),
    ),
    "the formats of a comparison": (
        attrgetter("format", "flink", "state")(
            parse(["--format", "canal-json,upsert-kafka", "--flink", "--state", "both"])
        ),
        (("canal-json", "upsert-kafka"), True, "both"),
    ),
    "the default format": (parse([]).format, ("debezium-json",)),
    "the options of a capture": (
        attrgetter("parallelism", "chunk_size", "flink")(capture.parse(["--parallelism", "1,2,8"])),
        ((1, 2, 8), 8096, True),
    ),
    "what is killed": (
        parse_tpcc(["live", "--kill", "driver,broker"]).kill,
        ("driver", "broker"),
    ),
    "ways to copy": (parse_tpcc(["--ways", "hand,flink"]).ways, ("hand", "flink")),
    "the folder of a recording": (
        folder_of(parse_tpcc(["record", "--minutes", "0.5"])).name,
        "mariadb-1-0.5",
    ),
    "the password of a source is not shown": (
        "secret" in repr(CaptureSource("db", 3306, "cdc", "secret")),
        False,
    ),
    "the statements of Flink are lines": (
        [
            line.count("\n")
            for line in statements("broker:1", "jdbc:postgresql://h/d", "me", "it's")
        ],
        [0] * 3 * len(TABLES),
    ),
    "the width of aligned lines": (len({*map(len, aligned([["a", 1], ["bb", 12]]))}), 1),
}
"""Each figure, and what it must be."""


@pytest.mark.parametrize(("figure", "expected"), FIGURES.values(), ids=FIGURES)
def test_figures(figure, expected):
    assert figure == expected


@pytest.mark.parametrize(
    ("check", "right", "wrong", "text"),
    [
        pytest.param(
            lambda theirs: require_counts("Flink's", ({"+I": 1}, theirs), ({"+I": 1}, {"+I": 7})),
            {"+I": 7},
            {"+I": 8},
            "Flink's rows by kind",
            id="counts",
        ),
        pytest.param(
            lambda last: require_flat_lag([Lag(9, 9, 9), Lag(4, 9, 9), Lag(4, 9, 9), last]),
            Lag(6, 9, 9),
            Lag(6.1, 9, 9),
            r"6\.1 s in the last quarter, and 4\.0 s in the second",
            id="lag",
        ),
        *(
            pytest.param(
                lambda last: require_flat([(0, 0), (100 * MB, 100 * MB), (0, 0), last]),
                (125 * MB, 100 * MB),
                (jvm * MB, python * MB),
                f"^the memory is not flat: in the last quarter, {text} than in the second one$",
                id=text,
            )
            for jvm, python, text in (
                (126, 100, "the JVM has 26% more"),
                (100, 150, "the Python workers have 50% more"),
                (200, 150, "the JVM has 100% more and the Python workers have 50% more"),
            )
        ),
    ],
)
def test_what_grows_or_differs_ends_the_run(check, right, wrong, text):
    check(right)
    with pytest.raises(SystemExit, match=text):
        check(wrong)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(
            ["--ways", "hand,fast"],
            "'fast' is not one of delta, iceberg, postgresql, mariadb, flink, hand",
            id="an unknown way",
        ),
        pytest.param(
            ["--format", "canal-json,avro"],
            "'avro' is not one of debezium-json",
            id="unknown format",
        ),
        pytest.param(
            ["--runs", "0"], "--runs must be at least 1, and --warm-up at least 0", id="no runs"
        ),
        pytest.param(
            ["--topic", "orders"],
            "--servers and --topic must be given together",
            id="a topic without a broker",
        ),
        pytest.param(
            ["--servers", "a:1", "--topic", "t", "--format", "canal-json,upsert-kafka"],
            "--topic requires exactly one --format",
            id="two formats",
        ),
        pytest.param(
            ["--settings", "plain,metadata+fast"],
            "'fast' is not one of plain, metadata, validate",
            id="unknown settings",
        ),
        pytest.param(
            ["--settings", "source", "--format", "canal-json"],
            "--settings source cannot be combined with --format canal-json: ",
            id="a format without positions",
        ),
        pytest.param(
            ["--settings", "source", "--format", "maxwell-json"],
            "--settings source cannot be combined with --format maxwell-json: ",
            id="messages without positions",
        ),
        pytest.param(
            ["--settings", "metadata+validate", "--format", "upsert-kafka"],
            "upsert-kafka has no JSON Schema: remove validate=True",
            id="a format without a JSON Schema",
        ),
        pytest.param(
            ["--only", "costs", "--settings", "plain,native"],
            "--only costs measures the steps of key groups",
            id="other stages",
        ),
        pytest.param(
            ["--by-hand", "--format", "canal-json"],
            "--by-hand requires --format debezium-json",
            id="recipes of another format",
        ),
    ],
)
def test_parse_refuses_invalid_combinations(arguments, text, capsys):
    with pytest.raises(SystemExit):
        (parse_tpcc if "--ways" in arguments else parse)(arguments)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("format", FORMATS)
def test_records_decode_to_the_expected_table(format):
    expected, producer = Expected(), producer_of(format)
    upserts = get_format(format, **producer.options).decoder(SCHEMA, unique_key=["id"]).upserts
    made = list(records(producer, 2_000, 100, expected))
    changes = [(each, change) for each in made for change in upserts(each.key, each.value)]
    assert all(each.partition == change.key[0] % PARTITIONS for each, change in changes)
    last = {change.key[0]: change.row for _, change in changes}
    table = {key: row[1] for key, row in last.items() if row is not None}
    assert table == {key: row[1] for key, row in expected.table.items()}
    assert expected.rows["+I"] - expected.rows["-D"] == len(table)
    assert expected.rows["-U"] == expected.rows["+U"] > 0


def test_expected_counts_by_source_order_drop_redeliveries():
    arrival, source = Expected(), Expected("source")
    for change in [(1, 7, ("a",)), (2, 7, ("b",)), (1, 7, ("a",)), (3, 7, None), (2, 7, ("b",))]:
        arrival.take(*change)
        source.take(*change)
    assert arrival.rows == {"+I": 2, "-U": 2, "+U": 2, "-D": 1}
    assert (source.rows, source.table) == ({"+I": 1, "-U": 1, "+U": 1, "-D": 1}, {})


def test_messages_of_many_tables_decode_to_the_expected_versions():
    source = Source("shop", 2, 3)
    messages = [*source.inserts(), *(source.update() for _ in range(16)), *source.burst(2)]
    format = get_format("debezium-json")
    decoder = format.decoder("id INT, version INT, amount STRING", unique_key=["id"])
    rows = {
        (topic, change.row[0]): change.row
        for topic, key, value, _ in messages
        for change in decoder.upserts(key, value)
    }
    assert rows == {
        (topic, row): (row, version, f"{version}.50")
        for (topic, row), version in source.versions.items()
    }
    assert (source.messages, sum(source.versions.values())) == (26, 20)


test_texts = text_test(
    __file__,
    {
        "a source of upserts in Flink": partial(flink.source_table, "upsert-kafka", "a:1", "t"),
        "a source of Debezium in Flink": partial(flink.source_table, "debezium-json", "a:1", "t"),
        "Flink CDC's packages": ivy_module,
        "Flink's copy of a table": lambda: "\n".join(
            [*statements("broker:1", "jdbc:postgresql://h/d", "me", "it's")][9:12]
        ),
    },
)


ORDERS = 2102
"""One district: all orders but the last are delivered, one of them after the first load."""


@pytest.fixture(scope="module")
def consistent() -> sqlite3.Connection:
    database = sqlite3.connect(":memory:")
    for table in TABLES:
        columns = [f"{name} NUMERIC" for name in table.columns]
        database.execute(f"CREATE TABLE {table.name} ({', '.join(columns)})")
    orders = range(1, ORDERS + 1)
    database.execute("INSERT INTO warehouse (w_id, w_ytd) VALUES (1, 70)")
    database.execute(
        "INSERT INTO district (d_w_id, d_id, d_ytd, d_next_o_id) VALUES (1, 1, 70, 2103)"
    )
    database.executemany(
        "INSERT INTO customer (c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, c_delivery_cnt) "
        "VALUES (1, 1, ?, ?, ?, ?)",
        # 2101 delivered lines of 2 each, and 60 paid; a customer without orders has paid 10
        [(1, 2 * 2101 - 60, 60, 1), (2, -10, 10, 0)],
    )
    database.executemany(
        "INSERT INTO history (h_id, h_w_id, h_d_id, h_c_w_id, h_c_d_id, h_c_id, h_amount) "
        "VALUES (?, 1, 1, 1, 1, ?, ?)",
        [(1, 1, 10), (2, 1, 50), (3, 2, 10)],
    )
    database.executemany(
        "INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_carrier_id, o_ol_cnt) "
        "VALUES (1, 1, ?, 1, ?, 1)",
        [(number, None if number == ORDERS else 5) for number in orders],
    )
    database.executemany(
        "INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_amount, ol_delivery_d) "
        "VALUES (1, 1, ?, 1, 2, ?)",
        [(number, None if number == ORDERS else 1) for number in orders],
    )
    database.execute(f"INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (1, 1, {ORDERS})")
    database.commit()
    return database


@pytest.mark.parametrize(
    ("damage", "conditions"),
    [
        ("", set()),
        ("UPDATE warehouse SET w_ytd = 71", {"1", "8"}),
        ("DELETE FROM district", {"1"}),
        ("UPDATE district SET d_ytd = 71", {"1", "9"}),
        ("UPDATE district SET d_next_o_id = 2102", {"2"}),
        ("UPDATE new_order SET no_o_id = 2101", {"2", "5"}),
        ("INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES (1, 1, 2100)", {"3", "5", "11"}),
        ("DELETE FROM new_order", {"5", "11"}),
        ("UPDATE orders SET o_ol_cnt = 2 WHERE o_id = 7", {"4", "6"}),
        ("UPDATE orders SET o_ol_cnt = o_id - 6 WHERE o_id IN (6, 8)", {"6"}),
        ("DELETE FROM order_line WHERE ol_o_id = 2102", {"4", "6"}),
        ("DELETE FROM order_line WHERE ol_o_id = 7", {"4", "6", "10", "12"}),
        ("UPDATE order_line SET ol_o_id = 8 WHERE ol_o_id = 7", {"6"}),
        ("UPDATE order_line SET ol_o_id = 9999 WHERE ol_o_id = 2102", {"6", "7"}),
        ("UPDATE orders SET o_carrier_id = NULL WHERE o_id = 7", {"5", "7"}),
        ("UPDATE order_line SET ol_delivery_d = NULL WHERE ol_o_id = 7", {"7", "10", "12"}),
        ("DELETE FROM history WHERE h_id = 3", {"8", "9", "10"}),
        ("DELETE FROM history", {"8", "9", "10"}),
        ("UPDATE customer SET c_balance = -11 WHERE c_id = 2", {"10", "12"}),
        ("UPDATE customer SET c_ytd_payment = 11 WHERE c_id = 2", {"12"}),
        ("UPDATE customer SET c_delivery_cnt = 2 WHERE c_id = 1", {"11"}),
        ("DELETE FROM orders WHERE o_id = 7", {"4", "7", "10", "11", "12"}),
    ],
)
def test_each_damage_violates_its_conditions(
    consistent: sqlite3.Connection, damage: str, conditions: set[str]
) -> None:
    consistent.execute(damage)
    try:
        found = violations(lambda query: consistent.execute(query).fetchall())
        assert list(found) == list(CONDITIONS)
        assert {name.rpartition(".")[2] for name, count in found.items() if count} == conditions
    finally:
        consistent.rollback()


@pytest.mark.parametrize("limit", [40, 499, 500, 740, 3900, 20_000])
def test_the_search_ends_near_the_highest_sustained_rate(limit):
    trials: list[Trial] = []
    while (rate := next_rate(trials, 500)) is not None:
        trials.append(Trial(rate, rate <= limit))
    assert limit / 1.2 <= sustained_rate(trials) <= limit
    assert len(trials) <= 10


def test_the_offsets_of_the_last_committed_micro_batch(tmp_path: Path) -> None:
    assert committed(tmp_path) == {}
    for kind, numbers in (("offsets", (9, 10, 11)), ("commits", (9, 10))):
        (tmp_path / kind).mkdir()
        for number in numbers:
            lines = ["v1", "{}", json.dumps({"tpcc.a": {"0": number}, "tpcc.b": {"0": 1}})]
            (tmp_path / kind / str(number)).write_text("\n".join(lines))
    assert committed(tmp_path) == {"tpcc.a": 10, "tpcc.b": 1}
