"""Jobs of the capture benchmark, their results, and their CPU and memory usage."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from contextlib import suppress
from typing import NamedTuple

import msgspec
import psutil

from .capture_source import Counts

JVM, PYTHON, SERVER = "JVM", "Python", "server"
_INTERVAL = 0.5  # seconds


class Job(NamedTuple):
    """A job: a table, startup options shared by both readers, and the expected number of rows."""

    table: str
    startup: dict[str, str]
    rows: int


class Run(msgspec.Struct):
    """The result of a job.

    Attributes
    ----------
    start_ms : int
        The time of its submission, in milliseconds since 1970-01-01 UTC.
    running : (int, int)
        The time when it was running, and the number of rows until then.
    points : list of (int, int)
        Times, and the number of rows until then.
    counts : dict
    """

    start_ms: int
    running: tuple[int, int]
    points: list[tuple[int, int]]
    counts: Counts

    @property
    def rows(self) -> int:
        return self.points[-1][1]

    @property
    def end_ms(self) -> int:
        return self.points[-1][0]

    @property
    def whole_rate(self) -> float:
        """Rows per second since its submission."""
        return self.rows / (self.end_ms - self.start_ms) * 1000

    @property
    def running_rate(self) -> float:
        """Rows per second since it was running."""
        return (self.rows - self.running[1]) / max(self.end_ms - self.running[0], 1) * 1000

    def rate_between(self, first: float, last: float) -> float:
        """Return the rows per second between two fractions of the rows since it was running."""
        remaining = self.rows - self.running[1]
        begin, end = (self._time_of(self.running[1] + share * remaining) for share in (first, last))
        return remaining * (last - first) / max(end - begin, 1) * 1000

    def _time_of(self, rows: float) -> float:
        before = self.running
        for point in self.points:
            if point[1] >= rows and point[1] > before[1]:
                return before[0] + (rows - before[1]) / (point[1] - before[1]) * (
                    point[0] - before[0]
                )
            before = max(before, point)
        return before[0]


class Sample(NamedTuple):
    """Total CPU seconds and current bytes of memory, by kind of process."""

    ms: float
    cpu: dict[str, float]
    memory: dict[str, int]


class Usage(NamedTuple):
    """The CPU and memory usage of a run, by kind of process.

    Attributes
    ----------
    cpu : dict
        Seconds.
    peak : dict
        Maximum bytes. Memory that Python workers share counts for each worker.
    tenths : (float, float)
        Mean bytes of the Python workers in the first and the last tenth of the run's time; of the
        JVM if there are no workers.
    """

    cpu: dict[str, float]
    peak: dict[str, int]
    tenths: tuple[float, float]


class Watch(threading.Thread):
    """A sampler of the server and of Java processes, active inside its context.

    It samples all Java processes that this process started, with their children.
    """

    def __init__(self, server: psutil.Process | None) -> None:
        super().__init__(daemon=True)
        self.server = server
        self.samples: list[Sample] = []
        self._seconds: dict[tuple[str, int, float], float] = {}
        self._done = threading.Event()

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._done.set()
        self.join()

    def run(self) -> None:
        while not self._done.wait(_INTERVAL):
            self.samples.append(self._sample())

    def _sample(self) -> Sample:
        memory: dict[str, int] = defaultdict(int)
        for label, process in self._processes():
            with suppress(psutil.Error):  # the process may have ended
                memory[label] += process.memory_info().rss
                times = process.cpu_times()
                self._seconds[label, process.pid, process.create_time()] = times.user + times.system
        cpu: dict[str, float] = defaultdict(float)
        for (label, *_), seconds in self._seconds.items():
            cpu[label] += seconds
        return Sample(time.time() * 1000, dict(cpu), dict(memory))

    def _processes(self) -> list[tuple[str, psutil.Process]]:
        processes = [(SERVER, self.server)] if self.server is not None else []
        below = psutil.Process().children(recursive=True)
        machines = {process.pid for process in below if _is_java(process)}
        for process in below:
            if process.pid in machines:
                processes.append((JVM, process))
            elif _is_below(process, machines):
                processes.append((PYTHON, process))
        return processes

    def usage(self, run: Run) -> Usage:
        """Return the usage between a run's start and its end."""
        within = [
            sample
            for sample in self.samples
            if run.start_ms <= sample.ms <= run.end_ms + 1000 * _INTERVAL
        ]
        if not within:
            return Usage({}, {}, (0.0, 0.0))
        cpu = {
            label: seconds - within[0].cpu.get(label, 0.0)
            for label, seconds in within[-1].cpu.items()
        }
        peak = {
            label: max(sample.memory.get(label, 0) for sample in within)
            for label in (JVM, PYTHON, SERVER)
        }
        grown = PYTHON if peak[PYTHON] else JVM
        part = max(len(within) // 10, 1)
        first, last = (
            sum(sample.memory.get(grown, 0) for sample in tenth) / part
            for tenth in (within[:part], within[-part:])
        )
        return Usage(cpu, peak, (first, last))


def _is_java(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java"
    return False


def _is_below(process: psutil.Process, machines: set[int]) -> bool:
    with suppress(psutil.Error):
        return any(parent.pid in machines for parent in process.parents())
    return False
