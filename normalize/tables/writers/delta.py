"""Delta tables, merged by delta-rs where that is right and cheaper, and otherwise by Spark.

delta-rs merges if all of this holds:

- the package ``deltalake`` is installed, in a version that the tests ran with
- no commit of Spark can replace one of delta-rs on this storage without a notice, or the user says
  that no other job writes the table (``only_writer``)
- delta-rs writes all that the table has (`normalize.tables.writers.delta_rs.unsupported`), and the changes
  have the types of its columns
- the changes fit into the memory that this process has left
- the files that have keys of the changes are small together: Spark merges more than one at a time
- delta-rs reads these files right (`normalize.tables.writers.delta_rs.unreadable`)
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import StructField, StructType

from cdc_formats.errors import ArgumentError, SchemaError, refuse
from cdc_formats.values.schema import backquoted
from normalize.arguments import check_choice
from normalize.core.output import ROW_KIND
from normalize.spark.files import Files
from normalize.spark.memory import available_memory
from normalize.spark.micro_batch import Batch
from normalize.spark.plans import delta_snapshot, estimated_bytes, in_utc
from normalize.spark.sessions import hadoop_conf, is_connect
from normalize.tables.batches import Record, is_repeat, log_repeat, version_of
from normalize.tables.commits import ACCEPTED, TableState
from normalize.tables.layout import (
    GENERATED,
    Layout,
    StoredLayout,
    in_lower,
    other_properties,
    sql_property,
)
from normalize.tables.merge import ABSENT_COLUMN
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import (
    ArrowRows,
    ConflictError,
    TargetError,
    Writer,
    most_changes,
)

from . import delta_rs
from .lake import LakeSink, LakeTarget, paths_of, properties_of

if TYPE_CHECKING:
    from deltalake import DeltaTable

_log = logging.getLogger("normalize")
_MIB = 2**20
MOST_REWRITTEN = 128 * _MIB
"""The bytes of files that delta-rs writes anew in place of Spark's deletion vectors."""
_SHARE_OF_FILES = 16
"""The part of the memory that is left which rewritten files may have: Arrow's columns take about
eight times the bytes of files."""
_RESERVED = frozenset(" ,;{}()\n\t=")
_STATE_TASKS = "spark.databricks.delta.snapshotPartitions"
_MOST_STATE_TASKS = 50  # Delta's default
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_WRITE = "spark.databricks.delta.write"
_MAPPING = "delta.columnMapping.mode"
_LOG_STORES = (
    "spark.delta.logStore.class",
    "spark.delta.logStore.file.impl",
    "delta.logStore.file.impl",
)
_LOG_STORE = "io.delta.storage.HDFSLogStore"
"""The settings of Delta's log store for local tables, and its default."""
_MAPPING_OF_NEW_TABLES = "spark.databricks.delta.properties.defaults.columnMapping.mode"


def is_path(name: str) -> bool:
    """Return whether a Delta table or database name is a path: has a slash outside backquotes."""
    return "/" in re.sub("`(?:[^`]|``)*`", "", name)


def require_absolute(name: str) -> None:
    """Raise an error for a relative path, which Delta does not read.

    Raises
    ------
    ArgumentError
    """
    if is_path(name) and not re.match("/|[A-Za-z][A-Za-z0-9+.-]*:", name):
        raise ArgumentError(
            f"the path {name!r} is relative: pass an absolute path (/lake/shop) or a URI "
            "(s3a://lake/shop)"
        )


@dataclass(frozen=True)
class DeltaTarget(LakeTarget):
    """A Delta table.

    Parameters
    ----------
    name : str
        An absolute path or a URI (with a ``/`` outside of backquotes), or a name in the session's
        catalogs. Backquotes are needed only around a part with a dot, a slash or a backquote:
        ``shop.`order.items```.
    writer : {"spark", "delta-rs"} or None
        What merges changes: Spark, or delta-rs (the extra ``delta``) in the driver's process. None:
        delta-rs where it is right and cheaper (`normalize.tables.writers.delta`).
    only_writer : bool
        Whether no other job writes the table, also no OPTIMIZE, while the query runs. Otherwise
        Spark writes on NFS and on S3, where a commit of another Spark could replace one of delta-rs.
    storage_options : mapping
        Options of delta-rs for the storage, beside the credentials that the session has.
    """

    writer: Writer | None = field(default=None, kw_only=True, repr=False)
    only_writer: bool = field(default=False, kw_only=True, repr=False)
    storage_options: Mapping[str, str] = field(
        default_factory=dict, kw_only=True, repr=False, hash=False
    )
    provider: ClassVar[str] = "delta"
    features: ClassVar[Mapping[str, str]] = {
        "timestamp_ntz": "'delta.feature.timestampNtz' = 'supported'",
        "variant": "'delta.feature.variantType' = 'supported'",
    }
    skips_repeats: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        require_absolute(self.name)
        if self.writer is not None:
            check_choice("writer", self.writer, ("spark", "delta-rs"))
        missing = "" if self.writer == "spark" else delta_rs.not_installed()
        if self.writer == "delta-rs":
            is_shared = is_path(self.name) and not self.only_writer
            reason = missing or (delta_rs.unsafe_storage(self.name) if is_shared else "")
            refuse((reason, f"writer='delta-rs' cannot be used for {self.name}: {reason}"))

    @property
    def parts(self) -> tuple[str, ...]:
        """The catalog, namespaces and table; of a path, ``delta`` and the path."""
        return ("delta", self.name) if is_path(self.name) else super().parts

    def sink(self, spark: SparkSession) -> DeltaSink:
        return DeltaSink(spark, self)

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return a session like the user's, where Delta does not store a MERGE's source again."""
        own = super().session(spark)
        own.conf.set("spark.databricks.delta.merge.materializeSource", "none")
        cls.tune(own)
        return own

    @classmethod
    def tune(cls, own: SparkSession) -> None:
        """Set what the user has not set.

        Delta computes a table's state, after each commit, in as many tasks as Spark runs, and at
        least in 8, so that the state of a table of many files fits into their memory. It writes
        timestamps that delta-rs reads right.
        """
        tasks = min(max(8, own.sparkContext.defaultParallelism), _MOST_STATE_TASKS)
        for name, value in {_STATE_TASKS: str(tasks), _TIMESTAMPS: "TIMESTAMP_MICROS"}.items():
            if own.conf.get(name, None) is None:
                own.conf.set(name, value)

    # ----------------------------------------------------------------------------------------------
    # the layout

    @classmethod
    def check_layout(cls, layout: Layout, columns: Collection[str] = ()) -> None:
        names = in_lower(columns)
        refuse(
            (
                layout.partition_by and layout.cluster_by,
                "partition_by and cluster_by cannot be combined for Delta: remove one of them",
            ),
            *(
                (
                    each.size is not None,
                    f"partition_by has {each.iceberg()}, which Delta does not have: write "
                    f"cluster_by=[{each.column!r}]",
                )
                for each in layout.partition_by
            ),
            *(
                (
                    each.generated.lower() in names,
                    f"partition_by adds the column {each.generated!r}, which the table has: "
                    "partition by it",
                )
                for each in layout.partition_by
            ),
        )

    @classmethod
    def clauses(cls, layout: Layout) -> tuple[list[str], str]:
        of = [(each, *GENERATED[each.transform]) for each in layout.partition_by if each.transform]
        generated = [
            f"{backquoted(each.generated)} {kind} GENERATED ALWAYS AS "
            f"({expression.format(backquoted(each.column))})"
            for each, kind, expression in of
        ]
        names = ", ".join(backquoted(each.generated or each.column) for each in layout.partition_by)
        clustered = ", ".join(map(backquoted, layout.cluster_by))
        return generated, (f" PARTITIONED BY ({names})" if names else "") + (
            f" CLUSTER BY ({clustered})" if clustered else ""
        )

    def differences(self, layout: Layout, stored: StoredLayout) -> list[str]:
        partitions, order, properties = stored
        alter = f"ALTER TABLE {self.sql_name}"
        names = [each.generated or each.column for each in layout.partition_by]
        statements = []
        if in_lower(names) not in ([], in_lower(partitions)):
            statements = [
                "no statement changes the partitions of a Delta table, which are "
                f"({', '.join(partitions)}): write a new table in a query of its own"
            ]
        elif in_lower(layout.cluster_by) not in ([], in_lower(order)):
            statements = [f"{alter} CLUSTER BY ({', '.join(map(backquoted, layout.cluster_by))})"]
        return [*statements, *other_properties(layout, properties, alter)]


class _ForSparkError(Exception):
    """Why Spark merges, and not delta-rs."""


def _require_none(reason: str) -> None:
    if reason:
        raise _ForSparkError(reason)


@dataclass
class DeltaSink(LakeSink):
    """Writes a Delta table."""

    table: DeltaTarget
    location: str = field(init=False)
    """The table's path or URI; empty: the catalog knows it."""
    _statistics_checked: bool = field(default=False, init=False)
    _int96: dict[str, bool] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.location = self.table.name if is_path(self.table.name) else ""

    # ----------------------------------------------------------------------------------------------
    # the table

    def widen(self, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
        kind = new.dataType.simpleString()
        if kind == "timestamp":
            return []
        features = {"delta.enableTypeWidening": "true"} | (
            {"delta.feature.timestampNtz": "supported"} if kind == "timestamp_ntz" else {}
        )
        properties = ", ".join(sql_property(*each) for each in features.items())
        alter = f"ALTER TABLE {self.table.sql_name}"
        return [f"{alter} SET TBLPROPERTIES ({properties})", self.altered_type(new)]

    def _stored_layout(self) -> StoredLayout:
        (detail,) = self.spark.sql(f"DESCRIBE DETAIL {self.table.sql_name}").collect()
        return detail["partitionColumns"], detail["clusteringColumns"], detail["properties"]

    def _require_names(self, fields: Sequence[StructField], layout: Layout | None) -> None:
        default = "none"
        if layout is None:
            properties: Mapping[str, str] = properties_of(self.spark, self.table)
        else:
            properties = dict(layout.properties)
            default = self.spark.conf.get(_MAPPING_OF_NEW_TABLES, "none") or "none"
        if properties.get(_MAPPING, default) != "none":
            return
        refuse(
            *(
                (
                    _RESERVED.intersection(path[-1]),
                    f"the column {'.'.join(path)!r} of {self.table} has one of the characters "
                    "' ,;{}()\\n\\t=' in its name: rename it, or create the table with "
                    f"{_MAPPING}=name (in this session, by {_MAPPING_OF_NEW_TABLES}=name)",
                )
                for path in paths_of(fields)
            ),
            error=SchemaError,
        )

    def _record_settings(self, batch: Batch) -> dict[str, str]:
        return {
            f"{_WRITE}.txnAppId": self.commits.application(batch),
            f"{_WRITE}.txnVersion": str(version_of(batch)),
        }

    def _state(self, batch: Batch) -> TableState:
        return TableState(*delta_snapshot(self.rows(), ACCEPTED))

    def drop(self) -> None:
        if is_path(self.table.name):
            Files(self.spark).remove(self.table.name)
        else:
            self.spark.sql(f"DROP TABLE IF EXISTS {self.table.sql_name}")

    # ----------------------------------------------------------------------------------------------
    # the record of a micro-batch

    @property
    def _wrote(self) -> bool:
        """Whether delta-rs merged the last micro-batch."""
        return self.written is not None and self.written["writer"] == "delta-rs"

    def record(self, batch: Batch) -> Record | None:
        if not self._wrote:
            return super().record(batch)
        return self._checked_record(delta_rs.open_table(self.location, self._options()), batch)

    def _checked_record(self, table: DeltaTable, batch: Batch) -> Record | None:
        """Return the record in a version of a table, which has the query's last commit.

        Raises
        ------
        CommitLostError
        """
        metadata, folder = table.metadata(), self.location.rstrip("/")
        # The catalog has a URI, and Hadoop a path.
        log = f"{unquote(folder) if folder.startswith('file:') else folder}/_delta_log"
        accepted, version = metadata.configuration.get(ACCEPTED), table.version()
        state = TableState(str(metadata.id), version, log, accepted, table.transaction_version)
        return self.commits.record(self.spark, batch, state, is_stored=True)

    # ----------------------------------------------------------------------------------------------
    # which of Spark and delta-rs merges

    @property
    def takes_arrow(self) -> bool:
        """Whether changes should be collected: not if Spark wrote the last micro-batch."""
        if self.written is not None and not self._wrote:
            return False
        if reason := self._unsuitable():
            self.note("spark", reason)
        return not reason

    def merge_arrow(self, latest: ArrowRows, spec: TableSpec) -> None:
        with self.conflicts():
            self._merge(latest, spec)

    def _write(self, latest: DataFrame | ArrowRows, spec: TableSpec, batch: Batch | None) -> None:
        """Write the changes by delta-rs, or else by Spark.

        Raises
        ------
        ConflictError
        RefusedError
            When a row violates a constraint of the table.
        BatchOrderError
            Same as in `is_repeat`: the record is one of the version that is merged.
        TargetError
            When the table has wrong statistics, which Spark's MERGE would believe, too; and when
            delta-rs cannot write, and the user chose it.
        """
        if not self._statistics_checked:
            if wrong := self._wrong_statistics(spec.primary_key[0]):
                raise TargetError(f"{self.table}: {wrong}")
            self._statistics_checked = True
        try:
            self._merge_by_delta_rs(latest, spec, batch)
        except _ForSparkError as reason:
            self.note("spark", str(reason))
            super()._write(latest, spec, batch)

    def _merge_by_delta_rs(
        self, rows: DataFrame | ArrowRows, spec: TableSpec, batch: Batch | None
    ) -> None:
        table = self._opened(spec)
        if batch is not None and is_repeat(batch, self._checked_record(table, batch), self.table):
            log_repeat(batch, self.table)
            return
        left = available_memory()
        size = rows.table.nbytes if isinstance(rows, ArrowRows) else estimated_bytes(rows)
        _require_none(_too_large("the changes have", size, most_changes(left)))
        spelled = {each["name"].lower(): each["name"] for each in delta_rs.column_fields(table)}
        plan = spec.plan(lambda name: spelled.get(name.lower(), name))
        most = left // _SHARE_OF_FILES
        if self.table.writer is None:
            most = min(most, MOST_REWRITTEN)
        keys = partial(_keys, rows, spec.primary_key[0])
        files = delta_rs.touched_files(table, plan.primary_key[0], keys, most)
        size = sum(files.column("size_bytes").to_pylist())
        _require_none(_too_large("the files to rewrite have", size, most))
        _require_none(delta_rs.unreadable(table, files, self._options(), self._int96))
        if isinstance(rows, ArrowRows):
            changes = rows.table
        else:
            computed = [ROW_KIND, *spec.names, *[ABSENT_COLUMN] * spec.partial_rows]
            changes = in_utc(rows.select(*map(backquoted, computed)).toArrow())
        changes = changes.rename_columns(
            [spelled.get(name.lower(), name) for name in changes.column_names]
        )
        _require_none(delta_rs.unwritable(table, changes))
        self.note("delta-rs", "it can write the table, and the changes are small")
        record = batch and (self.commits.application(batch), version_of(batch))
        version, name = table.version(), str(self.table)
        numbers = delta_rs.merge(table, plan, changes, record, name=name, spill=left // 2)
        _log.debug("%s: %s", self.table, numbers)
        # delta-rs commits nothing if no row changes.
        if table.version() > version:
            is_shared = delta_rs.is_local(self.location) and not self.table.only_writer
            if is_shared and not self.commits.has(batch, table.version()):
                raise ConflictError(f"another Spark replaced the commit of {self.table}")
            self.commits.keep(batch)

    def _opened(self, spec: TableSpec) -> DeltaTable:
        """Return the table, if delta-rs can write it."""
        _require_none(self._unsuitable())
        try:
            table = delta_rs.open_table(self.location, self._options())
        except Exception as error:
            text = " ".join(str(error).split())[:200]
            raise _ForSparkError(f"it cannot open the table ({text})") from None
        _require_none(next(delta_rs.unsupported(table), "") or _other_types(table, spec))
        return table

    def _unsuitable(self) -> str:
        """Return why delta-rs cannot be used at all; empty if it can."""
        if self.table.writer == "spark":
            return "writer='spark'"
        if is_connect(self.spark):
            return "a session of Spark Connect has no driver here"
        if reason := delta_rs.not_installed():
            return reason
        if not self._has_location():
            return "the catalog does not have it yet"
        return self._unsafe_storage

    @cached_property
    def _unsafe_storage(self) -> str:
        """Why delta-rs cannot write where the table is, whose location is known; empty if it can.

        Once for all micro-batches: each setting is a call of the JVM, and the mounts are a file.
        """
        # A path without a scheme has that of the session's file system.
        if self.location.startswith("/"):
            scheme = str(hadoop_conf(self.spark).get("fs.defaultFS")).partition(":")[0]
            if scheme != "file":
                return f"storage of {scheme}: is not tested"
        if self.table.only_writer:
            return ""
        stores = {self.spark.conf.get(name, _LOG_STORE) for name in _LOG_STORES}
        if delta_rs.is_local(self.location) and stores != {_LOG_STORE}:
            return "the session names a log store for local tables"
        return delta_rs.unsafe_storage(self.location)

    def _has_location(self) -> bool:
        """Return whether the table's location is known, or the catalog knows it."""
        if not self.location:
            detail = f"DESCRIBE DETAIL {self.table.sql_name}"
            try:
                self.location = self.spark.sql(detail).select("location").collect()[0][0]
            except AnalysisException:
                return False
        return True

    def _options(self) -> dict[str, str]:
        settings = cache(lambda: hadoop_conf(self.spark))  # a copy, which a path does not need
        options = delta_rs.storage_options(self.location, lambda name: settings().get(name))
        return options | dict(self.table.storage_options)

    def note(self, writer: Writer, reason: str) -> None:
        """Note which writer writes, and log it if it is another one than before.

        Raises
        ------
        TargetError
            When Spark would write, and the user chose delta-rs.
        """
        if writer == "spark" and self.table.writer == "delta-rs":
            raise TargetError(
                f"{self.table} cannot be written by delta-rs: {reason}. Remove writer='delta-rs', "
                "and Spark writes it"
            )
        written = {"writer": writer, "reason": reason}
        if written != self.written:
            _log.info("%s is written by %s: %s", self.table, writer, reason)
            self.show(written)

    # ----------------------------------------------------------------------------------------------
    # what delta-rs damaged in earlier versions of this library

    def damages(self, key: str) -> Iterator[str]:
        """Yield the damage, and the remedy; `key` is a column of the primary key."""
        if wrong := self._wrong_statistics(key):
            yield wrong
        if not self._has_location():
            return
        log = self.spark.read.schema(_LOG).json(f"{self.location}/_delta_log/*.json")
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

    def _wrong_statistics(self, key: str) -> str:
        """Return which statistics are wrong, as far as delta-rs can read the table."""
        if is_connect(self.spark) or delta_rs.not_installed() or not self._has_location():
            return ""
        options = self._options()
        try:
            wrong = delta_rs.wrong_statistics(delta_rs.open_table(self.location, options), options)
        except Exception as error:
            _log.info("the statistics of %s are not checked: %s", self.table, str(error)[:200])
            return ""
        columns = ", ".join(f"{name} ({count} files)" for name, count in wrong.items())
        return columns and (
            f"delta-rs has written wrong statistics of {columns}, in another program or an earlier "
            "version of this library, so that MERGE and filters do not see rows: stop the query, run "
            f"OPTIMIZE {self.table.sql_name} ZORDER BY ({backquoted(key)}), and then cdc maintain --check, "
            "which counts doubled keys"
        )


_LOG = (
    f"commitInfo STRUCT<engineInfo: STRING, {delta_rs.MARK}: STRING>, "
    "add STRUCT<path: STRING, stats: STRING>, remove STRUCT<path: STRING>"
)
_BEYOND = r'"(0...|1[0-5]..|16[0-6].|167[0-6]|226[3-9]|22[7-9].|2[3-9]..|[3-9]...)-..-..T[^"]*(Z|[+-]..:..)"'
"""A bound of timestamps that are not 64-bit nanoseconds."""


def _too_large(what: str, size: int, most: int) -> str:
    """Return a sentence if a size is above a bound.

    Without the size, so that the log has it once.
    """
    return "" if size <= most else f"{what} more than {most // _MIB:,} MiB"


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
