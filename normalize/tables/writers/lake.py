"""Delta and Iceberg tables: ``MERGE INTO``, and appends that store their micro-batch's number.

Names of columns come from messages: statements quote them with backquotes, at every depth. Spark
replaces ``${...}`` even in backquotes, and so such a name is an error, as is one that the table
format does not support.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce
from operator import and_
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, DecimalType, MapType, StructField, StructType

from cdc_formats.errors import ArgumentError, SchemaError, printable
from cdc_formats.values.schema import backquoted, name_parts
from normalize.arguments import check_choice
from normalize.core.output import ROW_KIND
from normalize.dataframe import type_ddl
from normalize.monitoring.watch import Notice, log
from normalize.spark.files import Files
from normalize.spark.plans import delta_snapshot
from normalize.spark.sessions import copy_of, is_connect, java_causes, java_text, spark_error_types
from normalize.spark_versions import package
from normalize.tables.batches import (
    ICEBERG_BATCH,
    ICEBERG_OFFSETS,
    ICEBERG_QUERY,
    Batch,
    Record,
    is_repeat,
    log_repeat,
    running_batch,
    version_of,
)
from normalize.tables.commits import ACCEPTED, OwnCommits, TableState, iceberg_state
from normalize.tables.layout import (
    NO_LAYOUT,
    Layout,
    StoredLayout,
    differences,
    sql_literal,
    sql_property,
)
from normalize.tables.merge import ADDS, BASE_COLUMN, SPARK_SQL, Side, merge_statement
from normalize.tables.policy import DELETED_PROPERTY
from normalize.tables.table_spec import (
    TableSpec,
    missing_columns,
    require_no_narrowing,
    written_spec,
)
from normalize.tables.targets import (
    ArrowRows,
    ConflictError,
    Replacement,
    Sink,
    TableTarget,
    TargetError,
    Writer,
    Written,
)

from .delta_rs import not_installed, unsafe_storage
from .delta_writer import DeltaWriter

_log = logging.getLogger("normalize")
_MISSING = (
    "TABLE_OR_VIEW_NOT_FOUND",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
    "DELTA_TABLE_NOT_FOUND",
)
_MISSING_CLASS = re.compile(
    r"DATA_SOURCE_NOT_FOUND|CATALOG_NOT_FOUND|ClassNotFoundException|NoClassDefFoundError|"
    r"catalog plugin class|DELTA_CONFIGURE_SPARK_SESSION"
)
_CONFLICT = re.compile(
    r"(?:io\.delta|delta|org\.apache\.iceberg)\.exceptions\.(?:captured\.)?"
    r"(Concurrent\w+|DeltaConcurrentModificationException|MetadataChangedException|"
    r"ProtocolChangedException|CommitFailedException|ValidationException)\b|"
    r"java\.lang\.(IllegalStateException): .*the table has been concurrently modified"
)
"""Conflicts of commits, which wrote nothing: the exceptions of Delta (in Java and in delta-spark's
Python) and of Iceberg."""
_REMOVED_FILE = re.compile(
    r"(?:org\.apache\.iceberg\.exceptions\.NotFoundException:|.*\[FAILED_READ_FILE\.FILE_NOT_EXIST\]) "
    r"(.*)"
)
"""A file that the table had when the statement began: `VACUUM` or ``expire_snapshots`` removed it,
and nothing was written."""
_FORMAT, _VARIANT_FORMAT = "format-version", "3"
_FEATURES = {
    "delta": {
        "timestamp_ntz": "'delta.feature.timestampNtz' = 'supported'",
        "variant": "'delta.feature.variantType' = 'supported'",
    },
    "iceberg": {"variant": sql_property(_FORMAT, _VARIANT_FORMAT)},
}
"""The properties that a table requires for a column of a type, by provider."""
_RESERVED_BY_DELTA = frozenset(" ,;{}()\n\t=")
_SUBSTITUTE = "spark.sql.variable.substitute"
_STATE_TASKS = "spark.databricks.delta.snapshotPartitions"
_MOST_STATE_TASKS = 50  # Delta's default
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
_DELTA_WRITE = "spark.databricks.delta.write"
_ICEBERG_PROPERTY = "spark.sql.iceberg.snapshot-property"
_MAPPING = "delta.columnMapping.mode"
_MAPPING_OF_NEW_TABLES = "spark.databricks.delta.properties.defaults.columnMapping.mode"


@dataclass(frozen=True)
class LakeTarget(TableTarget):
    """A table of the session's catalogs, written with Spark's ``MERGE INTO``."""

    name: str
    provider: ClassVar[str]
    histories: ClassVar[bool] = True
    positions: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ArgumentError(
                f"{type(self).__name__} requires the name of a table, got {self.name!r}"
            )
        if not self.parts:
            raise ArgumentError(
                f"table name {self.name!r} has an empty part or an unbalanced backquote: write, "
                "for example, `shop`.`order``items`"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The catalog, namespaces and table; empty if the name cannot be parsed."""
        return name_parts(self.name)

    @property
    def sql_name(self) -> str:
        """The name in SQL, every part in backquotes."""
        return ".".join(map(backquoted, self.parts))

    @property
    def address(self) -> str:
        return f"{self.provider} {self.name.rstrip('/')}"

    def refresh(self, spark: SparkSession) -> None:
        refresh_table(spark, self)

    def sink(self, spark: SparkSession) -> LakeSink:
        return LakeSink(spark, self)

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return a session like the user's, whose settings name the micro-batch of its commits."""
        return copy_of(spark)

    @property
    def written(self) -> Written | None:
        return None if self.delta_rs is None else self.delta_rs.written

    @cached_property
    def commits(self) -> OwnCommits:
        """The commits of a query in the table."""
        return OwnCommits(str(self), self.sql_name)

    @property
    def delta_rs(self) -> DeltaWriter | None:
        """What merges into the table without Spark, where it can; None: only Spark merges."""
        return None


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
        delta-rs where it is right and cheaper (`normalize.tables.writers.delta_writer`).
    only_writer : bool
        Whether no other job writes the table, also no OPTIMIZE, while the query runs. Otherwise
        Spark writes on local and NFS paths and on S3, where a commit of another Spark could replace
        one of delta-rs.
    storage_options : mapping
        Options of delta-rs for the storage, beside the credentials that the session has.
    """

    writer: Writer | None = field(default=None, kw_only=True, repr=False)
    only_writer: bool = field(default=False, kw_only=True, repr=False)
    storage_options: Mapping[str, str] = field(
        default_factory=dict, kw_only=True, repr=False, hash=False
    )
    provider: ClassVar[str] = "delta"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_absolute(self.name)
        if self.writer is not None:
            check_choice("writer", self.writer, ("spark", "delta-rs"))
        reason = "" if self.writer == "spark" else not_installed()
        if self.writer == "delta-rs":
            if is_path(self.name) and not self.only_writer:
                reason = reason or unsafe_storage(self.name)
            if reason:
                raise ArgumentError(f"writer='delta-rs' cannot be used for {self.name}: {reason}")

    @cached_property
    def delta_rs(self) -> DeltaWriter | None:
        return DeltaWriter(
            str(self),
            self.sql_name,
            self.name if is_path(self.name) else "",
            self.writer,
            self.only_writer,
            self.storage_options,
            self.commits,
        )

    @property
    def parts(self) -> tuple[str, ...]:
        """The catalog, namespaces and table; of a path, ``delta`` and the path."""
        return ("delta", self.name) if is_path(self.name) else super().parts

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return a session like the user's, where Delta does not store a MERGE's source again."""
        own = super().session(spark)
        own.conf.set("spark.databricks.delta.merge.materializeSource", "none")
        cls.tune(own)
        return own

    @classmethod
    def settings(cls, own: SparkSession) -> dict[str, str]:
        """Return settings of Delta that the user has not set.

        It computes a table's state, after each commit, in as many tasks as Spark runs, and at least
        in 8, so that the state of a table of many files fits into their memory. It writes
        timestamps that delta-rs reads right.
        """
        tasks = max(8, own.sparkContext.defaultParallelism)
        settings = {
            _STATE_TASKS: str(min(tasks, _MOST_STATE_TASKS)),
            _TIMESTAMPS: "TIMESTAMP_MICROS",
        }
        return {name: each for name, each in settings.items() if own.conf.get(name, None) is None}


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """An Iceberg table.

    Parameters
    ----------
    name : str
        As ``catalog.namespace.table``. Backquotes are needed only around a part with a dot or a
        backquote: ``lake.db.`order.items```.
    """

    provider: ClassVar[str] = "iceberg"


@dataclass(frozen=True)
class LakeSink(Sink):
    """Writes a Delta or Iceberg table."""

    spark: SparkSession
    table: LakeTarget

    def needed(self, spec: TableSpec) -> list[str]:
        table, existing = self.table, self._schema()
        spec = written_spec(table, spec, None if existing is None else existing.fieldNames())
        _require_plain_text(self.spark, table, spec.fields)
        _require_merged_variants(self.spark, table, spec.fields)
        if existing is None:
            if not spec.create:
                raise TargetError(f"{table} does not exist: create it, or set create=True")
            mapping = self.spark.conf.get(_MAPPING_OF_NEW_TABLES, "none")
            mapping = dict(spec.layout.properties).get(_MAPPING, mapping)
            _require_names(table, spec.fields, mapping)
            created = create_statement(table, spec.fields, spec.deleted_column, spec.layout)
            return [created, *spec.layout.statements(table.provider, table.sql_name)]
        provider = provider_of(self.spark, table.sql_name)
        if provider != table.provider:
            raise TargetError(
                f"{table} has the provider {provider}: name a table of {table.provider}"
            )
        if spec.layout != NO_LAYOUT:
            self._warn_of_layout(spec.layout)
        require_no_narrowing(
            table, spec, {field.name: field.dataType for field in existing.fields}, self.widen
        )
        additions = partial(self._additions, deleted_column=spec.deleted_column)
        missing = missing_columns(table, spec, existing.fieldNames(), additions)
        if not missing:
            return []
        _require_names(table, missing, self._column_mapping())
        return additions(missing)

    def _warn_of_layout(self, layout: Layout) -> None:
        """Warn of an existing table with another layout."""
        table, spark = self.table, self.spark
        name = table.sql_name
        if table.provider == "delta":
            (detail,) = spark.sql(f"DESCRIBE DETAIL {name}").collect()
            stored = StoredLayout(
                detail["partitionColumns"], detail["clusteringColumns"], detail["properties"]
            )
        else:
            properties = {row["key"]: row["value"] for row in _properties(spark, table).collect()}
            order = properties.get("sort-order", "").replace(" ASC NULLS FIRST", "")
            stored = StoredLayout(_fields_of(spark, name), order.split(", "), properties)
        if statements := differences(layout, stored, table.provider, name):
            text = f"{table} has another layout, and keeps it: {'; '.join(statements)}"
            log([Notice((text,), text)])

    def _additions(self, missing: Sequence[StructField], deleted_column: str | None) -> list[str]:
        """Return the statements that add columns."""
        table = self.table
        added = (
            f"ALTER TABLE {table.sql_name} ADD COLUMNS "
            f"({', '.join(column_definition(field, table) for field in missing)})"
        )
        # The table requires these features, which exclude older readers, before the first column
        # of the type.
        kinds = _kinds(missing)
        properties = [
            feature for kind, feature in _FEATURES[table.provider].items() if kind in kinds
        ]
        # Before the column, too: statements that were run in part are run again.
        properties += [
            sql_property(DELETED_PROPERTY, field.name)
            for field in missing
            if field.name == deleted_column
        ]
        set_properties = f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES"
        return [*(f"{set_properties} ({each})" for each in properties), added]

    def widen(self, old: StructField, new: StructField, *, in_key: bool = False) -> list[str]:
        table, kind = self.table, new.dataType.simpleString()
        altered = (
            f"ALTER TABLE {table.sql_name} ALTER COLUMN {backquoted(new.name)} TYPE {kind.upper()}"
        )
        if table.provider == "iceberg":
            return [altered] if _iceberg_widens(old.dataType, new.dataType) else []
        if kind == "timestamp":
            return []
        features = {"delta.enableTypeWidening": "true"} | (
            {"delta.feature.timestampNtz": "supported"} if kind == "timestamp_ntz" else {}
        )
        properties = ", ".join(sql_property(*each) for each in features.items())
        return [f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES ({properties})", altered]

    def prepare(self, spec: TableSpec) -> TableSpec:
        with self.conflicts():
            statements = self.needed(spec)
        try:
            with self.conflicts():
                for statement in statements:
                    self.spark.sql(statement)
        except spark_error_types() as error:
            if self._changed_meanwhile(spec, statements):
                raise ConflictError(
                    f"another writer created or altered {self.table} at the same time"
                ) from None
            raise TargetError(
                f"{self.table} cannot be created or altered: {_reason(error)}{self._remedy(error)}"
            ) from None
        return (
            spec
            if spec.on_new_column != "ignore"
            else written_spec(self.table, spec, self.rows().columns)
        )

    def _changed_meanwhile(self, spec: TableSpec, statements: list[str]) -> bool:
        """Return whether other statements are needed now.

        A table that is being created becomes visible a moment later.
        """
        for pause in (0, 0.5, 1, 2):
            time.sleep(pause)
            if self.needed(spec) != statements:
                return True
        return False

    @property
    def takes_arrow(self) -> bool:
        if self.table.provider == "iceberg":
            # The MERGE reads its source several times: rows of the driver are cheaper for it than
            # those of another shuffle, which takes two more jobs.
            return True
        delta_rs = self.table.delta_rs
        return delta_rs is not None and delta_rs.takes_arrow(self.spark)

    def merge(
        self,
        latest: DataFrame,
        spec: TableSpec,
        keep: Callable[[DataFrame], DataFrame] | None = None,
    ) -> None:
        with self.conflicts():
            if BASE_COLUMN in latest.columns:
                if self.has(self._batch()):
                    return
                latest = self._with_moved_rows(latest, spec, keep)
            self._merge(latest, spec)

    def merge_arrow(self, latest: ArrowRows, spec: TableSpec) -> None:
        if self.table.delta_rs is None:
            return super().merge_arrow(latest, spec)
        with self.conflicts():
            self._merge(latest, spec)

    def _merge(self, latest: DataFrame | ArrowRows, spec: TableSpec) -> None:
        delta_rs, batch = self.table.delta_rs, self._batch()
        writer: Writer = "delta-rs"
        try:
            if delta_rs is None or not delta_rs.merged(self.spark, latest, spec, batch):
                writer = "spark"
                if self.has(batch):
                    return
                rows = latest.frame() if isinstance(latest, ArrowRows) else latest
                self.execute_merge(rows, spec, batch)
        except spark_error_types(TargetError, OSError) as error:
            if batch is None or not self._is_committed(batch, writer):
                raise
            reason = f"an error followed the commit of micro-batch {batch.number}: {_reason(error)}"
            _log.warning("%s is written by %s: %s", self.table, writer, reason)
            if delta_rs is not None:
                delta_rs.written = Written(writer, reason)
        if delta_rs is not None:
            delta_rs.keep_written(self.spark, batch)

    def _is_committed(self, batch: Batch, writer: Writer) -> bool:
        """Return whether the table has a micro-batch, although its writer raised an error."""
        with suppress(Exception):  # the writer's error says more
            by_delta_rs = self.table.delta_rs if writer == "delta-rs" else None
            record = (
                by_delta_rs.record(self.spark, batch) if by_delta_rs else self.table_record(batch)
            )
            return is_repeat(batch, record, self.table)
        return False

    def _batch(self) -> Batch | None:
        return None if is_connect(self.spark) else running_batch(self.spark)

    def has(self, batch: Batch | None) -> bool:
        """Return whether the table has a micro-batch; raises as `is_repeat`."""
        if batch is None or not is_repeat(batch, self.table_record(batch), self.table):
            return False
        log_repeat(batch, self.table)
        return True

    def execute_merge(self, latest: DataFrame, spec: TableSpec, batch: Batch | None) -> None:
        """Run the ``MERGE``, whose commit carries the micro-batch."""
        spark, changes = self.spark, f"changes_{uuid4().hex}"
        latest.createTempView(changes)
        try:
            with self.recording(batch):
                written = spark.sql(
                    merge_statement(spec.plan(), self.table.sql_name, changes)
                ).collect()
        finally:
            spark.catalog.dropTempView(changes)
        if batch is not None and self.table.provider == "delta" and not written:
            # Delta skips a statement whose micro-batch the table has.
            raise ConflictError(
                f"another driver wrote micro-batch {batch.number}, or a later one, into {self.table}"
            )
        self.table.commits.keep(batch)

    @contextmanager
    def recording(self, batch: Batch | None) -> Iterator[None]:
        """Let the commit of the block carry the micro-batch.

        Several tables may be written at a time in one session, if they have the same settings: the
        last block removes them.
        """
        if batch is None:
            yield
            return
        application = self.table.commits.application(batch)
        settings = _record_settings(self.table.provider, batch, application)
        session, key = id(self.spark), tuple(settings.items())
        with _recording_changed:
            # A table whose owner accepted it has settings of its own.
            _recording_changed.wait_for(lambda: _recording.get(session, key) == key)
            _recording[session] = key
            _statements[session] += 1
            for name, value in settings.items():
                self.spark.conf.set(name, value)
        try:
            yield
        finally:
            with _recording_changed:
                _statements[session] -= 1
                if not _statements[session]:
                    del _recording[session], _statements[session]
                    for name in settings:
                        self.spark.conf.unset(name)
                    _recording_changed.notify_all()

    def exists(self) -> bool:
        return self._schema() is not None

    def record(self, batch: Batch) -> Record | None:
        delta_rs = self.table.delta_rs
        if delta_rs is not None and delta_rs.wrote:
            return delta_rs.record(self.spark, batch)
        return self.table_record(batch)

    def table_record(self, batch: Batch) -> Record | None:
        """Return the record that commits of this table carry."""
        refresh_table(self.spark, self.table)
        state = (
            iceberg_state(self.rows(), batch, self.table.sql_name)
            if self.table.provider == "iceberg"
            else TableState(*delta_snapshot(self.rows(), ACCEPTED))
        )
        return self.table.commits.record(self.spark, batch, state)

    def _with_moved_rows(
        self, changes: DataFrame, spec: TableSpec, keep: Callable[[DataFrame], DataFrame] | None
    ) -> DataFrame:
        """Return the changes with whole rows where a key changed."""
        is_moved = f"{BASE_COLUMN} IS NOT NULL AND {ROW_KIND} IN {ADDS}"
        whole = self.with_values_of_bases(changes.where(is_moved), spec)
        kept = whole if keep is None else keep(whole)
        return (
            changes.where(f"NOT ({is_moved})")
            .drop(BASE_COLUMN)
            .unionByName(kept, allowMissingColumns=True)
        )

    def with_values_of_bases(self, moved: DataFrame, spec: TableSpec) -> DataFrame:
        """Return rows whose key changed as whole rows.

        They have the table's values for their earlier keys.

        Parameters
        ----------
        moved : DataFrame
            Rows with a `BASE_COLUMN`.
        spec : TableSpec
        """
        plan, column = spec.plan(), SPARK_SQL.column

        def of_base(side: Side, name: str) -> str:
            return f"s.{BASE_COLUMN}.{backquoted(name)}" if side == "s" else column(side, name)

        same, changes = F.expr(plan.same.render(of_base)), moved.alias("s")
        # Few rows change their key: the table is not shuffled.
        stored = self.rows().alias("t").join(F.broadcast(changes), same, "left_semi")
        joined = changes.join(F.broadcast(stored), same, "left")
        lost = f"{column('t', plan.primary_key[0])} IS NULL"
        if spec.deleted_column is not None:
            lost += f" OR {column('t', spec.deleted_column)} IS NOT NULL"
        values = {name: column("s", name) for name in (ROW_KIND, *spec.names)}
        values |= {name: each.render(column) for name, each in plan.completed.items()}
        first = plan.primary_key[0]
        values[first] = SPARK_SQL.failing(lost, values[first])
        types = {field.name: field.dataType for field in moved.schema.fields}
        return joined.select(
            *(F.expr(value).cast(types[name]).alias(name) for name, value in values.items())
        )

    def rows(self) -> DataFrame:
        return self.spark.table(self.table.sql_name)

    def fields(self) -> Sequence[StructField]:
        return self.rows().schema.fields

    def missing(self, other: TableTarget, key: Sequence[str], deleted_column: str | None) -> int:
        rows = self.rows()
        if deleted_column is not None:
            rows = rows.where(f"{backquoted(deleted_column)} IS NULL")
        new = other.sink(self.spark).rows()
        return _joined(rows, new, key, "left_anti").count()

    def replace_rows(self, other: TableTarget, replacement: Replacement, batch: Batch) -> None:
        if self.has(batch):
            return
        # Otherwise an overwrite may replace only the partitions that have a new row.
        self.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "static")
        new_rows = f"rows_{uuid4().hex}"
        with self.conflicts(), self.recording(batch):
            self._replacing(other, replacement).createTempView(new_rows)
            try:
                self.spark.sql(
                    f"INSERT OVERWRITE {self.table.sql_name} SELECT * FROM {new_rows}"
                ).collect()
            finally:
                self.spark.catalog.dropTempView(new_rows)
        if not self.has(batch):
            raise TargetError(f"{self.table} was overwritten without the record of a micro-batch")

    def _replacing(self, other: TableTarget, replacement: Replacement) -> DataFrame:
        """Return the rows that a table has after it is replaced, with its columns."""
        _, key, deleted, remove = replacement
        refresh_table(self.spark, self.table)
        new, stored = other.sink(self.spark).rows(), self.rows()
        names, present = stored.columns, {name.lower() for name in new.columns}
        # A key has one row: a table that was changed by hand may have several.
        once = stored.dropDuplicates(list(key))
        rows = _joined(new, once, key, "left")

        def value(name: str) -> Any:
            if name.lower() not in present:
                return once[backquoted(name)]
            column = new[backquoted(name)]
            if deleted is None or name.lower() != deleted.lower():
                return column
            first = F.coalesce(once[backquoted(name)], column)
            return F.when(column.isNotNull(), first)

        replaced = rows.select(*(value(name).alias(name) for name in names))
        missing = _joined(once, new, key, "left_anti")
        if remove and deleted is None:
            return replaced
        if remove and deleted is not None:
            now = F.coalesce(F.col(backquoted(deleted)), F.current_timestamp())
            missing = missing.select(
                *(
                    (now if each.lower() == deleted.lower() else F.col(backquoted(each))).alias(
                        each
                    )
                    for each in names
                )
            )
        return replaced.unionByName(missing)

    def drop(self) -> None:
        name = self.table.name
        if self.table.provider == "delta" and is_path(name):
            Files(self.spark).remove(name)
            return
        purge = " PURGE" if self.table.provider == "iceberg" else ""
        self.spark.sql(f"DROP TABLE IF EXISTS {self.table.sql_name}{purge}")

    @contextmanager
    def conflicts(self) -> Iterator[None]:
        """Raise a conflict with another writer or file-removing job as a `ConflictError`."""
        try:
            yield
        except spark_error_types() as error:
            if _is_missing(error):
                # Delta sees a table that another writer is creating: it is not created again, and
                # cannot be written yet.
                raise ConflictError(
                    f"another writer is creating {self.table}, or dropped it"
                ) from None
            reason = _conflict(error, self.table)
            if not reason:
                raise
            refresh_table(self.spark, self.table)
            raise ConflictError(reason) from None

    def _schema(self) -> StructType | None:
        try:
            refresh_table(self.spark, self.table)
            return self.rows().schema
        except AnalysisException as error:
            if _is_missing(error):
                return None
            raise TargetError(
                f"{self.table} cannot be reached: {_reason(error)}{self._remedy(error)}"
            ) from None

    def _remedy(self, error: Any) -> str:
        """Return what to do about an error of Spark that does not say it."""
        provider, text = self.table.provider, str(error)
        has_no_catalog = "REQUIRES_SINGLE_PART_NAMESPACE" in text
        if not has_no_catalog and not _MISSING_CLASS.search(text):
            return ""
        needed = package(provider, self.spark.version)  # raises if this Spark has none
        if has_no_catalog:
            catalog = self.table.parts[0]
            return f"; the session has no catalog {catalog}: set spark.sql.catalog.{catalog}"
        return (
            f"; the session needs spark.jars.packages={needed} and the catalog that {provider}'s "
            "documentation names"
        )

    def _column_mapping(self) -> str:
        if self.table.provider != "delta":
            return "none"
        return table_property(self.spark, self.table, _MAPPING) or "none"


def _joined(left: DataFrame, right: DataFrame, key: Sequence[str], how: str) -> DataFrame:
    """Return whole tables joined by their key.

    Without the hint, Spark broadcasts a table whose files are small: a million rows of two columns
    then need more memory than a driver of a gigabyte has.
    """
    same = reduce(and_, (left[backquoted(name)] == right[backquoted(name)] for name in key))
    return left.join(right.hint("merge"), same, how)


_recording: dict[int, tuple[tuple[str, str], ...]] = {}
"""The settings of each session whose statements carry a micro-batch now."""
_statements: Counter[int] = Counter()
_recording_changed = threading.Condition()


def _record_settings(provider: str, batch: Batch, application: str) -> dict[str, str]:
    """Return the settings of a session whose commits carry a micro-batch."""
    if provider == "delta":
        return {f"{_DELTA_WRITE}.txnAppId": application} | {
            f"{_DELTA_WRITE}.txnVersion": str(version_of(batch))
        }
    values = {
        ICEBERG_QUERY: batch.query,
        ICEBERG_BATCH: str(batch.number),
        ICEBERG_OFFSETS: batch.offsets,
    }
    return {f"{_ICEBERG_PROPERTY}.{name}": value for name, value in values.items()}


def lake_target(spark: SparkSession, name: str) -> LakeTarget:
    """Return an existing Delta or Iceberg table of the session's catalogs.

    Raises
    ------
    TargetError
    """
    kinds = {kind.provider: kind for kind in (DeltaTarget, IcebergTarget)}
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"target is {name!r}: pass DeltaTarget(...), IcebergTarget(...), JdbcTarget(...), or "
            "the name of a Delta or Iceberg table"
        )
    try:
        provider = provider_of(spark, LakeTarget(name).sql_name)
    except AnalysisException:
        raise TargetError(
            f"table {name!r} is not in the session's catalogs: to create it, pass DeltaTarget(...) "
            "or IcebergTarget(...)"
        ) from None
    if provider not in kinds:
        raise TargetError(
            f"table {name!r} has the provider {provider}: supported are {', '.join(kinds)} and "
            "JdbcTarget(...)"
        )
    return kinds[provider](name)


def _iceberg_widens(old: DataType, new: DataType) -> bool:
    """Return whether Iceberg has a statement for a wider type.

    Iceberg keeps a decimal's scale, and changes no date and no integer into another kind of type.
    """
    if isinstance(old, DecimalType) and isinstance(new, DecimalType):
        return old.scale == new.scale
    return new.simpleString() == "bigint" and old.simpleString() in ("tinyint", "smallint", "int")


def refresh_table(spark: SparkSession, table: LakeTarget) -> None:
    """Make the session forget what it has read of an Iceberg table.

    Another job may have rewritten the table, and removed its files.
    """
    if table.provider != "iceberg":
        return
    try:
        spark.catalog.refreshTable(table.sql_name)
    except spark_error_types():
        # Spark cannot refresh each table of another provider. Who reads or writes it says so.
        if provider_of(spark, table.sql_name) == "iceberg":
            raise


def provider_of(spark: SparkSession, name: str) -> str:
    """Return a table's provider, in lower case (``delta``, ``iceberg``, ``parquet``, ...)."""
    described = (
        spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Provider'").collect()
    )
    # The table's columns come first, and one may have this name.
    return str(described[-1]["data_type"]).lower() if described else "no provider"


def table_property(spark: SparkSession, table: LakeTarget, name: str) -> str | None:
    """Return a property of a table, or None without it."""
    properties = _properties(spark, table).where(f"key = '{name}'").collect()
    return str(properties[0]["value"]) if properties else None


def _properties(spark: SparkSession, table: LakeTarget) -> DataFrame:
    return spark.sql(f"SHOW TBLPROPERTIES {table.sql_name}")


def _fields_of(spark: SparkSession, name: str) -> list[str]:
    """Return the partition fields of an Iceberg table, in its SQL."""
    described = [tuple(row)[:2] for row in spark.sql(f"DESCRIBE TABLE {name}").collect()]
    heads = [index for index, (each, _) in enumerate(described) if each.startswith("# Partition")]
    after = described[heads[-1] + 1 :] if heads else []
    return [
        text if each.startswith("Part ") else backquoted(each)
        for each, text in after
        if each and not each.startswith("#")
    ]


def _conflict(error: Any, table: LakeTarget) -> str:
    """Return the conflict that caused an error; empty if it has another cause."""
    for text in _chain(error):
        if conflict := _CONFLICT.match(text):
            return f"another writer changed {table} at the same time ({conflict[1] or conflict[2]})"
        if removed := _REMOVED_FILE.match(text):
            return f"another job removed a file of {table} at the same time: {removed[1][:300]}"
    return ""


def _chain(error: Any) -> Iterator[str]:
    """Yield the class and message of an exception and of its causes in Java."""
    yield f"{type(error).__module__}.{type(error).__name__}"
    yield from (java.toString() for java in java_causes(error))
    yield from _remote_chain(error)


def _remote_chain(error: Any) -> Iterator[str]:
    """Yield the same for an error of Spark Connect.

    The error's message or stack trace begins with the class.
    """
    if not hasattr(error, "getStackTrace"):
        return
    message = str(error)
    yield re.sub(r"^\(([\w.$]+)\) ", r"\1: ", message)
    first, *rest = (error.getStackTrace() or "").splitlines() or [""]
    yield f"{first}: {message}"
    yield from (line.removeprefix("Caused by: ") for line in rest if line.startswith("Caused by: "))


def _is_missing(error: Any) -> bool:
    condition = error.getCondition() if hasattr(error, "getCondition") else None
    return (condition or "").split(".")[0] in _MISSING


def _reason(error: Any) -> str:
    return printable(" ".join(java_text(error).split())[:300])


def create_statement(
    table: LakeTarget,
    fields: Sequence[StructField],
    deleted_column: str | None = None,
    layout: Layout = NO_LAYOUT,
) -> str:
    """Return the statement that creates a table.

    `deleted_column` is the column of soft deletes, or None.

    Examples
    --------
    >>> from pyspark.sql.types import IntegerType, StructField, TimestampType, VariantType
    >>> from normalize.tables.writers.lake import DeltaTarget, IcebergTarget
    >>> fields = [StructField("id", IntegerType()), StructField("gone", TimestampType())]
    >>> print(create_statement(DeltaTarget("orders"), fields, "gone"))
    CREATE TABLE IF NOT EXISTS `orders` (`id` int, `gone` timestamp) USING delta TBLPROPERTIES ('changelog.deleted_column' = 'gone')
    >>> fields = [StructField("id", IntegerType()), StructField("doc", VariantType())]
    >>> print(create_statement(IcebergTarget("lake.db.orders"), fields))
    CREATE TABLE IF NOT EXISTS `lake`.`db`.`orders` (`id` int, `doc` variant) USING iceberg TBLPROPERTIES ('format-version' = '3')
    """
    definitions = [
        *(column_definition(field, table) for field in fields),
        *layout.generated_columns(table.provider),
    ]
    created = (
        f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({', '.join(definitions)}) USING "
        f"{table.provider}{layout.clauses(table.provider)}"
    )
    properties = dict(layout.properties)
    # Delta adds the feature itself.
    if table.provider == "iceberg" and _kinds(fields) & _FEATURES["iceberg"].keys():
        properties = {_FORMAT: _VARIANT_FORMAT, **properties}
    if deleted_column is not None:
        properties[DELETED_PROPERTY] = deleted_column
    listed = ", ".join(sql_property(*each) for each in properties.items())
    return f"{created} TBLPROPERTIES ({listed})" if listed else created


def _kinds(fields: Iterable[StructField]) -> set[str]:
    return {field.dataType.simpleString() for field in fields}


def column_definition(field: StructField, table: LakeTarget) -> str:
    r"""Return a column as ``CREATE TABLE`` declares it, with its comment.

    Examples
    --------
    >>> from pyspark.sql.types import ShortType, StructField
    >>> column_definition(StructField("qty", ShortType(), True, {"comment": "it's"}), IcebergTarget("t"))
    "`qty` int COMMENT 'it\\'s'"
    """

    def plain(kind: DataType) -> str:
        text = kind.simpleString()
        if text.startswith(("interval", "time(")):
            raise SchemaError(
                f"column {backquoted(field.name)} has the type {text}, which {table.provider} does "
                "not support: cast it first"
            )
        # Iceberg has no integers of less than 32 bits.
        return (
            {"tinyint": "int", "smallint": "int"}.get(text, text)
            if table.provider == "iceberg"
            else text
        )

    comment = (field.metadata or {}).get("comment")
    commented = f" COMMENT {sql_literal(comment)}" if comment else ""
    return f"{backquoted(field.name)} {type_ddl(field.dataType, plain)}{commented}"


# --------------------------------------------------------------------------------------------------
# names


def _require_merged_variants(
    spark: SparkSession, table: LakeTarget, fields: Sequence[StructField]
) -> None:
    """Raise an error for a VARIANT where Iceberg's MERGE cannot read it back.

    Source: https://github.com/apache/iceberg/issues/14707, of Iceberg 1.10.
    """
    iceberg_4_0 = table.provider == "iceberg" and spark.version.startswith("4.0")
    if iceberg_4_0 and "variant" in _kinds(fields):
        raise SchemaError(
            f"{table} has a column of the type variant, which Iceberg for Spark 4.0 does not "
            "merge: declare it as STRING, or use Spark 4.1"
        )


def _require_plain_text(
    spark: SparkSession, table: LakeTarget, fields: Sequence[StructField]
) -> None:
    """Raise an error for a name in which Spark would replace a setting or environment variable."""
    if spark.conf.get(_SUBSTITUTE) == "true":
        for name in (table.name, *map(".".join, _paths(fields))):
            if "${" in name:
                raise SchemaError(
                    f"Spark would replace ${{...}} in the name {name!r}: rename it, or set "
                    f"{_SUBSTITUTE}=false"
                )


def _require_names(
    table: LakeTarget, fields: Sequence[StructField], column_mapping: str | None
) -> None:
    """Raise an error for a name that the table format does not support."""
    for path in _paths(fields):
        name = ".".join(path)
        if table.provider == "iceberg" and not path[-1]:
            raise SchemaError(
                f"the column {name!r} of {table} has an empty name, which Iceberg cannot write: "
                "rename it"
            )
        if (
            table.provider == "delta"
            and column_mapping == "none"
            and _RESERVED_BY_DELTA.intersection(path[-1])
        ):
            raise SchemaError(
                f"the column {name!r} of {table} has one of the characters ' ,;{{}}()\\n\\t=' in "
                "its name: rename it, or create the table with delta.columnMapping.mode=name (in "
                f"this session, by {_MAPPING_OF_NEW_TABLES}=name)"
            )


def _paths(fields: Iterable[StructField]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field, at every depth."""
    for each in fields:
        yield (each.name,)
        yield from ((each.name, *path) for path in _paths(_fields_within(each.dataType)))


def _fields_within(kind: DataType) -> list[StructField]:
    if isinstance(kind, ArrayType):
        return _fields_within(kind.elementType)
    if isinstance(kind, MapType):
        return [*_fields_within(kind.keyType), *_fields_within(kind.valueType)]
    return kind.fields if isinstance(kind, StructType) else []
