"""Apply a changelog to a table: `apply_changes` for streams, `apply_batch` for bounded DataFrames."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.analyzed_plan import has_native_engine
from normalize.changelog_normalize import names_of
from normalize.connect import is_connect, require_jvm
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS
from normalize.dataframe import require_changelog, require_distinct

from . import jdbc, lake
from .arrival import require_arrival_order
from .change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, to_change_feed
from .conflicts import repeat_conflicts
from .latest import check, last_changes
from .table_spec import Batch, TableSpec, marked_query, require_no_micro_batch, running_batch
from .targets import DeltaTarget, IcebergTarget, JdbcTarget, LakeTarget, TableTarget, TargetError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructField


def apply_changes(
    stream: DataFrame,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    history: bool = False,
    column_list: str | Sequence[str] = (),
    add_columns: bool = False,
    create: bool = True,
) -> DataStreamWriter:
    """Return a writer that applies a changelog stream to a table, which then has the rows of the source.

    For a bounded changelog, also within your own ``foreachBatch``, call `apply_batch`.

    Parameters
    ----------
    stream : DataFrame
        A changelog stream with ``row_kind`` (`from_kafka_changelog`, `from_change_feed`). Filter out rows without a row kind (corrupt
        records, control events) first.
    target : DeltaTarget, IcebergTarget, JdbcTarget or str
        The table. A string is the name of an existing Delta or Iceberg table.
    keys : str or sequence of str
        The columns that identify a row, in all partitions of the table. As in AUTO CDC.
    sequence_by : str or sequence of str
        Columns that increase with each change of a key (``offset``). They may be columns that are not written. AUTO CDC always requires
        this parameter; here it is required only after a shuffle (joins, aggregates) and for sources other than Kafka. It orders the
        changes of one micro-batch. Unlike AUTO CDC, it does not drop a change that arrives in a later micro-batch than a newer one: read
        the topic with ``order="source"`` for that.
    history : bool
        Append every change, with ``_change_type`` as in Delta's change feed (`to_change_feed`), the micro-batch's number as
        ``_commit_version`` and its time as ``_commit_timestamp``. This differs from AUTO CDC's ``stored_as_scd_type=2``, which keeps one
        row for each version, with the start and the end of its validity.
    column_list : str or sequence of str
        The columns to write; by default all, including metadata. As in AUTO CDC.
    add_columns : bool
        Whether to add columns that the table lacks; existing rows have NULL in them.
    create : bool
        Whether to create a missing table, with these columns and keys.

    Returns
    -------
    DataStreamWriter
        Set its ``checkpointLocation``, then start it.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, ChangeOrderError
        During this call, when the arguments or the table cannot be used; `SchemaError` also for a column name that the table does not
        support. In a micro-batch: `ArgumentError` for a row without a row kind, `MissingFieldError` for a NULL key, `ChangeOrderError`
        if a key's last change is ambiguous, `ConflictError` if other writers prevented every attempt.

    Notes
    -----
    Spark's AUTO CDC is ``pyspark.pipelines.create_auto_cdc_flow`` (Spark 4.2).

    Each micro-batch applies the last change of each key, in one commit of the table. If another writer changes the table at the same time
    (a commit conflict of Delta or Iceberg, a deadlock of a database), the micro-batch is applied again: ten times at most, after pauses
    that double from 0.2 to 10 seconds.

    A micro-batch that Spark repeats after a failure is applied again, and ends in the same rows. A history would have its changes twice.
    It therefore stores the query's last micro-batch in the same commit: as Delta's ``txnAppId`` and ``txnVersion``, in the summary of
    Iceberg's snapshot, or in the database table ``changelog_batches`` (`normalize.sinks.jdbc`).

    Spark Connect supports Delta and Iceberg tables. It runs micro-batches on its server, where this package must be installed.
    """
    if not stream.isStreaming:
        raise ArgumentError("apply_changes requires a stream, and this DataFrame is bounded: call apply_batch(df, target, ...)")
    options = Options(names_of(keys), names_of(sequence_by), history, names_of(column_list), add_columns, create)
    sink = _sink(stream, target, options)
    if is_connect(stream) and isinstance(sink, AppendHistory):
        mark = f"history_{uuid4().hex}"
        stream, sink = stream.alias(mark), replace(sink, mark=mark)
    writer = stream.writeStream.foreachBatch(sink)
    return writer.outputMode("update") if has_native_engine(stream) else writer


def apply_batch(
    df: DataFrame,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    history: bool = False,
    column_list: str | Sequence[str] = (),
    add_columns: bool = False,
    create: bool = True,
) -> None:
    """Apply a bounded changelog to a table, in one commit; also within your own ``foreachBatch``.

    Parameters
    ----------
    df : DataFrame
        A bounded changelog with ``row_kind``, or the DataFrame of your ``foreachBatch`` function. Filter out rows without a row kind first.
    target, keys, sequence_by, column_list, add_columns, create
        As in `apply_changes`.
    history : bool
        As in `apply_changes`. Within a ``foreachBatch``, call it once for each table: a second call in the same micro-batch appends
        nothing. Outside of a stream, ``_commit_version`` is NULL, and a second call appends the changes again.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, ChangeOrderError, MissingFieldError, ConflictError
        As in `apply_changes`.
    """
    if df.isStreaming:
        raise ArgumentError("apply_batch requires a bounded DataFrame, and this one is a stream: call apply_changes(stream, target, ...)")
    options = Options(names_of(keys), names_of(sequence_by), history, names_of(column_list), add_columns, create)
    if history and is_connect(df):
        require_no_micro_batch(df)
    _sink(df, target, options)(df, 0)


@dataclass(frozen=True)
class Options:
    """The options that `apply_changes` and `apply_batch` share."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...]
    history: bool
    column_list: tuple[str, ...]
    add_columns: bool
    create: bool


def _sink(df: DataFrame, target: TableTarget | str, options: Options) -> ApplyChanges | AppendHistory:
    """Return the function that applies a micro-batch, after the checks that need no rows."""
    require_changelog(df)
    if isinstance(target, JdbcTarget):
        require_jvm(df.sparkSession, "JdbcTarget", "run this query in a classic session, or write to a DeltaTarget or an IcebergTarget")
    spark = df.sparkSession
    table = target if isinstance(target, LakeTarget | JdbcTarget) else _of_catalog(spark, target)
    written = _written(df, options)
    _check_arguments(written, options)
    if options.history:
        spec = TableSpec((*written, *_history_fields()), (), options.create, options.add_columns)
    else:
        spec = TableSpec(tuple(written), options.keys, options.create, options.add_columns)
        if not options.sequence_by:
            require_arrival_order(df, options.keys)
    if isinstance(table, JdbcTarget):
        jdbc.needed(spark, table, spec)
    else:
        lake.needed(spark, table, spec)
    return AppendHistory(table, spec, tuple(written)) if options.history else ApplyChanges(table, spec, options.sequence_by)


@dataclass(frozen=True)
class ApplyChanges:
    """Applies micro-batches to a table; for ``foreachBatch``."""

    table: TableTarget
    spec: TableSpec
    sequence_by: tuple[str, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply the last change of each key."""
        key = self.spec.primary_key
        with computed(last_changes(batch, self.spec.names, key, self.sequence_by)) as latest:
            if check(latest, key, self.sequence_by) == 0:
                return
            repeat_conflicts(partial(self._merge, latest.select("row.*")))

    def _merge(self, rows: DataFrame) -> None:
        if isinstance(self.table, JdbcTarget):
            jdbc.prepare(rows.sparkSession, self.table, self.spec)
            jdbc.merge(rows, self.table, self.spec)
        else:
            lake.prepare(rows.sparkSession, self.table, self.spec)
            lake.merge(rows, self.table, self.spec)


@dataclass(frozen=True)
class AppendHistory:
    """Appends micro-batches to a history; for ``foreachBatch``."""

    table: TableTarget
    spec: TableSpec
    written: tuple[StructField, ...]
    mark: str | None = None
    """The alias of the stream's plan, by which a query of Spark Connect is found."""

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Append every change, unless the micro-batch was appended before."""
        from pyspark.sql import functions as F

        running = self._running(batch.sparkSession, number)
        changes = to_change_feed(batch.select(ROW_KIND, *(backquoted(field.name) for field in self.written)))
        version = F.lit(None if running is None else running.number).cast("bigint")
        stamped = changes.withColumns({COMMIT_VERSION: version, COMMIT_TIMESTAMP: F.current_timestamp()})
        # Also for a batch that is then skipped: computing the rows writes the query's state.
        with computed(stamped) as rows:
            if not rows.isEmpty():
                repeat_conflicts(partial(self._append, rows, running))

    def _running(self, spark: SparkSession, number: int) -> Batch | None:
        if not is_connect(spark):
            return running_batch(spark)
        return Batch(marked_query(spark, self.mark), number) if self.mark is not None else None

    def _append(self, rows: DataFrame, batch: Batch | None) -> None:
        if isinstance(self.table, JdbcTarget):
            jdbc.prepare(rows.sparkSession, self.table, self.spec)
            jdbc.append(rows, self.table, self.spec, batch)
        else:
            lake.prepare(rows.sparkSession, self.table, self.spec)
            lake.append(rows, self.table, batch)


@contextmanager
def computed(df: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame that is computed once: counts and state are not written twice, and MERGE requires deterministic input."""
    rows = df.localCheckpoint()
    try:
        yield rows
    finally:
        if not is_connect(df):  # the server of Spark Connect forgets the DataFrame when this client does
            rows._jdf.queryExecution().analyzed().rdd().unpersist(False)  # earlier than the garbage collector


def _of_catalog(spark: SparkSession, name: str) -> LakeTarget:
    from pyspark.errors import AnalysisException

    kinds = {kind.provider: kind for kind in (DeltaTarget, IcebergTarget)}
    try:
        provider = lake.provider_of(spark, LakeTarget(name).sql_name)
    except AnalysisException:
        raise TargetError(
            f"table {name!r} is not in the session's catalogs: to create it, pass DeltaTarget(...) or IcebergTarget(...)"
        ) from None
    if provider not in kinds:
        raise TargetError(f"table {name!r} has the provider {provider}: supported are {', '.join(kinds)} and JdbcTarget(...)")
    return kinds[provider](name)


def _written(df: DataFrame, options: Options) -> list[StructField]:
    fields = {field.name: field for field in df.schema.fields if field.name not in (ROW_KIND, *SIDE_OUTPUTS)}
    unknown = [name for name in (*options.column_list, *options.sequence_by) if name not in fields]
    if unknown:
        raise ArgumentError(f"the DataFrame has no column {unknown[0]!r}; it has {', '.join(fields)}")
    require_distinct(df, [*(options.column_list or fields), *options.sequence_by])
    return [fields[name] for name in options.column_list or fields]


def _check_arguments(written: Sequence[StructField], options: Options) -> None:
    names = [field.name for field in written]
    if not options.history and not options.keys:
        raise ArgumentError("keys is missing: pass keys=[...], the columns that identify a row")
    unknown = [name for name in options.keys if name not in names]
    if unknown:
        raise ArgumentError(f"keys has {unknown[0]!r}, which is not one of the columns to write: {', '.join(names)}")
    if options.history and options.sequence_by:
        raise ArgumentError("history and sequence_by cannot be combined: remove one of them")
    reserved = [name for name in names if name.lower() in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)]
    if options.history and reserved:
        raise ArgumentError(f"column {reserved[0]} is reserved in a history: leave it out with column_list=[...]")


def _history_fields() -> list[StructField]:
    from pyspark.sql.types import LongType, StringType, StructField, TimestampType

    names = {CHANGE_TYPE: StringType(), COMMIT_VERSION: LongType(), COMMIT_TIMESTAMP: TimestampType()}
    return [StructField(name, kind) for name, kind in names.items()]
