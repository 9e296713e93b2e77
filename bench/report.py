"""Prints a line of a benchmark's result."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median


def report(what: str, count: int, seconds: Iterable[float], note: str = "") -> None:
    """Print messages per second: the median of the runs, and the best."""
    runs = sorted(seconds)
    print(
        (
            f"{what:<44} {count / median(runs):>9,.0f}/s median, {count / runs[0]:>9,.0f}/s best "
            f"of {len(runs)} (N={count:,}){note}"
        ),
        flush=True,
    )
