"""Turn a typed changelog DataFrame into the batches of a target, on Spark's workers, in ``mapInArrow``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import KeyedChange
from cdc_formats.row_kind import RowKind
from cdc_formats.values.equality import key_getter
from normalize.core.arrow import from_arrow
from normalize.core.guard import PartitionSummary
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, Output, SideOutput
from normalize.core.records import Records

from .targets import TargetMaker


def pack_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    target: TargetMaker,
    output: Output,
    stage: Stage,
    ignore_deletes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Turn typed changelog rows into a target's batches; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        ``row_kind`` and the columns of `output`.
    target : callable
        Returns the task's `Target`.
    output : Output
    stage : Stage
    ignore_deletes : bool
        Whether deletes are dropped.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None  # on a worker
    collected = target(output, stage.layout.key_groups, stage.shape)
    keys = key_indices(output.columns, stage.layout.unique_key)
    held: KeyedRow | None = None
    start = 0
    collected.see(PartitionSummary())
    for rows_batch in batches:
        offsets = np.arange(start, start + rows_batch.num_rows)
        records = Records("DataFrame", context.partitionId(), offsets, np.zeros_like(offsets), [], [])
        rows, side_outputs = _rows(rows_batch, output, keys)
        for side_output in side_outputs:
            collected.add_side_output(records, 0, side_output)
        decoded: list[list[KeyedChange]] = [[] for _ in offsets]
        for changes, row in zip(decoded, rows, strict=False):
            # Whether a -U is a delete depends on the row after it, which may be in the next batch.
            if held is not None and not ignore_deletes and not (row.kind is RowKind.UPDATE_AFTER and row.key == held.key):
                changes.append(KeyedChange(held.key, None, held.metadata))
            held = row if row.kind is RowKind.UPDATE_BEFORE else None
            if held is None and not (ignore_deletes and row.kind is RowKind.DELETE):
                changes.append(KeyedChange(row.key, row.row, row.metadata))
        collected.take(records, decoded)
        start += rows_batch.num_rows
        yield from collected.flush()
    if held is not None and not ignore_deletes:
        records = Records("DataFrame", context.partitionId(), np.array([start]), np.zeros(1, np.int64), [], [])
        collected.take(records, [[KeyedChange(held.key, None, held.metadata)]])
        yield from collected.flush()
    yield from collected.finish()


class KeyedRow(NamedTuple):
    """A changelog row with its key; ``row`` is None for a delete."""

    kind: RowKind
    key: tuple[Any, ...]
    row: tuple[Any, ...] | None
    metadata: tuple[Any, ...]


def _rows(batch: pa.RecordBatch, output: Output, keys: Sequence[int]) -> tuple[list[KeyedRow], list[SideOutput]]:
    columns = [from_arrow(column.type, batch.column(index)) for index, column in enumerate(output.all, 1)]
    width, end = len(output.columns), len(output.columns) + len(output.metadata)
    key_of = key_getter(output.columns, keys)
    rows, side_outputs = [], []
    for kind, values in zip(batch.column(ROW_KIND).to_pylist(), zip(*columns, strict=True), strict=True):
        side_output = [
            SideOutput(column.name, value) for column, value in zip(output.side_outputs, values[end:], strict=True) if value is not None
        ]
        if kind is None and side_output:
            side_outputs += side_output
            continue
        row = values[:width]
        key = key_of(row)
        if None in key:
            raise MissingFieldError(f"`{output.columns[keys[key.index(None)]].name}` is part of the primary key and is null", field="row")
        row_kind = RowKind.from_short_string(str(kind))
        rows.append(KeyedRow(row_kind, key, None if row_kind is RowKind.DELETE else row, values[width:end]))
    return rows, side_outputs
