"""`apply_changes`: apply a changelog, a stream or a bounded one, to a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError
from cdc_formats.schema import backquoted

from ..changelog_normalize import names_of
from ..typed import ASIDES, ROW_KIND, has_one_row_for_each, require_changelog, require_distinct
from . import jdbc, lake
from .arrival import require_arrival_order
from .change_feed import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, to_change_feed
from .conflicts import repeat_conflicts
from .latest import check, last_changes
from .tables import DeltaTable, IcebergTable, JdbcTable, LakeTable, Table, TargetError
from .wanted import Batch, Wanted, running_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructField


def apply_changes(
    df: DataFrame,
    target: Table | str,
    *,
    primary_key: str | Sequence[str] = (),
    history: bool = False,
    order_by: str | Sequence[str] = (),
    columns: Sequence[str] = (),
    add_columns: bool = False,
    create: bool = True,
) -> DataStreamWriter | None:
    """Apply a changelog to a table, which then has the rows of the source.

    Parameters
    ----------
    df : DataFrame
        A changelog with ``row_kind`` (`from_kafka_changelog`, `from_change_feed`). Filter out rows without a row kind (corrupt records,
        control events) first.
    target : DeltaTable, IcebergTable, JdbcTable or str
        The table. A string is the name of an existing Delta or Iceberg table.
    primary_key : str or sequence of str
        The columns that identify a row, in all partitions of the table.
    history : bool
        Append every change, with ``_change_type`` as in Delta's change feed (`to_change_feed`), the micro-batch's number as
        ``_commit_version`` (NULL outside of a stream) and its time as ``_commit_timestamp``.
    order_by : str or sequence of str
        Columns that increase with each change of a key (``offset``). Required only after a shuffle (joins, aggregates) and for sources
        other than Kafka. They may be metadata that is not written.
    columns : sequence of str
        The columns to write; by default all, including metadata.
    add_columns : bool
        Whether to add columns that the table lacks; existing rows have NULL in them.
    create : bool
        Whether to create a missing table, with these columns and this key.

    Returns
    -------
    DataStreamWriter or None
        For a stream, the writer: set its ``checkpointLocation`` and start it. A bounded DataFrame is applied during the call, also inside
        your own ``foreachBatch``.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, ChangeOrderError
        During this call, when the arguments or the table cannot be used; `SchemaError` also for a column name that the table does not
        support. In a micro-batch: `ArgumentError` for a row without a row kind, `MissingFieldError` for a NULL key, `ChangeOrderError`
        if a key's last change is ambiguous, `ConflictError` if other writers prevented every attempt.

    Notes
    -----
    Each micro-batch applies the last change of each key, in one commit of the table. If another writer changes the table at the same time
    (a commit conflict of Delta or Iceberg, a deadlock of a database), the micro-batch is applied again: ten times at most, after pauses
    that double from 0.2 to 10 seconds.

    A micro-batch that Spark repeats after a failure is applied again, and ends in the same rows. A history would have its changes twice.
    It therefore stores the query's last micro-batch in the same commit: as Delta's ``txnAppId`` and ``txnVersion``, in the summary of
    Iceberg's snapshot, or in the database table ``changelog_batches`` (`normalize.sinks.jdbc`).
    """
    require_changelog(df)
    spark = df.sparkSession
    table = target if isinstance(target, LakeTable | JdbcTable) else _of_catalog(spark, target)
    key, order = names_of(primary_key), names_of(order_by)
    written = _written(df, names_of(columns), order)
    _check_arguments(df, written, key, order, history)
    if history:
        applied: Changes | History = History(table, Wanted((*written, *_history_fields()), (), create, add_columns), tuple(written))
    else:
        applied = Changes(table, Wanted(tuple(written), key, create, add_columns), order)
        if not order and not has_one_row_for_each(df, key):
            require_arrival_order(df)
    if isinstance(table, JdbcTable):
        jdbc.needed(spark, table, applied.wanted)
    else:
        lake.needed(spark, table, applied.wanted)
    if df.isStreaming:
        return df.writeStream.foreachBatch(applied)
    applied(df, 0)
    return None


@dataclass(frozen=True)
class Changes:
    """Applies micro-batches to a table; for ``foreachBatch``."""

    table: Table
    wanted: Wanted
    order_by: tuple[str, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply the last change of each key."""
        key = self.wanted.primary_key
        with computed(last_changes(batch, self.wanted.names, key, self.order_by)) as latest:
            if check(latest, key, self.order_by) == 0:
                return
            repeat_conflicts(partial(self._merge, latest.select("row.*")))

    def _merge(self, rows: DataFrame) -> None:
        if isinstance(self.table, JdbcTable):
            jdbc.prepare(rows.sparkSession, self.table, self.wanted)
            jdbc.merge(rows, self.table, self.wanted)
        else:
            lake.prepare(rows.sparkSession, self.table, self.wanted)
            lake.merge(rows, self.table, self.wanted)


@dataclass(frozen=True)
class History:
    """Appends micro-batches to a history; for ``foreachBatch``."""

    table: Table
    wanted: Wanted
    written: tuple[StructField, ...]

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Append every change, unless the micro-batch was appended before."""
        from pyspark.sql import functions as F

        running = running_batch(batch.sparkSession)
        changes = to_change_feed(batch.select(ROW_KIND, *(backquoted(field.name) for field in self.written)))
        version = F.lit(None if running is None else running.number).cast("bigint")
        stamped = changes.withColumns({COMMIT_VERSION: version, COMMIT_TIMESTAMP: F.current_timestamp()})
        # Also for a batch that is then skipped: computing the rows writes the query's state.
        with computed(stamped) as rows:
            if not rows.isEmpty():
                repeat_conflicts(partial(self._append, rows, running))

    def _append(self, rows: DataFrame, batch: Batch | None) -> None:
        if isinstance(self.table, JdbcTable):
            jdbc.prepare(rows.sparkSession, self.table, self.wanted)
            jdbc.append(rows, self.table, self.wanted, batch)
        else:
            lake.prepare(rows.sparkSession, self.table, self.wanted)
            lake.append(rows, self.table, batch)


@contextmanager
def computed(df: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame that is computed once: counts and state are not written twice, and MERGE requires deterministic input."""
    rows = df.localCheckpoint()
    try:
        yield rows
    finally:
        rows._jdf.queryExecution().analyzed().rdd().unpersist(False)  # earlier than the garbage collector


def _of_catalog(spark: SparkSession, name: str) -> LakeTable:
    from pyspark.errors import AnalysisException

    kinds = {kind.provider: kind for kind in (DeltaTable, IcebergTable)}
    try:
        provider = lake.provider_of(spark, LakeTable(name).sql_name)
    except AnalysisException:
        raise TargetError(
            f"table {name!r} is not in the session's catalogs: to create it, pass DeltaTable(...) or IcebergTable(...)"
        ) from None
    if provider not in kinds:
        raise TargetError(f"table {name!r} has the provider {provider}: apply_changes supports {', '.join(kinds)} and JdbcTable(...)")
    return kinds[provider](name)


def _written(df: DataFrame, columns: Sequence[str], order_by: Sequence[str]) -> list[StructField]:
    fields = {field.name: field for field in df.schema.fields if field.name not in (ROW_KIND, *ASIDES)}
    unknown = [name for name in (*columns, *order_by) if name not in fields]
    if unknown:
        raise ArgumentError(f"the DataFrame has no column {unknown[0]!r}; it has {', '.join(fields)}")
    require_distinct(df, [*(columns or fields), *order_by])
    return [fields[name] for name in columns or fields]


def _check_arguments(df: DataFrame, written: Sequence[StructField], key: Sequence[str], order: Sequence[str], history: bool) -> None:
    names = [field.name for field in written]
    if not history and not key:
        raise ArgumentError("apply_changes requires primary_key=[...]: the columns that identify a row")
    unknown = [name for name in key if name not in names]
    if unknown:
        raise ArgumentError(f"primary_key has {unknown[0]!r}, which is not one of the columns to write: {', '.join(names)}")
    if history and order:
        raise ArgumentError("history and order_by cannot be combined: remove one of them")
    reserved = [name for name in names if name.lower() in (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)]
    if history and reserved:
        raise ArgumentError(f"column {reserved[0]} is reserved in a history: leave it out with columns=[...]")


def _history_fields() -> list[StructField]:
    from pyspark.sql.types import LongType, StringType, StructField, TimestampType

    names = {CHANGE_TYPE: StringType(), COMMIT_VERSION: LongType(), COMMIT_TIMESTAMP: TimestampType()}
    return [StructField(name, kind) for name, kind in names.items()]
