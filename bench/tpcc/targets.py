"""A running copy, where it writes, and its Spark session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from normalize import local_session

from .results import Readable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CONF = {
    "spark.master": "local[2]",
    "spark.driver.memory": "4g",
    # Otherwise a sort or a broadcast table takes 64 MB, and the MERGEs of Iceberg end the JVM.
    "spark.buffer.pageSize": "4m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.ui.enabled": "false",
}


class Copy(Protocol):
    """A running copy."""

    def readable(self) -> list[Readable]:
        """Return since when records are readable, in the order of time."""

    def wait(self, records: list[int]) -> float:
        """Wait until so many records of each table are readable, and return when they were."""

    def stop(self) -> None:
        """Stop it."""


class Target(NamedTuple):
    """Where a copy writes: its Spark session, and a function that returns a table.

    Attributes
    ----------
    start : callable
        It starts the copy of topics of a broker, with a folder for its checkpoints.
    written : callable
        It returns the files and the bytes that were written so far.
    """

    spark: SparkSession
    start: Callable[[str, Path], Copy]
    table: Callable[[str], DataFrame]
    written: Callable[[], tuple[int | None, int]]


@contextmanager
def session(kind: str, **conf: str) -> Iterator[SparkSession]:
    """Yield a Spark session on 2 cores for a kind of table."""
    # `local_session` has the setting for Delta's state.
    spark = local_session(packages=[kind], **_CONF, **conf)
    try:
        yield spark
    finally:
        spark.stop()


def files_in(folder: Path) -> tuple[int, int]:
    """Return the number of the files of a folder, and their bytes. Nothing is vacuumed meanwhile."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(sizes), sum(sizes)
