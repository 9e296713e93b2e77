"""The arithmetic of the capture benchmark."""

import pytest

from bench.capture import Line, parse, table_lines
from bench.capture_runs import JVM, PYTHON, Run, Usage, Watch
from bench.capture_source import Source
from bench.flink_cdc import ivy_module

COUNTS = {"+I": (1000, 1, 1)}
# Started at 0, running at 2 s with 100 rows; then 300 rows in 3 s, 600 in 2 s.
RUN = Run(0, (2_000, 100), [(2_000, 100), (5_000, 400), (7_000, 1_000)], COUNTS)


def test_rates_with_the_start_and_without():
    assert RUN.whole_rate == pytest.approx(1000 / 7)
    assert RUN.running_rate == pytest.approx(900 / 5)


def test_rate_between_shares_of_the_rows():
    assert RUN.rate_between(0.0, 0.1) == pytest.approx(100)
    assert RUN.rate_between(0.9, 1.0) == pytest.approx(300)
    assert RUN.rate_between(0.0, 1.0) == pytest.approx(RUN.running_rate)


def test_table_lines_counts_events_of_several_rows():
    usage = Usage({JVM: 1.0}, {JVM: 3 * 2**20, PYTHON: 2**20}, (2**20, 2 * 2**20))
    line = list(table_lines("log", [Line("ours", 1, [RUN], usage)], rows=2))[-1]
    assert line.split() == [
        "ours",
        "1",
        "71",
        "90",
        "2,000.0",
        "-",
        "-",
        "3",
        "1",
        "50",
        "150",
        "1",
        "2",
    ]


def test_usage_of_a_run_shorter_than_a_sample_is_unknown():
    assert Watch(None).usage(RUN) == Usage({}, {}, (0.0, 0.0))


def test_parse_uses_the_defaults_of_the_package():
    options = parse(["--parallelism", "1,2,8"])
    assert (options.parallelism, options.chunk_size, options.flink) == ((1, 2, 8), 8096, True)


def test_repr_of_source_hides_the_password():
    assert "secret" not in repr(Source("db", 3306, "cdc", "secret"))


def test_ivy_fetches_the_driver_that_the_connector_lacks():
    assert 'name="mysql-connector-j"' in ivy_module()
