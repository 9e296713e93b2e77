"""The Hadoop file systems that Spark writes checkpoints and tables to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .sessions import hadoop_conf, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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

    def _at(self, path: str) -> tuple[Any, Any]:
        name = self._jvm.org.apache.hadoop.fs.Path(path)
        system = name.getFileSystem(self._conf)
        is_raw = self._raw and system.getScheme() == "file"
        return system.getRawFileSystem() if is_raw else system, name

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

    def copy(self, path: str, new_path: str) -> None:
        """Copy a file or a folder."""
        (system, name), (new_system, new) = self._at(path), self._at(new_path)
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        copy(system, name, new_system, new, False, False, self._conf)

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
