"""Exploration: the history of a key, and plots whose bars equal Spark's counts."""

from datetime import datetime, timedelta, timezone

import matplotlib as mpl
import pytest

from cdc_formats.errors import ArgumentError
from normalize.explore import history, plot_lag, plot_operations, plot_rows_per_key

mpl.use("agg")

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
DDL = "row_kind STRING, id INT, name STRING, timestamp TIMESTAMP, `source.timestamp` TIMESTAMP"


@pytest.fixture(scope="module")
def changes(spark):
    """Three keys: one is inserted and updated five times, one is deleted, one stays."""
    rows = [("+I", 1, "a0")]
    for version in range(1, 6):
        rows += [("-U", 1, f"a{version - 1}"), ("+U", 1, f"a{version}")]
    rows += [("+I", 2, "b"), ("-D", 2, "b"), ("+I", 3, None)]
    seconds = [BEGIN + timedelta(seconds=place) for place in range(len(rows))]
    timed = [(*row, at, at - timedelta(seconds=2)) for row, at in zip(rows, seconds, strict=True)]
    return spark.createDataFrame([*timed, (None, None, None, BEGIN, None)], DDL).coalesce(1).cache()


def test_history_is_a_keys_changes_in_order_with_what_changed(changes):
    of_one = history(changes, {"id": 1})
    assert [row[0] for row in of_one.changes] == ["+I", *["-U", "+U"] * 5]
    assert list(of_one.changed()) == [set(), *[set(), {"name"}] * 5]
    assert list(of_one.frame["name"][-2:]) == ["a4", "a5"]
    assert "+U id=1, *name=a5" in str(of_one)


def test_history_of_a_key_that_is_null_or_unknown_or_misspelled(changes):
    assert history(changes, {"name": None, "id": 3}).changes[0][0] == "+I"
    assert history(changes, {"id": 99}).changes == ()
    with pytest.raises(ArgumentError, match="no column 'Id'; it has row_kind, id"):
        history(changes, {"Id": 1})
    with pytest.raises(ArgumentError, match="key is empty"):
        history(changes, {})


def test_a_hostile_row_is_shown_escaped(spark):
    hostile = "<script>alert(1)</script>\x1b[31m\u202e"
    frame = spark.createDataFrame(
        [("+I", 1, hostile)], f"row_kind STRING, id INT, `<b>{'x' * 3}</b>` STRING"
    )
    shown = history(frame, {"id": 1})
    html, text = shown._repr_html_(), str(shown)
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;script&gt;" in html
    assert "\\x1b[31m\\u202e" in text
    assert not {"\x1b", "\u202e"} & {*html, *text}


def test_operations_are_counted_by_kind(changes):
    axes = plot_operations(changes)
    heights = {bars.get_label(): sum(bar.get_height() for bar in bars) for bars in axes.containers}
    assert heights == {"+I": 3, "-U": 5, "+U": 5, "-D": 1}
    assert axes.get_title() == "Operations by timestamp"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("timestamp (UTC)", "rows in 500 ms")


def test_buckets_have_a_length_that_a_reader_can_name(spark):
    """Each row is in the bucket that begins at or before its time; there are at most 60 buckets."""
    for seconds, label in (
        (0, "1 ms"),
        (29.4, "500 ms"),
        (30, "1 s"),
        (3600, "2 min"),
        (40 * 86400, "1 d"),
        (20_000 * 86400, "339 d"),
    ):
        times = [BEGIN + timedelta(milliseconds=1), BEGIN + timedelta(seconds=seconds)]
        rows = [("+I", number, at) for number, at in enumerate(times)]
        axes = plot_operations(
            spark.createDataFrame(rows, "row_kind STRING, id INT, timestamp TIMESTAMP")
        )
        assert axes.get_ylabel() == f"rows in {label}"
        bars = axes.containers[0]
        assert len(bars) <= 60
        filled = [bar for bar in bars if bar.get_height()]
        starts = [mpl.dates.num2date(bar.get_x()) for bar in filled]
        assert sum(bar.get_height() for bar in filled) == 2
        assert starts[0] <= min(times)
        assert (
            starts[-1]
            <= max(times)
            < starts[-1] + timedelta(days=filled[-1].get_width(), microseconds=1)
        )


def test_lag_is_the_time_from_the_database_to_kafka(changes):
    axes = plot_lag(changes)
    assert {value for line in axes.lines for value in line.get_ydata()} == {2.0}
    assert axes.get_ylabel() == "seconds"
    assert axes.get_title() == "Delay from source.timestamp to timestamp"


def test_rows_per_key(changes):
    axes = plot_rows_per_key(changes, "id")
    assert [
        (bar.get_x() + bar.get_width() / 2, bar.get_height()) for bar in axes.containers[0]
    ] == [(1, 1), (2, 1), (11, 1)]
    assert _tick_labels(axes.xaxis) == ["2", "4", "6", "8", "10"]
    assert _tick_labels(axes.yaxis) == ["0", "1"]


def test_counts_on_logarithmic_axes_are_written_in_full_and_each_bar_is_visible(spark):
    rows = [("+I", 1)] * 2000 + [("+I", number) for number in range(2, 300)]
    axes = plot_rows_per_key(spark.createDataFrame(rows, "row_kind STRING, id INT"), "id")
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert {"1", "10", "100", "1,000"} <= set(_tick_labels(axes.xaxis))
    assert {"1", "10", "100"} <= set(_tick_labels(axes.yaxis))
    assert all(bar.get_linewidth() >= 1 for bar in axes.containers[0])


def _tick_labels(axis):
    """Return the labels of the ticks that the plot shows."""
    low, high = sorted(axis.get_view_interval())
    axis.figure.canvas.draw()
    return [
        tick.get_text()
        for tick in axis.get_ticklabels()
        if low <= (tick.get_position()[axis.axis_name == "y"]) <= high
    ]


def test_plots_that_cannot_be_drawn_are_refused(spark, changes):
    with pytest.raises(
        ArgumentError,
        match=r"no column 'ts'; it has row_kind, .*: read it with metadata=\['ts'\], or name",
    ):
        plot_operations(changes, time="ts")
    with pytest.raises(
        ArgumentError,
        match=r"no column 'source.timestamp'.*metadata=\['timestamp', 'source.timestamp'\]",
    ):
        plot_lag(changes.drop("source.timestamp"))
    with pytest.raises(ArgumentError, match="choose another column of times"):
        plot_operations(changes.where("FALSE"))
    stream = (
        spark.readStream.format("rate")
        .load()
        .selectExpr("'+I' AS row_kind", "timestamp", "value AS id")
    )
    with pytest.raises(ArgumentError, match="bounded=True"):
        plot_rows_per_key(stream, "id")
