"""The benchmark's arithmetic: its options, expected counts and tables."""

import pandas as pd
import pytest

from bench import by_hand, costs, flink, whole
from bench.__main__ import parse
from bench.cpu import Process, cpu_seconds, interpolated, microseconds, parsed, spent
from bench.history import SCHEMA, Expected
from bench.settings import settings_of
from bench.spark import MicroBatch
from bench.steady import KindCounter, Run, Side, boundary, require_counts
from bench.tables import Source
from bench.topics import FORMATS, PARTITIONS, producer_of, records
from cdc_formats import get_format


def test_parse_formats_separated_by_commas():
    options = parse(["--format", "canal-json,upsert-kafka", "--flink", "--state", "both"])
    assert (options.format, options.flink, options.state) == (
        ("canal-json", "upsert-kafka"),
        True,
        "both",
    )
    assert parse([]).format == ("debezium-json",)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
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
        parse(arguments)
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("format", FORMATS)
def test_records_decode_to_the_expected_table(format):
    expected = Expected()
    producer = producer_of(format)
    upserts = get_format(format, **producer.options).decoder(SCHEMA, unique_key=["id"]).upserts
    table = {}
    for record in records(producer, 2_000, 100, expected):
        for change in upserts(record.key, record.value):
            (key,) = change.key
            assert record.partition == key % PARTITIONS
            table.pop(key, None)
            if change.row is not None:
                table[key] = change.row
    assert {key: row[1] for key, row in table.items()} == {
        key: row[1] for key, row in expected.table.items()
    }
    assert expected.rows["+I"] - expected.rows["-D"] == len(table)
    assert expected.rows["-U"] == expected.rows["+U"] > 0


def test_expected_counts_by_source_order_drop_redeliveries():
    arrival, source = Expected(), Expected("source")
    redelivered = [(1, 7, ("a",)), (2, 7, ("b",)), (1, 7, ("a",)), (3, 7, None), (2, 7, ("b",))]
    for number, key, after in redelivered:
        arrival.take(number, key, after)
        source.take(number, key, after)
    assert arrival.rows == {"+I": 2, "-U": 2, "+U": 2, "-D": 1}
    assert (source.rows, source.table) == ({"+I": 1, "-U": 1, "+U": 1, "-D": 1}, {})


def test_settings_are_the_arguments_of_the_reader():
    plain = settings_of("plain", "debezium-json")
    assert plain == ({"decimal_handling_mode": "string"}, {}, "arrival")
    production = settings_of("metadata+validate+source", "debezium-json")
    assert production.format_options == {"decimal_handling_mode": "string", "validate": True}
    assert production.metadata == {
        "event_time": "source.timestamp",
        "source_table": "source.table",
        "kafka_partition": "partition",
        "kafka_offset": "offset",
    }
    assert production.order == "source"


@pytest.mark.parametrize(
    ("messages", "left_out"),
    [
        pytest.param([100], 0, id="only one"),
        pytest.param([100, 100], 1, id="half is the nearest"),
        pytest.param([250_004] * 15 + [249_940], 4, id="a few messages more than a quarter"),
        pytest.param([249_996] * 16 + [64], 4, id="a few messages less than a quarter"),
    ],
)
def test_boundary_is_the_micro_batch_nearest_to_a_quarter(messages, left_out):
    assert boundary(messages) == left_out


def test_measured_part_begins_at_the_boundary():
    batches = [MicroBatch(number, 100, 10.0 * number, 10.0 * number + 9) for number in range(8)]
    run = Run(batches, {})
    assert (run.messages, run.measured) == (800, batches[2:])
    counter = KindCounter()
    counter.rows_until = {number: 150 * (number + 1) for number in range(8)}
    assert counter.rows_before(run) == 300
    assert counter.rows_before(Run(batches[:1], {})) == 0


def test_messages_of_many_tables_decode_to_the_expected_versions():
    source = Source("shop", 2, 3)
    messages = [*source.inserts(), *(source.update() for _ in range(16)), *source.burst(2)]
    decoder = get_format("debezium-json").decoder(
        "id INT, version INT, amount STRING", unique_key=["id"]
    )
    rows = {}
    for topic, key, value, _ in messages:
        for change in decoder.upserts(key, value):
            rows[topic, change.key[0]] = change.row
    assert rows == {
        (topic, row): (row, version, f"{version}.50")
        for (topic, row), version in source.versions.items()
    }
    assert (source.messages, sum(source.versions.values())) == (26, 20)


def test_interpolated_cpu_between_two_samples():
    samples = [(10.0, {"broker": 1.0}), (12.0, {"broker": 2.0, "Flink JVM": 8.0})]
    assert interpolated(samples, 10.5) == {"broker": 1.25, "Flink JVM": 2.0}
    assert interpolated(samples, 9.0) == {"broker": 1.0}
    assert interpolated(samples, 13.0) == {"broker": 2.0, "Flink JVM": 8.0}


def test_require_counts_exits_on_different_counts():
    require_counts("this library's", ({"+I": 1}, {"+I": 7}), ({"+I": 1}, {"+I": 7}))
    with pytest.raises(SystemExit, match="Flink's rows by kind"):
        require_counts("Flink's", ({"+I": 1}, {"+I": 8}), ({"+I": 1}, {"+I": 7}))


def test_table_has_both_sides_and_their_ratio():
    ours = Side(750, [1.5, 0.75, 3.0], {"Spark JVM": 30.0, "Python workers": 10.5, "broker": 2.0})
    theirs = Side(750, [0.75, 0.75, 0.75], {"Flink JVM": 15.0})
    lines = list(whole.table([whole.Comparison("canal-json", "heap", "plain", 1000, ours, theirs)]))
    assert "of 1,000 messages" in lines[1]
    assert "the last 750 messages" in lines[2]
    rates = next(line for line in lines if line.startswith("canal-json"))
    assert (
        " ".join(rates.split())
        == "canal-json heap plain 500 1,000 0.50 500 1,000 250 | 1,000 1,000 1,000"
    )
    assert lines[-1].split() == [
        "canal-json",
        "heap",
        "plain",
        "30.0",
        "10.5",
        "2.0",
        "42.5",
        "15.0",
        "-",
        "15.0",
    ]


def test_table_without_flink_and_without_cpu():
    lines = list(
        whole.table(
            [
                whole.Comparison(
                    "canal-json", "heap", "metadata+validate", 1000, Side(1000, [2.0], {}), None
                )
            ]
        )
    )
    assert lines[-1].split() == ["canal-json", "heap", "metadata+validate", "500", "-", "-", "500"]


def test_table_of_recipes():
    lines = list(
        whole.recipe_table([by_hand.Recipe("MERGE", 1000, Side(750, [1.5], {"Spark JVM": 30.0}))])
    )
    assert lines[-1].split() == ["MERGE", "1,000", "500", "30.0", "-", "-", "30.0", "500"]
    assert list(whole.recipe_table([])) == []


class _State:
    """A group's state."""

    exists, get = False, ()

    def update(self, row):
        self.exists, self.get = True, row

    def remove(self):
        self.exists = False


def test_changes_by_hand_of_a_key():
    names = ["offset", "op", *by_hand.NAMES]

    def event(offset, op, name):
        return (offset, op, 1, name, "e", "c", 1, 2, 3, True)

    def changes(state, *frames):
        frames = iter([pd.DataFrame(frame, columns=names) for frame in frames])
        (result,) = by_hand.changes_of_key((1,), frames, state)
        return [(row.row_kind, row.name) for row in result.itertuples(index=False)]

    state = _State()
    assert changes(state, [event(2, "u", "b"), event(3, "u", "b")], [event(1, "c", "a")]) == [
        ("+I", "a"),
        ("-U", "a"),
        ("+U", "b"),
    ]
    assert changes(state, [event(4, "d", "b"), event(5, "d", "b"), event(6, "c", "x")]) == [
        ("-D", "b"),
        ("+I", "x"),
    ]
    assert changes(state, [event(7, "d", "x")]) == [("-D", "x")]
    assert not state.exists


def test_source_table_of_upsert_kafka_has_two_formats():
    assert (
        "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'"
        in flink.source_table("upsert-kafka", "a:1", "t")
    )
    debezium = flink.source_table("debezium-json", "a:1", "t")
    assert "'connector' = 'kafka', 'format' = 'debezium-json'" in debezium
    assert "updated_at TIMESTAMP(3)" in debezium


def test_costs_table_shows_the_cost_that_each_step_adds():
    lines = list(costs.table({"read": costs.Cost(10.0, 0.0), "decode": costs.Cost(12.5, 8.0)}))
    assert [line.split() for line in lines[1:]] == [
        ["read", "10.0", "0.0", "10.0"],
        ["decode", "2.5", "8.0", "10.5"],
        ["all", "12.5", "8.0", "20.5"],
    ]


def test_costs_are_measured_in_turns_after_warm_up():
    turns = []
    queries = {step: lambda step=step: turns.append(step) or 10 for step in ("read", "decode")}
    assert list(costs.measure(queries, runs=1, warm_up=1)) == ["read", "decode"]
    assert turns == ["read", "decode"] * 2


def test_cpu_seconds_sums_the_descendants_of_a_process():
    processes = {
        1: Process(0, "init", 99.0),
        10: Process(1, "python -m bench", 1.0),
        11: Process(10, "python local_kafka.py --guard java kafka.Kafka", 0.5),
        12: Process(11, "java kafka.Kafka", 2.0),
        13: Process(10, "java org.apache.spark.deploy.SparkSubmit", 4.0),
        14: Process(13, "python -m pyspark.daemon", 0.25),
        15: Process(14, "python -m pyspark.daemon", 8.0),
        20: Process(1, "java kafka.Kafka", 50.0),
    }
    assert cpu_seconds(10, processes) == {"broker": 2.5, "Spark JVM": 4.0, "Python workers": 8.25}


def test_cpu_per_message_is_the_median_of_the_runs():
    runs = [spent({"broker": 1.0}, {"broker": seconds}) for seconds in (2.0, 3.0, 9.0)]
    assert microseconds(runs, 1_000_000) == {"broker": 2.0}


def test_the_cpu_time_of_a_process_that_ends_is_not_subtracted():
    samples = [
        {"JVM": 5.0, "Python": 7.0},
        {"JVM": 6.5},
        {"JVM": 7.0, "Python": 1.5, "broker": 1.0},
    ]
    assert spent(*samples) == {"JVM": 2.0, "Python": 1.5, "broker": 1.0}


def test_parsed_process_name_with_spaces_and_parentheses():
    times = "100 20 3 4"
    stat = f"77 (a (b) c) S 5 77 77 0 -1 4194304 1 2 3 4 {times} 20 0 1 0 123"
    process = parsed(stat, "java\0kafka.Kafka\0")
    assert (process.parent, process.command) == (5, "java kafka.Kafka ")
    assert process.seconds > 0
    assert process.seconds == pytest.approx(parsed(stat.replace(times, "0 0 0 127"), "").seconds)
