"""Exploration of a bounded changelog in a notebook: the history of a key, and plots.

Spark aggregates, and only the results are collected.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, functions as F

from cdc_formats.errors import ArgumentError, MissingDependencyError, printable
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND

from .arguments import names_of
from .dataframe import require_changelog

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis


__all__ = ["History", "history", "plot_lag", "plot_operations", "plot_rows_per_key"]

# --------------------------------------------------------------------------------------------------
# The history of one key: its changes, with the changed columns marked.

METADATA = ("topic", "partition", "offset", "timestamp", "timestamp-type", "headers", "header-list")
"""Columns that describe the record, not the row; as do those with a dot in their name
(``source.timestamp``)."""
KIND_COLORS = {"+I": "#2e9e5b", "-U": "#d9a62e", "+U": "#3b7dd8", "-D": "#d64550"}
"""The colors of row kinds, readable on light and dark backgrounds."""
_CELL = "padding:2px 10px;text-align:left;white-space:nowrap"
_LONG_CELL = (
    "padding:2px "
    "10px;text-align:left;white-space:pre-wrap;overflow-wrap:anywhere;min-width:20em;max-width:40em"
)
_LONG_TEXT, _MOST_TEXT = 40, 200


@dataclass(frozen=True)
class History:
    """One key's changes in order; a notebook shows them as a table with changed columns marked.

    Attributes
    ----------
    key : dict
    columns : tuple of str
        ``row_kind`` and the columns of `changes`.
    changes : tuple of tuple
        A row for each change, ``row_kind`` first.
    """

    key: dict[str, Any]
    columns: tuple[str, ...]
    changes: tuple[tuple[Any, ...], ...]

    @property
    def frame(self) -> pd.DataFrame:
        """The changes as a pandas DataFrame."""
        import pandas as pd

        return pd.DataFrame(self.changes, columns=list(self.columns), dtype=object)

    def changed(self) -> Iterator[set[str]]:
        """Yield for each change the columns, without metadata, that differ from the one before."""
        of_table = [
            index
            for index, name in enumerate(self.columns)
            if name != ROW_KIND and name not in METADATA and "." not in name
        ]
        for before, row in zip((*self.changes[:1], *self.changes), self.changes, strict=False):
            yield {self.columns[index] for index in of_table if row[index] != before[index]}

    def __str__(self) -> str:
        lines = [f"{_key_text(self.key)}: {len(self.changes)} changes"]
        for row, changed in zip(self.changes, self.changed(), strict=True):
            values = zip(self.columns[1:], row[1:], strict=True)
            lines.append(
                f"{row[0]} "
                + ", ".join(
                    f"{'*' if name in changed else ''}{printable(name)}={_text(v)}"
                    for name, v in values
                )
            )
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th style="{_CELL}">{escape(printable(name))}</th>' for name in self.columns
        )
        body = "".join(
            self._html_row(row, changed)
            for row, changed in zip(self.changes, self.changed(), strict=True)
        )
        caption = (
            f"<caption style='text-align:left'>{escape(_key_text(self.key))}: {len(self.changes)} "
            "changes</caption>"
        )
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def _html_row(self, row: tuple[Any, ...], changed: set[str]) -> str:
        color = KIND_COLORS.get(str(row[0]), "inherit")
        cells = [f'<td style="{_CELL};font-weight:bold;color:{color}">{escape(_text(row[0]))}</td>']
        for name, value in zip(self.columns[1:], row[1:], strict=True):
            text, mark = (
                _text(value),
                f";background:{color}33;font-weight:bold" if name in changed else "",
            )
            cells.append(
                "<td "
                f'style="{_LONG_CELL if len(text) > _LONG_TEXT else _CELL}{mark}">{escape(text)}</td>'
            )
        return f"<tr>{''.join(cells)}</tr>"


def history(changes: DataFrame, key: Mapping[str, Any]) -> History:
    """Return the history of one key.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog (``from_kafka_changelog(..., bounded=True)``);
        ``metadata=["timestamp", "offset"]`` adds times and offsets.
    key : mapping
        The values of the primary key's columns: ``{"id": 106}``.

    Raises
    ------
    ArgumentError
        When the key has a column that the changelog lacks, or the changelog is a stream.
    """
    require_bounded(changes)
    require_columns(changes, list(key))
    if not key:
        raise ArgumentError(
            "key is empty: pass the primary key's columns and their values, {'id': 106}"
        )
    of_key = changes
    for name, value in key.items():
        of_key = of_key.where(F.col(backquoted(name)).eqNullSafe(F.lit(value)))
    rows = of_key.collect()
    return History(dict(key), tuple(changes.columns), tuple(tuple(row) for row in rows))


def require_bounded(changes: DataFrame) -> None:
    """Raise an error for a DataFrame that is not a changelog, and for a stream.

    Raises
    ------
    ArgumentError
    """
    require_changelog(changes)
    if changes.isStreaming:
        raise ArgumentError("the changelog is a stream: read it with bounded=True")


def require_columns(changes: DataFrame, names: Sequence[str], remedy: str = "") -> None:
    """Raise an error for names that are not columns of the changelog.

    Raises
    ------
    ArgumentError
    """
    missing = [name for name in names if name not in changes.columns]
    if missing:
        raise ArgumentError(
            f"the changelog has no column {missing[0]!r}; it has {', '.join(changes.columns)}{remedy}"
        )


def _key_text(key: Mapping[str, Any]) -> str:
    return ", ".join(f"{printable(name)} = {_text(value)}" for name, value in key.items())


def _text(value: Any) -> str:
    text = (
        "NULL"
        if value is None
        else value.hex()
        if isinstance(value, bytes | bytearray)
        else str(value)
    )
    return printable(text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…")


# --------------------------------------------------------------------------------------------------
# Plots of a changelog with matplotlib: Spark counts by bucket, and only counts are collected

BUCKETS = 60
"""A plot over time has at most this many buckets."""

_SECOND = 1_000_000  # microseconds, as all times here
_DAY = 86_400 * _SECOND
_WIDTHS = (
    *(step * 10**power for power in range(3, 6) for step in (1, 2, 5)),
    *(seconds * _SECOND for seconds in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
    *(hours * 3600 * _SECOND for hours in (1, 2, 3, 6, 12)),
    *(days * _DAY for days in (1, 2, 7, 14, 28)),
)
"""Lengths of a bucket, in microseconds, that a reader can name."""


def plot_operations(changes: DataFrame, *, time: str = "timestamp", ax: Axes | None = None) -> Axes:
    """Plot the number of rows of each kind over time.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog with a column of timestamps.
    time : str
        That column: ``timestamp`` (Kafka's) or ``source.timestamp`` of ``metadata=``, or a column
        of the table.
    ax : Axes or None
        The axes to plot on; new axes by default.

    Raises
    ------
    ArgumentError
        When the changelog lacks the column, or is a stream.
    MissingDependencyError
        When matplotlib is not installed.
    """
    dates, bucket, width = _buckets(changes, time)
    counts = (
        changes.where(F.col(backquoted(time)).isNotNull())
        .groupBy(bucket, ROW_KIND)
        .count()
        .collect()
    )
    axes = _axes(ax)
    stacked = [0] * len(dates)
    for kind, color in KIND_COLORS.items():
        heights = [0] * len(dates)
        for row in counts:
            if row[ROW_KIND] == kind:
                heights[row.bucket] = row["count"]
        axes.bar(
            dates,
            heights,
            bottom=stacked,
            width=width / _DAY,
            align="edge",
            color=color,
            label=kind,
        )
        stacked = [low + height for low, height in zip(stacked, heights, strict=True)]
    axes.set_title(f"Operations by {time}")
    axes.set_ylabel(f"rows in {_duration(width)}")
    _label_dates(axes, time)
    _label_counts(axes.yaxis)
    axes.set_ylim(0, 1.2 * max(stacked))  # room for the legend
    axes.legend(loc="upper right", ncols=len(KIND_COLORS))
    return axes


def plot_lag(
    changes: DataFrame,
    *,
    event_time: str = "source.timestamp",
    arrived: str = "timestamp",
    ax: Axes | None = None,
) -> Axes:
    """Plot the seconds from database change to Kafka record over time: median and 95th percentile.

    Parameters
    ----------
    changes : DataFrame
        A bounded changelog with ``metadata=["timestamp", "source.timestamp"]`` (or the format's
        column for the database's time).
    event_time, arrived : str
        The columns of the database's time and of Kafka's.
    ax : Axes or None

    Raises
    ------
    ArgumentError, MissingDependencyError
        Same as in `plot_operations`.
    """
    dates, bucket, _ = _buckets(changes, arrived, event_time)
    both = changes.where(
        F.col(backquoted(event_time)).isNotNull() & F.col(backquoted(arrived)).isNotNull()
    )
    lag = F.percentile_approx(
        (_micros(arrived) - _micros(event_time)) / _SECOND, [0.5, 0.95]
    ).alias("lag")
    rows = sorted(both.groupBy(bucket).agg(lag).collect(), key=lambda row: row.bucket)
    axes = _axes(ax)
    at = [dates[row.bucket] for row in rows]
    for index, (label, color) in enumerate((("median", "#3b7dd8"), ("95th percentile", "#d64550"))):
        lags = [row.lag[index] for row in rows]
        axes.plot(at, lags, label=label, color=color, marker=".", linewidth=1)
    axes.set_title(f"Delay from {event_time} to {arrived}")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=min(0, *axes.get_ylim()))
    _label_dates(axes, arrived)
    axes.legend()
    return axes


def plot_rows_per_key(
    changes: DataFrame, primary_key: str | Sequence[str], *, ax: Axes | None = None
) -> Axes:
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
        Same as in `plot_operations`.
    """
    key = names_of(primary_key)
    require_bounded(changes)
    require_columns(changes, key)
    per_key = changes.where(F.col(ROW_KIND).isNotNull()).groupBy(*map(backquoted, key)).count()
    rows = sorted(
        per_key.toDF(*(f"c{index}" for index, _ in enumerate(key)), "changes")
        .groupBy("changes")
        .count()
        .collect()
    )
    axes = _axes(ax)
    # On a logarithmic axis the bar of a large number is thinner than a pixel; its edge keeps it
    # visible.
    axes.bar(
        [row[0] for row in rows],
        [row[1] for row in rows],
        color=KIND_COLORS["+U"],
        edgecolor=KIND_COLORS["+U"],
    )
    axes.set_xlabel("rows per key")
    axes.set_ylabel("keys")
    axes.set_title(f"Rows per {', '.join(key)}")
    if rows and rows[-1][0] > 100 * rows[0][0]:
        axes.set_xscale("log")
    if rows and max(row[1] for row in rows) > 100 * min(row[1] for row in rows):
        axes.set_yscale("log")
        axes.set_ylim(bottom=0.5)
    _label_counts(axes.xaxis)
    _label_counts(axes.yaxis)
    return axes


def _axes(ax: Axes | None) -> Axes:
    try:
        from matplotlib import pyplot as plt
    except ImportError as error:
        raise MissingDependencyError(
            "matplotlib, which draws plots, is not installed: pip install "
            "'pyspark-kafka-changelog[notebooks]'"
        ) from error
    return ax if ax is not None else plt.subplots(figsize=(9, 3.2), layout="constrained")[1]


def _micros(name: str) -> Column:
    return F.unix_micros(F.col(backquoted(name)).cast("timestamp"))


def _buckets(changes: DataFrame, time: str, *other_times: str) -> tuple[list[float], Column, int]:
    """Return the start of each bucket, each row's bucket, and a bucket's length.

    The starts are in matplotlib's days since 1970, and the length is in microseconds.
    """
    require_bounded(changes)
    # Most times are metadata, which a changelog has on request only.
    times = [time, *other_times]
    remedy = f": read it with metadata={times}, or name a column of times"
    require_columns(changes, times, remedy)
    [(first, last)] = changes.agg(F.min(_micros(time)), F.max(_micros(time))).collect()
    if first is None:
        raise ArgumentError(
            f"the changelog has no row with a value in {time}: choose another column of times"
        )
    width = _width(last - first)
    begin = first // width
    dates = [number * width / _DAY for number in range(begin, last // width + 1)]
    return dates, F.floor((_micros(time) - begin * width) / width).alias("bucket"), width


def _width(span: int) -> int:
    """Return the shortest length with which the buckets cover so many microseconds."""
    shortest = (
        span // (BUCKETS - 1) + 1
    )  # one more, as the first bucket begins before the first row
    return next((width for width in _WIDTHS if width >= shortest), -(-shortest // _DAY) * _DAY)


def _label_dates(axes: Axes, time: str) -> None:
    from matplotlib.dates import ConciseDateFormatter

    axes.xaxis_date()
    axes.xaxis.set_major_formatter(ConciseDateFormatter(axes.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    axes.set_xlabel(f"{time} (UTC)")


def _label_counts(axis: Axis) -> None:
    """Place ticks at whole numbers only and write them in full."""
    from matplotlib.ticker import MaxNLocator, NullFormatter, StrMethodFormatter

    if axis.get_scale() == "log":
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(integer=True))
    axis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _duration(micros: int) -> str:
    units = (("d", _DAY), ("h", 3600 * _SECOND), ("min", 60 * _SECOND), ("s", _SECOND))
    unit, length = next(
        ((unit, length) for unit, length in units if micros >= length), ("ms", 1000)
    )
    return f"{micros / length:g} {unit}"
