"""What a pass does to the Python worker that it runs in, so that the worker's time goes into rows."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from zipimport import zipimporter


class _KeptZip(zipimporter):
    """An importer of an archive that does not change while the worker lives."""

    def invalidate_caches(self) -> None:
        """Keep the archive's directory."""


def keep_archives() -> None:
    """Let the worker read the directories of its archives once.

    PySpark invalidates all import caches before each task, and up to Python 3.12 an archive's directory is read anew then (CPython's
    gh-103200): ``pyspark.zip`` once for each of its packages, and every jar of ``spark.jars.packages``. That is some tenths of a second
    for each task and micro-batch, more than a small micro-batch's own work.
    """
    for path, finder in list(sys.path_importer_cache.items()):
        if type(finder) is zipimporter:
            sys.path_importer_cache[path] = _KeptZip(path)


@contextmanager
def worker() -> Iterator[None]:
    """Run a pass: archives are kept, and Python's cycle collector runs seldom (a task makes millions of objects, and no cycles)."""
    keep_archives()
    before = gc.get_threshold()
    gc.set_threshold(200_000, before[1], before[2])
    try:
        yield
    finally:
        gc.set_threshold(*before)
