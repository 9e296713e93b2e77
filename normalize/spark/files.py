"""The Hadoop file systems that Spark writes checkpoints and tables to."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from .sessions import hadoop_conf, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def local_checkpoint_settings(
    checkpoint_location: str, settings: Mapping[str, str]
) -> dict[str, str]:
    """Return the settings of Spark for a query's checkpoint on a local disk; none for others.

    By default, Spark starts the program ``readlink`` for each local file that it renames or looks
    for: some 40 times in a micro-batch of the stage. Both classes look whether a file exists before
    they rename another one to it. Where a file system does not rename to an existing file, such as
    HDFS, the one that is chosen here would keep the old file.

    Parameters
    ----------
    checkpoint_location : str
    settings : mapping
        The session's other settings.
    """
    default = "spark.hadoop.fs.defaultFS" in settings or "HADOOP_CONF_DIR" in os.environ
    is_local = checkpoint_location.startswith("file:" if default else ("file:", "/"))
    folder = "" if version("pyspark").startswith("4.0.") else "checkpointing."
    streaming = f"org.apache.spark.sql.execution.streaming.{folder}"
    name = f"{streaming}FileSystemBasedCheckpointFileManager"
    return {"spark.sql.streaming.checkpointFileManagerClass": name} if is_local else {}


class Files:
    """Files by their paths or URLs.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    raw : bool, optional
        Whether files of a local file system have no checksum files beside them: an edited file
        would not be readable.
    """

    def __init__(self, spark: SparkSession, *, raw: bool = False) -> None:
        self._jvm, self._conf, self._raw = jvm_of(spark), hadoop_conf(spark), raw
        self._path = self._jvm.org.apache.hadoop.fs.Path  # each package is a call of the JVM
        self._systems: dict[str, Any] = {}

    def _at(self, path: str) -> tuple[Any, Any]:
        name, of = self._path(path), "".join(re.findall("^[^:/]+:(?://[^/]*)?", path))
        if of not in self._systems:
            system = name.getFileSystem(self._conf)
            is_raw = self._raw and system.getScheme() == "file"
            self._systems[of] = system.getRawFileSystem() if is_raw else system
        return self._systems[of], name

    def exists(self, path: str) -> bool:
        """Return whether there is a file or a folder."""
        system, name = self._at(path)
        return bool(system.exists(name))

    def is_folder(self, path: str) -> bool:
        """Return whether a path is a folder; False if it is missing."""
        system, name = self._at(path)
        return bool(system.exists(name) and system.getFileStatus(name).isDirectory())

    def names(self, path: str) -> list[str]:
        """Return the names in a folder."""
        system, name = self._at(path)
        return sorted(str(each.getPath().getName()) for each in system.listStatus(name))

    def modified(self, path: str) -> float:
        """Return when a file was written, in seconds since 1970."""
        system, name = self._at(path)
        return float(system.getFileStatus(name).getModificationTime()) / 1000

    def read(self, path: str) -> str:
        """Return the text of a file."""
        system, name = self._at(path)
        stream = system.open(name)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str, *, replace: bool = False) -> None:
        """Write a file; with `replace`, over an earlier one."""
        system, name = self._at(path)
        stream = system.create(name, replace)
        try:
            stream.write(text.encode())
        finally:
            stream.close()

    def rename(self, path: str, new_path: str) -> None:
        """Rename a file or a folder.

        Raises
        ------
        OSError
        """
        system, name = self._at(path)
        if not system.rename(name, self._at(new_path)[1]):
            raise OSError(f"{path} cannot be renamed to {new_path}")

    def remove(self, path: str) -> None:
        """Remove a file, or a folder with all that it has; nothing if it is missing."""
        system, name = self._at(path)
        system.delete(name, True)
