"""CPU time of the processes that a benchmark started; it explains a rate and varies less.

Requires Linux (``/proc``); on other systems nothing is measured or printed.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import NamedTuple

SPARK_JVM, PYTHON_WORKERS, BROKER, FLINK_JVM = "Spark JVM", "Python workers", "broker", "Flink JVM"
POSTGRES = "PostgreSQL"
_MARKS = (
    ("pyspark.daemon", PYTHON_WORKERS),
    ("org.apache.spark.deploy.SparkSubmit", SPARK_JVM),
    ("kafka.Kafka", BROKER),
    ("KindCount", FLINK_JVM),
    ("JdbcCopy", FLINK_JVM),
    ("postgres:", POSTGRES),
)
_INTERVAL = 1.0  # seconds; a sample takes 6 ms


class Process(NamedTuple):
    """A process: parent's id, command, and CPU seconds, with those of children it waited for."""

    parent: int
    command: str
    seconds: float


def is_known() -> bool:
    """Return whether this system has ``/proc``."""
    return Path("/proc/self/stat").is_file()


def cpu_seconds(
    root: int | None = None, processes: dict[int, Process] | None = None
) -> dict[str, float]:
    """Return the CPU seconds so far of a process's descendants, by kind of process.

    Parameters
    ----------
    root : int, optional
        Default: this process.
    processes : dict, optional
        Processes by id. Default: the running ones.
    """
    running = _running() if processes is None else processes
    total: Counter[str] = Counter()
    for number, process in running.items():
        label = _label(process)
        if label and _is_below(number, os.getpid() if root is None else root, running):
            total[label] += process.seconds
    return dict(total)


def peak_bytes() -> dict[str, int]:
    """Return the peak resident bytes of this process's descendants, by kind of process."""
    running, total = _running(), Counter[str]()
    for number, process in running.items():
        label = _label(process)
        if label and _is_below(number, os.getpid(), running):
            with suppress(OSError, StopIteration):  # the process has ended meanwhile
                lines = Path(f"/proc/{number}/status").read_text().splitlines()
                peak = next(line for line in lines if line.startswith("VmHWM:"))
                total[label] += int(peak.split()[1]) * 1024
    return dict(total)


def _label(process: Process) -> str | None:
    return next((label for mark, label in _MARKS if mark in process.command), None)


def microseconds(runs: list[dict[str, float]], messages: int) -> dict[str, float]:
    """Return the CPU µs per message by kind of process: the median of the runs' CPU seconds."""
    return {
        label: median(run.get(label, 0.0) for run in runs) * 1e6 / messages
        for label in sorted({name for run in runs for name in run})
    }


def spent(*samples: Mapping[str, float]) -> dict[str, float]:
    """Return the CPU seconds between the first and the last of some measurements.

    The seconds of a process that ends leave the sum of its kind, which does not count.
    """
    return {
        label: sum(max(0.0, b.get(label, 0.0) - a.get(label, 0.0)) for a, b in pairwise(samples))
        for label in {label for sample in samples for label in sample}
    }


class CpuWatch:
    """A sampler of `cpu_seconds` within its context.

    With it, a part of a run can be measured whose begin is known only later.
    """

    def __init__(self) -> None:
        self.samples: list[tuple[float, dict[str, float]]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="CPU samples", daemon=True)

    def __enter__(self) -> CpuWatch:
        self._sample()
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self._thread.join()

    def spent_since(self, begin: float) -> dict[str, float]:
        """Return the CPU seconds from a time, in seconds since 1970-01-01 UTC, until now."""
        samples = [*self.samples, (time.time(), cpu_seconds())]
        later = (seconds for when, seconds in samples if when > begin)
        return spent(interpolated(samples, begin), *later)

    def _run(self) -> None:
        while not self._done.wait(_INTERVAL):
            self._sample()

    def _sample(self) -> None:
        self.samples.append((time.time(), cpu_seconds()))


def interpolated(samples: list[tuple[float, dict[str, float]]], when: float) -> dict[str, float]:
    """Return the CPU seconds at a time between two samples; the times of the samples increase."""
    place = bisect_right(samples, when, key=lambda sample: sample[0])
    if place in (0, len(samples)):
        return samples[max(place - 1, 0)][1]
    (begin, before), (end, after) = samples[place - 1 : place + 1]
    share = (when - begin) / (end - begin)
    return {
        label: before.get(label, 0.0) + share * (seconds - before.get(label, 0.0))
        for label, seconds in after.items()
    }


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
            processes[int(folder.name)] = parsed(
                (folder / "stat").read_text(), (folder / "cmdline").read_text(errors="replace")
            )
    return processes


def parsed(stat: str, cmdline: str) -> Process:
    """Return a process from the texts of ``/proc/<id>/stat`` and ``/proc/<id>/cmdline``."""
    # The fields follow the name in parentheses, which may itself contain spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return Process(
        int(fields[1]),
        cmdline.replace("\0", " "),
        sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK"),
    )


def resident_bytes(process: int, *, now: bool = False) -> tuple[int, int]:
    """Return the resident bytes of the JVM, and of all Python workers, below a process.

    They are the peaks, or with `now` the current values, of the process's descendants.
    """
    sizes, field = {}, "VmRSS" if now else "VmHWM"
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):  # the process has ended meanwhile
            fields = dict(field.split(":", 1) for field in status.read_text().splitlines())
            kilobytes = int(fields[field].split()[0]) if field in fields else 0
            sizes[int(status.parent.name)] = (
                int(fields["PPid"]),
                fields["Name"].strip(),
                kilobytes * 1024,
            )
    below = {process}
    while more := {number for number, (parent, _, _) in sizes.items() if parent in below} - below:
        below |= more
    of = [sizes[number][1:] for number in below if number != process]
    # Java's forks have its memory, and the name of a thread, until they run another program.
    java, python = (
        sum(size for name, size in of if name.startswith(program)) for program in ("java", "python")
    )
    return java, python
