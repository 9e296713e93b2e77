"""TPC-C's benchmark: its conditions find damage, and its search, lag and verdict are right."""

import json
import sqlite3
from pathlib import Path

import pytest

from bench.tpcc.__main__ import folder_of, parse
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


def violated(database: sqlite3.Connection) -> set[str]:
    found = violations(lambda query: database.execute(query).fetchall())
    assert list(found) == list(CONDITIONS)
    return {name.rpartition(".")[2] for name, count in found.items() if count}


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
        assert violated(consistent) == conditions
    finally:
        consistent.rollback()


def searched(limit: float, first: float = 500) -> list[Trial]:
    trials: list[Trial] = []
    while (rate := next_rate(trials, first)) is not None:
        trials.append(Trial(rate, rate <= limit))
    return trials


@pytest.mark.parametrize("limit", [40, 499, 500, 740, 3900, 20_000])
def test_the_search_ends_near_the_highest_sustained_rate(limit: float) -> None:
    trials = searched(limit)
    assert limit / 1.2 <= sustained_rate(trials) <= limit
    assert len(trials) <= 10


def test_a_rate_above_one_that_failed_does_not_count() -> None:
    assert sustained_rate([Trial(100, True), Trial(200, False), Trial(400, True)]) == 100
    assert sustained_rate([Trial(100, False)]) == 0


def test_the_lag_grows_if_a_tenth_of_the_records_is_not_taken_in() -> None:
    sawtooth = [(float(when), 2 + when % 5) for when in range(60)]
    assert not grows(sawtooth)
    assert grows([(when, lag + 0.2 * when) for when, lag in sawtooth])
    # It grows until the micro-batches have their size.
    assert not grows([(when, min(when, 15) + lag) for when, lag in sawtooth])
    assert not grows([(1.0, 5.0)])


def test_the_lag_of_a_record_ends_when_it_is_readable() -> None:
    sent = {0: [10.0, 11.0, 12.0], 2: [10.5]}
    readable = [
        Readable(0, 5, 9.0),  # before
        Readable(0, 6, 13.0),
        Readable(1, 99, 14.0),  # another table
        Readable(2, 8, 15.0),
        Readable(0, 9, 16.0),  # more than were sent now
    ]
    lags = lags_of(sent, {0: 5, 2: 7}, readable)
    assert lags == [(10.0, 3.0), (10.5, 4.5), (11.0, 5.0), (12.0, 4.0)]


def test_percentiles_and_quarters() -> None:
    assert percentiles(range(100)) == Lag(50, 95, 99)
    assert percentiles([3.0]) == Lag(3, 3, 3)
    lags = [(float(when), float(when // 25)) for when in range(100)]
    assert [each.p50 for each in quarters_of(lags)] == [0, 1, 2, 3]


def test_a_lag_that_grows_over_an_hour_ends_the_run() -> None:
    require_flat_lag([Lag(9, 9, 9), Lag(4, 9, 9), Lag(4, 9, 9), Lag(6, 9, 9)])
    with pytest.raises(SystemExit, match=r"6\.1 s in the last quarter, and 4\.0 s in the second"):
        require_flat_lag([Lag(9, 9, 9), Lag(4, 9, 9), Lag(4, 9, 9), Lag(6.1, 9, 9)])


RIGHT = {"stock": Differences(100, 0, 0), "orders": Differences(20, 0, 0)}


@pytest.mark.parametrize(
    ("differences", "violated", "sentence"),
    [
        (
            RIGHT,
            {"3.3.2.1": 0},
            "right: 120 rows of 2 tables equal the source's, 1 conditions hold",
        ),
        (
            RIGHT | {"stock": Differences(100, 2, 1)},
            {"3.3.2.1": 0},
            "WRONG: stock: 2 rows of the source are missing or different, 1 rows are not of the source",
        ),
        (RIGHT, {"3.3.2.1": 3}, "WRONG: condition 3.3.2.1: 3 rows violate it"),
    ],
)
def test_the_verdict_names_what_is_wrong(
    differences: dict[str, Differences], violated: dict[str, int], sentence: str
) -> None:
    assert verdict(differences, violated) == sentence


def test_the_report_has_a_line_for_each_copy() -> None:
    result = Result(
        name="delta",
        snapshot_seconds=40.2,
        trials=[Trial(500, True), Trial(1000, True)],
        exhausted=True,
        rate=500,
        lag=Lag(4.06, 5, 6),
        cpu={"Spark JVM": 1234.5},
        memory={"Python workers": 100 << 20, "Spark JVM": 3 << 30},
        files=12,
        written=5000,
        changes=100,
        differences=RIGHT,
        violations={"3.3.2.1": 1},
    )
    head, rule, line = report([result])
    assert head.count("|") == rule.count("|") == line.count("|")
    assert line == (
        "| delta | 40 s | at least 1,000 | 500 | 4.1 s | 5.0 s | 6.0 s | Spark JVM 1,234 "
        "| Python workers 100, Spark JVM 3,072 | 12 | 50 | WRONG |"
    )


def test_an_outcome_is_wrong_if_a_table_is_not_known_to_be_equal() -> None:
    kills = {"driver": 2, "broker": 0}
    assert Outcome(kills, {"stock": True}, {"3.3.2.1": 0}, "").sentence == (
        "right after 2 kills (driver 2): verify_table found 1 tables equal, 1 conditions hold"
    )
    for equal, count in ((None, 0), (False, 0), (True, 1)):
        outcome = Outcome(kills, {"stock": equal}, {"3.3.2.1": count}, "")
        assert outcome.sentence.startswith("WRONG after 2 kills (driver 2): ")


def test_flink_has_a_source_a_sink_and_an_insert_of_each_table() -> None:
    lines = list(statements("broker:1", "jdbc:postgresql://h/d", "me", "it's"))
    assert len(lines) == 3 * len(TABLES)
    assert not [line for line in lines if "\n" in line]
    source, sink, insert = lines[9:12]  # HISTORY
    assert source.startswith("CREATE TABLE from_history (h_id BIGINT, ")
    assert "h_date BIGINT, " in source
    assert "'topic' = 'tpcc.history'" in source
    assert "h_date TIMESTAMP(3), " in sink
    assert "PRIMARY KEY (h_id) NOT ENFORCED" in sink
    assert "'password' = 'it''s'" in sink
    assert insert.startswith("INSERT INTO into_history SELECT h_id, h_c_id, ")
    assert "CAST(TO_TIMESTAMP_LTZ(h_date, 3) AS TIMESTAMP(3)), h_amount" in insert


def test_options_name_known_ways_and_kills(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["live", "--kill", "driver,broker"]).kill == ("driver", "broker")
    assert parse(["--ways", "hand,flink"]).ways == ("hand", "flink")
    assert folder_of(parse(["record", "--minutes", "0.5"])).name == "mariadb-1-0.5"
    with pytest.raises(SystemExit):
        parse(["--ways", "hand,fast"])
    assert "'fast' is not one of delta, iceberg, postgresql, flink, hand" in capsys.readouterr().err


def test_the_offsets_of_the_last_committed_micro_batch(tmp_path: Path) -> None:
    assert committed(tmp_path) == {}
    for kind, numbers in (("offsets", (9, 10, 11)), ("commits", (9, 10))):
        (tmp_path / kind).mkdir()
        for number in numbers:
            lines = ["v1", "{}", json.dumps({"tpcc.a": {"0": number}, "tpcc.b": {"0": 1}})]
            (tmp_path / kind / str(number)).write_text("\n".join(lines))
    assert committed(tmp_path) == {"tpcc.a": 10, "tpcc.b": 1}
