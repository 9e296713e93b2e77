"""Plots of a changelog with matplotlib: Spark counts by bucket, and only the counts are collected."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import ArgumentError, MissingDependencyError
from cdc_formats.schema import backquoted

from ..changelog_normalize import names_of
from ..typed import ROW_KIND
from .history import KIND_COLORS, require_bounded, require_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

BUCKETS = 60
"""The number of buckets in a plot over time."""


def plot_operations(changes: DataFrame, *, time: str = "timestamp", ax: Axes | None = None) -> Axes:
    """Plot the number of rows of each kind over time.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog with a column of timestamps.
    time : str
        That column: ``timestamp`` (Kafka's) or ``source.timestamp`` of ``metadata=``, or a column of the table.
    ax : Axes or None
        The axes to plot on; new axes by default.

    Raises
    ------
    ArgumentError
        When the changelog lacks the column, or is a stream.
    MissingDependencyError
        When matplotlib is not installed.
    """
    from pyspark.sql import functions as F

    begin, width = _buckets(changes, time)
    bucket = F.floor((_seconds(time) - begin) / width)
    counts = changes.where(F.col(backquoted(time)).isNotNull()).groupBy(bucket.alias("bucket"), ROW_KIND).count().collect()
    axes = _axes(ax)
    stacked = [0] * (BUCKETS + 1)
    for kind, color in KIND_COLORS.items():
        heights = [0] * (BUCKETS + 1)
        for row in counts:
            if row[ROW_KIND] == kind:
                heights[row.bucket] = row["count"]
        axes.bar(_dates(begin, width), heights, bottom=stacked, width=width / 86400, align="edge", color=color, label=kind)
        stacked = [low + height for low, height in zip(stacked, heights, strict=True)]
    _over_time(axes, f"rows in {_duration(width)}", f"Operations by {time}")
    axes.legend()
    return axes


def plot_lag(changes: DataFrame, *, event_time: str = "source.timestamp", arrived: str = "timestamp", ax: Axes | None = None) -> Axes:
    """Plot the delay between a change in the database and its Kafka record: median and 95th percentile over time, in seconds.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog with ``metadata=["timestamp", "source.timestamp"]`` (or the format's column for the database's time).
    event_time, arrived : str
        The columns of the database's time and of Kafka's.
    ax : Axes or None

    Raises
    ------
    ArgumentError, MissingDependencyError
        As `plot_operations`.
    """
    from pyspark.sql import functions as F

    require_bounded(changes)
    require_columns(changes, [event_time, arrived])
    begin, width = _buckets(changes, arrived)
    both = changes.where(F.col(backquoted(event_time)).isNotNull() & F.col(backquoted(arrived)).isNotNull())
    bucket = F.floor((_seconds(arrived) - begin) / width).alias("bucket")
    lag = F.percentile_approx(_seconds(arrived) - _seconds(event_time), [0.5, 0.95]).alias("lag")
    rows = sorted(both.groupBy(bucket).agg(lag).collect(), key=lambda row: row.bucket)
    axes, dates = _axes(ax), _dates(begin, width)
    at = [dates[row.bucket] for row in rows]
    for place, (label, color) in enumerate({"median": "#3b7dd8", "95 %": "#d64550"}.items()):
        axes.plot(at, [row.lag[place] for row in rows], label=label, color=color, marker=".", linewidth=1)
    _over_time(axes, "seconds", f"From {event_time} to {arrived}")
    axes.set_ylim(bottom=min(0, *axes.get_ylim()))
    axes.legend()
    return axes


def plot_rows_per_key(changes: DataFrame, primary_key: str | Sequence[str], *, ax: Axes | None = None) -> Axes:
    """Plot the number of keys by their number of changes, which shows hot keys.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog.
    primary_key : str or sequence of str
    ax : Axes or None

    Raises
    ------
    ArgumentError, MissingDependencyError
        As `plot_operations`.
    """
    from pyspark.sql import functions as F

    key = names_of(primary_key)
    require_bounded(changes)
    require_columns(changes, key)
    per_key = changes.where(F.col(ROW_KIND).isNotNull()).groupBy(*map(backquoted, key)).count()
    rows = sorted(per_key.toDF(*(f"c{index}" for index, _ in enumerate(key)), "changes").groupBy("changes").count().collect())
    axes = _axes(ax)
    axes.bar([row[0] for row in rows], [row[1] for row in rows], color=KIND_COLORS["+U"])
    axes.set_xlabel("rows of a key")
    axes.set_ylabel("keys")
    axes.set_title(f"Rows per {', '.join(key)}")
    if rows and rows[-1][0] > 100 * rows[0][0]:
        axes.set_xscale("log")
    if rows and max(row[1] for row in rows) > 100 * min(row[1] for row in rows):
        axes.set_yscale("log")
    return axes


def _axes(ax: Axes | None) -> Axes:
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise MissingDependencyError(
            "matplotlib, which draws plots, is not installed: pip install 'pyspark-kafka-changelog[notebooks]'"
        ) from error
    return ax if ax is not None else plt.subplots(figsize=(9, 3.2), layout="constrained")[1]


def _seconds(name: str) -> Any:
    from pyspark.sql import functions as F

    return F.unix_micros(F.col(backquoted(name)).cast("timestamp")) / 1e6


def _buckets(changes: DataFrame, time: str) -> tuple[float, float]:
    """Return the start of the first bucket (seconds since 1970) and the length of each, in seconds."""
    from pyspark.sql import functions as F

    require_bounded(changes)
    require_columns(changes, [time])
    first, last = changes.agg(F.min(_seconds(time)), F.max(_seconds(time))).first() or (None, None)
    if first is None:
        raise ArgumentError(f"the changelog has no row with a value in {time}: choose another column of times")
    return first, max(last - first, 1e-3) / BUCKETS


def _dates(begin: float, width: float) -> list[float]:
    """Return the start of each bucket, in matplotlib's days since 1970."""
    return [(begin + place * width) / 86400 for place in range(BUCKETS + 1)]


def _over_time(axes: Axes, label: str, title: str) -> None:
    from matplotlib.dates import ConciseDateFormatter

    axes.xaxis_date()
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    axes.set_ylabel(label)
    axes.set_title(title)


def _duration(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1000:.3g} ms"
