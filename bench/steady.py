"""The measured part of a run: what follows the first quarter of the messages.

In the first quarter, Spark starts the query, Java compiles, and the state fills. This library's runs are divided at the micro-batch that
is nearest to the quarter. Flink's sink does not see messages: its runs are divided where the sink has received as many rows as this
library had written there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple

from cdc_formats.row_kind import SHORT_STRINGS

from .cpu import CpuWatch, microseconds
from .report import report
from .spark import MicroBatch, run_stream

_KINDS = "kinds"
LEFT_OUT = 0.25
"""The share of the messages before the measured part."""

Counts = tuple[dict[str, int], dict[str, int]]
"""Rows, and the sum of their ids, by row kind."""


def boundary(messages: Sequence[int]) -> int:
    """Return how many micro-batches to leave out, of which these are the messages: at least one, unless there is only one."""
    until = list(accumulate(messages))[:-1]
    return 1 + min(range(len(until)), key=lambda index: abs(until[index] - LEFT_OUT * sum(messages))) if until else 0


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

    @property
    def left_out(self) -> list[MicroBatch]:
        """The micro-batches before the measured part."""
        return self.batches[: -len(self.measured)]


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
    """Return the measured parts of runs: the messages and seconds of each, and its CPU seconds by process."""
    return Side(messages, seconds, microseconds(cpu, messages))


def run_steadily(writer: Any) -> Run:
    """Run a stream over all available records from an empty checkpoint."""
    with CpuWatch() as watch:
        run = Run(run_stream(writer), {})
        return run._replace(cpu=watch.spent_since(run.measured[0].begin))


def side_of(what: str, runs: list[Run], note: str = "") -> Side:
    """Return the measured parts of a stream's runs, and print their rate."""
    seconds = [run.measured[-1].end - run.measured[0].begin for run in runs]
    result = side(sum(batch.messages for batch in runs[0].measured), seconds, [run.cpu for run in runs])
    report(what, result.messages, seconds, f"; the last {len(runs[0].measured)} of {len(runs[0].batches)} micro-batches{note}")
    return result


def into_counter(changes: Any, output_mode: str = "append") -> Any:
    """Return the writer of a changelog into a consumer that counts rows and sums ids by row kind."""
    from pyspark.sql import functions as F

    of_kind = {kind: F.col("row_kind") == kind for kind in SHORT_STRINGS}
    rows = [F.count_if(of).alias(f"rows {kind}") for kind, of in of_kind.items()]
    ids = [F.sum(F.when(of, F.col("id"))).alias(f"ids {kind}") for kind, of in of_kind.items()]
    return changes.observe(_KINDS, *rows, *ids).writeStream.format("noop").outputMode(output_mode)


def counts_of(batches: Sequence[MicroBatch]) -> Counts:
    """Return the rows, and the sums of their ids, of micro-batches that `into_counter` counted."""

    def of_all(what: str) -> dict[str, int]:
        sums = {kind: sum(batch.observed[_KINDS][f"{what} {kind}"] or 0 for batch in batches) for kind in SHORT_STRINGS}
        return {kind: total for kind, total in sums.items() if total}

    return of_all("rows"), of_all("ids")


def require_counts(whose: str, counted: Counts, expected: Counts) -> None:
    """Exit if a run did not count the expected rows."""
    if counted != expected:
        raise SystemExit(f"{whose} rows by kind and their sums of ids are {counted}, expected {expected}: the run is not valid")
