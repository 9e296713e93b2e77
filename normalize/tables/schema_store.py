"""The folder with a JSON file per table and one for the query, on any Hadoop file system."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import msgspec
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError
from normalize.arguments import check_location
from normalize.spark.files import Files

from .batches import BatchOrderError
from .facts import QueryFacts
from .resync_state import Resync
from .schema import TableSchema
from .table_options import SyncError

T = TypeVar("T")
_JSON, _NEW, _RESYNC = ".json", ".new", "query/resync"
_LONGEST, _BEFORE_DIGEST = 246, 200
_DIGEST = "+"
"""Separates the beginning of a long name from its digest; `quote` leaves no such character."""


def file_name(table: str) -> str:
    """Return the name of a table's file, without ``.json``: at most 246 bytes.

    File systems allow 255 bytes, of which ``.json.new`` takes nine.

    Examples
    --------
    >>> file_name("shop.`order/items`")
    'shop.%60order%2Fitems%60'
    >>> len(file_name("shop." + "注" * 28)), len(file_name("n" * 300))
    (233, 233)
    """
    name = quote(table, safe=". $-")
    if len(name) <= _LONGEST:
        return name
    digest = hashlib.sha256(table.encode()).hexdigest()[:32]
    return f"{name[:_BEFORE_DIGEST]}{_DIGEST}{digest}"


class SchemaStore:
    """Reads and writes the files of tables and of the query.

    A file is replaced by a complete one: it is written as ``.new``, and then renamed. A query that
    is killed meanwhile leaves the earlier file, or a complete ``.new``, or neither: then nothing
    has been written to the table yet. A file that is not as this query left it is not replaced: the
    driver of a later run may have written it.

    The query's file is ``query/facts.json``, and those of tables that are read again are in
    ``query/resync``: no table's file is in a subfolder.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    location : str
        A path, or a URL such as ``s3a://bucket/shop``.

    Raises
    ------
    ArgumentError
        When the location is a file.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        check_location("schema_location", location)
        self.location = location.rstrip("/") or "/"
        self._contents: dict[str, str | None] = {}
        self._files = Files(spark, raw=True)
        if self._files.exists(self.location) and not self._files.is_folder(self.location):
            raise ArgumentError(
                f"schema_location {self.location!r} is a file: pass a folder, which may be missing"
            )

    def file(self, table: str) -> str:
        """Return the path of a table's file."""
        return f"{self.location}/{file_name(table)}{_JSON}"

    @property
    def query_file(self) -> str:
        """The path of the query's file."""
        return f"{self.location}/query/facts{_JSON}"

    def tables(self) -> list[str]:
        """Return the names of the tables that have a file."""
        return sorted(filter(None, map(self._table, self._names(self.location))))

    def _names(self, folder: str) -> set[str]:
        """Return the names of the files in a folder, without ``.json``, also of those not renamed."""
        if not self._files.exists(folder):
            return set()
        names = {each.removesuffix(_NEW) for each in self._files.names(folder)}
        return {name.removesuffix(_JSON) for name in names if name.endswith(_JSON)}

    def _table(self, name: str) -> str:
        """Return the table of a file; empty for a long name whose file is not complete."""
        if _DIGEST not in name:
            return unquote(name)
        schema = self._schema(f"{self.location}/{name}{_JSON}")
        return "" if schema is None else schema.table

    def _schema(self, file: str) -> TableSchema | None:
        return self._whole(file, lambda text: TableSchema.from_json(text, file))

    def read(self, table: str) -> TableSchema | None:
        """Return a table's schema, or None without a file.

        Raises
        ------
        SyncError
            When the file cannot be understood.
        """
        file = self.file(table)
        schema = self._schema(file)
        if schema is not None and schema.table != table:
            raise SyncError(f"{file} is the file of {schema.table!r}: name each file as its table")
        return schema

    def write(self, schema: TableSchema) -> None:
        """Write a table's schema, over an earlier one."""
        self._replace(self.file(schema.table), schema.to_json())

    def read_query(self) -> QueryFacts:
        """Return the facts about the query.

        Raises
        ------
        SyncError
            When the file cannot be understood.
        """
        remedy = (
            "restore it, or delete it, and the topics are no longer compared with those of earlier "
            "runs"
        )
        return self._decoded(self.query_file, QueryFacts, "a query", remedy) or QueryFacts()

    def write_query(self, facts: QueryFacts) -> None:
        """Write the facts about the query, over earlier ones."""
        self._replace(self.query_file, _json(facts))

    def resyncs(self) -> list[Resync]:
        """Return the tables that are or were read again, in the order of the requests."""
        folder = f"{self.location}/{_RESYNC}"
        read = (self._resync(f"{folder}/{name}{_JSON}") for name in self._names(folder))
        return sorted(
            (each for each in read if each is not None), key=lambda each: each.requested_at
        )

    def read_resync(self, table: str) -> Resync | None:
        """Return how a table is read again; None if it was never requested."""
        return self._resync(self._resync_file(table))

    def write_resync(self, resync: Resync, new: str = _NEW) -> None:
        """Write how a table is read again, over an earlier file; first with the suffix `new`."""
        self._replace(self._resync_file(resync.table), _json(resync), new)

    def beside(self, resync: Resync, spark: SparkSession) -> SchemaStore:
        """Return the store of the new table, while a table is read again."""
        return SchemaStore(spark, f"{self.location}/{_RESYNC}/{resync.id}")

    def remove(self) -> None:
        """Delete the folder with all files."""
        self._files.remove(self.location)

    def _resync_file(self, table: str) -> str:
        return f"{self.location}/{_RESYNC}/{file_name(table)}{_JSON}"

    def _resync(self, file: str) -> Resync | None:
        """Return how a table is read again; without an id if the file cannot be understood."""
        what, remedy = "a table that is read again", "request it again"
        try:
            return self._decoded(file, Resync, what, remedy, is_shared=True)
        except SyncError as error:
            table = unquote(file.rpartition("/")[2].removesuffix(_JSON))
            return Resync(table, phase="failed", reason=str(error))

    def _decoded(
        self, file: str, kind: type[T], what: str, remedy: str, *, is_shared: bool = False
    ) -> T | None:
        """Return a file's content as a record, as `_whole`."""

        def parse(text: str) -> T:
            try:
                return msgspec.json.decode(text, type=kind)
            except msgspec.DecodeError as error:
                raise SyncError(f"{file} is not the file of {what} ({error}): {remedy}") from None

        return self._whole(file, parse, is_shared=is_shared)

    def _replace(self, file: str, text: str, new: str = _NEW) -> None:
        """Write a file over the one that this query read or wrote; first with the suffix `new`.

        Raises
        ------
        BatchOrderError
            When the file is another one.
        """
        if self._read(file) != self._contents.get(file):
            raise BatchOrderError(
                f"{file} changed since this query read it, and was not replaced. Either another "
                "driver runs the same query: stop all drivers but one, and start it again. Or the "
                "file was edited while the query runs: start the query again"
            )
        self._files.write(file + new, text, replace=True)
        self._files.remove(file)
        try:
            self._files.rename(file + new, file)
        except OSError as error:
            raise SyncError(
                f"{error}: check that the file system is writable, and start the query again"
            ) from None
        self._contents[file] = text

    def _whole(self, file: str, parse: Callable[[str], T], *, is_shared: bool = False) -> T | None:
        """Return a file's content, else that of a complete one not renamed; None without one.

        Another process may be replacing a shared file now.
        """
        text, new = self._read(file), file + _NEW
        self._contents[file] = text
        if text is not None:
            if not is_shared:
                self._files.remove(new)  # a query was killed before it had replaced the file
            return parse(text)
        text = self._read(new)
        try:
            return None if text is None else parse(text)
        except SyncError:
            return None

    def _read(self, file: str) -> str | None:
        return self._files.read(file) if self._files.exists(file) else None


def _json(content: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(content), indent=2).decode()
