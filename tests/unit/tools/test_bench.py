"""The benchmark's arithmetic: its options, expected counts and tables."""

import pytest

from bench import costs, flink, whole
from bench.__main__ import parse
from bench.cpu import Process, cpu_seconds, microseconds, parsed, spent
from bench.history import SCHEMA, Expected
from bench.topics import FORMATS, PARTITIONS, producer_of, records
from cdc_formats import get_format


def test_parse_formats_separated_by_commas():
    options = parse(["--format", "canal-json,upsert-kafka", "--flink", "--state", "both"])
    assert (options.format, options.flink, options.state) == (("canal-json", "upsert-kafka"), True, "both")
    assert parse([]).format == ("debezium-json",)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["--format", "canal-json,avro"], "'avro' is not one of debezium-json", id="unknown format"),
        pytest.param(["--warm-up", "0"], "--runs and --warm-up must be at least 1", id="no warm-up"),
        pytest.param(["--topic", "orders"], "--servers and --topic must be given together", id="a topic without a broker"),
        pytest.param(
            ["--servers", "a:1", "--topic", "t", "--format", "canal-json,upsert-kafka"],
            "--topic requires exactly one --format",
            id="two formats",
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
    assert {key: row[1] for key, row in table.items()} == {key: row[1] for key, row in expected.table.items()}
    assert expected.rows["+I"] - expected.rows["-D"] == len(table)
    assert expected.rows["-U"] == expected.rows["+U"] > 0


def test_running_seconds_leave_the_first_micro_batch_out():
    assert whole.Run([100, 100, 200], [9.0, 1.0, 2.0], ({}, {}), {}).running_seconds == 4.0
    assert whole.Run([100], [9.0], ({}, {}), {}).running_seconds == 9.0


def test_require_counts_exits_on_different_counts():
    whole.require_counts("this library's", ({"+I": 1}, {"+I": 7}), ({"+I": 1}, {"+I": 7}))
    with pytest.raises(SystemExit, match="Flink's rows by kind"):
        whole.require_counts("Flink's", ({"+I": 1}, {"+I": 8}), ({"+I": 1}, {"+I": 7}))


def test_table_has_both_sides_and_their_ratio():
    ours = whole.Side([2.0, 1.0, 4.0], {"Spark JVM": 30.0, "Python workers": 10.5, "broker": 2.0})
    theirs = whole.Side([1.0, 1.0, 1.0], {"Flink JVM": 15.0})
    lines = list(whole.table([whole.Comparison("canal-json", "heap", 1000, ours, theirs)]))
    rates = next(line for line in lines if line.startswith("canal-json"))
    assert " ".join(rates.split()) == "canal-json heap 500 1,000 0.50 500 1,000 250 | 1,000 1,000 1,000"
    assert lines[-1].split() == ["canal-json", "heap", "30.0", "10.5", "2.0", "42.5", "15.0", "-", "15.0"]


def test_table_without_flink_and_without_cpu():
    lines = list(whole.table([whole.Comparison("canal-json", "heap", 1000, whole.Side([2.0], {}), None)]))
    assert lines[-1].split() == ["canal-json", "heap", "500", "-", "-", "500"]


def test_source_table_of_upsert_kafka_has_two_formats():
    assert "'connector' = 'upsert-kafka', 'key.format' = 'json', 'value.format' = 'json'" in flink.source_table("upsert-kafka", "a:1", "t")
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


def test_parsed_process_name_with_spaces_and_parentheses():
    times = "100 20 3 4"
    stat = f"77 (a (b) c) S 5 77 77 0 -1 4194304 1 2 3 4 {times} 20 0 1 0 123"
    process = parsed(stat, "java\0kafka.Kafka\0")
    assert (process.parent, process.command) == (5, "java kafka.Kafka ")
    assert process.seconds > 0
    assert process.seconds == pytest.approx(parsed(stat.replace(times, "0 0 0 127"), "").seconds)
