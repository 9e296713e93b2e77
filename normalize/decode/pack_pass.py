"""Conversion of a typed changelog DataFrame into a collector's batches by workers (``mapInArrow``)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import MissingFieldError
from cdc_formats.events import KeyedChange, RowKind
from cdc_formats.values.equality import key_getter
from normalize.core.arrow import from_arrow
from normalize.core.guard import PartitionSummary
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, Output, SideOutput
from normalize.core.records import Records

from .collectors import CollectorMaker


def pack_pass(
    batches: Iterator[pa.RecordBatch],
    *,
    collector: CollectorMaker,
    output: Output,
    stage: Stage,
    ignore_deletes: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Turn typed changelog rows into a collector's batches; for ``mapInArrow``.

    Parameters
    ----------
    batches : iterator of pyarrow.RecordBatch
        ``row_kind`` and the columns of `output`.
    collector : callable
        Returns the task's `Collector`.
    output : Output
    stage : Stage
    ignore_deletes : bool
        Whether deletes are dropped.
    """
    context = TaskContext.get()
    assert context is not None  # on a worker
    partition, start = context.partitionId(), 0
    collected = collector(output, stage.layout.key_groups, stage.shape)
    packer = _Packer(key_indices(output.columns, stage.layout.unique_key), ignore_deletes)
    collected.see(PartitionSummary())

    def records(count: int) -> Records:
        offsets = np.arange(start, start + count)
        # The rows of all partitions are in the order of the partitions.
        return Records("DataFrame", partition, offsets, (partition << 40) + offsets, [], [])

    for batch in batches:
        rows, side_outputs = _rows(batch, output, packer.keys)
        for side_output in side_outputs:
            collected.add_side_output(records(1), 0, side_output)
        if rows:
            collected.take(records(len(rows)), list(map(packer.changes, rows)))
        start += len(rows)
        yield from collected.flush()
    if last := packer.removed(None):
        collected.take(records(1), [last])
        yield from collected.flush()
    yield from collected.finish()


class _Packer:
    """Turns the rows of a task into changes."""

    def __init__(self, keys: Sequence[int], ignore_deletes: bool) -> None:
        self.keys, self.ignore_deletes = keys, ignore_deletes
        self.held: KeyedRow | None = None

    def changes(self, row: KeyedRow) -> list[KeyedChange]:
        """Return the changes that are known with a row."""
        changes = self.removed(row)
        if row.kind is RowKind.UPDATE_BEFORE:
            # Whether it is a delete depends on the row after it, which may be in the next batch.
            self.held = row
        elif row.row is not None or not self.ignore_deletes:
            changes.append(KeyedChange(row.key, row.row, row.metadata))
        return changes

    def removed(self, after: KeyedRow | None) -> list[KeyedChange]:
        """Return the delete that a ``-U`` is unless the row after it is the ``+U`` of its key."""
        before, self.held = self.held, None
        if before is None or self.ignore_deletes:
            return []
        is_update = (
            after is not None and after.kind is RowKind.UPDATE_AFTER and after.key == before.key
        )
        return [] if is_update else [KeyedChange(before.key, None, before.metadata)]


class KeyedRow(NamedTuple):
    """A changelog row with its key; ``row`` is None for a delete."""

    kind: RowKind
    key: tuple[Any, ...]
    row: tuple[Any, ...] | None
    metadata: tuple[Any, ...]


def _rows(
    batch: pa.RecordBatch, output: Output, keys: Sequence[int]
) -> tuple[list[KeyedRow], list[SideOutput]]:
    columns = [
        from_arrow(column.type, batch.column(index)) for index, column in enumerate(output.all, 1)
    ]
    width, end = len(output.columns), len(output.columns) + len(output.metadata)
    key_of = key_getter(output.columns, keys)
    rows, side_outputs = [], []
    for kind, values in zip(
        batch.column(ROW_KIND).to_pylist(), zip(*columns, strict=True), strict=True
    ):
        side_output = [
            SideOutput(column.name, value)
            for column, value in zip(output.side_outputs, values[end:], strict=True)
            if value is not None
        ]
        if kind is None and side_output:
            side_outputs += side_output
            continue
        row = values[:width]
        key = key_of(row)
        if None in key:
            raise MissingFieldError(
                (
                    f"`{output.columns[keys[key.index(None)]].name}` is part of the primary key "
                    "and is null"
                ),
                field="row",
            )
        row_kind = RowKind.from_short_string(str(kind))
        rows.append(
            KeyedRow(row_kind, key, None if row_kind is RowKind.DELETE else row, values[width:end])
        )
    return rows, side_outputs
