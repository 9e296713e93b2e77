"""ChangelogNormalize for a bounded read: the same rows as for a stream, without state.

Spark sorts the changes by key and order (and spills to disk). One pass folds and types them in this order, and keeps only the row of one
key. The fold is the same as in a stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from normalize.core.changes import ChangeBuilder
from normalize.core.counts import ALL_COUNTS
from normalize.core.guard import SourceTable, decode_summary
from normalize.core.key_group import KeyGroupResult, Stage, fold_changes
from normalize.core.output import Output, SideOutput, decode_side_outputs
from normalize.core.row_order import RowOrder, unknown_order
from normalize.core.state import KeyGroup
from normalize.kafka.dead_letter import send
from normalize.monitoring.counts import COLUMN, counts_ddl, counts_row, observe_counts, with_counts_column
from normalize.worker import worker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORDER = ("stamp", "source", "offset", "seq")
_COLUMNS = ("key", "stamp", "source", "offset", "change", "asides", "seen")


def normalize_bounded(keyed: DataFrame, stage: Stage, output: Output, *, split_partitions: bool, observation: Any = None) -> DataFrame:
    """Return the changelog of keyed changes.

    Parameters
    ----------
    keyed : DataFrame
        The batches of `targets.KeyedRows`, with counts or without.
    stage : Stage
    output : Output
    split_partitions : bool
        Whether a Kafka partition may be read by several tasks.
    observation : Observation or None
        Receives `ALL_COUNTS`.
    """
    folded = in_order(keyed, split_partitions=split_partitions).mapInArrow(
        partial(fold_pass, stage=stage, output=output), f"{output.ddl}, {counts_ddl(ALL_COUNTS)}"
    )
    return observe_counts(folded, ALL_COUNTS, observation)


def in_order(keyed: DataFrame, *, split_partitions: bool) -> DataFrame:
    """Return the changes sorted by key and order.

    Parameters
    ----------
    keyed : DataFrame
        The batches of `targets.KeyedRows`.
    split_partitions : bool
        Whether several tasks may read a Kafka partition: the timestamps, which are monotone in a task, are then made monotone across
        tasks.
    """
    from pyspark.sql import Window, functions as F

    if split_partitions:
        so_far = Window.partitionBy("key", "source").orderBy("offset", "seq").rowsBetween(Window.unboundedPreceding, Window.currentRow)
        keyed = keyed.withColumn("stamp", F.max("stamp").over(so_far))
    kept = [name for name in (*_COLUMNS, COLUMN) if name in keyed.columns]
    return keyed.repartition("key").sortWithinPartitions("key", *ORDER).select(*kept)


def fold_pass(batches: Iterator[pa.RecordBatch], *, stage: Stage, output: Output) -> Iterator[pa.RecordBatch]:
    """Fold sorted changes into typed changelog rows, followed by a row of counts; for ``mapInArrow``."""
    counts: Counter[str] = Counter()
    tables: list[SourceTable] = []
    group, held = stage.layout.empty(), ChangeBuilder(stage.shape)
    ties = None if stage.row_order == "log" else _Ties(stage.row_order)
    # These options require all changes of a key at once: the last key may continue in the next batch.
    whole_keys = stage.mini_batch or stage.layout.with_positions
    with worker():
        for batch in batches:
            # All rows without a key are in one task, which thus compares the tables of all partitions.
            tables = stage.expected.identity.merged(tables, _tables(batch))
            side_outputs = _read(batch, held, counts, ties)
            ready, held = held.split_last_key() if whole_keys else (held, ChangeBuilder(stage.shape))
            folded = KeyGroupResult()
            after = fold_changes(ready.changes(), group, stage, 0, folded)
            group = stage.layout.empty() if whole_keys else _of_last_key(after, ready)
            yield from _typed(folded, side_outputs, stage, output, counts)
        folded = KeyGroupResult()
        fold_changes(held.changes(), group, stage, 0, folded)
        yield from _typed(folded, [], stage, output, counts)
        yield counts_row(output.arrow_schema, ALL_COUNTS, counts)


def _typed(
    folded: KeyGroupResult, side_outputs: list[SideOutput], stage: Stage, output: Output, counts: Counter[str]
) -> Iterator[pa.RecordBatch]:
    counts.update(folded.counts)
    if stage.dead_letters is not None:
        send(stage.dead_letters, folded.letters)
    for changelog in folded.changelogs:
        yield with_counts_column(output.of_stored(changelog), ALL_COUNTS)
    side_outputs += folded.side_outputs
    if side_outputs:
        yield with_counts_column(output.of_side_outputs(side_outputs), ALL_COUNTS)


def _of_last_key(group: KeyGroup, folded: ChangeBuilder) -> KeyGroup:
    """Return the key group with only the last key's row; no more changes of the keys before it follow."""
    if not folded.keys:
        return group
    return replace(group, rows=group.rows.filter(pc.equal(group.rows.column("key"), folded.keys[-1])))


def _tables(batch: pa.RecordBatch) -> list[SourceTable]:
    return [table for seen in batch.column("seen").drop_null().to_pylist() for table in decode_summary(seen).tables]


class _Ties:
    """Raises an error for two changes of one key whose order is unknown (`row_order`); it sees them in their order."""

    def __init__(self, row_order: RowOrder) -> None:
        self.row_order = row_order
        self.last: tuple[Any, ...] = (None, None, None, None, None)

    def see(self, key: bytes, stamp: int, source: str, offset: int, change: bytes) -> None:
        last_key, last_stamp, last_source, last_offset, last_change = self.last
        if (key, stamp) == (last_key, last_stamp):
            if self.row_order == "row":
                tied = (source, offset) != (last_source, last_offset) and change != last_change
            else:
                tied = source != last_source and not stamp
            if tied:
                raise unknown_order(self.row_order)
        self.last = key, stamp, source, offset, change


def _read(batch: pa.RecordBatch, gathered: ChangeBuilder, counts: Counter[str], ties: _Ties | None) -> list[SideOutput]:
    side_outputs: list[SideOutput] = []
    columns = (batch.column(name).to_pylist() for name in _COLUMNS)
    for key, stamp, source, offset, change, packed, _ in zip(*columns, strict=True):
        if key is not None:
            if ties is not None:
                ties.see(key, stamp, source, offset, change)
            # In a bounded read redeliveries are detected only among the changes of one key.
            gathered.add_packed(key, stamp, f"{source} {key.hex()}", change)
        elif packed is not None:
            side_outputs += decode_side_outputs(packed)
    if COLUMN in batch.schema.names:
        for counted in batch.column(COLUMN).drop_null().to_pylist():
            counts.update(counted)
    return side_outputs
