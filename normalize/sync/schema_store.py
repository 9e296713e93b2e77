"""The folder with a JSON file for each table, on any file system that Hadoop knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .table_options import SyncError
from .table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEW = ".new"


class SchemaStore:
    """Reads and writes the files of tables.

    A file is replaced by a complete one: it is written as ``.new``, and then renamed. A query that is killed meanwhile leaves the earlier
    file, or a complete ``.new``, or neither: then nothing has been written to the table yet.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    location : str
        A path, or a URL such as ``s3a://bucket/shop``.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self.location = location.rstrip("/")
        jvm: Any = spark._jvm
        self._path: Any = jvm.org.apache.hadoop.fs.Path
        self._text: Any = jvm.org.apache.commons.io.IOUtils.toString
        system = self._path(self.location).getFileSystem(spark._jsc.hadoopConfiguration())
        # A local file system has checksum files beside its files: an edited file would not be readable.
        self._system: Any = system.getRawFileSystem() if system.getScheme() == "file" else system

    def file(self, table: str) -> str:
        """Return the path of a table's file."""
        return f"{self.location}/{quote(table, safe='. $-')}.json"

    def read(self, table: str) -> TableSchema | None:
        """Return a table's schema, or None without a file.

        Raises
        ------
        SyncError
            When the file cannot be understood.
        """
        text = self._read(self.file(table))
        if text is None:
            return self._unfinished(table)
        self._system.delete(self._path(self.file(table) + _NEW), False)  # a query was killed before it had replaced the file
        found = TableSchema.from_json(text, self.file(table))
        if found.table != table:
            raise SyncError(f"{self.file(table)} is the file of {found.table!r}: name each file as its table")
        return found

    def write(self, schema: TableSchema) -> None:
        """Write a table's schema, over an earlier one."""
        path, new = (self._path(self.file(schema.table) + suffix) for suffix in ("", _NEW))
        stream = self._system.create(new, True)
        try:
            stream.write(schema.to_json().encode())
        finally:
            stream.close()
        self._system.delete(path, False)
        if not self._system.rename(new, path):
            raise SyncError(f"{new} could not be renamed to {path}: check that the file system is writable, and start the query again")

    def _unfinished(self, table: str) -> TableSchema | None:
        """Return the schema of a complete file that was not renamed."""
        text = self._read(self.file(table) + _NEW)
        try:
            return None if text is None else TableSchema.from_json(text, self.file(table))
        except SyncError:
            return None

    def _read(self, file: str) -> str | None:
        path = self._path(file)
        if not self._system.exists(path):
            return None
        stream = self._system.open(path)
        try:
            return str(self._text(stream, "UTF-8"))
        finally:
            stream.close()
