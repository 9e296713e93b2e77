"""Settings of the Python worker in which a pass runs, to save time."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from zipimport import zipimporter


class _KeptZip(zipimporter):
    """An importer for an archive that does not change during the worker's lifetime.

    It reads the archive's directory only once.

    PySpark invalidates all import caches before each task. Up to Python 3.12 this reads an
    archive's directory again (CPython's gh-103200): ``pyspark.zip`` once for each of its packages,
    and every jar of ``spark.jars.packages``. That takes tenths of a second for each task and
    micro-batch, more than the work of a small micro-batch.
    """

    def invalidate_caches(self) -> None:
        """Keep the archive's directory."""


def prepare() -> None:
    """Keep what the worker has loaded for its next tasks."""
    from pyspark import TaskContext

    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = _KeptZip(path)
    if TaskContext.get() is not None:
        _freeze_modules()


@cache
def _freeze_modules() -> None:
    """Exclude the loaded modules from Python's cycle collector, once in a worker.

    PySpark collects all generations after each task (pyspark/daemon.py). With pandas, Arrow and
    this package loaded, a collection visits 80,000 objects, which takes 15 ms; without them it
    visits the task's own.
    """
    gc.freeze()


@contextmanager
def worker() -> Iterator[None]:
    """Run a pass with kept archives and rare runs of Python's cycle collector.

    A task creates millions of objects without cycles.
    """
    prepare()
    before = gc.get_threshold()
    gc.set_threshold(200_000, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
