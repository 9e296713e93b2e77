"""The search for the sustained rate, the lag, the verdict, and the table of the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

GROWTH = 0.1
"""The lag grows if it gets longer by more than so many seconds in a second."""
PRECISION = 1.2
"""The search ends when the lowest rate that failed is at most so many times the sustained one."""
_LEFT_OUT = 1 / 3


class Trial(NamedTuple):
    """Records at a rate: changes in a second, and whether the lag did not grow."""

    rate: float
    sustained: bool


class Lag(NamedTuple):
    """Percentiles of the seconds from the record to the readable row."""

    p50: float
    p95: float
    p99: float

    def __str__(self) -> str:
        return f"p50 {self.p50:.1f} s, p95 {self.p95:.1f} s, p99 {self.p99:.1f} s"


class Readable(NamedTuple):
    """When the records of a table up to a number were readable, in seconds since 1970-01-01."""

    table: int
    records: int
    time: float


class Differences(NamedTuple):
    """The rows of a table: those of the source, those that the copy lacks, and those it has more."""

    rows: int
    missing: int
    extra: int


class Result(NamedTuple):
    """What a copy was measured to do.

    Attributes
    ----------
    name : str
    snapshot_seconds : float
        Until all records of the snapshot were readable.
    trials : list of Trial
    exhausted : bool
        Whether the recording ended before the search.
    rate : float
        The rate of the measured part.
    lag : Lag
    cpu : dict
        CPU µs a change by process.
    memory : dict
        Peak bytes by process.
    files : int or None
        Written in the measured part; None for a database.
    written : int
        Bytes; of a database, those of its log.
    changes : int
        The changes of the measured part.
    differences : dict
    violations : dict
    """

    name: str
    snapshot_seconds: float
    trials: list[Trial]
    exhausted: bool
    rate: float
    lag: Lag
    cpu: dict[str, float]
    memory: dict[str, int]
    files: int | None
    written: int
    changes: int
    differences: dict[str, Differences]
    violations: dict[str, int]

    @property
    def right(self) -> bool:
        """Whether the copy has the source's rows, and every condition holds."""
        return not wrong(self.differences, self.violations)


def next_rate(trials: Sequence[Trial], first: float) -> float | None:
    """Return the rate of the next trial; None when the sustained rate is known."""
    failed = min((trial.rate for trial in trials if not trial.sustained), default=None)
    best = sustained_rate(trials)
    if failed is None:
        return 2 * best if trials else first
    if not best:
        return failed / 2
    return None if failed <= PRECISION * best else (failed * best) ** 0.5


def sustained_rate(trials: Sequence[Trial]) -> float:
    """Return the highest sustained rate below the lowest that failed; 0 if there is none."""
    failed = min((trial.rate for trial in trials if not trial.sustained), default=float("inf"))
    return max(
        (trial.rate for trial in trials if trial.sustained and trial.rate < failed), default=0
    )


def grows(lags: Sequence[tuple[float, float]]) -> bool:
    """Return whether the lag grows, without the first third of the time.

    Parameters
    ----------
    lags : sequence of (float, float)
        The time at which a record was sent, and its lag.
    """
    begin = min(when for when, _ in lags)
    end = max(when for when, _ in lags)
    rest = [(when, lag) for when, lag in lags if when >= begin + (end - begin) * _LEFT_OUT]
    return slope(rest) > GROWTH


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the line through the points; 0 for fewer than two times."""
    n = len(points)
    mean_x, mean_y = (sum(values) / n for values in zip(*points, strict=True))
    square = sum((x - mean_x) ** 2 for x, _ in points)
    if not square:
        return 0.0
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / square


def lags_of(
    sent: Mapping[int, Sequence[float]], first: Mapping[int, int], readable: Iterable[Readable]
) -> list[tuple[float, float]]:
    """Return the time and the lag of each record that is readable.

    Parameters
    ----------
    sent : mapping
        When the records of each table were sent, in order.
    first : mapping
        The number of the first of them in each table.
    readable : iterable of Readable
        In the order of time.
    """
    done = dict(first)
    lags = []
    for table, records, when in readable:
        if table not in sent:
            continue
        end = min(records, first[table] + len(sent[table]))
        for number in range(done[table], end):
            sent_at = sent[table][number - first[table]]
            lags.append((sent_at, when - sent_at))
        done[table] = max(done[table], end)
    return lags


def percentiles(lags: Iterable[float]) -> Lag:
    """Return the percentiles of lags."""
    ordered = sorted(lags)
    return Lag(
        *(ordered[min(len(ordered) - 1, int(len(ordered) * part))] for part in (0.5, 0.95, 0.99))
    )


def quarters_of(lags: Sequence[tuple[float, float]]) -> list[Lag]:
    """Return the percentiles of each quarter of the time; `lags` are in the order of time."""
    begin, end = lags[0][0], lags[-1][0]
    quarters: list[list[float]] = [[], [], [], []]
    for when, lag in lags:
        quarters[min(3, int(4 * (when - begin) / ((end - begin) or 1)))].append(lag)
    return [percentiles(each) for each in quarters if each]


def require_flat_lag(quarters: Sequence[Lag]) -> None:
    """Exit if the median of the last quarter is above that of the second."""
    second, last = quarters[1].p50, quarters[-1].p50
    if last > second * 1.25 + 1:
        raise SystemExit(
            f"the lag is not flat: its median is {last:.1f} s in the last quarter, and {second:.1f} s "
            "in the second one"
        )


def wrong(differences: Mapping[str, Differences], violations: Mapping[str, int]) -> list[str]:
    """Return the errors of a copy, in a sentence each; empty if it is right."""
    return [
        *(
            f"{table}: {each.missing:,} rows of the source are missing or different, "
            f"{each.extra:,} rows are not of the source"
            for table, each in differences.items()
            if each.missing or each.extra
        ),
        *(
            f"condition {name}: {count:,} rows violate it"
            for name, count in violations.items()
            if count
        ),
    ]


def verdict(differences: Mapping[str, Differences], violations: Mapping[str, int]) -> str:
    """Return in a sentence whether a copy is right."""
    if mistakes := wrong(differences, violations):
        return f"WRONG: {'; '.join(mistakes)}"
    rows = sum(each.rows for each in differences.values())
    return (
        f"right: {rows:,} rows of {len(differences)} tables equal the source's, "
        f"{len(violations)} conditions hold"
    )


def report(results: Sequence[Result]) -> Iterator[str]:
    """Yield the lines of the report's table, in Markdown."""
    yield (
        "| copy | snapshot | sustained, changes/s | measured at | lag p50 | p95 | p99 | CPU µs a change | "
        "memory, MB | files | bytes a change | rows and conditions |"
    )
    yield "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for each in results:
        cpu = ", ".join(f"{name} {value:,.0f}" for name, value in each.cpu.items())
        memory = ", ".join(f"{name} {size >> 20:,}" for name, size in each.memory.items())
        at_least = "at least " if each.exhausted else ""
        sustained = f"{at_least}{sustained_rate(each.trials):,.0f}" if each.trials else "-"
        yield (
            f"| {each.name} | {each.snapshot_seconds:,.0f} s | {sustained} "
            f"| {each.rate:,.0f} | {each.lag.p50:.1f} s | {each.lag.p95:.1f} s | {each.lag.p99:.1f} s "
            f"| {cpu} | {memory} "
            f"| {'-' if each.files is None else f'{each.files:,}'} "
            f"| {each.written / max(1, each.changes):,.0f} "
            f"| {'right' if each.right else 'WRONG'} |"
        )
