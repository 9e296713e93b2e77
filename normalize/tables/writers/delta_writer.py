"""Which of Spark and delta-rs merges changes into a Delta table, and the merge by delta-rs.

delta-rs merges if all of this holds, and otherwise Spark does:

- the package ``deltalake`` is installed, in a version that the tests ran with
- no commit of Spark can replace one of delta-rs on this storage, or the user says that no other job
  writes the table (``only_writer``)
- delta-rs writes all that the table has (`normalize.tables.writers.delta_rs.unsupported`), and the changes
  have the types of its columns
- the changes fit into the memory that this process has left
- the files that have keys of the changes are small together: Spark merges more than one at a time
- delta-rs reads these files right (`normalize.tables.writers.delta_rs.unreadable`)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructType

from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.monitoring.progress import WRITERS
from normalize.spark.plans import estimated_bytes
from normalize.spark.sessions import hadoop_conf, is_connect
from normalize.tables.batches import (
    Batch,
    Record,
    is_repeat,
    log_repeat,
    show_in_checkpoint,
    version_of,
)
from normalize.tables.commits import ACCEPTED, OwnCommits, TableState
from normalize.tables.merge import ABSENT_COLUMN
from normalize.tables.packed import in_utc
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import (
    ArrowRows,
    TargetError,
    Writer,
    Written,
    available_memory,
    most_changes,
)

from . import delta_rs

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger("normalize")
_MIB = 2**20
_SHARE_OF_FILES = 16
"""The part of the memory that is left which rewritten files may have: Arrow's columns take about
eight times the bytes of files."""

_LOG = (
    f"commitInfo STRUCT<engineInfo: STRING, {delta_rs.MARK}: STRING>, "
    "add STRUCT<path: STRING, stats: STRING>, remove STRUCT<path: STRING>"
)
_BEYOND = r'"(0...|1[0-5]..|16[0-6].|167[0-6]|226[3-9]|22[7-9].|2[3-9]..|[3-9]...)-..-..T[^"]*(Z|[+-]..:..)"'
"""A bound of timestamps that are not 64-bit nanoseconds."""


@dataclass
class DeltaWriter:
    """Merges changes into a Delta table by delta-rs, where that is right and cheaper.

    Parameters
    ----------
    table : str
        The table, for errors and the log.
    sql_name, location : str
        Its name in SQL, and its path or URI; empty: the catalog knows it.
    writer : {"spark", "delta-rs"} or None
        The only writer; None: it depends.
    only_writer : bool
        Whether no other job writes the table.
    options : mapping
        Options of delta-rs for the storage.
    commits : OwnCommits
        The commits of a query in the table.
    """

    table: str
    sql_name: str
    location: str
    writer: Writer | None
    only_writer: bool
    options: Mapping[str, str] = field(repr=False)
    commits: OwnCommits = field(repr=False)
    most_rewritten: int = 128 * _MIB
    """The bytes of files that delta-rs writes anew in place of Spark's deletion vectors."""
    written: Written | None = None
    """The writer of the last micro-batch."""
    _kept: Written | None = None
    _statistics_checked: bool = False
    _int96: dict[str, bool] = field(default_factory=dict, repr=False)

    def _opened(self, spark: SparkSession, spec: TableSpec) -> DeltaTable | None:
        """Return the table if delta-rs can write it; None: Spark writes.

        Raises
        ------
        TargetError
            When it cannot, and the user chose delta-rs.
        """
        reason, table = self._unsuitable(spark), None
        if not reason:
            try:
                table = delta_rs.open_table(self.location, self._options(spark))
            except Exception as error:
                reason = f"it cannot open the table ({' '.join(str(error).split())[:200]})"
            else:
                reason = delta_rs.unsupported(table) or _other_types(table, spec)
        return table if self._is_chosen(reason) else None

    @property
    def wrote(self) -> bool:
        """Whether delta-rs merged the last micro-batch."""
        return self.written is not None and self.written.writer == "delta-rs"

    def takes_arrow(self, spark: SparkSession) -> bool:
        """Return whether changes should be collected as Arrow's columns.

        They should not if Spark wrote the last micro-batch.
        """
        return (self.written is None or self.wrote) and self._is_chosen(self._unsuitable(spark))

    def record(self, spark: SparkSession, batch: Batch) -> Record | None:
        """Return the record of a query's last micro-batch, where delta-rs can open the table.

        Spark computes the table's state for it, in a job.
        """
        table = delta_rs.open_table(self.location, self._options(spark))
        return self._checked_record(spark, table, batch)

    def _checked_record(
        self, spark: SparkSession, table: DeltaTable, batch: Batch
    ) -> Record | None:
        """Return the record in a version of a table, which has the query's last commit.

        Raises
        ------
        CommitLostError
        """
        metadata, folder = table.metadata(), self.location.rstrip("/")
        # The catalog has a URI, and Hadoop a path.
        log = f"{unquote(folder) if folder.startswith('file:') else folder}/_delta_log"
        accepted, of = metadata.configuration.get(ACCEPTED), table.transaction_version
        state = TableState(str(metadata.id), table.version(), log, accepted, of)
        record, appended = self.commits.record(spark, batch, state, is_stored=True), of(batch.query)
        return record or (None if appended is None else Record(appended))

    def merged(
        self,
        spark: SparkSession,
        rows: DataFrame | ArrowRows,
        spec: TableSpec,
        batch: Batch | None,
    ) -> bool:
        """Merge changes if delta-rs can and should, and return whether the table has them then.

        Parameters
        ----------
        spark : SparkSession
        rows : DataFrame or ArrowRows
            Same as in `Sink.merge`.
        spec : TableSpec
        batch : Batch or None
            The micro-batch, which the commit carries.

        Raises
        ------
        ConflictError
        RefusedError
            When a row violates a constraint of the table.
        BatchOrderError
            Same as in `is_repeat`: the record is one of the version that is merged.
        TargetError
            When the table has wrong statistics, which Spark's MERGE would believe, too.
        """
        if not self._statistics_checked:
            if wrong := self._wrong_statistics(spark, spec.primary_key[0]):
                raise TargetError(f"{self.table}: {wrong}")
            self._statistics_checked = True
        table = self._opened(spark, spec)
        if table is None:
            return False
        if batch is not None and is_repeat(
            batch, self._checked_record(spark, table, batch), self.table
        ):
            log_repeat(batch, self.table)
            return True
        left = available_memory()
        size = rows.table.nbytes if isinstance(rows, ArrowRows) else estimated_bytes(rows)
        if not self._is_chosen(_too_large("the changes have", size, most_changes(left))):
            return False
        names = [each["name"] for each in delta_rs.column_fields(table)]
        spelled = {name.lower(): name for name in names}
        plan = spec.plan(lambda name: spelled.get(name.lower(), name))
        most = left // _SHARE_OF_FILES
        if self.writer is None:
            most = min(most, self.most_rewritten)
        keys = partial(_keys, rows, spec.primary_key[0])
        files = delta_rs.touched_files(table, plan.primary_key[0], keys, most)
        size = sum(files.column("size_bytes").to_pylist())
        reason = _too_large("the files to rewrite have", size, most) or delta_rs.unreadable(
            table, files, self._options(spark), self._int96
        )
        if not self._is_chosen(reason):
            return False
        changes = rows.table if isinstance(rows, ArrowRows) else _arrow(rows, spec)
        changes = changes.rename_columns(
            [spelled.get(name.lower(), name) for name in changes.column_names]
        )
        if not self._is_chosen(delta_rs.unwritable(table, changes)):
            return False
        record = batch and delta_rs.Transaction(self.commits.application(batch), version_of(batch))
        version = table.version()
        numbers = delta_rs.merge(table, plan, changes, record, name=self.table, spill=left // 2)
        _log.debug("%s: %s", self.table, numbers)
        # delta-rs commits nothing if no row changes.
        if table.version() > version:
            self.commits.keep(batch)
        self._note("delta-rs", "it can write the table, and the changes are small")
        return True

    def _unsuitable(self, spark: SparkSession) -> str:
        """Return why delta-rs cannot be used at all; empty if it can."""
        if self.writer == "spark":
            return "writer='spark'"
        if is_connect(spark):
            return "a session of Spark Connect has no driver here"
        reason = delta_rs.not_installed()
        if reason:
            return reason
        if not self._has_location(spark):
            return "the catalog does not have it yet"
        return "" if self.only_writer else delta_rs.unsafe_storage(self.location)

    def _has_location(self, spark: SparkSession) -> bool:
        """Return whether the table's location is known, or the catalog knows it."""
        if not self.location:
            detail = f"DESCRIBE DETAIL {self.sql_name}"
            try:
                self.location = spark.sql(detail).select("location").collect()[0][0]
            except AnalysisException:
                return False
        return True

    def damages(self, spark: SparkSession, key: str) -> Iterator[str]:
        """Yield what delta-rs damaged in an earlier version of this library, and the remedy.

        Parameters
        ----------
        spark : SparkSession
        key : str
            A column of the primary key.
        """
        if wrong := self._wrong_statistics(spark, key):
            yield wrong
        if not self._has_location(spark):
            return
        log = spark.read.schema(_LOG).json(f"{self.location}/_delta_log/*.json")
        log = log.withColumn("commit", F.input_file_name())
        own = log.where("commitInfo.engineInfo LIKE 'delta-rs%'")
        removed = log.join(own.where(f"commitInfo.{delta_rs.MARK} IS NULL"), "commit", "left_semi")
        added = log.join(own, "commit", "left_anti").where(F.col("add.stats").rlike(_BEYOND))
        paths = added.select("add.path").join(removed.select("remove.path"), "path", "left_semi")
        if files := paths.distinct().count():
            yield (
                f"delta-rs has rewritten {files} files that Spark wrote with timestamps before 1677 "
                "or after 2262: if their type was INT96, Spark's default, rows that did not change "
                "have other timestamps: read the table again (cdc resync)"
            )

    def _wrong_statistics(self, spark: SparkSession, key: str) -> str:
        """Return which statistics are wrong, as far as delta-rs can read the table."""
        if is_connect(spark) or delta_rs.not_installed() or not self._has_location(spark):
            return ""
        options = self._options(spark)
        try:
            table = delta_rs.open_table(self.location, options)
            wrong = delta_rs.wrong_statistics(table, options)
        except Exception as error:
            _log.info("the statistics of %s are not checked: %s", self.table, str(error)[:200])
            return ""
        columns = ", ".join(f"{name} ({count} files)" for name, count in wrong.items())
        return columns and (
            f"delta-rs has written wrong statistics of {columns}, in an earlier version of this "
            "library, so that MERGE and filters do not see rows: stop the query, run OPTIMIZE "
            f"{self.sql_name} ZORDER BY ({backquoted(key)}), and then cdc maintain --check, which "
            "counts doubled keys"
        )

    def _options(self, spark: SparkSession) -> dict[str, str]:
        settings = cache(lambda: hadoop_conf(spark))  # a copy, which a path does not need
        return delta_rs.storage_options(self.location, lambda name: settings().get(name)) | dict(
            self.options
        )

    def _is_chosen(self, reason: str) -> bool:
        """Return whether delta-rs writes: there is no reason against it.

        Raises
        ------
        TargetError
            When there is one, and the user chose delta-rs.
        """
        if reason and self.writer == "delta-rs":
            raise TargetError(
                f"{self.table} cannot be written by delta-rs: {reason}. Remove writer='delta-rs', "
                "and Spark writes it"
            )
        if reason:
            self._note("spark", reason)
        return not reason

    def _note(self, writer: Writer, reason: str) -> None:
        """Note which writer writes, and log it if it is another one than before."""
        written = Written(writer, reason)
        if written != self.written:
            _log.info("%s is written by %s: %s", self.table, writer, reason)
        self.written = written

    def keep_written(self, spark: SparkSession, batch: Batch | None) -> None:
        """Write which writer writes, and why, into the query's checkpoint, for ``cdc status``."""
        if batch is None or self.written in (None, self._kept):
            return
        self._kept = self.written
        assert self.written is not None
        show_in_checkpoint(spark, batch, WRITERS, self.sql_name, **self.written._asdict())


def _too_large(what: str, size: int, most: int) -> str:
    """Return a sentence if a size is above a bound.

    Without the size, so that the log has it once.
    """
    return "" if size <= most else f"{what} more than {most // _MIB:,} MiB"


def _arrow(rows: DataFrame, spec: TableSpec) -> pa.Table:
    """Return computed rows as Arrow's columns."""
    names = [ROW_KIND, *spec.names, *[ABSENT_COLUMN] * spec.partial_rows]
    return in_utc(rows.select(*map(backquoted, names)).toArrow())


def _keys(rows: DataFrame | ArrowRows, name: str) -> pa.ChunkedArray:
    """Return values of a column, with its least and its greatest."""
    if isinstance(rows, ArrowRows):
        return rows.table.column(name)
    bounds = [of(backquoted(name)).alias(of.__name__) for of in (F.min, F.max)]
    least, greatest = rows.agg(*bounds).toArrow().columns
    return pa.chunked_array([*least.chunks, *greatest.chunks])


def _other_types(table: DeltaTable, spec: TableSpec) -> str:
    """Return which column has another type in the table than in the changes; empty if none has.

    Only Spark casts as its settings say.
    """
    fields = delta_rs.column_fields(table)
    stored = StructType.fromJson({"type": "struct", "fields": fields})
    types = {each.name.lower(): each.dataType.simpleString() for each in stored.fields}
    for each in spec.fields:
        own, there = each.dataType.simpleString(), types.get(each.name.lower())
        if own != there:
            return f"the changes have {each.name} as {own}, and the table as {there}"
        if own in ("float", "double") and each.name in spec.primary_key:
            # For Spark, 0.0 and -0.0 are one key.
            return f"{each.name} is part of the key and has the type {own}"
    return ""
