"""The measured part of a run: what follows the first quarter of the messages.

In the first quarter, Spark starts the query, Java compiles, and the state fills. This library's
runs are divided at the micro-batch that is nearest to the quarter. Flink's sink does not see
messages: its runs are divided where the sink has received as many rows as this library had written
there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

from .cpu import CpuWatch, microseconds
from .report import report
from .spark import MicroBatch, run_stream

LEFT_OUT = 0.25
"""The share of the messages before the measured part."""

Counts = tuple[dict[str, int], dict[str, int]]
"""Rows, and the sum of their ids, by row kind."""


def boundary(messages: Sequence[int]) -> int:
    """Return how many micro-batches to leave out: at least one, unless there is only one.

    `messages` has the number of messages of each micro-batch.
    """
    until = list(accumulate(messages))[:-1]
    return (
        1 + min(range(len(until)), key=lambda index: abs(until[index] - LEFT_OUT * sum(messages)))
        if until
        else 0
    )


class Run(NamedTuple):
    """A run of a stream.

    Attributes
    ----------
    batches : list of MicroBatch
    cpu : dict
        CPU seconds of the measured part, by process.
    """

    batches: list[MicroBatch]
    cpu: dict[str, float]

    @property
    def messages(self) -> int:
        """The messages of the whole run."""
        return sum(batch.messages for batch in self.batches)

    @property
    def measured(self) -> list[MicroBatch]:
        """The micro-batches of the measured part."""
        return self.batches[boundary([batch.messages for batch in self.batches]) :]


class Side(NamedTuple):
    """The measured parts of several runs.

    Attributes
    ----------
    messages : int
        The messages of each.
    seconds : list of float
    cpu : dict
        CPU µs per message, by process.
    """

    messages: int
    seconds: list[float]
    cpu: dict[str, float]

    @property
    def rates(self) -> list[float]:
        """Messages per second."""
        return [self.messages / seconds for seconds in self.seconds]

    @property
    def rate(self) -> float:
        """The median of the rates."""
        return median(self.rates)


def side(messages: int, seconds: list[float], cpu: list[dict[str, float]]) -> Side:
    """Return the measured parts of runs: each one's messages, seconds, CPU seconds by process."""
    return Side(messages, seconds, microseconds(cpu, messages))


def run_steadily(writer: Any) -> Run:
    """Run a stream over all available records from an empty checkpoint."""
    with CpuWatch() as watch:
        run = Run(run_stream(writer), {})
        return run._replace(cpu=watch.spent_since(run.measured[0].begin))


def side_of(what: str, runs: list[Run], note: str = "") -> Side:
    """Return the measured parts of a stream's runs, and print their rate."""
    seconds = [run.measured[-1].end - run.measured[0].begin for run in runs]
    result = side(
        sum(batch.messages for batch in runs[0].measured), seconds, [run.cpu for run in runs]
    )
    report(
        what,
        result.messages,
        seconds,
        f"; the last {len(runs[0].measured)} of {len(runs[0].batches)} micro-batches{note}",
    )
    return result


class KindCounter:
    """A consumer for ``foreachBatch`` that counts rows and sums ids by row kind.

    Attributes
    ----------
    counts : (dict, dict)
    rows_until : dict
        The rows of all micro-batches up to a number.
    """

    def __init__(self) -> None:
        self.counts: Counts = ({}, {})
        self.rows_until: dict[int, int] = {}

    def __call__(self, batch: Any, number: int) -> None:
        """Count a micro-batch."""
        from pyspark.sql import functions as F

        rows, ids = self.counts
        for kind, count, total in (
            batch.groupBy("row_kind").agg(F.count("*"), F.sum("id")).collect()
        ):
            rows[kind] = rows.get(kind, 0) + count
            ids[kind] = ids.get(kind, 0) + total
        self.rows_until[number] = sum(rows.values())

    def rows_before(self, run: Run) -> int:
        """Return the rows before the measured part of a run."""
        return self.rows_until.get(run.measured[0].number - 1, 0)


def require_counts(whose: str, counted: Counts, expected: Counts) -> None:
    """Exit if a run did not count the expected rows."""
    if counted != expected:
        raise SystemExit(
            f"{whose} rows by kind and their sums of ids are {counted}, expected {expected}: the "
            "run is not valid"
        )
