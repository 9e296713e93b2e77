"""The folder with a JSON file for each table, on any file system that Hadoop knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .table_options import SyncError
from .table_schema import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SchemaStore:
    """Reads and writes the files of tables.

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
        path = self._path(self.file(table))
        if not self._system.exists(path):
            return None
        stream = self._system.open(path)
        try:
            text = str(self._text(stream, "UTF-8"))
        finally:
            stream.close()
        found = TableSchema.from_json(text, self.file(table))
        if found.table != table:
            raise SyncError(f"{self.file(table)} is the file of {found.table!r}: name each file as its table")
        return found

    def write(self, schema: TableSchema) -> None:
        """Write a table's schema, over an earlier one."""
        stream = self._system.create(self._path(self.file(schema.table)), True)
        try:
            stream.write(schema.to_json().encode())
        finally:
            stream.close()
