"""Archives of servers, which Ivy downloads as `normalize.local_kafka` downloads Kafka."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from normalize import local_kafka


def unpacked(folder: str, ivy_module: str, name: str, size: str, unpack: Callable[[Path, Path], object]) -> Path:
    """Return a folder of the user's cache with the contents of an Ivy module's archive, fetching it if there is none.

    Parameters
    ----------
    folder : str
        The folder's name.
    ivy_module : str
        XML with one dependency.
    name, size : str
        What is fetched, for messages.
    unpack : callable
        Unpacks an archive into a folder.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pyspark-kafka-changelog" / folder
    if not home.is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        print(f"Fetching {name} ({size}) into {home}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="fetching-", dir=home.parent) as text:
            work = Path(text)
            local_kafka.resolve_jars([local_kafka.find_java(), "-jar", str(local_kafka.find_ivy())], work, ivy_module, name)
            (archive,) = (work / "jars").iterdir()
            unpack(archive, work / "home")
            # Renamed when complete, so that a partial download is never used.
            (work / "home").rename(home)
    return home
