"""The memory that this process may still take."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

_GROUP = Path("/sys/fs/cgroup")
_GROUP_FILES = (
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
"""A container's limit of memory, its use and its statistics, in version 2 and 1 of control groups."""


def available_memory() -> int:
    """Return how many bytes of memory this process may still take."""
    left = 2 << 30
    with suppress(OSError):  # on other systems than Linux, it is not known
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        left = (
            next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")) * 1024
        )
    for names in _GROUP_FILES:
        with suppress(OSError, ValueError):  # without a limit, it is the word max
            limit, used, statistics = ((_GROUP / name).read_text("ascii") for name in names)
            left = min(left, memory_left(int(limit), int(used), statistics))
    return left


def memory_left(limit: int, used: int, statistics: str) -> int:
    """Return how many bytes of a control group's memory its processes may still take.

    The use includes cached pages of files. The kernel drops those that are not active before it
    kills a process.
    """
    by_name = dict(line.split() for line in statistics.splitlines())
    cached = by_name.get("total_inactive_file", by_name.get("inactive_file", "0"))
    return max(0, limit - used + int(cached))
