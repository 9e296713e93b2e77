"""CPU time of the processes that a benchmark started; it explains a rate and varies less.

Requires Linux (``/proc``); on other systems nothing is measured or printed.
"""

from __future__ import annotations

import os
from collections import Counter
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

SPARK_JVM, PYTHON_WORKERS, BROKER, FLINK_JVM = "Spark JVM", "Python workers", "broker", "Flink JVM"
_MARKS = (
    ("pyspark.daemon", PYTHON_WORKERS),
    ("org.apache.spark.deploy.SparkSubmit", SPARK_JVM),
    ("kafka.Kafka", BROKER),
    ("KindCount", FLINK_JVM),
)


class Process(NamedTuple):
    """A process: its parent's id, its command, and its CPU seconds, including children that it has waited for."""

    parent: int
    command: str
    seconds: float


def is_known() -> bool:
    """Return whether this system has ``/proc``."""
    return Path("/proc/self/stat").is_file()


def cpu_seconds(root: int | None = None, processes: dict[int, Process] | None = None) -> dict[str, float]:
    """Return the CPU seconds so far of a process's descendants, by kind of process.

    Parameters
    ----------
    root : int, optional
        Default: this process.
    processes : dict, optional
        Processes by id. Default: the running ones.
    """
    found = _running() if processes is None else processes
    total: Counter[str] = Counter()
    for number, process in found.items():
        label = next((label for mark, label in _MARKS if mark in process.command), None)
        if label and _is_below(number, os.getpid() if root is None else root, found):
            total[label] += process.seconds
    return dict(total)


def microseconds(runs: list[dict[str, float]], messages: int) -> dict[str, float]:
    """Return the CPU µs per message by kind of process: the median of the runs' CPU seconds."""
    return {label: median(run.get(label, 0.0) for run in runs) * 1e6 / messages for label in sorted({name for run in runs for name in run})}


def spent(before: dict[str, float], after: dict[str, float]) -> dict[str, float]:
    """Return the CPU seconds between two measurements."""
    return {label: seconds - before.get(label, 0.0) for label, seconds in after.items()}


def _is_below(number: int, root: int, processes: dict[int, Process]) -> bool:
    while number in processes:
        number = processes[number].parent
        if number == root:
            return True
    return False


def _running() -> dict[int, Process]:
    processes = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has ended meanwhile
            processes[int(folder.name)] = parsed((folder / "stat").read_text(), (folder / "cmdline").read_text(errors="replace"))
    return processes


def parsed(stat: str, cmdline: str) -> Process:
    """Return a process from the texts of ``/proc/<id>/stat`` and ``/proc/<id>/cmdline``."""
    # The fields follow the name in parentheses, which may itself contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return Process(int(fields[1]), cmdline.replace("\0", " "), sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"))
