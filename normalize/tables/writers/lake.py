"""What Delta and Iceberg tables share: ``MERGE INTO``, and the check of names and columns.

Names of columns come from messages: statements quote them with backquotes, at every depth. Spark
replaces ``${...}`` even in backquotes, and so such a name is an error, as is one that the table
format does not support.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import and_
from typing import Any, ClassVar
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from cdc_formats.errors import ArgumentError, SchemaError, printable, refuse
from cdc_formats.values.schema import backquoted, name_parts
from normalize.core.output import ROW_KIND
from normalize.dataframe import type_ddl
from normalize.monitoring.progress import WRITERS
from normalize.monitoring.watch import Notice, log
from normalize.spark.micro_batch import Batch, running_batch
from normalize.spark.sessions import copy_of, is_connect, java_causes, java_text, spark_error_types
from normalize.spark_versions import package
from normalize.tables.batches import Record, is_repeat, log_repeat, show_in_checkpoint
from normalize.tables.commits import OwnCommits, TableState
from normalize.tables.expressions import DELETED_PROPERTY
from normalize.tables.layout import NO_LAYOUT, Layout, StoredLayout, sql_literal, sql_property
from normalize.tables.merge import ADDS, BASE_COLUMN, SPARK_SQL, Side, merge_statement
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
)

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
_SUBSTITUTE = "spark.sql.variable.substitute"


@dataclass(frozen=True)
class LakeTarget(TableTarget):
    """A table of the session's catalogs, written with Spark's ``MERGE INTO``."""

    name: str
    provider: ClassVar[str]
    histories: ClassVar[bool] = True
    positions: ClassVar[bool] = True
    features: ClassVar[Mapping[str, str]] = {}
    """The property that the table requires for a column of a type."""
    types: ClassVar[Mapping[str, str]] = {}
    """Types that the table format lacks, and those that it has for them."""
    skips_repeats: ClassVar[bool] = False
    """Whether a MERGE does nothing, and returns nothing, whose micro-batch the table has."""

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

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return a session like the user's, whose settings name the micro-batch of its commits."""
        return copy_of(spark)

    @classmethod
    @abstractmethod
    def clauses(cls, layout: Layout) -> tuple[list[str], str]:
        """Return the definitions of the columns that a layout adds, and what follows the provider."""

    @classmethod
    def properties(cls, layout: Layout, kinds: Collection[str]) -> dict[str, str]:
        """Return the properties of a new table with columns of these types."""
        return dict(layout.properties)

    def after_create(self, layout: Layout) -> list[str]:
        """Return the statements that follow ``CREATE TABLE``."""
        return []

    @abstractmethod
    def differences(self, layout: Layout, stored: StoredLayout) -> list[str]:
        """Return the statements that give the table a layout, or a sentence if there is none."""


@dataclass
class LakeSink(Sink):
    """Writes a Delta or Iceberg table."""

    spark: SparkSession
    table: LakeTarget
    commits: OwnCommits = field(init=False, repr=False)
    """The commits of a query in the table."""

    def __post_init__(self) -> None:
        self.commits = OwnCommits(str(self.table), self.table.sql_name)

    # ----------------------------------------------------------------------------------------------
    # what table formats do in different ways

    @abstractmethod
    def _stored_layout(self) -> StoredLayout:
        """Return the layout that the table has."""

    @abstractmethod
    def _require_names(self, fields: Sequence[StructField], layout: Layout | None) -> None:
        """Raise an error for a name that the table format does not support.

        Parameters
        ----------
        fields : sequence of StructField
        layout : Layout or None
            The layout of the new table; None: the table exists.
        """

    def _require_types(self, kinds: Collection[str]) -> None:
        """Raise an error for a type that cannot be merged."""

    @abstractmethod
    def _record_settings(self, batch: Batch) -> dict[str, str]:
        """Return the settings of a session whose commits carry a micro-batch."""

    @abstractmethod
    def _state(self, batch: Batch) -> TableState:
        """Return the newest version of the table."""

    # ----------------------------------------------------------------------------------------------
    # the columns

    def needed(self, spec: TableSpec) -> list[str]:
        table, existing = self.table, self._schema()
        spec = written_spec(table, spec, None if existing is None else existing.fieldNames())
        is_substituted = self.spark.conf.get(_SUBSTITUTE) == "true"
        refuse(
            *(
                (
                    # With the value of a setting or an environment variable.
                    "${" in name and is_substituted,
                    f"Spark would replace ${{...}} in the name {name!r}: rename it, or set "
                    f"{_SUBSTITUTE}=false",
                )
                for name in (table.name, *map(".".join, paths_of(spec.fields)))
            ),
            error=SchemaError,
        )
        self._require_types(_kinds(spec.fields))
        if existing is None:
            if not spec.create:
                raise TargetError(f"{table} does not exist: create it, or set create=True")
            self._require_names(spec.fields, spec.layout)
            created = create_statement(table, spec.fields, spec.deleted_column, spec.layout)
            return [created, *table.after_create(spec.layout)]
        provider = provider_of(self.spark, table.sql_name)
        if provider != table.provider:
            raise TargetError(
                f"{table} has the provider {provider}: name a table of {table.provider}"
            )
        if spec.layout != NO_LAYOUT and (
            statements := table.differences(spec.layout, self._stored_layout())
        ):
            text = f"{table} has another layout, and keeps it: {'; '.join(statements)}"
            log([Notice((text,), text)])
        require_no_narrowing(
            table,
            spec,
            {field.name: field.dataType for field in existing.fields},
            partial(self.widen, in_key=False),
        )
        additions = partial(self._additions, deleted_column=spec.deleted_column)
        missing = missing_columns(table, spec, existing.fieldNames(), additions)
        if not missing:
            return []
        self._require_names(missing, None)
        return additions(missing)

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
        properties = [feature for kind, feature in table.features.items() if kind in kinds]
        # Before the column, too: statements that were run in part are run again.
        properties += [
            sql_property(DELETED_PROPERTY, field.name)
            for field in missing
            if field.name == deleted_column
        ]
        set_properties = f"ALTER TABLE {table.sql_name} SET TBLPROPERTIES"
        return [*(f"{set_properties} ({each})" for each in properties), added]

    def altered_type(self, new: StructField) -> str:
        """Return the statement that gives a column another type."""
        return (
            f"ALTER TABLE {self.table.sql_name} ALTER COLUMN {backquoted(new.name)} TYPE "
            f"{new.dataType.simpleString().upper()}"
        )

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

    # ----------------------------------------------------------------------------------------------
    # the rows

    def merge(self, latest: DataFrame, spec: TableSpec) -> None:
        with self.conflicts():
            if BASE_COLUMN in latest.columns:
                moved = f"{BASE_COLUMN} IS NOT NULL AND {ROW_KIND} IN {ADDS}"
                whole = self.with_values_of_bases(latest.where(moved), spec)
                unmoved = latest.where(f"NOT ({moved})").drop(BASE_COLUMN)
                latest = unmoved.unionByName(whole, allowMissingColumns=True)
            self._merge(latest, spec)

    def _merge(self, latest: DataFrame | ArrowRows, spec: TableSpec) -> None:
        """Write the changes, unless the table has them."""
        batch = self.batch()
        try:
            self._write(latest, spec, batch)
        except spark_error_types(TargetError, OSError) as error:
            is_committed = False
            with suppress(Exception):  # the writer's error says more
                is_committed = batch is not None and is_repeat(
                    batch, self.record(batch), self.table
                )
            if batch is None or not is_committed:
                raise
            reason = f"an error followed the commit of micro-batch {batch.number}: {_reason(error)}"
            _log.warning("%s: %s", self.table, reason)
            if self.written is not None:
                self.show({**self.written, "reason": reason})

    def show(self, written: Mapping[str, str]) -> None:
        """Remember which writer merged the changes, and why, also for ``cdc status``."""
        self.written = written
        show_in_checkpoint(self.spark, self.batch(), WRITERS, self.table.sql_name, **written)

    def _write(self, latest: DataFrame | ArrowRows, spec: TableSpec, batch: Batch | None) -> None:
        """Run Spark's ``MERGE``, whose commit carries the micro-batch, unless the table has it."""
        if self.has(batch):
            return
        spark, changes = self.spark, f"changes_{uuid4().hex}"
        rows = latest.frame() if isinstance(latest, ArrowRows) else latest
        rows.createTempView(changes)
        try:
            with self.recording(batch):
                merge = merge_statement(spec.plan(), self.table.sql_name, changes)
                written = spark.sql(merge).collect()
        finally:
            spark.catalog.dropTempView(changes)
        if batch is not None and self.table.skips_repeats and not written:
            raise ConflictError(
                f"another driver wrote micro-batch {batch.number}, or a later one, into {self.table}"
            )
        self.commits.keep(batch)

    def batch(self) -> Batch | None:
        """Return the running micro-batch, which Python does not see on Spark Connect."""
        return None if is_connect(self.spark) else running_batch(self.spark)

    def has(self, batch: Batch | None) -> bool:
        """Return whether the table has a micro-batch; raises as `is_repeat`."""
        # The record as Spark reads it.
        if batch is None or not is_repeat(batch, LakeSink.record(self, batch), self.table):
            return False
        log_repeat(batch, self.table)
        return True

    @contextmanager
    def recording(self, batch: Batch | None) -> Iterator[None]:
        """Let the commit of the block carry the micro-batch.

        Several tables may be written at a time in one session, if they have the same settings: the
        last block removes them.
        """
        if batch is None:
            yield
            return
        settings = self._record_settings(batch)
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
        self.table.refresh(self.spark)
        return self.commits.record(self.spark, batch, self._state(batch))

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

    def missing(self, other: Sink, key: Sequence[str], deleted_column: str | None) -> int:
        rows = self.rows()
        if deleted_column is not None:
            rows = rows.where(f"{backquoted(deleted_column)} IS NULL")
        return _joined(rows, other.rows(), key, "left_anti").count()

    def replace_rows(self, other: Sink, replacement: Replacement, batch: Batch) -> None:
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

    def _replacing(self, other: Sink, replacement: Replacement) -> DataFrame:
        """Return the rows that a table has after it is replaced, with its columns."""
        _, key, deleted, remove = replacement
        self.table.refresh(self.spark)
        new, stored = other.rows(), self.rows()
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
            first = F.coalesce(F.col(backquoted(deleted)), F.current_timestamp())
            missing = missing.withColumn(deleted, first)
        return replaced.unionByName(missing)

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
            reason = _conflict(error, self.table) or self._stale(error)
            if not reason:
                raise
            self.table.refresh(self.spark)
            raise ConflictError(reason) from None

    def _stale(self, error: Any) -> str:
        """Return the conflict if only the table in the session's cache lacks a column; else empty.

        A load of the table that began before another writer's ``ALTER`` puts the old table back
        into Iceberg's cache, also after a refresh.
        """
        condition = error.getCondition() if isinstance(error, AnalysisException) else None
        if not (condition or "").startswith("UNRESOLVED_COLUMN"):
            return ""
        column = name_parts(error.getMessageParameters()["objectName"])[-1].lower()
        existing = self._schema()
        if existing is None or column not in map(str.lower, existing.fieldNames()):
            return ""
        return f"another writer altered {self.table} at the same time ({condition}: {column})"

    def _schema(self) -> StructType | None:
        try:
            self.table.refresh(self.spark)
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


def provider_of(spark: SparkSession, name: str) -> str:
    """Return a table's provider, in lower case (``delta``, ``iceberg``, ``parquet``, ...)."""
    described = (
        spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Provider'").collect()
    )
    # The table's columns come first, and one may have this name.
    return str(described[-1]["data_type"]).lower() if described else "no provider"


def properties_of(spark: SparkSession, table: LakeTarget) -> dict[str, str]:
    """Return the properties of a table."""
    properties = spark.sql(f"SHOW TBLPROPERTIES {table.sql_name}").collect()
    return {row["key"]: row["value"] for row in properties}


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
    if not hasattr(error, "getStackTrace"):
        return
    # Of Spark Connect: the message or the stack trace begins with the class.
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
    >>> from normalize import DeltaTarget, IcebergTarget
    >>> fields = [StructField("id", IntegerType()), StructField("gone", TimestampType())]
    >>> print(create_statement(DeltaTarget("orders"), fields, "gone"))
    CREATE TABLE IF NOT EXISTS `orders` (`id` int, `gone` timestamp) USING delta TBLPROPERTIES ('changelog.deleted_column' = 'gone')
    >>> fields = [StructField("id", IntegerType()), StructField("doc", VariantType())]
    >>> print(create_statement(IcebergTarget("lake.db.orders"), fields))
    CREATE TABLE IF NOT EXISTS `lake`.`db`.`orders` (`id` int, `doc` variant) USING iceberg TBLPROPERTIES ('format-version' = '3')
    """
    added, clauses = table.clauses(layout)
    definitions = [*(column_definition(field, table) for field in fields), *added]
    created = (
        f"CREATE TABLE IF NOT EXISTS {table.sql_name} ({', '.join(definitions)}) USING "
        f"{table.provider}{clauses}"
    )
    properties = table.properties(layout, _kinds(fields))
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
    >>> from normalize import IcebergTarget
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
        return table.types.get(text, text)

    comment = (field.metadata or {}).get("comment")
    commented = f" COMMENT {sql_literal(comment)}" if comment else ""
    return f"{backquoted(field.name)} {type_ddl(field.dataType, plain)}{commented}"


def paths_of(fields: Iterable[StructField]) -> Iterator[tuple[str, ...]]:
    """Yield the path of each field, at every depth."""
    for each in fields:
        yield (each.name,)
        yield from ((each.name, *path) for path in paths_of(_fields_within(each.dataType)))


def _fields_within(kind: DataType) -> list[StructField]:
    if isinstance(kind, ArrayType):
        return _fields_within(kind.elementType)
    if isinstance(kind, MapType):
        return [*_fields_within(kind.keyType), *_fields_within(kind.valueType)]
    return kind.fields if isinstance(kind, StructType) else []
