"""Notices: warnings of tasks for the user, logged once in the driver's log.

A worker's log is hidden from the user of a cluster. A Spark accumulator sends a notice to the
driver with the task's result, and the logger ``normalize`` of the driver's Python logs it as a
warning. Under Spark Connect, which has no accumulators, the worker logs it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import printable
from normalize.spark.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOGGER = logging.getLogger("normalize")
_MOST_SUBJECTS = 1_000
_MOST_NAMES, _MOST_CHARACTERS = 10, 60


class Notice(NamedTuple):
    """A warning.

    Attributes
    ----------
    subjects : tuple of str
        The subjects of the notice. It is logged unless all of its subjects were logged before.
    text : str
    """

    subjects: tuple[str, ...]
    text: str


Report = Callable[[list[Notice]], Any]
"""Receives the notices of a task."""


class _Shown:
    """Logs each notice once.

    Parameters
    ----------
    logged : set of str
        Subjects that were logged before. They do not count against the limit.
    """

    def __init__(self, logged: Iterable[str] = ()) -> None:
        self.logged = frozenset(logged)
        self.subjects: set[str] = set()

    def show(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            new = set(notice.subjects) - self.logged - self.subjects
            # The limit is for producers that generate column names.
            if new and len(self.subjects) < _MOST_SUBJECTS:
                self.subjects |= new
                LOGGER.warning("%s", notice.text)


log: Report = _Shown().show
"""Logs notices in this process."""

_checked: set[str] = set()
"""The subjects that `log_check` logged; later queries do not repeat them."""


def log_check(notices: list[Notice]) -> None:
    """Log the notices of a check at the call."""
    for notice in notices:
        _checked.update(notice.subjects)
        LOGGER.warning("%s", notice.text)


class _InTask:
    """The accumulator's parameter in a task: it collects notices."""

    def zero(self, value: list[Notice]) -> list[Notice]:
        return []

    def addInPlace(self, value1: list[Notice], value2: list[Notice]) -> list[Notice]:  # noqa: N802 - Spark's name
        return value1 + value2


class OnDriver(_InTask):
    """The parameter on the driver: it logs the notices of each finished task, and keeps none."""

    def __init__(self) -> None:
        self.shown = _Shown(_checked)

    def addInPlace(self, value1: list[Notice], value2: list[Notice]) -> list[Notice]:  # noqa: N802 - Spark's name
        self.shown.show(value2)
        return value1

    def __reduce__(self) -> tuple[type[_InTask], tuple[()]]:
        return _InTask, ()


def reporter(spark: SparkSession) -> Report:
    """Return the function that receives the notices of a query's tasks."""
    if is_connect(spark):
        return log
    return spark.sparkContext.accumulator(list[Notice](), OnDriver()).add  # type: ignore[arg-type] # AccumulatorParam by its methods


def shown_names(names: Sequence[str]) -> str:
    """Return a short list of names from messages, safe to print."""
    listed = ", ".join(f"`{printable(name[:_MOST_CHARACTERS])}`" for name in names[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"
