"""Changelogs applied to tables: streams by `apply_changes`, bounded DataFrames by `apply_batch`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructField, TimestampType

from cdc_formats.errors import ArgumentError, refuse
from normalize.arguments import check_choice, names_of
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS
from normalize.dataframe import (
    has_native_engine,
    positional,
    require_arrival_order,
    require_changelog,
    require_distinct,
)
from normalize.monitoring.explain_error import explain_error
from normalize.spark.micro_batch import running_batch
from normalize.spark.packed import collected, packed, unpacked
from normalize.spark.plans import computed, in_utc, partition_count, plan_of, stored
from normalize.spark.sessions import is_connect, java_error_types
from normalize.spark_versions import check_version

from .batches import only_call
from .database_target import lake_target
from .expressions import with_deletion_times
from .history import ApplyVersions, version_fields
from .latest import (
    check,
    check_rows,
    has_python,
    is_arrow,
    last_changes,
    last_rows,
)
from .layout import in_lower
from .table_options import DELETED_AT, TableOptions, TablePolicy
from .table_spec import (
    END_AT,
    START_AT,
    OnNewColumn,
    TableSpec,
)
from .targets import ArrowRows, Sink, TableTarget, TargetError, most_changes, repeat_conflicts

_log = logging.getLogger("normalize")


def apply_changes(
    stream: DataFrame,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    order_by: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    scd_type: Literal[1, 2] = 1,
    track_history: str | Sequence[str] = (),
    deletes: Literal["hard", "soft"] = "hard",
    deleted_column: str = DELETED_AT,
    column_list: str | Sequence[str] = (),
    on_new_column: OnNewColumn = "fail",
    create: bool = True,
) -> DataStreamWriter:
    """Return a writer that applies a changelog stream to a table, which then has the source's rows.

    For a bounded changelog, also within your own ``foreachBatch``, call `apply_batch`.

    Parameters
    ----------
    stream : DataFrame
        A changelog stream with ``row_kind`` (`from_kafka_changelog`, `from_change_feed`). Filter
        out rows without a row kind (corrupt records, control events) first.
    target : DeltaTarget, IcebergTarget, JdbcTarget, another TableTarget, or str
        The table. A string is the name of an existing Delta or Iceberg table.
    keys : str or sequence of str
        The columns that identify a row, in all partitions of the table. As in AUTO CDC.
    order_by : str or sequence of str
        Columns that increase with each change of a key (``offset``), and order its changes within a
        micro-batch. They may be columns that are not written. With ``scd_type=1``, they are
        required with Spark Connect after a shuffle (joins, aggregates)
        and for sources other than Kafka. A change that arrives in a later micro-batch than a newer
        one still applies: read the topic with ``order="source"`` to drop it.
    sequence_by : str or sequence of str
        The same columns for ``scd_type=2``, which requires them. As in AUTO CDC, they order all
        changes of a key: a late change goes to its place in the history.
    scd_type : 1 or 2
        1: the table has the rows of the source. 2: the table is a history, with a row for each
        version of a row. A version is valid from ``__START_AT`` until before ``__END_AT``, which
        are sequence values (structs if `sequence_by` has several columns). ``__END_AT`` is NULL in
        current rows. As AUTO CDC's ``stored_as_scd_type``. Delta and Iceberg only.
    track_history : str or sequence of str
        The written columns of which a change makes a version, with ``scd_type=2``; by default all.
        An update of the others changes the version of its place in the order of `sequence_by`,
        which has the values of its last update. As AUTO CDC's ``track_history_column_list``.
    deletes : {"hard", "soft"}
        ``hard``: a delete removes the row. ``soft``: a delete keeps the row and sets
        `deleted_column`, which is NULL in all other rows.
    deleted_column : str
        The name of the TIMESTAMP column with the time of a soft delete: the first TIMESTAMP column
        of `order_by`, or otherwise the time at which the micro-batch is applied.
    column_list : str or sequence of str
        The columns to write; by default all, including metadata. As in AUTO CDC.
    on_new_column : {"add", "ignore", "fail"}
        What happens to a column that the table lacks. ``add`` adds it, with NULL in existing rows.
        ``ignore`` does not write it, and logs a warning; it is written as soon as the table has it.
        ``fail`` is an error with the ``ALTER TABLE`` that adds it. ``__START_AT`` and ``__END_AT``
        are never added.
    create : bool
        Whether to create a missing table, with these columns and keys.

    Returns
    -------
    DataStreamWriter
        Set its ``checkpointLocation``, then start it.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, ChangeOrderError
        During this call, when the arguments or the table cannot be used; `SchemaError` also for a
        column name that the table does not support. In a micro-batch: `ArgumentError` for a row
        without a row kind, `MissingFieldError` for a NULL key, `ChangeOrderError` if a key's last
        change is ambiguous, `ConflictError` if other writers prevented every attempt,
        `BatchOrderError` if the table has a later micro-batch of this query, `CommitLostError` if a
        Delta table lost commits of it, `TargetError` if the table was there in earlier runs and is
        missing.

    Notes
    -----
    Spark's AUTO CDC is ``pyspark.pipelines.create_auto_cdc_flow`` (Spark 4.2).

    Each micro-batch applies the last change of each key, with ``scd_type=2`` every change, in one
    commit of the table. If another writer changes the table at the same time (a commit conflict of
    Delta or Iceberg, a deadlock of a database), the micro-batch is applied again: ten times at
    most, after pauses that double from 0.2 to 10 seconds.

    Each commit carries the query's id, the micro-batch's number and a digest of its offsets: as
    Delta's ``txnAppId`` and ``txnVersion``, in the summary of Iceberg's snapshot, or in the database
    table ``changelog_batches``. A micro-batch that Spark repeats after a failure is not written
    again. A driver that wakes up after another one took over its checkpoint writes nothing
    (`BatchOrderError`). Not on Spark Connect, where Python does not see the query's id: there, a
    repeated micro-batch is applied again, and ends in the same rows (docs/sinks.md, "Two drivers").

    A history (``scd_type=2``) has two kinds of rows that are valid at no time, for changes that
    arrive late. An update that changes no tracked column makes no version, as in AUTO CDC: it is a
    row whose ``__END_AT`` equals its ``__START_AT``, and which has the values before the update. A
    delete without a row before it is a row whose ``__START_AT`` is NULL. AUTO CDC keeps both in an
    auxiliary table. Read versions with ``WHERE __START_AT < __END_AT OR __END_AT IS NULL``.

    Of changes of a key with equal sequence values, an insert or update comes after a delete. Two
    inserts or updates are a `ChangeOrderError` in one micro-batch; in a later one, the new row
    replaces the version.

    Order a history by a position in the log. In a column of the row such as ``updated_at``, a
    delete has the value of the last version, and so has no effect.

    Queries that write one history at the same time must write different keys.

    Spark Connect supports Delta and Iceberg tables. It runs micro-batches on its server, where this
    package must be installed.
    """
    if not stream.isStreaming:
        raise ArgumentError(
            "apply_changes requires a stream, and this DataFrame is bounded: call apply_batch(df, "
            "target, ...)"
        )
    applied = _checked(
        stream,
        target,
        keys=keys,
        order_by=order_by,
        sequence_by=sequence_by,
        scd_type=scd_type,
        track_history=track_history,
        deletes=deletes,
        deleted_column=deleted_column,
        column_list=column_list,
        on_new_column=on_new_column,
        create=create,
    )
    writer = stream.writeStream.foreachBatch(StreamedChanges(*applied))
    return writer.outputMode("update") if has_native_engine(stream) else writer


def apply_batch(
    df: DataFrame,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    order_by: str | Sequence[str] = (),
    sequence_by: str | Sequence[str] = (),
    scd_type: Literal[1, 2] = 1,
    track_history: str | Sequence[str] = (),
    deletes: Literal["hard", "soft"] = "hard",
    deleted_column: str = DELETED_AT,
    column_list: str | Sequence[str] = (),
    on_new_column: OnNewColumn = "fail",
    create: bool = True,
) -> None:
    """Apply a bounded changelog to a table, in one commit; also within your own ``foreachBatch``.

    Parameters
    ----------
    df : DataFrame
        A bounded changelog with ``row_kind``, or the DataFrame of your ``foreachBatch`` function.
        Filter out rows without a row kind first.
    target, keys, order_by, sequence_by, scd_type, track_history, deletes, deleted_column,
    column_list, on_new_column, create
        As in `apply_changes`.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, ChangeOrderError, MissingFieldError, ConflictError, \
BatchOrderError
        As in `apply_changes`; `TargetError` also when the table refuses the rows, such as by a
        CHECK constraint. `ArgumentError` also for a second call for a table within one micro-batch
        of your ``foreachBatch``, which would be taken for a repetition of the first.
    """
    if df.isStreaming:
        raise ArgumentError(
            "apply_batch requires a bounded DataFrame, and this one is a stream: call "
            "apply_changes(stream, target, ...)"
        )
    try:
        table, apply = _checked(
            df,
            target,
            keys=keys,
            order_by=order_by,
            sequence_by=sequence_by,
            scd_type=scd_type,
            track_history=track_history,
            deletes=deletes,
            deleted_column=deleted_column,
            column_list=column_list,
            on_new_column=on_new_column,
            create=create,
        )
        spark = df.sparkSession
        with nullcontext() if is_connect(df) else only_call(spark, str(table)):
            apply(df, table.sink(spark))
    except java_error_types() as error:
        # py4j shows the whole trace of an exception of Java.
        raise TargetError(f"{target}: {explain_error(error)}") from None


def _checked(
    df: DataFrame,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str],
    order_by: str | Sequence[str],
    sequence_by: str | Sequence[str],
    column_list: str | Sequence[str],
    on_new_column: OnNewColumn,
    create: bool,
    track_history: str | Sequence[str],
    **table_options: Any,
) -> tuple[TableTarget, ApplyChanges | ApplyVersions]:
    """Return the table and what applies a micro-batch, after the checks that need no rows."""
    key, order = names_of(keys, "keys"), names_of(order_by, "order_by")
    sequence, listed = names_of(sequence_by, "sequence_by"), names_of(column_list, "column_list")
    options = TableOptions(track_history=names_of(track_history, "track_history"), **table_options)
    check_version(df.sparkSession, tables=True)
    require_changelog(df)
    table = target if isinstance(target, TableTarget) else lake_target(df.sparkSession, target)
    # Before the arguments: a sink of a database refuses Spark Connect.
    sink, written = table.sink(df.sparkSession), _written(df, listed, (*order, *sequence))
    policy = table.policy(options)
    check_choice("on_new_column", on_new_column, ("add", "ignore", "fail"))
    _check_arguments([field.name for field in written], key, order, sequence, policy)
    validity = version_fields(df, sequence) if policy.is_history else []
    spec = TableSpec.of(policy, written, key, create, on_new_column, validity)
    apply: ApplyChanges | ApplyVersions
    if policy.is_history:
        apply = ApplyVersions(spec, sequence, policy.track_history)
    else:
        if not order:
            require_arrival_order(df, key)
        times = (name for name in order if df.schema[name].dataType == TimestampType())
        by_arrow = not (order or is_connect(df)) and has_python(plan_of(df))
        by_arrow = by_arrow and is_arrow(spec.fields, key)
        apply = ApplyChanges(spec, order, next(times, None), by_arrow)
    sink.needed(spec)
    return table, apply


def _written(df: DataFrame, column_list: Sequence[str], order: Sequence[str]) -> list[StructField]:
    """Return the columns to write, which the DataFrame has, as well as those of the order."""
    fields = {
        field.name: field
        for field in df.schema.fields
        if field.name not in (ROW_KIND, *SIDE_OUTPUTS)
    }
    for name in (*column_list, *order):
        if name not in fields:
            raise ArgumentError(f"the DataFrame has no column {name!r}; it has {', '.join(fields)}")
    written = column_list or [*fields]
    require_distinct(df, [*written, *order])
    return [fields[name] for name in written]


def _check_arguments(
    names: Sequence[str],
    keys: Sequence[str],
    order_by: Sequence[str],
    sequence_by: Sequence[str],
    policy: TablePolicy,
) -> None:
    """Raise an error for options that cannot be combined, and for columns that are not written."""
    history = policy.is_history
    refuse(
        (
            history and not sequence_by,
            "sequence_by is missing, which scd_type=2 requires: pass columns that increase with "
            "each change of a key",
        ),
        (
            history and order_by,
            "order_by and scd_type=2 cannot be combined: pass its columns as sequence_by",
        ),
        (
            not history and sequence_by,
            "sequence_by requires scd_type=2: pass order_by, which orders the changes of a "
            "micro-batch and drops no late ones",
        ),
        (not keys, "keys is missing: pass keys=[...], the columns that identify a row"),
    )
    options = {"keys": keys, "track_history": policy.track_history}
    refuse(
        *(
            (
                name not in names,
                f"{option} has {name!r}, which is not one of the columns to write: "
                f"{', '.join(names)}",
            )
            for option, listed in options.items()
            for name in listed
        )
    )
    own = in_lower([START_AT, END_AT] if history else filter(None, [policy.deleted_column]))
    refuse(
        *(
            (
                name.lower() in own,
                f"column {name} is one that apply_changes writes itself: leave it out with "
                "column_list=[...]",
            )
            for name in names
        )
    )


@dataclass
class StreamedChanges:
    """Applies a stream's micro-batches in the query's own session, which Spark made from the user's.

    The table exists from the first micro-batch on, so that a later run can see that it is gone.
    """

    table: TableTarget
    apply: ApplyChanges | ApplyVersions
    _run: str | None = None
    _sink: Sink | None = None

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply the changes."""
        spark = batch.sparkSession
        if is_connect(spark):
            self.apply(batch, self.table.sink(spark))
            return
        self.table.tune(spark)
        run = spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        if self._sink is None or self._run != run:
            sink = self.table.sink(spark)
            repeat_conflicts(partial(self._require_table, sink, spark, number))
            self._run, self._sink = run, sink
        self.apply(batch, self._sink)

    def _require_table(self, sink: Sink, spark: SparkSession, number: int) -> None:
        """Create the table in a query's first micro-batch; later, raise an error if it is gone.

        Raises
        ------
        TargetError
        """
        table, spec, running = self.table, self.apply.spec, running_batch(spark)
        if number == 0:
            sink.prepare(spec)
        elif not sink.exists():
            create = "; ".join(sink.needed(replace(spec, create=True)))
            raise TargetError(
                f"{table} is missing, and this query has written {number} micro-batches: restore the "
                "table, or start from a new checkpoint, which reads the stream again. If no "
                f"micro-batch had rows yet, create it: {create}"
            )
        elif running is not None and sink.record(running) is None:
            _log.warning(
                "%s has no micro-batch of this query, which is at micro-batch %s. This is right if no "
                "micro-batch had rows yet, or if Iceberg's snapshots are expired. Otherwise it is not "
                "the table that the query wrote",
                table,
                number,
            )


@dataclass(frozen=True)
class ApplyChanges:
    """Applies the last change of each key of a micro-batch to a table."""

    spec: TableSpec
    order_by: tuple[str, ...]
    deleted_time: str | None = None
    """The column with the time of soft deletes; None for the time of the micro-batch."""
    by_arrow: bool = False
    """Whether tasks, which have this package, can find the last change of each key."""

    def __call__(self, batch: DataFrame, sink: Sink) -> None:
        """Apply a micro-batch to the table of a sink."""
        if self.spec.deleted_column is not None:
            batch = with_deletion_times(batch, self.spec.deleted_column, self.deleted_time)
        if not self.by_arrow or not sink.takes_arrow:
            self._apply(batch, sink)
            return
        names, numbers = self.spec.names, {name: f"c{i}" for i, name in enumerate(self.spec.names)}
        # Spark 4.1 does not quote the names of `mapInArrow`.
        rows = batch.select(ROW_KIND, *positional(names))
        keys = [numbers[name] for name in self.spec.primary_key]
        last = packed(rows, partial(last_rows, keys=keys))
        with stored(last) as values:
            parts = collected(values, partition_count(batch), most_changes())
            if parts is None:
                self._apply(unpacked(values, rows.schema).toDF(ROW_KIND, *names), sink)
            elif any(part.num_rows for part in parts):
                table = in_utc(pa.concat_tables(parts)).rename_columns([ROW_KIND, *names])
                check_rows(table, self.spec.primary_key)
                spark, schema = rows.sparkSession, rows.toDF(ROW_KIND, *names).schema
                arrow = ArrowRows(table, lambda: spark.createDataFrame(table, schema))
                repeat_conflicts(lambda: sink.merge_arrow(arrow, sink.prepare(self.spec)))

    def _apply(self, batch: DataFrame, sink: Sink) -> None:
        key = self.spec.primary_key
        latest = last_changes(batch, self.spec.names, key, self.order_by)
        job = partial(check, keys=key, order_by=self.order_by)
        with computed(latest, job) as (rows, number_of_keys):
            if number_of_keys:
                last = rows.select("row.*")
                repeat_conflicts(lambda: sink.merge(last, sink.prepare(self.spec)))
