"""`read_state`: a query's stored rows in its checkpoint, read with Spark's state data source.

Spark's reader returns a row for each key group, with the bytes that `state.Layout` wrote. A group
that no change has touched since the query's columns changed still has the old columns. The result
has the columns of all groups, by name, each with the widest of its types. A row is NULL in a column
that its group lacks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, Row, SparkSession

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import ArgumentError, StateDamagedError
from cdc_formats.values.schema import Column, columns as to_columns
from cdc_formats.values.types import holds
from normalize.core.arrow import arrow_type, of_stored, slices, spark_ddl, to_arrow, unpack
from normalize.core.guard import GUARD
from normalize.core.state import KeyGroup, Layout, read
from normalize.engines.key_groups import STATE_DDL
from normalize.monitoring.explain_error import explain_error
from normalize.spark.sessions import analyze, spark_error_types
from normalize.worker import worker

OPERATOR = "applyInPandasWithState"
"""Spark's name of the stage."""
_NATIVE_OPERATOR = "stateStoreSave"
"""Spark's name of the stage on the native engine."""

_UNKNOWN = 0
"""An unknown processing time."""

_KEY_GROUP = to_columns("_key_group INT")
_WRITTEN = to_columns("_written TIMESTAMP")
_POSITION = to_columns("_deleted_at TIMESTAMP, _epoch INT, _high DECIMAL(20,0), _low DECIMAL(20,0)")
_NEWEST = {"values", "orderings"}
"""The columns in which Spark's ``max_by`` with a number of rows stores them."""
_KEY_GROUPS_DDL = f"struct<groupState:struct<{STATE_DDL.lower().replace(' ', ':')}>>"


def read_state(
    spark: SparkSession,
    checkpoint: str,
    *,
    operator_id: int | None = None,
    batch_id: int | None = None,
) -> DataFrame:
    """Return the rows that a query stores, one for each key.

    Parameters
    ----------
    spark : SparkSession
    checkpoint : str
        The query's ``checkpointLocation``. It is not changed, and the query may be running.
    operator_id : int or None
        The id of the stateful operator; required if several are a ChangelogNormalize.
    batch_id : int or None
        The micro-batch after which the state is read, if the checkpoint still has it; by default
        the last committed one.

    Returns
    -------
    DataFrame
        The table's columns, with the changelog's types (but a VARIANT as its JSON text), and
        ``_key_group``. With a TTL also
        ``_written``, the time of the last write (NULL if before the query had a TTL). With
        ``order="source"`` also ``_deleted_at``, ``_epoch``, ``_high`` and ``_low``. A row with a
        ``_deleted_at`` is a remembered delete, and has only its key; a key without a position is
        NULL in the last three. The native engine has the table's columns only.

    Raises
    ------
    ArgumentError
        When the checkpoint has no such state, or several.
    StateVersionError
        When this release does not support the state's version, the state is compact, or two key
        groups have incompatible types of a column.
    StateDamagedError
        When Spark cannot read the checkpoint's files.

    Notes
    -----
    The state is read twice: during this call for its columns, and when the DataFrame is evaluated.
    The workers decode the rows.
    """
    with _readable(checkpoint):
        stored = find_state(spark, checkpoint, operator_id, batch_id, native=True)
        if stored.is_native(spark):
            return stored.newest_rows(spark)
        layout = stored.layout(spark)
    written, position = (
        _WRITTEN if layout.with_ttl else (),
        _POSITION if layout.with_positions else (),
    )
    columns = (*layout.columns, *_KEY_GROUP, *written, *position)
    return stored.key_groups(spark).mapInArrow(
        partial(_rows_pass, layout=layout, columns=columns), spark_ddl(columns)
    )


@contextmanager
def _readable(checkpoint: str) -> Iterator[None]:
    """Raise what Spark says of files that it cannot read as a `StateDamagedError`."""
    try:
        yield
    except PythonException:  # an error of the workers, which has its own sentence
        raise
    except spark_error_types() as error:
        raise StateDamagedError(
            f"Spark cannot read the state in {checkpoint}: {explain_error(error)}; restore the "
            "checkpoint from a backup"
        ) from None


@dataclass(frozen=True)
class StoredState:
    """A keyed stage's state in a checkpoint.

    Attributes
    ----------
    checkpoint : str
    operator_id : int
    batch_id : int
        The micro-batch after which it is read.
    """

    checkpoint: str
    operator_id: int
    batch_id: int

    def key_groups(self, spark: SparkSession) -> DataFrame:
        """Return the stored key groups: ``key_group INT, state BINARY``."""
        groups = self.source(spark).selectExpr(
            "key.key_group AS key_group", "value.groupState.state AS state"
        )
        return groups.where(f"key_group <> {GUARD}")

    def is_stage(self, spark: SparkSession) -> bool:
        """Return whether the state has a single value for each key group."""
        schema = {field.name: field.dataType for field in self.source(spark).schema.fields}
        return (
            schema["key"].simpleString() == "struct<key_group:int>"
            and schema["value"].simpleString() == _KEY_GROUPS_DDL
        )

    def is_native(self, spark: SparkSession) -> bool:
        """Return whether the state is that of the native engine."""
        state = self.source(spark)
        return (
            state.select("key.*").dtypes == [("key", "binary")]
            and set(state.select("value.*").columns) >= _NEWEST
        )

    def newest_rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows that the native engine stores, without deleted keys.

        A key's row is the one with the greatest mark, or NULL if it is deleted.
        """
        newest = (
            "value.values[array_position(value.orderings, array_max(value.orderings)) - 1].row AS "
            "row"
        )
        return self.source(spark).selectExpr(newest).where("row IS NOT NULL").select("row.*")

    def layout(self, spark: SparkSession) -> Layout:
        """Return the layout with the columns of all key groups.

        Raises
        ------
        ArgumentError
            When no key group is stored.
        StateVersionError
        """
        ddl = "key_groups INT, columns STRING, unique_key ARRAY<STRING>, extras ARRAY<STRING>"
        layouts = self.key_groups(spark).mapInArrow(_layouts_pass, ddl).distinct().collect()
        if not layouts:
            raise ArgumentError(
                f"the state in {self.checkpoint} has no rows after batch {self.batch_id}, and so "
                "its columns are unknown: continue the query with any key_groups"
            )
        first, extras = layouts[0], {name for row in layouts for name in row.extras}
        columns = widest([to_columns(row.columns) for row in layouts])
        unique_key = tuple(first.unique_key)
        return Layout(first.key_groups, columns, unique_key, "written" in extras, "epoch" in extras)

    def source(self, spark: SparkSession) -> DataFrame:
        """Return the state as Spark's state data source reads it: ``key`` and ``value``."""
        reader = (
            spark.read.format("statestore")
            .option("operatorId", self.operator_id)
            .option("batchId", self.batch_id)
        )
        return reader.load(self.checkpoint)


def find_state(
    spark: SparkSession,
    checkpoint: str,
    operator_id: int | None = None,
    batch_id: int | None = None,
    *,
    native: bool = False,
) -> StoredState:
    """Return the keyed stage's state in a checkpoint; that of the native engine only if `native`.

    Raises
    ------
    ArgumentError
        When the checkpoint has none, or has several and `operator_id` does not select one.
    """
    operators = _operators(spark, checkpoint)
    states = [
        StoredState(
            checkpoint,
            operator.operatorId,
            operator.maxBatchId if batch_id is None else batch_id,
        )
        for operator in operators
        if operator.operatorName in (OPERATOR, *[_NATIVE_OPERATOR] * native)
        and operator_id in (None, operator.operatorId)
    ]
    ours = [
        state for state in states if state.is_stage(spark) or (native and state.is_native(spark))
    ]
    if len(ours) != 1:
        raise _not_one_stage(checkpoint, operators, operator_id, several=len(ours) > 1)
    return ours[0]


def _operators(spark: SparkSession, checkpoint: str) -> list[Row]:
    """Return Spark's rows on the stateful operators of a checkpoint with a micro-batch."""
    if not _exists(spark, f"{checkpoint}/commits"):  # Spark's reader would create it
        raise ArgumentError(
            f"{checkpoint} is not a checkpoint: pass the query's checkpointLocation"
        )
    spark.streams.active  # noqa: B018 - Spark's driver starts its StateStoreCoordinator, which the readers of RocksDB call since Spark 4.1
    operators = spark.read.format("state-metadata").load(checkpoint).orderBy("operatorId").collect()
    if not operators or min(operator.maxBatchId for operator in operators) < 0:
        raise ArgumentError(
            f"the query in {checkpoint} has no state, or has not committed a micro-batch yet"
        )
    return operators


def _not_one_stage(
    checkpoint: str, operators: Iterable[Row], operator_id: int | None, *, several: bool
) -> ArgumentError:
    """Return the error for a checkpoint without a keyed stage, or with several."""
    listed = ", ".join(
        sorted({f"{operator.operatorId} ({operator.operatorName})" for operator in operators})
    )
    refusal = "" if operator_id is None else f"operator {operator_id} is not a ChangelogNormalize; "
    fix = (
        "pass operator_id"
        if several
        else "none of them is a ChangelogNormalize"
        if not refusal
        else "pass another operator_id"
    )
    return ArgumentError(
        f"{refusal}the query in {checkpoint} has the stateful operators {listed}: {fix}"
    )


def _exists(spark: SparkSession, path: str) -> bool:
    """Return whether a folder exists.

    Spark Connect has no file systems, only readers, which expand patterns.
    """
    try:
        analyze(spark.read.text(re.sub(r"([\\{}\[\]*?])", r"\\\1", path)))
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        return False
    return True


def widest(tables: Iterable[Sequence[Column]]) -> tuple[Column, ...]:
    """Return the columns of all tables, by name, each with its widest type.

    The columns of the table with the most columns come first.

    Examples
    --------
    >>> [str(column.type) for column in widest([to_columns("id INT, a STRING"), to_columns("id BIGINT")])]
    ['BIGINT', 'STRING']
    """
    by_name: dict[str, Column] = {}
    for table in sorted(tables, key=len, reverse=True):
        for column in table:
            widest_yet = by_name.get(column.name, column)
            by_name[column.name] = column if holds(column.type, widest_yet.type) else widest_yet
    return tuple(by_name.values())


# --------------------------------------------------------------------------------------------------
# on the workers


def _layouts_pass(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Turn key groups into the layout of each; for ``mapInArrow``."""
    schema = pa.schema(
        [
            ("key_groups", pa.int32()),
            ("columns", pa.string()),
            ("unique_key", pa.list_(pa.string())),
            ("extras", pa.list_(pa.string())),
        ]
    )
    with worker():
        for batch in batches:
            headers = [read(data.as_py()) for data in batch.column("state")]
            yield pa.RecordBatch.from_pylist(
                [{name: getattr(header, name) for name in schema.names} for header in headers],
                schema,
            )


def _rows_pass(
    batches: Iterator[pa.RecordBatch], *, layout: Layout, columns: Sequence[Column]
) -> Iterator[pa.RecordBatch]:
    """Turn key groups into typed rows; for ``mapInArrow``."""
    with worker():
        for batch in batches:
            for number, data in zip(
                batch.column("key_group").to_pylist(), batch.column("state"), strict=True
            ):
                yield from slices(
                    typed_rows(layout, number, layout.decode(data.as_py(), _UNKNOWN), columns)
                )


def typed_rows(
    layout: Layout, number: int, group: KeyGroup, columns: Sequence[Column]
) -> pa.RecordBatch:
    """Return a key group's rows with the columns of `read_state`.

    Parameters
    ----------
    layout : Layout
    number : int
        The key group's number.
    group : KeyGroup
    columns : sequence of Column
        The columns of the result.
    """
    rows = group.rows
    arrays = [
        of_stored(column.type, rows.column(f"c{index}"))
        for index, column in enumerate(layout.columns)
    ]
    deleted = group.extra("deleted_at") != 0
    if deleted.any():
        _set_keys(arrays, layout, rows, deleted)
    arrays.append(pa.array(np.full(len(group), number, np.int32)))
    if layout.with_ttl:
        arrays.append(_time(group.extra("written")))
    if layout.with_positions:
        arrays.append(_time(group.extra("deleted_at")))
        nowhere = pa.array(group.extra("epoch") == 0)
        for name, column in zip(("epoch", "high", "low"), _POSITION[1:], strict=True):
            typed = rows.column(name).cast(arrow_type(column.type))
            arrays.append(pc.if_else(nowhere, pa.scalar(None, typed.type), typed))
    schema = pa.schema([(column.name, arrow_type(column.type)) for column in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _set_keys(
    arrays: list[Any], layout: Layout, rows: pa.RecordBatch, deleted: np.ndarray[Any, Any]
) -> None:
    """Fill in the key columns of remembered deletes, which have no row."""
    mask = pa.array(deleted)
    keys = zip(*map(unpack, rows.column("key").filter(mask).to_pylist()), strict=True)
    names = {column.name for column in layout.columns}
    # The metadata columns of a key come after its own columns, and are not stored.
    unique_key = [name for name in layout.unique_key if name in names]
    for index, values in zip(key_indices(layout.columns, unique_key), keys, strict=False):
        arrays[index] = pc.replace_with_mask(
            arrays[index], mask, to_arrow(layout.columns[index].type, values)
        )


def _time(clock_ms: np.ndarray[Any, Any]) -> pa.Array:
    micros = pa.array(clock_ms * 1000, mask=clock_ms == _UNKNOWN)
    return micros.cast(arrow_type(_WRITTEN[0].type))
